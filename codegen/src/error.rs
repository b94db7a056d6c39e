//! The errors of code generation.

use std::sync::Arc;

use fornax_bundle::DType;

use crate::Target;

/// Why no code could be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodegenError {
    /// A target that is not known. The user's option.
    #[error("unknown target `{name}`; known are sm_80, sm_89, sm_90a and sm_100a")]
    UnknownTarget {
        /// What was asked for.
        name: String,
    },
    /// A region that cannot be lowered as its schedule says: fusion made one that is not legal (our
    /// fault), or an operator of the user's model has no lowering (unsupported).
    #[error("cannot lower region {region}: {reason}, at `{op}`{}", from_nodes(.sources))]
    Region {
        /// The region's name.
        region: String,
        /// The operator at which it fails.
        op: String,
        /// Names of the imported model's nodes that it comes from.
        sources: Vec<Arc<str>>,
        /// What is not supported.
        reason: String,
    },
    /// A function has no code for an element type. Unsupported.
    #[error(
        "kernel `{kernel}`: `{function}` is not available for {dtype}; cast to another type first"
    )]
    UnsupportedFunction {
        /// The kernel's name.
        kernel: String,
        /// The function's name.
        function: String,
        /// The element type.
        dtype: DType,
    },
    /// An element type that is named but not computed with. Unsupported.
    #[error("kernel `{kernel}`: element type {dtype} cannot be computed with; cast it at the host")]
    UnsupportedType {
        /// The kernel's name.
        kernel: String,
        /// The element type.
        dtype: DType,
    },
    /// More shared memory than a block may have. Our fault: a schedule that does not fit.
    #[error("kernel `{kernel}` needs {needed} bytes of shared memory; {target} has {available}")]
    SharedMemory {
        /// The kernel's name.
        kernel: String,
        /// The target.
        target: Target,
        /// Bytes it asks for.
        needed: u64,
        /// Bytes a block may have.
        available: u32,
    },
    /// An instruction that the target does not have. Our fault: a schedule for another target.
    #[error("kernel `{kernel}`: {target} has no {instruction}")]
    UnsupportedInstruction {
        /// The kernel's name.
        kernel: String,
        /// The target.
        target: Target,
        /// What it lacks.
        instruction: &'static str,
    },
    /// A kernel that breaks the kernel IR's invariants. Our fault.
    #[error("internal error: kernel `{kernel}` is malformed: {}", faults.join("; "))]
    Malformed {
        /// The kernel's name.
        kernel: String,
        /// All faults found.
        faults: Vec<String>,
    },
    /// LLVM refused what was made. Our fault.
    #[error("internal error: LLVM refuses kernel `{kernel}` for {target}: {message}")]
    Llvm {
        /// The kernel's name.
        kernel: String,
        /// The target.
        target: Target,
        /// What LLVM says.
        message: String,
    },
}

fn from_nodes(sources: &[Arc<str>]) -> String {
    if sources.is_empty() {
        return String::new();
    }
    let names: Vec<String> = sources.iter().map(|name| format!("\"{name}\"")).collect();
    format!(" (from node {})", names.join(", "))
}
