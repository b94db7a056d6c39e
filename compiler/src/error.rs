//! What can go wrong between a model file and a bundle, or between a bundle and its outputs.

use std::path::PathBuf;

use fornax_bundle::BundleError;

/// An error of the compiler driver. Each message says what is wrong, where, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The model cannot be imported (user's model, or unsupported).
    #[cfg(feature = "llvm")]
    #[error("{0}")]
    Import(#[from] fornax_models::ImportError),
    /// A pass gave up: an op that cannot be compiled, or our bug; the text names the node.
    #[error("{0}")]
    Pass(String),
    /// A stage produced something that its verifier rejects (our bug).
    #[error("internal error: after {stage}: {faults}")]
    Verify {
        /// The stage.
        stage: &'static str,
        /// What the verifier says, a line a fault.
        faults: String,
    },
    /// A region cannot be lowered or its kernel not emitted; the text names it.
    #[error("{0}")]
    Codegen(String),
    /// A bundle cannot be read or written.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// The bundle's graph or plan text does not parse.
    #[error("`{path}`: {entry}: {reason}")]
    Text {
        /// The bundle.
        path: PathBuf,
        /// The entry inside.
        entry: String,
        /// What the parser says.
        reason: String,
    },
    /// A bundle lacks what an explanation is made from, or it does not parse.
    #[error("{0}")]
    Ledger(String),
    /// The device cannot be used, or a run on it failed.
    #[error(transparent)]
    Runtime(#[from] fornax_runtime::Error),
    /// The reference interpreter rejects inputs or weights.
    #[error("reference: {0}")]
    Reference(#[from] fornax_ir::interp::InterpError),
    /// A file of the user cannot be read or written.
    #[error("`{path}`: {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// An option has a value it cannot have.
    #[error("{option}: {reason}")]
    Option {
        /// The option, as given on the command line.
        option: String,
        /// What is wrong and what is possible.
        reason: String,
    },
}
