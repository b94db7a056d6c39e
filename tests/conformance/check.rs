//! Running one test: importer, interpreter, compiler, emulator.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use fornax_bundle::Bundle;
use fornax_compiler::{CompileOptions, compile_graph};
use fornax_ir::interp::{Interpreter, Value};
use fornax_ir::{DType, Diagnostic, Graph, Tensor};
use fornax_models::ImportError;
use fornax_runtime::compare::{Arithmetic, Tolerance, compare};
use fornax_runtime::{Device, LoadOptions, LoadedBundle, Memory};

use crate::node_test::{Imported, NodeTest};
use crate::outcome::Outcome;

/// What comes of a test that is compiled for one target.
pub fn check(test: &NodeTest, target: &str, device: &Arc<dyn Device>) -> Outcome {
    catch_unwind(AssertUnwindSafe(|| run(test, target, device))).unwrap_or_else(|panic| {
        let message = panic.downcast_ref::<String>().map(String::as_str);
        let message = message.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        Outcome::Failed(format!("panic: {message}"))
    })
}

fn run(test: &NodeTest, target: &str, device: &Arc<dyn Device>) -> Outcome {
    let imported = match test.import() {
        Ok(imported) => imported,
        Err(error) => return refused(test, &error),
    };
    let interpreted = interpret(&imported).and_then(|outputs| {
        compare_all(&imported.graph, &outputs, test)?;
        Ok(outputs)
    });
    let interpreted = match interpreted {
        Ok(outputs) => outputs,
        Err(message) => {
            return Outcome::Failed(format!("interpreter: {message}\n{}", imported.graph));
        }
    };
    let options = CompileOptions { targets: vec![target.to_owned()], ..CompileOptions::default() };
    let compiled = compile_graph(imported.graph.clone(), &options, &mut |_, _, _| {});
    let parts = match compiled {
        Ok(compiled) => compiled.parts,
        Err(error) => return not_compiled(&error),
    };
    let outcome = parts
        .to_bytes()
        .and_then(Bundle::from_bytes)
        .map_err(|error| format!("bundle: {error}"))
        .and_then(|bundle| execute(&bundle, device, &imported.inputs))
        .and_then(|outputs| {
            compare_all(&imported.graph, &outputs, test)?;
            agree(&imported.graph, &outputs, &interpreted)
        });
    match outcome {
        Ok(()) => Outcome::Pass,
        Err(message) => {
            let plan = parts.plan.as_deref().unwrap_or_default();
            Outcome::Failed(format!("compiled for {target}: {message}\n{plan}"))
        }
    }
}

/// The graph's outputs by the interpreter in double precision, each rounded to its type.
fn interpret(imported: &Imported) -> Result<Vec<Tensor>, String> {
    let Imported { graph, inputs } = imported;
    let values: Vec<Value<f64>> = Interpreter::new(graph, inputs, &BTreeMap::new())
        .and_then(|interpreter| interpreter.outputs())
        .map_err(|error| error.to_string())?;
    let dtype = |at: usize| graph.ty(graph.outputs()[at].value).dtype;
    Ok(values.iter().enumerate().map(|(at, value)| value.to_tensor(dtype(at))).collect())
}

fn execute(
    bundle: &Bundle,
    device: &Arc<dyn Device>,
    inputs: &[Tensor],
) -> Result<Vec<Tensor>, String> {
    let options = LoadOptions { memory: Memory::Separate, ..LoadOptions::default() };
    LoadedBundle::load(device.clone(), bundle, options)
        .and_then(|loaded| loaded.run(inputs))
        .map_err(|error| error.to_string())
}

/// Compares results with the recorded ones.
fn compare_all(graph: &Graph, actual: &[Tensor], test: &NodeTest) -> Result<(), String> {
    if actual.len() != test.outputs.len() {
        return Err(format!("{} outputs, not {}", actual.len(), test.outputs.len()));
    }
    for ((actual, recorded), output) in actual.iter().zip(&test.outputs).zip(graph.outputs()) {
        let recorded = recorded.as_ref().ok_or("the recorded output cannot be read")?;
        let name = &output.name;
        if actual.dtype() != recorded.dtype() {
            let (actual, recorded) = (actual.dtype(), recorded.dtype());
            return Err(format!("output `{name}` is {actual}, not {recorded}"));
        }
        let is_quantised = graph.inputs().iter().any(|&input| graph.ty(input).dtype.is_float());
        within(name, actual, recorded, recorded_tolerance(recorded.dtype(), is_quantised))?;
    }
    Ok(())
}

