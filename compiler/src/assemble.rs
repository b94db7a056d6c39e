//! From plan, kernels and memory plan to the parts of a bundle.

use std::collections::BTreeMap;

use fornax_bundle::BundleParts;
use fornax_bundle::manifest::{
    Arg, Buffer, BufferKind, DimDecl, Kernel, Launch, Manifest, Param, Port, Producer, Region,
    RegionOp, SCHEMA, Signature, Step, TargetPlan, WeightDecl,
};
use fornax_codegen::{LoweredRegion, PtxModule, Target, kernel};
use fornax_ir::op::OpClass;
use fornax_ir::plan::{self, Arena, MemoryPlan, Phase, Plan, ValueRef};
use fornax_ir::{Graph, Tensor, Type};
use fornax_passes::egraph::Optimized;
use fornax_passes::memory::direct_outputs;
use fornax_passes::regions::Regrouped;

use crate::ledger::Ledger;
use crate::{CompileOptions, Error, WeightsMode};

/// What all targets share.
pub(crate) struct Model<'a> {
    /// The imported graph.
    pub graph: &'a Graph,
    /// Its rewritten form.
    pub optimized: &'a Optimized,
    /// What fusion decided.
    pub fused: &'a Regrouped,
    /// The fused form.
    pub plan: &'a Plan,
}

/// What a target gets.
#[derive(Debug)]
pub(crate) struct Tuned {
    pub target: Target,
    /// The plan with the target's schedules.
    pub plan: Plan,
    /// The regions' launch groups.
    pub lowered: Vec<LoweredRegion>,
    /// Where values lie.
    pub memory: MemoryPlan,
    /// The kernels' code, in the order of the regions.
    pub modules: Vec<PtxModule>,
}

/// What one target's part of a bundle is assembled from.
struct Assembly<'a> {
    plan: &'a Plan,
    lowered: &'a [LoweredRegion],
    memory: &'a MemoryPlan,
}

/// Puts the parts together; `tuned`: what each target gets, best first.
pub(crate) fn assemble(
    model: &Model<'_>,
    tuned: &[Tuned],
    options: &CompileOptions,
) -> Result<BundleParts, Error> {
    let weights = Weights::new(model.graph, model.plan, options)?;
    let mut ptx = BTreeMap::new();
    let mut plans = Vec::new();
    for Tuned { target, plan, lowered, memory, modules } in tuned {
        let assembly = Assembly { plan, lowered, memory };
        plans.push(target_plan(&assembly, *target, modules, &mut ptx));
    }
    let manifest = Manifest {
        schema: SCHEMA,
        producer: Producer {
            fornax: env!("CARGO_PKG_VERSION").to_owned(),
            llvm: fornax_codegen::llvm_version(),
        },
        model: model.plan.name.clone(),
        signature: signature(model.plan),
        precision: options.precision.to_string(),
        rewrites: options.rewrites.to_string(),
        weights: weights.declared,
        targets: plans,
    };
    let mut parts = BundleParts::new(manifest, model.graph.to_string());
    parts.ptx = ptx;
    parts.weights = weights.embedded;
    parts.plan = Some(tuned[0].plan.to_string());
    let target = &parts.manifest.targets[0];
    let decided = (model.optimized, model.fused);
    let ledger = Ledger::record(options.rewrites, decided, &tuned[0].plan, target);
    parts.ledger = Some(ledger.to_json());
    Ok(parts)
}

/// The weights that the plan reads and those that only the imported graph (the reference) does.
struct Weights {
    declared: Vec<WeightDecl>,
    embedded: BTreeMap<String, Tensor>,
}

impl Weights {
    fn new(graph: &Graph, plan: &Plan, options: &CompileOptions) -> Result<Weights, Error> {
        let mut types: Vec<(String, Type)> =
            plan.weights.iter().map(|weight| (weight.name.clone(), weight.ty.clone())).collect();
        for id in graph.in_order() {
            let node = graph.node(id);
            if matches!(node.op.class(), OpClass::Source(fornax_ir::op::SourceKind::Weight)) {
                let name = graph.input_name(id);
                if types.iter().all(|(known, _)| known != name) {
                    types.push((name.to_owned(), node.ty.clone()));
                }
            }
        }
        let mut weights = Weights { declared: Vec::new(), embedded: BTreeMap::new() };
        for (name, ty) in types {
            let sizes = ty.shape.as_const().ok_or_else(|| {
                Error::Pass(format!("weight `{name}` has a symbolic shape: {ty}"))
            })?;
            let own = plan.constants.get(&name);
            let imported =
                graph.weights().get(&name).filter(|_| options.weights != WeightsMode::External);
            let data = own.or(imported);
            weights.declared.push(WeightDecl {
                name: name.clone(),
                dtype: ty.dtype,
                shape: sizes.iter().map(|&size| size as u64).collect(),
                embedded: data.is_some(),
            });
            if let Some(data) = data {
                weights.embedded.insert(name, data.clone());
            }
        }
        Ok(weights)
    }
}

