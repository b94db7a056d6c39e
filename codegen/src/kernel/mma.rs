//! Matrix multiply-accumulate on tensor cores: what is multiplied and which thread holds it.
//!
//! `mma.sync` multiplies 16 rows by 8 columns over a step of inner elements (PTX ISA, "Matrix Fragments
//! for mma.m16n8k8" and "mma.m16n8k16"). A warp's tile is made of such products, a block's tile of its
//! warps' tiles. Which inner element stands at which place of a product does not matter as long as it
//! is the same for both operands; so each thread holds 16 bytes of adjacent inner elements, which one
//! instruction reads from shared memory.

use std::str::FromStr;

use fornax_bundle::DType;

use super::{Layout, Mode};

/// What the factors of a product are in the tensor core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Factor {
    /// `f32` of which 11 bits of precision are used.
    Tf32,
    /// bfloat16.
    Bf16,
    /// binary16.
    F16,
}

/// A block's tile of products and how warps share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MmaTile {
    /// What is multiplied.
    pub factor: Factor,
    /// Rows of the block's tile.
    pub rows: u32,
    /// Columns of the block's tile.
    pub columns: u32,
    /// Warps along the rows.
    pub warps_m: u32,
    /// Warps along the columns.
    pub warps_n: u32,
}

/// A block's tile of products and how warpgroups (four warps each) share it: `wgmma.mma_async` multiplies 64
/// rows by up to 256 columns from shared memory (PTX ISA, "Asynchronous Warpgroup Level Matrix").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WgmmaTile {
    /// What is multiplied.
    pub factor: Factor,
    /// Rows of the block's tile.
    pub rows: u32,
    /// Columns of the block's tile.
    pub columns: u32,
    /// Warpgroups along the rows.
    pub groups_m: u32,
    /// Warpgroups along the columns.
    pub groups_n: u32,
}

/// Where the rows of a left operand lie that is read from shared memory in parts of 16 bytes: adjacent inner
/// elements of a row (PTX ISA, "Matrix Descriptor Format", without swizzle). The parts of eight rows are
/// adjacent. All numbers are elements, multiples of a part's.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Places {
    /// From eight rows to the next eight of the same product.
    pub stride: u32,
    /// Products of 64 rows lie in lines of so many, a power of two.
    pub across: u32,
    /// From a product to the next one in its line.
    pub step: u32,
    /// From a line to the next.
    pub pitch: u32,
    /// Where each part of the inner elements starts: two for each product, in rising order, up to those of
    /// 128 bytes. The right operand's begin at its first ones.
    pub starts: Vec<u32>,
}

/// Bytes of a part of [`Places`].
const PART_BYTES: u32 = 16;

/// Parts of the inner elements of one instruction, and most of them in a step.
const INSTRUCTION_PARTS: usize = 2;
const MOST_PARTS: usize = 8;

impl Places {
    /// Where a product of 64 rows lies from the first one.
    pub fn product(&self, number: u32) -> u32 {
        number % self.across * self.step + number / self.across * self.pitch
    }

    /// Whether all numbers are what they have to be for elements of `bytes`.
    pub fn is_whole(&self, bytes: u32) -> bool {
        let parts = [self.stride, self.step, self.pitch];
        let whole = |&elements: &u32| (elements * bytes).is_multiple_of(PART_BYTES);
        let rises = |pair: &[u32]| pair[0] <= pair[1];
        parts.iter().chain(&self.starts).all(whole)
            && self.across.is_power_of_two()
            && (INSTRUCTION_PARTS..=MOST_PARTS).contains(&self.starts.len())
            && self.starts.len().is_multiple_of(INSTRUCTION_PARTS)
            && self.starts.chunks(INSTRUCTION_PARTS).all(rises)
    }
}

/// Bytes of adjacent inner elements that a thread holds of a row.
const HELD_BYTES: u32 = 16;

impl Factor {
    /// All kinds.
    pub const ALL: [Factor; 3] = [Factor::Tf32, Factor::Bf16, Factor::F16];

    /// The name in text forms and in PTX.
    pub fn name(self) -> &'static str {
        match self {
            Factor::Tf32 => "tf32",
            Factor::Bf16 => "bf16",
            Factor::F16 => "f16",
        }
    }

    /// The type of factors in memory and fragments.
    pub fn dtype(self) -> DType {
        match self {
            Factor::Tf32 => DType::F32,
            Factor::Bf16 => DType::BF16,
            Factor::F16 => DType::F16,
        }
    }

    /// Adjacent inner elements that a thread holds of a row.
    pub fn held(self) -> u32 {
        HELD_BYTES / self.dtype().size() as u32
    }

    /// Inner elements of one instruction that a thread holds of a row.
    pub fn per_instruction(self) -> u32 {
        match self {
            Factor::Tf32 => 2,
            Factor::Bf16 | Factor::F16 => 4,
        }
    }
}

impl FromStr for Factor {
    type Err = String;

    fn from_str(text: &str) -> Result<Factor, String> {
        let found = Factor::ALL.into_iter().find(|factor| factor.name() == text);
        found.ok_or_else(|| format!("there is no factor `{text}`"))
    }
}

