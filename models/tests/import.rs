//! Importing small models: what becomes of nodes, sizes and names.

mod support;

use fornax_models::ImportOptions;
use support::{Model, graph, int, ints, node, tensor, text, value};

#[test]
fn nodes_keep_their_names_and_broadcasts_are_explicit() {
    let model = Model::new(17)
        .input("x", "f32[N,3]")
        .floats("w", &[3], &[1.0, 2.0, 3.0])
        .node("Add", &["x", "w"], &["sum"])
        .node("Relu", &["sum"], &["y"])
        .output("y");
    assert_eq!(
        model.text(),
        "\
graph @test(%x: f32[N,3]) dims(N: 0..1000000000) -> (y: f32[N,3]) {
  %0 = weight {name = w} : f32[3]
  %1 = broadcast %0 {shape = [N,3]} : f32[N,3] @\"sum\"
  %2 = add %x, %1 : f32[N,3] @\"sum\"
  %3 = relu %2 : f32[N,3] @\"y\"
  return %3
}
"
    );
}

/// The chain that PyTorch exports for `x.view(x.size(0), -1)`, and one that computes with sizes.
#[test]
fn shape_arithmetic_is_folded_symbolically() {
    let model = Model::new(17)
        .input("x", "f32[N,3,H]")
        .ints("zero", &[0])
        .ints("minus_one", &[-1])
        .node("Shape", &["x"], &["shape"])
        .node("Gather", &["shape", "zero"], &["batch"])
        .node_with("Concat", &["batch", "minus_one"], &["target"], &[int("axis", 0)])
        .node("Reshape", &["x", "target"], &["y"])
        .output("y");
    assert_eq!(model.output_type(), "f32[N,3*H]");
    let text = model.text();
    assert_eq!(text.matches(" = ").count(), 2, "only the reshape and its attribute: {text}");

    let halves = Model::new(17)
        .input("x", "f32[N,6]")
        .ints("two", &[2])
        .ints("start", &[1])
        .ints("end", &[9_223_372_036_854_775_807])
        .node("Shape", &["x"], &["shape"])
        .node("Slice", &["shape", "start", "end"], &["columns"])
        .node("Div", &["columns", "two"], &["half"])
        .node_with("Concat", &["minus_two", "half"], &["parts"], &[int("axis", 0)])
        .ints("minus_two", &[2])
        .node_with("Split", &["x", "split"], &["a", "b"], &[int("axis", 1)])
        .node("Sub", &["columns", "half"], &["rest"])
        .node_with("Concat", &["half", "rest"], &["split"], &[int("axis", 0)])
        .node("Mul", &["a", "b"], &["y"])
        .output("y");
    assert_eq!(halves.output_type(), "f32[N,3]");
}

#[test]
fn sizes_are_specialised_by_name_and_by_shape() {
    let model = Model::new(17)
        .input("x", "f32[batch,3,?]")
        .input("y", "f32[batch,3,1]")
        .node("Add", &["x", "y"], &["z"])
        .output_of("z", "f32[batch,3,W]");
    let ty = |options: &ImportOptions| {
        let graph = model.import_with(options).unwrap_or_else(|error| panic!("{error}")).graph;
        graph.ty(graph.outputs()[0].value).to_string()
    };
    let mut options = ImportOptions::default();
    assert_eq!(ty(&options), "f32[batch,3,x.2]");
    options.dims.insert("batch".into(), 8);
    assert_eq!(ty(&options), "f32[8,3,x.2]");
    options.shapes.insert("x".into(), [8i64, 3, 5].map(Into::into).to_vec());
    assert_eq!(ty(&options), "f32[8,3,5]");
    options.dims.insert("width".into(), 8);
    let error = model.import_with(&options).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("\"width\"") && error.contains("\"batch\""), "{error}");
}

#[test]
fn axes_are_attributes_or_inputs_by_opset() {
    let old = Model::new(11)
        .input("x", "f32[2,1,3]")
        .node_with("Squeeze", &["x"], &["s"], &[ints("axes", &[1])])
        .node_with("Unsqueeze", &["s"], &["u"], &[ints("axes", &[-1, 0])])
        .node_with("ReduceSum", &["u"], &["y"], &[ints("axes", &[-2]), int("keepdims", 0)])
        .output("y");
    assert_eq!(old.output_type(), "f32[1,2,1]");
    let new = Model::new(18)
        .input("x", "f32[2,1,3]")
        .ints("squeezed", &[1])
        .ints("unsqueezed", &[-1, 0])
        .ints("reduced", &[-2])
        .node("Squeeze", &["x", "squeezed"], &["s"])
        .node("Unsqueeze", &["s", "unsqueezed"], &["u"])
        .node_with("ReduceMean", &["u", "reduced"], &["y"], &[int("keepdims", 0)])
        .output("y");
    assert_eq!(new.output_type(), "f32[1,2,1]");
    let nothing = Model::new(18)
        .input("x", "f32[2,3]")
        .node_with("ReduceSum", &["x", ""], &["y"], &[int("noop_with_empty_axes", 1)])
        .output("y");
    assert_eq!(nothing.output_type(), "f32[2,3]");
}

