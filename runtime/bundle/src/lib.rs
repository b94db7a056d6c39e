//! What a Fornax bundle is made of: element types, symbolic sizes, tensors, and the manifest with its
//! launch programs.
//!
//! This crate sits below everything else and knows neither graphs nor devices. A program that only
//! wants to read a bundle needs nothing else.

pub mod archive;
mod check;
mod dim;
mod dtype;
mod error;
pub mod manifest;
mod precision;
mod signature;
mod target;
mod tensor;

pub use archive::{Bundle, BundleParts, ReadOptions};
pub use dim::{Atom, Dim, DimError, DimRange, Dims, Monomial, Symbol};
pub use dtype::DType;
pub use error::{BundleError, ManifestError};
pub use precision::{Precision, PrecisionPolicy};
pub use signature::SignatureError;
pub use target::{Reach, Target, UnknownTarget};
pub use tensor::{Tensor, TensorError};
