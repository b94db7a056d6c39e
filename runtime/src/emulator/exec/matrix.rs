//! Matrix multiply-accumulate as tensor cores compute it.
//!
//! The model, after Fasi, Higham, Mikaitis and Pranesh, "Numerical behavior of NVIDIA tensor cores"
//! (PeerJ Computer Science, 2021), as measured there on an A100: products are exact; the accumulator and
//! [`Factors::block`] products are added at once, each one's significand cut off two bits below the
//! last place of the largest addend; the sum is rounded towards zero to `f32`. The inner elements of an
//! instruction are added block by block. Subnormals are kept.

use super::super::program::{AnySrc, Dst, Factors, List, Program};
use super::registers::{LANES, row_of};
use super::rounding::{NAN32, from_half};
use super::warp::Warp;
use super::{Trouble, lanes};
use crate::error::FaultKind;

/// Rows and columns of a result (`m16n8`).
const ROWS: usize = 16;
const COLUMNS: usize = 8;

/// Bits of an addend below the last place of the largest one that take part in a sum.
const EXTRA_BITS: i32 = 2;

impl Factors {
    /// Inner elements of an instruction.
    fn inner(self) -> usize {
        match self {
            Factors::Tf32 => 8,
            Factors::Bf16 | Factors::F16 => 16,
        }
    }

    /// Inner elements that are added at once.
    fn block(self) -> usize {
        match self {
            Factors::Tf32 => 4,
            Factors::Bf16 | Factors::F16 => 8,
        }
    }

    /// Elements in a register.
    fn packed(self) -> usize {
        match self {
            Factors::Tf32 => 1,
            Factors::Bf16 | Factors::F16 => 2,
        }
    }

    /// An element of a register.
    fn element(self, register: u32, half: usize) -> f64 {
        let bits = (register >> (16 * half)) as u16;
        match self {
            // The lower 13 bits are not looked at (PTX ISA, "Alternate Floating-Point Data Formats").
            Factors::Tf32 => f32::from_bits(register & !0x1fff).into(),
            Factors::Bf16 => from_half(bits, true).into(),
            Factors::F16 => from_half(bits, false).into(),
        }
    }
}

impl Warp {
    /// `mma.sync` (PTX ISA, "Matrix Fragments for mma.m16n8k8" and "mma.m16n8k16").
    pub(super) fn multiply_matrices(
        &mut self,
        factors: Factors,
        dst: List,
        operands: List,
        mask: u32,
        program: &Program,
    ) -> Result<(), Box<Trouble>> {
        if mask != u32::MAX {
            let detail = "`mma` needs all lanes of the warp";
            return Err(Trouble::new(FaultKind::InvalidOperand, mask.trailing_zeros(), detail));
        }
        let registers: Vec<[u32; LANES]> = program
            .sources(operands)
            .iter()
            .map(|&source| match source {
                AnySrc::Word(source) | AnySrc::Wide(source) => {
                    self.registers.words(&program.constants, source)
                }
            })
            .collect();
        let (packed, inner) = (factors.packed(), factors.inner());
        let (mut a, mut b) = (vec![[0.0; 16]; ROWS], [[0.0; 16]; COLUMNS]);
        let mut sums = [[0.0f32; COLUMNS]; ROWS];
        for lane in lanes(u32::MAX) {
            let lane = lane as usize;
            let (group, at) = (lane / 4, lane % 4);
            for (number, register) in registers.iter().enumerate() {
                let register = register[lane];
                for half in 0..packed {
                    // The inner position of a register, the same in both operands.
                    let inner = |upper: usize| upper * inner / 2 + at * packed + half;
                    match number {
                        0..4 => {
                            let row = group + 8 * (number % 2);
                            a[row][inner(number / 2)] = factors.element(register, half);
                        }
                        4..6 => b[group][inner(number - 4)] = factors.element(register, half),
                        _ => {}
                    }
                }
                if number >= 6 {
                    let (row, column) = place(lane, number - 6);
                    sums[row][column] = f32::from_bits(register);
                }
            }
        }
        for (row, sums) in a.iter().zip(&mut sums) {
            for (column, sum) in b.iter().zip(sums) {
                for first in (0..inner).step_by(factors.block()) {
                    let block = first..first + factors.block();
                    let mut addends = [0.0; 9];
                    for (addend, k) in addends[1..].iter_mut().zip(block) {
                        *addend = row[k] * column[k];
                    }
                    addends[0] = (*sum).into();
                    *sum = add_truncating(&addends);
                }
            }
        }
        for (number, &result) in program.results(dst).iter().enumerate() {
            let Dst::Word(slot) = result else { continue };
            let values = row_of(|lane| {
                let (row, column) = place(lane, number);
                sums[row][column].to_bits()
            });
            self.registers.set_words(slot, u32::MAX, &values);
        }
        Ok(())
    }
}

/// Row and column of an accumulator.
fn place(lane: usize, number: usize) -> (usize, usize) {
    (lane / 4 + 8 * (number / 2), lane % 4 * 2 + number % 2)
}

/// The sum of a few numbers, cut off as the module says.
fn add_truncating(addends: &[f64]) -> f32 {
    const SPECIAL: i32 = 0x7ff;
    let biased = |x: f64| (x.to_bits() >> 52 & 0x7ff) as i32;
    let largest = addends.iter().fold(0, |largest, &x| largest.max(biased(x)));
    if largest == SPECIAL {
        let sum: f64 = addends.iter().sum();
        return if sum.is_nan() { NAN32 } else { sum as f32 };
    }
    let power = |exponent: i32| f64::from_bits(((exponent + 1023) as u64) << 52);
    // In units of the last bit that is kept each addend is below 2^26, and so exact in `i64`.
    let unit = (largest - 1023).max(-126) - 23 - EXTRA_BITS;
    let sum: i64 = addends.iter().map(|x| (x * power(-unit)) as i64).sum();
    if sum == 0 {
        return 0.0;
    }
    let value = sum as f64 * power(unit);
    // Cut off what `f32` does not hold: 29 bits of a double's 53, more of a subnormal.
    let below = (-126 - (biased(value) - 1023)).max(0);
    let kept = value.to_bits() & (u64::MAX << (29 + below).min(63));
    f64::from_bits(kept) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_cut_off() {
        let ulp = f64::powi(2.0, -23);
        assert_eq!(add_truncating(&[1.0, 0.75 * ulp]), 1.0);
        assert_eq!(add_truncating(&[1.0, 0.75 * ulp, 0.25 * ulp]), 1.0 + ulp as f32);
        // Each addend loses what lies below a quarter of the last place.
        assert_eq!(add_truncating(&[1.0, 0.9 * ulp, 0.2 * ulp]), 1.0);
        assert_eq!(add_truncating(&[-1.0, -0.75 * ulp]), -1.0);
        assert_eq!(add_truncating(&[1.0, -1.0, 0.1 * ulp]), 0.0);
        assert_eq!(add_truncating(&[1e-40, 0.0]), 1e-40f64 as f32);
        assert_eq!(add_truncating(&[f64::powi(2.0, 127), f64::powi(2.0, 127)]), f32::INFINITY);
        assert!(add_truncating(&[f64::INFINITY, f64::NEG_INFINITY]).is_nan());
    }
}
