//! Movement ops whose positions come from a tensor of indices.
//!
//! A negative index counts from the end. ONNX forbids indices outside `-n..n`; here they are clamped to
//! the first or last element, so that no input can make a kernel read outside a buffer. From an axis
//! without elements comes 0.

use super::{Arity, MovementCase, MovementForm, OpClass, OpCtx, OpDef, Violation, require};
use crate::interp::{Array, Element, EvalCtx, Value};
use crate::{AttrKind, DType, Dim, Guard, IndexExpr, Scalar, Type, eval_polynomial};

pub(super) const DEFS: &[OpDef] = &[
    OpDef {
        name: "gather",
        arity: Arity::Exactly(2),
        attrs: &[("axis", AttrKind::Int)],
        infer: infer_gather,
        eval: eval_polynomial!(eval_gather),
        class: OpClass::Movement(gather_form),
        doc: "The slices of `x` along `axis` that `indices` name; the axes of `indices` take the place of \
              `axis`. Negative indices count from the end; others outside the axis are clamped; an empty \
              axis gives 0. (C1) `axis` is an axis of `x`. (C2) `indices` is `i64` or `i32`. \
              Source: ONNX Gather, opset 13.",
    },
    OpDef {
        name: "gather_elements",
        arity: Arity::Exactly(2),
        attrs: &[("axis", AttrKind::Int)],
        infer: infer_gather_elements,
        eval: eval_polynomial!(eval_gather_elements),
        class: OpClass::Movement(gather_elements_form),
        doc: "For each position of `indices`, the element of `x` there, but along `axis` where the index \
              says; indices as in `gather`. (C1) `axis` is an axis of `x`. (C2) `indices` is `i64` or \
              `i32`. (C3) `indices` has the rank of `x` and is nowhere larger but along `axis`. \
              Source: ONNX GatherElements, opset 13.",
    },
    OpDef {
        name: "gather_nd",
        arity: Arity::Exactly(2),
        attrs: &[("batch_dims", AttrKind::Int)],
        infer: infer_gather_nd,
        eval: eval_polynomial!(eval_gather_nd),
        class: OpClass::Movement(gather_nd_form),
        doc: "The last axis of `indices` holds tuples of `k` indices, one for each of the `k` axes of `x` \
              behind the first `batch_dims`, which both operands share; each tuple is replaced by the \
              slice of `x` it names. Indices as in `gather`. (C1) `batch_dims` is not negative and less \
              than both ranks. (C2) `indices` is `i64` or `i32`. (C3) The batch sizes are the same. \
              (C4) The last size of `indices` is known, and 1 to the rank of `x` less `batch_dims`. \
              Source: ONNX GatherND, opset 13.",
    },
];

fn require_indices(dtype: DType) -> Result<(), Violation> {
    require(matches!(dtype, DType::I64 | DType::I32), "C2", || format!("{dtype} is not i64 or i32"))
}

fn require_axis(ctx: &OpCtx<'_>) -> Result<usize, Violation> {
    let (axis, x) = (ctx.attrs.int("axis"), ctx.first());
    require((0..x.rank() as i64).contains(&axis), "C1", || {
        format!("axis {axis} is not an axis of {x}")
    })?;
    Ok(axis as usize)
}

/// An index within an axis: negative ones count from the end, the rest is clamped.
fn within(index: IndexExpr, size: &Dim) -> IndexExpr {
    let minus_one_if_negative =
        index.clone().minimum(IndexExpr::size(0i64)).maximum(IndexExpr::size(-1i64));
    let from_front = index.plus(minus_one_if_negative.times(-size));
    let last = size - Dim::constant(1);
    from_front.minimum(IndexExpr::size(last)).maximum(IndexExpr::size(0i64))
}

/// One case; for axes that may be empty, only where they are not.
fn form(ctx: &OpCtx<'_>, axes: std::ops::Range<usize>, index: Vec<IndexExpr>) -> MovementForm {
    let maybe_empty = axes
        .map(|axis| &ctx.shape()[axis])
        .filter(|size| size.as_const().is_none_or(|size| size < 1));
    let guards: Vec<Guard> = maybe_empty
        .map(|size| Guard::Within {
            value: IndexExpr::size(size.clone()),
            low: Dim::constant(1),
            high: Dim::constant(i64::MAX),
        })
        .collect();
    let fill = (!guards.is_empty()).then(|| Scalar::new(ctx.first().dtype, 0.0));
    MovementForm { cases: vec![MovementCase { guards, operand: 0, index }], fill }
}

