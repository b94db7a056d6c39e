//! The graph: a directed acyclic graph of operators, each with one typed result.

use std::collections::BTreeMap;

use fornax_bundle::{DType, Dim, DimRange, Symbol, Tensor};
use petgraph::Direction;
use petgraph::stable_graph::{NodeIndex, StableDiGraph};
use petgraph::visit::EdgeRef;

use crate::op::{OpClass, OpCtx, OpRef, SourceKind};
use crate::{Attrs, Diagnostic, LocSet, SourceMap, Type, attrs, op};

/// A node of a [`Graph`], and the value it computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(NodeIndex<u32>);

impl NodeId {
    /// A number that is unique in the graph and small enough to index a table with.
    pub fn index(self) -> usize {
        self.0.index()
    }
}

/// An operator applied to operands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The operator.
    pub op: OpRef,
    /// Its attributes.
    pub attrs: Attrs,
    /// The type of its result.
    pub ty: Type,
    /// Which nodes of the imported model it comes from.
    pub loc: LocSet,
}

/// A named result of a graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// The name.
    pub name: String,
    /// The value.
    pub value: NodeId,
}

/// A model or a part of one.
///
/// Invariants, kept by construction: operands exist, types are what inference gives, the graph is
/// acyclic. Edges point from operand to user and carry the operand's position.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    /// The name, for people.
    pub name: String,
    /// Ranges of the symbolic sizes.
    pub dims: BTreeMap<Symbol, DimRange>,
    /// Where nodes come from.
    pub sources: SourceMap,
    dag: StableDiGraph<Node, u32>,
    inputs: Vec<NodeId>,
    outputs: Vec<Output>,
    weights: BTreeMap<String, Tensor>,
}

impl Graph {
    /// An empty graph.
    pub fn new(name: impl Into<String>) -> Graph {
        Graph { name: name.into(), ..Graph::default() }
    }

    /// Adds a node and infers its type.
    ///
    /// # Errors
    /// When there is no such op, the attributes are not the declared ones, the number of operands is
    /// wrong, or the operands' types violate a constraint. The diagnostic carries `loc`.
    pub fn add(
        &mut self,
        op: &str,
        attrs: Attrs,
        operands: &[NodeId],
        loc: LocSet,
    ) -> Result<NodeId, Diagnostic> {
        let op = op::by_name(op).ok_or_else(|| {
            Diagnostic::new("op", format!("there is no op `{op}`")).at(loc.clone())
        })?;
        let types: Vec<Type> = operands.iter().map(|&operand| self.ty(operand).clone()).collect();
        let ty = infer(op, &attrs, &types).map_err(|diagnostic| diagnostic.at(loc.clone()))?;
        let id = NodeId(self.dag.add_node(Node { op, attrs, ty, loc }));
        for (position, operand) in operands.iter().enumerate() {
            self.dag.add_edge(operand.0, id.0, position as u32);
        }
        if matches!(op.class(), OpClass::Source(SourceKind::Input)) {
            self.inputs.push(id);
        }
        Ok(id)
    }

    /// Adds an input.
    ///
    /// # Errors
    /// When the name is taken.
    pub fn input(&mut self, name: &str, ty: Type) -> Result<NodeId, Diagnostic> {
        if self.inputs.iter().any(|&id| self.input_name(id) == name) {
            return Err(Diagnostic::new("graph-input", format!("two inputs are named `{name}`")));
        }
        let attrs = attrs! { name: name, dtype: ty.dtype, shape: ty.shape.to_vec() };
        self.add("input", attrs, &[], LocSet::none())
    }

    /// Adds a weight, with its data if known.
    ///
    /// # Errors
    /// When the data has another type.
    pub fn weight(
        &mut self,
        name: &str,
        ty: Type,
        data: Option<Tensor>,
    ) -> Result<NodeId, Diagnostic> {
        if let Some(data) = data {
            let actual = Type::new(data.dtype(), data.shape());
            if actual != ty {
                let message = format!("weight `{name}` is {actual}, not {ty}");
                return Err(Diagnostic::new("graph-weight", message));
            }
            self.weights.insert(name.to_owned(), data);
        }
        let attrs = attrs! { name: name, dtype: ty.dtype, shape: ty.shape.to_vec() };
        self.add("weight", attrs, &[], LocSet::none())
    }

