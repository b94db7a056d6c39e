//! In which order the registers and threads that hold a dimension of a tile are combined.

use fornax_ir::{BinaryFn, ScalarExpr};

use crate::kernel::{Layout, Mode};

/// A digit of a register or thread number: `number / weight % size`, worth `stride` elements each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Digit {
    pub weight: u32,
    pub size: u32,
    pub stride: u32,
}

/// One step: afterwards everything that differs only in the step's digits is combined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Among the registers of a thread.
    Registers(Digit),
    /// Between lanes of a warp whose numbers differ in a bit.
    Lanes { bit: u32 },
    /// Between threads through shared memory; digits by stride, the first one's elements adjacent.
    Threads(Vec<Digit>),
}

/// Whether the order of operands makes no difference: one commutative function on each accumulator.
pub(super) fn is_commutative(combine: &[ScalarExpr]) -> bool {
    combine.iter().enumerate().all(|(index, expr)| match expr {
        ScalarExpr::Binary(function, a, b) => {
            let operands = [a.as_ref(), b.as_ref()];
            let args = [ScalarExpr::Arg(index), ScalarExpr::Arg(combine.len() + index)];
            let commutes = matches!(
                function,
                BinaryFn::Add
                    | BinaryFn::Mul
                    | BinaryFn::Max
                    | BinaryFn::Min
                    | BinaryFn::And
                    | BinaryFn::Or
                    | BinaryFn::Xor
            );
            commutes && (operands == [&args[0], &args[1]] || operands == [&args[1], &args[0]])
        }
        _ => false,
    })
}

/// The steps that combine a tile along a dimension. `ordered`: only ranges of adjacent elements are
/// combined, the earlier one as the left operand; otherwise the cheapest steps come first.
pub(super) fn steps(layout: &Layout, dim: u32, ordered: bool) -> Vec<Step> {
    let mut steps: Vec<(u32, Step)> = Vec::new();
    for digit in digits(&layout.registers, dim) {
        steps.push((digit.stride, Step::Registers(digit)));
    }
    let shuffles = lanes_are_whole(layout.thread_count());
    for mut digit in digits(&layout.threads, dim) {
        while shuffles
            && digit.weight < 32
            && digit.weight.is_power_of_two()
            && digit.size.is_multiple_of(2)
        {
            steps.push((digit.stride, Step::Lanes { bit: digit.weight.trailing_zeros() }));
            digit =
                Digit { weight: digit.weight * 2, size: digit.size / 2, stride: digit.stride * 2 };
        }
        if digit.size > 1 {
            steps.push((digit.stride, Step::Threads(vec![digit])));
        }
    }
    let kind = |step: &Step| match step {
        _ if ordered => 0,
        Step::Registers(_) => 0,
        Step::Lanes { .. } => 1,
        Step::Threads(_) => 2,
    };
    steps.sort_by_key(|(stride, step)| (kind(step), *stride));
    let mut merged: Vec<Step> = Vec::new();
    for (_, step) in steps {
        match (merged.last_mut(), step) {
            (Some(Step::Threads(digits)), Step::Threads(more)) => digits.extend(more),
            (_, step) => merged.push(step),
        }
    }
    merged
}

/// Whether every warp of the block is full, or the only one a power of two wide, so that shuffles
/// between lanes that differ in a bit stay among threads that exist.
fn lanes_are_whole(threads: u32) -> bool {
    threads.is_multiple_of(32) || threads.is_power_of_two()
}

fn digits(modes: &[Mode], dim: u32) -> Vec<Digit> {
    let mut weight = 1;
    let mut digits = Vec::new();
    for mode in modes {
        if mode.dim == dim && mode.size > 1 && mode.stride > 0 {
            digits.push(Digit { weight, size: mode.size, stride: mode.stride });
        }
        weight *= mode.size;
    }
    digits
}

/// Which bits of the lane number earlier steps have combined, as a mask.
pub(super) fn combined_lanes(earlier: &[Step]) -> u32 {
    earlier.iter().fold(0, |mask, step| match step {
        Step::Lanes { bit } => mask | 1 << bit,
        _ => mask,
    })
}

/// The most elements that a step puts into shared memory.
pub(super) fn exchanged(layout: &Layout, dim: u32, steps: &[Step]) -> u32 {
    let repeated = layout.registers.iter().filter(|mode| mode.dim == dim && mode.stride == 0);
    let mut ranges = layout.register_count() / repeated.map(|mode| mode.size).product::<u32>();
    let mut most = 0;
    for (index, step) in steps.iter().enumerate() {
        match step {
            Step::Registers(digit) => ranges /= digit.size,
            Step::Lanes { .. } => {}
            Step::Threads(_) => {
                let combined = combined_lanes(&steps[..index]).count_ones();
                most = most.max(ranges * (layout.thread_count() >> combined));
            }
        }
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digit(weight: u32, size: u32, stride: u32) -> Digit {
        Digit { weight, size, stride }
    }

    #[test]
    fn a_row_over_a_block() {
        let layout = Layout {
            shape: vec![2048],
            registers: vec![Mode::new(0, 4, 1), Mode::new(0, 2, 1024)],
            threads: vec![Mode::new(0, 256, 4)],
        };
        let lanes = || (0..5).map(|bit| Step::Lanes { bit });
        let warps = Step::Threads(vec![digit(32, 8, 128)]);
        let inner = Step::Registers(digit(1, 4, 1));
        let outer = Step::Registers(digit(4, 2, 1024));
        let mut expected = vec![inner.clone(), outer.clone()];
        expected.extend(lanes());
        expected.push(warps.clone());
        assert_eq!(steps(&layout, 0, false), expected);
        let mut expected = vec![inner];
        expected.extend(lanes());
        expected.extend([warps, outer]);
        assert_eq!(steps(&layout, 0, true), expected);
        assert_eq!(exchanged(&layout, 0, &expected), 16);
        assert_eq!(exchanged(&layout, 0, &steps(&layout, 0, false)), 8);
    }

    #[test]
    fn some_lanes_and_odd_sizes() {
        let layout = Layout {
            shape: vec![3, 4],
            registers: vec![],
            threads: vec![Mode::new(1, 4, 1), Mode::new(0, 3, 1), Mode::new(1, 8, 0)],
        };
        assert_eq!(steps(&layout, 1, false), [Step::Lanes { bit: 0 }, Step::Lanes { bit: 1 }]);
        assert_eq!(steps(&layout, 0, false), [Step::Threads(vec![digit(4, 3, 1)])]);
    }

    #[test]
    fn sums_commute_and_choices_do_not() {
        let sum = ScalarExpr::arg(0) + ScalarExpr::arg(1);
        assert!(is_commutative(&[sum]));
        let difference = ScalarExpr::arg(0) - ScalarExpr::arg(1);
        assert!(!is_commutative(&[difference]));
        let mixed =
            [ScalarExpr::arg(0) + ScalarExpr::arg(2), ScalarExpr::arg(1) + ScalarExpr::arg(2)];
        assert!(!is_commutative(&mixed));
    }
}
