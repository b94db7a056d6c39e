//! Recurrences.

use fornax_bundle::DType;
use fornax_ir::attrs;
use fornax_ir::plan::Schedule;
use fornax_runtime::compare::Arithmetic;

use crate::harness::{Body, Case, Fill};

/// Units and sequences that fill the blocks and such that do not; sums by lanes of a warp, by warps, and both;
/// one block and several; several units a thread.
const SCHEDULES: [Schedule; 6] = [
    Schedule::Recurrent { threads: 32, blocks: 1, batch: 1 },
    Schedule::Recurrent { threads: 64, blocks: 2, batch: 2 },
    Schedule::Recurrent { threads: 64, blocks: 4, batch: 1 },
    Schedule::Recurrent { threads: 128, blocks: 1, batch: 4 },
    Schedule::Recurrent { threads: 32, blocks: 8, batch: 8 },
    Schedule::Recurrent { threads: 2, blocks: 1, batch: 4 },
];

#[track_caller]
fn check(sizes: &[(&str, i64)], schedules: &[Schedule], body: &dyn Fn(&mut Body)) {
    for (number, schedule) in schedules.iter().enumerate() {
        let (schedule, fill) = (schedule.clone(), Fill::Signed);
        let case = Case { sizes, schedule, fill, arithmetic: Arithmetic::Reduce, body };
        case.check();
        if number == 1 {
            case.check_wide();
        }
    }
}

/// The directions of a layer, by name and number.
const DIRECTIONS: [(&str, i64); 3] = [("forward", 1), ("reverse", 1), ("bidirectional", 2)];

#[test]
fn long_short_term_memory() {
    for ((direction, count), (hidden, peepholes)) in
        DIRECTIONS.into_iter().zip([(5i64, true), (8, false), (12, true)])
    {
        check(&[("T", 4), ("B", 3)], &SCHEDULES, &|body| {
            let size = |number: i64| number.to_string();
            let inputs = size(count * 4 * hidden);
            let (d, h, gates, three) =
                (size(count), size(hidden), size(4 * hidden), size(3 * hidden));
            let x = body.input(DType::F32, &["T", "B", &inputs]);
            let weight = body.input(DType::F32, &[&d, &gates, &h]);
            let states = [(); 2].map(|()| body.input(DType::F32, &[&d, "B", &h]));
            let mut operands = vec![x, weight, states[0], states[1]];
            if peepholes {
                operands.push(body.input(DType::F32, &[&d, &three]));
            }
            let attrs = attrs! {
                direction: direction,
                activations: "sigmoid,tanh,tanh",
                input_forget: count == 2,
                final_cell: peepholes,
            };
            let result = body.add("lstm_recurrence", attrs, &operands);
            body.output(result);
        });
    }
}

#[test]
fn gated_units_with_the_reset_before_and_after() {
    for ((direction, count), (hidden, after)) in
        DIRECTIONS.into_iter().zip([(6i64, true), (7, false), (16, false)])
    {
        check(&[("T", 3), ("B", 2)], &SCHEDULES, &|body| {
            let size = |number: i64| number.to_string();
            let inputs = size(count * 3 * hidden);
            let (d, h, gates) = (size(count), size(hidden), size(3 * hidden));
            let x = body.input(DType::F32, &["T", "B", &inputs]);
            let weight = body.input(DType::F32, &[&d, &gates, &h]);
            let state = body.input(DType::F32, &[&d, "B", &h]);
            let mut operands = vec![x, weight, state];
            if after {
                operands.push(body.input(DType::F32, &[&d, &h]));
            }
            let attrs = attrs! {
                direction: direction,
                activations: "sigmoid,tanh",
                linear_before_reset: after,
            };
            let result = body.add("gru_recurrence", attrs, &operands);
            body.output(result);
        });
    }
}

/// A layer of doubles with steps, sequences and a prologue of its own; no step at all.
#[test]
fn plain_units_read_computed_values() {
    for (steps, batch) in [(3, 2), (0, 2), (1, 9)] {
        check(&[("T", steps), ("B", batch)], &SCHEDULES[..4], &|body| {
            let x = body.input(DType::F64, &["T", "B", "9"]);
            let x = body.plus_one(x);
            let weight = body.input(DType::F64, &["1", "9", "9"]);
            let turned = attrs! { perm: &[0i64, 2, 1][..] };
            let weight = body.add("transpose", turned, &[weight]);
            let state = body.input(DType::F64, &["1", "B", "9"]);
            let attrs = attrs! { direction: "forward", activations: "tanh" };
            let result = body.add("rnn_recurrence", attrs, &[x, weight, state]);
            body.output(result);
        });
    }
}

/// Weights that do not fit into the registers are read in each step.
#[test]
fn many_weights_are_read_again() {
    let schedules = [
        Schedule::Recurrent { threads: 32, blocks: 2, batch: 1 },
        Schedule::Recurrent { threads: 64, blocks: 1, batch: 2 },
    ];
    check(&[("T", 2), ("B", 2)], &schedules, &|body| {
        let x = body.input(DType::F32, &["T", "B", "160"]);
        let weight = body.input(DType::F32, &["1", "160", "40"]);
        let states = [(); 2].map(|()| body.input(DType::F32, &["1", "B", "40"]));
        let attrs = attrs! {
            direction: "reverse",
            activations: "sigmoid,tanh,tanh",
            input_forget: false,
            final_cell: false,
        };
        let result = body.add("lstm_recurrence", attrs, &[x, weight, states[0], states[1]]);
        body.output(result);
    });
}
