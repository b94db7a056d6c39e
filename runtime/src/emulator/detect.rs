//! What is kept beside memory to detect faults.

mod blocks;
mod shared;

pub(crate) use blocks::{BlockConflict, BlockRaces, Writer};
pub(crate) use shared::{Conflict, Party, SharedShadow};
