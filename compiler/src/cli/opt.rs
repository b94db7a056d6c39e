//! `fornax opt`: one pass on a graph in text form.

use std::io::ErrorKind;
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
    let text = std::fs::read_to_string(&args.file).map_err(|error| {
        let reason = match error.kind() {
            ErrorKind::InvalidData => {
                "it is no text; passes take graphs in text form (.gir), such \
                                       as `fornax compile --emit import` prints"
                    .to_owned()
            }
            _ => error.to_string(),
        };
        Error::File { path: args.file.clone(), reason }
    })?;
    let result = run_pass(&args.file, &text, &args.pass)?;
    if !result.is_empty() {
        println!("{}", result.trim_end_matches('\n'));
    }
    Ok(Verdict::Good)
}
