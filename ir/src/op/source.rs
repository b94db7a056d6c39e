//! Ops that bring values into a graph.

use fornax_bundle::DType;

use super::{Arity, OpClass, OpCtx, OpDef, SourceKind, Violation, require};
use crate::interp::Eval;
use crate::{AttrKind, Type};

pub(super) const DEFS: &[OpDef] = &[
    OpDef {
        name: "input",
        arity: Arity::Exactly(0),
        attrs: &[("name", AttrKind::Text), ("dtype", AttrKind::DType), ("shape", AttrKind::Dims)],
        infer: declared,
        eval: Eval::Source,
        class: OpClass::Source(SourceKind::Input),
        doc: "A tensor that the caller gives at each run.",
    },
    OpDef {
        name: "weight",
        arity: Arity::Exactly(0),
        attrs: &[("name", AttrKind::Text), ("dtype", AttrKind::DType), ("shape", AttrKind::Dims)],
        infer: weight,
        eval: Eval::Source,
        class: OpClass::Source(SourceKind::Weight),
        doc: "A tensor of the model that is bound by name when a bundle is loaded. \
              (C1) All sizes are known.",
    },
    OpDef {
        name: "constant",
        arity: Arity::Exactly(0),
        attrs: &[("value", AttrKind::Tensor)],
        infer: constant,
        eval: Eval::Source,
        class: OpClass::Source(SourceKind::Constant),
        doc: "A tensor that is part of the graph. Kept small: large ones are weights.",
    },
    OpDef {
        name: "iota",
        arity: Arity::Exactly(0),
        attrs: &[("axis", AttrKind::Int), ("dtype", AttrKind::DType), ("shape", AttrKind::Dims)],
        infer: iota,
        eval: Eval::Source,
        class: OpClass::Source(SourceKind::Iota),
        doc: "The position along `axis`, at every position of `shape`. \
              (C1) `axis` is an axis of `shape`. (C2) `dtype` is `i64` or `i32`.",
    },
];

fn declared(ctx: &OpCtx<'_>) -> Result<Type, Violation> {
    Ok(Type::new(ctx.attrs.dtype("dtype"), ctx.attrs.dims("shape")))
}

fn weight(ctx: &OpCtx<'_>) -> Result<Type, Violation> {
    let ty = declared(ctx)?;
    require(ty.shape.as_const().is_some(), "C1", || format!("the sizes of {ty} are not known"))?;
    Ok(ty)
}

fn constant(ctx: &OpCtx<'_>) -> Result<Type, Violation> {
    let value = ctx.attrs.tensor("value");
    Ok(Type::new(value.dtype(), value.shape()))
}

fn iota(ctx: &OpCtx<'_>) -> Result<Type, Violation> {
    let (axis, shape) = (ctx.attrs.int("axis"), ctx.attrs.dims("shape"));
    require((0..shape.len() as i64).contains(&axis), "C1", || {
        format!("axis {axis} is not an axis of rank {}", shape.len())
    })?;
    let dtype = ctx.attrs.dtype("dtype");
    require(matches!(dtype, DType::I64 | DType::I32), "C2", || format!("{dtype} is not i64 or i32"))?;
    Ok(Type::new(dtype, shape))
}
