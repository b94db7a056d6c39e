//! Functions of `f32`: at most 2 units in the last place.

mod error_function;
mod exponential;
mod hyperbolic;
mod inverse;
mod logarithm;
mod power;
mod trigonometric;

pub(crate) use error_function::{erf, erfc, gelu};
pub(crate) use exponential::{exp, expm1, mish, sigmoid, softplus};
pub(crate) use hyperbolic::{acosh, asinh, atanh, cosh, sinh, tanh};
pub(crate) use inverse::{acos, asin, atan};
pub(crate) use logarithm::{log, log1p};
pub(crate) use power::pow;
pub(crate) use trigonometric::{cos, sin, tan};

use super::{FloatOps, polynomial};

/// The bits of an exponent of 0, and where the exponent begins (IEEE 754 binary32).
const BIAS: i64 = 127;
const FRACTION_BITS: i64 = 23;
const SIGN: i64 = 0x8000_0000;

/// The number that a float between -2^22 and 2^22 rounds to when it is added: its last bit stands for 1
/// (Cody and Waite, "Software Manual for the Elementary Functions", 1980).
const ROUNDER: f64 = 12582912.0;

/// A whole number in two forms.
#[derive(Clone, Copy)]
struct Whole<F, I> {
    float: F,
    /// With a bias in the lowest nine bits, and half as large in the lowest nine after a logical shift by
    /// one; the bits above are the same for all.
    bits: I,
}

/// The whole number next to `x * factor`, of a magnitude of less than 2^8; `bias` is not negative, as is its
/// sum with the number.
///
/// The bias is part of the rounding: integer additions of one constant would be compared with one another by
/// LLVM's straight-line strength reduction, for which a long epilogue would pay with the square of its length.
fn nearest<M: FloatOps>(m: &M, x: M::Float, factor: f64, bias: i64) -> Whole<M::Float, M::Int> {
    let rounder = m.float(ROUNDER + bias as f64);
    let sum = m.fma(x, m.float(factor), rounder);
    Whole { float: m.sub(sum, rounder), bits: m.bits(sum) }
}

/// `2^n` for a whole number `n` in -126..=127 with a bias of [`BIAS`].
fn power_of_two<M: FloatOps>(m: &M, n: M::Int) -> M::Float {
    m.float_of_bits(m.shl(n, m.int(FRACTION_BITS)))
}

/// `x * 2^n` for a whole number `n` in -252..=254 with a bias of twice [`BIAS`], rounded once if `x` is about
/// 1.
fn scale<M: FloatOps>(m: &M, x: M::Float, n: M::Int) -> M::Float {
    let first = m.shr(n, m.int(1));
    let second = m.int_sub(n, first);
    m.mul(m.mul(x, power_of_two(m, first)), power_of_two(m, second))
}

/// The bias of the exponents that [`scale_down`] takes.
const DOWN_BIAS: i64 = BIAS + 64;

/// `x * 2^n` for a whole number `n` in -190..=0 with a bias of [`DOWN_BIAS`], rounded once.
fn scale_down<M: FloatOps>(m: &M, x: M::Float, n: M::Int) -> M::Float {
    m.mul(m.mul(x, power_of_two(m, n)), m.float(2f64.powi(-64)))
}

/// `x` with the sign of `sign`, for `x` that is not negative.
fn with_sign<M: FloatOps>(m: &M, x: M::Float, sign: M::Float) -> M::Float {
    let sign = m.int_and(m.bits(sign), m.int(SIGN));
    m.float_of_bits(m.int_or(m.bits(x), sign))
}

/// `x + x^3 q(x^2)`, for odd functions near 0; the sign of zero is lost.
fn odd<M: FloatOps>(m: &M, x: M::Float, coefficients: &[f64]) -> M::Float {
    let square = m.mul(x, x);
    let cube = m.mul(square, x);
    m.fma(polynomial(m, square, coefficients), cube, x)
}
