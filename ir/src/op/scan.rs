//! Running sums and products.

use super::domain::Domain;
use super::reduce::{product, sum};
use super::{Arity, OpClass, OpCtx, OpDef, Reducer, ScanForm, Violation, require};
use crate::interp::{Array, Element, EvalCtx, Value};
use crate::{AttrKind, DType, Type, eval_polynomial};

const ATTRS: &[(&str, AttrKind)] =
    &[("axis", AttrKind::Int), ("exclusive", AttrKind::Bool), ("reverse", AttrKind::Bool)];

pub(super) const DEFS: &[OpDef] = &[
    OpDef {
        name: "cum_sum",
        arity: Arity::Exactly(1),
        attrs: ATTRS,
        infer,
        eval: eval_polynomial!(eval_sum),
        class: OpClass::Scan(|ctx| form(ctx, sum)),
        doc: "The sum of the elements up to each one along `axis`, or from each one on with `reverse`; \
              without the element itself if `exclusive`, so that the first sum is 0. Integers wrap. \
              (C1) The operand is a float or an integer. (C2) `axis` is an axis of the operand. \
              Source: ONNX CumSum, opset 14.",
    },
    OpDef {
        name: "cum_prod",
        arity: Arity::Exactly(1),
        attrs: ATTRS,
        infer,
        eval: eval_polynomial!(eval_prod),
        class: OpClass::Scan(|ctx| form(ctx, product)),
        doc: "As `cum_sum`, the product; the first one is 1 if `exclusive`. \
              (C1) The operand is a float or an integer. (C2) `axis` is an axis of the operand. \
              Source: ONNX CumProd, opset 26.",
    },
];

fn infer(ctx: &OpCtx<'_>) -> Result<Type, Violation> {
    let (x, axis) = (ctx.first(), ctx.attrs.int("axis"));
    Domain::Numeric.require(x.dtype, "C1")?;
    require((0..x.rank() as i64).contains(&axis), "C2", || {
        format!("axis {axis} is not an axis of {x}")
    })?;
    Ok(x.clone())
}

fn form(ctx: &OpCtx<'_>, reducer: fn(DType) -> Reducer) -> ScanForm {
    ScanForm {
        axis: ctx.attrs.axis("axis"),
        reverse: ctx.attrs.flag("reverse"),
        exclusive: ctx.attrs.flag("exclusive"),
        reducer: reducer(ctx.first().dtype),
    }
}

fn eval_sum<T: Element>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    match operands[0] {
        Value::Float(x) => Value::Float(scan(ctx, x, T::zero(), |sum, x| sum + x)),
        Value::Int(x) => Value::Int(scan(ctx, x, 0, i64::wrapping_add)),
    }
}

fn eval_prod<T: Element>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    match operands[0] {
        Value::Float(x) => Value::Float(scan(ctx, x, T::from_i64(1), |product, x| product * x)),
        Value::Int(x) => Value::Int(scan(ctx, x, 1, i64::wrapping_mul)),
    }
}

fn scan<E: Copy>(
    ctx: &EvalCtx<'_>,
    x: &Array<E>,
    init: E,
    combine: impl Fn(E, E) -> E,
) -> Array<E> {
    let (axis, exclusive) = (ctx.attrs.axis("axis"), ctx.attrs.flag("exclusive"));
    let inner: usize = x.shape[axis + 1..].iter().product();
    let length = x.shape[axis];
    let mut data = x.data.clone();
    for lane in 0..data.len().checked_div(length).unwrap_or(0) {
        let start = lane / inner * inner * length + lane % inner;
        let mut total = init;
        for step in 0..length {
            let position = if ctx.attrs.flag("reverse") { length - 1 - step } else { step };
            let element = &mut data[start + position * inner];
            let before = total;
            total = combine(total, *element);
            *element = if exclusive { before } else { total };
        }
    }
    Array::new(x.shape.as_slice(), data)
}
