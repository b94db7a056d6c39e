//! `fornax inspect`

use std::path::PathBuf;

use clap::Args as ClapArgs;
use fornax_bundle::Bundle;
use fornax_compiler::{Error, InspectParts, inspect, report};

use super::{Verdict, print_json};

/// Options of `fornax inspect`.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// The bundle
    bundle: PathBuf,
    /// Show each kernel's launch: grid, block, bytes, operations
    #[arg(long)]
    kernels: bool,
    /// Show the imported graph
    #[arg(long)]
    graph: bool,
    /// Show buffers and where they lie
    #[arg(long)]
    memory: bool,
    /// Write a page that shows all of it: the graph with its regions, kernels, costs, rules and memory
    #[arg(long, value_name = "FILE.html")]
    html: Option<PathBuf>,
    /// Print the manifest as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> Result<Verdict, Error> {
    let bundle = Bundle::open(&args.bundle)?;
    if let Some(path) = &args.html {
        let written = std::fs::write(path, report(&bundle)?);
        written.map_err(|error| Error::File { path: path.clone(), reason: error.to_string() })?;
        println!("{}", path.display());
        return Ok(Verdict::Good);
    }
    if args.json {
        print_json(bundle.manifest());
        return Ok(Verdict::Good);
    }
    let parts = InspectParts { kernels: args.kernels, graph: args.graph, memory: args.memory };
    print!("{}", inspect(&bundle, parts));
    Ok(Verdict::Good)
}
