//! The expansion of a resize: along each axis a repetition, a sum of a few weighted gathers, or a
//! weighted gather of all elements that a position depends on, which a reduction sums up.

use std::collections::BTreeMap;

use fornax_bundle::{DType, Dim, Tensor};

use super::{AxisScale, Coordinates, Mode, Nearest, OpCtx, Resize};
use crate::op::Expansion;
use crate::interp::{Array, Value};
use crate::{Diagnostic, NodeId, attrs};

/// Up to how many gathers are added up one by one: as many as a cubic without antialiasing needs.
const MOST_GATHERS: usize = 4;

pub(super) fn expand(ctx: &OpCtx<'_>, to: &mut Expansion<'_>) -> Result<NodeId, Diagnostic> {
    let resize = Resize::of(ctx.attrs);
    let x_type = ctx.first();
    let mut x = to.operands[0];
    if resize.mode != Mode::Nearest {
        x = to.widened(x)?;
    }
    for axis in &resize.axes {
        let old = &x_type.shape[axis.axis];
        if let Some(count) = repeats(&resize, axis, old) {
            x = repeat(to, x, axis.axis, count)?;
            continue;
        }
        if *old == axis.size && axis.size.as_const().is_none() {
            continue;
        }
        let [old, new] = [old, &axis.size].map(|size| {
            size.as_const().expect("invariant: inference checked that the size is known")
        });
        let rows: Vec<Row> = (0..new).map(|y| row(&resize, axis, y, old, new)).collect();
        x = match resize.mode {
            Mode::Nearest => {
                let indices: Vec<i64> = rows.iter().map(|row| row.position()).collect();
                gather(to, x, axis.axis, &[indices.len()], &indices)?
            }
            _ => weighted_sum(to, x, axis.axis, &rows)?,
        };
    }
    let x = outside_replaced(ctx, to, &resize, x)?;
    to.cast(x, x_type.dtype)
}

/// How often each element along an axis is repeated, if a resize does just that for any size `old`.
pub(super) fn repeats(resize: &Resize, axis: &AxisScale, old: &Dim) -> Option<i64> {
    let count = axis.scale as i64;
    let periodic = matches!(
        resize.coordinates,
        Coordinates::HalfPixel
            | Coordinates::HalfPixelSymmetric
            | Coordinates::PytorchHalfPixel
            | Coordinates::Asymmetric
    );
    let whole = count as f64 == axis.scale && count >= 1 && axis.size == old * Dim::constant(count);
    if resize.mode != Mode::Nearest || !periodic || !whole || count > 1 << 16 {
        return None;
    }
    // Coordinates are periodic, and three elements have a first, an inner and a last one.
    let is_repeated = |y| row(resize, axis, y, 3, 3 * count).position() == y / count;
    (0..3 * count).all(is_repeated).then_some(count)
}

/// The weight of each element that one position of the result depends on.
struct Row(BTreeMap<i64, f64>);

impl Row {
    /// The only element.
    fn position(&self) -> i64 {
        self.0.keys().next().copied().unwrap_or(0)
    }

    /// The elements with their weights, filled up to a length by parts of the first one. (A weight of 0
    /// would make NaN of an infinity.)
    fn filled(&self, length: usize) -> Vec<(i64, f64)> {
        let mut taps: Vec<(i64, f64)> = self.0.iter().map(|(&i, &weight)| (i, weight)).collect();
        match taps.first_mut() {
            None => taps.resize(length, (0, 0.0)),
            Some(first) => {
                first.1 /= (length - self.0.len() + 1) as f64;
                let first = *first;
                taps.resize(length, first);
            }
        }
        taps
    }
}

/// The coordinate of position `y`: the product and sum with two numbers that the mode gives. Products
/// and quotients are taken in the order of the specification, since rounding decides ties.
fn coordinate(resize: &Resize, axis: &AxisScale, y: i64, old: i64, new: i64) -> f64 {
    let width = axis.scale * old as f64;
    let (y, span) = (y as f64, old as f64 - 1.0);
    let pixel = (y + 0.5) / axis.scale - 0.5;
    match resize.coordinates {
        Coordinates::HalfPixel => pixel,
        Coordinates::PytorchHalfPixel if width <= 1.0 => 0.0,
        Coordinates::PytorchHalfPixel => pixel,
        Coordinates::HalfPixelSymmetric => {
            (old as f64 / 2.0) * (1.0 - new as f64 / width) + (y + 0.5) / axis.scale - 0.5
        }
        Coordinates::Asymmetric => y / axis.scale,
        Coordinates::AlignCorners if width == 1.0 => 0.0,
        Coordinates::AlignCorners => y * span / (width - 1.0),
        Coordinates::CropAndResize if width == 1.0 => {
            (axis.roi.1 - axis.roi.0) * span / 2.0 + axis.roi.0 * span
        }
        Coordinates::CropAndResize => {
            y * (axis.roi.1 - axis.roi.0) * span / (width - 1.0) + axis.roi.0 * span
        }
    }
}

