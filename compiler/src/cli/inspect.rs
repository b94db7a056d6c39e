//! `fornax inspect`

use std::path::PathBuf;

use clap::Args as ClapArgs;
use fornax_bundle::Bundle;
use fornax_compiler::{Error, InspectParts, inspect};

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
    /// Print the manifest as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> Result<Verdict, Error> {
    let bundle = Bundle::open(&args.bundle)?;
    if args.json {
        print_json(bundle.manifest());
        return Ok(Verdict::Good);
    }
    let parts = InspectParts { kernels: args.kernels, graph: args.graph, memory: args.memory };
    print!("{}", inspect(&bundle, parts));
    Ok(Verdict::Good)
}
