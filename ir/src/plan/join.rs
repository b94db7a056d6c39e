//! The bodies of several regions as one.

use std::collections::BTreeMap;

use super::{Plan, ValueRef};
use crate::{Attrs, Diagnostic, Graph, LocSet, NodeId, attrs};

/// A body with the values its inputs are bound to.
#[derive(Debug, Clone)]
pub struct Joined {
    /// What is computed.
    pub body: Graph,
    /// `operands[i]` is bound to the body's input `i`.
    pub operands: Vec<ValueRef>,
}

/// What tells one node of a body from another.
type Key = (&'static str, Attrs, Vec<NodeId>);

/// The bodies of regions as one: an input that another of them computes is bound to it, and equal parts are
/// computed once. `members`: operands before users; `exposed`: the region and output of each result.
///
/// # Errors
/// When a node does not fit its operands (our bug).
pub fn join(
    plan: &Plan,
    members: &[usize],
    exposed: &[(usize, usize)],
) -> Result<Joined, Diagnostic> {
    let mut body = Graph::new(plan.name.clone());
    body.dims = plan.dims.clone();
    body.sources = plan.sources.clone();
    let mut operands = Vec::new();
    let mut values: BTreeMap<ValueRef, NodeId> = BTreeMap::new();
    let mut known: BTreeMap<Key, NodeId> = BTreeMap::new();
    for &member in members {
        let region = &plan.regions[member];
        let from = &region.body;
        let mut copies: BTreeMap<NodeId, NodeId> = BTreeMap::new();
        for (&input, operand) in from.inputs().iter().zip(&region.operands) {
            let copy = match values.get(operand) {
                Some(&known) => known,
                None => {
                    let ty = from.ty(input).clone();
                    let name = format!("a{}", operands.len());
                    let shape = ty.shape.to_vec();
                    let attrs = attrs! { name: name.as_str(), dtype: ty.dtype, shape: shape };
                    operands.push(*operand);
                    body.add("input", attrs, &[], LocSet::none())?
                }
            };
            values.insert(*operand, copy);
            copies.insert(input, copy);
        }
        for id in from.in_order() {
            if copies.contains_key(&id) {
                continue;
            }
            let node = from.node(id);
            let inputs: Vec<NodeId> = from.operands(id).iter().map(|id| copies[id]).collect();
            let key = (node.op.name(), node.attrs.clone(), inputs);
            let copy = match known.get(&key) {
                Some(&copy) => copy,
                None => {
                    let copy =
                        body.add(node.op.name(), node.attrs.clone(), &key.2, node.loc.clone())?;
                    known.insert(key, copy);
                    copy
                }
            };
            copies.insert(id, copy);
        }
        for (output, value) in from.outputs().iter().enumerate() {
            values.insert(ValueRef::Region { region: member, output }, copies[&value.value]);
        }
    }
    for (number, &(region, output)) in exposed.iter().enumerate() {
        body.output(format!("y{number}"), values[&ValueRef::Region { region, output }]);
    }
    Ok(Joined { body, operands })
}
