//! `fornax opt`: one pass on a graph in text form.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use fornax_compiler::{Error, run_pass};

use super::Verdict;

/// Options of `fornax opt`.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// The graph (.gir)
    file: PathBuf,
    /// The pass: verify, canonicalize, optimize, fuse or kernels
    #[arg(long)]
    pass: String,
}

pub(crate) fn run(args: Args) -> Result<Verdict, Error> {
    let text = std::fs::read_to_string(&args.file)
        .map_err(|error| Error::File { path: args.file.clone(), reason: error.to_string() })?;
    print!("{}", run_pass(&args.file, &text, &args.pass)?);
    Ok(Verdict::Good)
}
