//! What the pointwise families share: type rules, and evaluation element by element.

use super::domain::{Domain, require_same_types};
use super::{OpCtx, Violation};
use crate::interp::{Element, Real, Value};
use crate::{DType, ScalarExpr, Type};

/// An element of an operand.
pub(super) fn arg(index: usize) -> ScalarExpr {
    ScalarExpr::arg(index)
}

/// The result has the type of the first operand, which (C1) is in `domain`.
pub(super) fn same_as_operand(ctx: &OpCtx<'_>, domain: Domain) -> Result<Type, Violation> {
    domain.require(ctx.first().dtype, "C1")?;
    Ok(ctx.first().clone())
}

/// The result has the type of the operands, which (C1) is in `domain` and (C2) the same for all.
pub(super) fn same_as_operands(ctx: &OpCtx<'_>, domain: Domain) -> Result<Type, Violation> {
    domain.require(ctx.first().dtype, "C1")?;
    require_same_types(ctx, "C2")?;
    Ok(ctx.first().clone())
}

/// A bool for each element of the operands, whose type (C1) is in `domain` and (C2) the same for all.
pub(super) fn compares_operands(ctx: &OpCtx<'_>, domain: Domain) -> Result<Type, Violation> {
    let ty = same_as_operands(ctx, domain)?;
    Ok(Type::new(DType::Bool, ty.shape))
}

/// Applies a real function to each element.
pub(super) fn map_float<T: Real>(x: &Value<T>, function: impl Fn(f64) -> f64) -> Value<T> {
    Value::Float(x.float().map(|x| x.map(&function)))
}

/// Applies an integer function to each element.
pub(super) fn map_int<T: Element>(x: &Value<T>, function: impl Fn(i64) -> i64) -> Value<T> {
    Value::Int(x.int().map(function))
}
