//! Real models that others made, from the folder `.cache/models` that `tools/setup` fills.

#![allow(clippy::print_stderr, reason = "a skipped test says so")]

use std::path::{Path, PathBuf};

use fornax_ir::{Graph, Type};
use fornax_models::{ImportOptions, import};

/// The file, unless the folder has not been filled.
fn model(path: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.cache/models");
    let file = folder.join(path);
    if !file.exists() {
        let required = std::env::var_os("FORNAX_REQUIRE_ALL").is_some();
        assert!(!required, "{} is missing; run tools/setup", file.display());
        eprintln!("SKIPPED: {} is missing; run tools/setup to fetch it", file.display());
        return None;
    }
    Some(file)
}

fn signature(graph: &Graph) -> Vec<(String, Type)> {
    let inputs = graph.inputs().iter().map(|&id| (graph.input_name(id).to_owned(), id));
    let outputs = graph.outputs().iter().map(|output| (output.name.clone(), output.value));
    inputs.chain(outputs).map(|(name, id)| (name, graph.ty(id).clone())).collect()
}

fn check(graph: &Graph, expected: &[(&str, &str)], ops_without_loc: &[&str]) {
    let signature: Vec<(String, String)> =
        signature(graph).into_iter().map(|(name, ty)| (name, ty.to_string())).collect();
    let expected: Vec<(String, String)> =
        expected.iter().map(|&(name, ty)| (name.to_owned(), ty.to_owned())).collect();
    assert_eq!(signature, expected);
    for id in graph.nodes() {
        let node = graph.node(id);
        let source = ops_without_loc.contains(&node.op.name());
        assert!(source || !node.loc.is_empty(), "{:?} has lost its place", node.op);
    }
    // What is printed reads back as the same graph.
    let text = fornax_ir::text::print_graph(graph);
    let again = fornax_ir::text::parse_graph(&text).expect("the text reads back");
    assert_eq!(fornax_ir::text::print_graph(&again), text);
}

const SOURCES: &[&str] = &["input", "weight", "constant"];

#[test]
fn magika_at_batch_1() {
    let Some(path) = model("magika.onnx") else { return };
    let options =
        ImportOptions { dims: [("unk__214".to_owned(), 1)].into(), ..ImportOptions::default() };
    let graph = import(&path, &options).unwrap_or_else(|error| panic!("{error}")).graph;
    check(&graph, &[("bytes", "i32[1,2048]"), ("target_label", "f32[1,214]")], SOURCES);
    assert!(graph.dims.is_empty());
}

#[test]
fn magika_with_a_symbolic_batch() {
    let Some(path) = model("magika.onnx") else { return };
    let graph =
        import(&path, &ImportOptions::default()).unwrap_or_else(|error| panic!("{error}")).graph;
    let signature = [("bytes", "i32[unk__214,2048]"), ("target_label", "f32[unk__214,214]")];
    check(&graph, &signature, SOURCES);
}

#[test]
fn ocr_detector_at_64_by_64() {
    let Some(path) = model("ocr_det.onnx") else {
        return;
    };
    let options = ImportOptions {
        shapes: [("x".to_owned(), [1i64, 3, 64, 64].map(Into::into).to_vec())].into(),
        ..ImportOptions::default()
    };
    let graph = import(&path, &options).unwrap_or_else(|error| panic!("{error}")).graph;
    check(&graph, &[("x", "f32[1,3,64,64]"), ("sigmoid_0.tmp_0", "f32[1,1,64,64]")], SOURCES);
}
