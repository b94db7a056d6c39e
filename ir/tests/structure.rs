//! What region bodies are, and the facts that forbid others.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use fornax_bundle::Dim;
use fornax_ir::op::AxisRole;
use fornax_ir::plan::{RejectionReason, Structure, structure};
use fornax_ir::text::parse_graph;

/// The structure of a graph in text form.
fn of(text: &str) -> Result<Structure, RejectionReason> {
    let graph = parse_graph(text).unwrap_or_else(|errors| panic!("{errors:?}"));
    structure(&graph, &BTreeMap::new()).map_err(|rejection| rejection.reason)
}

fn rows(text: &str) -> fornax_ir::plan::Rows {
    match of(text) {
        Ok(Structure::Rows(rows)) => rows,
        other => panic!("{other:?}"),
    }
}

#[test]
fn chains_have_levels() {
    let rows = rows(
        "graph @softmax(%x: f32[N,8]) -> (y: f32[N,8], s: f32[N,1]) {
           %0 = reduce_max %x {axes = [1], keepdims = true} : f32[N,1]
           %1 = broadcast %0 {shape = [N,8]} : f32[N,8]
           %2 = sub %x, %1 : f32[N,8]
           %3 = exp %2 : f32[N,8]
           %4 = reduce_sum %3 {axes = [1], keepdims = true} : f32[N,1]
           %5 = broadcast %4 {shape = [N,8]} : f32[N,8]
           %6 = div %3, %5 : f32[N,8]
           return %6, %4
         }",
    );
    let levels: Vec<usize> = rows.anchors.iter().map(|anchor| anchor.level).collect();
    assert_eq!(levels, [0, 1]);
    let per_element: Vec<bool> = rows.outputs.iter().map(|output| output.per_element).collect();
    assert_eq!(per_element, [true, false]);
    assert_eq!((rows.count().to_string(), rows.length().to_string()), ("N".into(), "8".into()));
}

#[test]
fn reshapes_and_transposes_go_along() {
    let grouped = rows(
        "graph @groups(%x: f32[2,6,5]) -> (y: f32[2,6,5]) {
           %0 = reshape %x {shape = [2,3,10]} : f32[2,3,10]
           %1 = reduce_sum %0 {axes = [2], keepdims = true} : f32[2,3,1]
           %2 = broadcast %1 {shape = [2,3,10]} : f32[2,3,10]
           %3 = sub %0, %2 : f32[2,3,10]
           %4 = reshape %3 {shape = [2,6,5]} : f32[2,6,5]
           return %4
         }",
    );
    assert_eq!(grouped.length().as_const(), Some(10));
    rows(
        "graph @channels(%x: f32[2,6,5]) -> (y: f32[2,6,5]) {
           %0 = transpose %x {perm = [0,2,1]} : f32[2,5,6]
           %1 = reduce_sum %0 {axes = [2], keepdims = true} : f32[2,5,1]
           %2 = broadcast %1 {shape = [2,5,6]} : f32[2,5,6]
           %3 = sub %0, %2 : f32[2,5,6]
           %4 = transpose %3 {perm = [0,2,1]} : f32[2,6,5]
           return %4
         }",
    );
}

#[test]
fn single_anchors_keep_their_class() {
    let reduce = "graph @f(%x: f32[4,4]) -> (y: f32[4]) {
        %0 = reduce_sum %x {axes = [1], keepdims = false} : f32[4]
        %1 = relu %0 : f32[4]
        return %1
    }";
    assert_eq!(of(reduce).unwrap().class(), "reduce");
    let used_again = "graph @f(%x: f32[4,4]) -> (y: f32[4,4]) {
        %0 = reduce_sum %x {axes = [1], keepdims = true} : f32[4,1]
        %1 = broadcast %0 {shape = [4,4]} : f32[4,4]
        return %1
    }";
    assert_eq!(of(used_again).unwrap().class(), "rows");
    let moved = "graph @f(%x: f32[4,4]) -> (y: f32[4,4]) {
        %0 = transpose %x {perm = [1,0]} : f32[4,4]
        return %0
    }";
    assert_eq!(of(moved).unwrap().class(), "pointwise");
}

#[test]
fn other_rows_are_refused() {
    let mixed = "graph @f(%x: f32[4,4]) -> (y: f32[4,4]) {
        %0 = reduce_sum %x {axes = [1], keepdims = true} : f32[4,1]
        %1 = broadcast %0 {shape = [4,4]} : f32[4,4]
        %2 = transpose %1 {perm = [1,0]} : f32[4,4]
        %3 = add %1, %2 : f32[4,4]
        return %3
    }";
    assert_eq!(of(mixed), Err(RejectionReason::Position));
    let nested = "graph @f(%x: f32[4,6]) -> (y: f32[1,1]) {
        %0 = reduce_sum %x {axes = [1], keepdims = true} : f32[4,1]
        %1 = reduce_sum %0 {axes = [0], keepdims = true} : f32[1,1]
        return %1
    }";
    assert!(matches!(of(nested), Err(RejectionReason::RowSizes { .. })));
    let shifted = "graph @f(%x: f32[4,4]) -> (y: f32[4,4]) {
        %0 = reduce_sum %x {axes = [1], keepdims = true} : f32[4,1]
        %1 = slice %0 {starts = [3,0], sizes = [4,1], steps = [-1,1]} : f32[4,1]
        %2 = broadcast %1 {shape = [4,4]} : f32[4,4]
        %3 = sub %x, %2 : f32[4,4]
        return %3
    }";
    assert_eq!(of(shifted), Err(RejectionReason::Position));
    let product = "graph @f(%x: f32[4,4]) -> (y: f32[4,4]) {
        %0 = reduce_sum %x {axes = [1], keepdims = true} : f32[4,1]
        %1 = broadcast %0 {shape = [4,4]} : f32[4,4]
        %2 = matmul %x, %1 : f32[4,4]
        return %2
    }";
    assert_eq!(of(product), Err(RejectionReason::Anchors("contraction")));
}

