//! Which values of a graph are stored in memory, and when they are computed.

use std::collections::{BTreeMap, BTreeSet};

use fornax_ir::op::{OpClass, OpCtx, SourceKind};
use fornax_ir::plan::{Phase, Structure, structure};
use fornax_ir::{BinaryFn, Dim, Graph, NodeId, ScalarExpr, UnaryFn};

use super::body::is_outside;
use super::place::{Placement, place};
use crate::schedule::is_worth_chaining;

/// An inlined value may hold this many nodes; beyond, it is stored. Keeps kernels small enough to
/// compile in milliseconds and to stay within the registers.
const MAX_INLINED_NODES: usize = 48;

/// A region may read this many stored values.
const MAX_OPERANDS: usize = 48;

/// Functions per element that may be computed again for each use of a contraction's or window's
/// operand: every element is loaded once per tile, so what is inlined there runs many times.
const MAX_REPEATED_FUNCTIONS: usize = 4;

/// Values that one element of such an operand may be read from.
const MAX_REPEATED_VALUES: usize = 2;

/// An epilogue is at most this long, for the same reason as [`MAX_INLINED_NODES`].
const MAX_EPILOGUE_NODES: usize = 24;

/// A chain of reductions may have this many nodes, for the same reason.
const MAX_CHAIN_NODES: usize = 96;

/// The outcome.
#[derive(Debug)]
pub(super) struct Decision {
    /// Stored nodes in order, with their phase.
    stored: Vec<(NodeId, Phase)>,
    index: BTreeSet<NodeId>,
    /// What lies in shared arrays.
    pub placement: Placement,
}

impl Decision {
    /// Stored nodes of a phase that regions compute, operands before users.
    pub(super) fn stored(&self, phase: Phase) -> Vec<NodeId> {
        self.stored.iter().filter(|(_, of)| *of == phase).map(|(id, _)| *id).collect()
    }

    /// Whether a node is some region's output.
    pub(super) fn is_stored(&self, id: NodeId) -> bool {
        self.index.contains(&id)
    }
}

/// What is known of each node while deciding.
pub(super) struct State<'g> {
    pub graph: &'g Graph,
    pub order: Vec<NodeId>,
    users: BTreeMap<NodeId, Vec<NodeId>>,
    pub outputs: BTreeSet<NodeId>,
    pub prepared: BTreeSet<NodeId>,
    /// The last node of the epilogue of each anchor, and back.
    epilogue_end: BTreeMap<NodeId, NodeId>,
    /// Nodes inside an epilogue (after the anchor, up to the end), with their anchor.
    epilogue_of: BTreeMap<NodeId, NodeId>,
    pub stored: BTreeSet<NodeId>,
    /// Nodes that are stored whatever it costs.
    wanted: &'g BTreeSet<NodeId>,
}

/// Decides for a canonical graph.
pub(super) fn decide(graph: &Graph, wanted: &BTreeSet<NodeId>) -> Decision {
    let order = graph.in_order();
    let users = order.iter().map(|&id| (id, graph.users(id))).collect();
    let outputs: BTreeSet<NodeId> = graph.outputs().iter().map(|output| output.value).collect();
    let prepared = prepared(graph, &order);
    let mut state = State {
        graph,
        order,
        users,
        outputs,
        prepared,
        epilogue_end: BTreeMap::new(),
        epilogue_of: BTreeMap::new(),
        stored: BTreeSet::new(),
        wanted,
    };
    state.grow_epilogues();
    state.store();
    state.chain_reductions();
    let placement = place(&mut state);
    let phase = |id: &NodeId| {
        if state.prepared.contains(id) { Phase::Prepare } else { Phase::Run }
    };
    let stored: Vec<(NodeId, Phase)> = state
        .order
        .iter()
        .filter(|id| state.stored.contains(id) && !placement.aliases.contains(id))
        .map(|id| (*id, phase(id)))
        .collect();
    Decision { stored, index: state.stored, placement }
}

/// Nodes that depend on weights and constants alone.
fn prepared(graph: &Graph, order: &[NodeId]) -> BTreeSet<NodeId> {
    let mut prepared = BTreeSet::new();
    for &id in order {
        let is = match graph.node(id).op.class() {
            OpClass::Source(SourceKind::Input) => false,
            OpClass::Source(_) => true,
            _ => graph.operands(id).iter().all(|operand| prepared.contains(operand)),
        };
        if is {
            prepared.insert(id);
        }
    }
    prepared
}

