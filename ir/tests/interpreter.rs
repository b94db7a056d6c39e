//! Evaluating whole graphs.

use std::collections::BTreeMap;

use fornax_ir::interp::{Field, InterpError, Interpreter, Value, evaluate};
use fornax_ir::{DType, Dim, Dims, Graph, LocSet, NodeId, Tensor, Type, attrs};

fn add(graph: &mut Graph, op: &str, operands: &[NodeId]) -> NodeId {
    graph.add(op, attrs! {}, operands, LocSet::none()).expect("the op accepts its operands")
}

/// `relu(x * w + positions)` for `x: f32[N,2]`, with a weight `w` and `positions` counting along axis 1.
fn model() -> Graph {
    let mut graph = Graph::new("model");
    let shape = vec![Dim::symbol("N"), Dim::constant(2)];
    let x = graph
        .input("x", Type::new(DType::F32, shape.clone()))
        .expect("the op accepts its operands");
    let w = graph
        .weight("w", Type::new(DType::F32, [1usize, 2].as_slice()), None)
        .expect("the op accepts its operands");
    let w = graph
        .add("broadcast", attrs! { shape: shape.clone() }, &[w], LocSet::none())
        .expect("the op accepts its operands");
    let iota = attrs! { axis: 1i64, dtype: DType::I64, shape: shape };
    let positions =
        graph.add("iota", iota, &[], LocSet::none()).expect("the op accepts its operands");
    let positions = graph
        .add("cast", attrs! { to: DType::F32 }, &[positions], LocSet::none())
        .expect("the op accepts its operands");
    let product = add(&mut graph, "mul", &[x, w]);
    let sum = add(&mut graph, "add", &[product, positions]);
    let result = add(&mut graph, "relu", &[sum]);
    graph.output("y", result);
    graph.output("sum", sum);
    graph
}

fn weights() -> BTreeMap<String, Tensor> {
    BTreeMap::from([("w".to_owned(), Tensor::from_f32(&[1, 2], &[10.0, 100.0]))])
}

fn numbers(value: &Value<f64>) -> &[f64] {
    &value.float().data
}

#[test]
fn a_graph_is_evaluated_for_the_sizes_of_its_inputs() {
    let graph = model();
    for (rows, y) in [(1, vec![0.0, 201.0]), (2, vec![0.0, 201.0, 30.0, 0.0])] {
        let x = &[-1.0, 2.0, 3.0, -4.0][..2 * rows];
        let outputs = evaluate(&graph, &[Tensor::from_f32(&[rows, 2], x)], &weights()).unwrap();
        assert_eq!(outputs[0].shape(), [rows, 2]);
        assert_eq!(numbers(&outputs[0]), y);
        assert_eq!(numbers(&outputs[1])[0], -10.0);
    }
}

#[test]
fn the_graph_s_own_weights_serve_unless_others_are_given() {
    let mut graph = model();
    graph.bind_weight("w", Tensor::from_f32(&[1, 2], &[1.0, 1.0]));
    let x = [Tensor::from_f32(&[1, 2], &[5.0, 6.0])];
    let own = evaluate(&graph, &x, &BTreeMap::new()).unwrap();
    assert_eq!(numbers(&own[0]), [5.0, 7.0]);
    let given = evaluate(&graph, &x, &weights()).unwrap();
    assert_eq!(numbers(&given[0]), [50.0, 601.0]);
}

#[test]
fn every_node_has_a_value_to_compare() {
    let graph = model();
    let x = [Tensor::from_f32(&[1, 2], &[-1.0, 2.0])];
    let interpreter = Interpreter::<f64>::new(&graph, &x, &weights()).unwrap();
    let values = interpreter.all_values().unwrap();
    assert_eq!(values.len(), graph.len());
    let result = graph.outputs()[0].value;
    let operands: Vec<&Value<f64>> =
        graph.operands(result).iter().map(|operand| &values[operand]).collect();
    assert_eq!(interpreter.node(result, &operands).unwrap(), values[&result]);
    assert_eq!(*interpreter.dims(), Dims::from([("N".into(), 1)]));
}

#[test]
fn what_does_not_fit_is_an_error() {
    let graph = model();
    let error = |inputs: &[Tensor], weights: &BTreeMap<String, Tensor>| {
        evaluate::<f64>(&graph, inputs, weights).unwrap_err().to_string()
    };
    let x = Tensor::from_f32(&[1, 2], &[0.0; 2]);
    assert_eq!(error(&[], &weights()), "the graph takes 1 inputs, 0 were given");
    let wide = Tensor::from_f32(&[1, 3], &[0.0; 3]);
    assert_eq!(error(&[wide], &weights()), "axis 1 of `x` has 3 elements, but `2` is 2");
    let integers = Tensor::from_i64(&[1, 2], &[0; 2]);
    assert_eq!(error(&[integers], &weights()), "`x` is f32[N,2], but i64[1,2] was given");
    let missing = error(std::slice::from_ref(&x), &BTreeMap::new());
    assert_eq!(missing, "the weight `w` has no data; give it with the other weights");
    let misshapen = BTreeMap::from([("w".to_owned(), Tensor::from_f32(&[2], &[0.0; 2]))]);
    let message = "`w` is f32[1,2], but a tensor of shape [2] was given";
    assert_eq!(error(&[x], &misshapen), message);
}

#[test]
fn a_size_that_no_input_tells_can_be_given() {
    let mut graph = Graph::new("zeros");
    let zero = graph.scalar(DType::F32, 0.0);
    let shape = attrs! { shape: vec![Dim::symbol("N") - Dim::constant(1)] };
    let zeros = graph.add("broadcast", shape, &[zero], LocSet::none()).unwrap();
    graph.output("zeros", zeros);
    let with = |dims: &[(&str, i64)]| {
        let dims: Dims = dims.iter().map(|&(name, value)| (name.into(), value)).collect();
        Interpreter::<f64>::from_values(&graph, Vec::new(), BTreeMap::new(), dims)
            .unwrap()
            .outputs()
    };
    assert_eq!(with(&[("N", 4)]).unwrap()[0].shape(), [3]);
    assert!(matches!(with(&[]), Err(InterpError::Dim { op: "broadcast", .. })));
    let error = with(&[("N", 0)]).unwrap_err();
    assert_eq!(error, InterpError::Shape { op: "broadcast", sizes: vec![-1] });
}

#[test]
fn the_field_refuses_what_is_no_polynomial() {
    let mut graph = Graph::new("exp");
    let x = graph.input("x", Type::new(DType::F32, [1usize].as_slice())).unwrap();
    let square = add(&mut graph, "mul", &[x, x]);
    let exponential = add(&mut graph, "exp", &[x]);
    graph.output("square", square);
    let x = [Tensor::from_f32(&[1], &[-3.0])];
    let squares = evaluate::<Field>(&graph, &x, &BTreeMap::new()).unwrap();
    assert_eq!(squares[0].float().data, [Field::new(9)]);
    graph.output("exponential", exponential);
    let error = evaluate::<Field>(&graph, &x, &BTreeMap::new()).unwrap_err();
    assert_eq!(error, InterpError::NotPolynomial("exp"));
}
