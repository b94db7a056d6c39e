//! What can go wrong in reading a model.

use std::io;
use std::path::PathBuf;

use crate::onnx::WireFault;

/// Why a model cannot be imported. Every variant is about the user's model, options or files.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The file cannot be read.
    #[error("{}: cannot read the model: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The path is not a file.
    #[error("{}: not a file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The file has no bytes.
    #[error("{}: the file is empty", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The file is recognisably something else.
    #[error("{}: not an ONNX model, but {what}", path.display())]
    OtherFormat {
        /// The file.
        path: PathBuf,
        /// What it is, and what to do.
        what: &'static str,
    },
    /// The file's bytes do not hold together.
    #[error("{}: not a readable ONNX model: {fault}", path.display())]
    Wire {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        fault: WireFault,
    },
    /// The bytes are messages, but not those of ONNX.
    #[error("{}: not a readable ONNX model: {source}", path.display())]
    Decode {
        /// The file.
        path: PathBuf,
        /// The message and field that do not fit.
        source: prost::DecodeError,
    },
    /// A required part of the model is missing.
    #[error("{}: not a whole ONNX model: {what}", path.display())]
    Incomplete {
        /// The file.
        path: PathBuf,
        /// What is missing.
        what: &'static str,
    },
}
