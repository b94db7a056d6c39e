//! `fornax validate`

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args as ClapArgs;
use fornax_bundle::Tensor;
use fornax_compiler::validate::{
    Bisection, Case, Distribution, Options, against_interpreter, against_recorded, bisect,
    seeded_inputs,
};
use fornax_compiler::{Error, Loaded, parse_dims, tensors};
use fornax_runtime::device::{Device, DeviceKind};
use fornax_runtime::{Memory, open_device};
use serde::Serialize;

use super::progress::Progress;
use super::{Verdict, input_ranges, option_error, print_json, print_json_line};

/// Options of `fornax validate`.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// The bundle, or several: all on one opening of the device, each reported by itself
    #[arg(required = true)]
    bundle: Vec<PathBuf>,
    /// The device: cuda, cuda:INDEX or emulator
    #[arg(long, default_value = "cuda")]
    device: String,
    /// The target plan to run, such as sm_80; the best that the device takes unless said
    #[arg(long)]
    target: Option<String>,
    /// How inputs are filled: normal, uniform, special
    #[arg(long, value_delimiter = ',', default_value = "normal,uniform")]
    distribution: Vec<String>,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Seeds per distribution
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Values an input takes, ends included, as in x=0..255 (repeatable)
    #[arg(long, value_name = "INPUT=LOW..HIGH")]
    input_range: Vec<String>,
    /// The value of a symbolic dimension, as in batch=8 (repeatable)
    #[arg(long, value_name = "NAME=SIZE")]
    dim: Vec<String>,
    /// Recorded inputs and outputs by name (.npz or .safetensors), instead of seeded inputs and the
    /// interpreter. A folder: NAME.npz of a bundle NAME.fnx where that is there
    #[arg(long, value_name = "FILE")]
    recorded: Vec<PathBuf>,
    /// Values of the weights that the bundle does not hold (.safetensors)
    #[arg(long)]
    weights: Option<PathBuf>,
    /// Name the first region that is wrong
    #[arg(long)]
    bisect: bool,
    /// Do not write the numerics certificate into the bundle
    #[arg(long)]
    no_certificate: bool,
    /// Print the report as JSON; of several bundles a line for each
    #[arg(long)]
    json: bool,
}

/// The line of one of several bundles.
#[derive(Debug, Serialize)]
struct Line<'a> {
    bundle: &'a Path,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    report: Option<&'a Report>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// What was found; the numerics certificate that the bundle keeps.
#[derive(Debug, Serialize)]
struct Report {
    passed: bool,
    content: String,
    device: String,
    target: String,
    cases: Vec<Case>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_wrong_region: Option<Bisection>,
}

pub(crate) fn run(args: Args) -> Result<Verdict, Error> {
    let options = options(&args)?;
    let progress = Progress::start("loading");
    let device = open_device(&args.device)?;
    if let [bundle] = args.bundle.as_slice() {
        let report = validate(&args, &options, bundle, &device, &progress)?;
        drop(progress);
        match args.json {
            true => print_json(&report),
            false => print_report(&report, args.bisect),
        }
        return Ok(if report.passed { Verdict::Good } else { Verdict::Bad });
    }
    let mut verdict = Verdict::Good;
    let mut failure = None;
    for bundle in &args.bundle {
        let found = validate(&args, &options, bundle, &device, &progress);
        if found.as_ref().is_ok_and(|report| !report.passed) {
            verdict = Verdict::Bad;
        }
        progress.suspend(|| match (args.json, &found) {
            (false, Ok(report)) => {
                println!("{}", bundle.display());
                print_report(report, args.bisect);
            }
            (false, Err(error)) => println!("{}\nNOT validated: {error}", bundle.display()),
            (true, _) => {
                let error = found.as_ref().err().map(ToString::to_string);
                print_json_line(&Line { bundle, report: found.as_ref().ok(), error });
            }
        });
        // The others are validated all the same.
        failure = failure.or(found.err());
    }
    failure.map_or(Ok(verdict), Err)
}

