//! Contractions whose operands are read at positions linear in the iteration axes: the sums of an
//! element are walked with additions alone, which sampled validation of large models needs.

use fornax_bundle::DType;

use super::index::{Elements, Outcome, Space};
use super::{Element, Number, Typed};
use crate::op::{ContractionForm, OperandMap};
use crate::{Guard, IndexExpr, Scalar};

/// A linear function of the iteration axes.
#[derive(Debug, Clone, PartialEq)]
struct Linear {
    constant: i64,
    /// One factor per iteration axis.
    factors: Vec<i64>,
}

/// `low <= value < high`
#[derive(Debug)]
struct Bounds {
    value: Linear,
    low: i64,
    high: i64,
}

/// The linear form of a contraction.
#[derive(Debug)]
pub(super) struct AffineProduct {
    /// The row-major positions in both operands.
    positions: [Linear; 2],
    /// Where the product counts.
    bounds: Vec<Bounds>,
    zero: Scalar,
}

impl AffineProduct {
    /// The linear form, where there is one and the sums are of one float type.
    pub fn new<T: Element>(space: &Space<'_, T>, form: &ContractionForm) -> Option<AffineProduct> {
        let exact = |dtype: DType| dtype.is_float() && dtype.size() <= form.accumulator.size();
        let float =
            form.accumulator.is_float() && space.types.iter().take(2).all(|ty| exact(ty.dtype));
        if !float || form.axes.is_empty() {
            return None;
        }
        let axes = form.axes.len();
        let sides = [&form.lhs, &form.rhs];
        let mut bounds = Vec::new();
        for guard in sides.iter().flat_map(|side| &side.guards) {
            let Guard::Within { value, low, high } = guard else { return None };
            let value = linear(space, value, axes)?;
            bounds.push(Bounds { value, low: space.size(low).ok()?, high: space.size(high).ok()? });
        }
        let position = |operand: usize, side: &OperandMap| {
            let shape = space.operands[operand].shape();
            let mut position = Linear { constant: 0, factors: vec![0; axes] };
            for (index, &size) in side.index.iter().zip(shape) {
                position = position.scaled(size as i64).plus(&linear(space, index, axes)?);
            }
            Some(position)
        };
        let positions = [position(0, sides[0])?, position(1, sides[1])?];
        Some(AffineProduct { positions, bounds, zero: Scalar::new(form.accumulator, 0.0) })
    }

    /// The sum over the inner axes, of sizes `inner`, at a position of the outer ones.
    pub fn sum<T: Element>(
        &self,
        space: &Space<'_, T>,
        outer: &[i64],
        inner: &[usize],
    ) -> Typed<T> {
        let mut total = T::zero();
        let mut at = [outer, &vec![0; inner.len()]].concat();
        if !inner.contains(&0) {
            let axis = at.len() - 1;
            let length = inner.last().map_or(1, |&length| length as i64);
            loop {
                self.row(space, &mut total, &at, axis, length);
                if !advance(&mut at, outer.len(), inner) {
                    break;
                }
            }
        }
        let dtype = self.zero.dtype();
        Typed { dtype, number: Number::Float(total) }
    }

    /// Adds the products along one axis from `at` on.
    fn row<T: Element>(
        &self,
        space: &Space<'_, T>,
        total: &mut T,
        at: &[i64],
        axis: usize,
        length: i64,
    ) {
        let (mut from, mut to) = (0, length);
        for bounds in &self.bounds {
            let (start, step) = (bounds.value.at(at), bounds.value.factors[axis]);
            // The steps for which low <= start + step * i < high.
            let (low, high) = (bounds.low - start, bounds.high - start);
            match step {
                0 if low <= 0 && 0 < high => {}
                0 => return,
                step if step > 0 => {
                    from = from.max(ceil_div(low, step));
                    to = to.min(ceil_div(high, step));
                }
                step => {
                    from = from.max((-high).div_euclid(-step) + 1);
                    to = to.min((-low).div_euclid(-step) + 1);
                }
            }
        }
        let operands: [&dyn Elements<T>; 2] = [space.operands[0], space.operands[1]];
        let starts = self.positions.each_ref().map(|position| position.at(at));
        let steps = self.positions.each_ref().map(|position| position.factors[axis]);
        for i in from..to {
            let position = |side: usize| (starts[side] + steps[side] * i) as usize;
            let pair = (operands[0].number(position(0)), operands[1].number(position(1)));
            if let (Number::Float(a), Number::Float(b)) = pair {
                *total = *total + a * b;
            }
        }
    }
}

impl Linear {
    fn at(&self, at: &[i64]) -> i64 {
        self.constant + self.factors.iter().zip(at).map(|(factor, at)| factor * at).sum::<i64>()
    }

    fn scaled(mut self, by: i64) -> Linear {
        self.constant *= by;
        self.factors.iter_mut().for_each(|factor| *factor *= by);
        self
    }

    fn plus(mut self, other: &Linear) -> Linear {
        self.constant += other.constant;
        self.factors.iter_mut().zip(&other.factors).for_each(|(factor, other)| *factor += other);
        self
    }
}

/// The linear form of an index expression; none when it has none.
fn linear<T: Element>(space: &Space<'_, T>, expr: &IndexExpr, axes: usize) -> Option<Linear> {
    let constant = |constant: i64| Linear { constant, factors: vec![0; axes] };
    let size = |size| -> Outcome<i64> { space.size(size) };
    Some(match expr {
        IndexExpr::Axis(axis) => {
            let mut linear = constant(0);
            *linear.factors.get_mut(*axis)? = 1;
            linear
        }
        IndexExpr::Size(dim) => constant(size(dim).ok()?),
        IndexExpr::Add(a, b) => linear(space, a, axes)?.plus(&linear(space, b, axes)?),
        IndexExpr::Mul(a, by) => linear(space, a, axes)?.scaled(size(by).ok()?),
        _ => return None,
    })
}

/// The next position of all inner axes but the last; false after the last one.
fn advance(at: &mut [i64], outer: usize, inner: &[usize]) -> bool {
    for axis in (0..inner.len().saturating_sub(1)).rev() {
        at[outer + axis] += 1;
        if at[outer + axis] < inner[axis] as i64 {
            return true;
        }
        at[outer + axis] = 0;
    }
    false
}

fn ceil_div(a: i64, b: i64) -> i64 {
    -(-a).div_euclid(b)
}
