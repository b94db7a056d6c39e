//! The error function.

use super::exponential::exp;
use super::{FloatOps, polynomial, with_sign};

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
