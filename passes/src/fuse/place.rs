//! Concatenations in place: regions write the operands where the concatenation's users read them, so that it
//! needs no kernel.
//!
//! A concatenation of concatenations is one of all their operands, and one whose operands follow one
//! another in a longer one (as the layers of a dense block have) is a slice of that.

use std::collections::{BTreeMap, BTreeSet};

use fornax_ir::op::{MovementForm, OpClass, OpCtx};
use fornax_ir::{Dim, Graph, Guard, IndexExpr, NodeId};

use super::decide::State;
use crate::egraph::Roofline;

/// Where a value lies in a shared array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// Which array: an index into [`Placement::shared`].
    pub shared: usize,
    /// Along which axis it is a part.
    pub axis: usize,
    /// The first position.
    pub start: Dim,
    /// How many.
    pub size: Dim,
}

/// The shared arrays and what lies in them.
#[derive(Debug, Default)]
pub(super) struct Placement {
    /// The concatenation that each array holds.
    pub shared: Vec<NodeId>,
    /// Where values lie: operands that regions write, and concatenations.
    pub places: BTreeMap<NodeId, Place>,
    /// Concatenations that no region computes.
    pub aliases: BTreeSet<NodeId>,
    /// Values that lie elsewhere too and are copied.
    pub copies: Vec<(NodeId, Place)>,
}

/// A concatenation: the axis and the operands that are none along the same axis.
struct Concatenation {
    axis: usize,
    leaves: Vec<NodeId>,
}

/// Finds the concatenations to compute in place. Values that are computed only where they are read so far
/// become stored when they lie in a shared array.
pub(super) fn place(state: &mut State<'_>) -> Placement {
    let mut found: BTreeMap<NodeId, Concatenation> = BTreeMap::new();
    for &id in &state.order {
        if state.prepared.contains(&id) {
            continue;
        }
        let Some(axis) = axis_of(state.graph, id) else { continue };
        let inner = |operand: NodeId| match found.get(&operand) {
            Some(inner) if inner.axis == axis => inner.leaves.clone(),
            _ => vec![operand],
        };
        let leaves = state.graph.operands(id).into_iter().flat_map(inner).collect();
        found.insert(id, Concatenation { axis, leaves });
    }
    let mut longest: Vec<NodeId> = found.keys().copied().collect();
    let position: BTreeMap<NodeId, usize> =
        state.order.iter().enumerate().map(|(at, &id)| (id, at)).collect();
    longest.sort_by_key(|id| (std::cmp::Reverse(found[id].leaves.len()), position[id]));
    let mut placement = Placement::default();
    for id in longest {
        let concatenation = &found[&id];
        if !placement.alias(state, &found, id) {
            placement.share(state, id, concatenation);
        }
    }
    placement
}

impl Placement {
    /// Takes a concatenation as a slice of one that is shared already.
    fn alias(
        &mut self,
        state: &mut State<'_>,
        found: &BTreeMap<NodeId, Concatenation>,
        id: NodeId,
    ) -> bool {
        // An output has memory of its own.
        if state.outputs.contains(&id) {
            return false;
        }
        let Concatenation { axis, leaves } = &found[&id];
        for (shared, whole) in self.shared.iter().enumerate() {
            let whole = &found[whole];
            let at = whole.leaves.windows(leaves.len()).position(|part| part == leaves.as_slice());
            let (Some(at), true) = (at, whole.axis == *axis) else { continue };
            let size = |leaf: &NodeId| state.graph.ty(*leaf).shape[*axis].clone();
            let start = whole.leaves[..at].iter().map(size).sum();
            let size = leaves.iter().map(size).sum();
            self.places.insert(id, Place { shared, axis: *axis, start, size });
            self.aliases.insert(id);
            state.stored.insert(id);
            return true;
        }
        false
    }

    /// Gives a concatenation an array of its own when that costs less than computing it.
    fn share(&mut self, state: &mut State<'_>, id: NodeId, concatenation: &Concatenation) {
        let Concatenation { axis, leaves } = concatenation;
        let distinct: BTreeSet<&NodeId> = leaves.iter().collect();
        let can_move = |leaf: &NodeId| {
            leaves.len() == distinct.len()
                && !state.prepared.contains(leaf)
                && !state.outputs.contains(leaf)
                && !self.places.contains_key(leaf)
                && !matches!(state.graph.node(*leaf).op.class(), OpClass::Source(_))
        };
        let in_place = |leaf: &NodeId| can_move(leaf) && state.stored.contains(leaf);
        let rest: Vec<NodeId> = leaves.iter().copied().filter(|leaf| !in_place(leaf)).collect();
        let model = Roofline::default();
        let copy = |node: NodeId| {
            let bytes = state.graph.ty(node).bytes().bounds(&state.graph.dims).1 as f64;
            model.launch + 2.0 * bytes / model.bytes
        };
        let cost: f64 = rest.iter().map(|&leaf| copy(leaf)).sum();
        let saved = if state.stored.contains(&id) { copy(id) } else { 0.0 };
        if leaves.len() < 2 || rest.len() == leaves.len() || (cost >= saved && !rest.is_empty()) {
            return;
        }
        let shared = self.shared.len();
        let mut start = Dim::constant(0);
        let mut moved = Vec::new();
        for &leaf in leaves {
            let size = state.graph.ty(leaf).shape[*axis].clone();
            let end = &start + &size;
            let place =
                Place { shared, axis: *axis, start: std::mem::replace(&mut start, end), size };
            match can_move(&leaf) {
                true => moved.push((leaf, place)),
                false => self.copies.push((leaf, place)),
            }
        }
        state.stored.extend(moved.iter().map(|(leaf, _)| *leaf));
        self.places.extend(moved);
        let whole = Place { shared, axis: *axis, start: Dim::constant(0), size: start };
        self.places.insert(id, whole);
        self.aliases.insert(id);
        state.stored.insert(id);
        self.shared.push(id);
    }
}

/// The axis along which a node puts its operands one after the other, by its index map.
fn axis_of(graph: &Graph, id: NodeId) -> Option<usize> {
    let node = graph.node(id);
    let OpClass::Movement(form) = node.op.class() else { return None };
    let types = graph.operand_types(id);
    let MovementForm { cases, fill: None } = form(&OpCtx { attrs: &node.attrs, operands: &types })
    else {
        return None;
    };
    if cases.len() < 2 || cases.len() != types.len() {
        return None;
    }
    let is_axis = |axis: &usize| {
        let mut start = Dim::constant(0);
        cases.iter().enumerate().all(|(number, case)| {
            let mut index: Vec<IndexExpr> = (0..node.ty.rank()).map(IndexExpr::axis).collect();
            index[*axis] = IndexExpr::axis(*axis).plus(IndexExpr::size(-&start));
            let low = start.clone();
            start = &start + &types[number].shape[*axis];
            let inside = Guard::Within { value: IndexExpr::axis(*axis), low, high: start.clone() };
            let is_last = number + 1 == cases.len();
            case.operand == number
                && case.index == index
                && (case.guards == [inside] || is_last && case.guards.is_empty())
        }) && start == node.ty.shape[*axis]
    };
    (0..node.ty.rank()).find(is_axis)
}
