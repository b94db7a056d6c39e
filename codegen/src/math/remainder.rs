//! The remainder of a division.

use super::FloatOps;

/// The remainder of `x / y` rounded towards zero, exactly: C's `fmod` (ISO C23, F.10.7.1).
///
/// Long division on the significands, as many bits a round as the integers have more than they.
pub(crate) fn fmod<M: FloatOps>(m: &M, x: M::Float, y: M::Float) -> M::Float {
    let width = m.width();
    let magnitude = m.int(!width.sign());
    let (a, b) = (m.int_and(m.bits(x), magnitude), m.int_and(m.bits(y), magnitude));
    let (significand, exponent) = parts(m, a);
    let (divisor, divisor_exponent) = parts(m, b);
    let zero = m.int(0);
    let divisor = m.select_int(m.int_eq(divisor, zero), m.int(1), divisor);
    // Not an ordinary division: the result is decided below.
    let infinity = m.bits(m.float(f64::INFINITY));
    let usual = m.and(m.int_below(a, infinity), m.not(m.int_below(infinity, b)));
    let divides = m.and(usual, m.not(m.int_below(a, b)));
    let places = m.select_int(divides, m.int_sub(exponent, divisor_exponent), zero);

    let first = m.int_rem(significand, divisor);
    let spare = m.int(width.bits - width.fraction_bits - 1);
    let [rest, _] = m.repeat(
        [first, places],
        |m, [_, places]| m.int_lt(m.int(0), places),
        |m, [rest, places]| {
            let step = m.select_int(m.int_lt(places, spare), places, spare);
            [m.int_rem(m.shl(rest, step), divisor), m.int_sub(places, step)]
        },
    );
    // The rest in units of the divisor's last place is less than the divisor, so it is exact.
    let scale = m.float_of_bits(m.shl(divisor_exponent, m.int(width.fraction_bits)));
    let fraction = m.mul(m.float_of_int(rest), m.float(2f64.powi(-width.fraction_bits as i32)));
    let result = m.select(divides, m.mul(fraction, scale), m.float_of_bits(a));
    let sign = m.int_and(m.bits(x), m.int(width.sign()));
    let result = m.float_of_bits(m.int_or(m.bits(result), sign));
    let undefined = m.or(m.not(usual), m.int_eq(b, zero));
    m.select(undefined, m.float(f64::NAN), result)
}

/// The significand and the biased exponent, 1 for subnormal numbers, of a number that is not negative.
fn parts<M: FloatOps>(m: &M, bits: M::Int) -> (M::Int, M::Int) {
    let leading = 1 << m.width().fraction_bits;
    let exponent = m.shr(bits, m.int(m.width().fraction_bits));
    let fraction = m.int_and(bits, m.int(leading - 1));
    let subnormal = m.int_eq(exponent, m.int(0));
    let leading = m.select_int(subnormal, m.int(0), m.int(leading));
    (m.int_or(fraction, leading), m.select_int(subnormal, m.int(1), exponent))
}
