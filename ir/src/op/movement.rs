//! Movement ops that only rearrange: which element goes where follows from the position alone.

use super::{
    Arity, MovementCase, MovementForm, OpClass, OpCtx, OpDef, Violation, require,
};
use crate::interp::{Array, Element, EvalCtx, Value, strides};
use crate::{
    AttrKind, Dim, Guard, IndexExpr, Shape, Type, delinearize, eval_polynomial, linearize,
};

pub(super) const DEFS: &[OpDef] = &[
    OpDef {
        name: "transpose",
        arity: Arity::Exactly(1),
        attrs: &[("perm", AttrKind::Ints)],
        infer: infer_transpose,
        eval: eval_polynomial!(eval_transpose),
        class: OpClass::Movement(transpose_form),
        doc: "Reorders axes: axis `i` of the result is axis `perm[i]` of the operand. \
              (C1) `perm` is a permutation of the axes. Source: ONNX Transpose, opset 25.",
    },
    OpDef {
        name: "reshape",
        arity: Arity::Exactly(1),
        attrs: &[("shape", AttrKind::Dims)],
        infer: infer_reshape,
        eval: eval_polynomial!(eval_reshape),
        class: OpClass::Movement(reshape_form),
        doc: "The same elements, in row-major order, under another shape. \
              (C1) `shape` has as many elements as the operand, for all values of symbols. \
              Source: ONNX Reshape, opset 25 (with 0 and -1 resolved).",
    },
    OpDef {
        name: "broadcast",
        arity: Arity::Exactly(1),
        attrs: &[("shape", AttrKind::Dims)],
        infer: infer_broadcast,
        eval: eval_polynomial!(eval_broadcast),
        class: OpClass::Movement(broadcast_form),
        doc: "Repeats the operand along new leading axes and axes of size 1. Axes correspond from the \
              last. (C1) `shape` has at least the operand's rank. (C2) Each size of the operand is 1 or \
              that of `shape`. Source: ONNX, Broadcasting in ONNX, unidirectional.",
    },
    OpDef {
        name: "slice",
        arity: Arity::Exactly(1),
        attrs: &[
            ("starts", AttrKind::Dims),
            ("sizes", AttrKind::Dims),
            ("steps", AttrKind::Ints),
        ],
        infer: infer_slice,
        eval: eval_polynomial!(eval_slice),
        class: OpClass::Movement(slice_form),
        doc: "Along each axis, `sizes` elements from `starts` on, `steps` apart, backwards if negative. \
              (C1) Each attribute has one entry per axis. (C2) No step is 0. (C3) All positions lie in \
              the operand; where symbols keep that from being decided, whoever builds the node sees to \
              it. Source: ONNX Slice, opset 13 (with negative and too large positions resolved).",
    },
    OpDef {
        name: "concat",
        arity: Arity::AtLeast(1),
        attrs: &[("axis", AttrKind::Int)],
        infer: infer_concat,
        eval: eval_polynomial!(eval_concat),
        class: OpClass::Movement(concat_form),
        doc: "The operands one after the other along `axis`. (C1) `axis` is an axis of the first operand. \
              (C2) The operands have the same element type, and the same shape but for `axis`. \
              Source: ONNX Concat, opset 13.",
    },
];

fn infer_transpose(ctx: &OpCtx<'_>) -> Result<Type, Violation> {
    let (perm, shape) = (ctx.attrs.ints("perm"), ctx.shape());
    let mut sorted = perm.to_vec();
    sorted.sort_unstable();
    require(sorted.iter().copied().eq(0..shape.rank() as i64), "C1", || {
        format!("{perm:?} is no permutation of the axes of {}", ctx.first())
    })?;
    let dims: Shape = ctx.attrs.axes("perm").iter().map(|&axis| shape[axis].clone()).collect();
    Ok(Type::new(ctx.first().dtype, dims))
}

fn transpose_form(ctx: &OpCtx<'_>) -> MovementForm {
    let mut index = vec![IndexExpr::size(0i64); ctx.shape().rank()];
    for (axis, from) in ctx.attrs.axes("perm").into_iter().enumerate() {
        index[from] = IndexExpr::axis(axis);
    }
    MovementForm::total(0, index)
}

fn eval_transpose<T: Element>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    let from = strides(operands[0].shape());
    let permuted: Vec<isize> = ctx.attrs.axes("perm").iter().map(|&axis| from[axis]).collect();
    operands[0].view(ctx.shape, &permuted, 0)
}

