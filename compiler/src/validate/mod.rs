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

/// Seeded inputs for a bundle: a name for people and the tensors in the signature's order.
///
/// # Errors
/// When a range names no input, or a symbolic size has no value.
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
    let dims = inputs::default_dims(&signature.dims, &options.dims);
    let mut sets = Vec::new();
    for &distribution in &options.distributions {
        for seed in options.seed..options.seed + options.seeds {
            let make = |port: &Port| {
                let range = options.ranges.get(&port.name).copied();
                inputs::make(port, &dims, distribution, range, seed)
            };
            let tensors: Result<Vec<Tensor>, String> = signature.inputs.iter().map(make).collect();
            let tensors =
                tensors.map_err(|reason| Error::Option { option: "inputs".to_owned(), reason })?;
            sets.push((format!("{distribution}, seed {seed}"), tensors));
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

/// Runs the bundle on recorded inputs and judges each output against the recorded one.
///
/// # Errors
/// When a recorded input or output is missing or does not fit, or the device fails.
pub fn against_recorded(
    loaded: &Loaded,
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
        let reference = Reference::recorded(&expected).with_factors(Arithmetic::Model, precision);
        outputs.push(judge(&port.name, actual, &reference));
    }
    Ok(Case { inputs: path.display().to_string(), outputs })
}

/// The precision of the region that rounds factors the most.
fn least_precision(loaded: &Loaded) -> Precision {
    let regions = loaded.session.plan().regions.iter().map(|region| region.precision);
    regions.max_by(|a, b| a.factor_rounding().total_cmp(&b.factor_rounding())).unwrap_or_default()
}
