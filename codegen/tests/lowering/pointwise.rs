//! Regions without an anchor.

use fornax_bundle::DType;
use fornax_ir::plan::Schedule;
use fornax_ir::{Dim, attrs};
use fornax_runtime::compare::Arithmetic;

use crate::harness::{Body, Case, Fill};

const SCHEDULES: [Schedule; 3] = [
    Schedule::Pointwise { threads: 32, vector: 1, unroll: 1 },
    Schedule::Pointwise { threads: 64, vector: 4, unroll: 2 },
    Schedule::Pointwise { threads: 128, vector: 2, unroll: 1 },
];

#[track_caller]
fn check(sizes: &[(&str, i64)], fill: Fill, arithmetic: Arithmetic, body: &dyn Fn(&mut Body)) {
    for (number, schedule) in SCHEDULES.into_iter().enumerate() {
        let case = Case { sizes, schedule, fill, arithmetic, body };
        case.check();
        if number == 0 && !sizes.is_empty() {
            case.check_wide();
        }
    }
}

#[test]
fn sums_of_all_sizes_and_types() {
    for n in [0, 1, 3, 7, 31, 33, 64, 100, 1009] {
        check(&[("N", n)], Fill::Signed, Arithmetic::Pointwise, &|body| {
            let (a, b) = (body.input(DType::F32, &["N"]), body.input(DType::F32, &["N"]));
            let sum = body.add("add", attrs! {}, &[a, b]);
            body.output(sum);
        });
    }
    let dtypes =
        [DType::F64, DType::F16, DType::BF16, DType::I64, DType::I32, DType::I8, DType::U8];
    for dtype in dtypes {
        check(&[("N", 100)], Fill::Small, Arithmetic::Pointwise, &|body| {
            let (a, b) = (body.input(dtype, &["N", "3"]), body.input(dtype, &["N", "3"]));
            let sum = body.add("add", attrs! {}, &[a, b]);
            let product = body.add("mul", attrs! {}, &[sum, a]);
            body.output(product);
            body.output(sum);
        });
    }
}

#[test]
fn movements_compose() {
    let sizes = [("N", 5), ("C", 12), ("W", 8)];
    check(&sizes, Fill::Signed, Arithmetic::Pointwise, &|body| {
        let x = body.input(DType::F32, &["N", "C", "W"]);
        let bias = body.input(DType::F32, &["C", "1"]);
        let shape = body.shape(&["N", "C", "W"]);
        let bias = body.add("broadcast", attrs! { shape: shape }, &[bias]);
        let sum = body.add("add", attrs! {}, &[x, bias]);
        let moved = body.add("transpose", attrs! { perm: vec![1i64, 2, 0] }, &[sum]);
        let flat = vec![body.size("C") * body.size("W"), body.size("N")];
        let flat = body.add("reshape", attrs! { shape: flat }, &[moved]);
        let tail = body.add("relu", attrs! {}, &[flat]);
        body.output(tail);
    });
}

#[test]
fn guards_read_nothing_outside() {
    for n in [1, 6, 33] {
        check(&[("N", n)], Fill::Signed, Arithmetic::Pointwise, &|body| {
            let x = body.input(DType::F32, &["N", "3"]);
            let y = body.input(DType::F32, &["2", "3"]);
            let joined = body.add("concat", attrs! { axis: 0i64 }, &[x, y, x]);
            let exp = body.plus_one(joined);
            let size: Dim = body.size("N") * Dim::constant(2) + Dim::constant(2);
            let slice = attrs! {
                starts: vec![Dim::constant(0), Dim::constant(2)],
                steps: vec![1i64, -1],
                sizes: vec![size, Dim::constant(3)],
            };
            let back = body.add("slice", slice, &[exp]);
            body.output(back);
        });
    }
}

#[test]
fn gathers_stay_inside() {
    for (n, indices) in [(4, DType::I64), (7, DType::I32)] {
        check(&[("N", n), ("M", 10)], Fill::Indices(n), Arithmetic::Exact, &|body| {
            let x = body.input(DType::F32, &["N", "6"]);
            let at = body.input(indices, &["M"]);
            let rows = body.add("gather", attrs! { axis: 0i64 }, &[x, at]);
            body.output(rows);
        });
    }
}

#[test]
fn scalars_positions_and_constants() {
    check(&[], Fill::Signed, Arithmetic::Pointwise, &|body| {
        let x = body.input(DType::F32, &[]);
        let doubled = body.add("add", attrs! {}, &[x, x]);
        body.output(doubled);
    });
    check(&[("N", 9), ("M", 5)], Fill::Small, Arithmetic::Pointwise, &|body| {
        let x = body.input(DType::I64, &["N", "M"]);
        let shape = body.shape(&["N", "M"]);
        let iota = attrs! { axis: 0i64, dtype: DType::I64, shape: shape };
        let row = body.add("iota", iota, &[]);
        let sum = body.add("add", attrs! {}, &[row, x]);
        let next = body.plus_one(sum);
        body.output(next);
    });
}