fn infer_reshape(ctx: &OpCtx<'_>) -> Result<Type, Violation> {
    let shape = Shape::from(ctx.attrs.dims("shape"));
    let (from, to) = (ctx.shape().elements(), shape.elements());
    require(from == to, "C1", || {
        format!("{} has {from} elements, but {shape} has {to}", ctx.shape())
    })?;
    Ok(Type::new(ctx.first().dtype, shape))
}

/// The shapes are cut into the finest groups of axes with equally many elements, so that an axis that
/// both shapes share maps to itself.
fn reshape_form(ctx: &OpCtx<'_>) -> MovementForm {
    let one = Dim::constant(1);
    let (from, to) = (ctx.shape(), ctx.attrs.dims("shape"));
    let mut index = vec![IndexExpr::size(0i64); from.rank()];
    let from_axes: Vec<usize> = (0..from.rank()).filter(|&axis| from[axis] != one).collect();
    let to_axes: Vec<usize> = (0..to.len()).filter(|&axis| to[axis] != one).collect();
    let (mut f, mut t) = (0, 0);
    while f < from_axes.len() && t < to_axes.len() {
        let (f_end, t_end) = group(&from_axes[f..], &to_axes[t..], from, to);
        let (sources, targets) = (&from_axes[f..f + f_end], &to_axes[t..t + t_end]);
        let sizes = |shape: &[Dim], axes: &[usize]| -> Vec<Dim> {
            axes.iter().map(|&axis| shape[axis].clone()).collect()
        };
        let position: Vec<IndexExpr> = targets.iter().map(|&axis| IndexExpr::axis(axis)).collect();
        let position = linearize(&position, &sizes(to, targets));
        for (&axis, expr) in sources.iter().zip(delinearize(&position, &sizes(from, sources))) {
            index[axis] = expr;
        }
        (f, t) = (f + f_end, t + t_end);
    }
    MovementForm::total(0, index)
}

/// How many leading axes of either shape have equally many elements: all, or as few as possible.
fn group(from_axes: &[usize], to_axes: &[usize], from: &[Dim], to: &[Dim]) -> (usize, usize) {
    let product = |shape: &[Dim], axes: &[usize]| -> Dim { axes.iter().map(|&a| &shape[a]).product() };
    for f in 1..=from_axes.len() {
        let elements = product(from, &from_axes[..f]);
        let is_match = |&t: &usize| product(to, &to_axes[..t]) == elements;
        if let Some(t) = (1..=to_axes.len()).find(is_match) {
            return (f, t);
        }
    }
    (from_axes.len(), to_axes.len())
}

fn eval_reshape<T: Element>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    match operands[0] {
        Value::Float(x) => Value::Float(Array::new(ctx.shape, x.data.clone())),
        Value::Int(x) => Value::Int(Array::new(ctx.shape, x.data.clone())),
    }
}

fn infer_broadcast(ctx: &OpCtx<'_>) -> Result<Type, Violation> {
    let (from, to) = (ctx.shape(), Shape::from(ctx.attrs.dims("shape")));
    require(to.rank() >= from.rank(), "C1", || format!("{to} has less axes than {from}"))?;
    let aligned = &to[to.rank() - from.rank()..];
    require(from.iter().zip(aligned).all(|(x, y)| x.is(1) || x == y), "C2", || {
        format!("{from} does not broadcast to {to}")
    })?;
    Ok(Type::new(ctx.first().dtype, to))
}

fn broadcast_form(ctx: &OpCtx<'_>) -> MovementForm {
    let from = ctx.shape();
    let leading = ctx.attrs.dims("shape").len() - from.rank();
    let index = (0..from.rank()).map(|axis| {
        if from[axis].is(1) { IndexExpr::size(0i64) } else { IndexExpr::axis(leading + axis) }
    });
    MovementForm::total(0, index.collect())
}

fn eval_broadcast<T: Element>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    let from = operands[0].shape();
    let mut repeated = vec![0; ctx.shape.len() - from.len()];
    let steps = strides(from);
    repeated.extend(from.iter().zip(&steps).map(|(&size, &step)| if size == 1 { 0 } else { step }));
    operands[0].view(ctx.shape, &repeated, 0)
}

