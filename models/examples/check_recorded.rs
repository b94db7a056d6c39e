//! Imports models and compares what the reference interpreter computes with recorded results.
//!
//! `cargo run -p fornax-models --example check_recorded -- FOLDER`: for each `NAME.npz` in the folder, with arrays `in_0`,
//! … and `out_0`, …, the files `NAME.onnx`, `NAME.pt2` and `NAME.pt` that are there. Prints one line for each file, and a table
//! of what is refused.

#![allow(clippy::print_stdout, reason = "a program that prints a table")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[path = "../tests/support/recorded.rs"]
mod recorded;

fn main() -> Result<(), String> {
    let folder = std::env::args().nth(1).ok_or("usage: check_recorded FOLDER")?;
    let mut recordings: Vec<PathBuf> = std::fs::read_dir(&folder)
        .map_err(|error| format!("{folder}: {error}"))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "npz"))
        .collect();
    recordings.sort();
    let mut counts: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    let mut refusals: BTreeMap<String, usize> = BTreeMap::new();
    for recording in recordings {
        for kind in ["onnx", "pt2", "pt"] {
            let model = recording.with_extension(kind);
            if model.exists() {
                let place = one(&model, &recording, &mut refusals);
                counts.entry(kind).or_default()[place] += 1;
            }
        }
    }
    println!("| format | equal | refused | wrong |\n|---|---|---|---|");
    for (kind, [equal, refused, wrong]) in counts {
        println!("| .{kind} | {equal} | {refused} | {wrong} |");
    }
    println!("\n| refused because | models |\n|---|---|");
    for (reason, count) in refusals {
        println!("| {reason} | {count} |");
    }
    Ok(())
}

fn one(model: &Path, recording: &Path, refusals: &mut BTreeMap<String, usize>) -> usize {
    let name = model.file_name().unwrap_or_default().to_string_lossy();
    let result = recorded::Recording::read(recording).and_then(|recording| {
        let graph = match recording.import(model) {
            Ok(graph) => graph,
            Err(error) => return Ok(Err(error)),
        };
        recording.check(&graph).map(Ok)
    });
    match result {
        Ok(Ok(difference)) => {
            println!("{name}: equal up to {difference:.1e}");
            0
        }
        Ok(Err(error)) => {
            println!("{name}: refused: {error}");
            *refusals.entry(error.lines().next().unwrap_or_default().to_owned()).or_default() += 1;
            1
        }
        Err(message) => {
            println!("{name}: WRONG: {message}");
            2
        }
    }
}
