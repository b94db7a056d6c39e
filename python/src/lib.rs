//! The native half of the Python package `fornax`.
//!
//! Loading, running and refreshing bundles from Python, on tensors of torch and arrays of numpy. Neither
//! is linked: torch is looked up when it is already imported, numpy when arrays come in or go out.
//! What users see is described in `fornax/__init__.py` and typed in `fornax/_native.pyi`.
#![warn(missing_docs)]

mod arguments;
mod array;
mod cuda;
mod describe;
mod dlpack;
mod error;
mod host;
mod model;
mod torch;
mod weights;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::model::Model;
}
