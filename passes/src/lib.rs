//! Passes: from an imported graph to a plan of fused regions.
//!
//! [`canonicalize`] rewrites a graph to primitive ops, [`egraph::optimize`] finds the cheapest graph that
//! the [`rules`] prove equal, [`fuse`] chooses the [`regions`] of a plan and gives each a schedule, [`pack`] turns weights as schedules read them, [`memory::plan`] says where the values between regions lie.

mod canonicalize;
pub mod egraph;
mod fuse;
pub mod memory;
mod pack;
pub mod regions;
mod roll;
pub mod rules;
mod schedule;

pub use canonicalize::{canonicalize, settle_weights};
pub use fuse::{fuse, fuse_with};
pub use pack::pack;
pub use schedule::use_wgmma;

use fornax_ir::interp::InterpError;
use fornax_ir::plan::Rejection;
use fornax_ir::{Diagnostic, Type};

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
    /// Two nodes cannot be pinned into one region.
    #[error("{regions} cannot be one region: {reason}")]
    Pin {
        /// The nodes of the regions.
        regions: String,
        /// What forbids it.
        reason: String,
    },
    /// A node that users steer by is not there.
    #[error("`{node}`: {reason}")]
    Steering {
        /// The name given.
        node: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A rule equates values of different types (our bug).
    #[error("rule `{rule}` equates {left} and {right}")]
    Rule {
        /// The rule's name.
        rule: &'static str,
        /// The type of the matched value.
        left: Type,
        /// The type of what it should equal.
        right: Type,
    },
}
