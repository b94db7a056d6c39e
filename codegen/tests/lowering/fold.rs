//! Reductions, windows and contractions by the fold schedules.

use fornax_bundle::{DType, Precision};
use fornax_ir::plan::Schedule;
use fornax_ir::{Attrs, attrs};
use fornax_runtime::compare::Arithmetic;

use crate::harness::{Body, Case, Fill};

const SCHEDULES: [Schedule; 6] = [
    Schedule::FoldThread { threads: 32, vector: 1 },
    Schedule::FoldThread { threads: 64, vector: 4 },
    Schedule::FoldBlock { threads: 32, rows: 1, vector: 1 },
    Schedule::FoldBlock { threads: 128, rows: 4, vector: 4 },
    Schedule::FoldBlock { threads: 64, rows: 64, vector: 2 },
    Schedule::FoldSplit { threads: 64, vector: 4, parts: 5 },
];

const SLIDES: [Schedule; 3] = [
    Schedule::Slide { threads: 32, rows: 1 },
    Schedule::Slide { threads: 64, rows: 4 },
    Schedule::Slide { threads: 32, rows: 3 },
];

#[track_caller]
fn check(sizes: &[(&str, i64)], fill: Fill, body: &dyn Fn(&mut Body)) {
    check_with(&SCHEDULES, sizes, fill, body);
}

/// Windows are folded in order.
#[track_caller]
fn check_window(sizes: &[(&str, i64)], fill: Fill, body: &dyn Fn(&mut Body)) {
    check_with(&SCHEDULES[..2], sizes, fill, body);
    check_with(&SLIDES, sizes, fill, body);
}

#[track_caller]
fn check_with(schedules: &[Schedule], sizes: &[(&str, i64)], fill: Fill, body: &dyn Fn(&mut Body)) {
    for (number, schedule) in schedules.iter().cloned().enumerate() {
        let case = Case { sizes, schedule, fill, arithmetic: Arithmetic::Reduce, body };
        case.check();
        if number == 0 && !sizes.is_empty() {
            case.check_wide();
        }
    }
}

fn axes(axes: &[i64], keepdims: bool) -> Attrs {
    attrs! { axes: axes.to_vec(), keepdims: keepdims }
}

#[test]
fn rows_of_all_sizes() {
    for (rows, length) in
        [(0, 4), (3, 0), (1, 1), (5, 3), (7, 31), (3, 33), (2, 64), (33, 100), (1, 1009), (2, 640)]
    {
        check(&[("N", rows), ("M", length)], Fill::Signed, &|body| {
            let x = body.input(DType::F32, &["N", "M"]);
            let sum = body.add("reduce_sum", axes(&[1], false), &[x]);
            body.output(sum);
        });
    }
}

/// Sums of 2^20 numbers in 0..1 over an axis of `[outer, length, inner]`: the error of all, relative to the
/// norm of the results, against sums in `f64`.
fn error_of_sums([outer, length, inner]: [usize; 3], schedule: &Schedule, symbolic: bool) -> f64 {
    // The upper bits of a linear congruential generator (Knuth, MMIX).
    let mut state = 1u64;
    let numbers: Vec<f32> = (0..outer * length * inner)
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 40) as f32 / (1u64 << 24) as f32
        })
        .collect();
    let sizes = [("A", outer as i64), ("B", length as i64), ("C", inner as i64)];
    let make = |body: &mut Body| {
        let x = body.input(DType::F32, &["A", "B", "C"]);
        let sum = body.add("reduce_sum", axes(&[1], false), &[x]);
        body.output(sum);
    };
    let sized = (&sizes[..], symbolic);
    let sums = Case::run_sized(&make, schedule.clone(), Precision::Ieee, sized, &[&numbers]);
    let exact = (0..outer * inner).map(|at| {
        let first = at / inner * length * inner + at % inner;
        let along = (0..length).map(|k| f64::from(numbers[first + k * inner]));
        along.sum::<f64>()
    });
    let squares = exact.zip(&sums).fold((0.0, 0.0), |(error, norm), (exact, &sum)| {
        (error + (f64::from(sum) - exact).powi(2), norm + exact * exact)
    });
    (squares.0 / squares.1).sqrt()
}

