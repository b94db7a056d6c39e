//! The first fusion: a greedy grouping of a canonical graph into regions.
//!
//! A value is either *stored* (a region's output) or computed where it is used. Each reduce, scan,
//! contraction or window node anchors a region and takes the chain of pointwise nodes behind it as an
//! epilogue; everything that is not stored is inlined into the regions that use it, through movements
//! with mapped indices. What a region may hold is what `fornax_codegen`'s lowering documents.

mod body;
mod decide;

use std::collections::BTreeMap;

use fornax_ir::op::{OpClass, SourceKind};
use fornax_ir::plan::{Phase, Plan, PlanOutput, Region, Value, ValueRef};
use fornax_ir::{Graph, NodeId, PrecisionPolicy};

use crate::canonicalize::CONSTANT_PREFIX;
use crate::{PassError, schedule};

/// Groups a canonical graph into regions with schedules. `policy`: how accurately contractions multiply.
///
/// # Errors
/// When a region's body breaks a constraint of its ops (our bug).
pub fn fuse(graph: &Graph, policy: PrecisionPolicy) -> Result<Plan, PassError> {
    let decision = decide::decide(graph);
    let mut plan = Plan {
        name: graph.name.clone(),
        dims: graph.dims.clone(),
        sources: graph.sources.clone(),
        inputs: Vec::new(),
        weights: Vec::new(),
        constants: BTreeMap::new(),
        regions: Vec::new(),
        outputs: Vec::new(),
    };
    let mut places: BTreeMap<NodeId, ValueRef> = BTreeMap::new();
    for &id in graph.inputs() {
        places.insert(id, ValueRef::Input(plan.inputs.len()));
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
            places.insert(id, ValueRef::Weight(plan.weights.len()));
            plan.weights.push(Value { name, ty });
        }
    }
    for phase in [Phase::Prepare, Phase::Run] {
        for root in decision.stored(phase) {
            let region =
                region(graph, &decision, root, (phase, plan.regions.len(), policy), &places)?;
            places.insert(root, ValueRef::Region { region: plan.regions.len(), output: 0 });
            plan.regions.push(region);
        }
    }
    for output in graph.outputs() {
        let value = places[&output.value];
        plan.outputs.push(PlanOutput { name: output.name.clone(), value });
    }
    Ok(plan)
}

fn region(
    graph: &Graph,
    decision: &decide::Decision,
    root: NodeId,
    (phase, number, policy): (Phase, usize, PrecisionPolicy),
    places: &BTreeMap<NodeId, ValueRef>,
) -> Result<Region, PassError> {
    let (body, operands) = body::extract(graph, decision, root)?;
    let name = format!("r{number}");
    let precision = schedule::precision(&body, policy);
    let schedule = schedule::choose(&body, precision, &graph.dims)
        .map_err(|rejection| PassError::Region { region: name.clone(), rejection })?;
    Ok(Region {
        name,
        phase,
        operands: operands.iter().map(|operand| places[operand]).collect(),
        precision,
        schedule,
        body,
    })
}
