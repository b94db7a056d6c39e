//! Reductions that are made of others: norms, sums of squares, sums on a logarithmic scale.
//!
//! Half floats are widened before they are squared or exponentiated.

use super::domain::Domain;
use super::reduce::{fold_axes, reduced_type};
use super::{Arity, Expansion, OpClass, OpCtx, OpDef};
use crate::interp::{Element, EvalCtx, Real, Value};
use crate::{AttrKind, Diagnostic, NodeId, attrs, eval_polynomial, eval_real};

/// A reduction by expansion.
macro_rules! composite {
    ($name:literal, $domain:ident ($domain_doc:literal), $doc:literal, $eval:expr, $expand:ident) => {
        OpDef {
            name: $name,
            arity: Arity::Exactly(1),
            attrs: &[("axes", AttrKind::Ints), ("keepdims", AttrKind::Bool)],
            infer: |ctx| reduced_type(ctx, Domain::$domain),
            eval: $eval,
            class: OpClass::Composite($expand),
            doc: concat!(
                $doc, " `keepdims` leaves the axes with size 1. (C1) The operand is ", $domain_doc,
                ". (C2) `axes` are axes of the operand, in rising order."
            ),
        }
    };
}

#[rustfmt::skip]
pub(super) const DEFS: &[OpDef] = &[
    composite!("reduce_l1", Numeric ("a float or an integer"),
        "The sum of absolute values along `axes` (ONNX ReduceL1, opset 18); integers wrap; of nothing: 0.",
        eval_real!(eval_l1), expand_l1),
    composite!("reduce_l2", Float ("a float"),
        "The square root of the sum of squares along `axes` (ONNX ReduceL2, opset 18); of nothing: 0.",
        eval_real!(eval_l2), expand_l2),
    composite!("reduce_sum_square", Numeric ("a float or an integer"),
        "The sum of squares along `axes` (ONNX ReduceSumSquare, opset 18); integers wrap; of nothing: 0.",
        eval_polynomial!(eval_sum_square), expand_sum_square),
    composite!("reduce_log_sum", Float ("a float"),
        "The logarithm of the sum along `axes` (ONNX ReduceLogSum, opset 18); of nothing: minus infinity.",
        eval_real!(eval_log_sum), expand_log_sum),
    composite!("reduce_log_sum_exp", Float ("a float"),
        "`log(sum(e^x))` along `axes` (ONNX ReduceLogSumExp, opset 18), without overflow; of nothing: minus \
         infinity.",
        eval_real!(eval_log_sum_exp), expand_log_sum_exp),
];

/// The sum along the op's own axes.
fn sum(ctx: &OpCtx<'_>, to: &mut Expansion<'_>, x: NodeId) -> Result<NodeId, Diagnostic> {
    let attrs = attrs! { axes: ctx.attrs.ints("axes"), keepdims: ctx.attrs.flag("keepdims") };
    to.add("reduce_sum", attrs, &[x])
}

fn expand_l1(ctx: &OpCtx<'_>, to: &mut Expansion<'_>) -> Result<NodeId, Diagnostic> {
    let absolute = to.unary("abs", to.operands[0])?;
    sum(ctx, to, absolute)
}

/// The sum of squares, widened.
fn squares(ctx: &OpCtx<'_>, to: &mut Expansion<'_>) -> Result<NodeId, Diagnostic> {
    let x = to.widened(to.operands[0])?;
    let squares = to.binary("mul", x, x)?;
    sum(ctx, to, squares)
}

fn expand_sum_square(ctx: &OpCtx<'_>, to: &mut Expansion<'_>) -> Result<NodeId, Diagnostic> {
    let total = squares(ctx, to)?;
    to.cast(total, ctx.first().dtype)
}

fn expand_l2(ctx: &OpCtx<'_>, to: &mut Expansion<'_>) -> Result<NodeId, Diagnostic> {
    let total = squares(ctx, to)?;
    let root = to.unary("sqrt", total)?;
    to.cast(root, ctx.first().dtype)
}

fn expand_log_sum(ctx: &OpCtx<'_>, to: &mut Expansion<'_>) -> Result<NodeId, Diagnostic> {
    let x = to.widened(to.operands[0])?;
    let total = sum(ctx, to, x)?;
    let logarithm = to.unary("log", total)?;
    to.cast(logarithm, ctx.first().dtype)
}

/// `m + log(sum(e^(x - m)))` with the maximum as `m`, or 0 where it is infinite: the difference of
/// infinities would be NaN.
fn expand_log_sum_exp(ctx: &OpCtx<'_>, to: &mut Expansion<'_>) -> Result<NodeId, Diagnostic> {
    let axes = ctx.attrs.ints("axes");
    let x = to.widened(to.operands[0])?;
    let largest = to.reduce("reduce_max", x, axes)?;
    let both = attrs! { detect_negative: true, detect_positive: true };
    let is_infinite = to.add("is_inf", both, &[largest])?;
    let zero = to.graph.scalar(to.ty(x).dtype, 0.0);
    let shift = to.select(is_infinite, zero, largest)?;
    let shifted = to.binary("sub", x, shift)?;
    let exponentials = to.unary("exp", shifted)?;
    let total = to.reduce("reduce_sum", exponentials, axes)?;
    let logarithm = to.unary("log", total)?;
    let result = to.binary("add", logarithm, shift)?;
    let result = to.cast(result, ctx.first().dtype)?;
    to.reshape(result, reduced_shape(ctx))
}

fn reduced_shape(ctx: &OpCtx<'_>) -> crate::Shape {
    reduced_type(ctx, Domain::Numeric).expect("invariant: inference has accepted the operand").shape
}

fn eval_l1<T: Real>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    let unsigned = ctx.result.dtype.is_unsigned_int();
    match operands[0] {
        Value::Float(x) => {
            Value::Float(fold_axes(ctx, x, T::zero(), |sum, x| sum + x.map(f64::abs)))
        }
        Value::Int(x) => Value::Int(fold_axes(ctx, x, 0i64, |sum, x| {
            sum.wrapping_add(if unsigned { x } else { x.wrapping_abs() })
        })),
    }
}

fn eval_sum_square<T: Element>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    match operands[0] {
        Value::Float(x) => Value::Float(fold_axes(ctx, x, T::zero(), |sum, x| sum + x * x)),
        Value::Int(x) => {
            Value::Int(fold_axes(ctx, x, 0i64, |sum, x| sum.wrapping_add(x.wrapping_mul(x))))
        }
    }
}

fn eval_l2<T: Real>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    let squares = fold_axes(ctx, operands[0].float(), T::zero(), |sum, x| sum + x * x);
    Value::Float(squares.map(|sum| sum.map(f64::sqrt)))
}

fn eval_log_sum<T: Real>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    let sums = fold_axes(ctx, operands[0].float(), T::zero(), |sum, x| sum + x);
    Value::Float(sums.map(|sum| sum.map(libm::log)))
}

/// Element by element: `log(e^a + e^b)` is the larger one plus `log(1 + e^-|a - b|)`.
fn eval_log_sum_exp<T: Real>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    let join = |a: f64, b: f64| {
        let (low, high) = if a < b { (a, b) } else { (b, a) };
        if low == high && low.is_infinite() {
            low
        } else {
            high + libm::log1p(libm::exp(low - high))
        }
    };
    let none = T::from_f64(f64::NEG_INFINITY);
    Value::Float(fold_axes(ctx, operands[0].float(), none, |sum, x| {
        T::from_f64(join(sum.to_f64(), x.to_f64()))
    }))
}