/// Validates a bundle, and notes in it what was found.
fn validate(
    args: &Args,
    options: &Options,
    bundle: &Path,
    device: &Arc<dyn Device>,
    progress: &Progress,
) -> Result<Report, Error> {
    // On the emulator each buffer gets its own allocation, so that it sees every access that strays.
    let memory = match device.kind() {
        DeviceKind::Emulator => Memory::Separate,
        DeviceKind::Cuda => Memory::Planned,
    };
    let (target, weights) = (args.target.as_deref(), args.weights.as_deref());
    let loaded = Loaded::open(bundle, Arc::clone(device), target, weights, memory)?;
    let mut report = Report {
        passed: true,
        content: loaded.bundle.content_hash().to_owned(),
        device: loaded.session.device().name().to_owned(),
        target: loaded.session.plan().target.clone(),
        cases: Vec::new(),
        first_wrong_region: None,
    };
    for (name, source) in cases(args, bundle, &loaded, options)? {
        progress.say(format!("validating: {name}"));
        let case = match &source {
            Source::Seeded(inputs) => against_interpreter(&loaded, bundle, &name, inputs)?,
            Source::Recorded(path, tensors) => against_recorded(&loaded, bundle, path, tensors)?,
        };
        if !case.passed() && args.bisect && report.first_wrong_region.is_none() {
            progress.say("looking for the first wrong region");
            let inputs = source.inputs(&loaded);
            report.first_wrong_region = bisect(&loaded, &loaded.plan(bundle)?, &inputs)?;
        }
        report.passed &= case.passed();
        report.cases.push(case);
    }
    if !args.no_certificate {
        write_certificate(bundle, loaded, &report)?;
    }
    Ok(report)
}

enum Source {
    Seeded(Vec<Tensor>),
    Recorded(PathBuf, BTreeMap<String, Tensor>),
}

impl Source {
    fn inputs(&self, loaded: &Loaded) -> Vec<Tensor> {
        match self {
            Source::Seeded(inputs) => inputs.clone(),
            Source::Recorded(_, tensors) => {
                let ports = &loaded.bundle.manifest().signature.inputs;
                ports.iter().map(|port| tensors[&port.name].clone()).collect()
            }
        }
    }
}

fn cases(
    args: &Args,
    bundle: &Path,
    loaded: &Loaded,
    options: &Options,
) -> Result<Vec<(String, Source)>, Error> {
    let recorded: Vec<PathBuf> =
        args.recorded.iter().filter_map(|path| recording(path, bundle)).collect();
    if recorded.is_empty() {
        let sets = seeded_inputs(loaded, options)?;
        return Ok(sets.into_iter().map(|(name, set)| (name, Source::Seeded(set))).collect());
    }
    recorded
        .iter()
        .map(|path| {
            let tensors = tensors::read_named(path)?;
            Ok((path.display().to_string(), Source::Recorded(path.clone(), tensors)))
        })
        .collect()
}

/// The recording that a path stands for; of a folder the one that is named as the bundle, if it is there.
fn recording(path: &Path, bundle: &Path) -> Option<PathBuf> {
    if !path.is_dir() {
        return Some(path.to_owned());
    }
    let beside = path.join(bundle.with_extension("npz").file_name()?);
    beside.is_file().then_some(beside)
}

fn options(args: &Args) -> Result<Options, Error> {
    let distributions = args
        .distribution
        .iter()
        .map(|name| {
            name.parse::<Distribution>()
                .map_err(|reason| option_error(&format!("--distribution {name}"), reason))
        })
        .collect::<Result<_, _>>()?;
    let ranges = input_ranges(&args.input_range)?;
    if args.seeds == 0 {
        return Err(option_error("--seeds", "give at least 1"));
    }
    let dims = parse_dims(&args.dim).map_err(|reason| option_error("--dim", reason))?;
    Ok(Options { seed: args.seed, seeds: args.seeds, distributions, ranges, dims })
}

/// The certificate lies outside the content hash, so the bundle stays the same bundle.
fn write_certificate(path: &Path, loaded: Loaded, report: &Report) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(report).expect("invariant: reports are plain data");
    let Loaded { bundle, session, .. } = loaded;
    drop(session);
    let mut parts = bundle.into_parts();
    parts.certificate = Some(text);
    Ok(parts.write(path)?)
}

fn print_report(report: &Report, bisected: bool) {
    println!("device {}, target {}", report.device, report.target);
    for case in &report.cases {
        println!("inputs {}", case.inputs);
        for output in &case.outputs {
            println!(
                "  {} {}: error {:.2e} (bound {:.2e}), worst {:.2} ulp at {:?}: {:e}, expected {:e}",
                if output.passed { "ok   " } else { "WRONG" },
                output.name,
                output.relative_error,
                output.relative_bound,
                output.worst_ulp,
                output.worst_index,
                output.worst_actual,
                output.worst_expected,
            );
            if let Some(all) = output.sampled_of {
                println!("        {} of {all} elements were compared", output.elements);
            }
            if !output.passed {
                println!(
                    "        {} of {} elements outside the tolerance, {} of them NaN or infinite on \
                     one side only",
                    output.failed, output.elements, output.nonfinite_mismatches
                );
            }
        }
    }
    match &report.first_wrong_region {
        Some(found) => {
            println!("first wrong region: {}, computing {}", found.region, found.nodes.join(", "));
        }
        None if bisected && !report.passed => {
            println!(
                "every region is right on its own inputs: the fault is in fusion or canonicalisation"
            );
        }
        None => {}
    }
    println!("{}", if report.passed { "valid" } else { "NOT valid" });
}
