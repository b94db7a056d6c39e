//! Loads and runs Fornax bundles, on a GPU through the CUDA driver or on the CPU by emulating PTX.
#![warn(missing_docs)]

pub mod device;
pub mod error;

pub use device::Device;
pub use error::Error;