/// An index as [`within`] has it, or nothing for an empty axis.
fn resolve(index: i64, size: usize) -> Option<usize> {
    let position = if index < 0 { index.saturating_add(size as i64) } else { index };
    size.checked_sub(1).map(|last| position.clamp(0, last as i64) as usize)
}

fn infer_gather(ctx: &OpCtx<'_>) -> Result<Type, Violation> {
    let axis = require_axis(ctx)?;
    let (x, indices) = (ctx.first(), &ctx.operands[1]);
    require_indices(indices.dtype)?;
    let shape = [&x.shape[..axis], &indices.shape[..], &x.shape[axis + 1..]].concat();
    Ok(Type::new(x.dtype, shape))
}

fn gather_form(ctx: &OpCtx<'_>) -> MovementForm {
    let (axis, shape) = (ctx.attrs.axis("axis"), ctx.shape());
    let inserted = ctx.operands[1].rank();
    let element = IndexExpr::Element {
        operand: 1,
        index: (axis..axis + inserted).map(IndexExpr::axis).collect(),
    };
    let mut index: Vec<IndexExpr> = (0..axis).map(IndexExpr::axis).collect();
    index.push(within(element, &shape[axis]));
    index.extend((axis + 1..shape.rank()).map(|a| IndexExpr::axis(a - 1 + inserted)));
    form(ctx, axis..axis + 1, index)
}

fn eval_gather<T: Element>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    fn gather<E: Copy>(ctx: &EvalCtx<'_>, x: &Array<E>, indices: &[i64], zero: E) -> Array<E> {
        let axis = ctx.attrs.axis("axis");
        let outer: usize = x.shape[..axis].iter().product();
        let (length, inner) = (x.shape[axis], x.shape[axis + 1..].iter().product::<usize>());
        let mut data = Vec::with_capacity(outer * indices.len() * inner);
        for block in 0..outer {
            for &index in indices {
                match resolve(index, length) {
                    Some(position) => {
                        let start = (block * length + position) * inner;
                        data.extend_from_slice(&x.data[start..start + inner]);
                    }
                    None => data.resize(data.len() + inner, zero),
                }
            }
        }
        Array::new(ctx.shape, data)
    }
    let indices = &operands[1].int().data;
    match operands[0] {
        Value::Float(x) => Value::Float(gather(ctx, x, indices, T::zero())),
        Value::Int(x) => Value::Int(gather(ctx, x, indices, 0)),
    }
}

fn infer_gather_elements(ctx: &OpCtx<'_>) -> Result<Type, Violation> {
    let axis = require_axis(ctx)?;
    let (x, indices) = (ctx.first(), &ctx.operands[1]);
    require_indices(indices.dtype)?;
    let fits = |a: usize| {
        let room = &x.shape[a] - &indices.shape[a];
        a == axis || room.as_const().is_some_and(|room| room >= 0)
    };
    require(x.rank() == indices.rank() && (0..x.rank()).all(fits), "C3", || {
        format!("indices {} do not fit {} along axis {axis}", indices.shape, x.shape)
    })?;
    Ok(Type::new(x.dtype, indices.shape.clone()))
}

fn gather_elements_form(ctx: &OpCtx<'_>) -> MovementForm {
    let (axis, shape) = (ctx.attrs.axis("axis"), ctx.shape());
    let mut index: Vec<IndexExpr> = (0..shape.rank()).map(IndexExpr::axis).collect();
    let element = IndexExpr::Element { operand: 1, index: index.clone() };
    index[axis] = within(element, &shape[axis]);
    form(ctx, axis..axis + 1, index)
}

fn eval_gather_elements<T: Element>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    fn gather<E: Copy>(ctx: &EvalCtx<'_>, x: &Array<E>, indices: &[i64], zero: E) -> Array<E> {
        let axis = ctx.attrs.axis("axis");
        let mut position = vec![0; ctx.shape.len()];
        let mut data = Vec::with_capacity(indices.len());
        for &index in indices {
            let offset = |along: usize| {
                let along_axis = |a: usize| if a == axis { along } else { position[a] };
                (0..position.len()).fold(0, |offset, a| offset * x.shape[a] + along_axis(a))
            };
            data.push(resolve(index, x.shape[axis]).map_or(zero, |along| x.data[offset(along)]));
            advance(&mut position, ctx.shape);
        }
        Array::new(ctx.shape, data)
    }
    let indices = &operands[1].int().data;
    match operands[0] {
        Value::Float(x) => Value::Float(gather(ctx, x, indices, T::zero())),
        Value::Int(x) => Value::Int(gather(ctx, x, indices, 0)),
    }
}

