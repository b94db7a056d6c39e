//! Which elements of its left operand a convolution's taps read.

use super::index::{Index, IndexSpace};
use crate::op::{AxisRole, ContractionForm};

/// The largest step between positions, and the largest one between taps.
const MOST_STEP: i64 = 8;
const MOST_TAP_STEP: i64 = 64;

/// The most taps along an axis.
const MOST_TAPS: i64 = 64;

/// An axis of the left operand along which windows lie: a tap of a position reads element
/// `step * position + tap_step * tap + start`. One of the two steps is 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowAxis {
    /// The contraction's axis of positions.
    pub position: usize,
    /// Its axis of taps.
    pub tap: usize,
    /// Number of taps.
    pub taps: u32,
    /// From one position to the next.
    pub step: u32,
    /// From one tap to the next.
    pub tap_step: i32,
    /// Where the first one is; nothing where other axes decide about it, too.
    pub start: Option<i64>,
}

/// A convolution: products of windows of the left operand, added up over taps and channels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Windows {
    /// Where windows lie, in the order of the left operand's axes.
    pub axes: Vec<WindowAxis>,
    /// The contraction's axis of channels.
    pub channel: usize,
}

impl WindowAxis {
    /// What the tap that reads the lowest elements adds.
    pub fn lowest(&self) -> i32 {
        (self.taps as i32 - 1) * self.tap_step.min(0)
    }

    /// Elements that `tile` adjacent positions read.
    pub fn extent(&self, tile: u32) -> u32 {
        (tile - 1) * self.step + (self.taps - 1) * self.tap_step.unsigned_abs() + 1
    }
}

impl Windows {
    /// The windows of a contraction whose left operand's index is linear, with small constant steps; none
    /// where it is of another kind.
    pub fn of(form: &ContractionForm, space: &mut IndexSpace<'_>) -> Option<Windows> {
        let vars: Vec<_> = form.axes.iter().map(|(size, _)| space.add_var(size)).collect();
        let all: Vec<Index> = vars.iter().map(|&var| Index::var(var)).collect();
        let (mut axes, mut channel) = (Vec::new(), None);
        for expr in &form.lhs.index {
            if expr.has_elements() {
                return None;
            }
            let used = expr.axes();
            let of = |wanted: AxisRole| -> Vec<usize> {
                used.iter().copied().filter(|&axis| form.axes[axis].1 == wanted).collect()
            };
            match (of(AxisRole::Rows).as_slice(), of(AxisRole::Inner).as_slice()) {
                (&[position], &[tap]) => {
                    let index = space.compose(expr, &all, &[]);
                    let step = index.step(vars[position])?.as_const()?;
                    let tap_step = index.step(vars[tap])?.as_const()?;
                    let taps = form.axes[tap].0.as_const()?;
                    let small = (1..=MOST_STEP).contains(&step)
                        && tap_step.abs() <= MOST_TAP_STEP
                        && (1..=MOST_TAPS).contains(&taps);
                    if !small || (step != 1 && tap_step != 1) {
                        return None;
                    }
                    axes.push(WindowAxis {
                        position,
                        tap,
                        taps: taps as u32,
                        step: step as u32,
                        tap_step: tap_step as i32,
                        start: index.constant().as_const().filter(|_| used.len() == 2),
                    });
                }
                (_, []) => {}
                (&[], &[axis]) if channel.is_none() => channel = Some(axis),
                _ => return None,
            }
        }
        let channel = channel?;
        let is_known = |axis: usize| axis == channel || axes.iter().any(|of| of.tap == axis);
        let mut inner = (0..form.axes.len()).filter(|&axis| form.axes[axis].1 == AxisRole::Inner);
        let complete = inner.all(|axis| is_known(axis) || form.axes[axis].0.is(1));
        (complete && !axes.is_empty()).then_some(Windows { axes, channel })
    }

    /// Taps of a position along all axes.
    pub fn taps(&self) -> u32 {
        self.axes.iter().map(|axis| axis.taps).product()
    }
}
