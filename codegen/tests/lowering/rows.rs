//! Chains of reductions over the same rows.

use fornax_bundle::{DType, Dim};
use fornax_ir::plan::Schedule;
use fornax_ir::{Attrs, NodeId, attrs};
use fornax_runtime::compare::Arithmetic;

use crate::harness::{Body, Case, Fill};

const SCHEDULES: [Schedule; 8] = [
    Schedule::Rows { threads: 32, rows: 1, vector: 1, items: 1 },
    Schedule::Rows { threads: 64, rows: 8, vector: 4, items: 2 },
    Schedule::Rows { threads: 32, rows: 32, vector: 2, items: 4 },
    Schedule::Rows { threads: 128, rows: 1, vector: 4, items: 2 },
    Schedule::Rows { threads: 64, rows: 2, vector: 1, items: 8 },
    Schedule::RowGroups { threads: 32, vector: 1, items: 1, blocks: 3 },
    Schedule::RowGroups { threads: 64, vector: 4, items: 2, blocks: 2 },
    Schedule::RowGroups { threads: 32, vector: 2, items: 4, blocks: 9 },
];

#[track_caller]
fn check(sizes: &[(&str, i64)], fill: Fill, body: &dyn Fn(&mut Body)) {
    for (number, schedule) in SCHEDULES.into_iter().enumerate() {
        let case = Case { sizes, schedule, fill, arithmetic: Arithmetic::Reduce, body };
        case.check();
        if number == 1 && !sizes.is_empty() {
            case.check_wide();
        }
    }
}

fn reduce(body: &mut Body, op: &str, x: NodeId, axes: &[i64]) -> NodeId {
    body.add(op, attrs! { axes: axes.to_vec(), keepdims: true }, &[x])
}

/// A function of two values, the second one broadcast to the first one's shape.
fn with(body: &mut Body, op: &str, x: NodeId, y: NodeId) -> NodeId {
    let shape = body.graph.ty(x).shape.to_vec();
    let y = body.add("broadcast", attrs! { shape: shape }, &[y]);
    body.add(op, Attrs::none(), &[x, y])
}

fn softmax(body: &mut Body, x: NodeId, axes: &[i64]) -> NodeId {
    let largest = reduce(body, "reduce_max", x, axes);
    let shifted = with(body, "sub", x, largest);
    let powers = body.add("exp", Attrs::none(), &[shifted]);
    let sum = reduce(body, "reduce_sum", powers, axes);
    with(body, "div", powers, sum)
}

fn normalized(body: &mut Body, x: NodeId, axes: &[i64]) -> NodeId {
    let mean = reduce(body, "reduce_mean", x, axes);
    let centered = with(body, "sub", x, mean);
    let squares = body.add("mul", Attrs::none(), &[centered, centered]);
    let variance = reduce(body, "reduce_mean", squares, axes);
    let epsilon = body.graph.scalar(body.graph.ty(x).dtype, 1e-5);
    let variance = with(body, "add", variance, epsilon);
    let deviation = body.add("sqrt", Attrs::none(), &[variance]);
    with(body, "div", centered, deviation)
}

#[test]
fn softmax_of_rows_of_all_sizes() {
    for (rows, length) in [(0, 4), (3, 0), (1, 1), (5, 3), (9, 31), (3, 64), (2, 257), (1, 2050)] {
        check(&[("N", rows), ("M", length)], Fill::Signed, &|body| {
            let x = body.input(DType::F32, &["N", "M"]);
            let y = softmax(body, x, &[1]);
            body.output(y);
        });
    }
}

#[test]
fn norms_along_any_axes() {
    for axes in [&[0i64][..], &[1], &[0, 2], &[1, 2], &[0, 1, 2]] {
        check(&[("N", 5), ("M", 9)], Fill::Signed, &|body| {
            let x = body.input(DType::F32, &["N", "M", "8"]);
            let y = normalized(body, x, axes);
            body.output(y);
        });
    }
}

#[test]
fn rows_that_are_interleaved() {
    check(&[("N", 2), ("M", 37), ("K", 70)], Fill::Signed, &|body| {
        let x = body.input(DType::F32, &["N", "M", "K"]);
        let y = softmax(body, x, &[1]);
        body.output(y);
    });
}

