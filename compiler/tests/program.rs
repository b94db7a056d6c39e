//! The `fornax` program as users call it: real and zoo models through compile and validate on the
//! emulator, and what it says to bad files.

#![cfg(feature = "llvm")]
#![allow(clippy::unwrap_used, reason = "a failure of what is not tested here may panic")]
#![allow(clippy::print_stdout, reason = "a test that is skipped says so")]

use std::path::{Path, PathBuf};
use std::process::Command;

use fornax_models::onnx::proto;
use prost::Message;
use support::{fornax, refused, root, succeeds};

mod support;

/// A file that `tools/setup` fetches; none where that has not run, unless nothing may be skipped.
fn fetched(name: &str) -> Option<PathBuf> {
    let path = root().join(name);
    if path.exists() {
        return Some(path);
    }
    assert!(
        std::env::var_os("FORNAX_REQUIRE_ALL").is_none(),
        "{} is missing: run tools/setup",
        path.display()
    );
    println!("SKIPPED: {} is missing; run tools/setup", path.display());
    None
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn entries(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.0.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

/// Compiles a model, validates it against the interpreter and, when `recording` says how, against what
/// onnxruntime computes.
fn compile_and_validate(
    model: &str,
    compile: &[&str],
    validate: &[&str],
    recording: &[&str],
) -> Option<()> {
    let model = fetched(model)?;
    let folder = Folder::new();
    let bundle = folder.file("model.fnx");
    let model = model.to_str().unwrap();
    succeeds(&[&["compile", model, "-o", &bundle, "--verify"], compile].concat());
    let report =
        succeeds(&[&["validate", &bundle, "--device", "emulator", "--json"], validate].concat());
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["passed"], true, "{report}");
    // Two distributions, which are one where the ranges of all inputs are given.
    let ranges = validate.iter().filter(|option| **option == "--input-range").count();
    let cases = if ranges == recording.len() { 1 } else { 2 };
    assert_eq!(report["cases"].as_array().unwrap().len(), cases, "{report}");
    // Computed from the inputs, not constant.
    let worst = &report["cases"][0]["outputs"][0];
    assert!(worst["elements"].as_u64().unwrap() > 0);
    let python = fetched(".venv/bin/python")?;
    let recorded = folder.file("recorded.npz");
    let status = Command::new(python)
        .arg(root().join("tools/record.py"))
        .args([model, &recorded])
        .args(recording)
        .status()
        .unwrap();
    assert!(status.success());
    let report =
        succeeds(&["validate", &bundle, "--device", "emulator", "--recorded", &recorded, "--json"]);
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["passed"], true, "{report}");
    Some(())
}

#[test]
fn magika() {
    compile_and_validate(
        ".cache/models/magika.onnx",
        &["--shape", "bytes=1,2048"],
        &["--input-range", "bytes=0..256"],
        &["bytes=1,2048:0..256"],
    );
}

#[test]
fn ocr_detector() {
    compile_and_validate(
        ".cache/models/ocr_det.onnx",
        // Weights with normalisation folded in are rounded otherwise than onnxruntime's, and this model
        // amplifies that to twice the bound for recorded values.
        &["--shape", "x=1,3,64,64", "--rewrites", "bitwise"],
        &[],
        // Pixel values: noise of unit size gives nothing but zeros to detect.
        &["x=1,3,64,64:0..255"],
    );
}

#[test]
fn zoo_mlp() {
    compile_and_validate("models/zoo/mlp.onnx", &["--dim", "batch=3"], &[], &["x=3,64"]);
}

#[test]
fn zoo_resnet_block() {
    let model = "models/zoo/resnet_block.onnx";
    compile_and_validate(model, &["--dim", "batch=2"], &[], &["x=2,3,32,32"]);
}

#[test]
fn zoo_transformer_block() {
    let model = "models/zoo/transformer_block.onnx";
    compile_and_validate(model, &["--dim", "batch=2"], &[], &["x=2,24,64"]);
}

#[test]
fn zoo_depthwise_cnn() {
    let model = "models/zoo/depthwise_cnn.onnx";
    compile_and_validate(model, &["--dim", "batch=2"], &[], &["x=2,3,16,16"]);
}

