//! What can go wrong when a bundle is loaded or run.

use std::fmt;

/// An error of the runtime.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// PTX text that could not be parsed, or that uses an instruction the emulator does not have.
    #[error("PTX line {line}: {message}\n  {line:>5} | {text}")]
    Ptx {
        /// Line number in the PTX text, from 1.
        line: usize,
        /// That line, without leading and trailing space.
        text: String,
        /// What is wrong with it.
        message: String,
    },
    /// A module has no kernel of this name.
    #[error("the module has no kernel `{name}`; it has: {}", list(.available))]
    UnknownKernel {
        /// The name asked for.
        name: String,
        /// The kernels that the module has.
        available: Vec<String>,
    },
    /// A kernel, module or event was given to a device that did not make it.
    #[error("this {what} was made by another device")]
    ForeignHandle {
        /// `module`, `kernel` or `event`.
        what: &'static str,
    },
    /// A launch whose grid, block, shared memory or arguments the kernel or the device refuses.
    #[error("cannot launch kernel `{kernel}`: {reason}")]
    Launch {
        /// The kernel's name.
        kernel: String,
        /// Which limit or declaration the launch breaks, with both values.
        reason: String,
    },
    /// A fault while a kernel ran on the emulator.
    #[error("{0}")]
    Fault(Box<Fault>),
    /// Device memory is used up.
    #[error("out of device memory: {requested_bytes} bytes requested ({reason})")]
    OutOfMemory {
        /// Size of the allocation that failed.
        requested_bytes: u64,
        /// What the device said.
        reason: String,
    },
    /// A host copy, fill or free names device memory that it may not touch.
    #[error("{operation} of {n_bytes} bytes at device address {address:#x}: {reason}")]
    Memory {
        /// `copy to device`, `copy to host`, `fill`, `free`, ...
        operation: &'static str,
        /// Start of the range.
        address: u64,
        /// Length of the range.
        n_bytes: u64,
        /// Why it was refused.
        reason: String,
    },
    /// The bundle cannot be read.
    #[error(transparent)]
    Bundle(#[from] fornax_bundle::BundleError),
    /// The inputs are not what the model takes.
    #[error(transparent)]
    Signature(#[from] fornax_bundle::SignatureError),
    /// A size of the bundle cannot be computed.
    #[error(transparent)]
    Dim(#[from] fornax_bundle::DimError),
    /// No plan of the bundle runs on the device.
    #[error(
        "the bundle has code for {}{}; {device} has compute capability {}.{}",
        list(.available),
        asked_for(.wanted),
        .compute_capability.0,
        .compute_capability.1
    )]
    NoPlan {
        /// The target asked for, if any.
        wanted: Option<String>,
        /// The targets the bundle was compiled for.
        available: Vec<String>,
        /// The device.
        device: String,
        /// The device's compute capability.
        compute_capability: (u32, u32),
    },
    /// A module of the bundle cannot be loaded.
    #[error("{entry}: {source}")]
    Module {
        /// The bundle's entry.
        entry: String,
        /// Why.
        source: Box<Error>,
    },
    /// Weights that are not embedded were not given.
    #[error("the bundle leaves these weights to be given at load: {}", list(.names))]
    MissingWeights {
        /// Their names.
        names: Vec<String>,
    },
    /// A weight cannot be bound to the tensor given.
    #[error("weight `{name}`: {reason}")]
    Weight {
        /// Its name.
        name: String,
        /// Why.
        reason: String,
    },
    /// Device pointers that the run cannot use.
    #[error("{reason}")]
    Pointers {
        /// Which and why.
        reason: String,
    },
    /// The bundle's plan does not work out for these sizes; a bug of the compiler that made it.
    #[error("the bundle's plan is inconsistent: {what}: {reason}")]
    Plan {
        /// The buffer, arena or output.
        what: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A kernel of a bundle went wrong.
    #[error("{source}\n  in region {region} (kernel `{kernel}`), which computes: {}", list(.nodes))]
    InKernel {
        /// The kernel's name.
        kernel: String,
        /// The region's name.
        region: String,
        /// The imported model's nodes in the region.
        nodes: Vec<String>,
        /// What happened.
        source: Box<Error>,
    },
    /// A name that no device has.
    #[error("`{name}` is not a device: expected emulator, cuda or cuda:<index>")]
    UnknownDevice {
        /// The name.
        name: String,
    },
    /// There is no usable CUDA driver or no such device.
    #[error("CUDA is not available: {reason}; the device `emulator` needs no GPU")]
    CudaUnavailable {
        /// What was looked for and not found.
        reason: String,
    },
    /// A call of the CUDA driver failed.
    #[error("{call} failed with {name}: {message}")]
    Cuda {
        /// The driver function.
        call: &'static str,
        /// The driver's name of the error, for example `CUDA_ERROR_INVALID_PTX`.
        name: String,
        /// The driver's description, with the JIT log where there is one.
        message: String,
    },
}

impl Error {
    /// The emulator's fault that this error reports, if it does.
    pub fn fault(&self) -> Option<&Fault> {
        match self {
            Error::Fault(fault) => Some(fault),
            Error::InKernel { source, .. } | Error::Module { source, .. } => source.fault(),
            _ => None,
        }
    }
}

/// Where and why a kernel went wrong on the emulator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What happened.
    pub kind: FaultKind,
    /// Name of the kernel.
    pub kernel: String,
    /// `%ctaid` of the block.
    pub block: [u32; 3],
    /// `%tid` of the thread.
    pub thread: [u32; 3],
    /// Line of the instruction in the PTX text, from 1.
    pub line: usize,
    /// The text of that line, without leading and trailing space.
    pub text: String,
    /// Addresses, sizes and the other thread, where they apply.
    pub detail: String,
}

