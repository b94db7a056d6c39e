//! The pipeline, from a model file to the parts of a bundle.

use std::collections::BTreeMap;
use std::path::Path;

use fornax_bundle::{BundleParts, PrecisionPolicy};
use fornax_codegen::kernel::{Kernel, verify as verify_kernel};
use fornax_codegen::{LoweredRegion, PtxModule, Target, emit_ptx, lower};
use fornax_ir::plan::{Arena, MemoryPlan, Plan};
use fornax_ir::verify::{verify, verify_plan};
use fornax_ir::{Diagnostic, Graph, SourceMap, Type};
use fornax_passes::egraph::{Optimized, optimize};
use fornax_passes::regions::Regrouped;
use fornax_passes::{
    PassError, canonicalize, fuse, fuse_with, memory, pack, settle_weights, use_wgmma,
};
use rayon::prelude::*;

use crate::assemble::{Model, Tuned, assemble};
use crate::{CompileOptions, Error, WeightsMode};

/// What a stage of the pipeline produced, in text form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// The imported graph.
    Import,
    /// The graph in primitive ops.
    Canonical,
    /// The cheapest equal graph.
    Optimized,
    /// The plan of fused regions.
    Fused,
    /// Kernel IR.
    Kernels,
    /// PTX of the first target.
    Ptx,
}

impl Stage {
    /// All stages in order.
    pub const ALL: [Stage; 6] = [
        Stage::Import,
        Stage::Canonical,
        Stage::Optimized,
        Stage::Fused,
        Stage::Kernels,
        Stage::Ptx,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Import => "import",
            Stage::Canonical => "canonical",
            Stage::Optimized => "optimized",
            Stage::Fused => "fused",
            Stage::Kernels => "kernels",
            Stage::Ptx => "ptx",
        }
    }
}

/// Sees each stage's text as `(stage, name, text)`; `name` tells kernels apart.
pub type Observer<'a> = dyn FnMut(Stage, &str, &dyn Fn() -> String) + 'a;

/// A compiled model.
#[derive(Debug)]
pub struct Compiled {
    /// What goes into the bundle.
    pub parts: BundleParts,
    /// The plan it was made from.
    pub plan: Plan,
    /// What the algebra phase found.
    pub optimized: Optimized,
    /// How long it took.
    pub optimize_seconds: f64,
    /// What fusion decided.
    pub fused: Regrouped,
    /// How long it took.
    pub fuse_seconds: f64,
    /// Nodes after canonicalisation, without sources: the kernels an unfused run would take.
    pub ops: usize,
}

/// Compiles a model file: ONNX, `.pt2`, TorchScript, or a graph in text form (`.gir`).
///
/// # Errors
/// When the model cannot be read, imported or compiled; see [`Error`].
pub fn compile(
    model: &Path,
    options: &CompileOptions,
    observer: &mut Observer<'_>,
) -> Result<Compiled, Error> {
    let graph = match model.extension() {
        Some(extension) if extension == "gir" => {
            let text = std::fs::read_to_string(model).map_err(|error| Error::File {
                path: model.to_owned(),
                reason: error.to_string(),
            })?;
            parse(model, &text)?
        }
        _ => {
            let mut import = options.import.clone();
            import.allow_missing_weights |= options.weights != WeightsMode::Embed;
            fornax_models::import(model, &import)?.graph
        }
    };
    compile_graph(graph, options, observer)
}

