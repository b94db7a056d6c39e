//! Powers.

use super::{BIAS, FloatOps, SIGN, nearest, polynomial, scale};

/// `minimax.py`: "exp2: 2^r".
const EXP2: [f64; 7] =
    [1.0, 0.693147242, 0.240226552, 0.0555027239, 0.00961706322, 0.00134182919, 0.000158197552];

/// `minimax.py`: "log2: (log2((1 + s) / (1 - s)) / s - 2 / ln 2) / s^2".
const LOG2: [f64; 4] = [0.961796701, 0.577078879, 0.411921471, 0.336624682];

/// 2 / ln 2 in two parts.
const SLOPE: f64 = 2.885390043258667;
const SLOPE_LOW: f64 = 3.8519259459e-8;

/// A sum in two parts, the second the rounding error of the first; `|a| >= |b|` (Dekker 1971).
fn sum<M: FloatOps>(m: &M, a: M::Float, b: M::Float) -> (M::Float, M::Float) {
    let high = m.add(a, b);
    (high, m.add(m.sub(a, high), b))
}

/// `log2` of a positive finite number in two parts, with a relative error of about 2^-33.
fn log2_parts<M: FloatOps>(m: &M, x: M::Float) -> (M::Float, M::Float) {
    let one = m.float(1.0);
    let subnormal = m.lt(x, m.float(f32::MIN_POSITIVE.into()));
    let scaled = m.select(subnormal, m.mul(x, m.float(16777216.0)), x);
    let bits = m.bits(scaled);
    // Scaled to sqrt(1/2)..sqrt(2).
    let shift = m.int_and(m.int_sub(bits, m.int(0x3f35_04f3)), m.int(0xff80_0000));
    let n = m.mul(m.float_of_int(shift), m.float(2f64.powi(-23)));
    let n = m.select(subnormal, m.sub(n, m.float(24.0)), n);
    let y = m.float_of_bits(m.int_sub(bits, shift));

    // s = (y - 1) / (y + 1) in two parts: y - 1 is exact, y + 1 is not.
    let top = m.sub(y, one);
    let (bottom, bottom_low) =
        sum(m, m.select(m.lt(y, one), one, y), m.select(m.lt(y, one), y, one));
    let s = m.div(top, bottom);
    let left = m.fma(m.neg(s), bottom, top);
    let s_low = m.div(m.fma(m.neg(s), bottom_low, left), bottom);

    let square = m.mul(s, s);
    let square_low = m.fma(s, m.add(s_low, s_low), m.fma(s, s, m.neg(square)));
    // s^3 times the polynomial, of which the first coefficient needs more than 24 bits of the product.
    let tail = m.mul(polynomial(m, square, &LOG2[1..]), square);
    let factor = m.add(m.float(LOG2[0]), tail);
    let factor_low = m.add(m.sub(m.float(LOG2[0]), factor), tail);
    let cube = m.mul(square, s);
    let cube_low = m.fma(square, s, m.neg(cube));
    let cube_low = m.fma(square, s_low, m.fma(square_low, s, cube_low));
    let p = m.mul(cube, factor);
    let p_low = m.fma(cube, factor, m.neg(p));
    let p_low = m.fma(cube, factor_low, m.fma(cube_low, factor, p_low));

    let q = m.mul(s, m.float(SLOPE));
    let q_low = m.fma(s, m.float(SLOPE), m.neg(q));
    let q_low = m.fma(s, m.float(SLOPE_LOW), m.fma(s_low, m.float(SLOPE), q_low));
    let (r, r_low) = sum(m, q, p);
    let r_low = m.add(r_low, m.add(q_low, p_low));
    // Where n is 0 the sum's larger part is the second one, but then the first one is exact.
    let (high, error) = sum(m, n, r);
    sum(m, high, m.add(error, r_low))
}

/// `x^y` as C's `pow` (ISO C23, F.10.4.4).
pub(crate) fn pow<M: FloatOps>(m: &M, x: M::Float, y: M::Float) -> M::Float {
    let (zero, one, infinity) = (m.float(0.0), m.float(1.0), m.float(f64::INFINITY));
    let size = m.abs(x);
    let (log_high, log_low) = log2_parts(m, size);
    let product = m.mul(log_high, y);
    // Beyond these bounds the result is 0 or infinite; within them the parts do not overflow.
    let bound = m.float(300.0);
    let lower = m.float(-300.0);
    let high = m.select(m.lt(bound, product), bound, product);
    let high = m.select(m.lt(high, lower), lower, high);
    let inside = m.eq(high, product);
    let low = m.fma(log_low, y, m.fma(log_high, y, m.neg(product)));
    let low = m.select(inside, low, zero);
    let n = m.rint(high);
    let r = m.add(m.sub(high, n), low);
    let n = nearest(m, m.min(m.max(n, m.float(-252.0)), m.float(254.0)), 1.0, 2 * BIAS);
    let result = scale(m, polynomial(m, r, &EXP2), n.bits);

    let whole = m.eq(m.trunc(y), y);
    let half = m.mul(y, m.float(0.5));
    let is_odd = m.and(whole, m.not(m.eq(m.trunc(half), half)));
    let sign = m.int_and(m.bits(x), m.select_int(is_odd, m.int(SIGN), m.int(0)));
    let positive = m.lt(zero, y);
    // 0 and infinity.
    let at_edge = m.or(m.eq(size, zero), m.eq(size, infinity));
    let grows = m.eq(m.select(positive, infinity, zero), size);
    let edge = m.select(grows, infinity, zero);
    let result = m.select(at_edge, edge, result);
    // Infinite exponents.
    let endless = m.eq(m.abs(y), infinity);
    let large = m.lt(one, size);
    let diverges = m.or(m.and(large, positive), m.and(m.not(large), m.not(positive)));
    let limit = m.select(m.eq(size, one), one, m.select(diverges, infinity, zero));
    let result = m.select(endless, limit, result);
    let result = m.float_of_bits(m.int_or(m.bits(result), sign));
    // No real power: a finite negative number to a power that is not whole.
    let below = m.and(m.lt(x, zero), m.lt(size, infinity));
    let undefined = m.and(below, m.not(m.or(whole, endless)));
    let nan = m.or(m.not(m.eq(x, x)), m.not(m.eq(y, y)));
    let result = m.select(m.or(undefined, nan), m.float(f64::NAN), result);
    m.select(m.or(m.eq(y, zero), m.eq(x, one)), one, result)
}
