//! What can go wrong in reading a model.

use std::collections::BTreeMap;
use std::io;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use fornax_ir::{DType, Diagnostic, Dim};

use crate::onnx::WireFault;
pub use crate::torch::archive::ArchiveError;

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
    #[error("{}: not a model that Fornax reads, but {what}", path.display())]
    OtherFormat {
        /// The file.
        path: PathBuf,
        /// What it is, and what to do.
        what: &'static str,
    },
    /// The file is a zip archive that cannot be read.
    #[error("{}: {source}", path.display())]
    Archive {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: ArchiveError,
    },
    /// The file is a `.pt2`, but not a whole or a known one.
    #[error("{}: not a readable .pt2 file: {what}", path.display())]
    Exported {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The file is one of TorchScript, but its parts cannot be read.
    #[error("{}: not a readable TorchScript file: {what}", path.display())]
    TorchScript {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
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
    /// An option gives a size to a dimension that the model does not have.
    #[error("no dimension of the model's inputs is named {name:?}; named dimensions: {known}")]
    UnknownDim {
        /// The name in the option.
        name: String,
        /// The names there are.
        known: String,
    },
    /// An option gives a range to a dimension that the model, or another option, makes narrower.
    #[error("dimension {name:?} cannot range over {given}: it is {declared}")]
    RangeConflict {
        /// The dimension.
        name: String,
        /// The range in the option.
        given: String,
        /// What the model or another option says.
        declared: String,
    },
    /// A size does not fit in 63 bits.
    #[error("the size {size} of dimension {name:?} is too large")]
    HugeSize {
        /// The dimension.
        name: String,
        /// The size.
        size: u64,
    },
    /// An option gives a shape to an input that the model does not have.
    #[error("the model has no input {name:?}; inputs: {known}")]
    UnknownInput {
        /// The name in the option.
        name: String,
        /// The names there are.
        known: String,
    },
    /// An option's shape has another rank than the input.
    #[error("input {input:?} has rank {declared}, but the shape given for it has rank {given}")]
    Rank {
        /// The input.
        input: String,
        /// Rank of the option's shape.
        given: usize,
        /// Rank in the model.
        declared: usize,
    },
    /// An option contradicts the model, or another option.
    #[error("input {input:?}, axis {axis}: the size must be {expected}, but {given} is given")]
    SizeConflict {
        /// The input.
        input: String,
        /// The axis.
        axis: usize,
        /// What the model or another option says.
        expected: String,
        /// What the option says.
        given: String,
    },
    /// The model does not say how many axes an input has.
    #[error(
        "the rank of input {input:?} is unknown; give its shape, as in --shape {input}=1,3,224,224"
    )]
    UnknownRank {
        /// The input.
        input: String,
    },
    /// The model is read, but cannot be imported.
    #[error("{rendered}")]
    Model {
        /// The faults, at most [`MAX_DIAGNOSTICS`].
        diagnostics: Vec<Diagnostic>,
        /// All of them as text for people, with their places in the model.
        rendered: String,
    },
}

/// Most faults that one import reports.
pub const MAX_DIAGNOSTICS: usize = 20;

/// What to specialise, and what to tolerate, in an import.
#[derive(Debug, Clone, Default)]
pub struct ImportOptions {
    /// Sizes of named dimensions, by the names in the model.
    pub dims: BTreeMap<String, u64>,
    /// Smallest and largest sizes of named dimensions that stay symbolic, by the names in the model.
    pub ranges: BTreeMap<String, RangeInclusive<u64>>,
    /// Shapes of inputs. A size may stay symbolic; it then gets that name.
    pub shapes: BTreeMap<String, Vec<Dim>>,
    /// Element types of inputs, where the model says nothing of them (TorchScript that is not traced).
    pub dtypes: BTreeMap<String, DType>,
    /// Weights whose data file does not exist are imported without data, to be bound by name later.
    pub allow_missing_weights: bool,
}
