//! What a Fornax bundle is made of: element types, symbolic sizes, tensors, and the manifest with its
//! launch programs.
//!
//! This crate sits below everything else and knows neither graphs nor devices. A program that only
//! wants to read a bundle needs nothing else.

mod dim;
mod dtype;
pub mod manifest;
mod tensor;

pub use dim::{Atom, Dim, DimError, DimRange, Dims, Monomial, Symbol};
pub use dtype::DType;
pub use tensor::{Tensor, TensorError};
