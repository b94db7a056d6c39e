//! `run` tests: values in, values out, by every evaluator.
//!
//! ```text
//! ; test: run
//! ; weight: w = f32[2] [1.0, 2.0]
//! ...
//! ; run: @f([1.0, -0.0]) == [1.0, 0.0] ulp 0
//! ```
//!
//! Arguments and results have the types in the graph's first line; where sizes are symbolic, a type is
//! written before the elements. A result is right when each element is within the given number of
//! units in the last place (0 by default, where the sign of zero counts); NaN is NaN.

use std::collections::BTreeMap;

use fornax_ir::interp::evaluate;
use fornax_ir::text::{parse_graph, parse_tensors, print_tensor};
use fornax_ir::{DType, Graph, Tensor, Type, verify};

use super::Case;

type Weights = BTreeMap<String, Tensor>;

/// A way to compute a graph's outputs.
type Evaluator = fn(&Graph, &[Tensor], &Weights) -> Result<Vec<Tensor>, String>;

/// Every way this build has.
const EVALUATORS: &[(&str, Evaluator)] = &[
    ("the interpreter", interpreted),
    #[cfg(feature = "passes")]
    ("the interpreter after canonicalisation", canonicalized),
    #[cfg(feature = "passes")]
    ("the interpreter after rewriting", optimized),
    #[cfg(feature = "passes")]
    ("the interpreter on the fused plan", fused),
    #[cfg(feature = "llvm")]
    ("the compiled bundle on the emulator", emulated),
];

pub(super) fn run(case: &Case) -> Result<String, String> {
    let graph = parse_graph(&case.input).map_err(|error| error.to_string())?;
    if let Some(fault) = verify::verify(&graph).first() {
        return Err(fault.to_string());
    }
    let mut weights = Weights::new();
    for setting in case.all_settings("weight") {
        let (name, tensor) = setting.split_once(" = ").ok_or("`; weight: NAME = TENSOR`")?;
        let tensors = parse_tensors(tensor, &[]).map_err(|error| error.to_string())?;
        weights.extend(tensors.into_iter().map(|tensor| (name.to_owned(), tensor)));
    }
    let lines: Vec<&str> =
        case.expectation.lines().filter_map(|line| line.strip_prefix("run: ")).collect();
    if lines.is_empty() {
        return Err("there is no `; run:` line behind the graph".into());
    }
    for line in lines {
        let call = Call::read(line, &graph).map_err(|error| format!("{line}\n{error}"))?;
        for (name, evaluator) in EVALUATORS {
            let results = evaluator(&graph, &call.arguments, &weights)
                .map_err(|error| format!("{line}\n{name}: {error}"))?;
            call.compare(&results).map_err(|error| format!("{line}\n{name}: {error}"))?;
        }
    }
    Ok(case.unchanged())
}

/// `@f(arguments) == results ulp N`
struct Call {
    arguments: Vec<Tensor>,
    results: Vec<Tensor>,
    ulps: u64,
}

impl Call {
    fn read(line: &str, graph: &Graph) -> Result<Call, String> {
        let start = format!("@{}(", graph.name);
        let rest = line.strip_prefix(&start).ok_or(format!("expected `{start}`"))?;
        let (arguments, rest) = rest.split_once(") == ").ok_or("expected `) == `")?;
        let (results, ulps) = match rest.rsplit_once(" ulp ") {
            Some((results, ulps)) => (results, ulps.trim().parse().map_err(|_| "bad ulp")?),
            None => (rest, 0),
        };
        let types = |ids: Vec<fornax_ir::NodeId>| -> Vec<Type> {
            ids.into_iter().map(|id| graph.ty(id).clone()).collect()
        };
        let tensors = |text: &str, types: Vec<Type>| match text {
            "" => Ok(Vec::new()),
            text => parse_tensors(text, &types).map_err(|error| error.to_string()),
        };
        let outputs = graph.outputs().iter().map(|output| output.value).collect();
        Ok(Call {
            arguments: tensors(arguments, types(graph.inputs().to_vec()))?,
            results: tensors(results, types(outputs))?,
            ulps,
        })
    }

    fn compare(&self, actual: &[Tensor]) -> Result<(), String> {
        let same_types = self.results.len() == actual.len()
            && self.results.iter().zip(actual).all(|(expected, actual)| {
                expected.dtype() == actual.dtype() && expected.shape() == actual.shape()
            });
        let holds = same_types
            && self.results.iter().zip(actual).all(|(expected, actual)| {
                let distances = ulps_between(expected, actual);
                distances.into_iter().all(|distance| distance <= self.ulps)
            });
        if holds {
            return Ok(());
        }
        let actual: Vec<String> = actual.iter().map(print_tensor).collect();
        Err(format!("got {}", actual.join(", ")))
    }
}

/// How many representable numbers lie between the elements of two tensors of one type.
fn ulps_between(left: &Tensor, right: &Tensor) -> Vec<u64> {
    let size = left.dtype().size();
    let elements = |tensor: &Tensor| -> Vec<(bool, i128)> {
        let bytes = tensor.bytes();
        let values = tensor.to_f64();
        let ranks = bytes.chunks_exact(size).map(|element| rank(tensor.dtype(), element));
        values.iter().map(|value| value.is_nan()).zip(ranks).collect()
    };
    let pairs = elements(left).into_iter().zip(elements(right));
    pairs
        .map(|pair| match pair {
            ((true, _), (true, _)) => 0,
            ((true, _), _) | (_, (true, _)) => u64::MAX,
            ((_, left), (_, right)) => (left - right).unsigned_abs() as u64,
        })
        .collect()
}

