//! What the emulator detects and how it runs.

pub use super::exec::Approximation;

/// Detectors and limits of an emulator.
///
/// Out-of-bounds and misaligned accesses, divergent barriers and traps always stop a kernel: there
/// is nothing sensible to do after them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmulatorOptions {
    /// Report reads of memory and registers that nothing has written.
    pub uninitialised: bool,
    /// Report races in shared memory.
    pub shared_races: bool,
    /// Report that two blocks write the same global bytes.
    pub block_races: bool,
    /// Warp instructions that a block may run before it counts as stuck.
    pub instruction_budget: u64,
    /// What approximate instructions give.
    pub approximation: Approximation,
    /// Threads that run blocks; `None` uses rayon's pool as it is.
    pub n_threads: Option<usize>,
    /// Streaming multiprocessors that the device claims to have.
    pub n_multiprocessors: u32,
    /// Shared memory that a block may have.
    pub max_shared_bytes: u32,
}

impl Default for EmulatorOptions {
    /// All detectors, exact approximations, and the limits of an H200.
    fn default() -> EmulatorOptions {
        EmulatorOptions {
            uninitialised: true,
            shared_races: true,
            block_races: true,
            instruction_budget: 1 << 28,
            approximation: Approximation::Rounded,
            n_threads: None,
            n_multiprocessors: 132,
            max_shared_bytes: 227 * 1024,
        }
    }
}

impl EmulatorOptions {
    /// No detector beyond those that always run.
    pub fn fast() -> EmulatorOptions {
        EmulatorOptions {
            uninitialised: false,
            shared_races: false,
            block_races: false,
            ..EmulatorOptions::default()
        }
    }
}
