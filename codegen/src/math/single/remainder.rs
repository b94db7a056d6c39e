//! The remainder of a division.

use super::{FRACTION_BITS, FloatOps, SIGN};

/// The remainder of `x / y` rounded towards zero, exactly: C's `fmod` (ISO C23, F.10.7.1).
///
/// Long division on the significands, 8 bits a round: the remainder has 24 bits, 32 with the next 8.
pub(crate) fn fmod<M: FloatOps>(m: &M, x: M::Float, y: M::Float) -> M::Float {
    let magnitude = m.int(0x7fff_ffff);
    let (a, b) = (m.int_and(m.bits(x), magnitude), m.int_and(m.bits(y), magnitude));
    let (significand, exponent) = parts(m, a);
    let (divisor, divisor_exponent) = parts(m, b);
    let zero = m.int(0);
    let divisor = m.select_int(m.int_eq(divisor, zero), m.int(1), divisor);
    // Not an ordinary division: the result is decided below.
    let infinity = m.int(0x7f80_0000);
    let usual = m.and(m.int_below(a, infinity), m.int_below(b, m.int(0x7f80_0001)));
    let divides = m.and(usual, m.not(m.int_below(a, b)));
    let places = m.select_int(divides, m.int_sub(exponent, divisor_exponent), zero);

    let first = m.int_rem(significand, divisor);
    let [rest, _] = m.repeat(
        [first, places],
        |m, [_, places]| m.int_lt(m.int(0), places),
        |m, [rest, places]| {
            let eight = m.int(8);
            let step = m.select_int(m.int_lt(places, eight), places, eight);
            [m.int_rem(m.shl(rest, step), divisor), m.int_sub(places, step)]
        },
    );
    // rest 2^(divisor_exponent - 150), which is exact: less than the divisor, in multiples of its last
    // place.
    let scale = m.from_bits(m.shl(divisor_exponent, m.int(FRACTION_BITS)));
    let fraction = m.mul(m.from_int(rest), m.float(2f64.powi(-FRACTION_BITS as i32)));
    let value = m.mul(fraction, scale);
    let result = m.select(divides, value, m.from_bits(a));
    let sign = m.int_and(m.bits(x), m.int(SIGN));
    let result = m.from_bits(m.int_or(m.bits(result), sign));
    let undefined = m.or(m.not(usual), m.int_eq(b, zero));
    m.select(undefined, m.float(f64::NAN), result)
}

/// The significand and the biased exponent, 1 for subnormal numbers, of a number that is not negative.
fn parts<M: FloatOps>(m: &M, bits: M::Int) -> (M::Int, M::Int) {
    let exponent = m.shr(bits, m.int(FRACTION_BITS));
    let fraction = m.int_and(bits, m.int(0x007f_ffff));
    let subnormal = m.int_eq(exponent, m.int(0));
    let leading = m.select_int(subnormal, m.int(0), m.int(0x0080_0000));
    (m.int_or(fraction, leading), m.select_int(subnormal, m.int(1), exponent))
}
