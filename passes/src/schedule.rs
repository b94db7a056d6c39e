//! A first choice of schedules: one record per region from its sizes, without search.

mod contraction;
mod dots;
mod halves;
mod pipeline;
mod recurrent;
mod rows;
mod window;

use std::collections::{BTreeMap, BTreeSet};

use fornax_ir::op::{ContractionForm, ContractionKind, OpClass, OpCtx};
use fornax_ir::plan::adjacent::moved_input;
use fornax_ir::plan::{
    Phase, Plan, Reduced, Region, Rejection, Schedule, Structure, ValueRef, structure,
};
use fornax_ir::{
    DType, Dim, DimRange, Graph, NodeId, Precision, PrecisionPolicy, ScalarExpr, Symbol, UnaryFn,
};

pub(crate) use rows::is_worth_chaining;

/// Threads in a block where nothing speaks for another number.
const THREADS: u32 = 256;

/// Bytes one thread moves with one instruction.
const ACCESS_BYTES: u32 = 16;

/// Blocks that fill a large GPU (132 multiprocessors on an H200), for deciding whether tiles suffice.
const BLOCKS_TO_FILL: i64 = 132;

/// Operands beyond which a thread computes one element at a time.
const MANY_OPERANDS: usize = 64;

/// Instructions for an element above which a pointwise kernel computes longer than it moves memory: 55 of
/// `f32` that are read and written once on an H200, some of which are addresses.
const MANY_INSTRUCTIONS: f64 = 35.0;

/// Clock of an H200 under load.
const CYCLES_PER_NANOSECOND: f64 = 1.7;

/// How accurately a region's contraction multiplies under a policy, which is about `f32` sums alone.
pub(crate) fn precision(body: &Graph, policy: PrecisionPolicy) -> Precision {
    let Some((anchor, form)) = contraction_of(body) else { return Precision::Ieee };
    let node = body.node(anchor);
    let types = body.operand_types(anchor);
    let form = form(&OpCtx { attrs: &node.attrs, operands: &types });
    match (form.accumulator, &form.kind) {
        (DType::F32, ContractionKind::Product) => policy.products(),
        (DType::F32, ContractionKind::Convolution { groups, channels }) => {
            policy.convolutions(*groups, channels.as_const())
        }
        _ => Precision::Ieee,
    }
}

/// A schedule for a region's body.
///
/// # Errors
/// When the body cannot be computed as one region.
pub(crate) fn choose(
    body: &Graph,
    precision: Precision,
    dims: &BTreeMap<Symbol, DimRange>,
) -> Result<Schedule, Rejection> {
    let structure = structure(body, dims)?;
    if let Structure::Rows(chain) = &structure {
        return Ok(rows::rows(body, chain, dims));
    }
    let Some(anchor) = structure.anchor() else { return Ok(pointwise(body, dims)) };
    let node = body.node(anchor);
    let types = body.operand_types(anchor);
    let ctx = OpCtx { attrs: &node.attrs, operands: &types };
    if let Structure::Reduced(_) = &structure {
        let machine = Machine::default();
        return Ok(contraction::choose(&Contracted::of(
            body, &structure, precision, dims, machine,
        )));
    }
    Ok(match node.op.class() {
        OpClass::Reduce(form) => reduce(body, anchor, &form(&ctx).axes, dims),
        OpClass::Scan(form) => rows::scan(body, anchor, form(&ctx).axis, dims),
        OpClass::Window(form) => window::window(body, anchor, &form(&ctx), dims),
        OpClass::Recurrent(form) => recurrent::choose(&form(&ctx), dims),
        OpClass::Contraction(form) => {
            let form = form(&ctx);
            if let Some(schedule) = window::few_channels(&form, dims) {
                return Ok(schedule);
            }
            let machine = Machine::default();
            contraction::choose(&Contracted::of(body, &structure, precision, dims, machine))
        }
        _ => unreachable!("invariant: no other class is an anchor"),
    })
}

