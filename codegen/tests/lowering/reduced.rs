//! Contractions whose result is reduced in the registers that hold it.

use fornax_bundle::{DType, Precision};
use fornax_codegen::lower;
use fornax_ir::plan::Schedule;
use fornax_ir::{Graph, LocSet, NodeId, Type, attrs};

use crate::harness::{Body, Fill, region};
use crate::mma::{check_with, mma, patch, pipeline, wgmma};
use crate::tile::geometry;

const fn tile(sizes: [u32; 5]) -> Schedule {
    let [block_m, block_n, block_k, thread_m, thread_n] = sizes;
    Schedule::Tile { block_m, block_n, block_k, thread_m, thread_n }
}

/// Both sides of each hold 31 elements.
const SCHEDULES: [Schedule; 7] = [
    tile([32, 32, 16, 2, 4]),
    mma([32, 32, 1, 2], 2, 1),
    mma([64, 32, 2, 1], 1, 3),
    wgmma([64, 32, 1, 1], 2, 1),
    wgmma([64, 64, 1, 2], 2, 1),
    pipeline([64, 32, 1, 1], 3, 1, 0),
    patch([64, 32, 1, 1], 8, 3, 0),
];

fn precision(schedule: &Schedule) -> Precision {
    match schedule {
        Schedule::Tile { .. } => Precision::Ieee,
        _ => Precision::Tf32,
    }
}

/// Two of the schedules, other ones for each number.
fn two(number: usize) -> [Schedule; 2] {
    [0, 1].map(|other| SCHEDULES[(2 * number + other) % SCHEDULES.len()].clone())
}

/// All schedules at first, then two.
fn some(number: usize) -> Vec<Schedule> {
    if number == 0 { SCHEDULES.to_vec() } else { two(number + 1).to_vec() }
}

#[track_caller]
fn check(schedules: &[Schedule], sizes: &[(&str, i64)], body: &dyn Fn(&mut Body)) {
    for schedule in schedules {
        let one = std::slice::from_ref(schedule);
        check_with(one, precision(schedule), sizes, Fill::Signed, body);
    }
}

fn reduce(body: &mut Body, op: &str, x: NodeId, axis: i64) -> NodeId {
    body.add(op, attrs! { axes: vec![axis], keepdims: true }, &[x])
}

fn repeat(body: &mut Body, x: NodeId, like: NodeId) -> NodeId {
    let shape = body.graph.ty(like).shape.to_vec();
    body.add("broadcast", attrs! { shape: shape }, &[x])
}

fn softmax(body: &mut Body, x: NodeId, axis: i64) -> NodeId {
    let most = reduce(body, "reduce_max", x, axis);
    let most = repeat(body, most, x);
    let below = body.add("sub", attrs! {}, &[x, most]);
    let powers = body.add("exp", attrs! {}, &[below]);
    let sum = reduce(body, "reduce_sum", powers, axis);
    let sum = repeat(body, sum, x);
    body.add("div", attrs! {}, &[powers, sum])
}

#[test]
fn rows_and_columns_of_products() {
    let cases = [(70, 33, "31"), (5, 64, "32"), (0, 4, "7"), (3, 0, "5")];
    for (number, (m, k, n)) in cases.into_iter().enumerate() {
        check(&two(number), &[("M", m), ("K", k)], &|body| {
            let (a, b) = (body.input(DType::F32, &["M", "K"]), body.input(DType::F32, &["K", n]));
            let product = body.add("matmul", attrs! {}, &[a, b]);
            let least = reduce(body, "reduce_min", product, 1);
            let bias = body.input(DType::F32, &["M", "1"]);
            let result = body.add("add", attrs! {}, &[least, bias]);
            let mean =
                body.add("reduce_mean", attrs! { axes: vec![1i64], keepdims: false }, &[product]);
            body.output(result);
            body.output(mean);
        });
        check(&two(number + 1), &[("M", m), ("K", k)], &|body| {
            let (a, b) = (body.input(DType::F32, &[n, "K"]), body.input(DType::F32, &["K", "M"]));
            let product = body.add("matmul", attrs! {}, &[a, b]);
            let sum = reduce(body, "reduce_sum", product, 0);
            body.output(product);
            body.output(sum);
        });
    }
}

#[test]
fn batches_are_normalised() {
    check(&SCHEDULES, &[("B", 3), ("M", 37), ("K", 20)], &|body| {
        let a = body.input(DType::F32, &["B", "M", "K"]);
        let left = body.plus_one(a);
        let b = body.input(DType::F32, &["2", "1", "K", "24"]);
        let product = body.add("matmul", attrs! {}, &[left, b]);
        let scaled = body.add("tanh", attrs! {}, &[product]);
        let result = softmax(body, scaled, 3);
        body.output(result);
    });
}

/// More is folded than tiles hold: each folds a part, the last one of them all.
#[test]
fn parts_of_products() {
    // Results must be few enough to be counted, whatever the sizes are.
    for (number, (m, k, n)) in
        [(300, 9, "5"), (270, 9, "40"), (5, 17, "300")].into_iter().enumerate()
    {
        let rows = number < 2;
        check(&some(number), &[("M", m), ("K", k)], &|body| {
            let m = if rows { "M" } else { "5" };
            let a = body.input(DType::F32, &["2", m, "K"]);
            let b = body.input(DType::F32, &["2", "K", n]);
            let product = body.add("matmul", attrs! {}, &[a, b]);
            let value = body.add("tanh", attrs! {}, &[product]);
            let op = if number == 1 { "reduce_max" } else { "reduce_mean" };
            let folded = reduce(body, op, value, if rows { 1 } else { 2 });
            let result = body.plus_one(folded);
            body.output(result);
        });
    }
}

