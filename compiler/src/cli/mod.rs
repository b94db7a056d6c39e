//! The command line: options, output for people and machines, exit codes.
//!
//! Exit codes: 0 all is well; 1 a result is wrong; 2 an input, option or the environment is.

#![allow(clippy::print_stdout, clippy::print_stderr)]

mod bench;
#[cfg(feature = "llvm")]
mod compile;
mod explain;
mod inspect;
mod ops;
#[cfg(feature = "llvm")]
mod opt;
mod profile;
mod progress;
#[cfg(feature = "llvm")]
mod rules;
mod run;
mod validate;

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use fornax_compiler::Error;
use fornax_compiler::validate::InputRange;

/// Ahead-of-time operator-fusion compiler for NVIDIA GPUs.
#[derive(Debug, Parser)]
#[command(name = "fornax", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Compile an exported model to a bundle; needs no GPU
    #[cfg(feature = "llvm")]
    Compile(compile::Args),
    /// Run a pass on a graph in text form
    #[cfg(feature = "llvm")]
    Opt(opt::Args),
    /// Run a bundle on inputs from files
    Run(run::Args),
    /// Compare a bundle's results with the reference interpreter, or with recorded ones
    Validate(validate::Args),
    /// Show what is in a bundle: regions, kernels, buffers
    Inspect(inspect::Args),
    /// Say where a node of the model is computed, and why
    Explain(explain::Args),
    /// Compare the decisions in two bundles
    Diff(explain::DiffArgs),
    /// Time each kernel of a bundle on a GPU
    Profile(profile::Args),
    /// Compare with torch, in one process and in turn; needs Python, torch and the package fornax
    Bench(bench::Args),
    /// List the operators of the graph IR
    Ops(ops::Args),
    /// List the rewrite rules, or hold them to what they claim
    #[cfg(feature = "llvm")]
    Rules(rules::Args),
}

/// How a command ended that could do its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// All is well.
    Good,
    /// A result is wrong or slower than asked.
    Bad,
}

/// Runs the program on the process's arguments.
pub(crate) fn run() -> ExitCode {
    restore_sigpipe();
    let cli = Cli::parse();
    let result = match cli.command {
        #[cfg(feature = "llvm")]
        Command::Compile(args) => compile::run(args),
        #[cfg(feature = "llvm")]
        Command::Opt(args) => opt::run(args),
        Command::Run(args) => run::run(args),
        Command::Validate(args) => validate::run(args),
        Command::Inspect(args) => inspect::run(args),
        Command::Explain(args) => explain::run(args),
        Command::Diff(args) => explain::run_diff(args),
        Command::Profile(args) => profile::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Ops(args) => ops::run(args),
        #[cfg(feature = "llvm")]
        Command::Rules(args) => rules::run(args),
    };
    match result {
        Ok(Verdict::Good) => ExitCode::SUCCESS,
        Ok(Verdict::Bad) => ExitCode::from(1),
        Err(error) => {
            eprintln!("{}", prefixed(&error));
            ExitCode::from(2)
        }
    }
}

/// Diagnostics already begin with `error[code]`.
fn prefixed(error: &Error) -> String {
    let text = error.to_string();
    if text.starts_with("error") { text } else { format!("error: {text}") }
}

/// Output into a closed pipe (`fornax inspect x.fnx | head`) ends the program instead of panicking.
fn restore_sigpipe() {
    #[cfg(unix)]
    // SAFETY: sets the disposition of a signal to the system's default before any thread starts.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
}

/// Prints a value as JSON for machines.
pub(crate) fn print_json(value: &impl serde::Serialize) {
    let text = serde_json::to_string_pretty(value).expect("invariant: reports are plain data");
    println!("{text}");
}

/// One of several values, on a line of its own.
pub(crate) fn print_json_line(value: &impl serde::Serialize) {
    println!("{}", serde_json::to_string(value).expect("invariant: reports are plain data"));
}

/// An error about an option.
pub(crate) fn option_error(option: &str, reason: impl Into<String>) -> Error {
    Error::Option { option: option.to_owned(), reason: reason.into() }
}

/// Parses `--input-range x=0..255` options.
pub(crate) fn input_ranges(entries: &[String]) -> Result<BTreeMap<String, InputRange>, Error> {
    entries
        .iter()
        .map(|entry| {
            let (name, range) = entry.rsplit_once('=').ok_or_else(|| {
                option_error("--input-range", format!("`{entry}`: expected input=low..high"))
            })?;
            let range =
                InputRange::parse(range).map_err(|reason| option_error("--input-range", reason))?;
            Ok((name.to_owned(), range))
        })
        .collect()
}