/// Chooses again for a machine with `wgmma` where a region multiplies on tensor cores.
pub fn use_wgmma(mut plan: Plan) -> Plan {
    for index in 0..plan.regions.len() {
        let region = &plan.regions[index];
        if !matches!(region.schedule, Schedule::Mma { .. }) {
            continue;
        }
        let Some((anchor, _)) = contraction_of(&region.body) else { continue };
        let Ok(structure) = structure(&region.body, &plan.dims) else { continue };
        let [left, right] =
            [0, 1].map(|side: usize| moved_input(&region.body, region.body.operands(anchor)[side]));
        let pipeline = left.map(|_| right.is_some_and(|input| is_packed(&plan, region, input)));
        let prepared = is_prepared(&plan, region, region.body.operands(anchor)[1]);
        let machine = Machine { wgmma: true, pipeline, halves: Some(prepared) };
        let contracted =
            Contracted::of(&region.body, &structure, region.precision, &plan.dims, machine);
        plan.regions[index].schedule = contraction::choose(&contracted);
    }
    plan
}

/// What a contraction can be multiplied by, beside `mma`.
#[derive(Debug, Clone, Copy, Default)]
struct Machine {
    /// `wgmma`.
    wgmma: bool,
    /// Pipelines of it; with whether the right operand is packed for them.
    pipeline: Option<bool>,
    /// Products of halves; with whether the right operand can be split when the bundle is loaded.
    halves: Option<bool>,
}

/// Whether a node of a region's body has a known size and depends on weights alone.
fn is_prepared(plan: &Plan, region: &Region, node: NodeId) -> bool {
    let body = &region.body;
    let is_source = |id: NodeId| matches!(body.node(id).op.class(), OpClass::Source(_));
    let of_input = |id: NodeId| {
        let operand = body.inputs().iter().position(|&other| other == id);
        match operand.map(|operand| region.operands[operand]) {
            Some(ValueRef::Weight(_)) => true,
            Some(ValueRef::Region { region, .. }) => plan.regions[region].phase == Phase::Prepare,
            Some(ValueRef::Input(_) | ValueRef::Shared(_)) => false,
            None => true,
        }
    };
    let mut waiting = vec![node];
    let mut seen = BTreeSet::new();
    while let Some(id) = waiting.pop() {
        if !seen.insert(id) {
            continue;
        }
        if body.ty(id).shape.elements().as_const().is_none() || is_source(id) && !of_input(id) {
            return false;
        }
        waiting.extend(body.operands(id));
    }
    true
}

impl Machine {
    /// All that any target has.
    fn best() -> Machine {
        Machine { wgmma: true, pipeline: Some(true), halves: Some(true) }
    }
}

/// A contraction that a schedule is chosen for.
struct Contracted<'c> {
    form: ContractionForm,
    /// Of its operands.
    dtypes: [DType; 2],
    precision: Precision,
    dims: &'c BTreeMap<Symbol, DimRange>,
    /// Instructions for each result behind it.
    epilogue: f64,
    machine: Machine,
    /// The reductions of its result.
    reduced: Option<&'c Reduced>,
}

impl<'c> Contracted<'c> {
    /// The contraction of a body.
    ///
    /// # Panics
    /// When its structure is of another kind.
    fn of(
        body: &Graph,
        structure: &'c Structure,
        precision: Precision,
        dims: &'c BTreeMap<Symbol, DimRange>,
        machine: Machine,
    ) -> Contracted<'c> {
        let anchor = structure.anchor().expect("invariant: a contraction is an anchor");
        let OpClass::Contraction(form) = body.node(anchor).op.class() else {
            unreachable!("invariant: the region's anchor is a contraction")
        };
        let types = body.operand_types(anchor);
        let form = form(&OpCtx { attrs: &body.node(anchor).attrs, operands: &types });
        let reduced = match structure {
            Structure::Reduced(reduced) => Some(reduced),
            _ => None,
        };
        let (dtypes, epilogue) = ([types[0].dtype, types[1].dtype], functions(body));
        Contracted { form, dtypes, precision, dims, epilogue, machine, reduced }
    }

    /// Whether an axis is a row, or column, that is not folded with the others: tiles do not run along it.
    fn is_apart(&self, axis: usize) -> bool {
        self.reduced.is_some_and(|of| self.form.axes[axis].1 == of.role && !of.axes.contains(&axis))
    }
}

