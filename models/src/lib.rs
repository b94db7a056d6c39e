//! Importers of exported models into the Fornax graph IR.
//!
//! ONNX is read by [`onnx`], programs of `torch.export` (`.pt2`) and TorchScript by modules of their own, which share
//! one table of ATen operators. This is the only crate that knows the file formats of others.

mod aten;
mod build;
mod error;
mod exported;
pub mod onnx;
mod torch;
mod torchscript;

use std::path::Path;

use bytes::Bytes;
use fornax_ir::Graph;

pub use error::{ArchiveError, ImportError, ImportOptions, MAX_DIAGNOSTICS};

/// An imported model.
#[derive(Debug, Clone)]
pub struct Imported {
    /// The graph, with its weights and the places of its nodes in the model's file.
    pub graph: Graph,
}

/// Imports a model from a file, of the kind that its contents show: ONNX, a `.pt2` of
/// `torch.export.save`, or TorchScript.
///
/// Weights share the memory maps of the model's files. Another program must not truncate these files
/// while the result lives.
///
/// # Errors
/// [`ImportError`]: the file cannot be read or is not a whole model, the options do not fit it, or it
/// needs what Fornax does not support.
pub fn import(path: &Path, options: &ImportOptions) -> Result<Imported, ImportError> {
    let bytes = onnx::read(path)?;
    if bytes.starts_with(b"PK") {
        return import_archive(bytes, path, options);
    }
    onnx::import_file(path, options)
}

/// Imports a model of PyTorch's from the bytes of its file, a zip archive; `path` is for messages.
///
/// # Errors
/// As [`import`].
pub fn import_archive(
    bytes: Bytes,
    path: &Path,
    options: &ImportOptions,
) -> Result<Imported, ImportError> {
    let archive = torch::archive::Archive::open(bytes)
        .map_err(|source| ImportError::Archive { path: path.to_owned(), source })?;
    if exported::is_exported(&archive) {
        return exported::import(archive, path, options);
    }
    if torchscript::is_torchscript(&archive) {
        return torchscript::import(archive, path, options);
    }
    let what = match archive.contains("data.pkl") {
        true => {
            "weights without a program (a PyTorch checkpoint); save the model with torch.export.save"
        }
        false => "a zip archive that holds no model of PyTorch",
    };
    Err(ImportError::OtherFormat { path: path.to_owned(), what })
}
