//! Functions of `f32`: at most 2 units in the last place.

mod error_function;
mod exponential;
mod hyperbolic;
mod inverse;
mod logarithm;
mod power;
mod trigonometric;

pub(crate) use error_function::{erf, erfc};
pub(crate) use exponential::{exp, expm1};
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

/// `2^n` for a whole number `n` in -126..=127.
///
/// The bias is added before the conversion to an integer: LLVM's straight-line strength reduction compares
/// all integer additions of one constant with one another, for which a long epilogue would pay with the
/// square of its length.
fn power_of_two<M: FloatOps>(m: &M, n: M::Float) -> M::Float {
    let exponent = m.to_int(m.add(n, m.float(BIAS as f64)));
    m.float_of_bits(m.shl(exponent, m.int(FRACTION_BITS)))
}

/// `x * 2^(n + extra)` for whole numbers that add up to one in -252..=254, rounded once if `x` is about 1.
fn scale<M: FloatOps>(m: &M, x: M::Float, n: M::Float, extra: i64) -> M::Float {
    // The exponents of two factors with their biases, which as a sum is not negative.
    let both = m.to_int(m.add(n, m.float((2 * BIAS + extra) as f64)));
    let first = m.shr(both, m.int(1));
    let second = m.int_sub(both, first);
    let power = |exponent| m.float_of_bits(m.shl(exponent, m.int(FRACTION_BITS)));
    m.mul(m.mul(x, power(first)), power(second))
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
