//! Conformance: the node tests of the `onnx` package, by manifest.
//!
//! `tools/node_tests.py` (part of `tools/setup`) writes the tests into `.cache/node_tests`. Each is
//! imported, evaluated by the reference interpreter, compiled and run on the emulator, and its results
//! are held against the recorded ones. `conformance/node.txt` says what must come of each test; any
//! other outcome is a failure, a better one too. `BLESS=1` rewrites the manifest from what was
//! observed, but a wrong result or a panic cannot be blessed.
#![expect(clippy::print_stderr, reason = "a test program reports to its user")]

mod check;
mod manifest;
mod node_test;
mod outcome;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use fornax_runtime::{Device, Emulator};
use libtest_mimic::{Arguments, Failed, Trial};

use crate::manifest::Manifest;
use crate::node_test::NodeTest;
use crate::outcome::{Observations, Outcome};

/// Each test is compiled for one of them, in turn.
const TARGETS: [&str; 2] = ["sm_80", "sm_90a"];

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = root.join("../.cache/node_tests");
    let path = root.join("conformance/node.txt");
    let manifest = match read_manifest(&path, &folder) {
        Ok(Some(manifest)) => manifest,
        Ok(None) => return ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("conformance: {message}");
            return ExitCode::FAILURE;
        }
    };
    let arguments = Arguments::from_args();
    let bless = std::env::var_os("BLESS").is_some();
    let manifest = Arc::new(manifest);
    let observations = Arc::new(Mutex::new(Observations::default()));
    let trials = match trials(&folder, &manifest, &observations, bless) {
        Ok(trials) => trials,
        Err(error) => {
            eprintln!("conformance: cannot read {}: {error}", folder.display());
            return ExitCode::FAILURE;
        }
    };
    let conclusion = libtest_mimic::run(&arguments, trials);
    let observations = observations.lock().unwrap_or_else(PoisonError::into_inner);
    if !arguments.list {
        eprint!("{}", observations.summary());
    }
    if bless && let Err(error) = std::fs::write(&path, manifest.blessed(&observations)) {
        eprintln!("conformance: cannot write {}: {error}", path.display());
        return ExitCode::FAILURE;
    }
    conclusion.exit_code()
}

/// The manifest, or nothing when the tests have not been written and may be skipped.
fn read_manifest(path: &Path, folder: &Path) -> Result<Option<Manifest>, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let manifest = Manifest::parse(&text)?;
    let version = match std::fs::read_to_string(folder.join("version")) {
        Ok(version) => version,
        Err(_) if std::env::var_os("FORNAX_REQUIRE_ALL").is_some() => {
            return Err(format!("{} is missing; run tools/setup", folder.display()));
        }
        Err(_) => {
            eprintln!("SKIPPED: {} is missing; run tools/setup", folder.display());
            return Ok(None);
        }
    };
    if version != manifest.version {
        return Err(format!(
            "the manifest is for onnx {}, but {} holds the tests of {version}; run tools/setup",
            manifest.version,
            folder.display()
        ));
    }
    Ok(Some(manifest))
}

fn trials(
    folder: &Path,
    manifest: &Arc<Manifest>,
    observations: &Arc<Mutex<Observations>>,
    bless: bool,
) -> std::io::Result<Vec<Trial>> {
    let mut folders: Vec<PathBuf> = std::fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<_>>()?;
    folders.retain(|path| path.is_dir());
    folders.sort();
    let device: Arc<dyn Device> = Arc::new(Emulator::default());
    let mut trials: Vec<Trial> = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for (number, folder) in folders.into_iter().enumerate() {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        names.push(name.clone());
        let target = TARGETS[number % TARGETS.len()];
        let (device, manifest) = (device.clone(), manifest.clone());
        let observations = observations.clone();
        trials.push(Trial::test(name.clone(), move || {
            let outcome = NodeTest::read(&folder)
                .map_or_else(Outcome::Failed, |test| check::check(&test, target, &device));
            let verdict = manifest.judge(&name, &outcome, bless);
            observations.lock().unwrap_or_else(PoisonError::into_inner).insert(name, outcome);
            verdict.map_err(Failed::from)
        }));
    }
    let manifest = manifest.clone();
    trials.push(Trial::test("manifest_names_only_tests", move || match bless {
        true => Ok(()),
        false => manifest.check_names(&names).map_err(Failed::from),
    }));
    Ok(trials)
}
