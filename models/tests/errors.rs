//! Faulty models: one clear error each, never a panic.

mod support;

use bytes::Bytes;
use fornax_models::onnx::import_bytes;
use fornax_models::{ImportError, ImportOptions, MAX_DIAGNOSTICS};
use prost::Message as _;
use support::{Model, int, ints, text};

fn unary(ops: &[&str]) -> Model {
    let mut model = Model::new(17).input("v0", "f32[2,3]");
    for (index, op) in ops.iter().enumerate() {
        model = model.node(op, &[&format!("v{index}")], &[&format!("v{}", index + 1)]);
    }
    model.output(&format!("v{}", ops.len()))
}

#[test]
fn all_unsupported_operators_are_in_one_error() {
    let error = unary(&["Relu", "Foo", "Bar", "Relu", "Foo"]).error();
    assert_eq!(
        error,
        "\
error[onnx-unsupported-op]: 2 operators are not supported: Bar, Foo
  --> test.onnx: node 2 \"v3\" (Bar, opset 17)
  note: Bar: 1 node, first node 2 \"v3\"
  note: Foo: 2 nodes, first node 1 \"v2\""
    );
    let error =
        Model::new(17).input("x", "f32[2]").node("Gelu", &["x"], &["y"]).output("y").error();
    assert!(error.contains("Gelu (as of opset 17; from 20 on it is)"), "{error}");
    let mut custom = unary(&["Relu"]);
    custom.graph().node[0].domain = "com.example".into();
    assert!(custom.error().contains("com.example.Relu"), "{}", custom.error());
}

#[test]
fn faults_are_collected_and_each_names_its_node() {
    let model = Model::new(17)
        .input("x", "f32[2,3]")
        .input("w", "f32[4,5]")
        .node("MatMul", &["x", "w"], &["a"])
        .node_with("Softmax", &["x"], &["b"], &[int("axis", 7)])
        .node("Relu", &["a"], &["c"])
        .output("c")
        .output("b");
    let error = model.error();
    assert_eq!(
        error,
        "\
error[matmul.C3]: inner sizes differ: 3 of f32[2,3] and 4 of f32[4,5]
  --> test.onnx: node 0 \"a\" (MatMul, opset 17)
  note: %a is f32[2,3]
  note: %b is f32[4,5]
error[onnx-invalid]: axis 7 is out of range for rank 2
  --> test.onnx: node 1 \"b\" (Softmax, opset 17)"
    );
}

#[test]
fn no_more_than_the_limit_is_reported() {
    let mut model = Model::new(17).input("x", "f32[2,3]");
    for index in 0..30 {
        let name = format!("y{index}");
        model = model.node_with("Softmax", &["x"], &[&name], &[int("axis", 9)]).output(&name);
    }
    let Err(ImportError::Model { diagnostics, rendered }) = model.import() else { panic!() };
    assert_eq!(diagnostics.len(), MAX_DIAGNOSTICS);
    assert!(rendered.ends_with("and 10 more errors"), "{rendered}");
}

#[test]
fn structure_is_checked() {
    let cyclic = Model::new(17)
        .input("x", "f32[2]")
        .node("Add", &["x", "b"], &["a"])
        .node("Relu", &["a"], &["b"])
        .output("b");
    assert!(cyclic.error().contains("error[onnx-cycle]"), "{}", cyclic.error());
    let missing = Model::new(17).node("Relu", &["x"], &["y"]).output("y");
    assert!(missing.error().contains("its input \"x\" is given by no node"), "{}", missing.error());
    let twice = unary(&["Relu"]).node("Exp", &["v0"], &["v1"]);
    assert!(twice.error().contains("a value named \"v1\" already exists"), "{}", twice.error());
    let no_output = Model::new(17).input("x", "f32[2]").output("y");
    assert!(
        no_output.error().contains("output \"y\" is computed by no node"),
        "{}",
        no_output.error()
    );
    let arity = Model::new(17).input("x", "f32[2]").node("Add", &["x"], &["y"]).output("y");
    assert!(arity.error().contains("input 1 is required, but missing"), "{}", arity.error());
}

#[test]
fn attributes_are_checked() {
    let with = |attribute| {
        Model::new(17)
            .input("x", "f32[2,3]")
            .node_with("Softmax", &["x"], &["y"], &[attribute])
            .output("y")
            .error()
    };
    let wrong_type = with(text("axis", "last"));
    assert!(wrong_type.contains("attribute `axis` must be Int, but is String"), "{wrong_type}");
    let unknown = with(int("axes", 1));
    assert!(unknown.contains("attribute `axes` is not known in opset 17"), "{unknown}");
    let perm = Model::new(17)
        .input("x", "f32[2,3]")
        .node_with("Transpose", &["x"], &["y"], &[ints("perm", &[0, 0])])
        .output("y")
        .error();
    assert!(perm.contains("[0, 0] is not a permutation of 2 axes"), "{perm}");
}

