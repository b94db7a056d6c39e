//! Code generation: regions to kernel IR, kernel IR to PTX.
#![warn(missing_docs)]

mod error;
pub mod kernel;
mod llvm;
pub mod lower;
mod math;
pub mod ptx;
mod target;
pub mod vectorize;

pub use error::CodegenError;
pub use llvm::{emit_ptx, llvm_version};
pub use lower::{Arg, Launch, LoweredRegion, Workspace, lower};
pub use ptx::PtxModule;
pub use target::Target;
