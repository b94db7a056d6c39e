//! Normalisations with learned scale and bias.

use fornax_bundle::Dim;

use super::domain::Domain;
use super::lanes::{broadcast, map_lanes, mean, standardize};
use super::{Arity, Expansion, OpClass, OpCtx, OpDef, Violation, require};
use crate::interp::{Array, EvalCtx, Real, Value};
use crate::{AttrKind, Diagnostic, NodeId, Type, eval_real, size_from_back};

pub(super) const DEFS: &[OpDef] = &[
    OpDef {
        name: "layer_norm",
        arity: Arity::AtLeast(1),
        attrs: &[("axis", AttrKind::Int), ("epsilon", AttrKind::Float)],
        infer: |ctx| infer_trailing(ctx, 3),
        eval: eval_real!(eval_layer_norm),
        class: OpClass::Composite(expand_layer_norm),
        doc: "`(x - mean) / sqrt(variance + epsilon) * scale + bias` with mean and variance over \
              the axes from `axis` on; operands `x`, and optionally `scale` and `bias`. Statistics \
              of floats narrower than 32 bits are computed in `f32`, and rounding is left to the \
              end. (C1) One to three operands. (C2) All are of one float type. (C3) `axis` is an \
              axis of `x`. (C4) `scale` and `bias` broadcast to `x`. Source: ONNX \
              LayerNormalization, opset 17.",
    },
    OpDef {
        name: "rms_norm",
        arity: Arity::AtLeast(1),
        attrs: &[("axis", AttrKind::Int), ("epsilon", AttrKind::Float)],
        infer: |ctx| infer_trailing(ctx, 2),
        eval: eval_real!(eval_rms_norm),
        class: OpClass::Composite(expand_rms_norm),
        doc: "`x / sqrt(mean(x^2) + epsilon) * scale` with the mean over the axes from `axis` on; \
              operands `x`, and optionally `scale`. Precision as `layer_norm`. (C1) One or two \
              operands. (C2) to (C4) as `layer_norm`. Source: ONNX RMSNormalization, opset 23.",
    },
    OpDef {
        name: "batch_norm",
        arity: Arity::Exactly(5),
        attrs: &[("epsilon", AttrKind::Float)],
        infer: infer_per_channel,
        eval: eval_real!(eval_batch_norm),
        class: OpClass::Composite(expand_batch_norm),
        doc: "`(x - mean) / sqrt(variance + epsilon) * scale + bias`, all per channel (axis 1); \
              operands `x`, `scale`, `bias`, `mean`, `variance`. (C1) All are of one float type. \
              (C2) `x` has rank 2 or more. (C3) The others have one axis of the channels' size. \
              Source: ONNX BatchNormalization, opset 15, without training.",
    },
    OpDef {
        name: "instance_norm",
        arity: Arity::Exactly(3),
        attrs: &[("epsilon", AttrKind::Float)],
        infer: infer_per_channel,
        eval: eval_real!(eval_instance_norm),
        class: OpClass::Composite(expand_instance_norm),
        doc: "`(x - mean) / sqrt(variance + epsilon) * scale + bias` with mean and variance over \
              the axes from 2 on, and scale and bias per channel (axis 1); operands `x`, `scale`, \
              `bias`. (C1) to (C3) as `batch_norm`. Source: ONNX InstanceNormalization, opset 22.",
    },
    OpDef {
        name: "group_norm",
        arity: Arity::Exactly(3),
        attrs: &[("groups", AttrKind::Int), ("epsilon", AttrKind::Float)],
        infer: infer_group_norm,
        eval: eval_real!(eval_group_norm),
        class: OpClass::Composite(expand_group_norm),
        doc: "`(x - mean) / sqrt(variance + epsilon) * scale + bias` with mean and variance over \
              the channels of a group and the axes from 2 on, and scale and bias per channel (axis \
              1); operands `x`, `scale`, `bias`. (C1) to (C3) as `batch_norm`. (C4) `groups` is \
              positive and divides the number of channels. Source: ONNX GroupNormalization, opset \
              21.",
    },
];

