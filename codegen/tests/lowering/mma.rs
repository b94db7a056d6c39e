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

const fn wgmma(sizes: [u32; 4], stages: u32, splits: u32) -> Schedule {
    let [block_m, block_n, groups_m, groups_n] = sizes;
    Schedule::Wgmma { block_m, block_n, groups_m, groups_n, stages, splits }
}

const GROUP_SCHEDULES: [Schedule; 4] = [
    wgmma([64, 32, 1, 1], 2, 1),
    wgmma([128, 16, 2, 1], 1, 1),
    wgmma([64, 64, 1, 2], 2, 2),
    wgmma([128, 64, 1, 1], 4, 1),
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
    // The last ones: phases that share a window, from the first position on or not; with gaps between taps;
    // those that do not share one.
    for (stride, pad, dilation, groups, kernel, added) in [
        (1, 0, 1, 1, "3", 0),
        (3, 2, 2, 2, "3", 0),
        (2, 1, 1, 1, "3", 1),
        (2, 1, 1, 1, "4", 0),
        (2, 1, 2, 1, "3", 0),
        (5, 1, 2, 2, "3", 0),
        (2, 1, 3, 1, "3", 0),
    ] {
        let sizes = [("N", 2), ("H", 5), ("W", 4)];
        check_with(&SCHEDULES[..2], Precision::Tf32, &sizes, Fill::Signed, &|body| {
            let x = body.input(DType::F32, &["N", "6", "H", "W"]);
            let w = body.input(DType::F32, &["6", "4", kernel, kernel]);
            let mut attrs = geometry(stride, pad, dilation, groups);
            attrs.insert("output_padding", vec![added; 2]);
            let result = body.add("conv_transpose", attrs, &[x, w]);
            let shape = body.graph.ty(result).shape.to_vec();
            let bias = body.input(DType::F32, &["1", "1", "1", "1"]);
            let bias = body.add("broadcast", attrs! { shape: shape }, &[bias]);
            let result = body.add("add", attrs! {}, &[result, bias]);
            body.output(result);
        });
    }
}

#[test]
fn warpgroups_multiply_every_transposition_and_factor() {
    for (number, (left, right)) in TRANSPOSITIONS.into_iter().enumerate() {
        let sizes = [("M", 40), ("K", 72), ("N", 48)];
        let kinds = [
            (DType::F32, Precision::Tf32),
            (DType::F32, Precision::Bf16),
            (DType::F16, Precision::Tf32),
            (DType::F32, Precision::Fp32),
            (DType::BF16, Precision::Fp32),
        ];
        for (dtype, precision) in kinds {
            let body = product(dtype, left, right);
            // Split factors take three times the shared memory.
            let number = if precision == Precision::Fp32 { number % 3 } else { number };
            let schedules = &GROUP_SCHEDULES[number..=number];
            check_with(schedules, precision, &sizes, Fill::Signed, &body);
        }
    }
}

#[test]
fn warpgroups_multiply_odd_sizes_and_convolve() {
    for (number, (m, k, n)) in
        [(1, 1, 1), (3, 0, 4), (100, 31, 33), (65, 100, 68)].into_iter().enumerate()
    {
        let (left, right) = TRANSPOSITIONS[number % 4];
        let sizes = [("M", m), ("K", k), ("N", n)];
        let body = product(DType::F32, left, right);
        let schedules = &GROUP_SCHEDULES[number..=number];
        check_with(schedules, Precision::Tf32, &sizes, Fill::Signed, &body);
    }
    let sizes = [("N", 2), ("H", 10), ("W", 9)];
    check_with(&GROUP_SCHEDULES[..1], Precision::Tf32, &sizes, Fill::Signed, &|body| {
        let x = body.input(DType::F32, &["N", "8", "H", "W"]);
        let w = body.input(DType::F32, &["12", "8", "3", "3"]);
        let result = body.add("conv", geometry(1, 1, 1, 1), &[x, w]);
        let result = body.add("relu", attrs! {}, &[result]);
        body.output(result);
    });
}

/// What splits as accurate as `f32` must keep: values of any size beside each other, infinities and NaN.
#[test]
fn split_factors_keep_small_and_infinite_numbers() {
    for schedule in [SCHEDULES[3].clone(), GROUP_SCHEDULES[0].clone()] {
        let graph = |body: &mut Body| {
            let (a, b) =
                (body.input(DType::F32, &["64", "32"]), body.input(DType::F32, &["32", "32"]));
            let product = body.add("matmul", attrs! {}, &[a, b]);
            body.output(product);
        };
        let (m, k, n) = (64usize, 32usize, 32usize);
        let mut a: Vec<f32> = (0..m * k).map(|i| (i as f32 * 0.37).sin()).collect();
        let mut b: Vec<f32> = (0..k * n).map(|i| (i as f32 * 0.73).cos()).collect();
        // A row with one huge element, one of tiny elements, infinities, NaN, the largest number.
        a[0] = f32::powi(2.0, 40);
        a[k..2 * k].iter_mut().for_each(|x| *x *= 1e-30);
        a[2 * k] = f32::INFINITY;
        a[3 * k + 1] = f32::NAN;
        a[4 * k] = f32::MAX;
        b[5] = f32::NEG_INFINITY;
        b[6] = 0.0;
        let actual = Case::run_on(&graph, schedule, Precision::Fp32, &[&a, &b]);
        for row in 0..m {
            for column in 0..n {
                let products = |f: &dyn Fn(f64) -> f64| -> f64 {
                    let each =
                        (0..k).map(|i| f(f64::from(a[row * k + i]) * f64::from(b[i * n + column])));
                    each.sum()
                };
                let (exact, size) = (products(&|x| x), products(&f64::abs));
                let got = f64::from(actual[row * n + column]);
                if exact.is_finite() && size < 1e38 {
                    // Of what rounds to infinity only the upper bits are kept.
                    let bound = size * f64::powi(2.0, if row == 4 { -10 } else { -20 });
                    assert!(
                        (got - exact).abs() <= bound,
                        "[{row}, {column}]: {got:e}, not {exact:e}"
                    );
                } else if !exact.is_finite() {
                    let same = got.is_nan() && exact.is_nan() || got == exact;
                    assert!(same, "[{row}, {column}]: {got:e}, not {exact:e}");
                }
            }
        }
    }
}
