//! The error function and its complement.

use super::exponential::{exp, exp_parts, inverse};
use super::{BIAS, DOWN_BIAS, FloatOps, polynomial, scale, scale_down, with_sign};

/// `minimax.py`: "erf near 0: (erf x - x) / x".
const NEAR: [f64; 8] = [
    0.128379166,
    -0.376126289,
    0.112836316,
    -0.0268564969,
    0.00519581093,
    -0.000811799197,
    8.62707675e-5,
    -2.18684113e-6,
];

/// `minimax.py`: "erf: -log(erfc t) / t - 1".
const FAR: [f64; 9] = [
    0.128483444,
    0.636005819,
    0.104356334,
    -0.0214694142,
    0.00195320440,
    0.000445169979,
    -0.000198341717,
    3.12243683e-5,
    -1.92979951e-6,
];

/// `erf x`: a polynomial up to 1, and `1 - e^-q(x)` beyond, where an error of `q` hardly matters.
pub(crate) fn erf<M: FloatOps>(m: &M, x: M::Float) -> M::Float {
    let size = m.abs(x);
    let near = m.fma(polynomial(m, m.mul(size, size), &NEAR), size, size);
    let limit = m.float(4.0);
    let t = m.select(m.lt(limit, size), limit, size);
    let exponent = m.fma(polynomial(m, t, &FAR), t, t);
    let far = m.sub(m.float(1.0), exp(m, m.neg(exponent)));
    with_sign(m, m.select(m.lt(size, m.float(1.0)), near, far), x)
}

/// `minimax.py`: "erf nearer 0: (erf x - x) / x".
const NEARER: [f64; 6] =
    [0.128379166, -0.376126170, 0.112830259, -0.0267723687, 0.00475106621, 9.12294581e-6];

/// What is missing of the first coefficient of [`COMPLEMENT`].
const COMPLEMENT_LOW: f64 = -3.31603749e-8;

/// `minimax.py`: "erfc: (1 + 2 x) e^(x^2) erfc x, of (x - 4) / (x + 4)".
const COMPLEMENT: [f64; 11] = [
    1.23299515,
    -0.139621079,
    0.0153795388,
    0.0680944249,
    -0.101037413,
    0.0937762633,
    -0.0663154423,
    0.0368943997,
    -0.0164768752,
    0.00558211282,
    0.000172967280,
];

/// `erfc x = 1 - erf x`.
///
/// Up to erfc x = 1/2 the difference is good; beyond, `p(x) / (1 + 2 x) e^(-x^2)`, where what the quotient
/// and the square miss goes into the exponential (the form is that of Shepherd and Laframboise, "Chebyshev
/// Approximation of (1 + 2x) exp(x^2) erfc x in 0 <= x < infinity", Math. Comp. 36, 1981).
pub(crate) fn erfc<M: FloatOps>(m: &M, x: M::Float) -> M::Float {
    let (one, two, limit) = (m.float(1.0), m.float(2.0), m.float(10.1));
    let size = m.abs(x);
    let near = m.sub(one, m.fma(polynomial(m, m.mul(x, x), &NEARER), x, x));

    let t = m.select(m.lt(limit, size), limit, size);
    let four = m.float(4.0);
    let q = m.div(m.sub(t, four), m.add(t, four));
    let first = m.float(COMPLEMENT[0]);
    let rest = m.fma(polynomial(m, q, &COMPLEMENT[1..]), q, m.float(COMPLEMENT_LOW));
    let p = m.add(first, rest);
    let p_low = m.add(m.sub(first, p), rest);
    let twice = m.add(t, t);
    let bottom = m.add(twice, one);
    let bottom_low = m.sub(one, m.sub(bottom, twice));
    let ratio = m.div(p, bottom);
    let missed = m.add(m.fma(m.neg(ratio), bottom, p), p_low);
    let missed = m.fma(m.neg(ratio), bottom_low, missed);
    let square = m.mul(t, t);
    let square_low = m.fma(t, t, m.neg(square));
    let (n, power) = exp_parts(m, m.neg(square), m.neg(square_low), 2 * BIAS);
    // `missed / p` is what the ratio lacks; p is 1.2 within 3 %.
    let power = m.fma(missed, m.float(0.82), power);
    let far = scale(m, m.fma(ratio, power, ratio), n);
    let far = m.select(m.lt(x, m.float(0.0)), m.sub(two, far), far);
    m.select(m.lt(size, m.float(0.4769)), near, far)
}

/// What [`GELU`]'s variable is made with.
const GELU_SCALE: f64 = 0.4;

/// `minimax.py`: "gelu: (1 + 0.4 a) e^(a^2 / 2) P(z > a), of a / (1 + 0.4 a)".
const GELU: [f64; 10] = [
    0.500000000,
    -0.198942959,
    0.0108565241,
    0.00746589294,
    0.000585106143,
    -0.000626081368,
    0.000234778607,
    -0.000208902668,
    7.41236872e-5,
    -8.44315309e-6,
];

/// `x P(z <= x)` for a standard normal `z`, to 5 units in the last place; NaN for minus infinity.
///
/// This is `max(x, 0) - a P(z > a)` with `a = |x|`, where `P(z > a) = p(u) / (1 + 0.4 a) e^(-a^2 / 2)` with `u =
/// a / (1 + 0.4 a)`. What the square misses goes into the exponential, as for [`erfc`].
pub(crate) fn gelu<M: FloatOps>(m: &M, x: M::Float) -> M::Float {
    // Beyond, the product is less than half the smallest number.
    let a = m.min(m.abs(x), m.float(14.5));
    let u = m.mul(a, inverse(m, m.fma(a, m.float(GELU_SCALE), m.float(1.0))));
    let factor = m.mul(u, polynomial(m, u, &GELU));
    let half = m.mul(a, m.float(-0.5));
    let square = m.mul(a, half);
    let (n, power) = exp_parts(m, square, m.fma(a, half, m.neg(square)), DOWN_BIAS);
    let tail = scale_down(m, m.fma(factor, power, factor), n);
    let result = m.sub(m.max(x, m.float(-0.0)), tail);
    let endless = m.eq(x, m.float(f64::NEG_INFINITY));
    m.select(endless, m.float(f64::NAN), result)
}
