//! Rolling: cells that an exporter has written out step by step become one recurrence again, and what is done
//! alike with each step is done with all of them at once.
//!
//! A cell is `f(concat(x, h) * w + b)` with a function `f` of one element, where `h` is what the cell before
//! gives and weights and bias are those of all cells. Its products with `x` move to the front of the
//! recurrence, so that no `x` may depend on the chain.

use std::collections::{BTreeMap, BTreeSet};

use fornax_ir::op::{OpClass, OpCtx, by_name};
use fornax_ir::{
    Attrs, BinaryFn, DType, Diagnostic, Dim, Graph, IndexExpr, LocSet, NodeId, ScalarExpr, Type,
    attrs,
};

/// Steps from which a loop is worth it.
const FEWEST_STEPS: usize = 4;

type Built = Result<NodeId, Diagnostic>;

/// Rolls what can be rolled; says whether anything was.
///
/// # Errors
/// When a new node breaks a constraint of its op (our bug).
pub(crate) fn roll(graph: &mut Graph) -> Result<bool, Diagnostic> {
    let mut any = false;
    // What comes into one chain may be the states of another: each is found in the graph as it is then.
    while let Some(chain) = chain(graph) {
        replace(graph, &chain)?;
        graph.remove_dead();
        any = true;
    }
    if any {
        join_parts(graph)?;
        graph.remove_dead();
    }
    Ok(any)
}

/// A cell, but for which operand of the concatenation is the state.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Cell {
    parts: [NodeId; 2],
    weight: NodeId,
    bias: Option<NodeId>,
    activation: &'static str,
}

impl Cell {
    fn is_like(&self, other: &Cell) -> bool {
        (self.weight, self.bias, self.activation) == (other.weight, other.bias, other.activation)
    }
}

/// Cells in order.
#[derive(Debug)]
struct Chain {
    nodes: Vec<NodeId>,
    cells: Vec<Cell>,
    /// Which part of the concatenations is the state.
    state: usize,
}

/// The first chain of a graph.
fn chain(graph: &Graph) -> Option<Chain> {
    let order = graph.in_order();
    let cells: BTreeMap<NodeId, Cell> =
        order.iter().filter_map(|&id| Some((id, cell(graph, id)?))).collect();
    for state in [1, 0] {
        let mut after: BTreeMap<NodeId, NodeId> = BTreeMap::new();
        for &id in order.iter().filter(|id| cells.contains_key(id)) {
            let before = cells[&id].parts[state];
            if cells.get(&before).is_some_and(|other| other.is_like(&cells[&id])) {
                after.entry(before).or_insert(id);
            }
        }
        let followers: BTreeSet<NodeId> = after.values().copied().collect();
        for &first in order.iter().filter(|id| cells.contains_key(id) && !followers.contains(id)) {
            let nodes: Vec<NodeId> =
                std::iter::successors(Some(first), |id| after.get(id).copied()).collect();
            let chain =
                Chain { cells: nodes.iter().map(|id| cells[id].clone()).collect(), nodes, state };
            if chain.nodes.len() >= FEWEST_STEPS && is_open(graph, &order, &chain) {
                return Some(chain);
            }
        }
    }
    None
}

/// Whether what comes in depends on no state of the chain.
fn is_open(graph: &Graph, order: &[NodeId], chain: &Chain) -> bool {
    let mut after: BTreeSet<NodeId> = chain.nodes.iter().copied().collect();
    for &id in order {
        if graph.operands(id).iter().any(|operand| after.contains(operand)) {
            after.insert(id);
        }
    }
    chain.cells.iter().all(|cell| !after.contains(&cell.parts[1 - chain.state]))
}

/// The cell that a node is the result of.
fn cell(graph: &Graph, id: NodeId) -> Option<Cell> {
    let node = graph.node(id);
    let is_function = matches!(node.op.class(), OpClass::Pointwise(_));
    let [sum] = graph.operands(id)[..] else { return None };
    let is_computed = matches!(node.ty.dtype, DType::F32 | DType::F64);
    if !is_function || node.attrs != Attrs::none() || !is_computed {
        return None;
    }
    let (product, bias) = match is_sum(graph, sum) {
        Some([a, b]) if is_product(graph, a) => (a, Some(b)),
        Some([a, b]) if is_product(graph, b) => (b, Some(a)),
        Some(_) => return None,
        None => (sum, None),
    };
    if !is_product(graph, product) {
        return None;
    }
    let [joined, weight] = graph.operands(product)[..] else { return None };
    let parts: [NodeId; 2] = graph.operands(joined).try_into().ok()?;
    let is_state = |part: &NodeId| graph.ty(*part) == &node.ty;
    let joins = has_form(graph, joined, "concat", &attrs! { axis: 1i64 });
    let known = node.ty.shape[1].as_const().is_some();
    (joins && known && parts.iter().any(is_state)).then(|| Cell {
        parts,
        weight,
        bias,
        activation: node.op.name(),
    })
}

