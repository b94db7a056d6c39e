//! Reductions, scans, windows and contractions.

use super::affine::AffineProduct;
use super::index::{Outcome, Positions, Space, flatten};
use super::{Element, Number, Typed, Value, scalar};
use crate::op::{
    AxisRole, ContractionForm, OperandMap, ReduceForm, Reducer, ScanForm, WindowCount, WindowForm,
};
use crate::{BinaryFn, DType, Scalar, ScalarExpr};

/// A reduction is split into this many interleaved folds, as threads would, before they are combined.
const LANES: usize = 3;

/// The accumulators of a fold.
type Accumulators<T> = Vec<Typed<T>>;

fn initial<T: Element>(reducer: &Reducer) -> Accumulators<T> {
    reducer.init.iter().map(|&init| Typed::from(init)).collect()
}

fn combine<T: Element>(
    reducer: &Reducer,
    first: &Accumulators<T>,
    second: &Accumulators<T>,
) -> Outcome<Accumulators<T>> {
    let args = [first.as_slice(), second.as_slice()].concat();
    let combined: Accumulators<T> =
        reducer.combine.iter().map(|expr| scalar(expr, &args)).collect::<Outcome<_>>()?;
    let types = |accumulators: &Accumulators<T>| -> Vec<DType> {
        accumulators.iter().map(|accumulator| accumulator.dtype).collect()
    };
    if types(&combined) != types(first) || types(first) != types(second) {
        return Err(format!("{first:?} and {second:?} combine to {combined:?}"));
    }
    Ok(combined)
}

fn lift<T: Element>(reducer: &Reducer, x: Typed<T>, position: i64) -> Outcome<Accumulators<T>> {
    let args = [x, index_number(position)];
    reducer.lift.iter().map(|expr| scalar(expr, &args)).collect()
}

fn finish<T: Element>(
    reducer: &Reducer,
    accumulators: &Accumulators<T>,
    count: usize,
) -> Outcome<Typed<T>> {
    let mut args = accumulators.clone();
    args.push(index_number(count as i64));
    scalar(&reducer.finish, &args)
}

fn index_number<T: Element>(value: i64) -> Typed<T> {
    Typed { dtype: DType::I64, number: Number::Int(value) }
}

/// An element of a reduction's result.
pub(super) fn reduce<T: Element>(
    space: &Space<'_, T>,
    form: &ReduceForm,
    at: &[i64],
) -> Outcome<Typed<T>> {
    let shape = space.operands[0].shape();
    let folded: Vec<usize> = form.axes.iter().map(|&axis| shape[axis]).collect();
    let mut lanes = vec![initial(&form.reducer); LANES];
    for (number, inner) in Positions::new(&folded).enumerate() {
        let index = operand_position(form, shape.len(), at, &inner);
        let position = flatten(&index, shape).ok_or("the operand's axes are not the result's")?;
        // The position is defined for a single axis.
        let along = if inner.len() == 1 { inner[0] } else { i64::MIN };
        let lifted = lift(&form.reducer, space.element(0, position), along)?;
        let lane = &mut lanes[number % LANES];
        *lane = combine(&form.reducer, lane, &lifted)?;
    }
    let mut total = initial(&form.reducer);
    for lane in lanes {
        total = combine(&form.reducer, &total, &lane)?;
    }
    finish(&form.reducer, &total, folded.iter().product())
}

/// The operand's index from the result's and the position along the folded axes.
fn operand_position(form: &ReduceForm, rank: usize, at: &[i64], inner: &[i64]) -> Vec<i64> {
    let (mut kept, mut folded) = (at.iter(), inner.iter());
    let mut next = |is_folded: bool| {
        if !is_folded {
            return kept.next().copied();
        }
        if form.keepdims {
            kept.next();
        }
        folded.next().copied()
    };
    (0..rank).map(|axis| next(form.axes.contains(&axis)).unwrap_or(-1)).collect()
}

/// An element of a scan's result.
pub(super) fn scan<T: Element>(
    space: &Space<'_, T>,
    form: &ScanForm,
    at: &[i64],
) -> Outcome<Typed<T>> {
    let shape = space.operands[0].shape();
    let length = shape[form.axis] as i64;
    let mut at = at.to_vec();
    let end = at[form.axis];
    let mut before: Vec<i64> =
        if form.reverse { (end..length).rev().collect() } else { (0..=end).collect() };
    if form.exclusive {
        before.pop();
    }
    let mut total = initial(&form.reducer);
    for &along in &before {
        at[form.axis] = along;
        let position = flatten(&at, shape).ok_or("the operand's shape is not the result's")?;
        let lifted = lift(&form.reducer, space.element(0, position), along)?;
        total = combine(&form.reducer, &total, &lifted)?;
    }
    finish(&form.reducer, &total, before.len())
}

/// An element of a fold over windows.
pub(super) fn window<T: Element>(
    space: &Space<'_, T>,
    form: &WindowForm,
    at: &[i64],
) -> Outcome<Typed<T>> {
    let shape = space.operands[0].shape();
    let sizes = space.sizes(&form.window)?;
    let mut total = initial(&form.reducer);
    let mut count = 0;
    for inner in Positions::new(&sizes) {
        let at = [at, &inner].concat();
        let index = space.operand_index(0, &form.index, &at)?;
        let inside = flatten(&index, shape);
        count += usize::from(counts(space, &form.count, &index, inside.is_some())?);
        if let Some(position) = inside {
            let along = space.index(&form.position, &at)?;
            let lifted = lift(&form.reducer, space.element(0, position), along)?;
            total = combine(&form.reducer, &total, &lifted)?;
        }
    }
    finish(&form.reducer, &total, count)
}

