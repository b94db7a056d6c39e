//! Inputs and outputs as a call gives them.

use fornax_bundle::manifest::{Port, Signature};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::error::Error;

/// The tensors of a call, in the signature's order.
pub(crate) struct Arguments<'py> {
    pub(crate) inputs: Vec<Bound<'py, PyAny>>,
    /// Where the caller wants the outputs.
    pub(crate) out: Option<Vec<Bound<'py, PyAny>>>,
}

impl<'py> Arguments<'py> {
    /// Sorts what a call gives, by position and by name.
    pub(crate) fn bind(
        signature: &Signature,
        inputs: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
    ) -> Result<Arguments<'py>, Error> {
        match named {
            Some(named) => by_name(signature, inputs, named),
            None if inputs.len() != signature.inputs.len() => {
                Err(wrong_count(signature, inputs.len()))
            }
            None => Ok(Arguments { inputs: inputs.iter().collect(), out: None }),
        }
    }
}

fn by_name<'py>(
    signature: &Signature,
    inputs: &Bound<'py, PyTuple>,
    named: &Bound<'py, PyDict>,
) -> Result<Arguments<'py>, Error> {
    let mut given: Vec<Option<Bound<'py, PyAny>>> = inputs.iter().map(Some).collect();
    if given.len() > signature.inputs.len() {
        return Err(wrong_count(signature, given.len()));
    }
    let n_positional = given.len();
    given.resize(signature.inputs.len(), None);
    let mut out = None;
    for (name, object) in named {
        let name: String = name.extract()?;
        let position = signature.inputs.iter().position(|port| port.name == name);
        match position {
            Some(index) if index < n_positional => {
                let reason = format!("input `{name}` is given twice, by position and by name");
                return Err(Error::Arguments(reason));
            }
            Some(index) => given[index] = Some(object),
            None if name == "out" => {
                out = (!object.is_none()).then_some(object);
            }
            None => {
                let names = names(&signature.inputs);
                let reason = format!("the model has no input `{name}`; it has: {names}");
                return Err(Error::Arguments(reason));
            }
        }
    }
    let n_given = given.iter().flatten().count();
    let complete: Option<Vec<_>> = given.into_iter().collect();
    let inputs = complete.ok_or_else(|| wrong_count(signature, n_given))?;
    let out = out.map(|out| output_objects(&signature.outputs, out)).transpose()?;
    Ok(Arguments { inputs, out })
}

/// The tensors that outputs are wanted in: one, or a tuple or list of them.
fn output_objects<'py>(
    ports: &[Port],
    out: Bound<'py, PyAny>,
) -> Result<Vec<Bound<'py, PyAny>>, Error> {
    let is_sequence = out.is_instance_of::<PyTuple>() || out.is_instance_of::<PyList>();
    let given = if is_sequence { out.extract()? } else { vec![out] };
    if given.len() != ports.len() {
        let (n_ports, names) = (ports.len(), names(ports));
        let reason = format!("the model has {n_ports} outputs ({names}), not {}", given.len());
        return Err(Error::Arguments(format!("out: {reason}")));
    }
    Ok(given)
}

fn wrong_count(signature: &Signature, n_given: usize) -> Error {
    let (n_inputs, names) = (signature.inputs.len(), names(&signature.inputs));
    Error::Arguments(format!("the model takes {n_inputs} inputs ({names}), not {n_given}"))
}

fn names(ports: &[Port]) -> String {
    let names: Vec<_> = ports.iter().map(|port| port.name.as_str()).collect();
    names.join(", ")
}
