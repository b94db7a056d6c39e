//! Conversion between element types.

use super::domain::Domain;
use super::pointwise::arg;
use super::{Arity, OpClass, OpDef};
use crate::interp::{EvalCtx, Real, Value, rounded};
use crate::{AttrKind, DType, Type, eval_real};

pub(super) const DEFS: &[OpDef] = &[OpDef {
    name: "cast",
    arity: Arity::Exactly(1),
    attrs: &[("to", AttrKind::DType)],
    infer: |ctx| {
        let to = ctx.attrs.dtype("to");
        Domain::Any.require(ctx.first().dtype, "C1")?;
        Domain::Any.require(to, "C2")?;
        Ok(Type::new(to, ctx.shape().clone()))
    },
    eval: eval_real!(eval),
    class: OpClass::Pointwise(|ctx| {
        let to = ctx.attrs.dtype("to");
        if ctx.first().dtype == to { arg(0) } else { arg(0).cast(to) }
    }),
    doc: "`x` converted to the type `to` (ONNX Cast, opset 19). To a float: rounded to nearest, ties \
          to even, beyond the range an infinity. From float to integer: towards zero; where ONNX leaves \
          it open, beyond the range the nearest integer of the type, and NaN gives 0. Between integers: \
          modulo 2^width. To bool: whether `x` is not zero, so NaN is true. From bool: 0 or 1. \
          (C1) `x` is no 8-bit float. (C2) `to` is no 8-bit float.",
}];

fn eval<T: Real>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    let (from, to) = (ctx.operands[0].dtype, ctx.result.dtype);
    match operands[0] {
        Value::Float(x) if is_widening(from, to) => Value::Float(x.clone()),
        Value::Float(x) if to.is_float() => {
            Value::Float(x.map(|x| T::from_f64(rounded(to, x.to_f64()))))
        }
        Value::Float(x) => Value::Int(x.map(|x| to_integer(to, x.to_f64()))),
        // The driver wraps to the type.
        Value::Int(x) if !to.is_float() => Value::Int(x.clone()),
        Value::Int(x) => Value::Float(x.map(|x| T::from_f64(to_float(from, to, x)))),
    }
}

/// Whether every number of the one float type is one of the other.
fn is_widening(from: DType, to: DType) -> bool {
    from == to || (to.is_float() && to.size() > from.size())
}

/// Rust's conversions from floats are towards zero and saturating, and NaN gives 0.
fn to_integer(to: DType, x: f64) -> i64 {
    match to {
        DType::Bool => i64::from(x != 0.0),
        DType::I32 => i64::from(x as i32),
        DType::I16 => i64::from(x as i16),
        DType::I8 => i64::from(x as i8),
        DType::U64 => x as u64 as i64,
        DType::U32 => i64::from(x as u32),
        DType::U16 => i64::from(x as u16),
        DType::U8 => i64::from(x as u8),
        _ => x as i64,
    }
}

/// The float nearest to an integer. Beyond 2^53 the bits that `f64` lacks are kept as one sticky bit, so
/// that rounding twice, by way of `f64`, gives what rounding once would.
fn to_float(from: DType, to: DType, x: i64) -> f64 {
    if to == DType::F64 {
        return if from == DType::U64 { x as u64 as f64 } else { x as f64 };
    }
    let is_negative = from != DType::U64 && x < 0;
    let magnitude = if is_negative { x.unsigned_abs() } else { x as u64 };
    let real = if magnitude < 1 << 53 {
        magnitude as f64
    } else {
        let sticky = u64::from(magnitude & 0x7ff != 0);
        ((magnitude >> 11) | sticky) as f64 * 2048.0
    };
    rounded(to, if is_negative { -real } else { real })
}