    /// Adds a constant.
    pub fn constant(&mut self, value: Tensor) -> NodeId {
        self.add("constant", attrs! { value: value }, &[], LocSet::none())
            .expect("invariant: a constant has no constraint")
    }

    /// Adds a constant number of rank 0, converted to `dtype` (truncated for integers).
    pub fn scalar(&mut self, dtype: DType, value: f64) -> NodeId {
        self.constant(crate::interp::scalar_tensor(dtype, value))
    }

    /// Names a value as the next output.
    pub fn output(&mut self, name: impl Into<String>, value: NodeId) {
        self.outputs.push(Output { name: name.into(), value });
    }

    /// The inputs in order.
    pub fn inputs(&self) -> &[NodeId] {
        &self.inputs
    }

    /// The name of an input or weight.
    ///
    /// # Panics
    /// When the node is neither.
    pub fn input_name(&self, id: NodeId) -> &str {
        self.node(id).attrs.text("name")
    }

    /// The outputs in order.
    pub fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    /// The known data of weights, by name.
    pub fn weights(&self) -> &BTreeMap<String, Tensor> {
        &self.weights
    }

    /// Gives a weight its data.
    pub fn bind_weight(&mut self, name: impl Into<String>, data: Tensor) {
        self.weights.insert(name.into(), data);
    }

    /// Whether a node is there: in this graph, and not removed.
    pub fn contains(&self, id: NodeId) -> bool {
        self.dag.contains_node(id.0)
    }

    /// A node.
    ///
    /// # Panics
    /// When it has been removed or belongs to another graph.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.dag[id.0]
    }

    /// A node to change its locations or, keeping its type, its attributes.
    ///
    /// # Panics
    /// As [`Graph::node`].
    pub fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.dag[id.0]
    }

    /// The type of a value.
    ///
    /// # Panics
    /// As [`Graph::node`].
    pub fn ty(&self, id: NodeId) -> &Type {
        &self.node(id).ty
    }

    /// The operands of a node, in order.
    pub fn operands(&self, id: NodeId) -> Vec<NodeId> {
        let mut edges: Vec<(u32, NodeId)> = self
            .dag
            .edges_directed(id.0, Direction::Incoming)
            .map(|edge| (*edge.weight(), NodeId(edge.source())))
            .collect();
        edges.sort_unstable();
        edges.into_iter().map(|(_, operand)| operand).collect()
    }

    /// The positions that operands claim, sorted: `0..n` in a sound graph.
    pub(crate) fn operand_positions(&self, id: NodeId) -> Vec<u32> {
        let edges = self.dag.edges_directed(id.0, Direction::Incoming);
        let mut positions: Vec<u32> = edges.map(|edge| *edge.weight()).collect();
        positions.sort_unstable();
        positions
    }

    /// The nodes that use a value, by number; one that uses it twice is there twice. Outputs do not count.
    pub fn users(&self, id: NodeId) -> Vec<NodeId> {
        let mut users: Vec<NodeId> =
            self.dag.neighbors_directed(id.0, Direction::Outgoing).map(NodeId).collect();
        users.sort_unstable();
        users
    }

    /// The operands' types of a node, in order.
    pub fn operand_types(&self, id: NodeId) -> Vec<Type> {
        self.operands(id).into_iter().map(|operand| self.ty(operand).clone()).collect()
    }

    /// All nodes by number.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.dag.node_indices().map(NodeId)
    }

    /// The number of nodes.
    pub fn len(&self) -> usize {
        self.dag.node_count()
    }

    /// Whether there is no node.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All nodes, operands before their users; among those that are ready, the lowest number first.
    pub fn in_order(&self) -> Vec<NodeId> {
        let mut missing: BTreeMap<NodeId, usize> = BTreeMap::new();
        let mut ready = std::collections::BTreeSet::new();
        for id in self.nodes() {
            let count = self.dag.edges_directed(id.0, Direction::Incoming).count();
            missing.insert(id, count);
            if count == 0 {
                ready.insert(id);
            }
        }
        let mut order = Vec::with_capacity(missing.len());
        while let Some(id) = ready.pop_first() {
            order.push(id);
            for user in self.dag.neighbors_directed(id.0, Direction::Outgoing).map(NodeId) {
                let count = missing.get_mut(&user).expect("invariant: every node is counted");
                *count -= 1;
                if *count == 0 {
                    ready.insert(user);
                }
            }
        }
        order
    }

    /// Makes every user of `old`, and every output, use `new` instead.
    ///
    /// # Panics
    /// When the types differ, or when `new` depends on `old` through a user.
    pub fn replace(&mut self, old: NodeId, new: NodeId) {
        assert_eq!(self.ty(old), self.ty(new), "invariant: a replacement keeps the type");
        let edges: Vec<_> = self
            .dag
            .edges_directed(old.0, Direction::Outgoing)
            .map(|edge| (edge.id(), edge.target(), *edge.weight()))
            .collect();
        for (edge, user, position) in edges {
            self.dag.remove_edge(edge);
            self.dag.add_edge(new.0, user, position);
        }
        for output in self.outputs.iter_mut().filter(|output| output.value == old) {
            output.value = new;
        }
    }

    /// Removes nodes that no output depends on; inputs stay.
    pub fn remove_dead(&mut self) {
        let mut live: std::collections::BTreeSet<NodeId> = self.inputs.iter().copied().collect();
        let mut queue: Vec<NodeId> = self.outputs.iter().map(|output| output.value).collect();
        while let Some(id) = queue.pop() {
            if live.insert(id) {
                queue.extend(self.operands(id));
            }
        }
        self.dag.retain_nodes(|_, index| live.contains(&NodeId(index)));
    }
}

