//! Attention.

use fornax_ir::{Attrs, DType, NodeId};

use crate::aten::call::{Build as _, Call, Result};
use crate::build::attention::{hidden, scores, shared_heads, usual_scale, weights};
use crate::build::contraction::matmul;

/// scaled_dot_product_attention: `softmax(q k' * scale + mask) v`, with the root of the scale on either operand, as
/// ONNX's Attention has it.
pub(in crate::aten) fn scaled_dot_product(call: &mut Call<'_>) -> Result<NodeId> {
    if call.float("dropout_p")? != 0.0 {
        return Err(call.unsupported("attention with dropout draws random numbers"));
    }
    let (query, key, value) = (call.input("query")?, call.input("key")?, call.input("value")?);
    let ty = call.graph().ty(query).clone();
    let usual = usual_scale(call, &ty.shape)?;
    let (key, value) = match call.flag("enable_gqa")? {
        true => (shared_heads(call, key, &ty.shape)?, shared_heads(call, value, &ty.shape)?),
        false => (key, value),
    };
    let scale = call.float_or("scale", usual)?;
    let mut scores = scores(call, query, key, scale)?;
    if call.flag("is_causal")? {
        let shape = call.graph().ty(scores).shape.clone();
        let (row, column) =
            (call.positions(shape.rank() - 2, &shape)?, call.positions(shape.rank() - 1, &shape)?);
        let seen = call.add("ge", Attrs::none(), &[row, column])?;
        scores = hidden(call, seen, scores)?;
    }
    if let Some(mask) = call.optional("attn_mask")? {
        let operands = call.broadcast_all(&[mask, scores])?;
        scores = match call.graph().ty(mask).dtype {
            DType::Bool => hidden(call, operands[0], operands[1])?,
            _ => {
                let mask = call.cast(operands[0], ty.dtype)?;
                call.add("add", Attrs::none(), &[operands[1], mask])?
            }
        };
    }
    let weights = weights(call, scores)?;
    matmul(call, weights, value)
}
