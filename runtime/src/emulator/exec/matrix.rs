//! Matrix multiply-accumulate as tensor cores compute it.
//!
//! The model, after Fasi, Higham, Mikaitis and Pranesh, "Numerical behavior of NVIDIA tensor cores"
//! (PeerJ Computer Science, 2021), as measured there on an A100: products are exact; the accumulator and
//! [`Factors::block`] products are added at once, each one's significand cut off two bits below the
//! last place of the largest addend; the sum is rounded towards zero to `f32`. The inner elements of an
//! instruction are added block by block. Subnormals are kept.

use super::super::detect::SharedShadow;
use super::super::program::{AnySrc, AsyncProduct, Dst, Factors, LeftFactors, List, Program, Src};
use super::block::BlockMemory;
use super::memory::Kind;
use super::registers::{LANES, row_of};
use super::rounding::{NAN32, from_half};
use super::shared::shared_trouble;
use super::warp::Warp;
use super::{Launch, Trouble, lanes};
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
                *sum = add_products(factors, *sum, row, column);
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

impl Warp {
    /// `wgmma.mma_async` (PTX ISA, "Asynchronous Warpgroup Level Matrix"): the warp's 16 of the 64 rows.
    /// Elements are read and sums written at once; until the group is waited for, writes to what was read
    /// are reported.
    pub(super) fn multiply_shared(
        &mut self,
        product: &AsyncProduct,
        mask: u32,
        memory: &mut BlockMemory,
        launch: &Launch<'_>,
    ) -> Result<(), Box<Trouble>> {
        let refuse = |detail: &str| Err(Trouble::new(FaultKind::InvalidOperand, 0, detail));
        if mask != u32::MAX {
            return refuse("`wgmma` needs all lanes of the warp");
        }
        let constants = &launch.program.constants;
        let left = match product.left {
            LeftFactors::Shared(descriptor) => {
                let first = 16 * (self.index % 4);
                let rows = first..first + ROWS as u32;
                self.read_tile(descriptor, rows, product.factors, memory, launch)?
            }
            LeftFactors::Registers(list) => self.held_factors(list, product.factors, launch),
        };
        let columns = 0..u32::from(product.n_columns);
        let right = self.read_tile(product.right, columns, product.factors, memory, launch)?;
        let adds = self.registers.predicate(product.adds);
        let adds = match adds {
            0 => false,
            u32::MAX => true,
            _ => return refuse("whether `wgmma` adds differs between lanes"),
        };
        let registers: Vec<[u32; LANES]> = launch
            .program
            .sources(product.sums)
            .iter()
            .map(|&source| match source {
                AnySrc::Word(source) | AnySrc::Wide(source) => {
                    self.registers.words(constants, source)
                }
            })
            .collect();
        for (number, &result) in launch.program.results(product.dst).iter().enumerate() {
            let Dst::Word(slot) = result else { continue };
            let values = row_of(|lane| {
                // Each four registers hold a product of 8 columns as in `mma.sync`.
                let (row, column) = place(lane, number % 4);
                let sum = if adds { f32::from_bits(registers[number][lane]) } else { 0.0 };
                let (a, b) = (&left[row], &right[number / 4 * COLUMNS + column]);
                add_products(product.factors, sum, a, b).to_bits()
            });
            self.registers.set_words(slot, u32::MAX, &values);
        }
        Ok(())
    }

    /// Left factors of the warp's 16 rows from registers, laid out as for `mma.sync`.
    fn held_factors(&self, list: List, factors: Factors, launch: &Launch<'_>) -> Vec<[f64; 16]> {
        let packed = factors.packed();
        let mut rows = vec![[0.0; 16]; ROWS];
        for (number, &source) in launch.program.sources(list).iter().enumerate() {
            let (AnySrc::Word(source) | AnySrc::Wide(source)) = source;
            let words = self.registers.words(&launch.program.constants, source);
            for (lane, &word) in words.iter().enumerate() {
                for half in 0..packed {
                    let inner = number / 2 * factors.inner() / 2 + lane % 4 * packed + half;
                    rows[lane / 4 + 8 * (number % 2)][inner] = factors.element(word, half);
                }
            }
        }
        rows
    }

