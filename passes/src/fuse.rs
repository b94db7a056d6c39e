//! Fusion of a canonical graph into regions: a greedy grouping, of which [`crate::regions`] makes the
//! cheapest one.
//!
//! A value is either *stored* (a region's output) or computed where it is used. Each reduce, scan,
//! contraction or window node anchors a region and takes the chain of pointwise nodes behind it as an
//! epilogue; everything that is not stored is inlined into the regions that use it, through movements
//! with mapped indices. What a region may hold is what `fornax_codegen`'s lowering documents.

mod body;
mod decide;
mod place;

use std::collections::{BTreeMap, BTreeSet};

use fornax_ir::op::{OpClass, SourceKind};
use fornax_ir::plan::{Part, Phase, Plan, PlanOutput, Region, Value, ValueRef};
use fornax_ir::{Graph, NodeId, PrecisionPolicy};

use crate::canonicalize::CONSTANT_PREFIX;
use crate::regions::{Regrouped, Steering, regroup};
use crate::{PassError, schedule};
use body::Operand;
use decide::Decision;

/// Groups a canonical graph into regions with schedules. `policy`: how accurately contractions multiply.
///
/// # Errors
/// When a region's body breaks a constraint of its ops (our bug).
pub fn fuse(graph: &Graph, policy: PrecisionPolicy) -> Result<Plan, PassError> {
    Ok(fuse_with(graph, policy, &Steering::default())?.plan)
}

/// As [`fuse`], with what users ask for, and what was decided.
///
/// # Errors
/// When users ask for what cannot be, and as [`fuse`].
pub fn fuse_with(
    graph: &Graph,
    policy: PrecisionPolicy,
    steering: &Steering,
) -> Result<Regrouped, PassError> {
    let stored = forbidden(graph, steering)?;
    regroup(group(graph, policy, &stored)?, policy, steering)
}

/// The nodes whose values users want stored: those on a forbidden edge.
fn forbidden(graph: &Graph, steering: &Steering) -> Result<BTreeSet<NodeId>, PassError> {
    let has = |id: NodeId, name: &str| {
        graph.sources.names(&graph.node(id).loc).iter().any(|other| &**other == name)
    };
    let mut stored = BTreeSet::new();
    for (from, to) in &steering.forbids {
        let edges: Vec<NodeId> = graph
            .nodes()
            .filter(|&id| has(id, to) && !has(id, from))
            .flat_map(|id| graph.operands(id))
            .filter(|&id| has(id, from) && !has(id, to) && !body::is_outside(graph, id))
            .collect();
        if edges.is_empty() {
            let is_there = |name: &str| graph.nodes().any(|id| has(id, name));
            let both = graph.nodes().any(|id| has(id, from) && has(id, to));
            let (node, reason) = match (is_there(from), is_there(to)) {
                (false, _) => (from, "the model has no such node, or rewriting left nothing of it"),
                (_, false) => (to, "the model has no such node, or rewriting left nothing of it"),
                _ if both => (from, "rewriting made one operator of both; try --rewrites bitwise"),
                _ => (from, "its result is no operand of the other node"),
            };
            return Err(PassError::Steering { node: node.clone(), reason: reason.to_owned() });
        }
        stored.extend(edges);
    }
    Ok(stored)
}

/// The first grouping, from which the regions are chosen. `wanted`: values to store whatever it costs.
pub(crate) fn group(
    graph: &Graph,
    policy: PrecisionPolicy,
    wanted: &BTreeSet<NodeId>,
) -> Result<Plan, PassError> {
    let decision = decide::decide(graph, wanted);
    let mut builder = Builder {
        graph,
        decision: &decision,
        policy,
        plan: empty(graph),
        places: BTreeMap::new(),
        copied: vec![false; decision.placement.copies.len()],
    };
    builder.sources();
    for (number, &whole) in decision.placement.shared.iter().enumerate() {
        let ty = graph.ty(whole).clone();
        builder.plan.shared.push(Value { name: format!("shared{number}"), ty });
    }
    for phase in [Phase::Prepare, Phase::Run] {
        for root in decision.stored(phase) {
            builder.region(root, phase)?;
        }
    }
    let shared: Vec<usize> = (0..decision.placement.shared.len()).collect();
    builder.copies(&shared)?;
    for output in graph.outputs() {
        let value = match decision.placement.places.get(&output.value) {
            Some(place) => ValueRef::Shared(place.shared),
            None => builder.places[&output.value],
        };
        builder.plan.outputs.push(PlanOutput { name: output.name.clone(), value });
    }
    Ok(builder.plan)
}

