//! Functions of `f64`: at most 4 units in the last place.

use super::{FloatOps, polynomial};

/// `minimax.py`: "exp f64: (e^r - 1 - r) / r^2".
#[rustfmt::skip]
const EXP: [f64; 10] = [
    0.5000000000000011, 0.1666666666666641, 0.04166666666652988, 0.008333333333494897,
    0.0013888888943715662, 0.00019841269505845727, 2.4801493000134848e-05, 2.7557586832460886e-06,
    2.763028678392933e-07, 2.4999980285894947e-08,
];

/// `minimax.py`: "log f64: (log((1 + s) / (1 - s)) - 2 s) / s^3".
#[rustfmt::skip]
const LOG: [f64; 7] = [
    0.6666666666666735, 0.3999999999940936, 0.285714287436853, 0.2222219842907621,
    0.18183572351349667, 0.15313832213358713, 0.14798258752069707,
];

/// ln 2 in two parts; the first has 20 trailing zero bits, so its multiples by exponents are exact.
const LN_2_HIGH: f64 = 0.6931471803691238;
const LN_2_LOW: f64 = 1.9082149292705877e-10;

const FRACTION_BITS: i64 = 52;
const BIAS: i64 = 1023;

/// `2^n` for a whole number `n` in -1022..=1023; the bias is added as `single::power_of_two` does.
fn power_of_two<M: FloatOps>(m: &M, n: M::Float) -> M::Float {
    let exponent = m.to_int(m.add(n, m.float(BIAS as f64)));
    m.float_of_bits(m.shl(exponent, m.int(FRACTION_BITS)))
}

/// `n` and `e^r - 1` with `x = n ln 2 + r`; `x` is kept within bounds beyond which the result is known.
fn exp_parts<M: FloatOps>(m: &M, x: M::Float) -> (M::Float, M::Float) {
    let (low, high) = (m.float(-746.0), m.float(712.0));
    let x = m.select(m.lt(x, low), low, x);
    let x = m.select(m.lt(high, x), high, x);
    let n = m.rint(m.mul(x, m.float(std::f64::consts::LOG2_E)));
    let r = m.fma(n, m.float(-LN_2_HIGH), x);
    let r = m.fma(n, m.float(-LN_2_LOW), r);
    let p = m.fma(polynomial(m, r, &EXP), m.mul(r, r), r);
    (n, p)
}

/// `e^x * 2^extra` for a small whole number `extra`.
fn exp_scaled<M: FloatOps>(m: &M, x: M::Float, extra: i64) -> M::Float {
    let (n, p) = exp_parts(m, x);
    // The exponents of two factors with their biases, which as a sum is not negative.
    let both = m.to_int(m.add(n, m.float((2 * BIAS + extra) as f64)));
    let first = m.shr(both, m.int(1));
    let second = m.int_sub(both, first);
    let power = |exponent| m.float_of_bits(m.shl(exponent, m.int(FRACTION_BITS)));
    m.mul(m.mul(m.add(p, m.float(1.0)), power(first)), power(second))
}

/// `e^x`
pub(crate) fn exp<M: FloatOps>(m: &M, x: M::Float) -> M::Float {
    exp_scaled(m, x, 0)
}

/// `1 / (1 + e^-x)`
pub(crate) fn sigmoid<M: FloatOps>(m: &M, x: M::Float) -> M::Float {
    m.div(m.float(1.0), m.add(exp(m, m.neg(x)), m.float(1.0)))
}

/// `log(1 + e^x)`, as `max(x, 0) + log(1 + e^-|x|)`.
pub(crate) fn softplus<M: FloatOps>(m: &M, x: M::Float) -> M::Float {
    let tail = log1p(m, exp(m, m.neg(m.abs(x))));
    m.add(m.max(x, m.float(0.0)), tail)
}

/// `x tanh(log(1 + e^x))`; see the function of `f32`.
pub(crate) fn mish<M: FloatOps>(m: &M, x: M::Float) -> M::Float {
    let (one, two) = (m.float(1.0), m.float(2.0));
    let power = exp(m, m.neg(m.abs(x)));
    let square = m.mul(power, power);
    let is_negative = m.lt(x, m.float(0.0));
    let top = m.fma(two, power, m.select(is_negative, square, one));
    let bottom = m.fma(two, m.select(is_negative, one, square), top);
    m.mul(x, m.div(top, bottom))
}

/// `e^x - 1`, as `2^n (e^r - 1) + (2^n - 1)`, halved so that `2^n` does not overflow first.
pub(crate) fn expm1<M: FloatOps>(m: &M, x: M::Float) -> M::Float {
    let (low, high) = (m.float(-60.0), m.float(710.0));
    let bounded = m.select(m.lt(x, low), low, x);
    let (n, p) = exp_parts(m, m.select(m.lt(high, bounded), high, bounded));
    let half = power_of_two(m, m.sub(n, m.float(1.0)));
    let sum = m.fma(p, half, m.sub(half, m.float(0.5)));
    let result = m.select(m.eq(n, m.float(0.0)), p, m.add(sum, sum));
    // The sign of zero.
    m.select(m.eq(x, m.float(0.0)), x, result)
}