    /// The elements of 32 bytes of some rows of the tile that a descriptor names.
    fn read_tile(
        &mut self,
        descriptor: Src,
        rows: std::ops::Range<u32>,
        factors: Factors,
        memory: &mut BlockMemory,
        launch: &Launch<'_>,
    ) -> Result<Vec<[f64; 16]>, Box<Trouble>> {
        let refuse = |detail: &str| Err(Trouble::new(FaultKind::InvalidOperand, 0, detail));
        let values = self.registers.wides(&launch.program.constants, descriptor);
        if values.iter().any(|&value| value != values[0]) {
            return refuse("the descriptor of `wgmma` differs between lanes");
        }
        let Some(tile) = Tile::of(values[0]) else {
            return refuse("this descriptor of `wgmma` is not supported by the emulator");
        };
        let mut read = Vec::new();
        for row in rows {
            let mut elements = [0.0; 16];
            for part in 0..2 {
                let address = tile.address(row, part);
                let lane = row % LANES as u32;
                let trouble =
                    |conflict| shared_trouble(conflict, lane, address, Kind::Read, launch);
                let addresses = [address; LANES];
                let shadow = &mut memory.shadow;
                shadow
                    .read_lanes(self.index, 1 << lane, &addresses, PART_BYTES, false)
                    .map_err(|(_, conflict)| trouble(conflict))?;
                shadow.start_async_read(address, PART_BYTES).map_err(trouble)?;
                self.products.started.push((self.products.committed, address));
                let bytes = &memory.shared[address as usize..][..PART_BYTES as usize];
                for (number, word) in bytes.chunks(4).enumerate() {
                    let register = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
                    for half in 0..factors.packed() {
                        let at = (4 * part as usize + number) * factors.packed() + half;
                        elements[at] = factors.element(register, half);
                    }
                }
            }
            read.push(elements);
        }
        Ok(read)
    }
}

/// Bytes that stay together in swizzled memory.
const PART_BYTES: u32 = 16;

/// An operand in shared memory (PTX ISA, "Matrix Descriptor Format"): rows of 128 bytes, eight of them
/// together, with 128-byte swizzle; or parts of 16 bytes, those of eight rows together, without.
struct Tile {
    start: u64,
    /// Bytes from eight rows to the next.
    stride: u64,
    /// Bytes from a part to the next one of the same row; none where rows are swizzled.
    lead: Option<u64>,
}

impl Tile {
    fn of(descriptor: u64) -> Option<Tile> {
        const NO_SWIZZLE: u64 = 0;
        const SWIZZLE_128: u64 = 1;
        let bytes = |bit: u32| (descriptor >> bit & 0x3fff) << 4;
        let lead = match descriptor >> 62 {
            NO_SWIZZLE => Some(bytes(16)),
            SWIZZLE_128 => None,
            _ => return None,
        };
        let aligned = descriptor >> 49 & 7 == 0;
        aligned.then_some(Tile { start: bytes(0), stride: bytes(32), lead })
    }

    fn address(&self, row: u32, part: u32) -> u64 {
        let (row, part) = (u64::from(row), u64::from(part));
        let start = self.start + row / 8 * self.stride;
        let bytes = u64::from(PART_BYTES);
        match self.lead {
            Some(lead) => start + row % 8 * bytes + part * lead,
            None => {
                let plain = start + row % 8 * 128 + part * bytes;
                plain ^ (plain >> 7 & 7) << 4
            }
        }
    }
}

/// The asynchronous products of a warp that have not been waited for.
#[derive(Debug, Default)]
pub(crate) struct AsyncProducts {
    /// Parts that are read, with their group.
    started: Vec<(u32, u64)>,
    /// Groups committed.
    committed: u32,
}

impl AsyncProducts {
    /// Closes the current group.
    pub(super) fn commit(&mut self) {
        self.committed += 1;
    }

    /// Ends all but the last `pending` committed groups.
    pub(super) fn wait(&mut self, pending: u32, shadow: &mut SharedShadow) {
        let committed = self.committed;
        self.started.retain(|&(group, address)| {
            let due = group + pending < committed;
            if due {
                shadow.end_async_read(address, PART_BYTES);
            }
            !due
        });
    }
}

/// A sum with the products of a step added block by block.
fn add_products(factors: Factors, mut sum: f32, a: &[f64; 16], b: &[f64; 16]) -> f32 {
    for first in (0..factors.inner()).step_by(factors.block()) {
        let mut addends = [0.0; 9];
        addends[0] = sum.into();
        for (addend, k) in addends[1..].iter_mut().zip(first..first + factors.block()) {
            *addend = a[k] * b[k];
        }
        sum = add_truncating(&addends);
    }
    sum
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
