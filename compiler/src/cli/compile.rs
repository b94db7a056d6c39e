//! `fornax compile`

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use fornax_bundle::Dim;
use fornax_compiler::{
    CompileOptions, Compiled, Error, Outcome, Stage, compile, parse_dims_and_ranges, parse_shapes,
};
use serde::Serialize;

use super::progress::Progress;
use super::{Verdict, option_error, print_json};

/// Options of `fornax compile`.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// The exported model: ONNX, .pt2 (torch.export.save), TorchScript, or a graph (.gir)
    model: PathBuf,
    /// The bundle to write
    #[arg(short, long, value_name = "FILE.fnx", required_unless_present = "emit")]
    output: Option<PathBuf>,
    /// GPU targets, best first
    #[arg(long, value_delimiter = ',', default_value = "sm_90a,sm_80")]
    target: Vec<String>,
    /// How contractions multiply: ieee (fused multiply-adds), fp32 (as accurate), tf32, bf16, fp16
    /// (rounded factors), or torch (fp32 matrix products, tf32 in the convolutions where cuDNN uses it)
    #[arg(long, default_value = "fp32")]
    precision: String,
    /// Rewrites allowed: bitwise (same bits), real (equal over the real numbers) or approx
    #[arg(long, default_value = "real")]
    rewrites: String,
    /// Compute two nodes of the model together, whatever it costs; an error when that cannot be
    /// (repeatable)
    #[arg(long, value_name = "A+B")]
    pin: Vec<String>,
    /// Store what passes from one node of the model to another (repeatable)
    #[arg(long, value_name = "A->B")]
    forbid: Vec<String>,
    /// Give a symbolic dimension a size, as in batch=8, or a range, ends included, as in batch=1..64 (repeatable)
    #[arg(long, value_name = "NAME=SIZE|LOW..HIGH")]
    dim: Vec<String>,
    /// Give an input a shape, as in x=1,3,224,224, or with an element type, as in `x=i64[1,16]` (repeatable)
    #[arg(long, value_name = "INPUT=SIZES")]
    shape: Vec<String>,
    /// embed the weights, or leave them external: bound by name at load; present embeds those whose data
    /// the model has
    #[arg(long, default_value = "embed")]
    weights: String,
    /// Assembled code beside PTX: never (`require` is not supported yet)
    #[arg(long, default_value = "never")]
    sass: String,
    /// Print a stage's result, which needs no output file: import, canonical, optimized, fused, kernels, ptx
    #[arg(long, value_name = "STAGE")]
    emit: Option<String>,
    /// Check each stage's result with its verifier
    #[arg(long)]
    verify: bool,
    /// Print what was rewritten and fused
    #[arg(long)]
    report: bool,
    /// Print a report as JSON
    #[arg(long)]
    json: bool,
}

/// What a compilation did, for `--json`.
#[derive(Debug, Serialize)]
struct Report {
    model: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    bundle: Option<PathBuf>,
    ops: usize,
    regions: usize,
    kernels: usize,
    rewriting: Rewriting,
    fusion: Fusion,
    scratch_bytes: Dim,
    prepared_bytes: Dim,
    targets: Vec<String>,
    seconds: f64,
}

/// What the algebra phase did.
#[derive(Debug, Serialize)]
struct Rewriting {
    /// The class of rules that were allowed.
    rewrites: String,
    /// How often each rule found something new.
    fired: BTreeMap<&'static str, usize>,
    /// The nodes of the result that each rule made.
    used: BTreeMap<&'static str, usize>,
    e_nodes: usize,
    e_classes: usize,
    phases: Vec<PhaseReport>,
    /// Estimated before and after, in microseconds.
    cost_before_us: f64,
    cost_after_us: f64,
    seconds: f64,
}

/// What fusion did with the first grouping.
#[derive(Debug, Serialize)]
struct Fusion {
    /// Pairs of regions that could have become one.
    considered: usize,
    /// Those that did.
    chosen: usize,
    /// Those that a fact forbids.
    rejected: usize,
    /// Estimated before and after, in microseconds.
    cost_before_us: f64,
    cost_after_us: f64,
    seconds: f64,
}

/// A phase of saturation.
#[derive(Debug, Serialize)]
struct PhaseReport {
    phase: String,
    rounds: usize,
    stop: String,
}

pub(crate) fn run(args: Args) -> Result<Verdict, Error> {
    let options = options(&args)?;
    if let Some(path) = &args.output {
        check_output(path)?;
    }
    let emit = args.emit.as_deref().map(stage).transpose()?;
    let started = std::time::Instant::now();
    let progress = Progress::start("importing");
    let mut observer = |at: Stage, name: &str, text: &dyn Fn() -> String| {
        progress.say(format!("{at:?} {name}"));
        if emit == Some(at) {
            println!("{}", text());
        }
    };
    let compiled = compile(&args.model, &options, &mut observer)?;
    if let Some(path) = &args.output {
        progress.say("writing");
        compiled.parts.write(path)?;
    }
    drop(progress);
    let report = report(&args, &compiled, started.elapsed().as_secs_f64());
    if args.json {
        print_json(&report);
    } else if emit.is_none() {
        if args.report {
            print_rewriting(&report.rewriting);
            print_fusion(&report.fusion);
        }
        println!(
            "{}: {} ops in {} kernels ({} regions), {:.2} s",
            report.bundle.as_deref().unwrap_or(&report.model).display(),
            report.ops,
            report.kernels,
            report.regions,
            report.seconds
        );
    }
    Ok(Verdict::Good)
}

