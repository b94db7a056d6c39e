//! Exact folding of instructions whose operands are known, so that lowerings can be written plainly.
//!
//! Only what holds for every value bit by bit is folded. Floats are left alone except for `x * 1`,
//! `x / 1` and constants converted to another type.

use fornax_bundle::DType;
use fornax_ir::{BinaryFn, Float, Scalar, UnaryFn};

/// What an instruction with some known operands comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Folded {
    /// A number.
    Number(Scalar),
    /// The left (or only) operand.
    Left,
    /// The right operand.
    Right,
}

/// `value` wrapped to the width of an integer type (`u64` by its bits), 0 or 1 for bool.
pub(super) fn wrap(dtype: DType, value: i64) -> Scalar {
    let value = match dtype {
        DType::I32 => i64::from(value as i32),
        DType::I16 => i64::from(value as i16),
        DType::I8 => i64::from(value as i8),
        DType::U32 => i64::from(value as u32),
        DType::U16 => i64::from(value as u16),
        DType::U8 => i64::from(value as u8),
        DType::Bool => i64::from(value != 0),
        _ => value,
    };
    Scalar::Int(dtype, value)
}

/// The value of a function of one known integer or bool.
pub(super) fn unary(function: UnaryFn, x: Scalar) -> Option<Scalar> {
    let Scalar::Int(dtype, value) = x else { return None };
    match function {
        UnaryFn::Neg if dtype.is_int() => Some(wrap(dtype, value.wrapping_neg())),
        UnaryFn::Not if dtype == DType::Bool => Some(wrap(dtype, 1 - value)),
        _ => None,
    }
}

/// A function of two operands of one type, of which some are known.
pub(super) fn binary(function: BinaryFn, a: Option<Scalar>, b: Option<Scalar>) -> Option<Folded> {
    match (a, b) {
        (Some(Scalar::Int(dtype, a)), Some(Scalar::Int(_, b))) => {
            integers(function, dtype, a, b).map(Folded::Number)
        }
        (Some(known), _) => left_known(function, known),
        (_, Some(known)) => right_known(function, known),
        (None, None) => None,
    }
}

fn integers(function: BinaryFn, dtype: DType, a: i64, b: i64) -> Option<Scalar> {
    let unsigned = dtype == DType::U64;
    let order = if unsigned { (a as u64).cmp(&(b as u64)) } else { a.cmp(&b) };
    let small = !unsigned && b > 0;
    let truth = |value: bool| Some(Scalar::Int(DType::Bool, value.into()));
    let value = match function {
        BinaryFn::Add => a.wrapping_add(b),
        BinaryFn::Sub => a.wrapping_sub(b),
        BinaryFn::Mul => a.wrapping_mul(b),
        BinaryFn::Div if small => a / b,
        BinaryFn::Rem if small => a % b,
        BinaryFn::Mod if small => a.rem_euclid(b),
        BinaryFn::Max => {
            if order.is_ge() {
                a
            } else {
                b
            }
        }
        BinaryFn::Min => {
            if order.is_le() {
                a
            } else {
                b
            }
        }
        BinaryFn::And => a & b,
        BinaryFn::Or => a | b,
        BinaryFn::Xor => a ^ b,
        BinaryFn::Eq => return truth(order.is_eq()),
        BinaryFn::Lt => return truth(order.is_lt()),
        BinaryFn::Le => return truth(order.is_le()),
        _ => return None,
    };
    Some(wrap(dtype, value))
}

fn left_known(function: BinaryFn, known: Scalar) -> Option<Folded> {
    match (function, known) {
        (BinaryFn::Add | BinaryFn::Or | BinaryFn::Xor, Scalar::Int(_, 0)) => Some(Folded::Right),
        (BinaryFn::Mul, Scalar::Int(_, 1)) => Some(Folded::Right),
        (BinaryFn::And, Scalar::Int(DType::Bool, 1)) => Some(Folded::Right),
        (
            BinaryFn::Mul | BinaryFn::And | BinaryFn::Div | BinaryFn::Rem | BinaryFn::Mod,
            Scalar::Int(_, 0),
        ) => Some(Folded::Number(known)),
        (BinaryFn::Or, Scalar::Int(DType::Bool, 1)) => Some(Folded::Number(known)),
        (BinaryFn::Mul, Scalar::Float(_, Float(1.0))) => Some(Folded::Right),
        _ => None,
    }
}

fn right_known(function: BinaryFn, known: Scalar) -> Option<Folded> {
    match (function, known) {
        (
            BinaryFn::Add
            | BinaryFn::Sub
            | BinaryFn::Or
            | BinaryFn::Xor
            | BinaryFn::Shl
            | BinaryFn::Shr,
            Scalar::Int(_, 0),
        ) => Some(Folded::Left),
        (BinaryFn::Mul | BinaryFn::Div, Scalar::Int(_, 1)) => Some(Folded::Left),
        (BinaryFn::And, Scalar::Int(DType::Bool, 1)) => Some(Folded::Left),
        (BinaryFn::Mul | BinaryFn::And, Scalar::Int(_, 0)) => Some(Folded::Number(known)),
        (BinaryFn::Or, Scalar::Int(DType::Bool, 1)) => Some(Folded::Number(known)),
        (BinaryFn::Rem | BinaryFn::Mod, Scalar::Int(dtype, 1)) => {
            Some(Folded::Number(Scalar::Int(dtype, 0)))
        }
        (BinaryFn::Mul | BinaryFn::Div, Scalar::Float(_, Float(1.0))) => Some(Folded::Left),
        _ => None,
    }
}

/// A known number converted to another type; none where it would have to be rounded.
pub(super) fn cast(to: DType, x: Scalar) -> Option<Scalar> {
    match x {
        Scalar::Int(DType::U64, value) if value < 0 && to != DType::I64 && to != DType::U64 => None,
        Scalar::Int(_, value) if !to.is_float() => Some(wrap(to, value)),
        Scalar::Int(_, value) => {
            // Integers of this size are exact in every float type that is computed with.
            (value.abs() <= 256).then_some(Scalar::Float(to, Float(value as f64)))
        }
        Scalar::Float(_, value) if to == DType::F64 => Some(Scalar::Float(to, value)),
        Scalar::Float(..) => None,
    }
}
