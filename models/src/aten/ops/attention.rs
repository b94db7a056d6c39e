//! Attention.

use fornax_ir::{Attrs, DType, Dim, NodeId, attrs};

use crate::aten::call::{Build as _, Call, Result};
use crate::build::contraction::{matmul, scaled};
use crate::build::movement::permute;

/// scaled_dot_product_attention: `softmax(q k' * scale + mask) v`, with the root of the scale on either operand, as
/// ONNX's Attention has it.
pub(in crate::aten) fn scaled_dot_product(call: &mut Call<'_>) -> Result<NodeId> {
    if call.float("dropout_p")? != 0.0 {
        return Err(call.unsupported("attention with dropout draws random numbers"));
    }
    let (query, key, value) = (call.input("query")?, call.input("key")?, call.input("value")?);
    let ty = call.graph().ty(query).clone();
    let width = ty.shape.last().and_then(Dim::as_const).filter(|&width| width > 0);
    let width =
        width.ok_or_else(|| call.unsupported("attention over a width that is not known"))?;
    let (key, value) = match call.flag("enable_gqa")? {
        true => (shared_heads(call, key, &ty.shape)?, shared_heads(call, value, &ty.shape)?),
        false => (key, value),
    };
    let scale = call.float_or("scale", 1.0 / (width as f64).sqrt())?;
    if scale < 0.0 {
        return Err(call.unsupported("attention with a negative scale"));
    }
    let rank = call.graph().ty(key).rank();
    let mut order: Vec<usize> = (0..rank).collect();
    order.swap(rank.saturating_sub(2), rank - 1);
    let turned = permute(call, key, &order)?;
    let query = scaled(call, query, scale.sqrt())?;
    let turned = scaled(call, turned, scale.sqrt())?;
    let mut scores = matmul(call, query, turned)?;
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
    let last = call.graph().ty(scores).rank() as i64 - 1;
    let weights = call.add("softmax", attrs! { axis: last }, &[scores])?;
    matmul(call, weights, value)
}

/// Scores where they are seen, else minus infinity.
fn hidden(call: &mut Call<'_>, seen: NodeId, scores: NodeId) -> Result<NodeId> {
    let nothing = call.scalar_like(f64::NEG_INFINITY, scores)?;
    call.add("where", Attrs::none(), &[seen, scores, nothing])
}

/// Heads of keys or values, each repeated for the heads of queries that share it.
fn shared_heads(call: &mut Call<'_>, node: NodeId, query: &[Dim]) -> Result<NodeId> {
    let shape = call.graph().ty(node).shape.to_vec();
    let ([outer @ .., heads, length, width], [.., wanted, _, _]) = (&shape[..], query) else {
        return Err(call.invalid("attention with shared heads needs an axis of heads"));
    };
    let each = wanted.divided_exactly(heads).ok_or_else(|| {
        call.invalid(format!(
            "{wanted} heads of queries are not divisible by {heads} heads of keys"
        ))
    })?;
    let one = Dim::constant(1);
    let inner = |count: &Dim| [heads.clone(), count.clone(), length.clone(), width.clone()];
    let node = call.reshape(node, &[outer, &inner(&one)].concat())?;
    let node = call.broadcast(node, &[outer, &inner(&each)].concat())?;
    call.reshape(node, &[outer, &[wanted.clone(), length.clone(), width.clone()]].concat())
}
