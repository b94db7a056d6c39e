//! Resize and Upsample.

use fornax_ir::NodeId;

use crate::onnx::call::{Call, Result};

pub(in crate::onnx) fn resize(call: &mut Call<'_, '_>) -> Result<NodeId> {
    Err(call.unsupported("todo"))
}

pub(in crate::onnx) fn upsample(call: &mut Call<'_, '_>) -> Result<NodeId> {
    Err(call.unsupported("todo"))
}