/// The next position in row-major order.
fn advance(position: &mut [usize], shape: &[usize]) {
    for axis in (0..shape.len()).rev() {
        position[axis] += 1;
        if position[axis] < shape[axis] {
            return;
        }
        position[axis] = 0;
    }
}

fn infer_gather_nd(ctx: &OpCtx<'_>) -> Result<Type, Violation> {
    let (x, indices) = (ctx.first(), &ctx.operands[1]);
    let batch = ctx.attrs.int("batch_dims");
    let most = x.rank().min(indices.rank()) as i64;
    require((0..most).contains(&batch), "C1", || {
        format!("batch_dims {batch} is not in 0..{most}")
    })?;
    require_indices(indices.dtype)?;
    let batch = batch as usize;
    require(x.shape[..batch] == indices.shape[..batch], "C3", || {
        format!("the first {batch} sizes of {} and {} differ", x.shape, indices.shape)
    })?;
    let last = &indices.shape[indices.rank() - 1];
    let axes = last.as_const().filter(|k| (1..=(x.rank() - batch) as i64).contains(k));
    let Some(axes) = axes else {
        let message = format!("tuples of {last} indices for {} axes", x.rank() - batch);
        return Err(Violation::new("C4", message));
    };
    let tuples = &indices.shape[..indices.rank() - 1];
    let shape = [tuples, &x.shape[batch + axes as usize..]].concat();
    Ok(Type::new(x.dtype, shape))
}

/// `batch_dims`, and how many axes a tuple indexes.
fn gather_nd_axes(batch: i64, tuple: &Dim) -> (usize, usize) {
    let axes = tuple.as_const().expect("invariant: inference requires a known size");
    (batch as usize, axes as usize)
}

fn gather_nd_form(ctx: &OpCtx<'_>) -> MovementForm {
    let (x, indices) = (ctx.first(), &ctx.operands[1]);
    let tuples = indices.rank() - 1;
    let (batch, axes) = gather_nd_axes(ctx.attrs.int("batch_dims"), &indices.shape[tuples]);
    let mut index: Vec<IndexExpr> = (0..batch).map(IndexExpr::axis).collect();
    index.extend((0..axes).map(|axis| {
        let mut at: Vec<IndexExpr> = (0..tuples).map(IndexExpr::axis).collect();
        at.push(IndexExpr::size(axis));
        within(IndexExpr::Element { operand: 1, index: at }, &x.shape[batch + axis])
    }));
    index.extend((batch + axes..x.rank()).map(|axis| IndexExpr::axis(tuples + axis - batch - axes)));
    form(ctx, batch..batch + axes, index)
}

fn eval_gather_nd<T: Element>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    fn gather<E: Copy>(ctx: &EvalCtx<'_>, x: &Array<E>, indices: &Array<i64>, zero: E) -> Array<E> {
        let tuples = indices.shape.len() - 1;
        let (batch, axes) =
            gather_nd_axes(ctx.attrs.int("batch_dims"), &Dim::from(indices.shape[tuples]));
        let inner: usize = x.shape[batch + axes..].iter().product();
        let per_batch: usize = indices.shape[batch..tuples].iter().product();
        let mut data = Vec::with_capacity(ctx.shape.iter().product());
        for (number, tuple) in indices.data.chunks_exact(axes).enumerate() {
            let sizes = &x.shape[batch..batch + axes];
            let slice = tuple.iter().zip(sizes).try_fold(number / per_batch, |slice, (&i, &size)| {
                resolve(i, size).map(|position| slice * size + position)
            });
            match slice {
                Some(slice) => data.extend_from_slice(&x.data[slice * inner..(slice + 1) * inner]),
                None => data.resize(data.len() + inner, zero),
            }
        }
        Array::new(ctx.shape, data)
    }
    let indices = operands[1].int();
    match operands[0] {
        Value::Float(x) => Value::Float(gather(ctx, x, indices, T::zero())),
        Value::Int(x) => Value::Int(gather(ctx, x, indices, 0)),
    }
}