fn signature(plan: &Plan) -> Signature {
    let port = |name: &String, ty: &Type| Port {
        name: name.clone(),
        dtype: ty.dtype,
        shape: ty.shape.to_vec(),
    };
    Signature {
        dims: plan
            .dims
            .iter()
            .map(|(name, range)| DimDecl { name: name.clone(), range: *range })
            .collect(),
        inputs: plan.inputs.iter().map(|input| port(&input.name, &input.ty)).collect(),
        outputs: plan
            .outputs
            .iter()
            .map(|output| port(&output.name, plan.ty(output.value)))
            .collect(),
    }
}

/// Buffers of a target plan, with the numbers of the plan's values.
struct Buffers {
    all: Vec<Buffer>,
    of_value: BTreeMap<ValueRef, usize>,
    of_output: Vec<usize>,
    of_workspace: BTreeMap<(usize, usize), usize>,
}

fn buffers(assembly: &Assembly<'_>) -> Buffers {
    let plan = assembly.plan;
    let mut buffers = Buffers {
        all: Vec::new(),
        of_value: BTreeMap::new(),
        of_output: Vec::new(),
        of_workspace: BTreeMap::new(),
    };
    for (index, input) in plan.inputs.iter().enumerate() {
        let number = buffers.add(&input.name, &input.ty, BufferKind::Input { index });
        buffers.of_value.insert(ValueRef::Input(index), number);
    }
    for (index, weight) in plan.weights.iter().enumerate() {
        let number = buffers.add(&weight.name, &weight.ty, BufferKind::Weight { index });
        buffers.of_value.insert(ValueRef::Weight(index), number);
    }
    for (index, output) in plan.outputs.iter().enumerate() {
        let ty = plan.ty(output.value);
        let number = buffers.add(&output.name, ty, BufferKind::Output { index });
        buffers.of_output.push(number);
    }
    for (number, shared) in plan.shared.iter().enumerate() {
        if let Some(offset) = assembly.memory.offsets.get(&ValueRef::Shared(number)) {
            let kind = BufferKind::Scratch { offset: offset.clone() };
            let buffer = buffers.add(&shared.name, &shared.ty, kind);
            buffers.of_value.insert(ValueRef::Shared(number), buffer);
        }
    }
    for (value, output) in direct_outputs(plan) {
        buffers.of_value.insert(value, buffers.of_output[output]);
    }
    for (index, region) in plan.regions.iter().enumerate() {
        buffers.add_region(index, region, &assembly.lowered[index], assembly.memory);
    }
    buffers
}

impl Buffers {
    fn add(&mut self, name: &str, ty: &Type, kind: BufferKind) -> usize {
        let (dtype, shape) = (ty.dtype, ty.shape.to_vec());
        self.all.push(Buffer { name: name.to_owned(), dtype, shape, kind });
        self.all.len() - 1
    }

    fn add_region(
        &mut self,
        index: usize,
        region: &plan::Region,
        lowered: &LoweredRegion,
        memory: &MemoryPlan,
    ) {
        let kind = |offset: &fornax_ir::Dim, phase: Phase| match phase {
            Phase::Prepare => BufferKind::Prepared { offset: offset.clone() },
            Phase::Run => BufferKind::Scratch { offset: offset.clone() },
        };
        for (output, value) in region.body.outputs().iter().enumerate() {
            let key = ValueRef::Region { region: index, output };
            if let Some(part) = region.parts.get(&output) {
                let buffer = self.of_value[&ValueRef::Shared(part.shared)];
                self.of_value.insert(key, buffer);
            } else if let Some(offset) = memory.offsets.get(&key) {
                let name = format!("{}.{output}", region.name);
                let number =
                    self.add(&name, region.body.ty(value.value), kind(offset, region.phase));
                self.of_value.insert(key, number);
            }
        }
        for (number, workspace) in lowered.workspaces.iter().enumerate() {
            let offset = &memory.workspaces[&(index, number)];
            let ty = Type::new(workspace.dtype, vec![workspace.elements.clone()]);
            let name = format!("{}.workspace{number}", region.name);
            let kind = match workspace.arena {
                Arena::Phase => kind(offset, region.phase),
                Arena::Prepared => kind(offset, Phase::Prepare),
                Arena::Counters => BufferKind::Counters { offset: offset.clone() },
            };
            let buffer = self.add(&name, &ty, kind);
            self.of_workspace.insert((index, number), buffer);
        }
    }
}