#[test]
fn declared_types_are_checked_against_inferred_ones() {
    let declared = |ty: &str| {
        let model = Model::new(17).input("x", "f32[N,3]").node("Relu", &["x"], &["y"]);
        model.output_of("y", ty).import().map(|_| ()).map_err(|error| error.to_string())
    };
    for fits in ["f32[N,3]", "f32[2,3]", "f32[?,?]"] {
        assert_eq!(declared(fits), Ok(()), "{fits}");
    }
    for differs in ["f32[N,4]", "f32[3]", "i64[N,3]"] {
        let error = declared(differs).unwrap_err();
        assert!(error.contains("error[onnx-declared-type]"), "{differs}: {error}");
    }
}

#[test]
fn values_that_depend_on_the_data_cannot_be_shapes() {
    let error = Model::new(17)
        .input("x", "f32[2,3]")
        .input("shape", "i64[2]")
        .node("Reshape", &["x", "shape"], &["y"])
        .output("y")
        .error();
    assert!(error.contains("(shape, \"shape\") must be known at compile time"), "{error}");
    let data =
        Model::new(17).input("x", "f32[N,3]").node("Shape", &["x"], &["y"]).output("y").error();
    assert!(data.contains("error[onnx-shape-as-data]") && data.contains("--dim"), "{data}");
}

#[test]
fn opsets_and_kinds_of_values_are_checked() {
    let newer = Model::new(99).input("x", "f32[2]").node("Relu", &["x"], &["y"]).output("y");
    assert!(newer.error().contains("operator set 99"), "{}", newer.error());
    let mut untyped = unary(&["Relu"]);
    untyped.graph().input[0].r#type = None;
    assert!(untyped.error().contains("\"v0\" has no type"), "{}", untyped.error());
    let mut rankless = unary(&["Relu"]);
    let ty = rankless.graph().input[0].r#type.as_mut().and_then(|ty| ty.value.as_mut());
    if let Some(fornax_models::onnx::proto::TypeValue::Tensor(tensor)) = ty {
        tensor.shape = None;
    }
    assert!(rankless.error().contains("--shape v0="), "{}", rankless.error());
}

#[test]
fn mutated_files_never_panic() {
    use proptest::prelude::*;
    use proptest::test_runner::{Config, TestRunner};
    let model = Model::new(13)
        .input("x", "f32[N,1,4,4]")
        .floats("w", &[2, 1, 3, 3], &[0.5; 18])
        .ints("shape", &[0, -1])
        .node_with("Conv", &["x", "w"], &["c"], &[ints("pads", &[1, 1, 1, 1])])
        .node_with("MaxPool", &["c"], &["p"], &[ints("kernel_shape", &[2, 2])])
        .node("Reshape", &["p", "shape"], &["r"])
        .node_with("Softmax", &["r"], &["y"], &[int("axis", -1)])
        .output_of("y", "f32[N,18]");
    let file = model.0.encode_to_vec();
    assert!(model.import().is_ok(), "{}", model.error());
    let strategy = (
        prop::collection::vec((0..file.len(), any::<u8>()), 0..4),
        0..=file.len(),
        prop::option::of((0..file.len(), 0..file.len())),
    );
    let config = Config { failure_persistence: None, cases: 2000, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(
        config,
        proptest::test_runner::TestRng::deterministic_rng(
            proptest::test_runner::RngAlgorithm::ChaCha,
        ),
    );
    let result = runner.run(&strategy, |(changes, end, removed)| {
        let mut bytes = file.clone();
        for (at, value) in changes {
            bytes[at] = value;
        }
        // Half of the cases keep the whole length.
        if end % 2 == 0 {
            bytes.truncate(end);
        }
        if let Some((from, to)) = removed.filter(|(from, to)| from < to && *to <= bytes.len()) {
            bytes.drain(from..to.min(from + 8));
        }
        let _ = import_bytes(Bytes::from(bytes), "mutated.onnx", &ImportOptions::default());
        Ok(())
    });
    result.unwrap();
}

/// torch.onnx declares the results of recurrent layers with wrong ranks; everything else about them is
/// checked.
#[test]
fn recurrent_layers_say_what_they_do_not_support() {
    let layer = |count: usize, attributes: &[_]| {
        let inputs = ["x", "w", "r", "", "lengths"];
        Model::new(17)
            .input("x", "f32[5,2,3]")
            .input("w", "f32[1,16,3]")
            .input("r", "f32[1,16,4]")
            .input("lengths", "i32[2]")
            .node_with("LSTM", &inputs[..count], &["y", "h", "c"], attributes)
            .output_of("y", "f32[1,2,4]")
            .output_of("c", "f32[1,2,4]")
    };
    let whole = layer(3, &[]).text();
    assert!(whole.contains("y: f32[5,1,2,4], c: f32[1,2,4]"), "{whole}");
    let lengths = layer(5, &[int("hidden_size", 4)]).error();
    assert!(lengths.contains("sequences of different lengths"), "{lengths}");
    let hidden = layer(3, &[int("hidden_size", 5)]).error();
    assert!(hidden.contains("`hidden_size` is 5, but the recurrent weight has 4"), "{hidden}");
    let direction = layer(3, &[text("direction", "sideways")]).error();
    assert!(direction.contains("no direction"), "{direction}");
}
