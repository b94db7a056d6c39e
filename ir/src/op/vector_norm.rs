//! Normalisations without learned parameters.

use fornax_bundle::Dim;

use super::domain::Domain;
use super::lanes::{map_lanes, mean, sum};
use super::{Arity, Expansion, OpClass, OpCtx, OpDef, Violation, require};
use crate::interp::{Array, EvalCtx, Real, Value};
use crate::{AttrKind, Diagnostic, NodeId, Type, attrs, eval_real};

pub(super) const DEFS: &[OpDef] = &[
    OpDef {
        name: "lp_norm",
        arity: Arity::Exactly(1),
        attrs: &[("axis", AttrKind::Int), ("p", AttrKind::Int)],
        infer: infer_lp_norm,
        eval: eval_real!(eval_lp_norm),
        class: OpClass::Composite(expand_lp_norm),
        doc: "`x / norm` with the p-norm along `axis`; 0 where the norm is 0. (C1) `x` is float. \
              (C2) `axis` is an axis of `x`. (C3) `p` is 1 or 2. Source: ONNX LpNormalization, \
              opset 22.",
    },
    OpDef {
        name: "mean_variance_norm",
        arity: Arity::Exactly(1),
        attrs: &[("axes", AttrKind::Ints), ("epsilon", AttrKind::Float)],
        infer: infer_mean_variance_norm,
        eval: eval_real!(eval_mean_variance_norm),
        class: OpClass::Composite(expand_mean_variance_norm),
        doc: "`(x - mean) / (sqrt(variance) + epsilon)` with mean and variance over `axes`. (C1) \
              `x` is float. (C2) `axes` are axes of `x`, in rising order. Source: ONNX \
              MeanVarianceNormalization, opset 13, where epsilon is 1e-9.",
    },
    OpDef {
        name: "lrn",
        arity: Arity::Exactly(1),
        attrs: &[
            ("alpha", AttrKind::Float),
            ("beta", AttrKind::Float),
            ("bias", AttrKind::Float),
            ("size", AttrKind::Int),
        ],
        infer: infer_lrn,
        eval: eval_real!(eval_lrn),
        class: OpClass::Composite(expand_lrn),
        doc: "Local response normalisation, `x / (bias + alpha / size * sum of x^2 of the channels \
              around)^beta`: the channels (axis 1) from `floor((size - 1) / 2)` before to \
              `ceil((size - 1) / 2)` after, those that there are. (C1) `x` is float. (C2) `x` has \
              rank 2 or more. (C3) `size` is positive. Source: ONNX LRN, opset 13.",
    },
];

fn require_float(ctx: &OpCtx<'_>) -> Result<(), Violation> {
    let dtype = ctx.first().dtype;
    Domain::Float.require(dtype, "C1")
}

fn infer_lp_norm(ctx: &OpCtx<'_>) -> Result<Type, Violation> {
    let (x, axis, p) = (ctx.first(), ctx.attrs.int("axis"), ctx.attrs.int("p"));
    require_float(ctx)?;
    require((0..x.rank() as i64).contains(&axis), "C2", || {
        format!("axis {axis} is not an axis of {x}")
    })?;
    require(p == 1 || p == 2, "C3", || format!("`p` is {p}, not 1 or 2"))?;
    Ok(x.clone())
}

fn infer_mean_variance_norm(ctx: &OpCtx<'_>) -> Result<Type, Violation> {
    let (x, axes) = (ctx.first(), ctx.attrs.ints("axes"));
    require_float(ctx)?;
    let valid = axes.is_sorted_by(|a, b| a < b)
        && axes.iter().all(|axis| (0..x.rank() as i64).contains(axis));
    require(valid, "C2", || format!("{axes:?} are not axes of {x} in rising order"))?;
    Ok(x.clone())
}

fn infer_lrn(ctx: &OpCtx<'_>) -> Result<Type, Violation> {
    let (x, size) = (ctx.first(), ctx.attrs.int("size"));
    require_float(ctx)?;
    require(x.rank() >= 2, "C2", || format!("{x} has no channel axis"))?;
    require((1..1 << 31).contains(&size), "C3", || format!("`size` is {size}, not positive"))?;
    Ok(x.clone())
}

fn eval_lp_norm<T: Real>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    let p = ctx.attrs.int("p") as i32;
    Value::Float(map_lanes(operands[0].float(), ctx.attrs.axis("axis"), |lane| {
        let total = sum(lane.iter().map(|x| x.map(|x| x.abs().powi(p)))).to_f64();
        let norm = total.powf(1.0 / f64::from(p));
        lane.iter_mut().for_each(|x| *x = x.map(|x| if norm == 0.0 { 0.0 } else { x / norm }));
    }))
}

fn eval_mean_variance_norm<T: Real>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    let (x, axes) = (operands[0].float(), ctx.attrs.axes("axes"));
    let epsilon = ctx.attrs.float("epsilon");
    let lanes = Lanes::new(&x.shape, &axes);
    let mut groups: Vec<Vec<T>> = vec![Vec::new(); lanes.count];
    lanes.of_elements().zip(&x.data).for_each(|(lane, &x)| groups[lane].push(x));
    let statistics: Vec<(T, f64)> = groups
        .iter()
        .map(|group| {
            let center = mean(group.iter().copied());
            let variance = mean(group.iter().map(|&x| (x - center) * (x - center)));
            (center, variance.to_f64().sqrt() + epsilon)
        })
        .collect();
    let normalized = lanes.of_elements().zip(&x.data).map(|(lane, &x)| {
        let (center, divisor) = statistics[lane];
        (x - center).map(|x| x / divisor)
    });
    Value::Float(Array::new(ctx.shape, normalized.collect()))
}

