//! Reductions, and ops along one axis.

use fornax_ir::{NodeId, attrs};

use super::{Build, Result};

/// Adds a reduction.
pub(crate) fn fold(
    call: &mut impl Build,
    op: &str,
    node: NodeId,
    axes: &[usize],
    keepdims: bool,
) -> Result<NodeId> {
    let axes: Vec<i64> = axes.iter().map(|&axis| axis as i64).collect();
    call.add(op, attrs! { axes: axes, keepdims: keepdims }, &[node])
}

/// Adds a sum that drops its axes.
pub(crate) fn sum(call: &mut impl Build, node: NodeId, axes: &[usize]) -> Result<NodeId> {
    fold(call, "reduce_sum", node, axes, false)
}

/// Adds an op along one axis.
pub(crate) fn along(call: &mut impl Build, op: &str, node: NodeId, axis: usize) -> Result<NodeId> {
    call.add(op, attrs! { axis: axis as i64 }, &[node])
}
