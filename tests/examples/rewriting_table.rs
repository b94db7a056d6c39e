//! A table of what rewriting brings: for each ONNX model given, regions and bytes they move at each run,
//! before and after, the estimated times, the rules that made the difference, and, for small models with
//! weights, how far the interpreter's results differ.
//!
//! `cargo run -p fornax-tests --example rewriting_table --no-default-features --features models -- *.onnx`

#![allow(clippy::print_stdout, reason = "a program that prints a table")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Instant;

use fornax_ir::interp::{Array, Value, evaluate};
use fornax_ir::plan::{Phase, Plan};
use fornax_ir::{Graph, PrecisionPolicy, Tensor};
use fornax_passes::egraph::{Rewrites, optimize};
use fornax_passes::{canonicalize, fuse};

fn main() {
    println!(
        "| model | ops | regions | | MB moved | | estimated us | | rewriting s | error | rules |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    for path in std::env::args().skip(1) {
        match row(Path::new(&path)) {
            Ok(row) => println!("{row}"),
            Err(error) => println!("| {path} | {} |", error.lines().next().unwrap_or_default()),
        }
    }
}

fn row(path: &Path) -> Result<String, String> {
    let imported = fornax_models::import(path, &Default::default()).map_err(|e| e.to_string())?;
    let canonical = canonicalize(imported.graph).map_err(|e| e.to_string())?;
    let started = Instant::now();
    let optimized = optimize(&canonical, Rewrites::Real).map_err(|e| e.to_string())?;
    let seconds = started.elapsed().as_secs_f64();
    let rules: BTreeSet<&str> = optimized.applied.values().map(|applied| applied.rule).collect();
    let rules: Vec<&str> = rules.into_iter().collect();
    let (before, after) = (cost(&canonical)?, cost(&optimized.graph)?);
    Ok(format!(
        "| {} | {} | {} | {} | {:.1} | {:.1} | {:.1} | {:.1} | {seconds:.2} | {} | {} |",
        path.file_stem().unwrap_or_default().to_string_lossy(),
        canonical.len(),
        before.0,
        after.0,
        before.1,
        after.1,
        optimized.cost_before / 1e3,
        optimized.cost_after / 1e3,
        error(&canonical, &optimized.graph),
        rules.join(", ")
    ))
}

/// The largest difference of the outputs, relative to the largest number among them.
fn error(before: &Graph, after: &Graph) -> String {
    const MOST_ELEMENTS: i64 = 2_000_000;
    let size = |graph: &Graph| -> i64 {
        graph.nodes().map(|id| graph.ty(id).shape.elements().bounds(&graph.dims).1).sum()
    };
    if size(before) > MOST_ELEMENTS {
        return "too large".to_owned();
    }
    let Some(inputs) = inputs(before) else { return "symbolic".to_owned() };
    let run = |graph: &Graph| {
        evaluate::<f64>(graph, &inputs, &BTreeMap::new()).map_err(|error| error.to_string())
    };
    match (run(before), run(after)) {
        (Ok(before), Ok(after)) => {
            let largest =
                before.iter().zip(&after).map(|(x, y)| difference(x, y)).fold(0.0, f64::max);
            format!("{largest:.1e}")
        }
        (Err(error), _) | (_, Err(error)) => error,
    }
}

fn inputs(graph: &Graph) -> Option<Vec<Tensor>> {
    let mut number = 0u64;
    let mut next = || {
        // Steps of the golden ratio's fraction fill the interval evenly.
        number += 1;
        (number as f64 * 0.618_033_988_749_895).fract() * 2.0 - 1.0
    };
    let tensor = |id: &fornax_ir::NodeId| {
        let ty = graph.ty(*id);
        let sizes = ty.shape.as_const()?;
        let data = (0..sizes.iter().product()).map(|_| next()).collect();
        ty.dtype.is_float().then(|| Value::Float(Array::new(sizes, data)).to_tensor(ty.dtype))
    };
    graph.inputs().iter().map(tensor).collect()
}

fn difference(before: &Value<f64>, after: &Value<f64>) -> f64 {
    let (Value::Float(before), Value::Float(after)) = (before, after) else {
        return if before == after { 0.0 } else { f64::INFINITY };
    };
    let scale = before.data.iter().fold(f64::MIN_POSITIVE, |scale, x| scale.max(x.abs()));
    let pairs = before.data.iter().zip(&after.data);
    pairs
        .map(|(x, y)| if x.is_nan() && y.is_nan() { 0.0 } else { (x - y).abs() / scale })
        .map(|error| if error.is_nan() { f64::INFINITY } else { error })
        .fold(0.0, f64::max)
}

/// The regions of the run program and the megabytes they read and write.
fn cost(graph: &Graph) -> Result<(usize, f64), String> {
    let plan = fuse(graph, PrecisionPolicy::default()).map_err(|error| error.to_string())?;
    let at_run: Vec<usize> = (0..plan.regions.len())
        .filter(|&number| plan.regions[number].phase == Phase::Run)
        .collect();
    Ok((at_run.len(), at_run.iter().map(|&number| megabytes(&plan, number)).sum()))
}

fn megabytes(plan: &Plan, number: usize) -> f64 {
    let region = &plan.regions[number];
    let body = &region.body;
    let read = region.operands.iter().map(|&operand| plan.ty(operand).bytes());
    let written = body.outputs().iter().map(|output| body.ty(output.value).bytes());
    let bytes = read.chain(written).map(|bytes| bytes.bounds(&plan.dims).1 as f64);
    bytes.sum::<f64>() / 1e6
}