/// The type of an op's result.
///
/// # Errors
/// When attributes, number of operands or their types are not what the op takes.
pub fn infer(op: OpRef, attrs: &Attrs, operands: &[Type]) -> Result<Type, Diagnostic> {
    let def = op.def();
    if !def.arity.takes(operands.len()) {
        let message = format!("`{op}` takes {} operands, not {}", def.arity, operands.len());
        return Err(Diagnostic::new(format!("{op}.arity"), message));
    }
    for (name, kind) in def.attrs {
        match attrs.get(name).map(crate::AttrValue::kind) {
            Some(actual) if actual == *kind => {}
            Some(actual) => {
                let message = format!("attribute `{name}` of `{op}` is {kind}, not {actual}");
                return Err(Diagnostic::new(format!("{op}.attrs"), message));
            }
            None => {
                let message = format!("`{op}` needs the attribute `{name}`");
                return Err(Diagnostic::new(format!("{op}.attrs"), message));
            }
        }
    }
    if let Some((name, _)) =
        attrs.iter().find(|(name, _)| def.attrs.iter().all(|(declared, _)| declared != name))
    {
        let message = format!("`{op}` has no attribute `{name}`");
        return Err(Diagnostic::new(format!("{op}.attrs"), message));
    }
    (def.infer)(&OpCtx { attrs, operands }).map_err(|violation| {
        Diagnostic::new(format!("{op}.{}", violation.constraint), violation.message)
    })
}

/// The size along an axis, or 1 beyond the rank, counted from the back (for broadcasting).
pub fn size_from_back(shape: &[Dim], from_back: usize) -> Dim {
    shape
        .len()
        .checked_sub(from_back + 1)
        .map_or_else(|| Dim::constant(1), |axis| shape[axis].clone())
}

#[cfg(test)]
impl Graph {
    /// Adds an operand without any check, to test what finds broken graphs.
    pub(crate) fn connect(&mut self, operand: NodeId, user: NodeId, position: u32) {
        self.dag.add_edge(operand.0, user.0, position);
    }

    /// Removes a node without any check, to test what finds broken graphs.
    pub(crate) fn remove(&mut self, id: NodeId) {
        self.dag.remove_node(id.0);
    }
}
