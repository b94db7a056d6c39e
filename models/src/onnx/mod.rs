//! The ONNX importer.

mod external;
mod file;
mod known;
pub mod proto;
mod tensor;
mod wire;

pub use external::ExternalError;
pub use tensor::{TensorError, dtype, to_tensor};
pub use wire::WireFault;