#[test]
fn groups_by_reshape() {
    check(&[("N", 3), ("H", 5)], Fill::Signed, &|body| {
        let x = body.input(DType::F32, &["N", "6", "H", "4"]);
        let (n, h) = (body.size("N"), body.size("H"));
        let four = Dim::constant(4);
        let grouped = vec![n.clone(), Dim::constant(2), Dim::constant(12) * h.clone()];
        let grouped = body.add("reshape", attrs! { shape: grouped }, &[x]);
        let normal = normalized(body, grouped, &[2]);
        let shape = vec![n, Dim::constant(6), h, four];
        let normal = body.add("reshape", attrs! { shape: shape }, &[normal]);
        let scale = body.input(DType::F32, &["6", "1", "1"]);
        let scaled = with(body, "mul", normal, scale);
        body.output(scaled);
    });
}

#[test]
fn results_of_several_kinds() {
    check(&[("N", 6), ("M", 50)], Fill::Signed, &|body| {
        let x = body.input(DType::F32, &["N", "M"]);
        let mean = reduce(body, "reduce_mean", x, &[1]);
        let centered = with(body, "sub", x, mean);
        let squares = body.add("mul", Attrs::none(), &[centered, centered]);
        let variance = reduce(body, "reduce_mean", squares, &[1]);
        let variance = body.add("reshape", attrs! { shape: body.shape(&["N"]) }, &[variance]);
        body.output(variance);
        body.output(mean);
        body.output(centered);
    });
    check(&[("N", 6), ("M", 50)], Fill::Small, &|body| {
        let x = body.input(DType::F32, &["N", "M"]);
        let best = body.add("reduce_max", attrs! { axes: vec![1i64], keepdims: false }, &[x]);
        let at = attrs! { axis: 1i64, keepdims: false, select_last: false };
        let at = body.add("arg_max", at, &[x]);
        body.output(best);
        body.output(at);
    });
}

#[test]
fn transposes_between() {
    check(&[("N", 4), ("C", 10), ("H", 7)], Fill::Signed, &|body| {
        let x = body.input(DType::F32, &["N", "C", "H"]);
        let last = body.add("transpose", attrs! { perm: vec![0i64, 2, 1] }, &[x]);
        let y = softmax(body, last, &[2]);
        let y = body.add("transpose", attrs! { perm: vec![0i64, 2, 1] }, &[y]);
        body.output(y);
    });
}

#[test]
fn logarithms_of_sums_and_picked_elements() {
    check(&[("N", 7), ("M", 20)], Fill::Indices(8), &|body| {
        let x = body.input(DType::F32, &["N", "M"]);
        let largest = reduce(body, "reduce_max", x, &[1]);
        let shifted = with(body, "sub", x, largest);
        let powers = body.add("exp", Attrs::none(), &[shifted]);
        let sum = reduce(body, "reduce_sum", powers, &[1]);
        let logarithm = body.add("log", Attrs::none(), &[sum]);
        let logs = with(body, "sub", shifted, logarithm);
        let targets = body.input(DType::I64, &["N", "1"]);
        let picked = body.add("gather_elements", attrs! { axis: 1i64 }, &[logs, targets]);
        body.output(picked);
    });
}

#[test]
fn narrow_floats_and_integers() {
    for dtype in [DType::F16, DType::BF16, DType::F64] {
        check(&[("N", 3), ("M", 40)], Fill::Signed, &|body| {
            let x = body.input(dtype, &["N", "M"]);
            let wide = if dtype == DType::F64 { dtype } else { DType::F32 };
            let x = body.add("cast", attrs! { to: wide }, &[x]);
            let y = softmax(body, x, &[1]);
            let y = body.add("cast", attrs! { to: dtype }, &[y]);
            body.output(y);
        });
    }
    for dtype in [DType::I64, DType::I32, DType::I8] {
        check(&[("N", 3), ("M", 40)], Fill::Small, &|body| {
            let x = body.input(dtype, &["N", "M"]);
            let sum = reduce(body, "reduce_sum", x, &[1]);
            let y = with(body, "sub", x, sum);
            let least = reduce(body, "reduce_min", y, &[1]);
            let y = with(body, "sub", y, least);
            body.output(y);
        });
    }
}

#[test]
fn one_reduction_alone() {
    check(&[("N", 33), ("M", 100)], Fill::Signed, &|body| {
        let x = body.input(DType::F32, &["N", "M"]);
        let sum = body.add("reduce_sum", attrs! { axes: vec![1i64], keepdims: false }, &[x]);
        let sum = body.add("relu", Attrs::none(), &[sum]);
        body.output(sum);
    });
}