impl State<'_> {
    /// Gives each anchor, in order, the chain of pointwise nodes that only it leads to.
    fn grow_epilogues(&mut self) {
        for &anchor in &self.order.clone() {
            if !self.graph.node(anchor).op.class().is_anchor() {
                continue;
            }
            let longest = match self.graph.node(anchor).op.class() {
                OpClass::Recurrent(_) => 0,
                _ => MAX_EPILOGUE_NODES,
            };
            let mut end = anchor;
            for _ in 0..longest {
                let Some(next) = self.epilogue_step(end) else { break };
                self.epilogue_of.insert(next, anchor);
                end = next;
            }
            self.epilogue_end.insert(anchor, end);
        }
    }

    /// The pointwise node that may follow `end` in its region.
    fn epilogue_step(&self, end: NodeId) -> Option<NodeId> {
        if self.outputs.contains(&end) || self.wanted.contains(&end) {
            return None;
        }
        let mut users = self.users[&end].clone();
        users.dedup();
        let [user] = users.as_slice() else { return None };
        let pointwise = matches!(self.graph.node(*user).op.class(), OpClass::Pointwise(_));
        let same_phase = self.prepared.contains(user) == self.prepared.contains(&end);
        (pointwise && same_phase && !self.epilogue_of.contains_key(user)).then_some(*user)
    }

    fn store(&mut self) {
        let mut inlined: BTreeMap<NodeId, Inlined> = BTreeMap::new();
        for &id in &self.order.clone() {
            let node = self.graph.node(id);
            if matches!(node.op.class(), OpClass::Source(_)) {
                let is_value = is_outside(self.graph, id);
                inlined.insert(id, if is_value { Inlined::value(id) } else { Inlined::default() });
                if self.outputs.contains(&id) && !is_value {
                    self.stored.insert(id);
                }
                continue;
            }
            let mut of =
                Inlined { nodes: 1, functions: functions(self.graph, id), ..Inlined::default() };
            for operand in self.graph.operands(id) {
                of.join(&inlined[&operand]);
            }
            if self.must_store(id, &of) {
                self.stored.insert(id);
                of = Inlined::value(id);
            }
            inlined.insert(id, of);
        }
    }

    fn must_store(&self, id: NodeId, inlined: &Inlined) -> bool {
        if let Some(end) = self.epilogue_end.get(&id) {
            return *end == id;
        }
        if let Some(anchor) = self.epilogue_of.get(&id) {
            return self.epilogue_end[anchor] == id;
        }
        if self.outputs.contains(&id) || self.wanted.contains(&id) {
            return true;
        }
        if inlined.nodes > MAX_INLINED_NODES || inlined.values.len() > MAX_OPERANDS {
            return true;
        }
        if self.prepared.contains(&id) {
            return self.is_prepare_boundary(id);
        }
        match self.graph.node(id).op.class() {
            OpClass::Movement(_) => self.is_costly_operand(id, inlined),
            _ => self.is_worth_storing(id, inlined),
        }
    }

    /// Whether a weights-only node is where the prepare program hands over: it is computed from weights
    /// (or rearranges them, or puts several together) and some user needs it at each run. What only repeats
    /// or views a weight is read through instead.
    fn is_prepare_boundary(&self, id: NodeId) -> bool {
        if self.is_movement(id) {
            if self.is_handed_over(id) {
                return self.rearranges(id);
            }
            if !self.chooses(id) {
                return false;
            }
        }
        // It is stored where its chain of movements reaches a run node, unless one of them is.
        let mut queue = self.users[&id].clone();
        while let Some(user) = queue.pop() {
            if !self.prepared.contains(&user) {
                return true;
            }
            let stored = self.is_handed_over(user) && self.rearranges(user);
            if self.is_movement(user) && !stored {
                queue.extend(self.users[&user].iter().copied());
            }
        }
        false
    }

    fn is_movement(&self, id: NodeId) -> bool {
        matches!(self.graph.node(id).op.class(), OpClass::Movement(_))
    }

    /// Whether some user of a weights-only node is needed at each run.
    fn is_handed_over(&self, id: NodeId) -> bool {
        self.users[&id].iter().any(|user| !self.prepared.contains(user))
    }

    /// Whether a movement chooses among several places for each element.
    fn chooses(&self, id: NodeId) -> bool {
        let node = self.graph.node(id);
        let types = self.graph.operand_types(id);
        let OpClass::Movement(form) = node.op.class() else { return false };
        form(&OpCtx { attrs: &node.attrs, operands: &types }).cases.len() > 1
    }

    /// Whether a movement gives as many elements as its operand has, in another order, or chooses among
    /// several places for each element.
    fn rearranges(&self, id: NodeId) -> bool {
        let node = self.graph.node(id);
        let types = self.graph.operand_types(id);
        if self.chooses(id) {
            return true;
        }
        let [from] = types.as_slice() else { return false };
        let OpClass::Movement(form) = node.op.class() else { return false };
        if from.shape.elements() != node.ty.shape.elements() {
            return false;
        }
        let form = form(&OpCtx { attrs: &node.attrs, operands: &types });
        let (Some(sizes), [case]) = (node.ty.shape.as_const(), form.cases.as_slice()) else {
            return false;
        };
        !keeps_order(&case.index, &from.shape, &sizes)
    }

    /// Whether a movement is read many times per element and each read costs much: several values to
    /// choose from (a concatenation), or functions to compute.
    fn is_costly_operand(&self, id: NodeId, inlined: &Inlined) -> bool {
        let costly = inlined.values.len() > MAX_REPEATED_VALUES
            || inlined.functions > MAX_REPEATED_FUNCTIONS;
        costly && self.distinct_uses(id).repeated
    }

    /// Whether computing a pointwise value at each use costs more than storing it once.
    fn is_worth_storing(&self, id: NodeId, inlined: &Inlined) -> bool {
        let uses = self.distinct_uses(id);
        let own = elements(self.graph, id) * self.graph.ty(id).dtype.size() as i64;
        if uses.repeated && inlined.functions > MAX_REPEATED_FUNCTIONS {
            return true;
        }
        // What is read beside a value of the same size (a row's maximum, a bias) does not count.
        uses.count > 1 && inlined.bytes(self.graph) > own.saturating_add(own / 4)
    }

    /// Computes what is stored inside the one region that uses it, where that can compute both: reductions
    /// that go along the same rows, and values that it uses several times at the same position.
    fn chain_reductions(&mut self) {
        for &id in self.order.clone().iter().rev() {
            if !self.stored.contains(&id)
                || self.outputs.contains(&id)
                || self.wanted.contains(&id)
                || is_outside(self.graph, id)
            {
                continue;
            }
            let Some(user) = self.only_storing_user(id) else { continue };
            if self.prepared.contains(&id) != self.prepared.contains(&user) {
                continue;
            }
            let repeated = self.distinct_uses(id).repeated
                || elements(self.graph, id) < elements(self.graph, user);
            self.stored.remove(&id);
            if !self.is_joined(user, repeated) {
                self.stored.insert(id);
            }
        }
    }

    /// The only stored value that a stored value is used for.
    fn only_storing_user(&self, id: NodeId) -> Option<NodeId> {
        let mut found = BTreeSet::new();
        let mut seen = BTreeSet::new();
        let mut queue = self.users[&id].clone();
        while let Some(user) = queue.pop() {
            if !seen.insert(user) {
                continue;
            }
            if self.stored.contains(&user) {
                found.insert(user);
            } else {
                queue.extend(self.users[&user].iter().copied());
            }
        }
        if found.len() == 1 { found.pop_first() } else { None }
    }

    /// Whether what is now computed for a stored value is a region that pays: a chain of reductions, or
    /// another where nothing is computed more than once for each of its elements.
    fn is_joined(&self, root: NodeId, repeated: bool) -> bool {
        let is_stored = |id: NodeId| self.stored.contains(&id);
        let Ok((body, operands)) = super::body::extract(self.graph, &is_stored, root) else {
            return false;
        };
        let count = body.nodes().count();
        if count > MAX_CHAIN_NODES || operands.len() > MAX_OPERANDS {
            return false;
        }
        match structure(&body, &self.graph.dims) {
            Ok(Structure::Rows(rows)) => is_worth_chaining(&rows, &self.graph.dims),
            // Whether tiles that hold what is folded pay is a matter of costs: see `regions`.
            Ok(Structure::Reduced(_)) => false,
            Ok(_) => !repeated && count <= MAX_INLINED_NODES,
            Err(_) => false,
        }
    }

    /// How often, and by what, a value is used when movements are looked through.
    fn distinct_uses(&self, id: NodeId) -> Uses {
        let mut uses = Uses::default();
        let mut consumers = BTreeSet::new();
        let mut queue: Vec<(NodeId, NodeId)> =
            self.users[&id].iter().map(|&user| (id, user)).collect();
        let mut seen = BTreeSet::new();
        while let Some((value, user)) = queue.pop() {
            if !seen.insert((value, user)) {
                continue;
            }
            match self.graph.node(user).op.class() {
                OpClass::Movement(_) if !self.outputs.contains(&user) => {
                    queue.extend(self.users[&user].iter().map(|&next| (user, next)));
                }
                OpClass::Contraction(_) | OpClass::Window(_) => {
                    uses.repeated = true;
                    consumers.insert(user);
                }
                _ => {
                    consumers.insert(user);
                }
            }
        }
        uses.count = consumers.len();
        uses
    }
}