/// The operands of a sum.
fn is_sum(graph: &Graph, id: NodeId) -> Option<[NodeId; 2]> {
    let OpClass::Pointwise(body) = graph.node(id).op.class() else { return None };
    let types = graph.operand_types(id);
    let body = body(&OpCtx { attrs: &graph.node(id).attrs, operands: &types });
    let sum = ScalarExpr::arg(0).binary(BinaryFn::Add, ScalarExpr::arg(1));
    if body == sum { graph.operands(id).try_into().ok() } else { None }
}

/// Whether a node is a product of two matrices.
fn is_product(graph: &Graph, id: NodeId) -> bool {
    let types = graph.operand_types(id);
    types.len() == 2
        && types.iter().all(|ty| ty.rank() == 2)
        && has_form(graph, id, "matmul", &Attrs::none())
}

/// Whether a node does what an op with these attributes would do with its operands.
fn has_form(graph: &Graph, id: NodeId, op: &str, attrs: &Attrs) -> bool {
    let Some(op) = by_name(op) else { return false };
    let node = graph.node(id);
    let types = graph.operand_types(id);
    if fornax_ir::infer(op, attrs, &types).ok().as_ref() != Some(&node.ty) {
        return false;
    }
    let other = OpCtx { attrs, operands: &types };
    let own = OpCtx { attrs: &node.attrs, operands: &types };
    match (node.op.class(), op.class()) {
        (OpClass::Movement(a), OpClass::Movement(b)) => a(&own) == b(&other),
        (OpClass::Contraction(a), OpClass::Contraction(b)) => a(&own) == b(&other),
        _ => false,
    }
}

/// Puts a recurrence in place of a chain.
fn replace(graph: &mut Graph, chain: &Chain) -> Result<(), Diagnostic> {
    let (first, cell) = (chain.nodes[0], &chain.cells[0]);
    let mut loc = LocSet::none();
    chain.nodes.iter().for_each(|&id| loc.union(&graph.node(id).loc));
    let mut to = Builder { graph, loc };
    let ty = to.graph.ty(first).clone();
    let inputs: Vec<NodeId> = chain.cells.iter().map(|cell| cell.parts[1 - chain.state]).collect();
    let width = to.graph.ty(inputs[0]).shape[1].clone();
    let (batch, hidden) = (ty.shape[0].clone(), ty.shape[1].clone());
    let zero = Dim::constant(0);
    let starts = match chain.state {
        1 => [zero, width.clone()],
        _ => [hidden.clone(), zero],
    };
    let x = match to.lift(&inputs, &mut BTreeMap::new())? {
        Some(Lifted::Stacked(x)) => x,
        _ => to.stack(&inputs)?,
    };
    let of_input = to.rows(cell.weight, &starts[0], &width)?;
    let of_state = to.rows(cell.weight, &starts[1], &hidden)?;
    let mut products = to.add("matmul", Attrs::none(), &[x, of_input])?;
    if let Some(bias) = cell.bias {
        let shape = to.graph.ty(products).shape.to_vec();
        let bias = to.add("broadcast", attrs! { shape: shape }, &[bias])?;
        products = to.add("add", Attrs::none(), &[products, bias])?;
    }
    let recurrent = to.add("transpose", attrs! { perm: &[1i64, 0][..] }, &[of_state])?;
    let one = Dim::constant(1);
    let recurrent = to.reshape(recurrent, vec![one.clone(), hidden.clone(), hidden.clone()])?;
    let initial = cell.parts[chain.state];
    let initial = to.reshape(initial, vec![one.clone(), batch, hidden])?;
    let attrs = attrs! { direction: "forward", activations: cell.activation };
    let states = to.add("rnn_recurrence", attrs, &[products, recurrent, initial])?;
    for (step, &id) in chain.nodes.iter().enumerate() {
        let state = to.rows(states, &Dim::from(step), &one)?;
        let state = to.reshape(state, ty.shape.to_vec())?;
        to.graph.replace(id, state);
    }
    Ok(())
}

