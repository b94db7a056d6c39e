//! Hyperbolic functions and their inverses.

use super::exponential::{exp_moderate, exp_scaled, inverse};
use super::logarithm::{log, log1p};
use super::{FloatOps, odd, with_sign};

/// `minimax.py`: "tanh: (tanh x - x) / x^3".
const TANH: [f64; 5] = [-0.333332986, 0.133319363, -0.0537847169, 0.0207986254, -0.00589796621];

/// `minimax.py`: "sinh: (sinh x - x) / x^3".
const SINH: [f64; 4] = [0.166666672, 0.00833331048, 0.000198428956, 2.78221319e-6];

/// `tanh x = 1 - 2 / (e^2x + 1)` away from 0.
pub(crate) fn tanh<M: FloatOps>(m: &M, x: M::Float) -> M::Float {
    let size = m.abs(x);
    let one = m.float(1.0);
    let near = odd(m, size, &TANH);
    // Beyond 10 the result is 1.
    let power = exp_moderate(m, m.min(m.add(size, size), m.float(20.0)));
    let far = m.fma(m.float(-2.0), inverse(m, m.add(power, one)), one);
    with_sign(m, m.select(m.lt(size, m.float(0.6)), near, far), x)
}

/// `sinh x = (e^x - e^-x) / 2` away from 0; half of `e^x` is computed as one, so that it does not
/// overflow before the result does.
pub(crate) fn sinh<M: FloatOps>(m: &M, x: M::Float) -> M::Float {
    let size = m.abs(x);
    let near = odd(m, size, &SINH);
    let half = exp_scaled(m, size, -1);
    let far = m.sub(half, m.div(m.float(0.25), half));
    with_sign(m, m.select(m.lt(size, m.float(1.0)), near, far), x)
}

/// `cosh x = (e^x + e^-x) / 2`
pub(crate) fn cosh<M: FloatOps>(m: &M, x: M::Float) -> M::Float {
    let half = exp_scaled(m, m.abs(x), -1);
    m.add(half, m.div(m.float(0.25), half))
}

/// `asinh x = log(1 + x + x^2 / (1 + sqrt(1 + x^2)))`; `log 2x` where the square overflows.
pub(crate) fn asinh<M: FloatOps>(m: &M, x: M::Float) -> M::Float {
    let size = m.abs(x);
    let one = m.float(1.0);
    let root = m.sqrt(m.fma(size, size, one));
    let small = m.div(m.mul(size, size), m.add(root, one));
    let near = log1p(m, m.add(size, small));
    let far = m.add(log(m, size), m.float(std::f64::consts::LN_2));
    let result = m.select(m.lt(size, m.float(1e9)), near, far);
    with_sign(m, result, x)
}

/// `acosh x = log(1 + t + sqrt(2t + t^2))` with `t = x - 1`; NaN below 1.
pub(crate) fn acosh<M: FloatOps>(m: &M, x: M::Float) -> M::Float {
    let t = m.sub(x, m.float(1.0));
    let root = m.sqrt(m.fma(t, t, m.add(t, t)));
    let near = log1p(m, m.add(t, root));
    let far = m.add(log(m, x), m.float(std::f64::consts::LN_2));
    let result = m.select(m.lt(x, m.float(1e9)), near, far);
    m.select(m.lt(x, m.float(1.0)), m.float(f64::NAN), result)
}

/// `atanh x = log(1 + 2x / (1 - x)) / 2`; NaN beyond 1.
pub(crate) fn atanh<M: FloatOps>(m: &M, x: M::Float) -> M::Float {
    let size = m.abs(x);
    let ratio = m.div(m.add(size, size), m.sub(m.float(1.0), size));
    let result = m.mul(m.float(0.5), log1p(m, ratio));
    let signed = with_sign(m, result, x);
    m.select(m.lt(m.float(1.0), size), m.float(f64::NAN), signed)
}
