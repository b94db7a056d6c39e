//! Errors as Python sees them.

use fornax_bundle::BundleError;
use fornax_runtime as runtime;
use pyo3::prelude::*;

/// An error on the way between Python and the runtime.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    /// An input, an output or a weight is not what the model takes.
    #[error("{what}: {reason}")]
    Tensor {
        /// Which, for example "input `x`".
        what: String,
        /// What is wrong with it, what is wanted and what helps.
        reason: String,
    },
    /// The arguments of a call do not match the model's inputs.
    #[error("{0}")]
    Arguments(String),
    /// A file of weights cannot be used.
    #[error("{path}: {reason}")]
    Weights {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// There is no torch, or it has no GPU.
    #[error("a model on a GPU takes and gives tensors of torch, which cannot be used here: {0}")]
    Torch(PyErr),
    /// Loading or running failed.
    #[error(transparent)]
    Runtime(#[from] runtime::Error),
    /// Python code failed.
    #[error(transparent)]
    Python(#[from] PyErr),
}

impl Error {
    pub(crate) fn tensor(what: impl Into<String>, reason: impl Into<String>) -> Error {
        Error::Tensor { what: what.into(), reason: reason.into() }
    }

    /// Whether the caller's tensors are at fault; otherwise a file, the machine or the bundle is.
    fn is_input(&self) -> bool {
        use runtime::Error as R;
        match self {
            Error::Tensor { .. } | Error::Arguments(_) => true,
            Error::Runtime(error) => matches!(
                error,
                R::Signature(_) | R::Weight { .. } | R::MissingWeights { .. } | R::Pointers { .. }
            ),
            Error::Weights { .. } | Error::Torch(_) | Error::Python(_) => false,
        }
    }
}

impl From<BundleError> for Error {
    fn from(error: BundleError) -> Error {
        Error::Runtime(error.into())
    }
}

impl From<Error> for PyErr {
    fn from(error: Error) -> PyErr {
        let class = if error.is_input() { "InputError" } else { "Error" };
        match error {
            Error::Python(error) => error,
            error => Python::attach(|py| {
                let made = py
                    .import("fornax._errors")
                    .and_then(|module| module.getattr(class))
                    .and_then(|class| class.call1((error.to_string(),)));
                made.map_or_else(|error| error, PyErr::from_value)
            }),
        }
    }
}