fn require_one_float_type(ctx: &OpCtx<'_>, constraint: &'static str) -> Result<(), Violation> {
    let dtype = ctx.first().dtype;
    Domain::Float.require(dtype, constraint)?;
    for other in ctx.operands {
        require(other.dtype == dtype, constraint, || {
            format!("element types {dtype} and {} differ", other.dtype)
        })?;
    }
    Ok(())
}

fn infer_trailing(ctx: &OpCtx<'_>, most: usize) -> Result<Type, Violation> {
    let (x, axis) = (ctx.first(), ctx.attrs.int("axis"));
    require(ctx.operands.len() <= most, "C1", || {
        format!("{} operands are more than {most}", ctx.operands.len())
    })?;
    require_one_float_type(ctx, "C2")?;
    require((0..x.rank() as i64).contains(&axis), "C3", || {
        format!("axis {axis} is not an axis of {x}")
    })?;
    for factor in &ctx.operands[1..] {
        let fits = (0..factor.rank()).all(|from_back| {
            let size = size_from_back(&factor.shape, from_back);
            size.is(1) || size == size_from_back(&x.shape, from_back)
        });
        require(factor.rank() <= x.rank() && fits, "C4", || {
            format!("{factor} does not broadcast to {x}")
        })?;
    }
    Ok(x.clone())
}

fn infer_per_channel(ctx: &OpCtx<'_>) -> Result<Type, Violation> {
    let x = ctx.first();
    require_one_float_type(ctx, "C1")?;
    require(x.rank() >= 2, "C2", || format!("{x} has no channel axis"))?;
    for other in &ctx.operands[1..] {
        require(other.rank() == 1 && other.shape[0] == x.shape[1], "C3", || {
            format!("{other} is not one value for each of {} channels", x.shape[1])
        })?;
    }
    Ok(x.clone())
}

fn infer_group_norm(ctx: &OpCtx<'_>) -> Result<Type, Violation> {
    let ty = infer_per_channel(ctx)?;
    let groups = ctx.attrs.int("groups");
    let divides = groups > 0 && ty.shape[1].divided_exactly(&Dim::constant(groups)).is_some();
    require(divides, "C4", || {
        format!("{} channels are not divisible into {groups} groups", ty.shape[1])
    })?;
    Ok(ty)
}

/// `x` as rows: the axes before `axis` by the others.
fn rows<T: Real>(x: &Array<T>, axis: usize) -> Array<T> {
    let (outer, inner) = x.shape.split_at(axis);
    Array::new([outer.iter().product(), inner.iter().product()], x.data.clone())
}

/// Scales and shifts the normalised elements by operands 1 and 2, those that are there.
fn affine<T: Real>(ctx: &EvalCtx<'_>, mut data: Vec<T>, operands: &[&Value<T>]) -> Value<T> {
    if let Some(scale) = operands.get(1) {
        let scales = broadcast(scale.float(), ctx.shape);
        data.iter_mut().zip(scales).for_each(|(y, scale)| *y = *y * scale);
    }
    if let Some(bias) = operands.get(2) {
        let biases = broadcast(bias.float(), ctx.shape);
        data.iter_mut().zip(biases).for_each(|(y, bias)| *y = *y + bias);
    }
    Value::Float(Array::new(ctx.shape, data))
}

/// The channel of each element, with the element.
fn with_channels<'a, T>(
    data: &'a mut [T],
    shape: &[usize],
) -> impl Iterator<Item = (usize, &'a mut T)> + use<'a, T> {
    let (channels, inner) = (shape[1], shape[2..].iter().product::<usize>());
    data.iter_mut().enumerate().map(move |(i, element)| (i / inner % channels, element))
}

fn eval_layer_norm<T: Real>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    let epsilon = ctx.attrs.float("epsilon");
    let x = rows(operands[0].float(), ctx.attrs.axis("axis"));
    let normal = map_lanes(&x, 1, |row| standardize(row, epsilon));
    affine(ctx, normal.data, operands)
}