impl MmaTile {
    /// Products along the rows of a warp's tile.
    pub fn products_m(&self) -> u32 {
        self.rows / self.warps_m / 16
    }

    /// Products along the columns of a warp's tile.
    pub fn products_n(&self) -> u32 {
        self.columns / self.warps_n / 8
    }

    /// Products of a warp along the columns whose columns are interleaved, so that a thread holds
    /// adjacent ones: two where there are two.
    pub fn interleaved(&self) -> u32 {
        if self.products_n().is_multiple_of(2) { 2 } else { 1 }
    }

    /// Whether the sizes are whole numbers of products for each warp.
    pub fn is_whole(&self) -> bool {
        let whole = |size: u32, warps: u32, product: u64| {
            warps > 0 && size > 0 && u64::from(size).is_multiple_of(u64::from(warps) * product)
        };
        whole(self.rows, self.warps_m, 16) && whole(self.columns, self.warps_n, 8)
    }

    /// The sums: rows, columns.
    pub fn sums(&self) -> Layout {
        let pair = self.interleaved();
        let rest = self.products_n() / pair;
        Layout {
            shape: vec![self.rows, self.columns],
            registers: digits(&[
                (1, 2, 1),
                (1, pair, 2),
                (0, 2, 8),
                (0, self.products_m(), 16),
                (1, rest, 8 * pair),
            ]),
            threads: digits(&[
                (1, 4, 2 * pair),
                (0, 8, 1),
                (0, self.warps_m, self.rows / self.warps_m),
                (1, self.warps_n, self.columns / self.warps_n),
            ]),
        }
    }

    /// Left factors: rows, then the four threads of a row, then the adjacent inner elements of each.
    pub fn left(&self) -> Layout {
        Layout {
            shape: vec![self.rows, 4, self.factor.held()],
            registers: digits(&[(2, self.factor.held(), 1), (0, 2, 8), (0, self.products_m(), 16)]),
            threads: digits(&[
                (1, 4, 1),
                (0, 8, 1),
                (0, self.warps_m, self.rows / self.warps_m),
                (0, self.warps_n, 0),
            ]),
        }
    }

    /// Right factors: columns, then as for [`MmaTile::left`].
    pub fn right(&self) -> Layout {
        let pair = self.interleaved();
        let rest = self.products_n() / pair;
        Layout {
            shape: vec![self.columns, 4, self.factor.held()],
            registers: digits(&[(2, self.factor.held(), 1), (0, pair, 2), (0, rest, 8 * pair)]),
            threads: digits(&[
                (1, 4, 1),
                (0, 2, 1),
                (0, 4, 2 * pair),
                (0, self.warps_m, 0),
                (0, self.warps_n, self.columns / self.warps_n),
            ]),
        }
    }
}

impl WgmmaTile {
    /// Products of 64 rows of a warpgroup.
    pub fn products(&self) -> u32 {
        self.rows / self.groups_m / 64
    }

    /// Columns of a warpgroup.
    pub fn group_columns(&self) -> u32 {
        self.columns / self.groups_n
    }

    /// Whether the sizes are whole numbers of products for each warpgroup.
    pub fn is_whole(&self) -> bool {
        let whole = |size: u32, groups: u32, product: u64| {
            groups > 0 && size > 0 && u64::from(size).is_multiple_of(u64::from(groups) * product)
        };
        whole(self.rows, self.groups_m, 64)
            && whole(self.columns, self.groups_n, 8)
            && self.group_columns() <= 256
    }

    /// Left factors of 128 bytes of inner elements: rows, inner elements (PTX ISA, "Register Fragments for
    /// wgmma.mma_async.m64k8", "m64k16").
    pub fn left(&self) -> Layout {
        // Elements of a 32-bit register.
        let packed = 4 / self.factor.dtype().size() as u32;
        Layout {
            shape: vec![self.rows, 32 * packed],
            registers: digits(&[
                (1, packed, 1),
                (0, 2, 8),
                (1, 2, 4 * packed),
                (1, 4, 8 * packed),
                (0, self.products(), 64),
            ]),
            threads: digits(&[
                (1, 4, packed),
                (0, 8, 1),
                (0, 4, 16),
                (0, self.groups_m, self.rows / self.groups_m),
                (0, self.groups_n, 0),
            ]),
        }
    }

    /// The sums: rows, columns.
    pub fn sums(&self) -> Layout {
        Layout {
            shape: vec![self.rows, self.columns],
            registers: digits(&[
                (1, 2, 1),
                (0, 2, 8),
                (1, self.group_columns() / 8, 8),
                (0, self.products(), 64),
            ]),
            threads: digits(&[
                (1, 4, 2),
                (0, 8, 1),
                (0, 4, 16),
                (0, self.groups_m, self.rows / self.groups_m),
                (1, self.groups_n, self.group_columns()),
            ]),
        }
    }
}

/// Digits without those that have one value.
fn digits(digits: &[(u32, u32, u32)]) -> Vec<Mode> {
    digits
        .iter()
        .filter(|&&(_, size, _)| size > 1)
        .map(|&(dim, size, stride)| Mode::new(dim, size, stride))
        .collect()
}
