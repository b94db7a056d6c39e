//! Contractions on tensor cores.

use fornax_bundle::{DType, Precision};
use fornax_ir::attrs;
use fornax_ir::plan::Schedule;
use fornax_runtime::compare::Arithmetic;

use crate::harness::{Body, Case, Fill};
use crate::tile::geometry;

pub const fn mma(sizes: [u32; 4], stages: u32, splits: u32) -> Schedule {
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

pub const fn wgmma(sizes: [u32; 4], stages: u32, splits: u32) -> Schedule {
    let [block_m, block_n, groups_m, groups_n] = sizes;
    Schedule::Wgmma { block_m, block_n, groups_m, groups_n, stages, splits }
}

const GROUP_SCHEDULES: [Schedule; 4] = [
    wgmma([64, 32, 1, 1], 2, 1),
    wgmma([128, 16, 2, 1], 1, 1),
    wgmma([64, 64, 1, 2], 2, 2),
    wgmma([128, 64, 1, 1], 4, 1),
];

pub const fn pipeline(sizes: [u32; 4], stages: u32, splits: u32, packed: u32) -> Schedule {
    let [block_m, block_n, groups_m, groups_n] = sizes;
    Schedule::Pipeline { block_m, block_n, groups_m, groups_n, stages, splits, packed }
}

const PIPELINES: [Schedule; 5] = [
    pipeline([64, 32, 1, 1], 3, 1, 0),
    pipeline([128, 16, 2, 1], 2, 1, 0),
    pipeline([64, 64, 1, 2], 4, 2, 0),
    pipeline([128, 64, 1, 1], 3, 3, 0),
    pipeline([64, 8, 1, 1], 5, 1, 0),
];

const fn halves(sizes: [u32; 4], stages: u32, prepared: u32) -> Schedule {
    let [block_m, block_n, groups_m, groups_n] = sizes;
    Schedule::Halves { block_m, block_n, groups_m, groups_n, stages, prepared }
}

const HALVES: [Schedule; 3] =
    [halves([64, 64, 1, 1], 4, 0), halves([128, 64, 2, 1], 6, 0), halves([64, 128, 1, 2], 5, 1)];

#[track_caller]
pub fn check_with(
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
    let schedules = [&SCHEDULES[3], &GROUP_SCHEDULES[0], &PIPELINES[0], &HALVES[0]];
    for schedule in schedules.map(Schedule::clone) {
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

#[test]
fn pipelines_multiply_every_transposition() {
    for (number, (left, right)) in TRANSPOSITIONS.into_iter().enumerate() {
        let sizes = [("M", 40), ("K", 104), ("N", 48)];
        let body = product(DType::F32, left, right);
        let schedules = &PIPELINES[number..=number];
        check_with(schedules, Precision::Tf32, &sizes, Fill::Signed, &body);
        check_with(schedules, Precision::Fp32, &sizes, Fill::Signed, &body);
        check_with(&PIPELINES[4..], Precision::Tf32, &sizes, Fill::Signed, &body);
    }
    // What is not pipelined is multiplied by warpgroups.
    let sizes = [("M", 40), ("K", 72), ("N", 48)];
    for (dtype, precision) in [(DType::F16, Precision::Tf32), (DType::F32, Precision::Bf16)] {
        let body = product(dtype, &["M", "K"], &["K", "N"]);
        check_with(&PIPELINES[..1], precision, &sizes, Fill::Signed, &body);
    }
}

#[test]
fn halves_multiply_every_transposition() {
    for (number, (left, right)) in TRANSPOSITIONS.into_iter().enumerate() {
        let sizes = [("M", 40), ("K", 136), ("N", 72)];
        let body = product(DType::F32, left, right);
        let schedules = &HALVES[number % 3..=number % 3];
        for precision in [Precision::Fp32, Precision::Tf32] {
            check_with(schedules, precision, &sizes, Fill::Signed, &body);
        }
    }
    // What is not split is multiplied by warpgroups.
    let sizes = [("M", 40), ("K", 72), ("N", 48)];
    for (dtype, precision) in [(DType::F16, Precision::Fp32), (DType::F32, Precision::Bf16)] {
        let body = product(dtype, &["M", "K"], &["K", "N"]);
        check_with(&HALVES[..1], precision, &sizes, Fill::Signed, &body);
    }
}

#[test]
fn halves_multiply_odd_sizes_and_batches() {
    for (number, (m, k, n)) in
        [(1, 1, 1), (3, 0, 4), (0, 5, 4), (100, 31, 33), (65, 300, 140)].into_iter().enumerate()
    {
        let (left, right) = TRANSPOSITIONS[number % 4];
        let sizes = [("M", m), ("K", k), ("N", n)];
        let body = product(DType::F32, left, right);
        let schedules = &HALVES[number % 3..=number % 3];
        for precision in [Precision::Fp32, Precision::Tf32] {
            check_with(schedules, precision, &sizes, Fill::Signed, &body);
        }
    }
    let sizes = [("B", 3), ("M", 17), ("K", 20)];
    check_with(&HALVES[..1], Precision::Fp32, &sizes, Fill::Signed, &|body| {
        let a = body.input(DType::F32, &["B", "K", "M"]);
        let moved = body.add("transpose", attrs! { perm: vec![0i64, 2, 1] }, &[a]);
        let left = body.plus_one(moved);
        let b = body.input(DType::F32, &["2", "1", "K", "24"]);
        let product = body.add("matmul", attrs! {}, &[left, b]);
        let result = body.add("relu", attrs! {}, &[product]);
        body.output(result);
    });
}

#[test]
fn pipelines_multiply_odd_sizes() {
    for (number, (m, k, n)) in
        [(1, 1, 1), (3, 0, 4), (0, 5, 4), (100, 31, 33), (65, 230, 68)].into_iter().enumerate()
    {
        let (left, right) = TRANSPOSITIONS[number % 4];
        let sizes = [("M", m), ("K", k), ("N", n)];
        let body = product(DType::F32, left, right);
        let schedules = &PIPELINES[number..=number];
        check_with(schedules, Precision::Tf32, &sizes, Fill::Signed, &body);
    }
}

/// Small whole numbers are factors already.
#[test]
fn packed_operands_are_copied_as_they_are() {
    let schedule = pipeline([64, 32, 1, 1], 4, 1, 1);
    for (m, k, n) in [(40, 104, 48), (70, 31, 33)] {
        let sizes = [("M", m), ("K", k), ("N", n)];
        let schedules = std::slice::from_ref(&schedule);
        let body = product(DType::F32, &["M", "K"], &["N", "K"]);
        check_with(schedules, Precision::Tf32, &sizes, Fill::Small, &body);
        let body = product(DType::F32, &["M", "K"], &["K", "N"]);
        check_with(schedules, Precision::Tf32, &sizes, Fill::Small, &body);
    }
}

#[test]
fn pipelines_convolve() {
    for (number, (stride, pad, dilation, groups)) in
        [(1, 1, 1, 1), (2, 1, 1, 2), (1, 2, 2, 1), (1, 0, 1, 4)].into_iter().enumerate()
    {
        let sizes = [("N", 2), ("H", 10), ("W", 9)];
        let schedules = &PIPELINES[number % 3..=number % 3];
        check_with(schedules, Precision::Tf32, &sizes, Fill::Signed, &|body| {
            let x = body.input(DType::F32, &["N", "8", "H", "W"]);
            let channels = (8 / groups).to_string();
            let w = body.input(DType::F32, &["12", &channels, "3", "3"]);
            let result = body.add("conv", geometry(stride, pad, dilation, groups), &[x, w]);
            let result = body.add("relu", attrs! {}, &[result]);
            body.output(result);
        });
    }
    let sizes = [("N", 2), ("H", 5), ("W", 4)];
    check_with(&PIPELINES[..1], Precision::Tf32, &sizes, Fill::Signed, &|body| {
        let x = body.input(DType::F32, &["N", "6", "H", "W"]);
        let w = body.input(DType::F32, &["6", "4", "3", "3"]);
        let mut attrs = geometry(2, 1, 1, 1);
        attrs.insert("output_padding", vec![0i64; 2]);
        let result = body.add("conv_transpose", attrs, &[x, w]);
        body.output(result);
    });
}

pub const fn patch(sizes: [u32; 4], width: u32, stages: u32, packed: u32) -> Schedule {
    let [block_m, block_n, groups_m, groups_n] = sizes;
    Schedule::Patch { block_m, block_n, groups_m, groups_n, width, stages, packed }
}

const PATCHES: [Schedule; 3] = [
    patch([64, 16, 1, 1], 8, 4, 0),
    patch([128, 32, 2, 1], 16, 3, 0),
    patch([128, 8, 1, 1], 64, 2, 0),
];

#[test]
fn patches_convolve() {
    // Channels and groups, stride, padding, dilation, sizes.
    let cases = [
        (8, 1, 1, 1, 1, [10, 12]),
        (40, 1, 1, 1, 1, [6, 9]),
        (3, 1, 2, 1, 1, [11, 13]),
        (32, 2, 1, 2, 2, [9, 16]),
        (12, 1, 4, 0, 1, [13, 12]),
        (5, 1, 2, 1, 2, [11, 9]),
        (70, 1, 1, 1, 1, [7, 10]),
    ];
    for (number, (channels, groups, stride, pad, dilation, [height, width])) in
        cases.into_iter().enumerate()
    {
        let sizes = [("N", 2), ("H", height), ("W", width)];
        let schedules = &PATCHES[number % 3..=number % 3];
        let precision = if number < 5 { Precision::Tf32 } else { Precision::Fp32 };
        check_with(schedules, precision, &sizes, Fill::Signed, &|body| {
            let x = body.input(DType::F32, &["N", &channels.to_string(), "H", "W"]);
            let inner = (channels / groups).to_string();
            let w = body.input(DType::F32, &["12", &inner, "3", "3"]);
            let result = body.add("conv", geometry(stride, pad, dilation, groups), &[x, w]);
            let result = body.add("relu", attrs! {}, &[result]);
            body.output(result);
        });
    }
}

#[test]
fn patches_of_other_windows() {
    let schedules = &PATCHES[..1];
    // Taps in the order of packed weights, copied as they are.
    let packed = patch([64, 16, 1, 1], 8, 4, 1);
    let sizes = [("N", 1), ("H", 7), ("W", 20)];
    let packed = std::slice::from_ref(&packed);
    check_with(packed, Precision::Tf32, &sizes, Fill::Small, &|body| {
        let x = body.input(DType::F32, &["N", "36", "H", "W"]);
        let w = body.input(DType::F32, &["12", "3", "3", "36"]);
        let w = body.add("transpose", attrs! { perm: vec![0i64, 3, 1, 2] }, &[w]);
        let result = body.add("conv", geometry(1, 1, 1, 1), &[x, w]);
        body.output(result);
    });
    for stride in [1, 2] {
        let sizes = [("N", 2), ("H", 5), ("W", 8)];
        check_with(schedules, Precision::Tf32, &sizes, Fill::Signed, &|body| {
            let x = body.input(DType::F32, &["N", "6", "H", "W"]);
            let w = body.input(DType::F32, &["6", "4", "3", "3"]);
            let mut attrs = geometry(stride, 1, 1, 1);
            attrs.insert("output_padding", vec![0i64; 2]);
            let result = body.add("conv_transpose", attrs, &[x, w]);
            body.output(result);
        });
    }
    // Products have no windows.
    let body = product(DType::F32, &["M", "K"], &["K", "N"]);
    let sizes = [("M", 40), ("K", 72), ("N", 48)];
    check_with(schedules, Precision::Tf32, &sizes, Fill::Signed, &body);
}

#[test]
fn patches_in_one_and_three_dimensions() {
    let sizes = [("N", 2), ("W", 70)];
    check_with(&PATCHES[1..2], Precision::Tf32, &sizes, Fill::Signed, &|body| {
        let x = body.input(DType::F32, &["N", "9", "W"]);
        let w = body.input(DType::F32, &["12", "9", "5"]);
        let attrs = attrs! {
            strides: vec![1i64], pads_begin: vec![2i64], pads_end: vec![2i64],
            dilations: vec![1i64], groups: 1i64,
        };
        let result = body.add("conv", attrs, &[x, w]);
        body.output(result);
    });
    let sizes = [("N", 1), ("D", 4), ("H", 5), ("W", 12)];
    check_with(&PATCHES[..1], Precision::Tf32, &sizes, Fill::Signed, &|body| {
        let x = body.input(DType::F32, &["N", "3", "D", "H", "W"]);
        let w = body.input(DType::F32, &["20", "3", "3", "3", "3"]);
        let attrs = attrs! {
            strides: vec![1i64; 3], pads_begin: vec![1i64; 3], pads_end: vec![1i64; 3],
            dilations: vec![1i64; 3], groups: 1i64,
        };
        let result = body.add("conv", attrs, &[x, w]);
        body.output(result);
    });
}

#[test]
fn packed_elements_are_rounded() {
    let value = |i: i32| (i as f32 * 0.37).sin() * f32::powi(2.0, i - 30);
    let values: Vec<f32> = (0..70).map(value).collect();
    let turned = |body: &mut Body| {
        let x = body.input(DType::F32, &["7", "10"]);
        let y = body.add("transpose", attrs! { perm: vec![1i64, 0] }, &[x]);
        body.output(y);
    };
    let schedule = Schedule::Pack { threads: 32, vector: 4 };
    for (precision, rounded) in [(Precision::Tf32, true), (Precision::Ieee, false)] {
        let actual = Case::run_on(&turned, schedule.clone(), precision, &[&values]);
        for (number, &found) in actual.iter().enumerate() {
            let exact = values[number % 7 * 10 + number / 7].to_bits();
            let wanted = if rounded { (exact + 0x1000) & !0x1fff } else { exact };
            assert_eq!(found.to_bits(), wanted, "{number}");
        }
    }
}

#[test]
fn left_factors_in_registers_stay_until_their_products_are_done() {
    // PTX leaves it undefined what `wgmma` multiplies when registers it reads are written while it is under way; the
    // emulator reads them at once.
    for stages in [3, 4, 6] {
        let body = product(DType::F32, &["M", "K"], &["K", "N"]);
        let case = Case {
            sizes: &[("M", 128), ("K", 256), ("N", 64)],
            schedule: pipeline([128, 64, 2, 1], stages, 1, 0),
            fill: Fill::Signed,
            arithmetic: Arithmetic::Contraction,
            body: &body,
        };
        let kernels = case.kernels(Precision::Tf32);
        let kernel = kernels.iter().find(|kernel| kernel.contains("wgmma_registers")).unwrap();
        let (before, behind) = kernel.split_once("wgmma_registers").unwrap();
        // Within the loop: either the wait comes before the factors are loaded, or right behind the products.
        let (_, step) = before.rsplit_once("barrier").unwrap();
        let waits = step.find("wgmma_pending 0");
        let loads = step.find("load").unwrap();
        let ends = behind.find('}').unwrap();
        assert!(
            waits.is_some_and(|at| at < loads) || behind[..ends].contains("wgmma_wait"),
            "{stages} stages: {kernel}"
        );
    }
}
