//! Validation: a bundle's results against the reference interpreter, or against recorded tensors.

mod bisect;
pub mod inputs;
mod judge;
mod reference;

use std::collections::BTreeMap;
use std::path::Path;

use fornax_bundle::manifest::Port;
use fornax_bundle::{Precision, Tensor};
use fornax_runtime::compare::Arithmetic;
use serde::Serialize;

pub use bisect::{Bisection, bisect};
pub use inputs::{Distribution, InputRange};
pub use judge::{OutputReport, Reference, judge};

use crate::{Error, Loaded};
use reference::References;

/// What to validate on.
#[derive(Debug, Clone)]
pub struct Options {
    /// The first seed.
    pub seed: u64,
    /// Seeds per distribution.
    pub seeds: u64,
    /// How inputs are filled.
    pub distributions: Vec<Distribution>,
    /// Ranges of inputs, by name.
    pub ranges: BTreeMap<String, InputRange>,
    /// Values of symbolic sizes, by name.
    pub dims: BTreeMap<String, u64>,
}

/// One comparison: a set of inputs and each output's verdict.
#[derive(Debug, Clone, Serialize)]
pub struct Case {
    /// Where the inputs come from: a distribution with its seed, or a file.
    pub inputs: String,
    /// The outputs in order.
    pub outputs: Vec<OutputReport>,
}

impl Case {
    /// Whether all outputs are right.
    pub fn passed(&self) -> bool {
        self.outputs.iter().all(|output| output.passed)
    }
}

/// Seeded inputs for a bundle: a name for people and the tensors in the signature's order. Equal sets are
/// given once.
///
/// # Errors
/// When a range names no input, a size no dimension of the bundle, or a symbolic size has no value.
pub fn seeded_inputs(
    loaded: &Loaded,
    options: &Options,
) -> Result<Vec<(String, Vec<Tensor>)>, Error> {
    let signature = &loaded.bundle.manifest().signature;
    let known = |name: &String| signature.inputs.iter().any(|port| port.name == *name);
    if let Some(name) = options.ranges.keys().find(|name| !known(name)) {
        let names: Vec<&str> = signature.inputs.iter().map(|port| port.name.as_str()).collect();
        return Err(Error::Option {
            option: format!("--input-range {name}=.."),
            reason: format!("the model has no such input; it has: {}", names.join(", ")),
        });
    }
    let known = |name: &String| signature.dims.iter().any(|decl| *decl.name == **name);
    if let Some(name) = options.dims.keys().find(|name| !known(name)) {
        let names: Vec<&str> = signature.dims.iter().map(|decl| &*decl.name).collect();
        let reason = match names.is_empty() {
            true => "the bundle has fixed sizes only".to_owned(),
            false => format!("the bundle has no such dimension; it has: {}", names.join(", ")),
        };
        return Err(Error::Option { option: format!("--dim {name}"), reason });
    }
    let dims = inputs::default_dims(&signature.dims, &options.dims);
    let mut sets: Vec<(String, Vec<Tensor>)> = Vec::new();
    for &distribution in &options.distributions {
        for seed in options.seed..options.seed + options.seeds {
            let make = |port: &Port| {
                let range = options.ranges.get(&port.name).copied();
                inputs::make(port, &dims, distribution, range, seed)
            };
            let tensors: Result<Vec<Tensor>, String> = signature.inputs.iter().map(make).collect();
            let tensors =
                tensors.map_err(|reason| Error::Option { option: "inputs".to_owned(), reason })?;
            // Integers, and floats whose range is given, are the same in several distributions.
            let known = sets.iter().any(|(_, set)| *set == tensors);
            if !known {
                sets.push((format!("{distribution}, seed {seed}"), tensors));
            }
        }
    }
    Ok(sets)
}

/// Runs the bundle on a set of inputs and judges each output against the reference interpreter: all its
/// elements, or a sample of them where the whole graph takes more than a billion operations.
///
/// # Errors
/// When inputs do not fit, or the device or the interpreter fails.
pub fn against_interpreter(
    loaded: &Loaded,
    path: &Path,
    name: &str,
    inputs: &[Tensor],
) -> Result<Case, Error> {
    let graph = loaded.graph(path)?;
    let references = References::evaluate(&graph, inputs)?;
    let actual = loaded.session.run(inputs)?;
    let narrowest = judge::narrowest_float(&graph);
    let precision = least_precision(loaded);
    let ports = &loaded.bundle.manifest().signature.outputs;
    let outputs = ports
        .iter()
        .zip(&actual)
        .enumerate()
        .map(|(output, (port, actual))| {
            let kind = (Arithmetic::Model, precision, narrowest);
            references.judge(output, &port.name, actual, kind)
        })
        .collect();
    Ok(Case { inputs: name.to_owned(), outputs })
}

/// Runs the bundle on inputs recorded in the file `path` and judges each output against the recorded one.
///
/// # Errors
/// When a recorded input or output is missing or does not fit, or the device fails.
pub fn against_recorded(
    loaded: &Loaded,
    bundle: &Path,
    path: &Path,
    recorded: &BTreeMap<String, Tensor>,
) -> Result<Case, Error> {
    let signature = &loaded.bundle.manifest().signature;
    let find = |name: &str, what: &str| {
        recorded.get(name).cloned().ok_or_else(|| Error::File {
            path: path.to_owned(),
            reason: format!("it has no array for the {what} `{name}`"),
        })
    };
    let inputs: Vec<Tensor> =
        signature.inputs.iter().map(|port| find(&port.name, "input")).collect::<Result<_, _>>()?;
    let actual = loaded.session.run(&inputs)?;
    let precision = least_precision(loaded);
    let narrowest = judge::narrowest_float(&loaded.graph(bundle)?);
    let mut outputs = Vec::new();
    for (port, actual) in signature.outputs.iter().zip(&actual) {
        let expected = find(&port.name, "output")?;
        if (expected.dtype(), expected.shape()) != (actual.dtype(), actual.shape()) {
            return Err(Error::File {
                path: path.to_owned(),
                reason: format!(
                    "the output `{}` is recorded as {}{:?}, but the bundle gives {}{:?}",
                    port.name,
                    expected.dtype(),
                    expected.shape(),
                    actual.dtype(),
                    actual.shape()
                ),
            });
        }
        let reference = Reference::recorded(&expected, narrowest);
        let reference = reference.with_factors(Arithmetic::Model, precision);
        outputs.push(judge(&port.name, actual, &reference));
    }
    Ok(Case { inputs: path.display().to_string(), outputs })
}

/// The precision of the region that rounds factors the most.
fn least_precision(loaded: &Loaded) -> Precision {
    let regions = loaded.session.plan().regions.iter().map(|region| region.precision);
    regions.max_by(|a, b| a.factor_rounding().total_cmp(&b.factor_rounding())).unwrap_or_default()
}
