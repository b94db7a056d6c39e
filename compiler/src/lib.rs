//! The Fornax compiler driver: from a model file to a bundle ([`compile`]), and what users do with
//! bundles: run, validate, inspect, profile.
//!
//! The `fornax` program is a thin shell over this crate. Without the feature `llvm` everything but
//! compiling is there, and nothing but libc is needed.

#[cfg(feature = "llvm")]
mod assemble;
#[cfg(feature = "llvm")]
mod compile;
mod error;
mod explain;
mod inspect;
mod ledger;
mod load;
#[cfg(feature = "llvm")]
mod options;
mod report;
mod sizes;
pub mod tensors;
pub mod validate;

#[cfg(feature = "llvm")]
pub use compile::{Compiled, Observer, Stage, compile, compile_graph, run_pass};
pub use error::Error;
pub use explain::{diff, explain, why_not};
#[cfg(feature = "llvm")]
pub use fornax_bundle::PrecisionPolicy;
#[cfg(feature = "llvm")]
pub use fornax_passes::regions::Outcome;
pub use inspect::{Parts as InspectParts, inspect};
pub use ledger::{FusionEntry, Ledger, OpEntry, RegionEntry, RuleUse};
pub use load::Loaded;
#[cfg(feature = "llvm")]
pub use options::{CompileOptions, Rewrites, Steering, WeightsMode};
pub use report::report;
pub use sizes::{GivenDims, GivenShape, parse_dims, parse_dims_and_ranges, parse_shapes};
