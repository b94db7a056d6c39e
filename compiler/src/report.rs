//! `fornax inspect --html`: one page that shows what was computed together, and why.
//!
//! The page needs nothing beside itself. It is `report/page.html` with the data below put in; the regions'
//! places are decided here, so that the page only draws.

mod layout;
mod memory;

use std::collections::BTreeMap;

use fornax_bundle::manifest::{Launch, Step, TargetPlan};
use fornax_bundle::{Bundle, Dim};
use fornax_ir::op::{OpClass, SourceKind};
use fornax_ir::plan::{Phase, Plan, ValueRef};
use fornax_ir::{Graph, NodeId};
use serde::Serialize;

use crate::Error;
use crate::ledger::{FusionEntry, Ledger, RegionEntry};
use layout::Rect;

/// What the page's script replaces.
const MARK: &str = "/*DATA*/null";

/// The page for a bundle.
///
/// # Errors
/// When the bundle has no ledger or plan, or they do not parse.
pub fn report(bundle: &Bundle) -> Result<String, Error> {
    let data = data(bundle)?;
    let json = serde_json::to_string(&data).expect("invariant: the report is plain data");
    // A script ends at the first `</script`, wherever it stands.
    let json = json.replace("</", "<\\/").replace("<!--", "<\\!--");
    Ok(include_str!("report/page.html").replace(MARK, &json))
}

#[derive(Debug, Serialize)]
struct Data {
    model: String,
    target: String,
    precision: String,
    rewrites: String,
    counts: Counts,
    rules: Vec<crate::ledger::RuleUse>,
    regions: Vec<RegionData>,
    edges: Vec<Edge>,
    fusions: Vec<FusionEntry>,
    memory: memory::Memory,
}

/// Before and after.
#[derive(Debug, Serialize)]
struct Counts {
    /// Operators of the imported model.
    imported: usize,
    /// Operators in regions.
    ops: usize,
    regions: usize,
    kernels: usize,
    launches: usize,
    estimated_us: [f64; 2],
    /// Bytes that the run's kernels must move; none for symbolic sizes.
    bytes: Option<i64>,
}

#[derive(Debug, Serialize)]
struct RegionData {
    name: String,
    phase: String,
    class: String,
    schedule: String,
    precision: String,
    predicted_us: Option<f64>,
    rect: Rect,
    ops: Vec<OpData>,
    /// Which operator reads which inside.
    inner: Vec<[usize; 2]>,
    reads: Vec<String>,
    writes: Vec<String>,
    kernels: Vec<KernelData>,
}

#[derive(Debug, Serialize)]
struct OpData {
    op: String,
    ty: String,
    origins: Vec<String>,
    rule: Option<String>,
    rect: Rect,
}

#[derive(Debug, Serialize)]
struct KernelData {
    name: String,
    grid: String,
    threads: u32,
    shared_bytes: u32,
    bytes: String,
    flops: String,
    ptx: String,
}

/// A value that passes between regions: from an operator of one to an operator of another.
#[derive(Debug, Serialize)]
struct Edge {
    from: [usize; 2],
    to: [usize; 2],
    ty: String,
}

fn data(bundle: &Bundle) -> Result<Data, Error> {
    let ledger = Ledger::of(bundle)?;
    let plan = crate::explain::plan(bundle)?;
    let imported = crate::explain::imported(bundle)?;
    let manifest = bundle.manifest();
    let target = manifest
        .targets
        .first()
        .ok_or_else(|| Error::Ledger("the bundle has no target".to_owned()))?;
    if ledger.regions.len() != plan.regions.len() || target.regions.len() != plan.regions.len() {
        return Err(Error::Ledger("ledger.json and plan.txt do not belong together".to_owned()));
    }
    let bodies: Vec<Body> = plan.regions.iter().map(|region| Body::of(&region.body)).collect();
    let edges = edges(&plan, &bodies);
    let layout = layout::layout(&shapes(&plan, &bodies), &region_edges(&edges));
    let launches = launches(target);
    let regions = (0..plan.regions.len()).map(|number| {
        let entry = &ledger.regions[number];
        region(bundle, target, &launches, (number, entry), &bodies[number], &layout[number])
    });
    let run_bytes = target
        .run
        .iter()
        .filter_map(launch)
        .map(|launch| target.kernels[launch.kernel].bytes.as_const())
        .sum();
    let counts = Counts {
        imported: imported.nodes().filter(|&id| !is_source(&imported, id)).count(),
        ops: bodies.iter().map(|body| body.ops.len()).sum(),
        regions: plan.regions.len(),
        kernels: target.kernels.len(),
        launches: target.run.iter().filter_map(launch).count(),
        estimated_us: ledger.estimated_us,
        bytes: run_bytes,
    };
    Ok(Data {
        model: manifest.model.clone(),
        target: target.target.clone(),
        precision: manifest.precision.clone(),
        rewrites: manifest.rewrites.clone(),
        counts,
        rules: ledger.rules.clone(),
        regions: regions.collect(),
        edges,
        fusions: ledger.fusions.clone(),
        memory: memory::memory(target),
    })
}

fn launch(step: &Step) -> Option<&Launch> {
    match step {
        Step::Launch(launch) => Some(launch),
        Step::Copy { .. } | Step::Choice { .. } => None,
    }
}

/// The first launch of each kernel.
fn launches(target: &TargetPlan) -> BTreeMap<usize, &Launch> {
    let mut first = BTreeMap::new();
    for launch in target.prepare.iter().chain(&target.run).filter_map(launch) {
        first.entry(launch.kernel).or_insert(launch);
    }
    first
}

