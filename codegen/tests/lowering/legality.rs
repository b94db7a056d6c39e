//! Regions that cannot be lowered are refused with the place.

use std::collections::BTreeMap;

use fornax_bundle::{DType, Precision};
use fornax_codegen::{CodegenError, lower};
use fornax_ir::plan::{Phase, Region, Schedule, ValueRef};
use fornax_ir::{Graph, LocSet, NodeId, SourceNode, Type, attrs};

const FOLD: Schedule = Schedule::FoldThread { threads: 32, vector: 1 };

fn refused(schedule: Schedule, build: impl FnOnce(&mut Graph, NodeId)) -> String {
    let mut body = Graph::new("region");
    let x = body.input("x", Type::new(DType::F32, &[4usize, 4][..])).unwrap();
    build(&mut body, x);
    let operands = (0..body.inputs().len()).map(ValueRef::Input).collect();
    let region = Region {
        name: "r7".to_owned(),
        phase: Phase::Run,
        parts: BTreeMap::new(),
        body,
        operands,
        precision: Precision::Ieee,
        schedule,
    };
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
    let message = refused(Schedule::Scan { threads: 32, rows: 1, items: 1 }, |body, x| {
        let attrs = attrs! { axis: 1i64, exclusive: false, reverse: false };
        let total = body.add("cum_sum", attrs, &[x], LocSet::none()).unwrap();
        let loc = body.sources.add(SourceNode {
            name: "head/Transpose".into(),
            op_type: "Transpose".into(),
            index: Some(3),
            opset: Some(13),
        });
        let perm = attrs! { perm: vec![1i64, 0] };
        let moved = body.add("transpose", perm, &[total], loc.into()).unwrap();
        body.output("y", moved);
    });
    assert_eq!(
        message,
        "cannot lower region r7: only pointwise operators may use the result of the region's \
         reduction, scan, window or contraction, at `transpose` (from node \"head/Transpose\")"
    );
    let message = refused(FOLD, |body, x| {
        let total = sum(body, x);
        let shape = body.ty(x).shape.to_vec();
        let wide =
            body.add("broadcast", attrs! { shape: shape }, &[total], LocSet::none()).unwrap();
        body.output("z", wide);
    });
    assert!(message.contains("is none for a rows region"), "{message}");
}

#[test]
fn results_of_other_rows() {
    let message = refused(FOLD, |body, x| {
        let total = sum(body, x);
        let shape = body.ty(x).shape.to_vec();
        let wide =
            body.add("broadcast", attrs! { shape: shape }, &[total], LocSet::none()).unwrap();
        let perm = attrs! { perm: vec![1i64, 0] };
        let moved = body.add("transpose", perm, &[wide], LocSet::none()).unwrap();
        let both = body.add("add", attrs! {}, &[wide, moved], LocSet::none()).unwrap();
        body.output("y", both);
    });
    assert_eq!(message, "cannot lower region r7: its result is used at another position, at `add`");
    let message = refused(FOLD, |body, x| {
        let total = sum(body, x);
        let attrs = attrs! { axes: vec![0i64, 1], keepdims: false };
        let all = body.add("reduce_sum", attrs, &[total], LocSet::none()).unwrap();
        body.output("y", all);
    });
    assert!(
        message.contains("it folds 1 rows of 4 elements, the reduction before it 4 of 4"),
        "{message}"
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