/// Why reductions of a contraction's result are better computed by a kernel of their own, if they are.
pub(crate) fn is_worth_reducing(
    body: &Graph,
    structure: &Structure,
    precision: Precision,
    dims: &BTreeMap<Symbol, DimRange>,
) -> Result<(), String> {
    let contracted = Contracted::of(body, structure, precision, dims, Machine::best());
    if window::few_channels(&contracted.form, dims).is_some() || contraction::is_skinny(&contracted)
    {
        return Err("a contraction of so few rows or columns is computed without tiles".to_owned());
    }
    if contraction::is_interleaved(&contracted) {
        // KernelBench L2/49: 0.98 ms instead of 0.72 ms on an H200.
        return Err("tiles of one phase of a strided transposed convolution read its operand once for each phase \
                    and write every other element"
            .to_owned());
    }
    Ok(())
}

/// Nanoseconds that a contraction takes longer because a side of its tiles holds what is folded behind it.
pub(crate) fn slowdown(
    body: &Graph,
    structure: &Structure,
    precision: Precision,
    dims: &BTreeMap<Symbol, DimRange>,
) -> f64 {
    let mut contracted = Contracted::of(body, structure, precision, dims, Machine::best());
    let held = contraction::cycles(&contracted);
    let joined = match contracted.reduced.take() {
        Some(reduced) if reduced.in_parts => {
            contraction::joining_cycles(typical(&reduced.length(&contracted.form), dims))
        }
        _ => 0.0,
    };
    let longer = (held - contraction::cycles(&contracted)).max(0.0) + joined;
    longer / CYCLES_PER_NANOSECOND
}

/// Whether the operand of a region that an input of its body stands for is rounded to whole factors.
fn is_packed(plan: &Plan, region: &Region, input: NodeId) -> bool {
    let operand = region.body.inputs().iter().position(|&other| other == input);
    match operand.map(|operand| region.operands[operand]) {
        Some(ValueRef::Region { region: from, .. }) => {
            let from = &plan.regions[from];
            from.precision == region.precision && matches!(from.schedule, Schedule::Pack { .. })
        }
        _ => false,
    }
}

/// Instructions of a body's pointwise nodes, each evaluated once.
fn functions(body: &Graph) -> f64 {
    body.nodes().map(|id| functions_of(body, id)).sum()
}

/// Instructions of a pointwise node for each element; none of others.
pub(crate) fn functions_of(body: &Graph, id: NodeId) -> f64 {
    fn count(expr: &ScalarExpr) -> f64 {
        match expr {
            ScalarExpr::Arg(_) | ScalarExpr::Const(_) => 0.0,
            ScalarExpr::Cast(_, x) => count(x),
            ScalarExpr::Unary(function, x) => instructions(*function) + count(x),
            ScalarExpr::Binary(_, x, y) => 2.0 + count(x) + count(y),
            ScalarExpr::Select(c, x, y) => 1.0 + count(c) + count(x) + count(y),
        }
    }
    match body.node(id).op.class() {
        OpClass::Pointwise(form) => {
            let operands = body.operand_types(id);
            count(&form(&OpCtx { attrs: &body.node(id).attrs, operands: &operands }))
        }
        _ => 0.0,
    }
}

/// Instructions of a function, about (see `codegen/src/math`).
fn instructions(function: UnaryFn) -> f64 {
    use UnaryFn::{
        Abs, Ceil, Exp, Floor, IsInf, IsNan, Neg, Not, Reciprocal, RoundEven, Rsqrt, Sigmoid, Sign,
        Sqrt, Tanh, Trunc,
    };
    match function {
        Neg | Abs | Sign | Floor | Ceil | RoundEven | Trunc | Not | IsNan | IsInf => 2.0,
        Exp | Sqrt | Rsqrt | Reciprocal => 15.0,
        Sigmoid | Tanh => 25.0,
        _ => 40.0,
    }
}