fn target_plan(
    assembly: &Assembly<'_>,
    target: Target,
    modules: &[PtxModule],
    ptx: &mut BTreeMap<String, String>,
) -> TargetPlan {
    let buffers = buffers(assembly);
    let mut plan = TargetPlan {
        target: target.to_string(),
        kernels: Vec::new(),
        regions: Vec::new(),
        buffers: buffers.all.clone(),
        scratch_bytes: assembly.memory.scratch_bytes.clone(),
        prepared_bytes: assembly.memory.prepared_bytes.clone(),
        counter_bytes: assembly.memory.counter_bytes.clone(),
        prepare: Vec::new(),
        run: Vec::new(),
    };
    let mut modules = modules.iter();
    for (index, (region, lowered)) in assembly.plan.regions.iter().zip(assembly.lowered).enumerate()
    {
        let first = plan.kernels.len();
        for (kernel, launch) in lowered.kernels.iter().zip(&lowered.launches) {
            let module = modules.next().expect("invariant: one module per kernel");
            let entry = format!("ptx/{target}/{}.ptx", module.entry);
            plan.kernels.push(Kernel {
                name: module.entry.clone(),
                ptx: entry.clone(),
                block: [module.threads, 1, 1],
                cluster: [1, 1, 1],
                dynamic_shared_bytes: module.dynamic_shared_bytes,
                params: kernel.params.iter().map(param).collect(),
                region: index,
                bytes: launch.bytes.clone(),
                flops: launch.flops.clone(),
            });
            ptx.insert(entry, module.text.clone());
        }
        for launch in &lowered.launches {
            let steps = match region.phase {
                Phase::Run if !launch.prepared => &mut plan.run,
                Phase::Run | Phase::Prepare => &mut plan.prepare,
            };
            steps.push(Step::Launch(Launch {
                kernel: first + launch.kernel,
                grid: launch.grid.clone(),
                args: launch
                    .args
                    .iter()
                    .map(|arg| argument(arg, index, region, &buffers))
                    .collect(),
            }));
        }
        plan.regions.push(region_record(assembly.plan, index, region, &buffers));
    }
    copy_outputs(assembly.plan, &buffers, &mut plan.run);
    plan
}

/// Outputs that no region writes directly: inputs, weights, prepared values, and second names.
fn copy_outputs(plan: &Plan, buffers: &Buffers, run: &mut Vec<Step>) {
    for (output, &to) in plan.outputs.iter().zip(&buffers.of_output) {
        let from = buffers.of_value[&output.value];
        if from != to {
            run.push(Step::Copy { from, to });
        }
    }
}

fn param(param: &kernel::Param) -> Param {
    match param {
        kernel::Param::Global { name, dtype, written, .. } => {
            Param::Pointer { name: name.clone(), dtype: *dtype, written: *written }
        }
        kernel::Param::Scalar { name, dtype, .. } => {
            Param::Scalar { name: name.clone(), dtype: *dtype }
        }
    }
}

fn argument(
    arg: &fornax_codegen::Arg,
    index: usize,
    region: &plan::Region,
    buffers: &Buffers,
) -> Arg {
    use fornax_codegen::Arg as Lowered;
    let buffer = match arg {
        Lowered::Scalar(value) => return Arg::Scalar { value: value.clone() },
        Lowered::Operand(operand) => buffers.of_value[&region.operands[*operand]],
        Lowered::Output(output) => {
            buffers.of_value[&ValueRef::Region { region: index, output: *output }]
        }
        Lowered::Workspace(number) => buffers.of_workspace[&(index, *number)],
    };
    Arg::Buffer { buffer }
}

fn region_record(plan: &Plan, index: usize, region: &plan::Region, buffers: &Buffers) -> Region {
    let body = &region.body;
    let is_op = |id: &fornax_ir::NodeId| !matches!(body.node(*id).op.class(), OpClass::Source(_));
    Region {
        name: region.name.clone(),
        class: region.class().to_owned(),
        schedule: region.schedule.to_string(),
        precision: region.precision,
        ops: body
            .in_order()
            .into_iter()
            .filter(is_op)
            .map(|id| RegionOp {
                op: body.node(id).op.name().to_owned(),
                origins: plan
                    .sources
                    .names(&body.node(id).loc)
                    .iter()
                    .map(|name| name.to_string())
                    .collect(),
            })
            .collect(),
        reads: region.operands.iter().map(|operand| buffers.of_value[operand]).collect(),
        writes: (0..body.outputs().len())
            .map(|output| buffers.of_value[&ValueRef::Region { region: index, output }])
            .collect(),
    }
}
