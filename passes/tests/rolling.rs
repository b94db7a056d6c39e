//! Cells that are written out step by step.
#![allow(clippy::unwrap_used, reason = "a failure of what is not tested here may panic")]

use std::collections::BTreeMap;

use fornax_ir::op::OpClass;
use fornax_ir::text::parse_graph;
use fornax_ir::{Attrs, DType, Dim, Graph, LocSet, NodeId, Tensor, Type, attrs};
use fornax_passes::canonicalize;

/// `steps` cells over `x`, whose states go through a layer of their own. `fed`: what comes in is the
/// state instead.
fn unrolled(steps: usize, state_first: bool, fed: bool) -> Graph {
    let mut graph = Graph::new("unrolled");
    let ty = |shape: &[usize]| Type::new(DType::F32, shape);
    let none = LocSet::none;
    let add = |graph: &mut Graph, op: &str, attrs: Attrs, operands: &[NodeId]| {
        graph.add(op, attrs, operands, none()).unwrap()
    };
    let x = graph.input("x", ty(&[steps, 2, 4])).unwrap();
    let mut h = graph.input("h", ty(&[2, 3])).unwrap();
    let w = graph.input("w", ty(&[7, 3])).unwrap();
    let b = graph.input("b", ty(&[3])).unwrap();
    let b = add(
        &mut graph,
        "broadcast",
        attrs! { shape: vec![Dim::constant(2), Dim::constant(3)] },
        &[b],
    );
    let v = graph.input("v", ty(&[3, 4])).unwrap();
    let mut outputs = Vec::new();
    let mut last = None;
    for step in 0..steps {
        let dims =
            |sizes: &[i64]| -> Vec<Dim> { sizes.iter().map(|&s| Dim::constant(s)).collect() };
        let attrs = attrs! {
            starts: dims(&[step as i64, 0, 0]), sizes: dims(&[1, 2, 4]), steps: &[1i64, 1, 1][..],
        };
        let taken = add(&mut graph, "slice", attrs, &[x]);
        let mut taken = add(&mut graph, "reshape", attrs! { shape: dims(&[2, 4]) }, &[taken]);
        if fed && let Some(last) = last {
            taken = last;
        }
        let parts = if state_first { [h, taken] } else { [taken, h] };
        let joined = add(&mut graph, "concat", attrs! { axis: 1i64 }, &parts);
        let product = add(&mut graph, "matmul", Attrs::none(), &[joined, w]);
        let sum = add(&mut graph, "add", Attrs::none(), &[product, b]);
        h = add(&mut graph, "tanh", Attrs::none(), &[sum]);
        let output = add(&mut graph, "matmul", Attrs::none(), &[h, v]);
        last = Some(output);
        outputs.push(add(&mut graph, "reshape", attrs! { shape: dims(&[1, 2, 4]) }, &[output]));
    }
    let all = add(&mut graph, "concat", attrs! { axis: 0i64 }, &outputs);
    graph.output("y", all);
    graph.output("h", h);
    graph
}

fn count(graph: &Graph, is_meant: impl Fn(&OpClass) -> bool) -> usize {
    graph.nodes().filter(|&id| is_meant(graph.node(id).op.class())).count()
}

#[test]
fn cells_become_a_recurrence_with_the_same_results() {
    for state_first in [false, true] {
        let graph = unrolled(5, state_first, false);
        let rolled = canonicalize(graph.clone()).unwrap();
        assert_eq!(count(&rolled, |class| matches!(class, OpClass::Recurrent(_))), 1);
        assert_eq!(count(&rolled, |class| matches!(class, OpClass::Contraction(_))), 2, "{rolled}");
        let text = rolled.to_string();
        assert_eq!(parse_graph(&text).unwrap().to_string(), text);
        let tensor = |shape: &[usize]| {
            let count: usize = shape.iter().product();
            let values: Vec<f32> = (0..count).map(|i| (i * 7 % 11) as f32 / 11.0 - 0.4).collect();
            Tensor::from_f32(shape, &values)
        };
        let inputs =
            [tensor(&[5, 2, 4]), tensor(&[2, 3]), tensor(&[7, 3]), tensor(&[3]), tensor(&[3, 4])];
        let evaluate = |graph: &Graph| {
            fornax_ir::interp::evaluate::<f64>(graph, &inputs, &BTreeMap::new()).unwrap()
        };
        for (a, b) in evaluate(&graph).iter().zip(&evaluate(&rolled)) {
            let pairs = a.float().data.iter().zip(&b.float().data);
            assert!(pairs.clone().all(|(a, b)| (a - b).abs() < 1e-12), "{rolled}");
            assert_eq!(a.shape(), b.shape());
        }
    }
}

#[test]
fn what_feeds_on_its_own_states_stays() {
    for graph in [unrolled(5, false, true), unrolled(3, false, false)] {
        let canonical = canonicalize(graph).unwrap();
        assert_eq!(count(&canonical, |class| matches!(class, OpClass::Recurrent(_))), 0);
    }
}
