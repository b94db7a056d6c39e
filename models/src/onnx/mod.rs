//! The ONNX importer.
//!
//! A file is mapped and decoded ([`proto`]), checked as a whole for what is not supported, and its nodes
//! are imported in order: shape arithmetic is computed on the spot, every other node becomes operations
//! of the graph, as the op table says.

mod call;
mod check;
mod external;
mod file;
mod fold;
mod import;
mod ops;
mod order;
pub mod proto;
mod table;
mod tensor;
mod wire;

pub use external::ExternalError;
pub(crate) use file::read;
pub use import::{import_bytes, import_file};
pub use tensor::{TensorError, dtype, to_tensor};
pub use wire::WireFault;
