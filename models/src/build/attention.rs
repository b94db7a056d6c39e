//! Parts of attention.

use fornax_ir::{Attrs, Dim, NodeId, attrs};

use super::contraction::{matmul, scaled};
use super::movement::permute;
use super::{Build, Result};

/// `q k' * scale`, with the root of the scale on either operand, as ONNX's Attention has it.
pub(crate) fn scores(
    call: &mut impl Build,
    query: NodeId,
    key: NodeId,
    scale: f64,
) -> Result<NodeId> {
    if scale < 0.0 {
        return Err(call.unsupported("attention with a negative scale"));
    }
    let rank = call.graph().ty(key).rank();
    let mut order: Vec<usize> = (0..rank).collect();
    order.swap(rank.saturating_sub(2), rank.saturating_sub(1));
    let turned = permute(call, key, &order)?;
    let query = scaled(call, query, scale.sqrt())?;
    let turned = scaled(call, turned, scale.sqrt())?;
    matmul(call, query, turned)
}

/// The scale of queries of a shape where none is given: one by the root of their width.
pub(crate) fn usual_scale(call: &impl Build, query: &[Dim]) -> Result<f64> {
    let width = query.last().and_then(Dim::as_const).filter(|&width| width > 0);
    let width =
        width.ok_or_else(|| call.unsupported("attention over a width that is not known"))?;
    Ok(1.0 / (width as f64).sqrt())
}

/// Scores where they are seen, else minus infinity.
pub(crate) fn hidden(call: &mut impl Build, seen: NodeId, scores: NodeId) -> Result<NodeId> {
    let nothing = call.scalar_like(f64::NEG_INFINITY, scores)?;
    call.add("where", Attrs::none(), &[seen, scores, nothing])
}

/// Softmax of the rows of scores.
pub(crate) fn weights(call: &mut impl Build, scores: NodeId) -> Result<NodeId> {
    let last = call.graph().ty(scores).rank() as i64 - 1;
    call.add("softmax", attrs! { axis: last }, &[scores])
}

/// Heads of keys or values, each repeated for the heads of queries that share it.
pub(crate) fn shared_heads(call: &mut impl Build, node: NodeId, query: &[Dim]) -> Result<NodeId> {
    let shape = call.graph().ty(node).shape.to_vec();
    let ([outer @ .., heads, length, width], [.., wanted, _, _]) = (&shape[..], query) else {
        return Err(call.invalid("attention with shared heads needs an axis of heads"));
    };
    if heads == wanted {
        return Ok(node);
    }
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
