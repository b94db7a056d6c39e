//! Shapes: each class of ops over sizes 0, 1, primes and large ones, with broadcast, transposed and
//! strided operands, compiled and run on the emulator, against the reference interpreter.
//!
//! A case is a graph over one size `N`. It is compiled once with `N` symbolic and run at each of its
//! sizes, and compiled for each size as a constant.

mod cases;
mod sketch;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;

use fornax_bundle::{Bundle, Dims};
use fornax_compiler::validate::{Distribution, InputRange, Reference, inputs, judge};
use fornax_compiler::{CompileOptions, compile_graph};
use fornax_ir::interp::{Interpreter, Value};
use fornax_ir::{DType, Dim, DimRange, Graph};
use fornax_runtime::{Device, Emulator, LoadOptions, LoadedBundle, Memory};
use libtest_mimic::{Arguments, Failed, Trial};

use crate::cases::{CASES, Case};
use crate::sketch::Sketch;

/// The symbol.
const SYMBOL: &str = "N";

/// What integer inputs hold: some of it out of any index's range.
const INTEGERS: InputRange = InputRange { low: -9.0, high: 9.0 };

fn main() -> ExitCode {
    let device: Arc<dyn Device> = Arc::new(Emulator::default());
    let mut trials = Vec::new();
    for case in CASES {
        for &dtype in case.dtypes {
            let add = |trials: &mut Vec<Trial>, name: String, size: Option<i64>| {
                let target = if trials.len().is_multiple_of(2) { "sm_80" } else { "sm_90a" };
                let device = device.clone();
                trials.push(Trial::test(name, move || {
                    check(case, dtype, size, target, &device).map_err(Failed::from)
                }));
            };
            add(&mut trials, format!("{}/{dtype}/{SYMBOL}", case.name), None);
            // Element types differ in the bodies of loops, not in their bounds.
            let sizes = if dtype == case.dtypes[0] { case.sizes } else { &[] };
            for &size in sizes {
                add(&mut trials, format!("{}/{dtype}/{size}", case.name), Some(size));
            }
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Compiles a case, with its size or symbolic, and runs it.
fn check(
    case: &Case,
    dtype: DType,
    size: Option<i64>,
    target: &str,
    device: &Arc<dyn Device>,
) -> Result<(), String> {
    let dim = size.map_or_else(|| Dim::symbol(SYMBOL), Dim::constant);
    let mut sketch = Sketch::new(case.name);
    (case.build)(&mut sketch, dtype, &dim);
    let mut graph = sketch.finish();
    if size.is_none() {
        graph.dims.insert(SYMBOL.into(), DimRange { min: 0, max: 1 << 20, divisor: 1 });
    }
    let loaded = load(&graph, target, device)?;
    let sizes = size.as_ref().map_or(case.sizes, std::slice::from_ref);
    for &size in sizes {
        compare(case, dtype, &graph, &loaded, size)
            .map_err(|message| format!("{SYMBOL} = {size}: {message}\n{graph}"))?;
    }
    Ok(())
}

fn load(graph: &Graph, target: &str, device: &Arc<dyn Device>) -> Result<LoadedBundle, String> {
    let options = CompileOptions { targets: vec![target.to_owned()], ..CompileOptions::default() };
    let compiled = compile_graph(graph.clone(), &options, &mut |_, _, _| {})
        .map_err(|error| format!("{error}\n{graph}"))?;
    let bytes = compiled.parts.to_bytes().map_err(|error| error.to_string())?;
    let bundle = Bundle::from_bytes(bytes).map_err(|error| error.to_string())?;
    let options = LoadOptions { memory: Memory::Separate, ..LoadOptions::default() };
    LoadedBundle::load(device.clone(), &bundle, options).map_err(|error| error.to_string())
}

fn compare(
    case: &Case,
    dtype: DType,
    graph: &Graph,
    loaded: &LoadedBundle,
    size: i64,
) -> Result<(), String> {
    let signature = &loaded.manifest().signature;
    let dims = Dims::from([(SYMBOL.into(), size)]);
    let given: Vec<_> = signature
        .inputs
        .iter()
        .map(|port| {
            let range = (!port.dtype.is_float()).then_some(INTEGERS);
            let range = if port.dtype == DType::Bool { None } else { range };
            inputs::make(port, &dims, Distribution::Normal, range, size.unsigned_abs())
        })
        .collect::<Result<_, String>>()?;
    let weights = BTreeMap::new();
    let interpreter = Interpreter::new(graph, &given, &weights).map_err(|e| e.to_string())?;
    let exact: Vec<Value<f64>> = interpreter.outputs().map_err(|e| e.to_string())?;
    let interpreter = Interpreter::new(graph, &given, &weights).map_err(|e| e.to_string())?;
    let single: Vec<Value<f32>> = interpreter.outputs().map_err(|e| e.to_string())?;
    let actual = loaded.run(&given).map_err(|error| error.to_string())?;
    let narrowest = if dtype.is_float() { dtype } else { DType::F32 };
    for (((port, actual), exact), single) in
        signature.outputs.iter().zip(&actual).zip(&exact).zip(&single)
    {
        if actual.shape() != exact.shape() {
            return Err(format!(
                "{} has the shape {:?}, not {:?}",
                port.name,
                actual.shape(),
                exact.shape()
            ));
        }
        let reference =
            Reference::interpreted(exact, single, case.arithmetic, port.dtype, narrowest);
        let report = judge(&port.name, actual, &reference);
        if !report.passed {
            return Err(format!("{report:?}"));
        }
    }
    Ok(())
}