fn counts<T: Element>(
    space: &Space<'_, T>,
    count: &WindowCount,
    index: &[i64],
    inside: bool,
) -> Outcome<bool> {
    let WindowCount::Within(bounds) = count else { return Ok(inside) };
    for ((low, high), index) in bounds.iter().zip(index) {
        if !(space.size(low)?..space.size(high)?).contains(index) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A contraction whose sizes are known.
#[derive(Debug)]
pub(super) struct Product<'f> {
    form: &'f ContractionForm,
    outer: Vec<usize>,
    inner: Vec<usize>,
    affine: Option<AffineProduct>,
}

impl<'f> Product<'f> {
    /// A contraction's sizes.
    pub fn new<T: Element>(space: &Space<'_, T>, form: &'f ContractionForm) -> Outcome<Self> {
        let is_inner = |role: AxisRole| role == AxisRole::Inner;
        let outer_count = form.axes.iter().take_while(|(_, role)| !is_inner(*role)).count();
        if form.axes[outer_count..].iter().any(|(_, role)| !is_inner(*role)) {
            return Err("an inner axis is not among the last".to_owned());
        }
        let mut outer = space.sizes(form.axes.iter().map(|(size, _)| size))?;
        let inner = outer.split_off(outer_count);
        let affine = AffineProduct::new(space, form);
        Ok(Product { form, outer, inner, affine })
    }

    /// The whole result, after a check that every element is given once.
    pub fn whole<T: Element>(&self, space: &Space<'_, T>) -> Outcome<Value<T>> {
        let mut elements: Vec<Option<Typed<T>>> = vec![None; space.shape.iter().product()];
        for outer in Positions::new(&self.outer) {
            let index = self.target(space, &outer)?;
            let Some(target) = flatten(&index, space.shape) else { continue };
            let sum = self.sum(space, &outer)?;
            if elements[target].replace(cast(space.result.dtype, sum)?).is_some() {
                return Err(format!("the result's element {index:?} is given twice"));
            }
        }
        let given =
            |element: Option<Typed<T>>| element.ok_or_else(|| "an element is not given".to_owned());
        space.collect(elements.into_iter().map(given))
    }

    /// One element of the result.
    pub fn element<T: Element>(&self, space: &Space<'_, T>, at: &[i64]) -> Outcome<Typed<T>> {
        let outer = self.outer_position(space, at)?;
        let sum = match &self.affine {
            Some(affine) => affine.sum(space, &outer, &self.inner),
            None => self.sum(space, &outer)?,
        };
        cast(space.result.dtype, sum)
    }

    fn sum<T: Element>(&self, space: &Space<'_, T>, outer: &[i64]) -> Outcome<Typed<T>> {
        let form = self.form;
        let mut sum: Typed<T> = Typed::from(Scalar::new(form.accumulator, 0.0));
        for along in Positions::new(&self.inner) {
            let at = [outer, &along].concat();
            if !space.holds(&form.lhs.guards, &at)? || !space.holds(&form.rhs.guards, &at)? {
                continue;
            }
            let product = multiply(
                operand(space, form, 0, &form.lhs, &at)?,
                operand(space, form, 1, &form.rhs, &at)?,
            )?;
            sum = scalar(&(ScalarExpr::arg(0) + ScalarExpr::arg(1)), &[sum, product])?;
        }
        Ok(sum)
    }

    /// The index of the result that a position of the outer axes gives.
    fn target<T: Element>(&self, space: &Space<'_, T>, outer: &[i64]) -> Outcome<Vec<i64>> {
        self.form.out.iter().map(|expr| space.index(expr, outer)).collect()
    }

    /// The position of the outer axes that gives an element of the result. `out` is linear and reaches
    /// each element once, so along each axis of the result the iteration axes are the digits of a number,
    /// the one with the largest step first.
    fn outer_position<T: Element>(&self, space: &Space<'_, T>, at: &[i64]) -> Outcome<Vec<i64>> {
        let mut outer = vec![0; self.outer.len()];
        let origin = self.target(space, &outer)?;
        let mut steps: Vec<(i64, usize, usize)> = Vec::new();
        for axis in (0..outer.len()).filter(|&axis| self.outer[axis] > 1) {
            outer[axis] = 1;
            let moved = self.target(space, &outer)?;
            outer[axis] = 0;
            let along = (0..origin.len()).find(|&dim| moved[dim] != origin[dim]);
            let along = along.ok_or_else(|| format!("`out` does not depend on axis {axis}"))?;
            steps.push((moved[along] - origin[along], along, axis));
        }
        steps.sort_unstable_by(|a, b| b.cmp(a));
        let mut left: Vec<i64> = at.iter().zip(&origin).map(|(at, origin)| at - origin).collect();
        for (step, along, axis) in steps {
            outer[axis] = left[along].div_euclid(step);
            left[along] = left[along].rem_euclid(step);
        }
        match self.target(space, &outer)? {
            found if found == at => Ok(outer),
            _ => Err(format!("the result's element {at:?} is not given")),
        }
    }
}

/// An operand's element in the accumulator's type.
fn operand<T: Element>(
    space: &Space<'_, T>,
    form: &ContractionForm,
    operand: usize,
    map: &OperandMap,
    at: &[i64],
) -> Outcome<Typed<T>> {
    let position = space.position(operand, &map.index, at)?;
    cast(form.accumulator, space.element(operand, position))
}

fn cast<T: Element>(to: DType, x: Typed<T>) -> Outcome<Typed<T>> {
    if x.dtype == to { Ok(x) } else { scalar(&ScalarExpr::arg(0).cast(to), &[x]) }
}

fn multiply<T: Element>(x: Typed<T>, y: Typed<T>) -> Outcome<Typed<T>> {
    scalar(&ScalarExpr::arg(0).binary(BinaryFn::Mul, ScalarExpr::arg(1)), &[x, y])
}