/// Compiling can take a minute: what cannot be written is said before.
fn check_output(path: &Path) -> Result<(), Error> {
    let refused = |reason: String| Err(Error::File { path: path.to_owned(), reason });
    if path.is_dir() {
        return refused("it is a folder; name a file in it".to_owned());
    }
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() => {
            refused(format!("the folder {} does not exist", folder.display()))
        }
        _ => Ok(()),
    }
}

fn rewriting(compiled: &Compiled, rewrites: &str) -> Rewriting {
    let optimized = &compiled.optimized;
    let saturation = &optimized.saturation;
    let mut used = BTreeMap::new();
    for applied in optimized.applied.values() {
        *used.entry(applied.rule).or_insert(0) += 1;
    }
    Rewriting {
        rewrites: rewrites.to_owned(),
        fired: saturation.fired.clone(),
        used,
        e_nodes: saturation.nodes,
        e_classes: saturation.classes,
        phases: saturation
            .phases
            .iter()
            .map(|(phase, rounds, stop)| PhaseReport {
                phase: phase.to_string(),
                rounds: *rounds,
                stop: stop.to_string(),
            })
            .collect(),
        cost_before_us: optimized.cost_before / 1e3,
        cost_after_us: optimized.cost_after / 1e3,
        seconds: compiled.optimize_seconds,
    }
}

fn fusion(compiled: &Compiled) -> Fusion {
    let fused = &compiled.fused;
    let count = |is: fn(&Outcome) -> bool| {
        fused.considered.iter().filter(|considered| is(&considered.outcome)).count()
    };
    Fusion {
        considered: fused.considered.len(),
        chosen: count(|outcome| matches!(outcome, Outcome::Chosen { .. })),
        rejected: count(|outcome| matches!(outcome, Outcome::Rejected(_))),
        cost_before_us: fused.cost_before / 1e3,
        cost_after_us: fused.cost_after / 1e3,
        seconds: compiled.fuse_seconds,
    }
}

fn print_fusion(report: &Fusion) {
    println!(
        "fusion: {} pairs of regions looked at, {} joined, {} cannot be, {:.2} s",
        report.considered, report.chosen, report.rejected, report.seconds
    );
    println!(
        "  estimated {:.1} us before, {:.1} us after",
        report.cost_before_us, report.cost_after_us
    );
}

fn print_rewriting(report: &Rewriting) {
    println!(
        "rewriting ({}): {} e-nodes in {} e-classes, {:.2} s",
        report.rewrites, report.e_nodes, report.e_classes, report.seconds
    );
    for phase in &report.phases {
        println!("  {:<10} {} rounds, {}", phase.phase, phase.rounds, phase.stop);
    }
    println!("  {:<32} {:>7} {:>7}", "rule", "fired", "kept");
    for (rule, fired) in &report.fired {
        let used = report.used.get(rule).copied().unwrap_or(0);
        println!("  {rule:<32} {fired:>7} {used:>7}");
    }
    println!(
        "  estimated {:.1} us before, {:.1} us after",
        report.cost_before_us, report.cost_after_us
    );
}

fn options(args: &Args) -> Result<CompileOptions, Error> {
    let mut options = CompileOptions {
        targets: args.target.clone(),
        precision: args
            .precision
            .parse()
            .map_err(|reason: String| option_error("--precision", reason))?,
        rewrites: args
            .rewrites
            .parse()
            .map_err(|reason: String| option_error("--rewrites", reason))?,
        weights: args
            .weights
            .parse()
            .map_err(|reason: String| option_error("--weights", reason))?,
        ..CompileOptions::default()
    };
    options.verify |= args.verify;
    let pairs = |option: &str, texts: &[String], sign: &str| {
        let pair = |text: &String| match text.split_once(sign) {
            Some((a, b)) if !a.is_empty() && !b.is_empty() => Ok((a.to_owned(), b.to_owned())),
            _ => Err(option_error(option, format!("`{text}` is not two nodes, as A{sign}B"))),
        };
        texts.iter().map(pair).collect::<Result<Vec<_>, _>>()
    };
    options.steering.pins = pairs("--pin", &args.pin, "+")?;
    options.steering.forbids = pairs("--forbid", &args.forbid, "->")?;
    if args.sass != "never" {
        let reason = format!("`{}` is not supported yet; use never", args.sass);
        return Err(option_error("--sass", reason));
    }
    (options.import.dims, options.import.ranges) =
        parse_dims_and_ranges(&args.dim).map_err(|reason| option_error("--dim", reason))?;
    let shapes = parse_shapes(&args.shape).map_err(|reason| option_error("--shape", reason))?;
    for (name, (dtype, sizes)) in shapes {
        if let Some(dtype) = dtype {
            options.import.dtypes.insert(name.clone(), dtype);
        }
        let sizes = sizes.into_iter().map(|size| Dim::constant(size as i64)).collect();
        options.import.shapes.insert(name, sizes);
    }
    Ok(options)
}

fn stage(name: &str) -> Result<Stage, Error> {
    Stage::ALL.into_iter().find(|stage| stage.name() == name).ok_or_else(|| {
        let names: Vec<&str> = Stage::ALL.iter().map(|stage| stage.name()).collect();
        option_error("--emit", format!("`{name}` is no stage; use one of: {}", names.join(", ")))
    })
}

fn report(args: &Args, compiled: &Compiled, seconds: f64) -> Report {
    let plan = &compiled.parts.manifest.targets[0];
    Report {
        model: args.model.clone(),
        bundle: args.output.clone(),
        ops: compiled.ops,
        regions: plan.regions.len(),
        kernels: plan.kernels.len(),
        rewriting: rewriting(compiled, &args.rewrites),
        fusion: fusion(compiled),
        scratch_bytes: plan.scratch_bytes.clone(),
        prepared_bytes: plan.prepared_bytes.clone(),
        targets: args.target.clone(),
        seconds,
    }
}
