//! Regions that cannot be lowered are refused with the place.

use std::collections::BTreeMap;

use fornax_bundle::DType;
use fornax_codegen::{CodegenError, lower};
use fornax_ir::plan::{Phase, Region, Schedule, ValueRef};
use fornax_ir::{Graph, LocSet, NodeId, SourceNode, Type, attrs};

const FOLD: Schedule = Schedule::FoldThread { threads: 32, vector: 1 };

fn refused(schedule: Schedule, build: impl FnOnce(&mut Graph, NodeId)) -> String {
    let mut body = Graph::new("region");
    let x = body.input("x", Type::new(DType::F32, &[4usize, 4][..])).unwrap();
    build(&mut body, x);
    let operands = (0..body.inputs().len()).map(ValueRef::Input).collect();
    let region = Region { name: "r7".to_owned(), phase: Phase::Run, body, operands, schedule };
    let error = lower(&region, &BTreeMap::new()).unwrap_err();
    assert!(matches!(error, CodegenError::Region { .. }), "{error:?}");
    error.to_string()
}

fn sum(body: &mut Graph, x: NodeId) -> NodeId {
    let attrs = attrs! { axes: vec![1i64], keepdims: true };
    body.add("reduce_sum", attrs, &[x], LocSet::none()).unwrap()
}

#[test]
fn movements_after_the_anchor() {
    let message = refused(FOLD, |body, x| {
        let total = sum(body, x);
        let loc = body.sources.add(SourceNode {
            name: "head/Expand".into(),
            op_type: "Expand".into(),
            index: Some(3),
            opset: Some(13),
        });
        let shape = body.ty(x).shape.to_vec();
        let wide = body.add("broadcast", attrs! { shape: shape }, &[total], loc.into()).unwrap();
        body.output("y", total);
        body.output("z", wide);
    });
    assert_eq!(
        message,
        "cannot lower region r7: output `z` is f32[4,4], not of shape [4,1], at `broadcast` \
         (from node \"head/Expand\")"
    );
    let message = refused(FOLD, |body, x| {
        let total = sum(body, x);
        let perm = attrs! { perm: vec![0i64, 1] };
        let moved = body.add("transpose", perm, &[total], LocSet::none()).unwrap();
        body.output("y", moved);
    });
    assert!(
        message.contains("only pointwise operators may use") && message.contains("`transpose`")
    );
}

#[test]
fn two_anchors() {
    let message = refused(FOLD, |body, x| {
        let (first, other) = (sum(body, x), sum(body, x));
        let both = body.add("add", attrs! {}, &[first, other], LocSet::none()).unwrap();
        body.output("y", both);
    });
    assert_eq!(
        message,
        "cannot lower region r7: a reduce cannot be computed inside this region, at `reduce_sum`"
    );
}

#[test]
fn schedules_of_another_class() {
    let tile = Schedule::Tile { block_m: 32, block_n: 32, block_k: 8, thread_m: 4, thread_n: 4 };
    let message = refused(tile, |body, x| {
        let total = sum(body, x);
        body.output("y", total);
    });
    assert!(message.contains("is none for a reduce region"), "{message}");
    let message = refused(FOLD, |body, x| body.output("y", x));
    assert!(message.contains("is none for a pointwise region"), "{message}");
    let message = refused(FOLD, |_, _| {});
    assert!(message.contains("the region has no output"), "{message}");
}