/// Where results of many steps are joined, what is done with each step is done with all of them.
fn join_parts(graph: &mut Graph) -> Result<(), Diagnostic> {
    for id in graph.in_order() {
        let parts = graph.operands(id);
        let one = Dim::constant(1);
        let is_joint = parts.len() >= FEWEST_STEPS
            && graph.ty(id).rank() > 0
            && parts.iter().all(|&part| graph.ty(part).shape.first() == Some(&one))
            && has_form(graph, id, "concat", &attrs! { axis: 0i64 });
        if !is_joint {
            continue;
        }
        let loc = graph.node(id).loc.clone();
        let mut to = Builder { graph, loc };
        if let Some(Lifted::Stacked(all)) = to.lift(&parts, &mut BTreeMap::new())? {
            let shape = to.graph.ty(id).shape.to_vec();
            let all = to.reshape(all, shape)?;
            to.graph.replace(id, all);
        }
    }
    Ok(())
}

/// The values of one expression at all steps.
#[derive(Debug, Clone, Copy)]
enum Lifted {
    /// The same at each step.
    Same(NodeId),
    /// One after another along a new first axis.
    Stacked(NodeId),
}

type Known = BTreeMap<Vec<NodeId>, Option<Lifted>>;

struct Builder<'g> {
    graph: &'g mut Graph,
    loc: LocSet,
}