/// `log x` of a positive finite number.
fn log_finite<M: FloatOps>(m: &M, x: M::Float) -> M::Float {
    let subnormal = m.lt(x, m.float(f64::MIN_POSITIVE));
    let scaled = m.select(subnormal, m.mul(x, m.float(2f64.powi(54))), x);
    let bits = m.bits(scaled);
    // Scaled to sqrt(1/2)..sqrt(2).
    let root = m.bits(m.float(std::f64::consts::FRAC_1_SQRT_2));
    let shift = m.int_and(m.int_sub(bits, root), m.int(-1 << FRACTION_BITS));
    let n = m.mul(m.float_of_int(shift), m.float(2f64.powi(-FRACTION_BITS as i32)));
    let n = m.select(subnormal, m.sub(n, m.float(54.0)), n);
    let f = m.sub(m.float_of_bits(m.int_sub(bits, shift)), m.float(1.0));
    // log(1 + f) = f - (f^2/2 - s (f^2/2 + s^2 P)) with s = f / (2 + f): small terms are added first.
    let s = m.div(f, m.add(f, m.float(2.0)));
    let square = m.mul(s, s);
    let half = m.mul(m.mul(f, f), m.float(0.5));
    let tail = m.fma(square, polynomial(m, square, &LOG), half);
    let low = m.fma(s, tail, m.mul(n, m.float(LN_2_LOW)));
    let rest = m.sub(f, m.sub(half, low));
    m.fma(n, m.float(LN_2_HIGH), rest)
}

/// `log x`: minus infinity at 0, NaN below.
pub(crate) fn log<M: FloatOps>(m: &M, x: M::Float) -> M::Float {
    edges(m, x, log_finite(m, x))
}

/// `log(1 + x)`: the logarithm of the rounded sum, and what the rounding left out.
pub(crate) fn log1p<M: FloatOps>(m: &M, x: M::Float) -> M::Float {
    let one = m.float(1.0);
    let sum = m.add(x, one);
    let large = m.lt(one, x);
    let left = m.select(large, m.sub(one, m.sub(sum, x)), m.sub(x, m.sub(sum, one)));
    let finite = m.add(log_finite(m, sum), m.div(left, sum));
    let result = edges(m, sum, finite);
    m.select(m.eq(x, m.float(0.0)), x, result)
}

/// What a logarithm is where its argument is not positive and finite.
fn edges<M: FloatOps>(m: &M, x: M::Float, result: M::Float) -> M::Float {
    let zero = m.float(0.0);
    let result = m.select(m.lt(x, m.float(f64::INFINITY)), result, x);
    let result = m.select(m.eq(x, zero), m.float(f64::NEG_INFINITY), result);
    m.select(m.lt(x, zero), m.float(f64::NAN), result)
}

/// `x` with the sign of `sign`, for `x` that is not negative.
fn with_sign<M: FloatOps>(m: &M, x: M::Float, sign: M::Float) -> M::Float {
    let sign = m.int_and(m.bits(sign), m.int(i64::MIN));
    m.float_of_bits(m.int_or(m.bits(x), sign))
}

/// `sinh x = (t + t / (t + 1)) / 2` with `t = e^|x| - 1`; beyond 30, half of `e^|x|`.
pub(crate) fn sinh<M: FloatOps>(m: &M, x: M::Float) -> M::Float {
    let size = m.abs(x);
    let t = expm1(m, size);
    let near = m.mul(m.add(t, m.div(t, m.add(t, m.float(1.0)))), m.float(0.5));
    let far = exp_scaled(m, size, -1);
    with_sign(m, m.select(m.lt(size, m.float(30.0)), near, far), x)
}

/// `cosh x = (e^|x| + e^-|x|) / 2`
pub(crate) fn cosh<M: FloatOps>(m: &M, x: M::Float) -> M::Float {
    let half = exp_scaled(m, m.abs(x), -1);
    m.add(half, m.div(m.float(0.25), half))
}

/// `tanh x`, with `t = e^(2 |x|) - 1`: `t / (t + 2)` near 0, `1 - 2 / (t + 2)` beyond 1.
pub(crate) fn tanh<M: FloatOps>(m: &M, x: M::Float) -> M::Float {
    let size = m.abs(x);
    let t = expm1(m, m.add(size, size));
    let bottom = m.add(t, m.float(2.0));
    let near = m.div(t, bottom);
    let far = m.sub(m.float(1.0), m.div(m.float(2.0), bottom));
    with_sign(m, m.select(m.lt(size, m.float(1.0)), near, far), x)
}
