//! What the oracles of normalisations share: walking along axes.

use crate::interp::{Array, Offsets, Real, strides};

/// Replaces each lane along an axis by what `function` makes of it.
pub(super) fn map_lanes<T: Copy>(
    x: &Array<T>,
    axis: usize,
    mut function: impl FnMut(&mut [T]),
) -> Array<T> {
    let (size, inner) = (x.shape[axis], x.shape[axis + 1..].iter().product::<usize>());
    let mut result = x.clone();
    if result.data.is_empty() {
        return result;
    }
    let mut lane = Vec::with_capacity(size);
    for block in result.data.chunks_exact_mut(size * inner) {
        for first in 0..inner {
            lane.clear();
            lane.extend(block[first..].iter().step_by(inner));
            function(&mut lane);
            for (element, &value) in block[first..].iter_mut().step_by(inner).zip(&lane) {
                *element = value;
            }
        }
    }
    result
}

/// The elements of an array broadcast to a shape, axes aligned at the back.
pub(super) fn broadcast<'a, T: Copy>(
    x: &'a Array<T>,
    shape: &[usize],
) -> impl Iterator<Item = T> + use<'a, T> {
    let mut own = vec![0; shape.len() - x.shape.len()];
    own.extend(strides(&x.shape));
    for (stride, &size) in own.iter_mut().rev().zip(x.shape.iter().rev()) {
        if size == 1 {
            *stride = 0;
        }
    }
    Offsets::new(shape, &own, 0).map(|offset| x.data[offset])
}

/// The sum of some numbers.
pub(super) fn sum<T: Real>(values: impl Iterator<Item = T>) -> T {
    values.fold(T::zero(), |sum, value| sum + value)
}

/// The mean of some numbers, NaN of none.
pub(super) fn mean<T: Real>(values: impl ExactSizeIterator<Item = T>) -> T {
    let count = values.len() as f64;
    sum(values).map(|sum| sum / count)
}

/// Subtracts the mean and divides by `sqrt(variance + epsilon)`.
pub(super) fn standardize<T: Real>(lane: &mut [T], epsilon: f64) {
    let center = mean(lane.iter().copied());
    lane.iter_mut().for_each(|x| *x = *x - center);
    let variance = mean(lane.iter().map(|&x| x * x));
    let deviation = variance.map(|variance| (variance + epsilon).sqrt()).to_f64();
    lane.iter_mut().for_each(|x| *x = x.map(|x| x / deviation));
}