fn reduced(text: &str) -> fornax_ir::plan::Reduced {
    match of(text) {
        Ok(Structure::Reduced(reduced)) => reduced,
        other => panic!("{other:?}"),
    }
}

const CONV: &str = "conv %x, %w {strides = [1, 1], pads_begin = [1, 1], pads_end = [1, 1], \
                    dilations = [1, 1], groups = 1} : f32[N,24,9,9]";

#[test]
fn results_of_contractions_are_reduced_along_one_side() {
    let softmax = reduced(&format!(
        "graph @f(%x: f32[N,8,9,9], %w: f32[24,8,3,3]) -> (y: f32[N,24,9,9], m: f32[N,9,9]) {{
           %0 = {CONV}
           %1 = reduce_max %0 {{axes = [1], keepdims = true}} : f32[N,1,9,9]
           %2 = broadcast %1 {{shape = [N,24,9,9]}} : f32[N,24,9,9]
           %3 = sub %0, %2 : f32[N,24,9,9]
           %4 = reduce_sum %3 {{axes = [1], keepdims = false}} : f32[N,9,9]
           return %3, %4
         }}"
    ));
    assert_eq!(softmax.role, AxisRole::Columns);
    assert_eq!((softmax.axes.len(), softmax.folds.len()), (1, 2));
    let outputs: Vec<_> =
        softmax.outputs.iter().map(|output| (output.is_folded, output.along.clone())).collect();
    let all = vec![Some(0), Some(1), Some(2), Some(3)];
    assert_eq!(outputs, [(false, all), (true, vec![Some(0), Some(2), Some(3)])]);
    let rows = reduced(
        "graph @f(%x: f32[20,64], %w: f32[64,500]) -> (y: f32[1,500]) {
           %0 = matmul %x, %w : f32[20,500]
           %1 = reduce_sum %0 {axes = [0], keepdims = true} : f32[1,500]
           return %1
         }",
    );
    assert_eq!((rows.role, rows.in_parts), (AxisRole::Rows, false));
}

#[test]
fn results_of_contractions_that_no_side_of_a_tile_holds() {
    let with = |length: usize, rest: &str| {
        of(&format!(
            "graph @f(%x: f32[20,64], %w: f32[64,{length}]) -> (y: f32[20,1]) {{
               %0 = matmul %x, %w : f32[20,{length}]
               {rest}
             }}"
        ))
    };
    let parts = with(500, "%1 = reduce_sum %0 {axes = [1], keepdims = true} : f32[20,1] return %1");
    assert!(matches!(parts, Ok(Structure::Reduced(of)) if of.in_parts), "several tiles fold it");
    let long = with(
        500,
        "%1 = reduce_max %0 {axes = [1], keepdims = true} : f32[20,1]
         %2 = broadcast %1 {shape = [20,500]} : f32[20,500]
         %3 = sub %0, %2 : f32[20,500]
         %4 = reduce_sum %3 {axes = [1], keepdims = true} : f32[20,1]
         return %4",
    );
    let length = Box::new(Dim::constant(500));
    assert_eq!(long, Err(RejectionReason::FoldedLength { length, most: 256 }));
    let both = with(
        40,
        "%1 = reduce_sum %0 {axes = [0,1], keepdims = true} : f32[1,1]
         %2 = broadcast %1 {shape = [20,1]} : f32[20,1]
         return %2",
    );
    assert_eq!(both, Err(RejectionReason::FoldedRole));
    let shifted = with(
        40,
        "%1 = reduce_max %0 {axes = [1], keepdims = true} : f32[20,1]
         %2 = slice %1 {starts = [19,0], sizes = [20,1], steps = [-1,1]} : f32[20,1]
         return %2",
    );
    assert!(matches!(shifted, Err(RejectionReason::RowOutput(_))), "{shifted:?}");
    let turned = with(
        20,
        "%1 = transpose %0 {perm = [1,0]} : f32[20,20]
         %2 = add %0, %1 : f32[20,20]
         %3 = reduce_max %2 {axes = [1], keepdims = true} : f32[20,1]
         return %3",
    );
    assert_eq!(turned, Err(RejectionReason::Position));
    let phases = of("graph @f(%x: f32[1,8,9,9], %w: f32[8,24,4,4]) -> (y: f32[1,24,18,1]) {
        %0 = conv_transpose %x, %w {strides = [2, 2], pads_begin = [1, 1], pads_end = [1, 1], dilations = [1, 1], groups = 1, output_padding = [0, 0]} : f32[1,24,18,18]
        %1 = reduce_max %0 {axes = [3], keepdims = true} : f32[1,24,18,1]
        return %1
    }");
    assert_eq!(phases, Err(RejectionReason::FoldedRole));
}
