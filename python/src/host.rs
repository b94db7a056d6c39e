//! Calls on the emulator: arrays of numpy or tensors of torch in host memory.

use fornax_bundle::Tensor;
use fornax_bundle::manifest::Signature;
use fornax_runtime::LoadedBundle;
use pyo3::prelude::*;

use crate::array::{Origin, View, dtype_name, host_array};
use crate::describe::Scratch;
use crate::error::Error;

/// Runs the model and waits for it. The outputs are torch tensors when an input is, else numpy arrays.
pub(crate) fn call<'py>(
    bundle: &LoadedBundle,
    noted: &Scratch,
    inputs: &[Bound<'py, PyAny>],
    out: Option<&[Bound<'py, PyAny>]>,
    py: Python<'py>,
) -> Result<Vec<Bound<'py, PyAny>>, Error> {
    let signature = &bundle.manifest().signature;
    let (tensors, origin) = read(signature, inputs)?;
    let types: Vec<_> = tensors.iter().map(|tensor| (tensor.dtype(), tensor.shape())).collect();
    let sized = bundle.size_run(&types)?;
    noted.note(sized.scratch_bytes());
    let what = |index: usize| format!("output `{}`", signature.outputs[index].name);
    // Before the run, so that a wrong one costs nothing.
    let mut targets = Vec::new();
    for (index, output) in out.unwrap_or_default().iter().enumerate() {
        let (dtype, shape) = &sized.outputs()[index];
        let view = View::of(output, &what(index))?;
        check_host(&view, &what(index))?;
        view.check_type(&what(index), *dtype, shape)?;
        view.check_contiguous(&what(index))?;
        view.check_writable(&what(index))?;
        targets.push(view);
    }
    let results = py.detach(|| bundle.run(&tensors))?;
    match out {
        None => results.iter().map(|result| host_array(py, result, origin)).collect(),
        Some(out) => {
            for (index, (view, result)) in targets.iter().zip(&results).enumerate() {
                view.fill_from(result, &what(index))?;
            }
            Ok(out.to_vec())
        }
    }
}

/// The inputs' contents, and what kind of arrays they are.
fn read(
    signature: &Signature,
    inputs: &[Bound<'_, PyAny>],
) -> Result<(Vec<Tensor>, Origin), Error> {
    let (mut tensors, mut origin) = (Vec::new(), Origin::Numpy);
    for (port, input) in signature.inputs.iter().zip(inputs) {
        let what = format!("input `{}`", port.name);
        let view = View::of(input, &what)?;
        check_host(&view, &what)?;
        if view.dtype != port.dtype {
            let (wanted, given) = (dtype_name(port.dtype), dtype_name(view.dtype));
            return Err(Error::tensor(what, format!("it must be {wanted}, not {given}")));
        }
        if view.origin == Origin::TorchHost {
            origin = Origin::TorchHost;
        }
        tensors.push(view.to_tensor(&what)?);
    }
    Ok((tensors, origin))
}

fn check_host(view: &View, what: &str) -> Result<(), Error> {
    match view.origin {
        Origin::Numpy | Origin::TorchHost => Ok(()),
        Origin::TorchCuda(_) => {
            let reason =
                format!("it is {}, the model on the emulator: `.cpu()` helps", view.origin);
            Err(Error::tensor(what, reason))
        }
    }
}
