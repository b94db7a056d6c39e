//! Each file of `tests/data/ptx_faults` gives the fault that its head names, or none.

use std::path::PathBuf;

use crate::harness::{Arg, emulate};
use fornax_runtime::device::LaunchConfig;
use fornax_runtime::{EmulatorOptions, Error};

/// What the head of a file asks for.
#[derive(Default)]
struct Head {
    config: Option<LaunchConfig>,
    args: Vec<String>,
    fault: String,
    block: [u32; 3],
    thread: [u32; 3],
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data/ptx_faults")
}

fn coordinates(text: &str) -> [u32; 3] {
    let parts: Vec<u32> = text.split(',').map(|part| part.parse().unwrap()).collect();
    [parts[0], parts[1], parts[2]]
}

fn head(text: &str) -> Head {
    let mut head = Head::default();
    for line in text.lines().map_while(|line| line.strip_prefix("// ")) {
        let Some((key, value)) = line.split_once(": ") else { continue };
        let words: Vec<&str> = value.split(' ').collect();
        let after =
            |name: &str| words.iter().position(|word| *word == name).map(|index| words[index + 1]);
        match key {
            "launch" => {
                let number = |name| after(name).map_or(0, |word| word.parse().unwrap());
                let mut config = LaunchConfig::linear(number("grid"), number("block"));
                config.shared_bytes = number("shared");
                head.config = Some(config);
            }
            "args" => head.args = words.iter().map(|word| word.to_string()).collect(),
            "fault" => head.fault = value.to_owned(),
            "at" => {
                head.block = coordinates(after("block").unwrap());
                head.thread = coordinates(after("thread").unwrap());
            }
            _ => {}
        }
    }
    head
}

fn run_file(text: &str, options: EmulatorOptions) -> Result<(), Error> {
    let head = head(text);
    let zeros = vec![0; 4096];
    let args: Vec<Arg<'_>> = head
        .args
        .iter()
        .map(|arg| {
            let (kind, value) = arg.split_once(':').unwrap();
            let number: usize = value.parse().unwrap();
            match kind {
                "in" => Arg::Input(&zeros[..number]),
                "out" => Arg::Output(number as u64),
                "inout" => Arg::InOut(&zeros[..number]),
                "i32" => Arg::I32(number as i32),
                other => panic!("argument `{other}`"),
            }
        })
        .collect();
    emulate(options, text, "k", head.config.unwrap(), &args).map(drop)
}

/// A small budget, so that the endless loop ends soon.
fn options(n_threads: usize) -> EmulatorOptions {
    EmulatorOptions {
        instruction_budget: 100_000,
        n_threads: Some(n_threads),
        ..EmulatorOptions::default()
    }
}

fn check(text: &str, result: Result<(), Error>) -> Result<(), String> {
    let head = head(text);
    let marked = text.lines().position(|line| line.ends_with("// <- here")).map(|line| line + 1);
    match (head.fault.as_str(), result) {
        ("none", Ok(())) => Ok(()),
        (_, Ok(())) => Err("nothing reported".to_owned()),
        (expected, Err(Error::Fault(fault))) => {
            let found = (
                fault.kind.name(),
                fault.block,
                fault.thread,
                Some(fault.line),
                fault.kernel.as_str(),
            );
            let line_text = text.lines().nth(fault.line - 1).unwrap().trim();
            if found != (expected, head.block, head.thread, marked, "k") || fault.text != line_text
            {
                return Err(format!("found {fault}"));
            }
            Ok(())
        }
        (_, Err(other)) => Err(other.to_string()),
    }
}

#[test]
fn each_fault_is_reported_where_it_happens() {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "ptx"))
        .collect();
    files.sort();
    assert!(files.len() >= 40, "only {} files", files.len());
    let mut failures = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        for n_threads in [1, 3] {
            if let Err(why) = check(&text, run_file(&text, options(n_threads))) {
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                failures.push(format!("{name} on {n_threads} threads: {why}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn detectors_can_be_turned_off() {
    for (name, off) in [
        ("uninitialised_shared", EmulatorOptions { uninitialised: false, ..options(1) }),
        ("uninitialised_register", EmulatorOptions { uninitialised: false, ..options(1) }),
        ("race_write_write", EmulatorOptions { shared_races: false, ..options(1) }),
        ("race_within_warp", EmulatorOptions { shared_races: false, ..options(1) }),
        ("race_blocks", EmulatorOptions { block_races: false, ..options(1) }),
    ] {
        let text = std::fs::read_to_string(folder().join(format!("{name}.ptx"))).unwrap();
        let head = head(&text);
        assert_ne!(head.fault, "none");
        let off = EmulatorOptions { instruction_budget: 100_000, ..off };
        // What the kernel leaves unwritten is reported when the host reads it.
        match run_file(&text, off) {
            Ok(()) | Err(Error::Memory { .. }) => {}
            Err(other) => panic!("{name}: {other}"),
        }
    }
}
