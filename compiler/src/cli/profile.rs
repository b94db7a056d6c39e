//! `fornax profile`

use std::path::PathBuf;

use clap::Args as ClapArgs;
use fornax_compiler::validate::{Distribution, Options, seeded_inputs};
use fornax_compiler::{Error, Loaded, parse_dims};
use fornax_runtime::profile::{Profile, profile};
use fornax_runtime::{Memory, open_device};
use serde::Serialize;

use super::{Verdict, input_ranges, option_error, print_json};

/// Options of `fornax profile`.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// The bundle
    bundle: PathBuf,
    /// The device: cuda, cuda:INDEX or emulator (whose times are those of the emulator)
    #[arg(long, default_value = "cuda")]
    device: String,
    /// The target plan to run, such as sm_80; the best that the device takes unless said
    #[arg(long)]
    target: Option<String>,
    /// Runs before measuring
    #[arg(long, default_value_t = 3)]
    warmup: usize,
    /// Runs measured; the median counts
    #[arg(long, default_value_t = 20)]
    runs: usize,
    /// Values an input takes, ends included, as in x=0..255 (repeatable)
    #[arg(long, value_name = "INPUT=LOW..HIGH")]
    input_range: Vec<String>,
    /// The value of a symbolic dimension, as in batch=8 (repeatable)
    #[arg(long, value_name = "NAME=SIZE")]
    dim: Vec<String>,
    /// Values of the weights that the bundle does not hold (.safetensors)
    #[arg(long)]
    weights: Option<PathBuf>,
    /// Print the profile as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Row<'a> {
    kernel: &'a str,
    region: &'a str,
    time_ns: f64,
    bytes: u64,
    flops: u64,
    roofline_share: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    device: &'a str,
    gpu_time: bool,
    runs: usize,
    total_ns: f64,
    kernels: Vec<Row<'a>>,
}

pub(crate) fn run(args: Args) -> Result<Verdict, Error> {
    if args.runs == 0 {
        return Err(option_error("--runs", "give at least 1"));
    }
    let device = open_device(&args.device)?;
    let loaded = Loaded::open(
        &args.bundle,
        device,
        args.target.as_deref(),
        args.weights.as_deref(),
        Memory::Planned,
    )?;
    let options = Options {
        seed: 0,
        seeds: 1,
        distributions: vec![Distribution::Normal],
        ranges: input_ranges(&args.input_range)?,
        dims: parse_dims(&args.dim).map_err(|reason| option_error("--dim", reason))?,
    };
    let (_, inputs) = seeded_inputs(&loaded, &options)?.remove(0);
    let measured = profile(&loaded.session, &inputs, args.warmup, args.runs)?;
    if args.json {
        print_json(&report(&measured));
    } else {
        print_table(&measured);
    }
    Ok(Verdict::Good)
}

fn report(profile: &Profile) -> Report<'_> {
    Report {
        device: &profile.device,
        gpu_time: profile.is_gpu_time,
        runs: profile.n_runs,
        total_ns: profile.total_ns(),
        kernels: profile
            .launches
            .iter()
            .map(|launch| Row {
                kernel: &launch.name,
                region: &launch.region,
                time_ns: launch.time_ns,
                bytes: launch.bytes,
                flops: launch.flops,
                roofline_share: launch.roofline_share,
            })
            .collect(),
    }
}

fn print_table(profile: &Profile) {
    println!("device {}, median of {} runs", profile.device, profile.n_runs);
    if !profile.is_gpu_time {
        println!("these are the emulator's own times; they say nothing about a GPU");
    }
    println!(
        "{:>10} {:>7} {:>12} {:>14} {:>9}  kernel",
        "us", "share", "bytes", "flop", "roofline"
    );
    let total = profile.total_ns();
    for launch in &profile.launches {
        let roofline =
            launch.roofline_share.map_or("-".to_owned(), |share| format!("{:.1} %", 100.0 * share));
        println!(
            "{:>10.2} {:>5.1} % {:>12} {:>14} {:>9}  {}",
            launch.time_ns / 1e3,
            100.0 * launch.time_ns / total.max(1.0),
            launch.bytes,
            launch.flops,
            roofline,
            launch.name
        );
    }
    println!("{:>10.2} us in {} kernels", total / 1e3, profile.launches.len());
}
