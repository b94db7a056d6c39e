//! Passes: from an imported graph to a plan of fused regions.
//!
//! [`canonicalize`] rewrites a graph to primitive ops, [`fuse`] groups them into the regions of a plan
//! and gives each a schedule, [`memory::plan`] says where the values between regions lie.

mod canonicalize;
mod fuse;
pub mod memory;
mod schedule;

pub use canonicalize::canonicalize;
pub use fuse::fuse;

use fornax_ir::Diagnostic;
use fornax_ir::interp::InterpError;
use fornax_ir::plan::Rejection;

/// Why a pass gave up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PassError {
    /// The model holds an op that cannot be lowered (unsupported), or an expansion broke a constraint
    /// of the ops it expands to (our bug); the diagnostic names the node.
    #[error(transparent)]
    Op(#[from] Diagnostic),
    /// A constant expression could not be evaluated (our bug).
    #[error("constant folding: {0}")]
    Fold(#[from] InterpError),
    /// Fusion made a region that cannot be computed as one (our bug).
    #[error("region {region}: {rejection}")]
    Region {
        /// The region's name.
        region: String,
        /// What forbids it.
        rejection: Rejection,
    },
}
