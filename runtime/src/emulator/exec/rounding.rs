//! Rounding of exactly known values to the floating-point formats.
//!
//! A value that needs more than double precision is first rounded to odd (Boldo and Melquiond,
//! "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008);
//! rounding that again, to any format with at least two bits less, gives what rounding the exact
//! value once would.

use half::{bf16, f16};

use super::super::program::Rounding;

/// A binary format up to single precision.
#[derive(Debug, Clone, Copy)]
pub(super) struct Format {
    /// Bits of the significand, the hidden one included.
    precision: i32,
    /// Exponent of the smallest normal number.
    min_exponent: i32,
    /// Exponent of the largest finite number.
    max_exponent: i32,
}

/// IEEE binary16.
pub(super) const F16: Format = Format { precision: 11, min_exponent: -14, max_exponent: 15 };
/// bfloat16.
pub(super) const BF16: Format = Format { precision: 8, min_exponent: -126, max_exponent: 127 };
/// NVIDIA's TF32: the range of single precision with ten bits after the point.
pub(super) const TF32: Format = Format { precision: 11, min_exponent: -126, max_exponent: 127 };
/// IEEE binary32.
pub(super) const F32: Format = Format { precision: 24, min_exponent: -126, max_exponent: 127 };

/// The NaN that single-precision instructions produce.
pub(super) const NAN32: f32 = f32::from_bits(0x7fff_ffff);
/// The NaN that double-precision instructions produce from numbers.
pub(super) const NAN64: f64 = f64::from_bits(0xfff8_0000_0000_0000);
/// The NaN that half-precision instructions of both formats produce.
pub(super) const NAN16: u16 = 0x7fff;

impl Format {
    /// Rounds to the format; infinities and NaN stay.
    pub(super) fn round(self, value: f64, rounding: Rounding) -> f64 {
        if value == 0.0 || !value.is_finite() {
            return value;
        }
        let exponent = exponent(value).max(self.min_exponent);
        let quantum = power_of_two(exponent - (self.precision - 1));
        let scaled = value.abs() / quantum;
        let below = scaled.floor();
        let rest = scaled - below;
        let away = match rounding {
            Rounding::Nearest => rest > 0.5 || (rest == 0.5 && below % 2.0 != 0.0),
            Rounding::NearestAway => rest >= 0.5,
            Rounding::Zero => false,
            Rounding::Down => rest > 0.0 && value < 0.0,
            Rounding::Up => rest > 0.0 && value > 0.0,
        };
        let magnitude = (below + f64::from(u8::from(away))) * quantum;
        let largest = power_of_two(self.max_exponent) * (2.0 - power_of_two(1 - self.precision));
        let magnitude = if magnitude <= largest {
            magnitude
        } else {
            let to_largest = match rounding {
                Rounding::Nearest | Rounding::NearestAway => false,
                Rounding::Zero => true,
                Rounding::Down => value > 0.0,
                Rounding::Up => value < 0.0,
            };
            if to_largest { largest } else { f64::INFINITY }
        };
        magnitude.copysign(value)
    }
}

/// Rounds to single precision; NaN becomes the canonical one.
pub(super) fn to_f32(value: f64, rounding: Rounding) -> f32 {
    if value.is_nan() {
        NAN32
    } else if rounding == Rounding::Nearest {
        value as f32
    } else {
        F32.round(value, rounding) as f32
    }
}

/// Rounds to a half-precision format and gives its bits; NaN becomes the canonical one.
pub(super) fn to_half(value: f64, is_bf16: bool, rounding: Rounding) -> u16 {
    if value.is_nan() {
        NAN16
    } else if is_bf16 {
        bf16::from_f64(BF16.round(value, rounding)).to_bits()
    } else {
        f16::from_f64(F16.round(value, rounding)).to_bits()
    }
}

/// The value of half-precision bits.
pub(super) fn from_half(bits: u16, is_bf16: bool) -> f32 {
    if is_bf16 { bf16::from_bits(bits).to_f32() } else { f16::from_bits(bits).to_f32() }
}

/// `a + b` rounded to odd.
pub(super) fn add_to_odd(a: f64, b: f64) -> f64 {
    let sum = a + b;
    if !sum.is_finite() {
        return sum;
    }
    // Knuth's TwoSum: `sum + error` is `a + b` exactly.
    let b_part = sum - a;
    let error = (a - (sum - b_part)) + (b - b_part);
    to_odd(sum, error)
}

/// Rounds `high + low` to odd, where `high` is that sum rounded to nearest.
pub(super) fn to_odd(high: f64, low: f64) -> f64 {
    if low == 0.0 || !high.is_finite() {
        return high;
    }
    let towards_zero = (low < 0.0) == (high > 0.0);
    let bits = high.to_bits();
    let truncated = if towards_zero { bits - 1 } else { bits };
    f64::from_bits(truncated | 1)
}

/// An integer rounded to odd.
pub(super) fn integer_to_odd(magnitude: u64, negative: bool) -> f64 {
    let high = magnitude as f64;
    let low = (i128::from(magnitude) - high as i128) as f64;
    let value = to_odd(high, low);
    if negative { -value } else { value }
}

/// Rounds `high + low` to double precision in the given direction, where `high` is the nearest.
pub(super) fn direct_f64(high: f64, low: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::Nearest | Rounding::NearestAway => high,
        _ if low == 0.0 => high,
        Rounding::Zero if (low < 0.0) == (high > 0.0) => f64::from_bits(high.to_bits() - 1),
        Rounding::Down if low < 0.0 => high.next_down(),
        Rounding::Up if low > 0.0 => high.next_up(),
        _ => high,
    }
}

/// Rounds to an integral value.
pub(super) fn to_integral(value: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::Nearest => value.round_ties_even(),
        Rounding::NearestAway => value.round(),
        Rounding::Zero => value.trunc(),
        Rounding::Down => value.floor(),
        Rounding::Up => value.ceil(),
    }
}

/// A subnormal becomes a zero of its sign.
#[inline(always)]
pub(super) fn flush(value: f32) -> f32 {
    if value.is_subnormal() { 0.0f32.copysign(value) } else { value }
}

fn exponent(value: f64) -> i32 {
    let biased = (value.to_bits() >> 52 & 0x7ff) as i32;
    // Subnormal doubles lie below every format here; the caller clamps.
    if biased == 0 { -1023 } else { biased - 1023 }
}

fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}