fn is_source(graph: &Graph, id: NodeId) -> bool {
    let class = graph.node(id).op.class();
    matches!(class, OpClass::Source(kind) if *kind != SourceKind::Iota)
}

/// The operators of a region, as the ledger lists them.
struct Body {
    ops: Vec<NodeId>,
    number: BTreeMap<NodeId, usize>,
    inner: Vec<[usize; 2]>,
}

impl Body {
    fn of(graph: &Graph) -> Body {
        let is_op = |id: &NodeId| {
            let class = graph.node(*id).op.class();
            !matches!(class, OpClass::Source(SourceKind::Input | SourceKind::Constant))
        };
        let ops: Vec<NodeId> = graph.in_order().into_iter().filter(is_op).collect();
        let number: BTreeMap<NodeId, usize> =
            ops.iter().enumerate().map(|(number, &id)| (id, number)).collect();
        let mut inner = Vec::new();
        for &id in &ops {
            let from = graph.operands(id).into_iter().filter_map(|operand| number.get(&operand));
            inner.extend(from.map(|&from| [from, number[&id]]));
        }
        Body { ops, number, inner }
    }
}

fn edges(plan: &Plan, bodies: &[Body]) -> Vec<Edge> {
    let mut edges = Vec::new();
    for (to, region) in plan.regions.iter().enumerate() {
        for (&operand, &input) in region.operands.iter().zip(region.body.inputs()) {
            let users = region.body.users(input);
            let reader = users.first().and_then(|user| bodies[to].number.get(user));
            let writers: Vec<(usize, usize)> = match operand {
                ValueRef::Region { region, output } => vec![(region, output)],
                ValueRef::Shared(shared) => (0..to)
                    .filter(|&from| plan.reads(to, from))
                    .flat_map(|from| {
                        let parts = plan.regions[from].parts.iter();
                        let of_array = parts.filter(move |(_, part)| part.shared == shared);
                        of_array.map(move |(&output, _)| (from, output))
                    })
                    .collect(),
                ValueRef::Input(_) | ValueRef::Weight(_) => Vec::new(),
            };
            for (from, output) in writers {
                let body = &plan.regions[from].body;
                let value = body.outputs()[output].value;
                let writer = bodies[from].number.get(&value).copied().unwrap_or(0);
                let ty = body.ty(value).to_string();
                let reader = reader.copied().unwrap_or(0);
                edges.push(Edge { from: [from, writer], to: [to, reader], ty });
            }
        }
    }
    edges
}

fn region_edges(edges: &[Edge]) -> Vec<[usize; 2]> {
    edges.iter().map(|edge| [edge.from[0], edge.to[0]]).collect()
}

fn shapes<'b>(plan: &Plan, bodies: &'b [Body]) -> Vec<layout::Shape<'b>> {
    let shape = |(region, body): (&fornax_ir::plan::Region, &'b Body)| layout::Shape {
        ops: body.ops.len(),
        inner: &body.inner,
        prepared: region.phase == Phase::Prepare,
    };
    plan.regions.iter().zip(bodies).map(shape).collect()
}

fn region(
    bundle: &Bundle,
    target: &TargetPlan,
    launches: &BTreeMap<usize, &Launch>,
    (number, entry): (usize, &RegionEntry),
    body: &Body,
    place: &layout::Placed,
) -> RegionData {
    let ops = entry.ops.iter().zip(&place.ops).map(|(op, rect)| OpData {
        op: op.op.clone(),
        ty: op.ty.clone(),
        origins: op.origins.clone(),
        rule: op.rule.clone(),
        rect: *rect,
    });
    let record = &target.regions[number];
    let buffers = |numbers: &[usize]| {
        let text = |&number: &usize| {
            let buffer = &target.buffers[number];
            format!("{}: {}{}", buffer.name, buffer.dtype, sizes(&buffer.shape))
        };
        numbers.iter().map(text).collect()
    };
    let of_region = target.kernels.iter().enumerate().filter(|(_, kernel)| kernel.region == number);
    let kernels = of_region.map(|(index, kernel)| KernelData {
        name: kernel.name.clone(),
        grid: launches.get(&index).map_or_else(String::new, |launch| sizes(&launch.grid)),
        threads: kernel.block.iter().product(),
        shared_bytes: kernel.dynamic_shared_bytes,
        bytes: kernel.bytes.to_string(),
        flops: kernel.flops.to_string(),
        ptx: bundle.parts().ptx.get(&kernel.ptx).cloned().unwrap_or_default(),
    });
    RegionData {
        name: entry.name.clone(),
        phase: entry.phase.clone(),
        class: entry.class.clone(),
        schedule: entry.schedule.clone(),
        precision: record.precision.to_string(),
        predicted_us: entry.predicted_us,
        rect: place.rect,
        ops: ops.collect(),
        inner: body.inner.clone(),
        reads: buffers(&record.reads),
        writes: buffers(&record.writes),
        kernels: kernels.collect(),
    }
}

fn sizes(dims: &[Dim]) -> String {
    let sizes: Vec<String> = dims.iter().map(Dim::to_string).collect();
    format!("[{}]", sizes.join(", "))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_page_has_one_place_for_the_data_and_needs_no_network() {
        let page = include_str!("report/page.html");
        assert_eq!(page.matches(super::MARK).count(), 1);
        for outside in ["http://", "https://", "src=", "@import", "url("] {
            assert!(!page.contains(outside), "the page has {outside}");
        }
    }
}
