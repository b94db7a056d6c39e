//! Running `ptxas`, which turns PTX into machine code (SASS) and says what resources it takes.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Target;

/// An installed `ptxas`.
#[derive(Debug, Clone)]
pub struct Ptxas {
    path: PathBuf,
}

/// What a kernel takes, as `ptxas -v` reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Registers per thread.
    pub registers: u32,
    /// Bytes of registers written to local memory for lack of registers.
    pub spill_bytes: u32,
    /// Bytes of local memory per thread.
    pub stack_bytes: u32,
    /// Bytes of static shared memory per block.
    pub shared_bytes: u32,
}

/// Why there is no machine code.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PtxasError {
    /// The program could not be run. The user's installation.
    #[error("cannot run {}: {source}", path.display())]
    Run {
        /// The program.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The PTX is refused. Our fault, or a `ptxas` too old for the target.
    #[error("ptxas refuses {entry} for {target}: {message}")]
    Refused {
        /// The kernel's name.
        entry: String,
        /// The target.
        target: Target,
        /// What it says.
        message: String,
    },
}

impl Ptxas {
    /// The program at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Ptxas {
        Ptxas { path: path.into() }
    }

    /// Assembles PTX into a cubin at `output` and reports what it takes.
    ///
    /// # Errors
    /// When the program does not run, or refuses the text.
    pub fn assemble(
        &self,
        module: &super::PtxModule,
        target: Target,
        output: &Path,
    ) -> Result<Usage, PtxasError> {
        let failed = |source| PtxasError::Run { path: self.path.clone(), source };
        let mut child = Command::new(&self.path)
            .args(["-v", "-arch", target.name(), "-o"])
            .arg(output)
            .arg("-")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let mut input = child.stdin.take().expect("invariant: standard input is piped");
        // A program that stops reading says why on its standard error, which is looked at below.
        let _ = input.write_all(module.text.as_bytes());
        drop(input);
        let result = child.wait_with_output().map_err(failed)?;
        let log = String::from_utf8_lossy(&result.stderr);
        if result.status.success() {
            return Ok(Usage::parse(&log));
        }
        let message = if log.trim().is_empty() { result.status.to_string() } else { log.into() };
        let message = message.trim().to_owned();
        Err(PtxasError::Refused { entry: module.entry.clone(), target, message })
    }
}

impl Usage {
    /// Reads the report of `ptxas -v` about one kernel; what it does not mention is 0.
    pub fn parse(log: &str) -> Usage {
        let before = |what: &str| {
            let words =
                log.split(|c: char| c.is_whitespace() || c == ',').filter(|w| !w.is_empty());
            let words: Vec<&str> = words.collect();
            let what: Vec<&str> = what.split(' ').collect();
            let found = words.windows(what.len() + 1).find(|window| window[1..] == what[..]);
            found.and_then(|window| window[0].parse().ok()).unwrap_or(0)
        };
        Usage {
            registers: before("registers"),
            spill_bytes: before("bytes spill stores"),
            stack_bytes: before("bytes stack frame"),
            shared_bytes: before("bytes smem"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_read() {
        let log = "ptxas info    : 0 bytes gmem\n\
                   ptxas info    : Compiling entry function 'k' for 'sm_90a'\n\
                   ptxas info    : Function properties for k\n    \
                   8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads\n\
                   ptxas info    : Used 23 registers, used 1 barriers, 128 bytes smem\n";
        let usage = Usage { registers: 23, spill_bytes: 4, stack_bytes: 8, shared_bytes: 128 };
        assert_eq!(Usage::parse(log), usage);
    }

    #[test]
    fn a_missing_program_is_named() {
        let module = super::super::PtxModule {
            text: String::new(),
            entry: "k".into(),
            dynamic_shared_bytes: 0,
            threads: 32,
        };
        let error = Ptxas::new("/nowhere/ptxas")
            .assemble(&module, Target::Sm80, Path::new("/dev/null"))
            .unwrap_err();
        assert!(error.to_string().contains("/nowhere/ptxas"), "{error}");
    }
}