#[derive(Default)]
struct Uses {
    count: usize,
    /// Some use evaluates each element more than once.
    repeated: bool,
}

/// What a value costs where it is inlined.
#[derive(Debug, Clone, Default)]
struct Inlined {
    nodes: usize,
    functions: usize,
    values: BTreeSet<NodeId>,
}

impl Inlined {
    fn value(id: NodeId) -> Inlined {
        Inlined { nodes: 0, functions: 0, values: BTreeSet::from([id]) }
    }

    fn join(&mut self, other: &Inlined) {
        self.nodes += other.nodes;
        self.functions += other.functions;
        self.values.extend(other.values.iter().copied());
    }

    fn bytes(&self, graph: &Graph) -> i64 {
        self.values
            .iter()
            .map(|&id| elements(graph, id).saturating_mul(graph.ty(id).dtype.size() as i64))
            .fold(0, i64::saturating_add)
    }
}

/// The number of elements, at the upper end of symbolic sizes.
fn elements(graph: &Graph, id: NodeId) -> i64 {
    upper_bound(&graph.ty(id).shape.elements(), graph)
}

fn upper_bound(size: &Dim, graph: &Graph) -> i64 {
    size.bounds(&graph.dims).1
}

/// Weighted number of functions per element of a node: a transcendental counts as eight.
fn functions(graph: &Graph, id: NodeId) -> usize {
    let node = graph.node(id);
    match node.op.class() {
        OpClass::Pointwise(body) => {
            let types = graph.operand_types(id);
            weight(&body(&OpCtx { attrs: &node.attrs, operands: &types }))
        }
        _ => 0,
    }
}