/// What position `y` depends on: every element whose distance is within the kernel's reach, those
/// outside counted for the border's.
fn row(resize: &Resize, axis: &AxisScale, y: i64, old: i64, new: i64) -> Row {
    let x = coordinate(resize, axis, y, old, new);
    let last = old - 1;
    if resize.mode == Mode::Nearest {
        let (floor, fraction) = (x.floor(), x - x.floor());
        let up = match resize.nearest {
            Nearest::RoundPreferFloor => fraction > 0.5,
            Nearest::RoundPreferCeil => fraction >= 0.5,
            Nearest::Floor => false,
            Nearest::Ceil => fraction > 0.0,
        };
        return Row(BTreeMap::from([((floor as i64 + i64::from(up)).clamp(0, last), 1.0)]));
    }
    let stretch = if resize.antialias { axis.scale.recip().max(1.0) } else { 1.0 };
    let reach = if resize.mode == Mode::Linear { stretch } else { 2.0 * stretch };
    let mut weights: BTreeMap<i64, f64> = BTreeMap::new();
    for index in (x - reach).floor() as i64..=(x + reach).ceil() as i64 {
        let weight = kernel(resize, (index as f64 - x) / stretch);
        let excluded = resize.exclude_outside && !(0..=last).contains(&index);
        if weight != 0.0 && !excluded {
            *weights.entry(index.clamp(0, last)).or_insert(0.0) += weight;
        }
    }
    let total: f64 = weights.values().sum();
    weights.values_mut().for_each(|weight| *weight /= total);
    Row(weights)
}

/// The weight at a distance: a triangle, or piecewise cubic in Horner form.
fn kernel(resize: &Resize, distance: f64) -> f64 {
    let (t, a) = (distance.abs(), resize.cubic_coeff_a);
    match resize.mode {
        Mode::Cubic if t <= 1.0 => ((a + 2.0) * t - (a + 3.0)) * t * t + 1.0,
        Mode::Cubic if t < 2.0 => a * (((t - 5.0) * t + 8.0) * t - 4.0),
        Mode::Linear if t < 1.0 => 1.0 - t,
        _ => 0.0,
    }
}

fn repeat(
    to: &mut Expansion<'_>,
    x: NodeId,
    axis: usize,
    count: i64,
) -> Result<NodeId, Diagnostic> {
    let shape = to.ty(x).shape.to_vec();
    if count == 1 {
        return Ok(x);
    }
    let mut split = shape.clone();
    split.insert(axis + 1, Dim::constant(1));
    let x = to.reshape(x, split.clone())?;
    split[axis + 1] = Dim::constant(count);
    let x = to.broadcast(x, &split.into())?;
    let mut joined = shape;
    joined[axis] = &joined[axis] * Dim::constant(count);
    to.reshape(x, joined)
}

fn gather(
    to: &mut Expansion<'_>,
    x: NodeId,
    axis: usize,
    shape: &[usize],
    indices: &[i64],
) -> Result<NodeId, Diagnostic> {
    let indices = to.graph.constant(Tensor::from_i64(shape, indices));
    to.add("gather", attrs! { axis: axis as i64 }, &[x, indices])
}

/// A constant of the element type of `x`.
fn weights(to: &mut Expansion<'_>, x: NodeId, shape: &[usize], values: &[f64]) -> NodeId {
    let rounded = Value::Float(Array::new(shape, values.to_vec())).to_tensor(to.ty(x).dtype);
    to.graph.constant(rounded)
}

fn weighted_sum(
    to: &mut Expansion<'_>,
    x: NodeId,
    axis: usize,
    rows: &[Row],
) -> Result<NodeId, Diagnostic> {
    let rank = to.ty(x).rank();
    let taps = rows.iter().map(|row| row.0.len()).max().unwrap_or(0);
    let rows: Vec<Vec<(i64, f64)>> = rows.iter().map(|row| row.filled(taps)).collect();
    if taps > MOST_GATHERS {
        let shape = [rows.len(), taps];
        let (indices, factors): (Vec<i64>, Vec<f64>) = rows.concat().into_iter().unzip();
        let elements = gather(to, x, axis, &shape, &indices)?;
        let factors = weights(to, x, &shape, &factors);
        let factors = to.along_axis(factors, axis, rank + 1)?;
        let products = to.binary("mul", elements, factors)?;
        let over_taps = attrs! { axes: vec![axis as i64 + 1], keepdims: false };
        return to.add("reduce_sum", over_taps, &[products]);
    }
    let mut sum: Option<NodeId> = None;
    for tap in 0..taps {
        let (indices, factors): (Vec<i64>, Vec<f64>) = rows.iter().map(|row| row[tap]).unzip();
        let elements = gather(to, x, axis, &[rows.len()], &indices)?;
        let factors = weights(to, x, &[rows.len()], &factors);
        let factors = to.along_axis(factors, axis, rank)?;
        let products = to.binary("mul", elements, factors)?;
        sum = Some(match sum {
            None => products,
            Some(sum) => to.binary("add", sum, products)?,
        });
    }
    Ok(sum.unwrap_or(x))
}

/// Puts the extrapolation value where a crop reaches beyond the operand.
fn outside_replaced(
    ctx: &OpCtx<'_>,
    to: &mut Expansion<'_>,
    resize: &Resize,
    mut x: NodeId,
) -> Result<NodeId, Diagnostic> {
    if resize.coordinates != Coordinates::CropAndResize {
        return Ok(x);
    }
    for axis in &resize.axes {
        let sizes = [&ctx.first().shape[axis.axis], &axis.size].map(Dim::as_const);
        let [Some(old), Some(new)] = sizes else { continue };
        let outside = |y: i64| {
            let x = coordinate(resize, axis, y, old, new);
            u8::from(x < 0.0 || x > old as f64 - 1.0)
        };
        let mask: Vec<u8> = (0..new).map(outside).collect();
        if !mask.contains(&1) {
            continue;
        }
        let mask = Tensor::new(DType::Bool, [mask.len()], mask);
        let mask = to.graph.constant(mask.expect("invariant: one bool per position"));
        let shape = to.ty(x).shape;
        let mask = to.along_axis(mask, axis.axis, shape.rank())?;
        let mask = to.broadcast(mask, &shape)?;
        let value = to.graph.scalar(to.ty(x).dtype, resize.extrapolation_value);
        x = to.select(mask, value, x)?;
    }
    Ok(x)
}
