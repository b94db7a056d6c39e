//! Movement ops that leave positions without an element: padding and triangles.

use super::{Arity, MovementCase, MovementForm, OpClass, OpCtx, OpDef, Violation, require};
use crate::interp::{Array, Element, EvalCtx, Value};
use crate::{AttrKind, DType, Dim, Guard, IndexExpr, Scalar, Type, eval_polynomial};

pub(super) const DEFS: &[OpDef] = &[
    OpDef {
        name: "pad",
        arity: Arity::Exactly(1),
        attrs: &[
            ("before", AttrKind::Dims),
            ("after", AttrKind::Dims),
            ("mode", AttrKind::Text),
            ("value", AttrKind::Float),
        ],
        infer: infer_pad,
        eval: eval_polynomial!(eval_pad),
        class: OpClass::Movement(pad_form),
        doc: "Adds `before` and `after` positions around each axis, or drops positions where they are \
              negative. What the positions hold depends on `mode`: `constant`: `value`; `edge`: the \
              nearest element; `reflect`: the axis mirrored at its first and last element, as often as \
              needed; `wrap`: the axis repeated. (C1) `before` and `after` have one entry per axis. \
              (C2) `mode` is one of these. (C3) `value` is a value of the element type. (C4) No more is \
              dropped than there is. (C5) In other modes than `constant`, an axis that grows is not \
              empty. Source: ONNX Pad, opset 25.",
    },
    OpDef {
        name: "trilu",
        arity: Arity::Exactly(1),
        attrs: &[("upper", AttrKind::Bool), ("k", AttrKind::Int)],
        infer: infer_trilu,
        eval: eval_polynomial!(eval_trilu),
        class: OpClass::Movement(trilu_form),
        doc: "The matrices in the last two axes with 0 below (`upper`) or above (not `upper`) the \
              diagonal `k`, which is the main one for 0 and lies to the right for positive `k`. \
              (C1) The operand has rank 2 or more. Source: ONNX Trilu, opset 14.",
    },
];

fn infer_pad(ctx: &OpCtx<'_>) -> Result<Type, Violation> {
    let (x, mode) = (ctx.first(), ctx.attrs.text("mode"));
    let (before, after) = (ctx.attrs.dims("before"), ctx.attrs.dims("after"));
    require([before.len(), after.len()] == [x.rank(); 2], "C1", || {
        format!("{} and {} pads for {} axes", before.len(), after.len(), x.rank())
    })?;
    require(matches!(mode, "constant" | "edge" | "reflect" | "wrap"), "C2", || {
        format!("`{mode}` is no mode: use `constant`, `edge`, `reflect` or `wrap`")
    })?;
    let value = ctx.attrs.float("value");
    require(mode != "constant" || is_value(x.dtype, value), "C3", || {
        format!("{value} is no {}", x.dtype)
    })?;
    let mut shape = Vec::with_capacity(x.rank());
    for (axis, (before, after)) in before.iter().zip(after).enumerate() {
        let size = &x.shape[axis] + before + after;
        let is_negative = size.as_const().is_some_and(|size| size < 0);
        require(!is_negative, "C4", || format!("axis {axis} would have {size} elements"))?;
        let grows_from_nothing = x.shape[axis].is(0) && !size.is(0);
        require(mode == "constant" || !grows_from_nothing, "C5", || {
            format!("axis {axis} is empty and has nothing to repeat")
        })?;
        shape.push(size);
    }
    Ok(Type::new(x.dtype, shape))
}

/// Whether a number is a value of a type; 64-bit integers up to 2^53.
fn is_value(dtype: DType, value: f64) -> bool {
    let (low, high) = (Scalar::lowest(dtype).to_f64(), Scalar::highest(dtype).to_f64());
    dtype.is_float()
        || (value.trunc() == value && value.abs() <= 9007199254740992.0 && low <= value && value <= high)
}

fn pad_form(ctx: &OpCtx<'_>) -> MovementForm {
    let shape = ctx.shape();
    let source = |axis: usize| {
        IndexExpr::axis(axis).plus(IndexExpr::size(-&ctx.attrs.dims("before")[axis]))
    };
    if ctx.attrs.text("mode") == "constant" {
        let is_cropped = |axis: usize| {
            let is_crop = |pads: &str| ctx.attrs.dims(pads)[axis].as_const().is_some_and(|p| p <= 0);
            is_crop("before") && is_crop("after")
        };
        let guards = (0..shape.rank()).filter(|&axis| !is_cropped(axis)).map(|axis| Guard::Within {
            value: source(axis),
            low: Dim::constant(0),
            high: shape[axis].clone(),
        });
        let guards: Vec<Guard> = guards.collect();
        let fill = Some(Scalar::new(ctx.first().dtype, ctx.attrs.float("value")));
        let fill = fill.filter(|_| !guards.is_empty());
        let index = (0..shape.rank()).map(source).collect();
        return MovementForm { cases: vec![MovementCase { guards, operand: 0, index }], fill };
    }
    let index = (0..shape.rank()).map(|axis| repeated(ctx, axis, source(axis)));
    MovementForm::total(0, index.collect())
}