fn eval_rms_norm<T: Real>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    let epsilon = ctx.attrs.float("epsilon");
    let x = rows(operands[0].float(), ctx.attrs.axis("axis"));
    let normal = map_lanes(&x, 1, |row| {
        let square = mean(row.iter().map(|&x| x * x)).to_f64();
        row.iter_mut().for_each(|x| *x = x.map(|x| x / (square + epsilon).sqrt()));
    });
    affine(ctx, normal.data, operands)
}

fn eval_batch_norm<T: Real>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    let epsilon = ctx.attrs.float("epsilon");
    let [x, scale, bias, mean, variance] = [0, 1, 2, 3, 4].map(|i| operands[i].float());
    let mut y = x.clone();
    for (channel, y) in with_channels(&mut y.data, ctx.shape) {
        let centered = *y - mean.data[channel];
        let deviation = (variance.data[channel].to_f64() + epsilon).sqrt();
        *y = centered.map(|x| x / deviation) * scale.data[channel] + bias.data[channel];
    }
    Value::Float(y)
}

fn eval_instance_norm<T: Real>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    normalize_groups(ctx, operands, rows(operands[0].float(), 2))
}

fn eval_group_norm<T: Real>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    let x = operands[0].float();
    let group = x.shape[1] / ctx.attrs.axis("groups") * x.shape[2..].iter().product::<usize>();
    let groups = x.shape[0] * ctx.attrs.axis("groups");
    normalize_groups(ctx, operands, Array::new([groups, group], x.data.clone()))
}

/// Normalises rows, then scales and shifts by channel.
fn normalize_groups<T: Real>(
    ctx: &EvalCtx<'_>,
    operands: &[&Value<T>],
    rows: Array<T>,
) -> Value<T> {
    let epsilon = ctx.attrs.float("epsilon");
    let (scale, bias) = (operands[1].float(), operands[2].float());
    let mut data = map_lanes(&rows, 1, |row| standardize(row, epsilon)).data;
    for (channel, y) in with_channels(&mut data, ctx.shape) {
        *y = *y * scale.data[channel] + bias.data[channel];
    }
    Value::Float(Array::new(ctx.shape, data))
}

/// `(x - mean) * rsqrt(variance + epsilon)` along axes; the variance is the mean of the squared
/// differences, since the difference of means of squares cancels.
fn standardized(
    to: &mut Expansion<'_>,
    x: NodeId,
    axes: &[i64],
    epsilon: f64,
) -> Result<NodeId, Diagnostic> {
    let mean = to.reduce("reduce_mean", x, axes)?;
    let centered = to.binary("sub", x, mean)?;
    let squares = to.binary("mul", centered, centered)?;
    let variance = to.reduce("reduce_mean", squares, axes)?;
    let inverse = inverse_deviation(to, variance, epsilon)?;
    to.binary("mul", centered, inverse)
}

/// `rsqrt(variance + epsilon)`
fn inverse_deviation(
    to: &mut Expansion<'_>,
    variance: NodeId,
    epsilon: f64,
) -> Result<NodeId, Diagnostic> {
    let sum = to.with_number("add", variance, epsilon)?;
    to.unary("rsqrt", sum)
}

/// Applies the scale and bias that there are and gives the result its type.
fn scaled(
    ctx: &OpCtx<'_>,
    to: &mut Expansion<'_>,
    mut y: NodeId,
    factors: [Option<NodeId>; 2],
) -> Result<NodeId, Diagnostic> {
    for (op, factor) in ["mul", "add"].into_iter().zip(factors) {
        if let Some(factor) = factor {
            let factor = to.widened(factor)?;
            y = to.binary(op, y, factor)?;
        }
    }
    to.cast(y, ctx.first().dtype)
}