/// Compares the compiled model's results with the interpreter's, which is less forgiving.
fn agree(graph: &Graph, actual: &[Tensor], interpreted: &[Tensor]) -> Result<(), String> {
    for ((actual, interpreted), output) in actual.iter().zip(interpreted).zip(graph.outputs()) {
        let tolerance = Tolerance::of(Arithmetic::Contraction, actual.dtype());
        within(&output.name, actual, interpreted, tolerance)
            .map_err(|message| format!("against the interpreter: {message}"))?;
    }
    Ok(())
}

fn within(
    name: &str,
    actual: &Tensor,
    reference: &Tensor,
    tolerance: Tolerance,
) -> Result<(), String> {
    let comparison = compare(actual, reference, tolerance)
        .map_err(|error| format!("output `{name}`: {error}"))?;
    if comparison.passed {
        return Ok(());
    }
    Err(format!(
        "output `{name}`: {} of {} elements are wrong, worst {:?}; relative error {:e}",
        comparison.n_failed, comparison.n_elements, comparison.worst, comparison.frobenius
    ))
}

/// How far from the recorded results a test may be: 1e-3 of each element, as the package's own runner
/// has it, since some are written down with few digits. Small floats get two units in the last place,
/// and quantised numbers one, since a quotient near a tie may be rounded either way.
fn recorded_tolerance(dtype: DType, is_quantised: bool) -> Tolerance {
    let reason = "what onnx.backend.test.runner allows, or the rounding of the type";
    let (ulp, of_largest) = match dtype {
        DType::F64 => (1e-3 * f64::powi(2.0, 53), f64::powi(2.0, -53)),
        DType::F32 => (1e-3 * f64::powi(2.0, 24), 64.0 * f64::powi(2.0, -24)),
        DType::F16 => (2.0, 2.0 * f64::powi(2.0, -11)),
        DType::BF16 => (2.0, 2.0 * f64::powi(2.0, -8)),
        DType::I8 | DType::U8 if is_quantised => (1.0, 0.0),
        _ => (0.0, 0.0),
    };
    Tolerance { ulp, of_largest, frobenius: f64::INFINITY, reason }
}

fn refused(test: &NodeTest, error: &ImportError) -> Outcome {
    if let Some(reason) = test.unsupported_type() {
        return Outcome::Refused(reason);
    }
    let ImportError::Model { diagnostics, .. } = error else {
        return Outcome::Failed(format!("import: {error}"));
    };
    Outcome::Refused(diagnostics.first().map_or_else(|| "unknown".to_owned(), reason))
}

/// The reason in a word: the operator that is missing, or the code of the first fault.
fn reason(fault: &Diagnostic) -> String {
    let code = fault.code.strip_prefix("onnx-").unwrap_or(&fault.code);
    if code != "unsupported-op" {
        return code.to_owned();
    }
    let names = fault.notes.iter().filter_map(|note| note.split([':', ' ']).next());
    format!("operator-{}", names.collect::<Vec<_>>().join(","))
}

/// The compiler may refuse what it has no code for; anything else that it reports is a failure.
fn not_compiled(error: &fornax_compiler::Error) -> Outcome {
    let text = error.to_string();
    let refusals = ["is not available for ", "cannot be computed with"];
    match text.find(refusals[0]).or(text.find(refusals[1])) {
        Some(_) if !text.contains("internal error") => {
            let function = text.split('`').nth(3).unwrap_or("type");
            let dtype = text.split(refusals[0]).nth(1).and_then(|rest| rest.split(';').next());
            Outcome::Interpreter(format!("function-{function}-{}", dtype.unwrap_or("unknown")))
        }
        _ => Outcome::Failed(format!("compile: {text}")),
    }
}
