//! From graphs to e-graphs and back.

use std::collections::BTreeMap;

use egg::{EGraph, Id};
use fornax_ir::op::{OpClass, SourceKind};
use fornax_ir::{Diagnostic, Graph, LocSet, NodeId};

use super::analysis::{Facts, OpGraph};
use super::language::{ENode, Head};

/// A graph as an e-graph: each node a class of its own.
#[derive(Debug)]
pub struct Encoded {
    /// The e-graph.
    pub egraph: OpGraph,
    /// The class of each node.
    pub classes: BTreeMap<NodeId, Id>,
    /// The classes of the graph's outputs, in order.
    pub roots: Vec<Id>,
}

/// Makes an e-graph of a graph.
pub fn encode(graph: &Graph) -> Encoded {
    let facts = Facts { dims: graph.dims.clone(), ..Facts::default() };
    let mut egraph = EGraph::new(facts);
    let mut classes: BTreeMap<NodeId, Id> = BTreeMap::new();
    for id in graph.in_order() {
        let node = graph.node(id);
        let operands: Vec<Id> = graph.operands(id).iter().map(|operand| classes[operand]).collect();
        egraph.analysis.loc = node.loc.clone();
        let head = Head::new(node.op, node.attrs.clone());
        let class = egraph.add(ENode::new(head, operands));
        egraph[class].data.loc.union(&node.loc);
        classes.insert(id, class);
    }
    egraph.analysis.loc = LocSet::none();
    egraph.rebuild();
    let roots = graph.outputs().iter().map(|output| egraph.find(classes[&output.value])).collect();
    Encoded { egraph, classes, roots }
}

/// Which node stands for each class: a choice for every class that the roots need.
pub type Choice = BTreeMap<Id, ENode>;

/// The graph of a choice, with the inputs, weights, sizes and outputs of the graph it was made from,
/// and the class of each of its nodes.
///
/// # Errors
/// When a chosen node does not fit its operands (our bug).
///
/// # Panics
/// When the choice is cyclic or lacks a class.
pub fn decode(
    egraph: &OpGraph,
    roots: &[Id],
    choice: &Choice,
    from: &Graph,
) -> Result<(Graph, BTreeMap<NodeId, Id>), Diagnostic> {
    let mut graph = Graph::new(from.name.clone());
    graph.dims = from.dims.clone();
    graph.sources = from.sources.clone();
    for (name, data) in from.weights() {
        graph.bind_weight(name.clone(), data.clone());
    }
    let mut values: BTreeMap<Id, NodeId> = BTreeMap::new();
    // Inputs stay, in order, whether they are used or not.
    for &input in from.inputs() {
        let node = from.node(input);
        let head = Head::new(node.op, node.attrs.clone());
        let class = egraph
            .lookup(ENode::new(head, []))
            .expect("invariant: every input of the graph has a class");
        let id = graph.add(node.op.name(), node.attrs.clone(), &[], node.loc.clone())?;
        values.insert(class, id);
    }
    for id in in_order(egraph, roots, choice) {
        if values.contains_key(&id) {
            continue;
        }
        let node = &choice[&id];
        let operands: Vec<NodeId> =
            node.children.iter().map(|&child| values[&egraph.find(child)]).collect();
        let is_constant = matches!(node.op().class(), OpClass::Source(SourceKind::Constant));
        let mut loc = LocSet::none();
        if !is_constant {
            loc.union(&egraph[id].data.loc);
            loc.union(&node.loc);
        }
        let value = graph.add(node.op().name(), node.attrs().clone(), &operands, loc)?;
        values.insert(id, value);
    }
    for (output, root) in from.outputs().iter().zip(roots) {
        graph.output(output.name.clone(), values[&egraph.find(*root)]);
    }
    Ok((graph, values.into_iter().map(|(class, id)| (id, class)).collect()))
}

/// The classes of a choice that roots need, operands before users.
pub(crate) fn in_order(egraph: &OpGraph, roots: &[Id], choice: &Choice) -> Vec<Id> {
    let mut order = Vec::new();
    let mut done = std::collections::BTreeSet::new();
    let mut stack: Vec<(Id, bool)> =
        roots.iter().rev().map(|&root| (egraph.find(root), false)).collect();
    while let Some((id, expanded)) = stack.pop() {
        if expanded {
            order.push(id);
        } else if done.insert(id) {
            stack.push((id, true));
            let children = choice[&id].children.iter().rev();
            stack.extend(children.map(|&child| (egraph.find(child), false)));
        }
    }
    order
}