/// The position in the operand that a position of the extended axis repeats.
fn repeated(ctx: &OpCtx<'_>, axis: usize, source: IndexExpr) -> IndexExpr {
    let size = &ctx.shape()[axis];
    let (before, after) = (&ctx.attrs.dims("before")[axis], &ctx.attrs.dims("after")[axis]);
    let at_most = |pad: &Dim, most: &Dim| (most - pad).as_const().is_some_and(|rest| rest >= 0);
    let zero = Dim::constant(0);
    if at_most(before, &zero) && at_most(after, &zero) {
        return source;
    }
    let last = size - Dim::constant(1);
    let period = &last * Dim::constant(2);
    // The distance from the mirror behind the axis, from which the way back is counted.
    let mirrored = |x: IndexExpr| x.clone().minimum(x.times(-1i64).plus(IndexExpr::size(period.clone())));
    match ctx.attrs.text("mode") {
        "edge" => source.maximum(IndexExpr::size(0i64)).minimum(IndexExpr::size(last)),
        "wrap" => source.modulo(size.clone()),
        _ if at_most(before, &last) && at_most(after, &last) => {
            mirrored(source.clone().maximum(source.times(-1i64)))
        }
        _ => mirrored(source.modulo(period.maximum(&Dim::constant(1)))),
    }
}

fn eval_pad<T: Element>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    let value = ctx.attrs.float("value");
    match operands[0] {
        Value::Float(x) => Value::Float(pad(ctx, x, T::from_f64(value))),
        Value::Int(x) => {
            let Scalar::Int(_, value) = Scalar::new(ctx.result.dtype, value) else {
                unreachable!("invariant: the element type is an integer");
            };
            Value::Int(pad(ctx, x, value))
        }
    }
}

/// Extends axis after axis.
fn pad<E: Copy>(ctx: &EvalCtx<'_>, x: &Array<E>, fill: E) -> Array<E> {
    let before = ctx.numbers("before");
    let mut x = x.clone();
    for (axis, before) in before.into_iter().enumerate() {
        let (old, new) = (x.shape[axis], ctx.shape[axis]);
        let outer: usize = x.shape[..axis].iter().product();
        let inner: usize = x.shape[axis + 1..].iter().product();
        let mut data = Vec::with_capacity(outer * new * inner);
        for block in 0..outer {
            for position in 0..new as i64 {
                match source(ctx.attrs.text("mode"), position - before, old as i64) {
                    Some(source) => {
                        let start = (block * old + source) * inner;
                        data.extend_from_slice(&x.data[start..start + inner]);
                    }
                    None => data.resize(data.len() + inner, fill),
                }
            }
        }
        x.shape[axis] = new;
        x.data = data;
    }
    x
}

/// Which of `size` elements is at a position that may lie outside.
fn source(mode: &str, position: i64, size: i64) -> Option<usize> {
    let inside = match mode {
        _ if (0..size).contains(&position) => position,
        _ if size == 0 => return None,
        "edge" if position < 0 => 0,
        "edge" => size - 1,
        "wrap" => position.rem_euclid(size),
        "reflect" if size == 1 => 0,
        "reflect" => {
            let (mut position, last) = (position, size - 1);
            while !(0..size).contains(&position) {
                position = if position < 0 { -position } else { 2 * last - position };
            }
            position
        }
        _ => return None,
    };
    Some(inside as usize)
}

fn infer_trilu(ctx: &OpCtx<'_>) -> Result<Type, Violation> {
    let x = ctx.first();
    require(x.rank() >= 2, "C1", || format!("{x} is no matrix"))?;
    Ok(x.clone())
}

fn trilu_form(ctx: &OpCtx<'_>) -> MovementForm {
    let (shape, k) = (ctx.shape(), ctx.attrs.int("k"));
    let rank = shape.rank();
    let value = IndexExpr::axis(rank - 1).plus(IndexExpr::axis(rank - 2).times(-1i64));
    // The largest difference is one less than the number of columns, the smallest, rows less one, below 0.
    let (low, high) = if ctx.attrs.flag("upper") {
        (Dim::constant(k), shape[rank - 1].clone())
    } else {
        (Dim::constant(1) - &shape[rank - 2], Dim::constant(k.saturating_add(1)))
    };
    let index = (0..rank).map(IndexExpr::axis).collect();
    let guards = vec![Guard::Within { value, low, high }];
    MovementForm {
        cases: vec![MovementCase { guards, operand: 0, index }],
        fill: Some(Scalar::new(ctx.first().dtype, 0.0)),
    }
}

fn eval_trilu<T: Element>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    match operands[0] {
        Value::Float(x) => Value::Float(triangle(ctx, x, T::zero())),
        Value::Int(x) => Value::Int(triangle(ctx, x, 0)),
    }
}

fn triangle<E: Copy>(ctx: &EvalCtx<'_>, x: &Array<E>, zero: E) -> Array<E> {
    let (upper, k) = (ctx.attrs.flag("upper"), i128::from(ctx.attrs.int("k")));
    let [.., rows, columns] = *x.shape.as_slice() else {
        unreachable!("invariant: inference requires rank 2");
    };
    let mut result = x.clone();
    for (position, element) in result.data.iter_mut().enumerate() {
        let (row, column) = (position / columns % rows, position % columns);
        let diagonal = column as i128 - row as i128;
        if (upper && diagonal < k) || (!upper && diagonal > k) {
            *element = zero;
        }
    }
    result
}
