//! Symbolic dimensions as users give them: one bundle for a range of sizes, run at several on the emulator, and what
//! is said of sizes that it was not made for.

#![cfg(feature = "llvm")]
#![allow(clippy::unwrap_used, reason = "a failure of what is not tested here may panic")]

use support::{refused, root, succeeds};

mod support;

#[track_caller]
fn refused_with(arguments: &[&str], parts: &[&str]) {
    let errors = refused(arguments);
    for part in parts {
        assert!(errors.contains(part), "{part:?} is missing in: {errors}");
    }
}

fn zoo(name: &str) -> String {
    root().join("models/zoo").join(name).display().to_string()
}

/// Compiles once with these ranges, and validates at each choice of sizes.
fn one_bundle(model: &str, ranges: &[&str], sizes: &[&[&str]], validate: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("model.fnx").display().to_string();
    let dims = |entries: &[&str]| -> Vec<String> {
        entries.iter().flat_map(|entry| ["--dim".to_owned(), (*entry).to_owned()]).collect()
    };
    let call = |first: &[&str], entries: &[&str]| {
        let dims = dims(entries);
        let arguments: Vec<&str> =
            first.iter().copied().chain(dims.iter().map(String::as_str)).collect();
        succeeds(&arguments)
    };
    call(&["compile", model, "-o", &bundle, "--verify"], ranges);
    for sizes in sizes {
        let first = ["validate", &bundle, "--device", "emulator", "--distribution", "normal"];
        let text = call(&[&first, validate].concat(), sizes);
        assert!(text.ends_with("valid\n"), "{sizes:?}: {text}");
    }
}

fn batches(model: &str, validate: &[&str]) {
    let sizes: [&[&str]; 4] = [&["batch=1"], &["batch=3"], &["batch=16"], &["batch=37"]];
    one_bundle(&zoo(model), &["batch=1..64"], &sizes, validate);
}

fn text_model(text: &str, sizes: &[&[&str]]) {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model.gir").display().to_string();
    std::fs::write(&model, text).unwrap();
    one_bundle(&model, &[], sizes, &[]);
}

#[test]
fn an_mlp() {
    batches("mlp.onnx", &[]);
}

#[test]
fn a_transformer_block() {
    batches("transformer_block.onnx", &[]);
}

#[test]
fn a_recommender() {
    batches("recommender.onnx", &["--input-range", "x1=0..199"]);
}

#[test]
fn convolutions_with_norms() {
    let sizes: [&[&str]; 3] = [&["batch=1"], &["batch=3"], &["batch=7"]];
    for model in ["resnet_block.onnx", "depthwise_cnn.onnx"] {
        one_bundle(&zoo(model), &["batch=1..64"], &sizes, &[]);
    }
}

#[test]
fn attention_over_a_symbolic_length() {
    let text = r"graph @attention(%q: f32[B,S,8], %k: f32[B,S,8], %v: f32[B,S,8]) dims(B: 1..8, S: 1..100) -> (y: f32[B,S,8]) {
  %0 = transpose %k {perm = [0,2,1]} : f32[B,8,S]
  %1 = matmul %q, %0 : f32[B,S,S]
  %2 = softmax %1 {axis = 2} : f32[B,S,S]
  %3 = matmul %2, %v : f32[B,S,8]
  return %3
}";
    text_model(text, &[&["B=1", "S=1"], &["B=2", "S=17"], &["B=3", "S=33"], &["B=8", "S=64"]]);
}

#[test]
fn reductions_over_symbolic_axes() {
    let text = r"graph @reductions(%x: f32[N,M]) dims(N: 1..300, M: 1..3000) -> (s: f32[N,1], m: f32[1,M], n: f32[N,M]) {
  %0 = reduce_sum %x {axes = [1], keepdims = true} : f32[N,1]
  %1 = reduce_max %x {axes = [0], keepdims = true} : f32[1,M]
  %2 = softmax %x {axis = 1} : f32[N,M]
  return %0, %1, %2
}";
    text_model(text, &[&["N=1", "M=1"], &["N=5", "M=31"], &["N=300", "M=33"], &["N=2", "M=2999"]]);
}

#[test]
fn sizes_outside_the_range_and_wrong_ranges_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("model.fnx").display().to_string();
    let mlp = zoo("mlp.onnx");
    succeeds(&["compile", &mlp, "-o", &bundle, "--dim", "batch=2..64"]);
    for size in ["1", "65"] {
        let dim = format!("batch={size}");
        let arguments = ["validate", &bundle, "--device", "emulator", "--dim", &dim];
        refused_with(&arguments, &["batch", size, "2", "64"]);
    }
    let compile =
        |dim: &'static str| ["compile", &mlp, "-o", &bundle, "--dim", dim].map(str::to_owned);
    let says = |dim: &'static str, parts: &[&str]| {
        let arguments = compile(dim);
        refused_with(&arguments.each_ref().map(String::as_str), parts);
    };
    says("batch=8..2", &["`batch=8..2`", "smallest"]);
    says("batch=1..", &["`batch=1..`", "name=smallest..largest"]);
    says("btch=1..4", &["\"btch\"", "\"batch\""]);
    // The model was exported for batches up to 64.
    let exported = zoo("depthwise_cnn.pt2");
    refused_with(&["compile", &exported, "-o", &bundle, "--dim", "s77=1..65"], &["s77", "64"]);
    // One size specialises.
    succeeds(&["compile", &mlp, "-o", &bundle, "--dim", "batch=8"]);
    let arguments = ["validate", &bundle, "--device", "emulator", "--dim", "batch=8"];
    refused_with(&arguments, &["fixed sizes only"]);
}
