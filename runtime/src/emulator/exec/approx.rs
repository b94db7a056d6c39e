//! Instructions that the hardware approximates.
//!
//! The emulator gives the exact result rounded to nearest, which lies within the bounds that the
//! PTX ISA states for the hardware (section 9.7.3 in the tables of each instruction). With
//! [`Approximation::Perturbed`] results lie near the ends of those bounds instead, so that a kernel
//! whose correctness needs more than the instruction promises can be caught without a GPU.

use super::super::program::Approx;
use super::rounding::NAN32;

/// What approximate instructions give.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Approximation {
    /// The exact result, rounded to nearest.
    #[default]
    Rounded,
    /// The exact result moved by the stated bound, up or down as a hash of operand and seed says.
    Perturbed {
        /// Choose another one to move other results in other directions.
        seed: u64,
    },
}

/// An error bound: relative to the result, plus absolute.
struct Bound {
    relative: f64,
    absolute: f64,
}

/// The error bound that the PTX ISA states for the `.f32` form at `x`.
fn bound(op: Approx, x: f64) -> Bound {
    let relative = |exponent: f64| Bound { relative: exponent.exp2(), absolute: 0.0 };
    let absolute = |exponent: f64| Bound { relative: 0.0, absolute: exponent.exp2() };
    match op {
        Approx::Rcp | Approx::Sqrt => relative(-23.0),
        Approx::Rsqrt => relative(-22.9),
        Approx::Ex2 => relative(-22.5),
        Approx::Lg2 if (0.5..=2.0).contains(&x) => absolute(-22.0),
        Approx::Lg2 => relative(-22.0),
        Approx::Sin | Approx::Cos => absolute(-20.5),
        Approx::Tanh => relative(-11.0),
        Approx::Div | Approx::DivFull => relative(-22.0),
    }
}

/// `rcp`, `sqrt`, `rsqrt`, `ex2`, `lg2`, `sin`, `cos` and `tanh` in their `.approx.f32` forms.
pub(super) fn unary(op: Approx, x: f32, approximation: Approximation) -> f32 {
    let x64 = f64::from(x);
    let exact = match op {
        Approx::Rcp => 1.0 / x64,
        Approx::Sqrt => x64.sqrt(),
        Approx::Rsqrt => 1.0 / x64.sqrt(),
        Approx::Ex2 => x64.exp2(),
        Approx::Lg2 => x64.log2(),
        Approx::Sin => x64.sin(),
        Approx::Cos => x64.cos(),
        Approx::Tanh => x64.tanh(),
        Approx::Div | Approx::DivFull => x64,
    };
    settle(exact, bound(op, x64), u64::from(x.to_bits()), approximation)
}

/// `div.approx` and, with `full`, `div.full`.
pub(super) fn divide(a: f32, b: f32, full: bool, approximation: Approximation) -> f32 {
    // PTX ISA, `div`: for 2^126 < |b| < 2^128, `div.approx` gives 0, or NaN if `a` is infinite.
    if !full && b.is_finite() && b.abs() > 2.0f32.powi(126) {
        return match a.is_nan() || a.is_infinite() {
            true => NAN32,
            false => 0.0f32.copysign(a * b.signum()),
        };
    }
    let op = if full { Approx::DivFull } else { Approx::Div };
    let exact = f64::from(a) / f64::from(b);
    let operands = u64::from(a.to_bits()) << 32 | u64::from(b.to_bits());
    settle(exact, bound(op, 0.0), operands, approximation)
}

/// `rsqrt.approx.f64`; the PTX ISA bounds its error by no number.
pub(super) fn rsqrt64(x: f64, approximation: Approximation) -> f64 {
    let exact = 1.0 / x.sqrt();
    exact + exact * direction(x.to_bits(), approximation) * (-50.0f64).exp2()
}

fn settle(exact: f64, bound: Bound, operands: u64, approximation: Approximation) -> f32 {
    if exact.is_nan() {
        return NAN32;
    }
    if exact == 0.0 || exact.is_infinite() || approximation == Approximation::Rounded {
        return exact as f32;
    }
    let error = exact.abs() * bound.relative + bound.absolute;
    // Rounding may add half a unit in the last place, so stay that much inside.
    let room = (error - exact.abs() * (-24.0f64).exp2()).max(0.0);
    (exact + direction(operands, approximation) * room) as f32
}

/// -1, 0 or 1 from the operands' bits.
fn direction(operands: u64, approximation: Approximation) -> f64 {
    let Approximation::Perturbed { seed } = approximation else { return 0.0 };
    // The mixing function of SplitMix64 (Steele, Lea and Flood, 2014).
    let mut hash = operands ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    match (hash ^ (hash >> 31)) % 5 {
        0 => 0.0,
        1 | 2 => -1.0,
        _ => 1.0,
    }
}