impl Builder<'_> {
    fn add(&mut self, op: &str, attrs: Attrs, operands: &[NodeId]) -> Built {
        self.graph.add(op, attrs, operands, self.loc.clone())
    }

    fn reshape(&mut self, x: NodeId, shape: Vec<Dim>) -> Built {
        if self.graph.ty(x).shape[..] == *shape {
            return Ok(x);
        }
        self.add("reshape", attrs! { shape: shape }, &[x])
    }

    /// `count` positions of the first axis.
    fn rows(&mut self, x: NodeId, start: &Dim, count: &Dim) -> Built {
        let shape = self.graph.ty(x).shape.to_vec();
        let mut starts = vec![Dim::constant(0); shape.len()];
        starts[0] = start.clone();
        let steps = vec![1i64; shape.len()];
        let mut sizes = shape;
        sizes[0] = count.clone();
        self.add("slice", attrs! { starts: starts, sizes: sizes, steps: steps }, &[x])
    }

    /// Values of one type along a new first axis.
    fn stack(&mut self, values: &[NodeId]) -> Built {
        let mut parts = Vec::with_capacity(values.len());
        for &value in values {
            let mut shape = self.graph.ty(value).shape.to_vec();
            shape.insert(0, Dim::constant(1));
            parts.push(self.reshape(value, shape)?);
        }
        self.add("concat", attrs! { axis: 0i64 }, &parts)
    }

    /// What gives the values of equal expressions at once; nothing where they differ or no rule fits.
    fn lift(&mut self, nodes: &[NodeId], known: &mut Known) -> Result<Option<Lifted>, Diagnostic> {
        let (first, ty) = (nodes[0], self.graph.ty(nodes[0]).clone());
        if nodes.iter().all(|&id| id == first) {
            return Ok(Some(Lifted::Same(first)));
        }
        if let Some(&lifted) = known.get(nodes) {
            return Ok(lifted);
        }
        let op = self.graph.node(first).op;
        let alike = |&id: &NodeId| self.graph.node(id).op == op && *self.graph.ty(id) == ty;
        let lifted = match op.class() {
            _ if !nodes.iter().all(alike) => None,
            OpClass::Pointwise(_) => self.lift_pointwise(nodes, known)?,
            OpClass::Contraction(_) => self.lift_product(nodes, known)?,
            OpClass::Movement(_) => self.lift_movement(nodes, &ty, known)?,
            _ => None,
        };
        known.insert(nodes.to_vec(), lifted.map(Lifted::Stacked));
        Ok(lifted.map(Lifted::Stacked))
    }

    /// The operand at a position of each node, lifted.
    fn operand(
        &mut self,
        nodes: &[NodeId],
        position: usize,
        known: &mut Known,
    ) -> Result<Option<Lifted>, Diagnostic> {
        let operands: Option<Vec<NodeId>> =
            nodes.iter().map(|&id| self.graph.operands(id).get(position).copied()).collect();
        match operands {
            Some(operands) => self.lift(&operands, known),
            None => Ok(None),
        }
    }

    fn lift_pointwise(
        &mut self,
        nodes: &[NodeId],
        known: &mut Known,
    ) -> Result<Option<NodeId>, Diagnostic> {
        let node = self.graph.node(nodes[0]).clone();
        if nodes.iter().any(|&id| self.graph.node(id).attrs != node.attrs) {
            return Ok(None);
        }
        let mut shape = node.ty.shape.to_vec();
        shape.insert(0, Dim::from(nodes.len()));
        let mut operands = Vec::new();
        for position in 0..self.graph.operands(nodes[0]).len() {
            operands.push(match self.operand(nodes, position, known)? {
                Some(Lifted::Stacked(all)) => all,
                Some(Lifted::Same(one)) => {
                    self.add("broadcast", attrs! { shape: shape.clone() }, &[one])?
                }
                None => return Ok(None),
            });
        }
        self.add(node.op.name(), node.attrs, &operands).map(Some)
    }

    /// Matrices times one matrix.
    fn lift_product(
        &mut self,
        nodes: &[NodeId],
        known: &mut Known,
    ) -> Result<Option<NodeId>, Diagnostic> {
        if !nodes.iter().all(|&id| is_product(self.graph, id)) {
            return Ok(None);
        }
        match (self.operand(nodes, 0, known)?, self.operand(nodes, 1, known)?) {
            (Some(Lifted::Stacked(all)), Some(Lifted::Same(right))) => {
                self.add("matmul", Attrs::none(), &[all, right]).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Views of lifted values, and neighbouring positions along the first axis of one value.
    fn lift_movement(
        &mut self,
        nodes: &[NodeId],
        ty: &Type,
        known: &mut Known,
    ) -> Result<Option<NodeId>, Diagnostic> {
        let mut shape = ty.shape.to_vec();
        let view = attrs! { shape: shape.clone() };
        shape.insert(0, Dim::from(nodes.len()));
        if nodes.iter().all(|&id| has_form(self.graph, id, "reshape", &view)) {
            return match self.operand(nodes, 0, known)? {
                Some(Lifted::Stacked(all)) => self.reshape(all, shape).map(Some),
                _ => Ok(None),
            };
        }
        let from = self.graph.operands(nodes[0]);
        let places: Option<Vec<i64>> = nodes.iter().map(|&id| place(self.graph, id)).collect();
        let (Some(places), &[from]) = (places, &from[..]) else { return Ok(None) };
        let in_order = places.windows(2).all(|pair| pair[1] == pair[0] + 1);
        if !in_order || nodes.iter().any(|&id| self.graph.operands(id)[..] != [from]) {
            return Ok(None);
        }
        let all = self.rows(from, &Dim::constant(places[0]), &Dim::from(nodes.len()))?;
        self.reshape(all, shape).map(Some)
    }
}

/// Which position of the first axis a movement takes, where it takes one and all others as they are.
fn place(graph: &Graph, id: NodeId) -> Option<i64> {
    let node = graph.node(id);
    let types = graph.operand_types(id);
    let OpClass::Movement(form) = node.op.class() else { return None };
    let form = form(&OpCtx { attrs: &node.attrs, operands: &types });
    let [case] = &form.cases[..] else { return None };
    let [first, rest @ ..] = &case.index[..] else { return None };
    let others = rest.iter().enumerate().all(|(axis, expr)| *expr == IndexExpr::axis(axis + 1));
    let keeps = types[0].shape[1..] == node.ty.shape[1..] && node.ty.shape[0].is(1);
    if !(others && keeps && case.guards.is_empty() && form.fill.is_none()) {
        return None;
    }
    match first {
        IndexExpr::Axis(0) => Some(0),
        IndexExpr::Size(place) => place.as_const(),
        IndexExpr::Add(axis, place) if **axis == IndexExpr::Axis(0) => match &**place {
            IndexExpr::Size(place) => place.as_const(),
            _ => None,
        },
        _ => None,
    }
}