/// The error of torch's own sums on the GPU is about 4.5e-8, most of it the result's own rounding.
#[test]
fn long_sums_are_as_accurate_as_their_rounding() {
    const BOUND: f64 = 6e-8;
    let across = Schedule::FoldBlock { threads: 128, rows: 32, vector: 1 };
    let along = Schedule::FoldBlock { threads: 64, rows: 2, vector: 4 };
    let wide = Schedule::FoldThread { threads: 32, vector: 4 };
    let single = Schedule::FoldThread { threads: 64, vector: 1 };
    let split = Schedule::FoldSplit { threads: 32, vector: 4, parts: 3 };
    let rows = Schedule::Rows { threads: 32, rows: 1, vector: 4, items: 1 };
    let groups = Schedule::RowGroups { threads: 32, vector: 4, items: 1, blocks: 2 };
    for (shape, schedules) in [
        ([1, 16384, 64], vec![(&wide, true), (&split, false)]),
        ([4, 4096, 64], vec![(&across, true), (&single, false)]),
        ([64, 16384, 1], vec![(&along, true), (&groups, false)]),
        ([1, 1 << 20, 1], vec![(&rows, false)]),
    ] {
        for (schedule, symbolic) in schedules {
            let error = error_of_sums(shape, schedule, symbolic);
            assert!(error < BOUND, "{shape:?} {schedule} symbolic {symbolic}: {error:e}");
        }
    }
}

/// Products add up as numbers of both signs do; torch's own error is 8e-7 at this length.
#[test]
fn long_products_are_accurate() {
    const BOUND: f64 = 4e-7;
    let length = 4096;
    let mut state = 3u64;
    let mut numbers = |count: usize| -> Vec<f32> {
        let next = |_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        };
        (0..count).map(next).collect()
    };
    let (a, b) = (numbers(8 * length), numbers(length * 8));
    let make = |body: &mut Body| {
        let (a, b) = (body.input(DType::F32, &["8", "K"]), body.input(DType::F32, &["K", "8"]));
        let product = body.add("matmul", attrs! {}, &[a, b]);
        body.output(product);
    };
    let sizes = [("K", length as i64)];
    let tile = Schedule::Tile { block_m: 16, block_n: 16, block_k: 16, thread_m: 2, thread_n: 2 };
    let schedules = [
        tile,
        Schedule::FoldBlock { threads: 32, rows: 1, vector: 4 },
        Schedule::FoldThread { threads: 64, vector: 1 },
    ];
    for schedule in schedules {
        for symbolic in [false, true] {
            let (sized, inputs) = ((&sizes[..], symbolic), [&a[..], &b[..]]);
            let sums = Case::run_sized(&make, schedule.clone(), Precision::Ieee, sized, &inputs);
            let (mut error, mut norm) = (0.0, 0.0);
            for (at, &sum) in sums.iter().enumerate() {
                let products = (0..length)
                    .map(|k| f64::from(a[at / 8 * length + k]) * f64::from(b[k * 8 + at % 8]));
                let exact: f64 = products.sum();
                error += (f64::from(sum) - exact).powi(2);
                norm += exact * exact;
            }
            let error = (error / norm).sqrt();
            assert!(error < BOUND, "{schedule} symbolic {symbolic}: {error:e}");
        }
    }
}

#[test]
fn outer_and_middle_axes() {
    for list in [&[0i64][..], &[1], &[0, 2], &[1, 2], &[0, 1, 2]] {
        for keepdims in [false, true] {
            check(&[("N", 4), ("M", 9)], Fill::Signed, &|body| {
                let x = body.input(DType::F32, &["N", "M", "8"]);
                let mean = body.add("reduce_mean", axes(list, keepdims), &[x]);
                body.output(mean);
            });
        }
    }
}

#[test]
fn positions_of_the_largest() {
    for (op, last) in [("arg_max", false), ("arg_max", true), ("arg_min", false)] {
        check(&[("N", 5), ("M", 70)], Fill::Small, &|body| {
            let x = body.input(DType::F32, &["N", "M"]);
            let at = attrs! { axis: 1i64, keepdims: false, select_last: last };
            let at = body.add(op, at, &[x]);
            body.output(at);
        });
    }
    check(&[("N", 5)], Fill::Small, &|body| {
        let x = body.input(DType::I8, &["N", "6"]);
        let at = attrs! { axis: 0i64, keepdims: true, select_last: false };
        let at = body.add("arg_max", at, &[x]);
        body.output(at);
    });
}

#[test]
fn element_types() {
    let dtypes =
        [DType::F64, DType::F16, DType::BF16, DType::I64, DType::I32, DType::I8, DType::U8];
    for dtype in dtypes {
        for op in ["reduce_sum", "reduce_max", "reduce_mean"] {
            check_with(&SCHEDULES[3..4], &[("N", 3), ("M", 48)], Fill::Small, &|body| {
                let x = body.input(dtype, &["N", "M"]);
                let result = body.add(op, axes(&[1], false), &[x]);
                body.output(result);
            });
        }
    }
    check(&[("N", 3), ("M", 48)], Fill::Small, &|body| {
        let x = body.input(DType::Bool, &["N", "M"]);
        let result = body.add("reduce_any", axes(&[1], false), &[x]);
        body.output(result);
    });
}

