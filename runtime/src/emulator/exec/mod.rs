//! Runs decoded kernels, a warp at a time.

mod approx;
mod async_copy;
mod atomic;
mod block;
mod collective;
mod control;
mod convert;
mod float;
mod global;
mod half;
mod integer;
mod local;
mod matrix;
mod memory;
mod registers;
mod rounding;
mod shared;
mod special;
mod warp;

pub use approx::Approximation;
pub(crate) use block::{BlockRunner, Stopped};

use std::sync::Arc;

use super::detect::BlockRaces;
use super::memory::Allocation;
use super::options::EmulatorOptions;
use super::program::Program;
use crate::device::LaunchConfig;
use crate::error::FaultKind;

/// What all blocks of a launch share.
pub(crate) struct Launch<'a> {
    /// The kernel.
    pub(crate) program: &'a Program,
    /// Grid, block and cluster.
    pub(crate) config: LaunchConfig,
    /// The parameter space.
    pub(crate) parameters: Vec<u8>,
    /// Device memory by increasing address.
    pub(crate) allocations: Vec<Arc<Allocation>>,
    /// Detectors and limits.
    pub(crate) options: &'a EmulatorOptions,
    /// Writes of blocks to the same bytes.
    pub(crate) races: BlockRaces,
    /// `%nsmid`.
    pub(crate) n_multiprocessors: u32,
}

impl Launch<'_> {
    /// Threads of a block.
    pub(crate) fn n_threads(&self) -> u32 {
        self.config.block.iter().product()
    }

    /// `%tid` of the thread with this linear index.
    pub(crate) fn thread(&self, index: u32) -> [u32; 3] {
        coordinates(u64::from(index), self.config.block)
    }
}

/// Splits a linear index, x fastest.
pub(crate) fn coordinates(index: u64, extents: [u32; 3]) -> [u32; 3] {
    let [x, y, _] = extents.map(u64::from);
    [(index % x) as u32, (index / x % y) as u32, (index / x / y) as u32]
}

/// A fault before it is known where it happened.
#[derive(Debug)]
pub(crate) struct Trouble {
    /// What happened.
    pub(crate) kind: FaultKind,
    /// To which lane.
    pub(crate) lane: u32,
    /// More about it.
    pub(crate) detail: String,
    /// The instruction, where it is not the warp's current one.
    pub(crate) pc: Option<u32>,
}

impl Trouble {
    /// A fault of the current instruction.
    #[cold]
    pub(crate) fn new(kind: FaultKind, lane: u32, detail: impl Into<String>) -> Box<Trouble> {
        Box::new(Trouble { kind, lane, detail: detail.into(), pc: None })
    }

    /// A fault of an instruction that the warp is not at.
    #[cold]
    pub(crate) fn at(
        kind: FaultKind,
        lane: u32,
        pc: u32,
        detail: impl Into<String>,
    ) -> Box<Trouble> {
        Box::new(Trouble { kind, lane, detail: detail.into(), pc: Some(pc) })
    }
}

/// The lanes of a mask in order.
pub(crate) fn lanes(mask: u32) -> impl Iterator<Item = u32> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        if rest == 0 {
            return None;
        }
        let lane = rest.trailing_zeros();
        rest &= rest - 1;
        Some(lane)
    })
}