fn empty(graph: &Graph) -> Plan {
    Plan {
        name: graph.name.clone(),
        dims: graph.dims.clone(),
        sources: graph.sources.clone(),
        inputs: Vec::new(),
        weights: Vec::new(),
        constants: BTreeMap::new(),
        shared: Vec::new(),
        regions: Vec::new(),
        outputs: Vec::new(),
    }
}

/// A plan that is being made.
struct Builder<'a> {
    graph: &'a Graph,
    decision: &'a Decision,
    policy: PrecisionPolicy,
    plan: Plan,
    /// Values in memory of their own.
    places: BTreeMap<NodeId, ValueRef>,
    /// The copies into shared arrays that are made.
    copied: Vec<bool>,
}

impl Builder<'_> {
    /// Declares inputs and weights.
    fn sources(&mut self) {
        let (graph, plan) = (self.graph, &mut self.plan);
        for &id in graph.inputs() {
            self.places.insert(id, ValueRef::Input(plan.inputs.len()));
            let (name, ty) = (graph.input_name(id).to_owned(), graph.ty(id).clone());
            plan.inputs.push(Value { name, ty });
        }
        for id in graph.in_order() {
            if matches!(graph.node(id).op.class(), OpClass::Source(SourceKind::Weight)) {
                let (name, ty) = (graph.input_name(id).to_owned(), graph.ty(id).clone());
                if name.starts_with(CONSTANT_PREFIX) {
                    let data = graph.weights()[&name].clone();
                    plan.constants.insert(name.clone(), data);
                }
                self.places.insert(id, ValueRef::Weight(plan.weights.len()));
                plan.weights.push(Value { name, ty });
            }
        }
    }

    /// Adds the region that computes a stored value.
    fn region(&mut self, root: NodeId, phase: Phase) -> Result<(), PassError> {
        let is_stored = |id: NodeId| self.decision.is_stored(id);
        let body = body::extract(self.graph, &is_stored, root)?;
        let placement = &self.decision.placement;
        let (body, operands) = body::through_shared(self.graph, placement, body)?;
        let shared: Vec<usize> = operands
            .iter()
            .filter_map(|operand| match operand {
                Operand::Shared(shared) => Some(*shared),
                Operand::Value(_) => None,
            })
            .collect();
        self.copies(&shared)?;
        let part = placement.places.get(&root);
        let part = part.map(|place| body::part(self.graph, placement, place));
        let is_part = part.is_some();
        let region = self.add(body, operands, phase, part)?;
        if !is_part {
            self.places.insert(root, ValueRef::Region { region, output: 0 });
        }
        Ok(())
    }

    /// Copies into shared arrays what is computed by now and lies elsewhere.
    fn copies(&mut self, shared: &[usize]) -> Result<(), PassError> {
        let placement = &self.decision.placement;
        for (number, (value, place)) in placement.copies.iter().enumerate() {
            let is_there = self.places.contains_key(value) || placement.places.contains_key(value);
            if self.copied[number] || !shared.contains(&place.shared) || !is_there {
                continue;
            }
            self.copied[number] = true;
            let body = body::copy(self.graph, *value)?;
            let (body, operands) = body::through_shared(self.graph, placement, body)?;
            let part = body::part(self.graph, placement, place);
            self.add(body, operands, Phase::Run, Some(part))?;
        }
        Ok(())
    }

    fn add(
        &mut self,
        body: Graph,
        operands: Vec<Operand>,
        phase: Phase,
        part: Option<Part>,
    ) -> Result<usize, PassError> {
        let number = self.plan.regions.len();
        let name = format!("r{number}");
        let precision = schedule::precision(&body, self.policy);
        let schedule = schedule::choose(&body, precision, &self.graph.dims)
            .map_err(|rejection| PassError::Region { region: name.clone(), rejection })?;
        let operands = operands.iter().map(|operand| match operand {
            Operand::Value(value) => self.places[value],
            Operand::Shared(shared) => ValueRef::Shared(*shared),
        });
        let operands = operands.collect();
        let parts = part.into_iter().map(|part| (0, part)).collect();
        self.plan.regions.push(Region { name, phase, body, operands, parts, precision, schedule });
        Ok(number)
    }
}
