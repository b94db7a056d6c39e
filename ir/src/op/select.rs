//! Pointwise ops of three operands.

use super::domain::{Domain, require_same_types};
use super::pointwise::{arg, same_as_operands};
use super::{Arity, OpClass, OpCtx, OpDef, Violation, require};
use crate::interp::{Array, Element, EvalCtx, Real, Value};
use crate::{BinaryFn, DType, Type, eval_polynomial, eval_real};

pub(super) const DEFS: &[OpDef] = &[
    OpDef {
        name: "where",
        arity: Arity::Exactly(3),
        attrs: &[],
        infer: infer_where,
        eval: eval_polynomial!(eval_where),
        class: OpClass::Pointwise(|_| arg(0).select(arg(1), arg(2))),
        doc: "The second operand where the first is true, else the third (ONNX Where, opset 16). \
              (C1) The first operand is bool. (C2) The others have the same type, which is no 8-bit \
              float. (C3) All shapes are the same.",
    },
    OpDef {
        name: "clip",
        arity: Arity::Exactly(3),
        attrs: &[],
        infer: |ctx| same_as_operands(ctx, Domain::Numeric),
        eval: eval_real!(eval_clip),
        class: OpClass::Pointwise(|_| {
            arg(0).binary(BinaryFn::Max, arg(1)).binary(BinaryFn::Min, arg(2))
        }),
        doc: "`min(max(x, low), high)` (ONNX Clip, opset 13), where maximum and minimum are those of \
              the ops `max` and `min`: NaN stays NaN, and `high` wins over a larger `low`. \
              (C1) The operands are floats or integers. (C2) Their types are the same.",
    },
];

fn infer_where(ctx: &OpCtx<'_>) -> Result<Type, Violation> {
    let [condition, then, _] = ctx.operands else {
        unreachable!("invariant: the arity is checked");
    };
    Domain::Bool.require(condition.dtype, "C1")?;
    Domain::Any.require(then.dtype, "C2")?;
    require_same_types(&OpCtx { attrs: ctx.attrs, operands: &ctx.operands[1..] }, "C2")?;
    require(condition.shape == then.shape, "C3", || {
        format!("shapes differ: {} and {}", condition.shape, then.shape)
    })?;
    Ok(then.clone())
}

fn eval_where<T: Element>(_: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    fn choose<E: Copy>(condition: &[i64], then: &Array<E>, otherwise: &Array<E>) -> Array<E> {
        let pairs = then.data.iter().zip(&otherwise.data);
        let chosen = condition.iter().zip(pairs).map(|(&c, (&x, &y))| if c != 0 { x } else { y });
        Array::new(then.shape.as_slice(), chosen.collect())
    }
    let condition = &operands[0].int().data;
    match (operands[1], operands[2]) {
        (Value::Float(x), Value::Float(y)) => Value::Float(choose(condition, x, y)),
        (x, y) => Value::Int(choose(condition, x.int(), y.int())),
    }
}

fn eval_clip<T: Real>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    let unsigned = ctx.result.dtype == DType::U64;
    match (operands[0], operands[1], operands[2]) {
        (Value::Float(x), Value::Float(low), Value::Float(high)) => {
            let raised = x.zip(low, |x, low| larger(x.to_f64(), low.to_f64()));
            let clipped = raised.zip(high, |x, high| -larger(-x, -high.to_f64()));
            Value::Float(clipped.map(T::from_f64))
        }
        (x, low, high) if unsigned => {
            let raised = x.int().zip(low.int(), |x, low| (x as u64).max(low as u64));
            Value::Int(raised.zip(high.int(), |x, high| x.min(high as u64) as i64))
        }
        (x, low, high) => {
            Value::Int(x.int().zip(low.int(), i64::max).zip(high.int(), i64::min))
        }
    }
}

/// The larger, where -0 < +0, or NaN.
fn larger(x: f64, y: f64) -> f64 {
    if x.is_nan() || y.is_nan() {
        f64::NAN
    } else if x > y || (x == y && x.is_sign_positive()) {
        x
    } else {
        y
    }
}
