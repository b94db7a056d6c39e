//! The ONNX importer.

mod external;
mod file;
pub mod proto;
mod tensor;
mod wire;

pub use tensor::TensorError;
pub use wire::WireFault;
