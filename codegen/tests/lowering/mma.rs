//! Contractions on tensor cores.

use fornax_bundle::{DType, Precision};
use fornax_ir::attrs;
use fornax_ir::plan::Schedule;
use fornax_runtime::compare::Arithmetic;

use crate::harness::{Body, Case, Fill};
use crate::tile::geometry;

const fn mma(sizes: [u32; 4], stages: u32, splits: u32) -> Schedule {
    let [block_m, block_n, warps_m, warps_n] = sizes;
    Schedule::Mma { block_m, block_n, warps_m, warps_n, stages, splits }
}

const SCHEDULES: [Schedule; 5] = [
    mma([16, 8, 1, 1], 2, 1),
    mma([32, 32, 1, 2], 1, 1),
    mma([64, 32, 2, 1], 2, 3),
    mma([64, 64, 2, 2], 2, 1),
    mma([32, 128, 1, 4], 4, 1),
];

#[track_caller]
fn check_with(
    schedules: &[Schedule],
    precision: Precision,
    sizes: &[(&str, i64)],
    fill: Fill,
    body: &dyn Fn(&mut Body),
) {
    for (number, schedule) in schedules.iter().cloned().enumerate() {
        let arithmetic = Arithmetic::Contraction;
        let case = Case { sizes, schedule, fill, arithmetic, body };
        case.check_at(precision);
        if number == 0 && !sizes.is_empty() {
            case.check_wide_at(precision);
        }
    }
}

fn product(
    dtype: DType,
    left: &'static [&'static str],
    right: &'static [&'static str],
) -> impl Fn(&mut Body) {
    move |body| {
        let operand = |body: &mut Body, names: &[&str], turned: bool| {
            let x = body.input(dtype, names);
            let rank = names.len() as i64;
            let mut perm: Vec<i64> = (0..rank).collect();
            perm.swap(rank as usize - 2, rank as usize - 1);
            if turned { body.add("transpose", attrs! { perm: perm }, &[x]) } else { x }
        };
        let a = operand(body, left, left.last() == Some(&"M"));
        let b = operand(body, right, right.last() == Some(&"K"));
        let product = body.add("matmul", attrs! {}, &[a, b]);
        body.output(product);
    }
}

const TRANSPOSITIONS: [(&[&str], &[&str]); 4] = [
    (&["M", "K"], &["K", "N"]),
    (&["M", "K"], &["N", "K"]),
    (&["K", "M"], &["K", "N"]),
    (&["K", "M"], &["N", "K"]),
];

#[test]
fn products_of_all_sizes() {
    for (number, (m, k, n)) in
        [(1, 1, 1), (0, 3, 4), (3, 0, 4), (7, 31, 33), (64, 64, 64), (100, 16, 31), (33, 100, 68)]
            .into_iter()
            .enumerate()
    {
        let (left, right) = TRANSPOSITIONS[number % 4];
        let sizes = [("M", m), ("K", k), ("N", n)];
        let body = product(DType::F32, left, right);
        check_with(&SCHEDULES, Precision::Tf32, &sizes, Fill::Signed, &body);
    }
}

#[test]
fn every_transposition_and_factor() {
    for (left, right) in TRANSPOSITIONS {
        let sizes = [("M", 40), ("K", 72), ("N", 48)];
        for (dtype, precision) in [
            (DType::F32, Precision::Tf32),
            (DType::F32, Precision::Bf16),
            (DType::F32, Precision::Fp16),
            (DType::F32, Precision::Fp32),
            (DType::F16, Precision::Tf32),
            (DType::BF16, Precision::Fp32),
        ] {
            let body = product(dtype, left, right);
            check_with(&SCHEDULES[2..3], precision, &sizes, Fill::Signed, &body);
        }
    }
}

#[test]
fn batches_with_prologues_and_epilogues() {
    let sizes = [("B", 3), ("M", 17), ("K", 20)];
    check_with(&SCHEDULES, Precision::Tf32, &sizes, Fill::Signed, &|body| {
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

#[test]
fn convolutions() {
    for (stride, pad, dilation, groups) in
        [(1, 0, 1, 1), (1, 1, 1, 1), (2, 1, 1, 2), (1, 2, 2, 1), (3, 0, 1, 4)]
    {
        let sizes = [("N", 2), ("H", 10), ("W", 9)];
        let schedules = &SCHEDULES[..3];
        check_with(schedules, Precision::Tf32, &sizes, Fill::Signed, &|body| {
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
        let sizes = [("N", 2), ("H", 5), ("W", 4)];
        check_with(&SCHEDULES[..2], Precision::Tf32, &sizes, Fill::Signed, &|body| {
            let x = body.input(DType::F32, &["N", "6", "H", "W"]);
            let w = body.input(DType::F32, &["6", "4", "3", "3"]);
            let mut attrs = geometry(stride, pad, dilation, groups);
            attrs.insert("output_padding", vec![0i64; 2]);
            let result = body.add("conv_transpose", attrs, &[x, w]);
            body.output(result);
        });
    }
}
