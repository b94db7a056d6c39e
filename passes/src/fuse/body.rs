//! Region bodies: the part of a graph that is computed together, as a graph of its own.

use std::collections::BTreeMap;

use fornax_ir::op::{OpClass, SourceKind};
use fornax_ir::plan::Part;
use fornax_ir::{Diagnostic, Dim, Graph, LocSet, NodeId, Type, attrs};

use super::place::{Place, Placement};
use crate::PassError;

/// The body that computes `root` from stored values, and the values its inputs are bound to.
pub(super) fn extract(
    graph: &Graph,
    is_stored: &dyn Fn(NodeId) -> bool,
    root: NodeId,
) -> Result<(Graph, Vec<NodeId>), PassError> {
    let mut body = Graph::new(graph.name.clone());
    body.dims = graph.dims.clone();
    body.sources = graph.sources.clone();
    let mut operands = Vec::new();
    let mut copies: BTreeMap<NodeId, NodeId> = BTreeMap::new();
    for id in members(graph, is_stored, root) {
        let node = graph.node(id);
        let copy = if id != root && is_stored(id) || is_outside(graph, id) {
            operands.push(id);
            input(&mut body, operands.len() - 1, &node.ty)?
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

/// The body that gives a stored value as it is.
pub(super) fn copy(graph: &Graph, value: NodeId) -> Result<(Graph, Vec<NodeId>), PassError> {
    let mut body = Graph::new(graph.name.clone());
    body.dims = graph.dims.clone();
    body.sources = graph.sources.clone();
    let copy = input(&mut body, 0, graph.ty(value))?;
    body.output("y0", copy);
    Ok((body, vec![value]))
}

fn input(body: &mut Graph, number: usize, ty: &Type) -> Result<NodeId, Diagnostic> {
    let name = format!("a{number}");
    let attrs = attrs! { name: name.as_str(), dtype: ty.dtype, shape: ty.shape.to_vec() };
    body.add("input", attrs, &[], LocSet::none())
}

/// What an input of a body is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operand {
    /// A value of the graph.
    Value(NodeId),
    /// A shared array.
    Shared(usize),
}

/// A body whose inputs that lie in shared arrays are slices of these.
pub(super) fn through_shared(
    graph: &Graph,
    placement: &Placement,
    (from, operands): (Graph, Vec<NodeId>),
) -> Result<(Graph, Vec<Operand>), PassError> {
    if operands.iter().all(|operand| !placement.places.contains_key(operand)) {
        return Ok((from, operands.into_iter().map(Operand::Value).collect()));
    }
    let mut body = Graph::new(from.name.clone());
    body.dims = from.dims.clone();
    body.sources = from.sources.clone();
    let mut bound: Vec<Operand> = Vec::new();
    let mut inputs: BTreeMap<Operand, NodeId> = BTreeMap::new();
    let mut copies: BTreeMap<NodeId, NodeId> = BTreeMap::new();
    for (&old, &value) in from.inputs().iter().zip(&operands) {
        let place = placement.places.get(&value);
        let operand = place.map_or(Operand::Value(value), |place| Operand::Shared(place.shared));
        let ty = place.map_or(from.ty(old), |place| graph.ty(placement.shared[place.shared]));
        let new = match inputs.get(&operand) {
            Some(&known) => known,
            None => {
                let new = input(&mut body, bound.len(), ty)?;
                bound.push(operand);
                inputs.insert(operand, new);
                new
            }
        };
        let value = match place {
            Some(place) => slice(&mut body, new, place)?,
            None => new,
        };
        copies.insert(old, value);
    }
    for id in from.in_order() {
        if !copies.contains_key(&id) {
            let node = from.node(id);
            let operands: Vec<NodeId> = from.operands(id).iter().map(|id| copies[id]).collect();
            let copy = body.add(node.op.name(), node.attrs.clone(), &operands, node.loc.clone())?;
            copies.insert(id, copy);
        }
    }
    for output in from.outputs() {
        body.output(output.name.clone(), copies[&output.value]);
    }
    Ok((body, bound))
}

fn slice(body: &mut Graph, whole: NodeId, place: &Place) -> Result<NodeId, Diagnostic> {
    let shape = body.ty(whole).shape.to_vec();
    if shape[place.axis] == place.size {
        return Ok(whole);
    }
    let mut starts = vec![Dim::constant(0); shape.len()];
    let mut sizes = shape;
    starts[place.axis] = place.start.clone();
    sizes[place.axis] = place.size.clone();
    let steps = vec![1i64; sizes.len()];
    let attrs = attrs! { starts: starts, sizes: sizes, steps: steps };
    body.add("slice", attrs, &[whole], LocSet::none())
}

/// Where an output lies, as the plan says it.
pub(super) fn part(graph: &Graph, placement: &Placement, place: &Place) -> Part {
    Part {
        shared: place.shared,
        axis: place.axis,
        start: place.start.clone(),
        whole: graph.ty(placement.shared[place.shared]).shape.clone(),
    }
}

/// Inputs and weights come from outside every region.
pub(super) fn is_outside(graph: &Graph, id: NodeId) -> bool {
    matches!(graph.node(id).op.class(), OpClass::Source(SourceKind::Input | SourceKind::Weight))
}

/// The root, everything it inlines, and the stored values these use; operands before users.
fn members(graph: &Graph, is_stored: &dyn Fn(NodeId) -> bool, root: NodeId) -> Vec<NodeId> {
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
        if id == root || !is_stored(id) {
            stack.extend(graph.operands(id).into_iter().rev().map(|operand| (operand, false)));
        }
    }
    order
}