fn infer_slice(ctx: &OpCtx<'_>) -> Result<Type, Violation> {
    let (starts, sizes) = (ctx.attrs.dims("starts"), ctx.attrs.dims("sizes"));
    let (steps, shape) = (ctx.attrs.ints("steps"), ctx.shape());
    let rank = shape.rank();
    require([starts.len(), sizes.len(), steps.len()] == [rank; 3], "C1", || {
        let (starts, sizes) = (starts.len(), sizes.len());
        format!("{starts} starts, {sizes} sizes and {} steps for {rank} axes", steps.len())
    })?;
    require(steps.iter().all(|&step| step != 0), "C2", || format!("steps {steps:?} has a 0"))?;
    for axis in 0..rank {
        let last = &starts[axis] + (&sizes[axis] - Dim::constant(1)) * Dim::constant(steps[axis]);
        let is_empty = sizes[axis].is(0);
        let outside = |position: &Dim| is_negative(position) || !is_less(position, &shape[axis]);
        require(!is_negative(&sizes[axis]), "C3", || format!("axis {axis}: negative size"))?;
        require(is_empty || !(outside(&starts[axis]) || outside(&last)), "C3", || {
            format!("axis {axis}: from {} to {last} in {} elements", starts[axis], shape[axis])
        })?;
    }
    Ok(Type::new(ctx.first().dtype, sizes))
}

/// Whether a size is known to be negative.
fn is_negative(dim: &Dim) -> bool {
    dim.as_const().is_some_and(|value| value < 0)
}

/// Whether one size is less than another, or may be.
fn is_less(dim: &Dim, other: &Dim) -> bool {
    (other - dim).as_const().is_none_or(|difference| difference > 0)
}

fn slice_form(ctx: &OpCtx<'_>) -> MovementForm {
    let (starts, steps) = (ctx.attrs.dims("starts"), ctx.attrs.ints("steps"));
    let index = starts.iter().zip(steps).enumerate().map(|(axis, (start, &step))| {
        IndexExpr::axis(axis).times(step).plus(IndexExpr::size(start.clone()))
    });
    MovementForm::total(0, index.collect())
}

fn eval_slice<T: Element>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    let dense = strides(operands[0].shape());
    let starts = ctx.numbers("starts");
    let start: isize = starts.iter().zip(&dense).map(|(&start, &step)| start as isize * step).sum();
    let steps = ctx.attrs.ints("steps").iter().zip(&dense);
    let steps: Vec<isize> = steps.map(|(&step, &dense)| step as isize * dense).collect();
    operands[0].view(ctx.shape, &steps, start)
}

fn infer_concat(ctx: &OpCtx<'_>) -> Result<Type, Violation> {
    let (axis, first) = (ctx.attrs.int("axis"), ctx.first());
    require((0..first.rank() as i64).contains(&axis), "C1", || {
        format!("axis {axis} is not an axis of {first}")
    })?;
    let axis = axis as usize;
    let mut dims = first.shape.to_vec();
    for other in &ctx.operands[1..] {
        let fits = other.dtype == first.dtype
            && other.rank() == first.rank()
            && (0..first.rank()).all(|a| a == axis || other.shape[a] == first.shape[a]);
        require(fits, "C2", || format!("{first} and {other} do not join along axis {axis}"))?;
        dims[axis] = &dims[axis] + &other.shape[axis];
    }
    Ok(Type::new(first.dtype, dims))
}

fn concat_form(ctx: &OpCtx<'_>) -> MovementForm {
    let (axis, rank) = (ctx.attrs.axis("axis"), ctx.shape().rank());
    let mut start = Dim::constant(0);
    let last = ctx.operands.len() - 1;
    let cases = ctx.operands.iter().enumerate().map(|(operand, ty)| {
        let end = &start + &ty.shape[axis];
        let mut index: Vec<IndexExpr> = (0..rank).map(IndexExpr::axis).collect();
        index[axis] = IndexExpr::axis(axis).plus(IndexExpr::size(-&start));
        let inside =
            Guard::Within { value: IndexExpr::axis(axis), low: start.clone(), high: end.clone() };
        start = end;
        MovementCase {
            guards: if operand == last { Vec::new() } else { vec![inside] },
            operand,
            index,
        }
    });
    MovementForm { cases: cases.collect(), fill: None }
}

fn eval_concat<T: Element>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    fn join<E: Copy>(axis: usize, shape: &[usize], parts: &[&Array<E>]) -> Array<E> {
        let outer: usize = shape[..axis].iter().product();
        let mut data = Vec::with_capacity(shape.iter().product());
        for block in 0..outer {
            for part in parts {
                let length: usize = part.shape[axis..].iter().product();
                data.extend_from_slice(&part.data[block * length..(block + 1) * length]);
            }
        }
        Array::new(shape, data)
    }
    let axis = ctx.attrs.axis("axis");
    match operands[0] {
        Value::Float(_) => {
            let parts: Vec<_> = operands.iter().map(|operand| operand.float()).collect();
            Value::Float(join(axis, ctx.shape, &parts))
        }
        Value::Int(_) => {
            let parts: Vec<_> = operands.iter().map(|operand| operand.int()).collect();
            Value::Int(join(axis, ctx.shape, &parts))
        }
    }
}