fn weight(expr: &ScalarExpr) -> usize {
    match expr {
        ScalarExpr::Arg(_) | ScalarExpr::Const(_) => 0,
        ScalarExpr::Unary(function, x) => weight(x) + if is_cheap(*function) { 1 } else { 8 },
        ScalarExpr::Binary(BinaryFn::Pow | BinaryFn::Rem | BinaryFn::Mod | BinaryFn::Div, a, b) => {
            weight(a) + weight(b) + 8
        }
        ScalarExpr::Binary(_, a, b) => weight(a) + weight(b) + 1,
        ScalarExpr::Select(a, b, c) => weight(a) + weight(b) + weight(c) + 1,
        ScalarExpr::Cast(_, x) => weight(x) + 1,
    }
}

fn is_cheap(function: UnaryFn) -> bool {
    use UnaryFn::{Abs, Ceil, Floor, IsInf, IsNan, Neg, Not, RoundEven, Sign, Trunc};
    matches!(function, Neg | Abs | Sign | Floor | Ceil | RoundEven | Trunc | Not | IsNan | IsInf)
}

/// Whether an index map keeps the row-major order: checked at the origin and one step along each axis,
/// which decides it for the maps of views (mixed-radix digits).
fn keeps_order(index: &[fornax_ir::IndexExpr], from: &fornax_ir::Shape, sizes: &[usize]) -> bool {
    let position = fornax_ir::linearize(index, from);
    let mut corners: Vec<Vec<i64>> = vec![vec![0; sizes.len()]];
    for axis in (0..sizes.len()).filter(|&axis| sizes[axis] > 1) {
        let mut corner = vec![0; sizes.len()];
        corner[axis] = 1;
        corners.push(corner);
    }
    corners.iter().all(|corner| {
        let expected = corner.iter().zip(sizes).fold(0, |sum, (&at, &size)| sum * size as i64 + at);
        evaluate(&position, corner) == Some(expected)
    })
}

/// The value of an index expression at a position, when it reads no operand and no symbol.
fn evaluate(expr: &fornax_ir::IndexExpr, at: &[i64]) -> Option<i64> {
    use fornax_ir::IndexExpr;
    Some(match expr {
        IndexExpr::Axis(axis) => at[*axis],
        IndexExpr::Size(size) => size.as_const()?,
        IndexExpr::Add(a, b) => evaluate(a, at)? + evaluate(b, at)?,
        IndexExpr::Mul(a, by) => evaluate(a, at)? * by.as_const()?,
        IndexExpr::FloorDiv(a, by) => evaluate(a, at)?.checked_div_euclid(by.as_const()?)?,
        IndexExpr::Mod(a, by) => evaluate(a, at)?.checked_rem_euclid(by.as_const()?)?,
        IndexExpr::Min(a, b) => evaluate(a, at)?.min(evaluate(b, at)?),
        IndexExpr::Max(a, b) => evaluate(a, at)?.max(evaluate(b, at)?),
        IndexExpr::Element { .. } => return None,
    })
}