/// How a contraction's form follows from its node.
type FormOf = fn(&OpCtx<'_>) -> ContractionForm;

/// The first contraction of a body.
fn contraction_of(body: &Graph) -> Option<(NodeId, FormOf)> {
    body.in_order().into_iter().find_map(|id| match body.node(id).op.class() {
        OpClass::Contraction(form) => Some((id, *form)),
        _ => None,
    })
}

/// The size to tune for: the upper end of a symbolic size's range, but no more than a common one.
pub(crate) fn typical(size: &Dim, dims: &BTreeMap<Symbol, DimRange>) -> i64 {
    match size.as_const() {
        Some(size) => size,
        None => {
            let common: BTreeMap<Symbol, DimRange> = dims
                .iter()
                .map(|(name, range)| {
                    (name.clone(), DimRange { max: range.max.min(1024), ..*range })
                })
                .collect();
            size.bounds(&common).1
        }
    }
}

fn pointwise(body: &Graph, dims: &BTreeMap<Symbol, DimRange>) -> Schedule {
    let output = body.outputs()[0].value;
    let widest = body.nodes().map(|id| body.ty(id).dtype.size() as u32).max().unwrap_or(4);
    let vector = (ACCESS_BYTES / widest.max(2)).clamp(1, 8);
    let elements = typical(&body.ty(output).shape.elements(), dims);
    // Small tensors are spread over more blocks instead.
    let enough = |per_thread: u32| elements >= i64::from(THREADS * per_thread) * BLOCKS_TO_FILL;
    let vector = if enough(vector) { vector } else { vector.min(2) };
    // Each element of a long concatenation chooses among all operands: code and registers grow with both.
    let operands = body.inputs().len();
    let vector = if operands > MANY_OPERANDS { 1 } else { vector };
    // A block of 256 threads with one access of each operand each, or one of 128 with two, reach the
    // bandwidth of a copy on an H200; 256 with two cost 3 % of it. Where instructions take longer than
    // memory, two are more of them that are independent.
    let is_long =
        functions(body) >= MANY_INSTRUCTIONS && enough(4 * vector) && operands <= MANY_OPERANDS / 4;
    let (threads, unroll) = if is_long { (THREADS / 2, 2) } else { (THREADS, 1) };
    Schedule::Pointwise { threads, vector, unroll }
}

fn reduce(
    body: &Graph,
    anchor: NodeId,
    axes: &[usize],
    dims: &BTreeMap<Symbol, DimRange>,
) -> Schedule {
    let operand = body.ty(body.operands(anchor)[0]);
    let folded: Dim = axes.iter().map(|&axis| &operand.shape[axis]).product();
    let folded = typical(&folded, dims);
    let outputs = typical(&body.ty(anchor).shape.elements(), dims);
    let last_moving = (0..operand.rank()).rev().find(|&axis| !operand.shape[axis].is(1));
    let contiguous = last_moving.is_none_or(|axis| axes.contains(&axis));
    let vector = (ACCESS_BYTES / operand.dtype.size() as u32).clamp(1, 4);
    if folded >= 65_536 && outputs < BLOCKS_TO_FILL {
        let parts = (folded / 16_384).clamp(1, 4 * BLOCKS_TO_FILL / outputs.max(1)).max(1);
        return Schedule::FoldSplit { threads: THREADS, vector, parts: parts as u32 };
    }
    if folded <= 8 || (!contiguous && folded <= 64) {
        // Several adjacent results a thread: also where no wide access is aligned, the lines that a warp
        // asks for are then mostly whole ones.
        let threads = 256;
        let enough = outputs >= 2 * i64::from(threads * vector) * BLOCKS_TO_FILL;
        let vector = if enough && !contiguous { vector } else { 1 };
        return Schedule::FoldThread { threads, vector };
    }
    if !contiguous {
        // Adjacent threads read adjacent elements of neighbouring results: whole lines, and where those do
        // not begin at multiples of a line, few of them twice.
        let rows = if outputs >= 4 * 128 * BLOCKS_TO_FILL { 128 } else { 32 };
        let mut threads = 4 * rows;
        while threads < 1024
            && i64::from(threads) < 2 * folded * i64::from(rows)
            && outputs / i64::from(rows) * i64::from(threads) < 1024 * BLOCKS_TO_FILL
        {
            threads *= 2;
        }
        return Schedule::FoldBlock { threads, rows, vector: 1 };
    }
    // About four loads per thread, between a warp and a block per row.
    let wanted = (folded as u64).div_ceil(4 * u64::from(vector)).next_power_of_two();
    let per_row = (wanted.clamp(32, 512)) as u32;
    let threads = per_row.max(128);
    Schedule::FoldBlock { threads, rows: threads / per_row, vector }
}