#[test]
fn zoo_recommender() {
    compile_and_validate(
        "models/zoo/recommender.onnx",
        &["--dim", "batch=5"],
        &["--input-range", "x1=0..199"],
        &["x0=5,13", "x1=5,4,5:0..199"],
    );
}

#[test]
fn equal_bytes_in_two_folders() {
    let model = root().join("models/zoo/transformer_block.onnx");
    let bundles: Vec<Vec<u8>> = (0..2)
        .map(|_| {
            let folder = Folder::new();
            let (copy, bundle) = (folder.file("model.onnx"), folder.file("model.fnx"));
            std::fs::copy(&model, &copy).unwrap();
            succeeds(&["compile", &copy, "-o", &bundle, "--dim", "batch=2"]);
            std::fs::read(bundle).unwrap()
        })
        .collect();
    assert!(bundles[0] == bundles[1], "the bundles differ");
}

#[test]
fn external_weights_are_bound_by_name() {
    let folder = Folder::new();
    let (embedded, external) = (folder.file("embedded.fnx"), folder.file("external.fnx"));
    let model = root().join("models/zoo/mlp.onnx");
    let model = model.to_str().unwrap();
    succeeds(&["compile", model, "-o", &embedded, "--dim", "batch=2"]);
    succeeds(&["compile", model, "-o", &external, "--dim", "batch=2", "--weights", "external"]);
    let message = refused(&["validate", &external, "--device", "emulator"]);
    assert!(message.contains("weight"), "{message}");
    let bundle = fornax_bundle::Bundle::open(&embedded).unwrap();
    let weights = folder.file("weights.safetensors");
    let tensors = bundle.parts().weights.iter().map(|(name, tensor)| {
        let shape = tensor.shape().to_vec();
        let view =
            safetensors::tensor::TensorView::new(safetensors::Dtype::F32, shape, tensor.bytes());
        (name.clone(), view.unwrap())
    });
    let bytes = safetensors::serialize(tensors, None).unwrap();
    std::fs::write(&weights, bytes).unwrap();
    succeeds(&["validate", &external, "--device", "emulator", "--weights", &weights]);
}

#[test]
fn weights_whose_file_is_absent_may_stay_external() {
    let folder = Folder::new();
    let (file, bundle) = (folder.file("m.onnx"), folder.file("m.fnx"));
    let mut model = model("Add", &["x", "w"], &[2]);
    let data = proto::StringStringEntryProto { key: "location".into(), value: "w.bin".into() };
    let weight = proto::TensorProto {
        name: "w".into(),
        data_type: 1,
        dims: vec![2],
        data_location: 1,
        external_data: vec![data],
        ..Default::default()
    };
    model.graph.as_mut().unwrap().initializer.push(weight);
    std::fs::write(&file, model.encode_to_vec()).unwrap();
    let message = refused(&["compile", &file, "-o", &bundle]);
    assert!(message.contains("w.bin does not exist"), "{message}");
    for mode in ["external", "present"] {
        succeeds(&["compile", &file, "-o", &bundle, "--weights", mode]);
        let bundle = fornax_bundle::Bundle::open(&bundle).unwrap();
        let weight = &bundle.manifest().weights[0];
        assert_eq!((weight.name.as_str(), weight.embedded), ("w", false));
    }
    let zoo = root().join("models/zoo/mlp.onnx");
    succeeds(&["compile", zoo.to_str().unwrap(), "-o", &bundle, "--weights", "present"]);
    let bundle = fornax_bundle::Bundle::open(&bundle).unwrap();
    assert!(bundle.manifest().weights.iter().all(|weight| weight.embedded));
}

