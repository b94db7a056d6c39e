//! `fornax explain` and `fornax diff`: decisions, from bundles alone.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use fornax_bundle::Bundle;
use fornax_compiler::{Error, diff, explain, why_not};

use super::{Verdict, option_error};

/// Options of `fornax explain`.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// The bundle
    bundle: PathBuf,
    /// A node of the imported model, by name
    node: Option<String>,
    /// Say why two nodes are not computed together
    #[arg(long, num_args = 2, value_names = ["A", "B"])]
    why_not: Vec<String>,
}

/// Options of `fornax diff`.
#[derive(Debug, ClapArgs)]
pub(crate) struct DiffArgs {
    /// A bundle
    left: PathBuf,
    /// Another one
    right: PathBuf,
}

pub(crate) fn run(args: Args) -> Result<Verdict, Error> {
    if args.node.is_none() && args.why_not.is_empty() {
        return Err(option_error("NODE", "give a node's name, or --why-not with two"));
    }
    let bundle = Bundle::open(&args.bundle)?;
    if let Some(node) = &args.node {
        print!("{}", explain(&bundle, node)?);
    }
    if let [a, b] = args.why_not.as_slice() {
        print!("{}", why_not(&bundle, a, b)?);
    }
    Ok(Verdict::Good)
}

pub(crate) fn run_diff(args: DiffArgs) -> Result<Verdict, Error> {
    let (left, right) = (Bundle::open(&args.left)?, Bundle::open(&args.right)?);
    print!("{}", diff(&left, &right)?);
    Ok(Verdict::Good)
}
