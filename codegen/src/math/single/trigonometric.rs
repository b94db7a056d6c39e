//! Sine, cosine and tangent over the whole range.

use std::f64::consts::{FRAC_2_PI, FRAC_PI_2};

use super::{BIAS, FRACTION_BITS, FloatOps, SIGN, polynomial};

/// `minimax.py`: "sin: (sin r - r) / r^3".
const SIN: [f64; 4] = [-0.166666672, 0.00833337940, -0.000198530644, 2.83250984e-6];

/// `minimax.py`: "cos: (cos r - 1) / r^2".
const COS: [f64; 4] = [-0.5, 0.0416666456, -0.00138873095, 2.44323273e-5];

/// `minimax.py`: "tan: (tan r - r) / r^3".
const TAN: [f64; 7] = [
    0.333333492,
    0.133326739,
    0.0540591925,
    0.0212843511,
    0.0108330948,
    9.02113970e-5,
    0.00437702565,
];

/// pi / 2 in three `f32` parts. Below [`FAR`] their multiples leave the fused multiply-adds without a
/// rounding error that matters (Cody and Waite 1980, chapter 8).
const PARTS: [f64; 3] = [1.5707963705062866, -4.371138828673793e-8, -1.7151245100058819e-15];

/// From here on arguments are reduced with integers.
const FAR: f64 = 32768.0;

/// The first 224 bits of 2 / pi / 4 after the binary point: the first two are left for the quarter.
const TWO_OVER_PI: [i64; 7] =
    [0x28be_60db, 0x9391_054a, 0x7f09_d5f4, 0x7d4d_3770, 0x36d8_a566, 0x4f10_e410, 0x7f94_58ea];

/// `x` less the nearest multiple of pi / 2, in two parts, and which multiple it is, modulo 4.
fn reduce<M: FloatOps>(m: &M, x: M::Float) -> (M::Float, M::Float, M::Int) {
    let n = m.rint(m.mul(x, m.float(FRAC_2_PI)));
    let first = m.fma(n, m.float(-PARTS[0]), x);
    let second = m.fma(n, m.float(-PARTS[1]), first);
    let r = m.fma(n, m.float(-PARTS[2]), second);
    // What the last two steps rounded away.
    let lost = m.fma(n, m.float(-PARTS[1]), m.sub(first, second));
    let low = m.fma(n, m.float(-PARTS[2]), m.add(m.sub(second, r), lost));
    let usual = [m.bits(r), m.bits(low), m.to_int(n)];
    let far = m.not(m.lt(m.abs(x), m.float(FAR)));
    let [r, low, n] = m.unless_rare(far, usual, |m| reduce_far(m, x));
    (m.float_of_bits(r), m.float_of_bits(low), n)
}

/// Multiplies the argument's 24 bits with those bits of 2 / pi that decide the fraction of the product,
/// in integers (Payne and Hanek, "Radian Reduction for Trigonometric Functions", 1983).
fn reduce_far<M: FloatOps>(m: &M, x: M::Float) -> [M::Int; 3] {
    let bits = m.bits(x);
    let exponent = m.int_and(m.shr(bits, m.int(FRACTION_BITS)), m.int(0xff));
    let significand = m.int_or(m.shl(bits, m.int(8)), m.int(0x8000_0000));
    // x = significand 2^(places - 32); the words of 2 / pi above the chosen ones only give whole turns.
    let places = m.int_sub(exponent, m.int(BIAS - 1));
    let word = m.shr(places, m.int(5));
    let shift = m.int_and(places, m.int(31));
    let words: Vec<M::Int> = (0..4).map(|k| fraction_word(m, word, k)).collect();
    let at = |k: usize| {
        let rest = m.shr(m.shr(words[k + 1], m.int_sub(m.int(31), shift)), m.int(1));
        m.int_or(m.shl(words[k], shift), rest)
    };
    let (high, middle, low) = (at(0), at(1), at(2));
    let carried = m.mul_high(significand, low);
    let lower = m.int_add(m.int_mul(significand, middle), carried);
    let carry = m.select_int(m.int_below(lower, carried), m.int(1), m.int(0));
    let upper = m.int_add(m.mul_high(significand, middle), m.int_mul(significand, high));
    let upper = m.int_add(upper, carry);

    // Two bits say the quarter; the others, as a signed number, the fraction of one.
    let quarter = m.shr(upper, m.int(30));
    let upper = m.int_or(m.shl(upper, m.int(2)), m.shr(lower, m.int(30)));
    let lower = m.shl(lower, m.int(2));
    let negative = m.shr(upper, m.int(31));
    let quarter = m.int_add(quarter, negative);
    let flip = m.int_sub(m.int(0), negative);
    let lower = m.int_add(m.int_xor(lower, flip), negative);
    let borrow = m.int_eq(lower, m.int(0));
    let upper = m.int_xor(upper, flip);
    let upper = m.int_add(upper, m.select_int(borrow, negative, m.int(0)));

    // Three exact parts of 24, 24 and 16 bits.
    let first = m.float_of_int(m.shr(upper, m.int(8)));
    let second = m.int_or(m.shl(m.int_and(upper, m.int(0xff)), m.int(16)), m.shr(lower, m.int(16)));
    let second = m.mul(m.float_of_int(second), m.float(2f64.powi(-48)));
    let third = m.mul(m.float_of_int(m.int_and(lower, m.int(0xffff))), m.float(2f64.powi(-64)));
    let rest = m.add(second, third);
    let first = m.mul(first, m.float(2f64.powi(-24)));
    let sum = m.add(first, rest);
    let sum_low = m.add(m.sub(first, sum), rest);
    let product = m.mul(sum, m.float(FRAC_PI_2));
    let product_low = m.fma(sum, m.float(FRAC_PI_2), m.neg(product));
    let product_low = m.fma(sum, m.float(PARTS[1]), product_low);
    let product_low = m.fma(sum_low, m.float(FRAC_PI_2), product_low);
    let r = m.add(product, product_low);
    let r_low = m.add(m.sub(product, r), product_low);

    // The sign of the fraction, and of the argument.
    let argument = m.int_and(bits, m.int(SIGN));
    let sign = m.int_xor(m.shl(negative, m.int(31)), argument);
    let is_negative = m.int_eq(argument, m.int(SIGN));
    let quarter = m.select_int(is_negative, m.int_sub(m.int(0), quarter), quarter);
    // Infinities have no angle.
    let finite = m.lt(m.abs(x), m.float(f64::INFINITY));
    let nan = m.bits(m.float(f64::NAN));
    let r = m.select_int(finite, m.int_xor(m.bits(r), sign), nan);
    [r, m.int_xor(m.bits(r_low), sign), quarter]
}