/// The kinds of faults that the emulator detects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum FaultKind {
    /// An access outside every allocation or variable, or past the end of one.
    OutOfBounds,
    /// An address that is not a multiple of the access size.
    Misaligned,
    /// A read of bytes or of a register that nothing has written.
    Uninitialised,
    /// Two threads of a block touch the same shared bytes, at least one writes, and no barrier
    /// orders them.
    SharedRace,
    /// Two blocks write the same global bytes, at least one of them not atomically.
    BlockRace,
    /// A barrier, or a warp-level operation, that some of its threads never reach.
    DivergentBarrier,
    /// The block ran more instructions than the budget allows.
    InstructionBudget,
    /// A `trap` instruction.
    Trap,
    /// An operand that the instruction does not define a result for.
    InvalidOperand,
}

impl FaultKind {
    /// The name used in messages and in tests.
    pub fn name(self) -> &'static str {
        match self {
            FaultKind::OutOfBounds => "out-of-bounds access",
            FaultKind::Misaligned => "misaligned access",
            FaultKind::Uninitialised => "read of uninitialised data",
            FaultKind::SharedRace => "shared-memory race",
            FaultKind::BlockRace => "race between blocks",
            FaultKind::DivergentBarrier => "divergent barrier",
            FaultKind::InstructionBudget => "instruction budget used up",
            FaultKind::Trap => "trap",
            FaultKind::InvalidOperand => "invalid operand",
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([bx, by, bz], [tx, ty, tz]) = (self.block, self.thread);
        write!(
            f,
            "{} in kernel `{}`, block ({bx},{by},{bz}), thread ({tx},{ty},{tz}): {}\n  {:>5} | {}",
            self.kind, self.kernel, self.detail, self.line, self.text
        )
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Error {
        Error::Fault(Box::new(fault))
    }
}

fn list(names: &[String]) -> String {
    const SHOWN: usize = 20;
    match names.len() {
        0 => "none".to_owned(),
        n if n > SHOWN => format!("{} and {} more", names[..SHOWN].join(", "), n - SHOWN),
        _ => names.join(", "),
    }
}

fn asked_for(target: &Option<String>) -> String {
    target.as_ref().map_or(String::new(), |target| format!(", of which {target} was asked for"))
}