/// Compiles an imported graph.
///
/// # Errors
/// As [`compile`].
pub fn compile_graph(
    graph: Graph,
    options: &CompileOptions,
    observer: &mut Observer<'_>,
) -> Result<Compiled, Error> {
    check(options, "import", &graph.sources, || verify(&graph))?;
    observer(Stage::Import, &graph.name, &|| graph.to_string());
    let targets = targets(options)?;

    let mut known = graph.clone();
    if options.weights != WeightsMode::External {
        settle_weights(&mut known);
    }
    let canonical = canonicalize(known).map_err(|error| pass_error(error, &graph))?;
    check(options, "canonicalisation", &graph.sources, || verify(&canonical))?;
    observer(Stage::Canonical, &graph.name, &|| canonical.to_string());

    let started = std::time::Instant::now();
    let optimized =
        optimize(&canonical, options.rewrites).map_err(|error| pass_error(error, &graph))?;
    let optimize_seconds = started.elapsed().as_secs_f64();
    check(options, "algebra", &graph.sources, || verify(&optimized.graph))?;
    observer(Stage::Optimized, &graph.name, &|| optimized.graph.to_string());

    let started = std::time::Instant::now();
    let fused = fuse_with(&optimized.graph, options.precision, &options.steering)
        .map_err(|error| steering_error(error, &graph))?;
    let fuse_seconds = started.elapsed().as_secs_f64();
    let plan = pack(fused.plan.clone()).map_err(|error| pass_error(error, &graph))?;
    check(options, "fusion", &graph.sources, || verify_plan(&plan))?;
    observer(Stage::Fused, &graph.name, &|| plan.to_string());

    let tuned = targets.par_iter().map(|&target| Tuned::new(&plan, target, options));
    let tuned = tuned.collect::<Result<Vec<_>, _>>()?;
    for (number, kernel) in tuned[0].kernels().enumerate() {
        observer(Stage::Kernels, &kernel.name, &|| kernel.to_string());
        observer(Stage::Ptx, &kernel.name, &|| tuned[0].modules[number].text.clone());
    }
    let ops = count_ops(&canonical);
    let model = Model { graph: &graph, optimized: &optimized, fused: &fused, plan: &plan };
    let parts = assemble(&model, &tuned, options)?;
    Ok(Compiled { parts, plan, optimized, optimize_seconds, fused, fuse_seconds, ops })
}

fn targets(options: &CompileOptions) -> Result<Vec<Target>, Error> {
    let refused = |reason: String| Error::Option { option: "--target".to_owned(), reason };
    if options.targets.is_empty() {
        return Err(refused("give at least one target, such as sm_90a".to_owned()));
    }
    let parse = |name: &String| name.parse::<Target>().map_err(|error| refused(error.to_string()));
    let targets = options.targets.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    match targets.iter().enumerate().find(|(at, target)| targets[..*at].contains(target)) {
        Some((_, twice)) => Err(refused(format!("`{twice}` is given twice"))),
        None => Ok(targets),
    }
}

fn lower_regions(plan: &Plan) -> Result<Vec<LoweredRegion>, Error> {
    plan.regions
        .par_iter()
        .map(|region| {
            lower(region, &plan.dims).map_err(|error| {
                Error::Codegen(format!("{error}{}", sources_of(&region.body, &plan.sources)))
            })
        })
        .collect()
}

impl Tuned {
    /// The plan with the schedules that a target is best at, lowered and emitted.
    fn new(plan: &Plan, target: Target, options: &CompileOptions) -> Result<Tuned, Error> {
        let plan = if target.has_wgmma() { use_wgmma(plan.clone()) } else { plan.clone() };
        let lowered = lower_regions(&plan)?;
        if options.verify {
            verify_kernels(&lowered)?;
        }
        let memory = plan_memory(&plan, &lowered);
        let mut tuned = Tuned { target, plan, lowered, memory, modules: Vec::new() };
        tuned.modules = emit(&tuned.kernels().collect::<Vec<_>>(), target)?;
        Ok(tuned)
    }

    fn kernels(&self) -> impl Iterator<Item = &Kernel> {
        self.lowered.iter().flat_map(|region| &region.kernels)
    }
}

/// A module for each kernel. Kernels of the same code, as repeated blocks of a model have, share one, which
/// has the first one's name.
fn emit(kernels: &[&Kernel], target: Target) -> Result<Vec<PtxModule>, Error> {
    let mut distinct: Vec<&Kernel> = Vec::new();
    let mut by_hash: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    let mut module_of = Vec::new();
    for &kernel in kernels {
        let candidates = by_hash.entry(kernel.code_hash()).or_default();
        let same = candidates.iter().find(|&&at| distinct[at].same_code(kernel)).copied();
        module_of.push(same.unwrap_or(distinct.len()));
        if same.is_none() {
            candidates.push(distinct.len());
            distinct.push(kernel);
        }
    }
    let emitted: Vec<PtxModule> = distinct
        .par_iter()
        .map(|kernel| emit_ptx(kernel, target).map_err(|error| Error::Codegen(error.to_string())))
        .collect::<Result<_, _>>()?;
    Ok(module_of.into_iter().map(|at| emitted[at].clone()).collect())
}

fn plan_memory(plan: &Plan, lowered: &[LoweredRegion]) -> MemoryPlan {
    let workspaces: Vec<Vec<(Type, Arena)>> = lowered
        .iter()
        .map(|region| {
            let ty = |workspace: &fornax_codegen::Workspace| {
                let ty = Type::new(workspace.dtype, vec![workspace.elements.clone()]);
                (ty, workspace.arena)
            };
            region.workspaces.iter().map(ty).collect()
        })
        .collect();
    memory::plan(plan, &workspaces)
}

