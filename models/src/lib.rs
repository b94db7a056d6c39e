//! Importers of exported models into the Fornax graph IR.
//!
//! ONNX is read by [`onnx`]. This is the only crate that knows the file formats of others.

mod build;
mod error;
pub mod onnx;

use std::path::Path;

use fornax_ir::Graph;

pub use error::{ImportError, ImportOptions, MAX_DIAGNOSTICS};

/// An imported model.
#[derive(Debug, Clone)]
pub struct Imported {
    /// The graph, with its weights and the places of its nodes in the model's file.
    pub graph: Graph,
}

/// Imports a model from a file.
///
/// Weights share the memory maps of the model's files. Another program must not truncate these files
/// while the result lives.
///
/// # Errors
/// [`ImportError`]: the file cannot be read or is not a whole ONNX model, the options do not fit it, or it
/// needs what Fornax does not support.
pub fn import(path: &Path, options: &ImportOptions) -> Result<Imported, ImportError> {
    onnx::import_file(path, options)
}
