//! The natural logarithm.

use super::{FRACTION_BITS, FloatOps, polynomial};

/// `minimax.py`: "log: (log(1 + f) - f) / f^2".
const LOG: [f64; 10] = [
    -0.5,
    0.333334267,
    -0.250001460,
    0.199928984,
    -0.166479155,
    0.144265965,
    -0.130646497,
    0.108119987,
    -0.0570924059,
    0.00965245999,
];

const EXPONENT: i64 = 0xff80_0000;
/// The bits of 0.75: numbers are scaled to 0.75..1.5.
const THREE_QUARTERS: i64 = 0x3f40_0000;

/// `n` and the bits to subtract from a positive number's to scale it by `2^-n` into 0.75..1.5.
fn exponent<M: FloatOps>(m: &M, bits: M::Int) -> (M::Float, M::Int) {
    let shift = m.int_and(m.int_sub(bits, m.int(THREE_QUARTERS)), m.int(EXPONENT));
    (m.mul(m.float_of_int(shift), m.float(2f64.powi(-FRACTION_BITS as i32))), shift)
}

/// `log(1 + f) + n ln 2` for `f` in -0.25..0.5.
fn combine<M: FloatOps>(m: &M, n: M::Float, f: M::Float) -> M::Float {
    let p = polynomial(m, f, &LOG);
    let p = m.fma(p, m.mul(f, f), f);
    m.fma(n, m.float(std::f64::consts::LN_2), p)
}

/// `log x`: minus infinity at 0, NaN below.
pub(crate) fn log<M: FloatOps>(m: &M, x: M::Float) -> M::Float {
    let subnormal = m.lt(x, m.float(f32::MIN_POSITIVE.into()));
    let scaled = m.select(subnormal, m.mul(x, m.float(8388608.0)), x);
    let (n, shift) = exponent(m, m.bits(scaled));
    let n = m.select(subnormal, m.sub(n, m.float(23.0)), n);
    let f = m.sub(m.float_of_bits(m.int_sub(m.bits(scaled), shift)), m.float(1.0));
    edges(m, x, x, combine(m, n, f))
}

/// `log(1 + x)`: minus infinity at -1, NaN below.
pub(crate) fn log1p<M: FloatOps>(m: &M, x: M::Float) -> M::Float {
    let sum = m.add(x, m.float(1.0));
    let (n, shift) = exponent(m, m.bits(sum));
    // (1 + x) 2^-n - 1 = x 2^-n + (2^-n - 1), without the rounding of 1 + x; 2^-n times 4 is no
    // subnormal number for any n.
    let inverse = m.mul(m.float_of_bits(m.int_sub(m.int(0x4080_0000), shift)), m.float(0.25));
    let f = m.fma(x, inverse, m.sub(inverse, m.float(1.0)));
    let result = edges(m, sum, x, combine(m, n, f));
    // The sign of zero.
    m.select(m.eq(x, m.float(0.0)), x, result)
}

/// What a logarithm is where its argument is not positive and finite; `whole`: what stays infinite.
fn edges<M: FloatOps>(m: &M, x: M::Float, whole: M::Float, result: M::Float) -> M::Float {
    let infinity = m.float(f64::INFINITY);
    let zero = m.float(0.0);
    let result = m.select(m.lt(x, infinity), result, whole);
    let result = m.select(m.eq(x, zero), m.float(f64::NEG_INFINITY), result);
    m.select(m.lt(x, zero), m.float(f64::NAN), result)
}
