//! Writes of different blocks to the same global bytes.
//!
//! Nothing orders two blocks of a launch, so bytes that two of them write by plain stores end up
//! with either value. Per grain (the narrowest global store of the kernel) the least writer is kept;
//! whatever order blocks run in, the conflict reported is the same one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::super::memory::{Allocation, zeroed};

/// Two blocks that write the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BlockConflict {
    /// The later block in the grid's order.
    pub(crate) writer: Writer,
    /// The earlier one.
    pub(crate) other: Writer,
    /// The address.
    pub(crate) address: u64,
}

/// A store by a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Writer {
    /// Linear index of the block.
    pub(crate) block: u32,
    /// The instruction.
    pub(crate) pc: u32,
    /// Linear index of the thread.
    pub(crate) thread: u32,
}

impl Writer {
    /// Orders as the writer does; never zero.
    fn pack(self) -> u64 {
        (u64::from(self.block) + 1) << 32
            | u64::from(self.pc & 0x3f_ffff) << 10
            | u64::from(self.thread & 0x3ff)
    }

    fn unpack(tag: u64) -> Writer {
        Writer {
            block: (tag >> 32) as u32 - 1,
            pc: (tag >> 10) as u32 & 0x3f_ffff,
            thread: tag as u32 & 0x3ff,
        }
    }
}

/// The writers of a launch.
#[derive(Debug)]
pub(crate) struct BlockRaces {
    grain_shift: u32,
    /// By allocation, once it is written to.
    tags: Vec<OnceLock<Box<[AtomicU64]>>>,
    first: Mutex<Option<BlockConflict>>,
}

impl BlockRaces {
    /// Nothing is tracked for zero allocations.
    pub(crate) fn new(n_allocations: usize, grain: u32) -> BlockRaces {
        BlockRaces {
            grain_shift: grain.trailing_zeros(),
            tags: (0..n_allocations).map(|_| OnceLock::new()).collect(),
            first: Mutex::new(None),
        }
    }

    /// Notes a store.
    #[inline]
    pub(crate) fn note(
        &self,
        index: usize,
        allocation: &Allocation,
        offset: u64,
        n_bytes: u32,
        writer: Writer,
    ) {
        let Some(cell) = self.tags.get(index) else { return };
        let tags = cell
            .get_or_init(|| zeroed(allocation.n_bytes.div_ceil(1 << self.grain_shift) as usize));
        let tag = writer.pack();
        let first = offset >> self.grain_shift;
        let end = (offset + u64::from(n_bytes)).div_ceil(1 << self.grain_shift);
        for grain in first..end {
            let cell = &tags[grain as usize];
            let mut old = cell.load(Ordering::Relaxed);
            while old == 0 || tag < old {
                let order = Ordering::Relaxed;
                match cell.compare_exchange_weak(old, tag, order, order) {
                    Ok(_) => break,
                    Err(now) => old = now,
                }
            }
            if old != 0 && old >> 32 != tag >> 32 {
                self.report(old, tag, allocation.base + (grain << self.grain_shift));
            }
        }
    }

    #[cold]
    fn report(&self, one: u64, two: u64, address: u64) {
        let conflict = BlockConflict {
            writer: Writer::unpack(one.max(two)),
            other: Writer::unpack(one.min(two)),
            address,
        };
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        if first.is_none_or(|first| conflict < first) {
            *first = Some(conflict);
        }
    }

    /// The least conflict found.
    pub(crate) fn first(&self) -> Option<BlockConflict> {
        *self.first.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
