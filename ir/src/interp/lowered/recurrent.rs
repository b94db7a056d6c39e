//! Recurrences.

use super::index::{Outcome, Space};
use super::{Element, Number, Typed, scalar};
use crate::interp::Array;
use crate::op::RecurrentForm;

/// The numbers of a recurrence.
struct Recurrence<'s, T> {
    form: &'s RecurrentForm,
    operands: Vec<Vec<T>>,
    dtype: crate::DType,
    steps: usize,
    batch: usize,
    hidden: usize,
}

/// All elements of a recurrence's result.
pub(super) fn whole<T: Element>(space: &Space<'_, T>, form: &RecurrentForm) -> Outcome<Array<T>> {
    let sizes = space.sizes([&form.steps, &form.batch, &form.hidden])?;
    let operands = (0..space.operands.len()).map(|operand| numbers(space, operand));
    let recurrence = Recurrence {
        form,
        operands: operands.collect::<Outcome<_>>()?,
        dtype: space.result.dtype,
        steps: sizes[0],
        batch: sizes[1],
        hidden: sizes[2],
    };
    let mut result = Array::new(space.shape, vec![T::zero(); space.shape.iter().product()]);
    for direction in 0..form.reverse.len() {
        for row in 0..recurrence.batch {
            recurrence.sequence(direction, row, &mut result.data)?;
        }
    }
    Ok(result)
}

fn numbers<T: Element>(space: &Space<'_, T>, operand: usize) -> Outcome<Vec<T>> {
    let count = space.operands[operand].shape().iter().product();
    let number = |position| match space.element(operand, position).number {
        Number::Float(number) => Ok(number),
        Number::Int(_) => Err("an operand of a recurrence is no float".to_owned()),
    };
    (0..count).map(number).collect()
}

impl<T: Element> Recurrence<'_, T> {
    /// All steps of one sequence in one direction.
    fn sequence(&self, direction: usize, row: usize, result: &mut [T]) -> Outcome<()> {
        let (hidden, directions) = (self.hidden, self.form.reverse.len());
        let place = (direction * self.batch + row) * hidden;
        let mut states: Vec<Vec<T>> = (0..self.form.states)
            .map(|state| self.operands[2 + state][place..][..hidden].to_vec())
            .collect();
        let mut write = |step: usize, state: &[T]| {
            let start = ((step * self.batch + row) * directions + direction) * hidden;
            result[start..][..hidden].copy_from_slice(state);
        };
        for number in 0..self.steps {
            let reverse = self.form.reverse[direction];
            let step = if reverse { self.steps - 1 - number } else { number };
            states = self.step((direction, row, step), states)?;
            write(step, &states[0]);
        }
        if let Some(last) = self.form.last {
            write(self.steps, &states[last]);
        }
        Ok(())
    }

    /// The states after a step.
    fn step(
        &self,
        (direction, row, step): (usize, usize, usize),
        states: Vec<Vec<T>>,
    ) -> Outcome<Vec<Vec<T>>> {
        let (hidden, gates) = (self.hidden, self.form.gates);
        let mut sums = vec![T::zero(); gates * hidden];
        let mut published = states[0].clone();
        for phase in &self.form.phases {
            let of_phase = phase.gates.start * hidden..phase.gates.end * hidden;
            for (at, total) in of_phase.clone().zip(&mut sums[of_phase]) {
                let weights = &self.operands[1][(direction * gates * hidden + at) * hidden..];
                let products = weights.iter().zip(&published);
                *total = products.fold(T::zero(), |sum, (&weight, &x)| sum + weight * x);
            }
            let mut results = vec![Vec::with_capacity(hidden); phase.results.len()];
            for unit in 0..hidden {
                let args = self.args((direction, row, step), unit, &sums, &states);
                for (values, expr) in results.iter_mut().zip(&phase.results) {
                    match scalar(expr, &args)?.number {
                        Number::Float(number) => values.push(number),
                        Number::Int(_) => return Err("a state is no float".to_owned()),
                    }
                }
            }
            if phase == &self.form.phases[self.form.phases.len() - 1] {
                return Ok(results);
            }
            published = results.swap_remove(0);
        }
        Err("a step has no phase".to_owned())
    }

    /// The arguments of a phase's expressions for a hidden unit.
    fn args(
        &self,
        (direction, row, step): (usize, usize, usize),
        unit: usize,
        sums: &[T],
        states: &[Vec<T>],
    ) -> Vec<Typed<T>> {
        let (hidden, gates) = (self.hidden, self.form.gates);
        let inputs = ((step * self.batch + row) * self.form.reverse.len() + direction) * gates;
        let parameters = direction * self.form.parameters;
        let numbers = (0..gates)
            .map(|gate| self.operands[0][(inputs + gate) * hidden + unit])
            .chain((0..gates).map(|gate| sums[gate * hidden + unit]))
            .chain(states.iter().map(|state| state[unit]))
            .chain((0..self.form.parameters).map(|parameter| {
                self.operands[2 + self.form.states][(parameters + parameter) * hidden + unit]
            }));
        numbers.map(|number| Typed { dtype: self.dtype, number: Number::Float(number) }).collect()
    }
}
