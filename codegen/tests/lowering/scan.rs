//! Running sums and products.

use fornax_bundle::DType;
use fornax_ir::attrs;
use fornax_ir::plan::Schedule;
use fornax_runtime::compare::Arithmetic;

use crate::harness::{Body, Case, Fill};

#[track_caller]
fn check(sizes: &[(&str, i64)], fill: Fill, body: &dyn Fn(&mut Body)) {
    let schedules = [(32, 1, 1), (64, 1, 8), (64, 1, 2), (64, 32, 4), (32, 32, 2), (128, 4, 16)];
    for (number, (threads, rows, items)) in schedules.into_iter().enumerate() {
        let schedule = Schedule::Scan { threads, rows, items };
        let case = Case { sizes, schedule, fill, arithmetic: Arithmetic::Reduce, body };
        case.check();
        if number == 0 && !sizes.is_empty() {
            case.check_wide();
        }
    }
}

#[test]
fn rows_of_all_sizes_and_directions() {
    for length in [0, 1, 7, 33, 100, 600] {
        for (exclusive, reverse) in [(false, false), (false, true), (true, false), (true, true)] {
            check(&[("N", 3), ("M", length)], Fill::Signed, &|body| {
                let x = body.input(DType::F32, &["N", "M"]);
                let attrs = attrs! { axis: 1i64, exclusive: exclusive, reverse: reverse };
                let sum = body.add("cum_sum", attrs, &[x]);
                body.output(sum);
            });
        }
    }
}

#[test]
fn strided_rows_with_prologue_and_epilogue() {
    check(&[("N", 70), ("M", 5)], Fill::Small, &|body| {
        let x = body.input(DType::I64, &["2", "N", "M"]);
        let doubled = body.add("add", attrs! {}, &[x, x]);
        let attrs = attrs! { axis: 1i64, exclusive: true, reverse: false };
        let sum = body.add("cum_sum", attrs, &[doubled]);
        let result = body.add("mul", attrs! {}, &[sum, x]);
        body.output(result);
        body.output(sum);
    });
}

#[test]
fn products() {
    check(&[("N", 4), ("M", 9)], Fill::Signed, &|body| {
        let x = body.input(DType::F16, &["N", "M"]);
        let attrs = attrs! { axis: 1i64, exclusive: false, reverse: false };
        let product = body.add("cum_prod", attrs, &[x]);
        body.output(product);
    });
}
