//! Importers of exported models into the Fornax graph IR.
//!
//! ONNX is read by [`onnx`]. This is the only crate that knows the file formats of others.

mod error;
pub mod onnx;

pub use error::ImportError;