#[test]
fn softmax_before_opset_13_is_over_all_axes_from_one_on() {
    let softmax = |opset| {
        Model::new(opset)
            .input("x", "f32[2,3,4]")
            .node_with("Softmax", &["x"], &["y"], &[int("axis", 1)])
            .output("y")
            .text()
    };
    assert!(softmax(12).contains("softmax %0 {axis = 1} : f32[2,12]"), "{}", softmax(12));
    assert!(softmax(13).contains("softmax %x {axis = 1} : f32[2,3,4]"), "{}", softmax(13));
}

#[test]
fn automatic_padding_is_computed() {
    let conv = |auto_pad: &str, size: i64| {
        Model::new(17)
            .input("x", &format!("f32[1,1,{size}]"))
            .floats("w", &[1, 1, 4], &[1.0; 4])
            .node_with(
                "Conv",
                &["x", "w"],
                &["y"],
                &[text("auto_pad", auto_pad), ints("strides", &[2])],
            )
            .output("y")
            .text()
    };
    // 7 elements, stride 2: 4 windows reach over 10, so 3 are added.
    assert!(conv("SAME_UPPER", 7).contains("pads_begin = [1], pads_end = [2]"));
    assert!(conv("SAME_LOWER", 7).contains("pads_begin = [2], pads_end = [1]"));
    assert!(conv("VALID", 7).contains("f32[1,1,2]"));
}

#[test]
fn a_known_condition_takes_its_branch() {
    let branch = |op: &str| fornax_models::onnx::proto::GraphProto {
        node: vec![node(op, &["x"], &["inner"], &[])],
        output: vec![value("inner", "f32[2]")],
        ..Default::default()
    };
    let model = |condition: &[i64]| {
        Model::new(17)
            .input("x", "f32[2]")
            .ints("a", condition)
            .ints("b", &[1])
            .node("Equal", &["a", "b"], &["condition"])
            .node_with(
                "If",
                &["condition"],
                &["y"],
                &[graph("then_branch", branch("Exp")), graph("else_branch", branch("Log"))],
            )
            .output("y")
            .text()
    };
    assert!(model(&[1]).contains("exp %x") && !model(&[1]).contains("log"));
    assert!(model(&[0]).contains("log %x") && !model(&[0]).contains("exp"));
}

#[test]
fn weights_share_the_files_bytes() {
    let raw = bytes::Bytes::from(vec![0u8; 400]);
    let weight = fornax_models::onnx::proto::TensorProto {
        raw_data: Some(raw),
        ..tensor("w", 1, vec![100])
    };
    let model = Model::new(17)
        .input("x", "f32[100]")
        .initializer(weight)
        .node("Add", &["x", "w"], &["y"])
        .output("y");
    let file = bytes::Bytes::from(prost::Message::encode_to_vec(&model.0));
    let options = ImportOptions::default();
    let imported = fornax_models::onnx::import_bytes(file.clone(), "m", &options).unwrap();
    let data = imported.graph.weights()["w"].bytes().clone();
    assert!(file.as_ptr_range().contains(&data.as_ptr()), "the weight was copied");
}

#[test]
fn external_weights_may_be_missing_if_asked_for() {
    let external = fornax_models::onnx::proto::StringStringEntryProto {
        key: "location".into(),
        value: "w.bin".into(),
    };
    let weight = fornax_models::onnx::proto::TensorProto {
        data_location: 1,
        external_data: vec![external],
        ..tensor("w", 1, vec![2])
    };
    let model = Model::new(17)
        .input("x", "f32[2]")
        .initializer(weight)
        .node("Add", &["x", "w"], &["y"])
        .output("y");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    std::fs::write(&path, prost::Message::encode_to_vec(&model.0)).unwrap();
    let mut options = ImportOptions::default();
    let error = fornax_models::import(&path, &options).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("\"w\"") && error.contains("w.bin does not exist"), "{error}");
    options.allow_missing_weights = true;
    let imported = fornax_models::import(&path, &options).unwrap();
    assert!(imported.graph.weights().is_empty());
    std::fs::write(folder.path().join("w.bin"), [0, 0, 128, 63, 0, 0, 0, 64]).unwrap();
    let imported = fornax_models::import(&path, &ImportOptions::default()).unwrap();
    assert_eq!(imported.graph.weights()["w"].to_f64(), [1.0, 2.0]);
}
