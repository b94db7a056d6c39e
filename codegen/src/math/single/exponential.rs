//! The exponential function.

use super::{FloatOps, polynomial, power_of_two, scale};

/// ln 2 in two parts; the first has few enough bits for its multiples by whole numbers up to 2^8 to be
/// exact (Cody and Waite, "Software Manual for the Elementary Functions", 1980, chapter 6).
pub(super) const LN_2_HIGH: f64 = 0.693145751953125;
pub(super) const LN_2_LOW: f64 = 1.428606765330187e-6;

/// `minimax.py`: "exp: (e^r - 1 - r) / r^2".
const EXP: [f64; 5] = [0.499999940, 0.166665167, 0.0416681059, 0.00836914033, 0.00138367433];

/// `minimax.py`: "expm1: (e^r - 1 - r) / r^2".
const EXPM1: [f64; 6] =
    [0.500000060, 0.166666791, 0.0416649431, 0.00833143201, 0.00140110147, 0.000205057644];

/// `x` as `n ln 2 + r`, with `|r| <= ln 2 / 2`.
fn reduce<M: FloatOps>(m: &M, x: M::Float) -> (M::Float, M::Float) {
    let n = m.rint(m.mul(x, m.float(std::f64::consts::LOG2_E)));
    let r = m.fma(n, m.float(-LN_2_HIGH), x);
    (n, m.fma(n, m.float(-LN_2_LOW), r))
}

/// `x` kept within bounds beyond which the result is 0 or infinite anyway; NaN stays.
fn clamp<M: FloatOps>(m: &M, x: M::Float, low: f64, high: f64) -> M::Float {
    let (low, high) = (m.float(low), m.float(high));
    let x = m.select(m.lt(x, low), low, x);
    m.select(m.lt(high, x), high, x)
}

/// `n` and `e^r - 1` with `e^(x + low) = 2^n e^r`, for a small correction `low` of a moderate `x`.
pub(super) fn exp_parts<M: FloatOps>(m: &M, x: M::Float, low: M::Float) -> (M::Float, M::Float) {
    let (n, r) = reduce(m, x);
    let r = m.add(r, low);
    (n, m.fma(polynomial(m, r, &EXP), m.mul(r, r), r))
}

/// `e^x * 2^extra` for a small whole number `extra`.
pub(super) fn exp_scaled<M: FloatOps>(m: &M, x: M::Float, extra: i64) -> M::Float {
    let (n, r) = reduce(m, clamp(m, x, -105.0, 90.0));
    let p = polynomial(m, r, &EXP);
    let p = m.add(m.fma(p, m.mul(r, r), r), m.float(1.0));
    scale(m, p, n, extra)
}

/// `e^x`
pub(crate) fn exp<M: FloatOps>(m: &M, x: M::Float) -> M::Float {
    exp_scaled(m, x, 0)
}

/// `e^x - 1`
///
/// Near 0 nothing is reduced; beyond, `2^n (e^r - 1) + (2^n - 1)`, halved so that `2^n` does not overflow
/// before the result does.
pub(crate) fn expm1<M: FloatOps>(m: &M, x: M::Float) -> M::Float {
    let clamped = clamp(m, x, -30.0, 89.0);
    let (n, r) = reduce(m, clamped);
    let near = m.lt(m.abs(x), m.float(0.5));
    let n = m.select(near, m.float(0.0), n);
    let r = m.select(near, x, r);
    let p = polynomial(m, r, &EXPM1);
    let p = m.fma(p, m.mul(r, r), r);
    let half = power_of_two(m, m.sub(n, m.float(1.0)));
    let sum = m.fma(p, half, m.sub(half, m.float(0.5)));
    let result = m.add(sum, sum);
    let result = m.select(near, p, result);
    // The sign of zero.
    m.select(m.eq(x, m.float(0.0)), x, result)
}
