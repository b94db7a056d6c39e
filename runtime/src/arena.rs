//! Device memory for the buffers of a program.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::device::{Buffer, Device};
use crate::error::Error;

/// How the buffers of a plan are laid out in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Memory {
    /// At the offsets of the bundle's memory plan, reusing memory as buffers die.
    #[default]
    Planned,
    /// Each buffer in an allocation of its own. It takes more memory, and the emulator reports an access
    /// that leaves its buffer even when it hits another one.
    Separate,
}

/// Where a buffer lies in an arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    /// The plan's buffer.
    pub(crate) buffer: usize,
    /// Offset of its first byte.
    pub(crate) offset: u64,
    /// Its size.
    pub(crate) n_bytes: u64,
}

/// Memory for buffers.
#[derive(Debug)]
pub(crate) enum Arena {
    /// All of them in one allocation.
    Planned(Buffer),
    /// An allocation for each.
    Separate(BTreeMap<usize, Buffer>),
}

impl Arena {
    pub(crate) fn new(
        device: &Arc<dyn Device>,
        memory: Memory,
        n_bytes: u64,
        slots: &[Slot],
    ) -> Result<Arena, Error> {
        Ok(match memory {
            Memory::Planned => Arena::Planned(Buffer::new(device.clone(), n_bytes)?),
            Memory::Separate => {
                let mut buffers = BTreeMap::new();
                for slot in slots {
                    buffers.insert(slot.buffer, Buffer::new(device.clone(), slot.n_bytes)?);
                }
                Arena::Separate(buffers)
            }
        })
    }

    /// Whether the arena serves another program of that size, too.
    pub(crate) fn fits(&self, n_bytes: u64) -> bool {
        matches!(self, Arena::Planned(buffer) if buffer.n_bytes() >= n_bytes)
    }

    /// The address of a buffer that the arena was made for.
    pub(crate) fn address(&self, slot: &Slot) -> u64 {
        match self {
            Arena::Planned(buffer) => buffer.address() + slot.offset,
            Arena::Separate(buffers) => buffers
                .get(&slot.buffer)
                .expect("invariant: a separate arena has all slots it was made for")
                .address(),
        }
    }
}