fn check(
    options: &CompileOptions,
    stage: &'static str,
    sources: &SourceMap,
    faults: impl FnOnce() -> Vec<Diagnostic>,
) -> Result<(), Error> {
    if !options.verify {
        return Ok(());
    }
    let faults: Vec<String> = faults().iter().map(|fault| fault.render(sources)).collect();
    if faults.is_empty() { Ok(()) } else { Err(Error::Verify { stage, faults: faults.join("\n") }) }
}

fn verify_kernels(lowered: &[LoweredRegion]) -> Result<(), Error> {
    let faults = |kernel: &Kernel| {
        let name = kernel.name.clone();
        verify_kernel(kernel).into_iter().map(move |fault| format!("kernel `{name}`: {fault}"))
    };
    let faults: Vec<String> =
        lowered.iter().flat_map(|region| &region.kernels).flat_map(faults).collect();
    match faults.as_slice() {
        [] => Ok(()),
        _ => Err(Error::Verify { stage: "lowering", faults: faults.join("\n") }),
    }
}

/// What users asked of fusion cannot be, or fusion failed.
fn steering_error(error: PassError, graph: &Graph) -> Error {
    let option = match &error {
        PassError::Pin { .. } => "--pin",
        PassError::Steering { .. } => "--pin or --forbid",
        _ => return pass_error(error, graph),
    };
    Error::Option { option: option.to_owned(), reason: error.to_string() }
}

fn pass_error(error: PassError, graph: &Graph) -> Error {
    Error::Pass(match error {
        PassError::Op(diagnostic) => diagnostic.render(&graph.sources),
        other => other.to_string(),
    })
}

/// The nodes of the imported model that a region computes, for an error's second line.
fn sources_of(body: &Graph, sources: &SourceMap) -> String {
    let mut all = fornax_ir::LocSet::none();
    for id in body.nodes() {
        all.union(&body.node(id).loc);
    }
    match sources.names(&all).as_slice() {
        [] => String::new(),
        names => format!("\n  note: it computes {}", names.join(", ")),
    }
}

fn count_ops(graph: &Graph) -> usize {
    let is_op = |&id: &fornax_ir::NodeId| {
        !matches!(graph.node(id).op.class(), fornax_ir::op::OpClass::Source(_))
    };
    graph.nodes().filter(is_op).count()
}

/// Runs one pass on a graph in text form and returns the result's text.
///
/// # Errors
/// When the text is no graph, there is no such pass, or it fails.
pub fn run_pass(path: &Path, text: &str, pass: &str) -> Result<String, Error> {
    let graph = parse(path, text)?;
    let faults: Vec<String> =
        verify(&graph).iter().map(|fault| fault.render(&graph.sources)).collect();
    if !faults.is_empty() {
        return Err(Error::Pass(faults.join("\n")));
    }
    let canonical = || canonicalize(graph.clone()).map_err(|error| pass_error(error, &graph));
    let plan = || {
        let canonical = canonical()?;
        fuse(&canonical, PrecisionPolicy::default())
            .and_then(pack)
            .map_err(|error| pass_error(error, &graph))
    };
    match pass {
        "verify" => Ok(String::new()),
        "canonicalize" => Ok(canonical()?.to_string()),
        "optimize" => {
            let optimized = optimize(&canonical()?, CompileOptions::default().rewrites);
            let optimized = optimized.map_err(|error| pass_error(error, &graph))?;
            Ok(optimized.graph.to_string())
        }
        "fuse" => Ok(plan()?.to_string()),
        "kernels" => {
            let lowered = lower_regions(&plan()?)?;
            let kernels = lowered.iter().flat_map(|region| &region.kernels);
            Ok(kernels.map(ToString::to_string).collect::<Vec<_>>().join("\n"))
        }
        other => Err(Error::Option {
            option: format!("--pass {other}"),
            reason: "use one of: verify, canonicalize, optimize, fuse, kernels".to_owned(),
        }),
    }
}

fn parse(path: &Path, text: &str) -> Result<Graph, Error> {
    fornax_ir::text::parse_graph(text).map_err(|errors| Error::Text {
        path: path.to_owned(),
        entry: "graph".to_owned(),
        reason: errors.to_string(),
    })
}
