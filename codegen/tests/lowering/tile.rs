//! Contractions by tiles.

use fornax_bundle::DType;
use fornax_ir::plan::Schedule;
use fornax_ir::{Attrs, attrs};
use fornax_runtime::compare::Arithmetic;

use crate::harness::{Body, Case, Fill};

const fn tile(sizes: [u32; 5]) -> Schedule {
    let [block_m, block_n, block_k, thread_m, thread_n] = sizes;
    Schedule::Tile { block_m, block_n, block_k, thread_m, thread_n }
}

const SCHEDULES: [Schedule; 4] = [
    tile([16, 32, 16, 2, 2]),
    tile([32, 32, 8, 2, 4]),
    tile([64, 64, 16, 8, 8]),
    tile([128, 16, 4, 4, 4]),
];

#[track_caller]
fn check(sizes: &[(&str, i64)], fill: Fill, body: &dyn Fn(&mut Body)) {
    check_with(&SCHEDULES, sizes, fill, body);
}

#[track_caller]
fn check_with(schedules: &[Schedule], sizes: &[(&str, i64)], fill: Fill, body: &dyn Fn(&mut Body)) {
    for (number, schedule) in schedules.iter().cloned().enumerate() {
        let case = Case { sizes, schedule, fill, arithmetic: Arithmetic::Contraction, body };
        case.check();
        if number == 0 && !sizes.is_empty() {
            case.check_wide();
        }
    }
}

#[test]
fn products_of_all_sizes() {
    for (m, k, n) in
        [(1, 1, 1), (0, 3, 4), (3, 0, 4), (7, 31, 33), (64, 64, 64), (100, 16, 31), (33, 100, 67)]
    {
        check(&[("M", m), ("K", k), ("N", n)], Fill::Signed, &|body| {
            let (a, b) = (body.input(DType::F32, &["M", "K"]), body.input(DType::F32, &["K", "N"]));
            let product = body.add("matmul", attrs! {}, &[a, b]);
            body.output(product);
        });
    }
}

#[test]
fn element_types() {
    for dtype in [DType::F64, DType::F16, DType::BF16, DType::I32, DType::I8, DType::I64] {
        check_with(&SCHEDULES[1..2], &[("M", 20), ("K", 24), ("N", 36)], Fill::Small, &|body| {
            let (a, b) = (body.input(dtype, &["M", "K"]), body.input(dtype, &["K", "N"]));
            let product = body.add("matmul", attrs! {}, &[a, b]);
            body.output(product);
        });
    }
}

#[test]
fn batches_with_prologues_and_epilogues() {
    check(&[("B", 3), ("M", 17), ("K", 20)], Fill::Signed, &|body| {
        let a = body.input(DType::F32, &["B", "K", "M"]);
        let moved = body.add("transpose", attrs! { perm: vec![0i64, 2, 1] }, &[a]);
        let left = body.plus_one(moved);
        let b = body.input(DType::F32, &["2", "1", "K", "24"]);
        let product = body.add("matmul", attrs! {}, &[left, b]);
        let bias = body.input(DType::F32, &["24"]);
        let shape = body.shape(&["2", "B", "M", "24"]);
        let bias = body.add("broadcast", attrs! { shape: shape }, &[bias]);
        let sum = body.add("add", attrs! {}, &[product, bias]);
        let result = body.add("relu", attrs! {}, &[sum]);
        body.output(result);
    });
}

pub fn geometry(stride: i64, pad: i64, dilation: i64, groups: i64) -> Attrs {
    attrs! {
        strides: vec![stride; 2],
        pads_begin: vec![pad; 2],
        pads_end: vec![pad; 2],
        dilations: vec![dilation; 2],
        groups: groups,
    }
}

#[test]
fn convolutions() {
    for (stride, pad, dilation, groups) in
        [(1, 0, 1, 1), (1, 1, 1, 1), (2, 1, 1, 2), (1, 2, 2, 1), (3, 0, 1, 4)]
    {
        check(&[("N", 2), ("H", 10), ("W", 9)], Fill::Signed, &|body| {
            let x = body.input(DType::F32, &["N", "8", "H", "W"]);
            let channels = (8 / groups).to_string();
            let w = body.input(DType::F32, &["12", &channels, "3", "3"]);
            let result = body.add("conv", geometry(stride, pad, dilation, groups), &[x, w]);
            let bias = body.input(DType::F32, &["12", "1", "1"]);
            let shape = body.graph.ty(result).shape.to_vec();
            let bias = body.add("broadcast", attrs! { shape: shape }, &[bias]);
            let sum = body.add("add", attrs! {}, &[result, bias]);
            body.output(sum);
        });
    }
}

#[test]
fn transposed_convolutions() {
    for (stride, pad, dilation, groups) in [(1, 0, 1, 1), (2, 1, 1, 1), (3, 2, 2, 2)] {
        check(&[("N", 2), ("H", 5), ("W", 4)], Fill::Signed, &|body| {
            let x = body.input(DType::F32, &["N", "6", "H", "W"]);
            let w = body.input(DType::F32, &["6", "4", "3", "3"]);
            let mut attrs = geometry(stride, pad, dilation, groups);
            attrs.insert("output_padding", vec![0i64; 2]);
            let result = body.add("conv_transpose", attrs, &[x, w]);
            body.output(result);
        });
    }
}