#[test]
fn positions_of_convolutions() {
    for (number, (stride, pad, size, channels)) in
        [(1, 1, 18, "24"), (2, 0, 37, "40")].into_iter().enumerate()
    {
        let sizes = [("H", size), ("W", size - 1)];
        check(&some(number), &sizes, &|body| {
            let x = body.input(DType::F32, &["2", "8", "H", "W"]);
            let w = body.input(DType::F32, &[channels, "8", "3", "3"]);
            let result = body.add("conv", geometry(stride, pad, 1, 1), &[x, w]);
            let bias = body.input(DType::F32, &[channels, "1", "1"]);
            let bias = repeat(body, bias, result);
            let sum = body.add("add", attrs! {}, &[result, bias]);
            let value = body.add("tanh", attrs! {}, &[sum]);
            let keepdims = number == 0;
            let attrs = attrs! { axes: vec![2i64, 3], keepdims: keepdims };
            let mean = body.add("reduce_mean", attrs, &[value]);
            let result = body.plus_one(mean);
            body.output(result);
        });
    }
}

#[test]
fn channels_of_convolutions() {
    for (number, (stride, pad, dilation, channels)) in
        [(1, 1, 1, "24"), (2, 1, 1, "31"), (1, 2, 2, "32"), (1, 0, 1, "5")].into_iter().enumerate()
    {
        let sizes = [("N", 2), ("H", 10), ("W", 9)];
        check(&two(number + 2), &sizes, &|body| {
            let x = body.input(DType::F32, &["N", "8", "H", "W"]);
            let w = body.input(DType::F32, &[channels, "8", "3", "3"]);
            let result = body.add("conv", geometry(stride, pad, dilation, 1), &[x, w]);
            let bias = body.input(DType::F32, &[channels, "1", "1"]);
            let bias = repeat(body, bias, result);
            let sum = body.add("add", attrs! {}, &[result, bias]);
            let result = match number % 2 {
                0 => softmax(body, sum, 1),
                _ => reduce(body, "reduce_min", sum, 1),
            };
            let result = body.add("tanh", attrs! {}, &[result]);
            body.output(result);
        });
    }
}

/// Phases are columns that are not folded; some of their positions lie outside of the result.
#[test]
fn channels_of_transposed_convolutions() {
    let cases = [(2, "3", "12"), (2, "4", "31"), (1, "3", "32"), (3, "5", "7")];
    for (number, (stride, kernel, channels)) in cases.into_iter().enumerate() {
        let sizes = [("N", 2), ("H", 5), ("W", 6)];
        check(&two(3 - number), &sizes, &|body| {
            let x = body.input(DType::F32, &["N", "6", "H", "W"]);
            let w = body.input(DType::F32, &["6", channels, kernel, kernel]);
            let mut attrs = geometry(stride, 1, 1, 1);
            attrs.insert("output_padding", vec![stride - 1; 2]);
            let result = body.add("conv_transpose", attrs, &[x, w]);
            let least = reduce(body, "reduce_max", result, 1);
            let bias = body.input(DType::F32, &["1"]);
            let bias = repeat(body, bias, least);
            let sum = body.add("add", attrs! {}, &[least, bias]);
            let normal = softmax(body, result, 1);
            body.output(sum);
            body.output(normal);
        });
    }
}

#[test]
fn weights_are_copied_as_they_are() {
    let packed = [patch([64, 32, 1, 1], 8, 3, 1), pipeline([64, 32, 1, 1], 3, 1, 1)];
    check_with(&packed, Precision::Tf32, &[("N", 1), ("H", 7), ("W", 20)], Fill::Small, &|body| {
        let x = body.input(DType::F32, &["N", "36", "H", "W"]);
        let w = body.input(DType::F32, &["12", "3", "3", "36"]);
        let w = body.add("transpose", attrs! { perm: vec![0i64, 3, 1, 2] }, &[w]);
        let result = body.add("conv", geometry(1, 1, 1, 1), &[x, w]);
        let result = reduce(body, "reduce_max", result, 1);
        body.output(result);
    });
}

#[test]
fn split_factors() {
    let body = |body: &mut Body| {
        let (a, b) = (body.input(DType::F32, &["M", "72"]), body.input(DType::F32, &["72", "24"]));
        let product = body.add("matmul", attrs! {}, &[a, b]);
        let result = softmax(body, product, 1);
        body.output(result);
    };
    check_with(&SCHEDULES[1..6], Precision::Fp32, &[("M", 40)], Fill::Signed, &body);
}

#[test]
fn tiles_that_do_not_hold_what_is_folded_are_refused() {
    let mut graph = Graph::new("region");
    let a = graph.input("a", Type::new(DType::F32, &[64usize, 64][..])).unwrap();
    let b = graph.input("b", Type::new(DType::F32, &[64usize, 48][..])).unwrap();
    let product = graph.add("matmul", attrs! {}, &[a, b], LocSet::none()).unwrap();
    let attrs = attrs! { axes: vec![1i64], keepdims: true };
    let sum = graph.add("reduce_sum", attrs, &[product], LocSet::none()).unwrap();
    graph.output("y", sum);
    for schedule in &SCHEDULES[..4] {
        let region = region(graph.clone(), precision(schedule), schedule.clone());
        let error = lower(&region, &Default::default()).unwrap_err().to_string();
        assert!(error.contains("tiles of 32 do not hold the 48 elements"), "{error}");
    }
}
