//! Parts that move elements.

use fornax_ir::{Dim, NodeId, attrs};

use super::sizes::Span;
use super::{Build, Result};

/// Adds a transpose: axis `i` of the result is axis `order[i]` of the input.
pub(crate) fn permute(call: &mut impl Build, node: NodeId, order: &[usize]) -> Result<NodeId> {
    if order.iter().enumerate().all(|(axis, &from)| axis == from) {
        return Ok(node);
    }
    let order: Vec<i64> = order.iter().map(|&axis| axis as i64).collect();
    call.add("transpose", attrs! { perm: order }, &[node])
}

/// Adds a slice.
pub(crate) fn take(call: &mut impl Build, node: NodeId, spans: &[Span]) -> Result<NodeId> {
    let shape = call.graph().ty(node).shape.clone();
    let whole =
        |(span, size): (&Span, &Dim)| span.step == 1 && span.start.is(0) && span.count == *size;
    if spans.iter().zip(shape.iter()).all(whole) {
        return Ok(node);
    }
    let starts: Vec<Dim> = spans.iter().map(|span| span.start.clone()).collect();
    let sizes: Vec<Dim> = spans.iter().map(|span| span.count.clone()).collect();
    let steps: Vec<i64> = spans.iter().map(|span| span.step).collect();
    call.add("slice", attrs! { starts: starts, sizes: sizes, steps: steps }, &[node])
}

/// Adds a slice of `count` elements from `start` on along one axis.
pub(crate) fn take_axis(
    call: &mut impl Build,
    node: NodeId,
    axis: usize,
    start: Dim,
    count: Dim,
) -> Result<NodeId> {
    let whole = |size: &Dim| Span { start: Dim::constant(0), count: size.clone(), step: 1 };
    let mut spans: Vec<Span> = call.graph().ty(node).shape.iter().map(whole).collect();
    spans[axis] = Span { start, count, step: 1 };
    take(call, node, &spans)
}

/// Adds a concatenation.
pub(crate) fn join(call: &mut impl Build, parts: &[NodeId], axis: usize) -> Result<NodeId> {
    match parts {
        [only] => Ok(*only),
        _ => call.add("concat", attrs! { axis: axis as i64 }, parts),
    }
}

/// Repeats each axis that often: each axis with its repetitions before it, made one. There is a count for
/// each axis.
pub(crate) fn tile(call: &mut impl Build, node: NodeId, repeats: &[Dim]) -> Result<NodeId> {
    let from = call.graph().ty(node).shape.clone();
    let one = Dim::constant(1);
    let pairs = || repeats.iter().zip(from.iter());
    let spread: Vec<Dim> = pairs().flat_map(|(_, size)| [one.clone(), size.clone()]).collect();
    let repeated: Vec<Dim> =
        pairs().flat_map(|(count, size)| [count.clone(), size.clone()]).collect();
    let joined: Vec<Dim> = pairs().map(|(count, size)| count * size).collect();
    let spread = call.reshape(node, &spread)?;
    let repeated = call.broadcast(spread, &repeated)?;
    call.reshape(repeated, &joined)
}
