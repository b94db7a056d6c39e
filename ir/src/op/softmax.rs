//! Softmax and its relatives.

use fornax_bundle::DType;

use super::domain::Domain;
use super::lanes::{map_lanes, sum};
use super::{Arity, Expansion, OpClass, OpCtx, OpDef, Violation, require};
use crate::interp::{EvalCtx, Real, Value};
use crate::{AttrKind, Diagnostic, NodeId, Type, attrs, eval_real};

pub(super) const DEFS: &[OpDef] = &[
    OpDef {
        name: "softmax",
        arity: Arity::Exactly(1),
        attrs: &[("axis", AttrKind::Int)],
        infer,
        eval: eval_real!(eval_softmax),
        class: OpClass::Composite(expand_softmax),
        doc: "`y[i] = exp(x[i] - m) / sum_j exp(x[j] - m)` with `m = max_j x[j]`, along `axis`. A \
              lane with a NaN, with an infinity or of minus infinities alone is NaN. (C1) `x` is \
              float. (C2) `axis` is an axis of `x`. Source: ONNX Softmax, opset 13.",
    },
    OpDef {
        name: "log_softmax",
        arity: Arity::Exactly(1),
        attrs: &[("axis", AttrKind::Int)],
        infer,
        eval: eval_real!(eval_log_softmax),
        class: OpClass::Composite(expand_log_softmax),
        doc: "`y[i] = x[i] - m - log(sum_j exp(x[j] - m))` with `m = max_j x[j]`, along `axis`. \
              (C1), (C2) as `softmax`. Source: ONNX LogSoftmax, opset 13.",
    },
    OpDef {
        name: "hardmax",
        arity: Arity::Exactly(1),
        attrs: &[("axis", AttrKind::Int)],
        infer,
        eval: eval_real!(eval_hardmax),
        class: OpClass::Composite(expand_hardmax),
        doc: "1 at the first of the largest elements along `axis`, or at the first NaN; 0 \
              elsewhere. (C1), (C2) as `softmax`. Source: ONNX Hardmax, opset 13.",
    },
];

fn infer(ctx: &OpCtx<'_>) -> Result<Type, Violation> {
    let (x, axis) = (ctx.first(), ctx.attrs.int("axis"));
    Domain::Float.require(x.dtype, "C1")?;
    require((0..x.rank() as i64).contains(&axis), "C2", || {
        format!("axis {axis} is not an axis of {x}")
    })?;
    Ok(x.clone())
}

/// The position of the first NaN or else of the first of the largest.
fn largest<T: Real>(lane: &[T]) -> usize {
    let is_nan = |x: T| x.partial_cmp(&x).is_none();
    lane.iter().position(|&x| is_nan(x)).unwrap_or_else(|| {
        (1..lane.len()).fold(0, |best, i| if lane[i] > lane[best] { i } else { best })
    })
}

fn eval_softmax<T: Real>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    Value::Float(map_lanes(operands[0].float(), ctx.attrs.axis("axis"), |lane| {
        let largest = lane[largest(lane)];
        lane.iter_mut().for_each(|x| *x = (*x - largest).map(f64::exp));
        let total = sum(lane.iter().copied()).to_f64();
        lane.iter_mut().for_each(|x| *x = x.map(|x| x / total));
    }))
}

fn eval_log_softmax<T: Real>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    Value::Float(map_lanes(operands[0].float(), ctx.attrs.axis("axis"), |lane| {
        let largest = lane[largest(lane)];
        let total = sum(lane.iter().map(|&x| (x - largest).map(f64::exp))).map(f64::ln);
        lane.iter_mut().for_each(|x| *x = *x - largest - total);
    }))
}

fn eval_hardmax<T: Real>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    Value::Float(map_lanes(operands[0].float(), ctx.attrs.axis("axis"), |lane| {
        let largest = largest(lane);
        lane.fill(T::from_i64(0));
        lane[largest] = T::from_i64(1);
    }))
}

/// `x - max(x)` along the axis, widened.
fn shifted(ctx: &OpCtx<'_>, to: &mut Expansion<'_>) -> Result<NodeId, Diagnostic> {
    let x = to.widened(to.operands[0])?;
    let largest = to.reduce("reduce_max", x, &[ctx.attrs.int("axis")])?;
    to.binary("sub", x, largest)
}

fn expand_softmax(ctx: &OpCtx<'_>, to: &mut Expansion<'_>) -> Result<NodeId, Diagnostic> {
    let shifted = shifted(ctx, to)?;
    let exponentials = to.unary("exp", shifted)?;
    let total = to.reduce("reduce_sum", exponentials, &[ctx.attrs.int("axis")])?;
    let quotients = to.binary("div", exponentials, total)?;
    to.cast(quotients, ctx.first().dtype)
}

fn expand_log_softmax(ctx: &OpCtx<'_>, to: &mut Expansion<'_>) -> Result<NodeId, Diagnostic> {
    let shifted = shifted(ctx, to)?;
    let exponentials = to.unary("exp", shifted)?;
    let total = to.reduce("reduce_sum", exponentials, &[ctx.attrs.int("axis")])?;
    let logarithm = to.unary("log", total)?;
    let differences = to.binary("sub", shifted, logarithm)?;
    to.cast(differences, ctx.first().dtype)
}

fn expand_hardmax(ctx: &OpCtx<'_>, to: &mut Expansion<'_>) -> Result<NodeId, Diagnostic> {
    let (x, axis) = (ctx.first(), ctx.attrs.int("axis"));
    let of_largest = attrs! { axis: axis, keepdims: true, select_last: false };
    let largest = to.add("arg_max", of_largest, &[to.operands[0]])?;
    let iota = attrs! { axis: axis, dtype: DType::I64, shape: x.shape.to_vec() };
    let positions = to.add("iota", iota, &[])?;
    let hit = to.binary("eq", positions, largest)?;
    to.cast(hit, x.dtype)
}