/// The word before place `32 word` of 2 / pi (0 for the first), `k` words on.
fn fraction_word<M: FloatOps>(m: &M, word: M::Int, k: usize) -> M::Int {
    (0..5).rev().fold(m.int(0), |found, candidate| {
        let value = match (candidate + k).checked_sub(1) {
            Some(index) if index < TWO_OVER_PI.len() => TWO_OVER_PI[index],
            _ => 0,
        };
        m.select_int(m.int_eq(word, m.int(candidate as i64)), m.int(value), found)
    })
}

/// Sine of `r + low`.
fn sin_near<M: FloatOps>(m: &M, r: M::Float, low: M::Float) -> M::Float {
    let square = m.mul(r, r);
    let cube = m.mul(square, r);
    let rest = m.fma(polynomial(m, square, &SIN), cube, low);
    m.add(r, rest)
}

/// Cosine of `r + low`; what `low` changes is less than half a unit in the last place.
fn cos_near<M: FloatOps>(m: &M, r: M::Float) -> M::Float {
    let square = m.mul(r, r);
    m.fma(polynomial(m, square, &COS), square, m.float(1.0))
}

/// Sine of the angle `quarter` quarter turns on.
fn turned<M: FloatOps>(m: &M, r: M::Float, low: M::Float, quarter: M::Int) -> M::Float {
    let is_odd = m.int_eq(m.int_and(quarter, m.int(1)), m.int(1));
    let value = m.select(is_odd, cos_near(m, r), sin_near(m, r, low));
    let sign = m.shl(m.int_and(quarter, m.int(2)), m.int(30));
    m.float_of_bits(m.int_xor(m.bits(value), sign))
}

/// `sin x`
pub(crate) fn sin<M: FloatOps>(m: &M, x: M::Float) -> M::Float {
    let (r, low, quarter) = reduce(m, x);
    let result = turned(m, r, low, quarter);
    // The sign of zero.
    m.select(m.eq(x, m.float(0.0)), x, result)
}

/// `cos x`
pub(crate) fn cos<M: FloatOps>(m: &M, x: M::Float) -> M::Float {
    let (r, low, quarter) = reduce(m, x);
    turned(m, r, low, m.int_add(quarter, m.int(1)))
}

/// `tan x`, by `-1 / tan` in odd quarters. The tangent is kept in two parts for the quotient, which is
/// corrected by what it misses, so that only its own rounding is left.
pub(crate) fn tan<M: FloatOps>(m: &M, x: M::Float) -> M::Float {
    let (r, low, quarter) = reduce(m, x);
    let square = m.mul(r, r);
    // The derivative is 1 + tan^2.
    let low = m.fma(square, low, low);
    let rest = m.fma(polynomial(m, square, &TAN), m.mul(square, r), low);
    let t = m.add(r, rest);
    let t_low = m.add(m.sub(r, t), rest);
    let quotient = m.div(m.float(-1.0), t);
    let missed = m.fma(quotient, t_low, m.fma(quotient, t, m.float(1.0)));
    let inverse = m.fma(missed, quotient, quotient);
    let is_odd = m.int_eq(m.int_and(quarter, m.int(1)), m.int(1));
    let result = m.select(is_odd, inverse, t);
    m.select(m.eq(x, m.float(0.0)), x, result)
}