/// The place of a number among all numbers of its type; -0 comes right before +0.
fn rank(dtype: DType, element: &[u8]) -> i128 {
    let mut bytes = [0; 8];
    bytes[..element.len()].copy_from_slice(element);
    let bits = i128::from(u64::from_le_bytes(bytes));
    let sign = 1i128 << (8 * element.len() - 1);
    match dtype {
        _ if dtype.is_float() && bits >= sign => -1 - (bits - sign),
        _ if dtype.is_signed_int() && bits >= sign => bits - 2 * sign,
        _ => bits,
    }
}

fn interpreted(graph: &Graph, inputs: &[Tensor], weights: &Weights) -> Result<Vec<Tensor>, String> {
    let values = evaluate::<f64>(graph, inputs, weights).map_err(|error| error.to_string())?;
    let dtypes = graph.outputs().iter().map(|output| graph.ty(output.value).dtype);
    Ok(values.iter().zip(dtypes).map(|(value, dtype)| value.to_tensor(dtype)).collect())
}

#[cfg(feature = "passes")]
fn canonicalized(
    graph: &Graph,
    inputs: &[Tensor],
    weights: &Weights,
) -> Result<Vec<Tensor>, String> {
    let graph = fornax_passes::canonicalize(graph.clone()).map_err(|error| error.to_string())?;
    interpreted(&graph, inputs, weights)
}

/// Rewrites by rules that keep every bit.
#[cfg(feature = "passes")]
fn optimized(graph: &Graph, inputs: &[Tensor], weights: &Weights) -> Result<Vec<Tensor>, String> {
    use fornax_passes::egraph::{Rewrites, optimize};

    let graph = fornax_passes::canonicalize(graph.clone()).map_err(|error| error.to_string())?;
    let optimized = optimize(&graph, Rewrites::Bitwise).map_err(|error| error.to_string())?;
    interpreted(&optimized.graph, inputs, weights)
}

/// Evaluates region by region, rounding what is stored.
#[cfg(feature = "passes")]
fn fused(graph: &Graph, inputs: &[Tensor], weights: &Weights) -> Result<Vec<Tensor>, String> {
    use fornax_ir::interp::{InterpError, Interpreter, Value};

    let text = |error: InterpError| error.to_string();
    let dims = Interpreter::<f64>::new(graph, inputs, weights).map_err(text)?.dims().clone();
    let graph = fornax_passes::canonicalize(graph.clone()).map_err(|error| error.to_string())?;
    let plan = fornax_passes::fuse(&graph, fornax_ir::PrecisionPolicy::default())
        .map_err(|error| error.to_string())?;
    let inputs: Vec<Value<f64>> = inputs.iter().map(Value::from_tensor).collect();
    let weights = weights.iter().map(|(name, data)| (name.clone(), Value::from_tensor(data)));
    let store = |value: Value<f64>, dtype| Value::from_tensor(&value.to_tensor(dtype));
    let values = crate::regions::evaluate(&plan, &inputs, &weights.collect(), &dims, store);
    let dtypes = graph.outputs().iter().map(|output| graph.ty(output.value).dtype);
    Ok(values.map_err(text)?.iter().zip(dtypes).map(|(value, ty)| value.to_tensor(ty)).collect())
}

/// Compiles, writes the bundle and reads it back, loads and runs it. The values are exact ones, so only
/// rewrites that keep every bit are allowed.
#[cfg(feature = "llvm")]
fn emulated(graph: &Graph, inputs: &[Tensor], weights: &Weights) -> Result<Vec<Tensor>, String> {
    use fornax_bundle::Bundle;
    use fornax_compiler::{CompileOptions, Rewrites, WeightsMode, compile_graph};
    use fornax_runtime::{LoadOptions, LoadedBundle, open_device};

    let options = CompileOptions {
        weights: WeightsMode::External,
        rewrites: Rewrites::Bitwise,
        verify: true,
        ..Default::default()
    };
    let compiled = compile_graph(graph.clone(), &options, &mut |_, _, _| {})
        .map_err(|error| error.to_string())?;
    let bytes = compiled.parts.to_bytes().map_err(|error| error.to_string())?;
    let bundle = Bundle::from_bytes(bytes).map_err(|error| error.to_string())?;
    let device = open_device("emulator").map_err(|error| error.to_string())?;
    let options = LoadOptions { weights: weights.clone(), ..LoadOptions::default() };
    let loaded = LoadedBundle::load(device, &bundle, options).map_err(|error| error.to_string())?;
    loaded.run(inputs).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_representable_numbers() {
        let f32 = |value: f32| Tensor::from_f32(&[1], &[value]);
        for (left, right, distance) in [
            (1.0, 1.0, 0),
            (0.0, -0.0, 1),
            (1.0, 1.0 + f32::EPSILON, 1),
            (-f32::MIN_POSITIVE, f32::MIN_POSITIVE, 0x0100_0001),
            (f32::NAN, -f32::NAN, 0),
            (f32::NAN, 1.0, u64::MAX),
            (f32::MAX, f32::INFINITY, 1),
        ] {
            assert_eq!(ulps_between(&f32(left), &f32(right)), [distance], "{left} {right}");
        }
        let i64 = |value: i64| Tensor::from_i64(&[1], &[value]);
        assert_eq!(ulps_between(&i64(-2), &i64(3)), [5]);
        assert_eq!(ulps_between(&i64(i64::MIN), &i64(i64::MAX)), [u64::MAX]);
    }
}
