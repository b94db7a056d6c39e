//! Our own expansions of the mathematical functions.
//!
//! Each function is written once over [`FloatOps`], the operations that a GPU executes with correct
//! rounding, so the same formula emits PTX and runs on the host, where a test compares it with `f64`
//! over the whole range of `f32`: at most 2 units in the last place (what is composed of others: as its test says), subnormal numbers, infinities, NaN
//! and negative zero included. Common paths have no branches.
//!
//! For `f64` there are the exponential and logarithmic functions, those built on them, and the remainder,
//! to 4 units in the last place; the other functions of [`single`] have no expansion yet.
//!
//! The polynomials' coefficients are derived by `minimax.py` in this folder; the name of the function it
//! fits stands at each of them.

pub(crate) mod double;
mod remainder;
pub(crate) mod single;

pub(crate) use remainder::fmod;

#[cfg(test)]
mod host;
#[cfg(test)]
mod tests;

/// A float format and the integers beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Width {
    /// Bits in all.
    pub bits: i64,
    /// Bits of the fraction.
    pub fraction_bits: i64,
}

impl Width {
    /// IEEE 754 binary32.
    pub const SINGLE: Width = Width { bits: 32, fraction_bits: 23 };
    /// IEEE 754 binary64.
    pub const DOUBLE: Width = Width { bits: 64, fraction_bits: 52 };

    /// The bit of the sign.
    fn sign(self) -> i64 {
        1 << (self.bits - 1)
    }
}

/// Operations on numbers of one float width and the integers of the same width.
///
/// Float operations round to nearest even and treat subnormal numbers as numbers. Comparisons are false
/// with NaN. Integers wrap; `shr` shifts zeros in, and shift counts are less than the width.
pub(crate) trait FloatOps {
    /// A float.
    type Float: Copy;
    /// An integer with as many bits.
    type Int: Copy;
    /// A truth value.
    type Bool: Copy;

    /// The format.
    fn width(&self) -> Width;
    /// A number, rounded to the width.
    fn float(&self, value: f64) -> Self::Float;
    /// An integer constant.
    fn int(&self, value: i64) -> Self::Int;

    fn add(&self, a: Self::Float, b: Self::Float) -> Self::Float;
    fn sub(&self, a: Self::Float, b: Self::Float) -> Self::Float;
    fn mul(&self, a: Self::Float, b: Self::Float) -> Self::Float;
    fn div(&self, a: Self::Float, b: Self::Float) -> Self::Float;
    /// `a * b + c`, rounded once.
    fn fma(&self, a: Self::Float, b: Self::Float, c: Self::Float) -> Self::Float;
    fn neg(&self, a: Self::Float) -> Self::Float;
    fn abs(&self, a: Self::Float) -> Self::Float;
    fn sqrt(&self, a: Self::Float) -> Self::Float;
    /// The larger, where -0 < +0; NaN if one is NaN.
    fn max(&self, a: Self::Float, b: Self::Float) -> Self::Float;
    /// The smaller, where -0 < +0; NaN if one is NaN.
    fn min(&self, a: Self::Float, b: Self::Float) -> Self::Float;
    /// `1 / a` for `a` between 2^-126 and 2^126, with a relative error of at most 2^-23 (PTX ISA, "rcp").
    fn inverse_near(&self, a: Self::Float) -> Self::Float;
    /// The nearest integer, ties to even.
    fn rint(&self, a: Self::Float) -> Self::Float;
    /// Rounded towards zero.
    fn trunc(&self, a: Self::Float) -> Self::Float;

    fn lt(&self, a: Self::Float, b: Self::Float) -> Self::Bool;
    fn eq(&self, a: Self::Float, b: Self::Float) -> Self::Bool;
    fn and(&self, a: Self::Bool, b: Self::Bool) -> Self::Bool;
    fn or(&self, a: Self::Bool, b: Self::Bool) -> Self::Bool;
    fn not(&self, a: Self::Bool) -> Self::Bool;
    fn select(&self, c: Self::Bool, then: Self::Float, otherwise: Self::Float) -> Self::Float;
    fn select_int(&self, c: Self::Bool, then: Self::Int, otherwise: Self::Int) -> Self::Int;

    /// The float's bits.
    fn bits(&self, a: Self::Float) -> Self::Int;
    /// The float with these bits.
    fn float_of_bits(&self, a: Self::Int) -> Self::Float;
    /// The float's integer part, which fits; anything for NaN.
    fn to_int(&self, a: Self::Float) -> Self::Int;
    /// The nearest float of a signed integer.
    fn float_of_int(&self, a: Self::Int) -> Self::Float;

    fn int_add(&self, a: Self::Int, b: Self::Int) -> Self::Int;
    fn int_sub(&self, a: Self::Int, b: Self::Int) -> Self::Int;
    fn int_mul(&self, a: Self::Int, b: Self::Int) -> Self::Int;
    /// The upper half of the unsigned product.
    fn mul_high(&self, a: Self::Int, b: Self::Int) -> Self::Int;
    /// The unsigned remainder, by a number that is not zero.
    fn int_rem(&self, a: Self::Int, b: Self::Int) -> Self::Int;
    fn int_and(&self, a: Self::Int, b: Self::Int) -> Self::Int;
    fn int_or(&self, a: Self::Int, b: Self::Int) -> Self::Int;
    fn int_xor(&self, a: Self::Int, b: Self::Int) -> Self::Int;
    fn shl(&self, a: Self::Int, count: Self::Int) -> Self::Int;
    fn shr(&self, a: Self::Int, count: Self::Int) -> Self::Int;
    fn int_eq(&self, a: Self::Int, b: Self::Int) -> Self::Bool;
    /// Signed comparison.
    fn int_lt(&self, a: Self::Int, b: Self::Int) -> Self::Bool;
    /// Unsigned comparison.
    fn int_below(&self, a: Self::Int, b: Self::Int) -> Self::Bool;

    /// `rare()` where the condition holds, which it hardly ever does; else `usual`.
    fn unless_rare<const N: usize>(
        &self,
        condition: Self::Bool,
        usual: [Self::Int; N],
        rare: impl FnOnce(&Self) -> [Self::Int; N],
    ) -> [Self::Int; N];

    /// Repeats `round` on a state as long as `more` holds for it.
    fn repeat<const N: usize>(
        &self,
        state: [Self::Int; N],
        more: impl Fn(&Self, [Self::Int; N]) -> Self::Bool,
        round: impl Fn(&Self, [Self::Int; N]) -> [Self::Int; N],
    ) -> [Self::Int; N];
}

/// A polynomial by Horner's rule; coefficients from the lowest power on.
fn polynomial<M: FloatOps>(m: &M, x: M::Float, coefficients: &[f64]) -> M::Float {
    let (last, rest) = coefficients.split_last().expect("invariant: a polynomial has coefficients");
    rest.iter().rev().fold(m.float(*last), |sum, &c| m.fma(sum, x, m.float(c)))
}
