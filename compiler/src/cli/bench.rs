//! `fornax bench`: the Python package's benchmark, started from here

use std::process::Command;

use clap::Args as ClapArgs;
use fornax_compiler::Error;

use super::{Verdict, option_error};

/// Options of `fornax bench`.
#[derive(Debug, ClapArgs)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// The interpreter that has torch and the package fornax; must come first
    #[arg(long, default_value = "python3")]
    python: String,
    /// The benchmark's own arguments; `fornax bench --help` prints its help
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

pub(crate) fn run(args: Args) -> Result<Verdict, Error> {
    let python = |arguments: &[&str]| {
        let mut command = Command::new(&args.python);
        command.args(arguments);
        command
    };
    let cannot_start = |error: std::io::Error| {
        let reason = format!("`{}` does not start: {error}", args.python);
        option_error("--python", reason)
    };
    let probe = python(&["-c", "import fornax.bench, torch"]).output().map_err(cannot_start)?;
    if !probe.status.success() {
        let said = String::from_utf8_lossy(&probe.stderr);
        let last = said.trim().lines().last().unwrap_or("it says nothing").to_owned();
        let reason = format!(
            "`{}` has not what the benchmark needs: {last}; `pip install fornax torch`, or name \
             another interpreter as in `fornax bench --python .venv/bin/python MODEL`",
            args.python
        );
        return Err(option_error("--python", reason));
    }
    let mut command = python(&["-m", "fornax.bench"]);
    command.args(&args.arguments);
    if let Ok(program) = std::env::current_exe() {
        command.env("FORNAX", program);
    }
    match command.status().map_err(cannot_start)?.code() {
        Some(0) => Ok(Verdict::Good),
        Some(1) => Ok(Verdict::Bad),
        // The benchmark has said why.
        Some(code) => std::process::exit(code),
        None => Err(option_error("--python", "the benchmark was killed")),
    }
}
