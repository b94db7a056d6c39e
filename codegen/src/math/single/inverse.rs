//! Inverse trigonometric functions.

use std::f64::consts::{FRAC_PI_2, PI};

use super::{FloatOps, odd, with_sign};

/// `minimax.py`: "asin: (asin x - x) / x^3".
const ASIN: [f64; 7] = [
    0.166666701,
    0.0749972388,
    0.0447159410,
    0.0294780489,
    0.0282223672,
    -0.00260640355,
    0.0456884615,
];

/// `minimax.py`: "atan: (atan x - x) / x^3".
const ATAN: [f64; 9] = [
    -0.333332986,
    0.199985296,
    -0.142640159,
    0.109508812,
    -0.0839930847,
    0.0578813143,
    -0.0310966447,
    0.0108682700,
    -0.00178265641,
];

/// What is missing of the `f32` nearest to pi / 2.
const FRAC_PI_2_LOW: f64 = -4.371139000186241e-8;

/// Up to here the polynomial for `asin` is used directly. Beyond, `acos(x) / 2` is less than 0.5, so that
/// its rounding error is small beside the result.
const NEAR: f64 = 0.5625;

/// `asin(sqrt((1 - x) / 2))`, which is `acos(x) / 2`, for `x` from [`NEAR`] on; NaN beyond 1.
fn half_acos<M: FloatOps>(m: &M, x: M::Float) -> M::Float {
    odd(m, m.sqrt(m.fma(x, m.float(-0.5), m.float(0.5))), &ASIN)
}

/// `asin x`; NaN beyond 1.
pub(crate) fn asin<M: FloatOps>(m: &M, x: M::Float) -> M::Float {
    let size = m.abs(x);
    let near = odd(m, size, &ASIN);
    let rest = m.fma(half_acos(m, size), m.float(-2.0), m.float(FRAC_PI_2_LOW));
    let far = m.add(rest, m.float(FRAC_PI_2));
    with_sign(m, m.select(m.lt(size, m.float(NEAR)), near, far), x)
}

/// `acos x`; NaN beyond 1.
pub(crate) fn acos<M: FloatOps>(m: &M, x: M::Float) -> M::Float {
    let size = m.abs(x);
    let middle = m.sub(m.float(FRAC_PI_2_LOW), odd(m, x, &ASIN));
    let middle = m.add(middle, m.float(FRAC_PI_2));
    let right = half_acos(m, size);
    let right = m.add(right, right);
    let left = m.add(m.sub(m.float(2.0 * FRAC_PI_2_LOW), right), m.float(PI));
    let side = m.select(m.lt(x, m.float(0.0)), left, right);
    m.select(m.lt(size, m.float(NEAR)), middle, side)
}

/// `atan x`, by `atan x = pi / 2 - atan(1 / x)` beyond 1.
pub(crate) fn atan<M: FloatOps>(m: &M, x: M::Float) -> M::Float {
    let size = m.abs(x);
    let one = m.float(1.0);
    let far = m.lt(one, size);
    let t = m.select(far, m.div(one, size), size);
    let near = odd(m, t, &ATAN);
    let rest = m.sub(m.float(FRAC_PI_2_LOW), near);
    let result = m.select(far, m.add(rest, m.float(FRAC_PI_2)), near);
    with_sign(m, result, x)
}
