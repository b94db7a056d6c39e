//! PTX modules, and their assembly by NVIDIA's `ptxas` where it is installed.

mod ptxas;

pub use ptxas::{Ptxas, PtxasError, Usage};

/// A kernel as PTX text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PtxModule {
    /// The text.
    pub text: String,
    /// The entry's name.
    pub entry: String,
    /// Dynamic shared memory to launch with, in bytes; 0 when the static kind suffices.
    pub dynamic_shared_bytes: u32,
    /// Threads of a block.
    pub threads: u32,
}
