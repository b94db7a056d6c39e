//! A table of what rewriting brings: for each ONNX model given, regions and bytes they move at each run,
//! before and after, the estimated times, and the rules that made the difference.
//!
//! `cargo run -p fornax-tests --example rewriting_table --no-default-features --features models -- *.onnx`

#![allow(clippy::print_stdout, reason = "a program that prints a table")]

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;

use fornax_ir::Graph;
use fornax_ir::plan::{Phase, Plan};
use fornax_passes::egraph::{Rewrites, optimize};
use fornax_passes::{canonicalize, fuse};

fn main() {
    println!("| model | ops | regions | | MB moved | | estimated us | | rewriting s | rules |");
    println!("|---|---|---|---|---|---|---|---|---|---|");
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
        "| {} | {} | {} | {} | {:.1} | {:.1} | {:.1} | {:.1} | {seconds:.2} | {} |",
        path.file_stem().unwrap_or_default().to_string_lossy(),
        canonical.len(),
        before.0,
        after.0,
        before.1,
        after.1,
        optimized.cost_before / 1e3,
        optimized.cost_after / 1e3,
        rules.join(", ")
    ))
}

/// The regions of the run program and the megabytes they read and write.
fn cost(graph: &Graph) -> Result<(usize, f64), String> {
    let plan = fuse(graph).map_err(|error| error.to_string())?;
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
