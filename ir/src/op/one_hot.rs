//! One-hot encoding.

use fornax_bundle::{DType, Dim};

use super::domain::Domain;
use super::{Arity, Expansion, OpClass, OpCtx, OpDef, Violation, require};
use crate::interp::{Array, EvalCtx, Real, Value};
use crate::{AttrKind, Diagnostic, NodeId, Type, attrs, eval_real};

pub(super) const DEFS: &[OpDef] = &[OpDef {
    name: "one_hot",
    arity: Arity::Exactly(2),
    attrs: &[("axis", AttrKind::Int), ("depth", AttrKind::Int)],
    infer,
    eval: eval_real!(eval),
    class: OpClass::Composite(expand),
    doc: "A new axis of size `depth` at `axis`, with the second of `values` where the position is \
          the element of `indices` and the first elsewhere; operands `indices` and `values`. A \
          negative index counts from the end; one outside `[-depth, depth)` has no position. (C1) \
          `indices` is `i64` or `i32`. (C2) `values` has shape `[2]`. (C3) `depth` is not \
          negative. (C4) `axis` is an axis of the result. Source: ONNX OneHot, opset 11.",
}];

fn infer(ctx: &OpCtx<'_>) -> Result<Type, Violation> {
    let (indices, values) = (&ctx.operands[0], &ctx.operands[1]);
    let (axis, depth) = (ctx.attrs.int("axis"), ctx.attrs.int("depth"));
    require(matches!(indices.dtype, DType::I64 | DType::I32), "C1", || {
        format!("{} is not i64 or i32", indices.dtype)
    })?;
    Domain::Any.require(values.dtype, "C2")?;
    require(values.rank() == 1 && values.shape[0].is(2), "C2", || {
        format!("{values} is not two values")
    })?;
    require((0..1 << 31).contains(&depth), "C3", || format!("`depth` is {depth}"))?;
    require((0..=indices.rank() as i64).contains(&axis), "C4", || {
        format!("axis {axis} is no axis of a result of rank {}", indices.rank() + 1)
    })?;
    let mut shape = indices.shape.to_vec();
    shape.insert(axis as usize, Dim::constant(depth));
    Ok(Type::new(values.dtype, shape))
}

fn eval<T: Real>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    let indices = operands[0].int();
    match operands[1] {
        Value::Float(values) => Value::Float(encode(ctx, indices, &values.data)),
        Value::Int(values) => Value::Int(encode(ctx, indices, &values.data)),
    }
}

fn encode<N: Copy>(ctx: &EvalCtx<'_>, indices: &Array<i64>, values: &[N]) -> Array<N> {
    let (axis, depth) = (ctx.attrs.axis("axis"), ctx.attrs.int("depth"));
    let inner: usize = indices.shape[axis..].iter().product();
    let (off, on) = (values[0], values[1]);
    let mut data = vec![off; ctx.shape.iter().product()];
    for (i, &index) in indices.data.iter().enumerate() {
        let position = if index < 0 { index + depth } else { index };
        if (0..depth).contains(&position) {
            data[(i / inner * depth as usize + position as usize) * inner + i % inner] = on;
        }
    }
    Array::new(ctx.shape, data)
}

fn expand(ctx: &OpCtx<'_>, to: &mut Expansion<'_>) -> Result<NodeId, Diagnostic> {
    let (axis, depth) = (ctx.attrs.int("axis"), ctx.attrs.int("depth"));
    let indices = &ctx.operands[0];
    let mut shape = indices.shape.to_vec();
    shape.insert(axis as usize, Dim::constant(1));
    let index = to.reshape(to.operands[0], shape.clone())?;
    let is_negative = to.with_number("lt", index, 0.0)?;
    let from_end = to.with_number("add", index, depth as f64)?;
    let index = to.select(is_negative, from_end, index)?;
    shape[axis as usize] = Dim::constant(depth);
    let positions = attrs! { axis: axis, dtype: indices.dtype, shape: shape };
    let positions = to.add("iota", positions, &[])?;
    let hit = to.binary("eq", positions, index)?;
    let [off, on] = [value(to, 0)?, value(to, 1)?];
    to.select(hit, on, off)
}

/// One of the two values, of rank 0.
fn value(to: &mut Expansion<'_>, position: i64) -> Result<NodeId, Diagnostic> {
    let one = attrs! {
        starts: vec![Dim::constant(position)],
        sizes: vec![Dim::constant(1)],
        steps: vec![1i64],
    };
    let value = to.add("slice", one, &[to.operands[1]])?;
    to.reshape(value, Vec::<Dim>::new())
}