/// The groups of elements that differ in position along some axes only.
struct Lanes {
    shape: Vec<usize>,
    strides: Vec<isize>,
    count: usize,
}

impl Lanes {
    fn new(shape: &[usize], axes: &[usize]) -> Lanes {
        let mut strides = vec![0; shape.len()];
        let mut count = 1;
        for axis in (0..shape.len()).rev().filter(|axis| !axes.contains(axis)) {
            strides[axis] = count as isize;
            count *= shape[axis];
        }
        Lanes { shape: shape.to_vec(), strides, count }
    }

    /// The number of each element's group, in the elements' order.
    fn of_elements(&self) -> crate::interp::Offsets {
        crate::interp::Offsets::new(&self.shape, &self.strides, 0)
    }
}

fn eval_lrn<T: Real>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    let [alpha, beta, bias] = ["alpha", "beta", "bias"].map(|name| ctx.attrs.float(name));
    let size = ctx.attrs.axis("size");
    let (before, after) = ((size - 1) / 2, (size - 1).div_ceil(2));
    let mut squares: Vec<T> = Vec::new();
    Value::Float(map_lanes(operands[0].float(), 1, |channels| {
        squares.clear();
        squares.extend(channels.iter().map(|&x| x * x));
        for (channel, x) in channels.iter_mut().enumerate() {
            let end = (channel + after + 1).min(squares.len());
            let total = sum(squares[channel.saturating_sub(before)..end].iter().copied()).to_f64();
            *x = x.map(|x| x / (bias + alpha / size as f64 * total).powf(beta));
        }
    }))
}

fn expand_lp_norm(ctx: &OpCtx<'_>, to: &mut Expansion<'_>) -> Result<NodeId, Diagnostic> {
    let axis = [ctx.attrs.int("axis")];
    let x = to.widened(to.operands[0])?;
    let norm = if ctx.attrs.int("p") == 1 {
        let absolute = to.unary("abs", x)?;
        to.reduce("reduce_sum", absolute, &axis)?
    } else {
        let squares = to.binary("mul", x, x)?;
        let total = to.reduce("reduce_sum", squares, &axis)?;
        to.unary("sqrt", total)?
    };
    let is_zero = to.with_number("eq", norm, 0.0)?;
    let inverse = to.unary("reciprocal", norm)?;
    let zero = to.graph.scalar(to.ty(norm).dtype, 0.0);
    let factor = to.select(is_zero, zero, inverse)?;
    let normal = to.binary("mul", x, factor)?;
    to.cast(normal, ctx.first().dtype)
}

fn expand_mean_variance_norm(
    ctx: &OpCtx<'_>,
    to: &mut Expansion<'_>,
) -> Result<NodeId, Diagnostic> {
    let axes = ctx.attrs.ints("axes");
    let x = to.widened(to.operands[0])?;
    let mean = to.reduce("reduce_mean", x, axes)?;
    let centered = to.binary("sub", x, mean)?;
    let squares = to.binary("mul", centered, centered)?;
    let variance = to.reduce("reduce_mean", squares, axes)?;
    let deviation = to.unary("sqrt", variance)?;
    let divisor = to.with_number("add", deviation, ctx.attrs.float("epsilon"))?;
    let normal = to.binary("div", centered, divisor)?;
    to.cast(normal, ctx.first().dtype)
}

/// The sum over neighbouring channels is a mean over windows along the channels of
/// `[N, 1, C, spatial]`, where the padding counts, times `size`.
fn expand_lrn(ctx: &OpCtx<'_>, to: &mut Expansion<'_>) -> Result<NodeId, Diagnostic> {
    let (shape, size) = (&ctx.first().shape, ctx.attrs.int("size"));
    if shape.elements().is(0) {
        // Windows need a channel to lie on.
        return Ok(to.operands[0]);
    }
    let x = to.widened(to.operands[0])?;
    let squares = to.binary("mul", x, x)?;
    let spatial = shape[2..].iter().product::<Dim>();
    let plane = vec![shape[0].clone(), Dim::constant(1), shape[1].clone(), spatial];
    let squares = to.reshape(squares, plane)?;
    let window = attrs! {
        kernel: vec![size, 1],
        strides: vec![1i64, 1],
        pads_begin: vec![(size - 1) / 2, 0],
        pads_end: vec![size / 2, 0],
        dilations: vec![1i64, 1],
        ceil_mode: false,
        count_include_pad: true,
    };
    let means = to.add("avg_pool", window, &[squares])?;
    let means = to.reshape(means, shape.clone())?;
    let scaled = to.with_number("mul", means, ctx.attrs.float("alpha"))?;
    let base = to.with_number("add", scaled, ctx.attrs.float("bias"))?;
    let divisor = to.with_number("pow", base, ctx.attrs.float("beta"))?;
    let quotients = to.binary("div", x, divisor)?;
    to.cast(quotients, ctx.first().dtype)
}