/// A one-node model: `y = op(x, ..)`.
fn model(op: &str, inputs: &[&str], shape: &[i64]) -> proto::ModelProto {
    let size =
        |&size: &i64| proto::DimensionProto { value: Some(proto::DimensionValue::Value(size)) };
    let shape = proto::TensorShapeProto { dim: shape.iter().map(size).collect() };
    let tensor = proto::TensorTypeProto { elem_type: 1, shape: Some(shape) };
    let input = proto::ValueInfoProto {
        name: "x".into(),
        r#type: Some(proto::TypeProto { value: Some(proto::TypeValue::Tensor(tensor)) }),
    };
    let node = proto::NodeProto {
        op_type: op.into(),
        name: "the node".into(),
        input: inputs.iter().map(|name| (*name).to_owned()).collect(),
        output: vec!["y".into()],
        ..Default::default()
    };
    let opset = proto::OperatorSetIdProto { version: 17, ..Default::default() };
    proto::ModelProto {
        ir_version: 8,
        opset_import: vec![opset],
        graph: Some(proto::GraphProto {
            name: "g".into(),
            node: vec![node],
            input: vec![input],
            output: vec![proto::ValueInfoProto { name: "y".into(), r#type: None }],
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Compiling these bytes must fail with a message that holds all of `parts`, and write nothing.
fn compile_refused(bytes: &[u8], parts: &[&str]) {
    let folder = Folder::new();
    let (file, bundle) = (folder.file("bad.onnx"), folder.file("bad.fnx"));
    std::fs::write(&file, bytes).unwrap();
    let message = refused(&["compile", &file, "-o", &bundle]);
    for part in parts {
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
    assert_eq!(folder.entries(), ["bad.onnx"]);
}

#[test]
fn bad_files_are_refused() {
    let good = std::fs::read(root().join("models/zoo/mlp.onnx")).unwrap();
    compile_refused(&[], &["bad.onnx", "empty"]);
    compile_refused(&good[..good.len() / 2], &["bad.onnx"]);
    // Field 7 (graph), length-delimited, claiming 3 GB.
    compile_refused(&[0x08, 0x08, 0x3a, 0x80, 0x80, 0x80, 0x80, 0x0c, 0x0a], &["bad.onnx"]);
    compile_refused(b"not a model at all", &["bad.onnx"]);
    compile_refused(&model("Relu", &["y"], &[2]).encode_to_vec(), &["cycl", "the node"]);
    compile_refused(&model("FancyOp", &["x"], &[2]).encode_to_vec(), &["FancyOp", "the node"]);
    let mut empty = model("Relu", &["x"], &[2]);
    empty.graph.as_mut().unwrap().output.clear();
    compile_refused(&empty.encode_to_vec(), &["no outputs"]);
    let wrong = model("MatMul", &["x", "x"], &[2, 3]);
    compile_refused(&wrong.encode_to_vec(), &["the node", "3", "2"]);
}

#[test]
fn all_unsupported_ops_are_listed_at_once() {
    let mut bad = model("FancyOp", &["x"], &[2]);
    let graph = bad.graph.as_mut().unwrap();
    for (op, output) in [("FancyOp", "z"), ("OtherOp", "w")] {
        graph.node.push(proto::NodeProto {
            op_type: op.into(),
            input: vec!["x".into()],
            output: vec![output.into()],
            ..Default::default()
        });
    }
    compile_refused(&bad.encode_to_vec(), &["FancyOp", "2", "OtherOp", "the node"]);
}

#[test]
fn options_are_checked() {
    let model = root().join("models/zoo/mlp.onnx");
    let model = model.to_str().unwrap();
    let folder = Folder::new();
    let bundle = folder.file("x.fnx");
    let compile = |more: &[&str]| refused(&[&["compile", model, "-o", &bundle], more].concat());
    assert!(compile(&["--precision", "tf16"]).contains("torch"));
    assert!(compile(&["--target", "sm_12345"]).contains("sm_90a"));
    assert!(compile(&["--dim", "nope=3"]).contains("nope"));
    assert!(compile(&["--shape", "x=3,65"]).contains("x"));
    assert!(compile(&["--emit", "nope"]).contains("fused"));
    assert!(refused(&["inspect", "/nonexistent.fnx"]).contains("/nonexistent.fnx"));
    let zoo = folder.file("zoo.fnx");
    succeeds(&["compile", model, "-o", &zoo, "--dim", "batch=2"]);
    let bytes = std::fs::read(&zoo).unwrap();
    std::fs::write(&bundle, &bytes[..bytes.len() - 100]).unwrap();
    assert!(refused(&["inspect", &bundle]).contains("x.fnx"));
    assert!(refused(&["validate", &zoo, "--device", "tpu"]).contains("emulator"));
    let nowhere = folder.file("nowhere/x.fnx");
    assert!(refused(&["compile", model, "-o", &nowhere]).contains("nowhere does not exist"));
    assert!(refused(&["rules", "verify", "no-such-rule"]).contains("no-such-rule"));
    let emulator = |command: &str, more: &[&str]| {
        refused(&[&[command, &zoo, "--device", "emulator"], more].concat())
    };
    assert!(emulator("validate", &["--dim", "batch=3"]).contains("fixed sizes"));
    assert!(emulator("profile", &["--runs", "0"]).contains("--runs"));
    let not_named = emulator("run", &["--input", "x.npy", "-o", &folder.file("out")]);
    assert!(not_named.contains("NAME=x.npy"), "{not_named}");
    assert!(emulator("run", &["--input", "x=x.npy", "-o", &bundle]).contains("no folder"));
    let open = folder.file("open.fnx");
    succeeds(&["compile", model, "-o", &open]);
    let unknown = refused(&["validate", &open, "--device", "emulator", "--dim", "foo=3"]);
    assert!(unknown.contains("foo") && unknown.contains("batch"), "{unknown}");
    let stage = succeeds(&["compile", model, "--emit", "canonical"]);
    assert!(stage.contains("matmul"), "{stage}");
}

#[test]
fn several_bundles_are_validated_and_reported_one_by_one() {
    let folder = Folder::new();
    let bundles = ["a.fnx", "broken.fnx", "b.fnx"].map(|name| folder.file(name));
    let model = root().join("models/zoo/mlp.onnx");
    for bundle in &bundles {
        succeeds(&["compile", model.to_str().unwrap(), "-o", bundle, "--dim", "batch=3"]);
    }
    let bytes = std::fs::read(&bundles[1]).unwrap();
    std::fs::write(&bundles[1], &bytes[..bytes.len() - 100]).unwrap();
    let [a, broken, b] = &bundles;
    let several = fornax(&["validate", a, broken, b, "--device", "emulator", "--json"]);
    // The one that cannot be read is an error, and does not keep the others from being validated.
    assert_eq!(several.status.code(), Some(2));
    let lines = String::from_utf8(several.stdout).unwrap();
    let lines: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let passed: Vec<_> = lines.iter().map(|line| line["passed"].as_bool()).collect();
    assert_eq!(passed, [Some(true), None, Some(true)]);
    assert!(lines[1]["error"].as_str().unwrap().contains("broken.fnx"), "{lines:?}");
    assert!(lines.iter().zip(&bundles).all(|(line, bundle)| line["bundle"] == **bundle));
}

#[test]
fn run_writes_every_output() {
    let folder = Folder::new();
    let (bundle, input) = (folder.file("mlp.fnx"), folder.file("x.npy"));
    let model = root().join("models/zoo/mlp.onnx");
    succeeds(&["compile", model.to_str().unwrap(), "-o", &bundle, "--dim", "batch=2"]);
    let values: Vec<f32> = (0..128).map(|i| i as f32 / 64.0 - 1.0).collect();
    let tensor = fornax_bundle::Tensor::from_f32(&[2, 64], &values);
    fornax_compiler::tensors::write_npy(Path::new(&input), &tensor).unwrap();
    let out = folder.file("out");
    let given = format!("x={input}");
    succeeds(&["run", &bundle, "--device", "emulator", "--input", &given, "-o", &out]);
    let output = fornax_compiler::tensors::read_npy(&Path::new(&out).join("y.npy")).unwrap();
    assert_eq!(output.shape(), [2, 10]);
    for row in output.to_f64().chunks(10) {
        assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-6, "a softmax row sums to 1: {row:?}");
    }
    let message =
        refused(&["run", &bundle, "--device", "emulator", "--input", "q=x.npy", "-o", &out]);
    assert!(message.contains("q") || message.contains("x.npy"), "{message}");
}

#[test]
fn inspect_names_the_models_nodes() {
    let folder = Folder::new();
    let bundle = folder.file("mlp.fnx");
    let model = root().join("models/zoo/mlp.onnx");
    succeeds(&["compile", model.to_str().unwrap(), "-o", &bundle, "--dim", "batch=2"]);
    let text = succeeds(&["inspect", &bundle, "--kernels", "--memory", "--graph"]);
    for part in ["contraction", "gelu", "sm_90a", "sm_80", "grid", "graph @", "scratch"] {
        assert!(text.contains(part), "`{part}` is not in\n{text}");
    }
    let json = succeeds(&["inspect", &bundle, "--json"]);
    let manifest: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(manifest["signature"]["inputs"][0]["name"], "x");
}

#[test]
fn kernels_of_the_same_code_share_a_module() {
    let folder = Folder::new();
    let (model, bundle) = (folder.file("twice.gir"), folder.file("twice.fnx"));
    let text = "graph @twice(%x: f32[8,8], %a: f32[8,8], %b: f32[8,8]) -> (y: f32[8,8]) {\n  \
                %0 = matmul %x, %a : f32[8,8]\n  %1 = relu %0 : f32[8,8]\n  \
                %2 = matmul %1, %b : f32[8,8]\n  %3 = relu %2 : f32[8,8]\n  return %3\n}\n";
    std::fs::write(&model, text).unwrap();
    succeeds(&["compile", &model, "-o", &bundle, "--target", "sm_80"]);
    let plan = fornax_bundle::Bundle::open(Path::new(&bundle)).unwrap();
    let plan = &plan.manifest().targets[0];
    let modules: Vec<&str> = plan.kernels.iter().map(|kernel| kernel.ptx.as_str()).collect();
    assert_eq!(modules.len(), 2, "{modules:?}");
    assert_eq!(modules[0], modules[1]);
    assert_ne!(plan.kernels[0].region, plan.kernels[1].region);
    succeeds(&["validate", &bundle, "--device", "emulator"]);
}

/// A module as `.pt2` and as TorchScript through the whole program; names do not decide what a file is.
#[test]
fn models_of_pytorch_are_compiled_and_validated() {
    let folder = Folder::new();
    for kind in ["pt2", "pt"] {
        let model = root().join(format!("models/zoo/depthwise_cnn.{kind}"));
        let renamed = folder.file(&format!("{kind}.model"));
        std::fs::copy(model, &renamed).unwrap();
        let bundle = folder.file(&format!("{kind}.fnx"));
        let dims = if kind == "pt2" { batch_option(&renamed) } else { Vec::new() };
        let mut arguments = vec!["compile", renamed.as_str(), "-o", bundle.as_str()];
        arguments.extend(dims.iter().map(String::as_str));
        succeeds(&arguments);
        let text = succeeds(&["inspect", &bundle, "--graph"]);
        assert!(text.contains("depthwise.0/"), "{text}");
        succeeds(&["validate", &bundle, "--device", "emulator"]);
    }
}

/// Ops and types of a zoo model after canonicalisation, sorted.
fn canonical(name: &str) -> Vec<String> {
    let path = root().join("models/zoo").join(name);
    let open = fornax_models::import(&path, &Default::default()).unwrap().graph;
    let dims = open.dims.keys().map(|name| (name.to_string(), 2)).collect();
    let options = fornax_models::ImportOptions { dims, ..Default::default() };
    let graph = fornax_models::import(&path, &options).unwrap().graph;
    let graph = fornax_passes::canonicalize(graph).unwrap();
    let nodes = graph.nodes().map(|id| format!("{} {}", graph.node(id).op, graph.ty(id)));
    let mut nodes: Vec<String> = nodes.collect();
    nodes.sort();
    nodes
}

/// (ONNX is not among them: torch folds batch normalisation when it exports that.)
#[test]
fn formats_of_one_module_give_one_graph() {
    for name in ["depthwise_cnn", "recommender"] {
        let [pt2, pt] = ["pt2", "pt"].map(|kind| canonical(&format!("{name}.{kind}")));
        assert_eq!(pt2, pt, "{name}");
    }
}

/// The option that fixes the one symbolic size of a model, which torch names.
fn batch_option(model: &str) -> Vec<String> {
    let imported = fornax_models::import(Path::new(model), &Default::default()).unwrap();
    let names: Vec<_> = imported.graph.dims.keys().collect();
    let [only] = names[..] else { panic!("{names:?}") };
    vec!["--dim".to_owned(), format!("{only}=2")]
}