#[test]
fn prologues_and_epilogues() {
    check(&[("N", 6), ("M", 20)], Fill::Signed, &|body| {
        let (x, y) = (body.input(DType::F32, &["N", "M"]), body.input(DType::F32, &["M", "N"]));
        let moved = body.add("transpose", attrs! { perm: vec![1i64, 0] }, &[y]);
        let product = body.add("mul", attrs! {}, &[x, moved]);
        let sum = body.add("reduce_sum", axes(&[1], true), &[product]);
        let bias = body.input(DType::F32, &["N", "1"]);
        let result = body.add("add", attrs! {}, &[sum, bias]);
        let result = body.add("relu", attrs! {}, &[result]);
        body.output(result);
        body.output(sum);
    });
}

fn window(kernel: &[i64], stride: i64, pad: i64, ceil: bool) -> Attrs {
    let all = |value: i64| vec![value; kernel.len()];
    attrs! {
        kernel: kernel.to_vec(),
        strides: all(stride),
        pads_begin: all(pad),
        pads_end: all(pad),
        dilations: all(1),
        ceil_mode: ceil,
    }
}

#[test]
fn windows_slide() {
    for (kernel, stride, pad, ceil) in [
        (&[3i64, 3][..], 1, 1, false),
        (&[2, 2], 2, 0, false),
        (&[3, 2], 2, 1, true),
        (&[7, 7], 3, 3, false),
        (&[5, 1], 1, 0, false),
    ] {
        for op in ["max_pool", "avg_pool"] {
            let sizes = [("N", 2), ("H", 9), ("W", 12)];
            for include in [false, true].into_iter().take(if op == "avg_pool" { 2 } else { 1 }) {
                check_window(&sizes, Fill::Signed, &|body| {
                    let x = body.input(DType::F32, &["N", "3", "H", "W"]);
                    let mut attrs = window(kernel, stride, pad, ceil);
                    if op == "avg_pool" {
                        attrs.insert("count_include_pad", include);
                    }
                    let pooled = body.add(op, attrs, &[x]);
                    body.output(pooled);
                });
            }
        }
    }
    check_window(&[("N", 2), ("H", 5), ("W", 6)], Fill::Small, &|body| {
        let x = body.input(DType::F32, &["N", "2", "H", "W"]);
        let mut attrs = window(&[3, 3], 2, 1, false);
        attrs.insert("column_major", false);
        let at = body.add("max_pool_indices", attrs, &[x]);
        body.output(at);
    });
}

#[test]
fn contractions_fold_too() {
    check(&[("M", 3), ("K", 50), ("N", 8)], Fill::Signed, &|body| {
        let (a, b) = (body.input(DType::F32, &["M", "K"]), body.input(DType::F32, &["K", "N"]));
        let product = body.add("matmul", attrs! {}, &[a, b]);
        let result = body.add("relu", attrs! {}, &[product]);
        body.output(result);
    });
    // Adjacent threads have results that share the elements of one operand.
    let rows = [
        Schedule::FoldBlock { threads: 128, rows: 32, vector: 1 },
        Schedule::FoldSplit { threads: 64, vector: 1, parts: 3 },
    ];
    check_with(&rows, &[("M", 3), ("K", 50)], Fill::Signed, &|body| {
        let (a, b) = (body.input(DType::F32, &["M", "K"]), body.input(DType::F32, &["K", "41"]));
        let a = body.plus_one(a);
        let product = body.add("matmul", attrs! {}, &[a, b]);
        body.output(product);
    });
    let depthwise = |body: &mut Body| {
        let x = body.input(DType::F32, &["N", "4", "H", "W"]);
        let w = body.input(DType::F32, &["4", "1", "3", "3"]);
        let attrs = attrs! {
            strides: vec![1i64, 2],
            pads_begin: vec![1i64, 1],
            pads_end: vec![1i64, 0],
            dilations: vec![1i64, 1],
            groups: 4i64,
        };
        let x = body.plus_one(x);
        let result = body.add("conv", attrs, &[x, w]);
        let bias = body.input(DType::F32, &["N", "4", "H", "1"]);
        let shape = body.graph.ty(result).shape.to_vec();
        let bias = body.add("broadcast", attrs! { shape: shape }, &[bias]);
        let result = body.add("add", attrs! {}, &[result, bias]);
        body.output(result);
    };
    check(&[("N", 2), ("H", 6), ("W", 7)], Fill::Signed, &depthwise);
    check_with(&SLIDES, &[("N", 2), ("H", 7), ("W", 33)], Fill::Signed, &depthwise);
    check_with(&SLIDES, &[("N", 2), ("L", 19)], Fill::Signed, &|body| {
        let x = body.input(DType::F16, &["N", "3", "L"]);
        let w = body.input(DType::F16, &["5", "3", "4"]);
        let attrs = attrs! {
            strides: vec![2i64],
            pads_begin: vec![0i64],
            pads_end: vec![2i64],
            dilations: vec![3i64],
            groups: 1i64,
        };
        let result = body.add("conv", attrs, &[x, w]);
        body.output(result);
    });
}
