//! Index expressions and movements.

use fornax_bundle::{Dim, Dims};

use super::{Element, Number, Typed, Value};
use crate::op::MovementForm;
use crate::{Guard, IndexExpr, Scalar, Type};

/// A result, or how class data contradicts itself.
pub(super) type Outcome<V> = Result<V, String>;

/// A tensor whose elements are asked for one at a time.
pub(super) trait Elements<T> {
    /// Its sizes.
    fn shape(&self) -> &[usize];

    /// The element at a row-major position.
    fn number(&self, position: usize) -> Number<T>;
}

impl<T: Copy> Elements<T> for Value<T> {
    fn shape(&self) -> &[usize] {
        Value::shape(self)
    }

    fn number(&self, position: usize) -> Number<T> {
        match self {
            Value::Float(array) => Number::Float(array.data[position]),
            Value::Int(array) => Number::Int(array.data[position]),
        }
    }
}

/// The operands and the result of an op under evaluation.
#[derive(Clone, Copy)]
pub(super) struct Space<'a, T> {
    /// The operands' types.
    pub types: &'a [Type],
    /// The operands.
    pub operands: &'a [&'a dyn Elements<T>],
    /// Values of symbols.
    pub dims: &'a Dims,
    /// The result's type.
    pub result: &'a Type,
    /// The result's sizes.
    pub shape: &'a [usize],
}

/// All positions of a shape in row-major order.
#[derive(Debug, Clone)]
pub(super) struct Positions {
    shape: Vec<usize>,
    next: Option<Vec<i64>>,
}

impl Positions {
    /// From the first position on.
    pub fn new(shape: &[usize]) -> Positions {
        let next = (!shape.contains(&0)).then(|| vec![0; shape.len()]);
        Positions { shape: shape.to_vec(), next }
    }
}

impl Iterator for Positions {
    type Item = Vec<i64>;

    fn next(&mut self) -> Option<Vec<i64>> {
        let current = self.next.take()?;
        let mut following = current.clone();
        for axis in (0..self.shape.len()).rev() {
            following[axis] += 1;
            if following[axis] < self.shape[axis] as i64 {
                self.next = Some(following);
                break;
            }
            following[axis] = 0;
        }
        Some(current)
    }
}

impl<T: Element> Space<'_, T> {
    /// The value of a size.
    pub fn size(&self, dim: &Dim) -> Outcome<i64> {
        dim.eval(self.dims).map_err(|error| error.to_string())
    }

    /// The values of sizes that are not negative.
    pub fn sizes<'d>(&self, dims: impl IntoIterator<Item = &'d Dim>) -> Outcome<Vec<usize>> {
        let size = |dim: &Dim| {
            let size = self.size(dim)?;
            usize::try_from(size).map_err(|_| format!("`{dim}` is {size}"))
        };
        dims.into_iter().map(size).collect()
    }

    /// The value of an index expression at a position of the iteration axes.
    pub fn index(&self, expr: &IndexExpr, at: &[i64]) -> Outcome<i64> {
        let positive = |dim: &Dim| match self.size(dim)? {
            value if value > 0 => Ok(value),
            value => Err(format!("the divisor `{dim}` is {value}")),
        };
        Ok(match expr {
            IndexExpr::Axis(axis) => {
                *at.get(*axis).ok_or_else(|| format!("there is no iteration axis {axis}"))?
            }
            IndexExpr::Size(dim) => self.size(dim)?,
            IndexExpr::Add(a, b) => self.index(a, at)? + self.index(b, at)?,
            IndexExpr::Mul(a, by) => self.index(a, at)? * self.size(by)?,
            IndexExpr::FloorDiv(a, by) => self.index(a, at)?.div_euclid(positive(by)?),
            IndexExpr::Mod(a, by) => self.index(a, at)?.rem_euclid(positive(by)?),
            IndexExpr::Min(a, b) => self.index(a, at)?.min(self.index(b, at)?),
            IndexExpr::Max(a, b) => self.index(a, at)?.max(self.index(b, at)?),
            IndexExpr::Element { operand, index } => {
                let position = self.position(*operand, index, at)?;
                match self.operands[*operand].number(position) {
                    Number::Int(index) => index,
                    Number::Float(_) => return Err(format!("operand {operand} holds no indices")),
                }
            }
        })
    }

    /// Whether all conditions hold.
    pub fn holds(&self, guards: &[Guard], at: &[i64]) -> Outcome<bool> {
        for guard in guards {
            let holds = match guard {
                Guard::Within { value, low, high } => {
                    (self.size(low)?..self.size(high)?).contains(&self.index(value, at)?)
                }
                Guard::Divisible { value, divisor } => {
                    self.index(value, at)?.rem_euclid(self.size(divisor)?) == 0
                }
            };
            if !holds {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// An index into an operand.
    pub fn operand_index(
        &self,
        operand: usize,
        index: &[IndexExpr],
        at: &[i64],
    ) -> Outcome<Vec<i64>> {
        let rank = self.types.get(operand).map(Type::rank);
        if rank != Some(index.len()) {
            return Err(format!("{} indices for operand {operand} of rank {rank:?}", index.len()));
        }
        index.iter().map(|expr| self.index(expr, at)).collect()
    }

    /// The row-major position that an index into an operand names.
    pub fn position(&self, operand: usize, index: &[IndexExpr], at: &[i64]) -> Outcome<usize> {
        let index = self.operand_index(operand, index, at)?;
        let shape = self.operands[operand].shape();
        flatten(&index, shape).ok_or_else(|| {
            format!("index {index:?} at {at:?} is outside operand {operand} of shape {shape:?}")
        })
    }
}

/// The row-major position of an index, when it lies inside.
pub(super) fn flatten(index: &[i64], shape: &[usize]) -> Option<usize> {
    let mut position = 0;
    for (&index, &size) in index.iter().zip(shape) {
        let index = usize::try_from(index).ok().filter(|&index| index < size)?;
        position = position * size + index;
    }
    Some(position)
}

/// The row-major index of a position.
pub(super) fn unflatten(mut position: usize, shape: &[usize]) -> Vec<i64> {
    let mut index = vec![0; shape.len()];
    for (index, &size) in index.iter_mut().zip(shape).rev() {
        *index = (position % size) as i64;
        position /= size;
    }
    index
}

/// An element of a movement's result.
pub(super) fn movement<T: Element>(
    space: &Space<'_, T>,
    form: &MovementForm,
    at: &[i64],
) -> Outcome<Typed<T>> {
    for case in &form.cases {
        if space.holds(&case.guards, at)? {
            let position = space.position(case.operand, &case.index, at)?;
            return Ok(space.element(case.operand, position));
        }
    }
    let fill: Scalar = form.fill.ok_or("no case holds, and there is no fill")?;
    Ok(Typed::from(fill))
}

/// Whether every position gets an element.
pub(super) fn check_movement(form: &MovementForm) -> Outcome<()> {
    let total = form.cases.last().is_some_and(|case| case.guards.is_empty());
    if form.fill.is_some() || total {
        return Ok(());
    }
    Err("no element for some positions".to_owned())
}
