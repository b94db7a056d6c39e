//! Region bodies: the part of a graph that is computed together, as a graph of its own.

use std::collections::BTreeMap;

use fornax_ir::op::{OpClass, SourceKind};
use fornax_ir::{Graph, LocSet, NodeId, attrs};

use super::decide::Decision;
use crate::PassError;

/// The body of the region that stores `root`, and the stored values its inputs are bound to.
pub(super) fn extract(
    graph: &Graph,
    decision: &Decision,
    root: NodeId,
) -> Result<(Graph, Vec<NodeId>), PassError> {
    let mut body = Graph::new(graph.name.clone());
    body.dims = graph.dims.clone();
    body.sources = graph.sources.clone();
    let mut operands = Vec::new();
    let mut copies: BTreeMap<NodeId, NodeId> = BTreeMap::new();
    for id in members(graph, decision, root) {
        let node = graph.node(id);
        let copy = if id != root && decision.is_stored(id) || is_outside(graph, id) {
            let ty = node.ty.clone();
            let name = format!("a{}", operands.len());
            operands.push(id);
            let shape = ty.shape.to_vec();
            let attrs = attrs! { name: name.as_str(), dtype: ty.dtype, shape: shape };
            body.add("input", attrs, &[], LocSet::none())?
        } else {
            let inputs: Vec<NodeId> =
                graph.operands(id).iter().map(|operand| copies[operand]).collect();
            body.add(node.op.name(), node.attrs.clone(), &inputs, node.loc.clone())?
        };
        copies.insert(id, copy);
    }
    body.output("y0", copies[&root]);
    Ok((body, operands))
}

/// Inputs and weights come from outside every region.
pub(super) fn is_outside(graph: &Graph, id: NodeId) -> bool {
    matches!(graph.node(id).op.class(), OpClass::Source(SourceKind::Input | SourceKind::Weight))
}

/// The root, everything it inlines, and the stored values these use; operands before users.
fn members(graph: &Graph, decision: &Decision, root: NodeId) -> Vec<NodeId> {
    let mut order = Vec::new();
    let mut done = std::collections::BTreeSet::new();
    let mut stack = vec![(root, false)];
    while let Some((id, expanded)) = stack.pop() {
        if expanded {
            order.push(id);
            continue;
        }
        if !done.insert(id) {
            continue;
        }
        stack.push((id, true));
        if id == root || !decision.is_stored(id) {
            stack.extend(graph.operands(id).into_iter().rev().map(|operand| (operand, false)));
        }
    }
    order
}
