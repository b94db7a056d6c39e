//! The exponential function.

use super::{
    BIAS, DOWN_BIAS, FloatOps, Whole, nearest, polynomial, power_of_two, scale, scale_down,
};

/// ln 2 in two parts; the first has few enough bits for its multiples by whole numbers up to 2^8 to be
/// exact (Cody and Waite, "Software Manual for the Elementary Functions", 1980, chapter 6).
pub(super) const LN_2_HIGH: f64 = 0.693145751953125;
pub(super) const LN_2_LOW: f64 = 1.428606765330187e-6;

/// `minimax.py`: "exp: (e^r - 1 - r) / r^2".
const EXP: [f64; 5] = [0.499999940, 0.166665167, 0.0416681059, 0.00836914033, 0.00138367433];

/// `minimax.py`: "expm1: (e^r - 1 - r) / r^2".
const EXPM1: [f64; 6] =
    [0.500000060, 0.166666791, 0.0416649431, 0.00833143201, 0.00140110147, 0.000205057644];

/// `x` as `n ln 2 + r`, with `|r| <= ln 2 / 2`; `n` with a bias.
fn reduce<M: FloatOps>(m: &M, x: M::Float, bias: i64) -> (Whole<M::Float, M::Int>, M::Float) {
    let n = nearest(m, x, std::f64::consts::LOG2_E, bias);
    let r = m.fma(n.float, m.float(-LN_2_HIGH), x);
    (n, m.fma(n.float, m.float(-LN_2_LOW), r))
}

/// `x` kept within bounds beyond which the result is 0 or infinite anyway; NaN stays.
fn clamp<M: FloatOps>(m: &M, x: M::Float, low: f64, high: f64) -> M::Float {
    m.min(m.max(x, m.float(low)), m.float(high))
}

/// `e^r - 1` for `|r| <= ln 2 / 2`.
fn rest<M: FloatOps>(m: &M, r: M::Float) -> M::Float {
    m.fma(polynomial(m, r, &EXP), m.mul(r, r), r)
}

/// The bits of `n` with a bias (see [`Whole`]) and `e^r - 1` with `e^(x + low) = 2^n e^r`, for a small
/// correction `low` of a moderate `x`.
pub(super) fn exp_parts<M: FloatOps>(
    m: &M,
    x: M::Float,
    low: M::Float,
    bias: i64,
) -> (M::Int, M::Float) {
    let (n, r) = reduce(m, x, bias);
    (n.bits, rest(m, m.add(r, low)))
}

/// `e^x * 2^extra` for a small whole number `extra`.
pub(super) fn exp_scaled<M: FloatOps>(m: &M, x: M::Float, extra: i64) -> M::Float {
    let (n, r) = reduce(m, clamp(m, x, -105.0, 90.0), 2 * BIAS + extra);
    scale(m, m.add(rest(m, r), m.float(1.0)), n.bits)
}

/// `e^x`, normal and finite for all `x` that are used: -87 to 88.
pub(super) fn exp_moderate<M: FloatOps>(m: &M, x: M::Float) -> M::Float {
    let (n, r) = reduce(m, x, BIAS);
    let power = power_of_two(m, n.bits);
    m.fma(rest(m, r), power, power)
}

/// `e^x`
pub(crate) fn exp<M: FloatOps>(m: &M, x: M::Float) -> M::Float {
    exp_scaled(m, x, 0)
}

/// `1 / d` for `d` between 2^-126 and 2^126, after a step of Newton's that leaves its rounding.
pub(super) fn inverse<M: FloatOps>(m: &M, d: M::Float) -> M::Float {
    let near = m.inverse_near(d);
    let missed = m.fma(m.neg(d), near, m.float(1.0));
    m.fma(missed, near, near)
}

/// `e^-|x|`
fn exp_of_minus_abs<M: FloatOps>(m: &M, x: M::Float) -> M::Float {
    let (n, r) = reduce(m, m.max(m.neg(m.abs(x)), m.float(-105.0)), DOWN_BIAS);
    scale_down(m, m.add(rest(m, r), m.float(1.0)), n.bits)
}

/// `a / d` for `d` between 2^-126 and 2^126: the quotient is corrected by what it misses.
fn quotient<M: FloatOps>(m: &M, a: M::Float, d: M::Float) -> M::Float {
    let near = m.inverse_near(d);
    let quotient = m.mul(a, near);
    let missed = m.fma(m.neg(quotient), d, a);
    m.fma(missed, near, quotient)
}

/// `1 / (1 + e^-x)`, for negative `x` as `e^x / (1 + e^x)`, so that nothing overflows.
pub(crate) fn sigmoid<M: FloatOps>(m: &M, x: M::Float) -> M::Float {
    let (zero, one) = (m.float(0.0), m.float(1.0));
    let power = exp_of_minus_abs(m, x);
    let top = m.select(m.lt(x, zero), power, one);
    quotient(m, top, m.add(power, one))
}

/// `minimax.py`: "softplus: (log(1 + e) - e) / e^2".
const SOFTPLUS: [f64; 10] = [
    -0.499999881,
    0.333326906,
    -0.249885798,
    0.198979333,
    -0.161293387,
    0.124671258,
    -0.0830740854,
    0.0419813544,
    -0.0136314696,
    0.00207294384,
];

/// `log(1 + e^x)`, as `max(x, 0) + log(1 + e^-|x|)`.
pub(crate) fn softplus<M: FloatOps>(m: &M, x: M::Float) -> M::Float {
    let power = exp_of_minus_abs(m, x);
    let tail = m.fma(polynomial(m, power, &SOFTPLUS), m.mul(power, power), power);
    m.add(m.max(x, m.float(0.0)), tail)
}

/// `x tanh(log(1 + e^x))`.
///
/// With `w = e^x` the tangent is `(w^2 + 2w) / (w^2 + 2w + 2)`; for positive `x` both sides are divided by `w^2`,
/// so that `e = e^-|x|` serves for both signs and nothing overflows or cancels.
pub(crate) fn mish<M: FloatOps>(m: &M, x: M::Float) -> M::Float {
    let (one, two) = (m.float(1.0), m.float(2.0));
    let power = exp_of_minus_abs(m, x);
    let square = m.mul(power, power);
    let is_negative = m.lt(x, m.float(0.0));
    let top = m.fma(two, power, m.select(is_negative, square, one));
    let bottom = m.fma(two, m.select(is_negative, one, square), top);
    m.mul(x, quotient(m, top, bottom))
}

/// `e^x - 1`
///
/// Near 0 nothing is reduced; beyond, `2^n (e^r - 1) + (2^n - 1)`, halved so that `2^n` does not overflow
/// before the result does.
pub(crate) fn expm1<M: FloatOps>(m: &M, x: M::Float) -> M::Float {
    // The bias halves.
    let (n, r) = reduce(m, clamp(m, x, -30.0, 89.0), BIAS - 1);
    let near = m.lt(m.abs(x), m.float(0.5));
    let n = m.select_int(near, m.int(BIAS - 1), n.bits);
    let r = m.select(near, x, r);
    let p = polynomial(m, r, &EXPM1);
    let p = m.fma(p, m.mul(r, r), r);
    let half = power_of_two(m, n);
    let sum = m.fma(p, half, m.sub(half, m.float(0.5)));
    let result = m.add(sum, sum);
    let result = m.select(near, p, result);
    // The sign of zero.
    m.select(m.eq(x, m.float(0.0)), x, result)
}
