//! `fornax validate`

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use fornax_bundle::Tensor;
use fornax_compiler::validate::{
    Bisection, Case, Distribution, Options, against_interpreter, against_recorded, bisect,
    seeded_inputs,
};
use fornax_compiler::{Error, Loaded, parse_dims, tensors};
use fornax_runtime::{Memory, open_device};
use serde::Serialize;

use super::progress::Progress;
use super::{Verdict, input_ranges, option_error, print_json};

/// Options of `fornax validate`.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// The bundle
    bundle: PathBuf,
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
    /// interpreter
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
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
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
    // On the emulator each buffer gets its own allocation, so that it sees every access that strays.
    let memory = match device.kind() {
        fornax_runtime::device::DeviceKind::Emulator => Memory::Separate,
        fornax_runtime::device::DeviceKind::Cuda => Memory::Planned,
    };
    let loaded = Loaded::open(
        &args.bundle,
        device,
        args.target.as_deref(),
        args.weights.as_deref(),
        memory,
    )?;
    let mut report = Report {
        passed: true,
        content: loaded.bundle.content_hash().to_owned(),
        device: loaded.session.device().name().to_owned(),
        target: loaded.session.plan().target.clone(),
        cases: Vec::new(),
        first_wrong_region: None,
    };
    for (name, source) in cases(&args, &loaded, &options)? {
        progress.say(format!("validating: {name}"));
        let case = match &source {
            Source::Seeded(inputs) => against_interpreter(&loaded, &args.bundle, &name, inputs)?,
            Source::Recorded(path, tensors) => {
                against_recorded(&loaded, &args.bundle, path, tensors)?
            }
        };
        if !case.passed() && args.bisect && report.first_wrong_region.is_none() {
            progress.say("looking for the first wrong region");
            let inputs = source.inputs(&loaded);
            report.first_wrong_region = bisect(&loaded, &loaded.plan(&args.bundle)?, &inputs)?;
        }
        report.passed &= case.passed();
        report.cases.push(case);
    }
    drop(progress);
    if !args.no_certificate {
        write_certificate(&args.bundle, loaded, &report)?;
    }
    if args.json {
        print_json(&report);
    } else {
        print_report(&report, args.bisect);
    }
    Ok(if report.passed { Verdict::Good } else { Verdict::Bad })
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

fn cases(args: &Args, loaded: &Loaded, options: &Options) -> Result<Vec<(String, Source)>, Error> {
    if args.recorded.is_empty() {
        let sets = seeded_inputs(loaded, options)?;
        return Ok(sets.into_iter().map(|(name, set)| (name, Source::Seeded(set))).collect());
    }
    args.recorded
        .iter()
        .map(|path| {
            let tensors = tensors::read_named(path)?;
            Ok((path.display().to_string(), Source::Recorded(path.clone(), tensors)))
        })
        .collect()
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