/// Operands 1 and 2 shaped to broadcast along the channels.
fn channel_factors(
    ctx: &OpCtx<'_>,
    to: &mut Expansion<'_>,
) -> Result<[Option<NodeId>; 2], Diagnostic> {
    let (scale, bias, rank) = (to.operands[1], to.operands[2], ctx.first().rank());
    Ok([Some(to.per_channel(scale, rank)?), Some(to.per_channel(bias, rank)?)])
}

fn axes_from(first: usize, rank: usize) -> Vec<i64> {
    (first as i64..rank as i64).collect()
}

fn expand_layer_norm(ctx: &OpCtx<'_>, to: &mut Expansion<'_>) -> Result<NodeId, Diagnostic> {
    let x = to.widened(to.operands[0])?;
    let axes = axes_from(ctx.attrs.axis("axis"), ctx.first().rank());
    let normal = standardized(to, x, &axes, ctx.attrs.float("epsilon"))?;
    let factors = [to.operands.get(1).copied(), to.operands.get(2).copied()];
    scaled(ctx, to, normal, factors)
}

fn expand_rms_norm(ctx: &OpCtx<'_>, to: &mut Expansion<'_>) -> Result<NodeId, Diagnostic> {
    let x = to.widened(to.operands[0])?;
    let axes = axes_from(ctx.attrs.axis("axis"), ctx.first().rank());
    let squares = to.binary("mul", x, x)?;
    let mean = to.reduce("reduce_mean", squares, &axes)?;
    let inverse = inverse_deviation(to, mean, ctx.attrs.float("epsilon"))?;
    let normal = to.binary("mul", x, inverse)?;
    let factors = [to.operands.get(1).copied(), None];
    scaled(ctx, to, normal, factors)
}

fn expand_batch_norm(ctx: &OpCtx<'_>, to: &mut Expansion<'_>) -> Result<NodeId, Diagnostic> {
    let rank = ctx.first().rank();
    let [x, scale, bias, mean, variance] = [0, 1, 2, 3, 4].map(|i| to.operands[i]);
    let [x, scale, mean, variance] =
        [to.widened(x)?, to.widened(scale)?, to.widened(mean)?, to.widened(variance)?];
    let inverse = inverse_deviation(to, variance, ctx.attrs.float("epsilon"))?;
    let factor = to.binary("mul", scale, inverse)?;
    let mean = to.per_channel(mean, rank)?;
    let centered = to.binary("sub", x, mean)?;
    let factors = [Some(to.per_channel(factor, rank)?), Some(to.per_channel(bias, rank)?)];
    scaled(ctx, to, centered, factors)
}

fn expand_instance_norm(ctx: &OpCtx<'_>, to: &mut Expansion<'_>) -> Result<NodeId, Diagnostic> {
    let x = to.widened(to.operands[0])?;
    let axes = axes_from(2, ctx.first().rank());
    let normal = standardized(to, x, &axes, ctx.attrs.float("epsilon"))?;
    let factors = channel_factors(ctx, to)?;
    scaled(ctx, to, normal, factors)
}

fn expand_group_norm(ctx: &OpCtx<'_>, to: &mut Expansion<'_>) -> Result<NodeId, Diagnostic> {
    let shape = &ctx.first().shape;
    let groups = Dim::constant(ctx.attrs.int("groups"));
    let group = shape[1].floor_div(&groups) * shape[2..].iter().product::<Dim>();
    let x = to.widened(to.operands[0])?;
    let grouped = to.reshape(x, vec![shape[0].clone(), groups, group])?;
    let normal = standardized(to, grouped, &[2], ctx.attrs.float("epsilon"))?;
    let normal = to.reshape(normal, shape.clone())?;
    let factors = channel_factors(ctx, to)?;
    scaled(ctx, to, normal, factors)
}
