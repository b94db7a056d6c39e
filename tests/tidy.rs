//! Checks of the source tree: who may depend on whom, and what must not be left behind.

#![allow(clippy::unwrap_used, reason = "a failure of what is not tested here may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, PackageId};

/// Which of our crates a crate may depend on, transitively, outside of its tests.
const ALLOWED: &[(&str, &[&str])] = &[
    ("fornax-bundle", &[]),
    ("fornax-ir", &["fornax-bundle"]),
    ("fornax-models", &["fornax-bundle", "fornax-ir"]),
    ("fornax-passes", &["fornax-bundle", "fornax-ir"]),
    ("fornax-codegen", &["fornax-bundle", "fornax-ir"]),
    ("fornax-runtime", &["fornax-bundle"]),
    ("fornax-python", &["fornax-bundle", "fornax-runtime"]),
    (
        "fornax-compiler",
        &[
            "fornax-bundle",
            "fornax-codegen",
            "fornax-ir",
            "fornax-models",
            "fornax-passes",
            "fornax-runtime",
        ],
    ),
    (
        "fornax-tests",
        &[
            "fornax-bundle",
            "fornax-codegen",
            "fornax-compiler",
            "fornax-ir",
            "fornax-models",
            "fornax-passes",
            "fornax-runtime",
        ],
    ),
];

/// Crates of others that one of ours alone may name.
const OWNED: &[(&str, &str)] = &[
    ("inkwell", "fornax-codegen"),
    ("llvm-sys", "fornax-codegen"),
    ("egg", "fornax-passes"),
    ("cudarc", "fornax-runtime"),
    ("pyo3", "fornax-python"),
    ("prost", "fornax-models"),
];

/// What the program's build for GPU machines does without.
const OPTIONAL_IN_COMPILER: &[&str] = &["fornax-passes", "fornax-codegen"];

fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("the crate lies in the workspace").to_owned()
}

fn metadata() -> Metadata {
    // For one platform: the packages of others need not be on this machine.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let options = ["--offline", "--locked", "--filter-platform", platform.as_str()];
    MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .other_options(options.map(str::to_owned))
        .exec()
        .expect("cargo metadata works without network")
}

/// The names of everything a package depends on, transitively, outside of tests.
fn closure(metadata: &Metadata, package: &PackageId) -> BTreeSet<String> {
    let resolve = metadata.resolve.as_ref().expect("metadata is resolved");
    let nodes: BTreeMap<&PackageId, _> =
        resolve.nodes.iter().map(|node| (&node.id, &node.deps)).collect();
    let mut found = BTreeSet::new();
    let mut queue = vec![package];
    while let Some(id) = queue.pop() {
        for dep in nodes[id] {
            let is_used = dep.dep_kinds.iter().any(|kind| kind.kind != DependencyKind::Development);
            if is_used && found.insert(metadata[&dep.pkg].name.to_string()) {
                queue.push(&dep.pkg);
            }
        }
    }
    found
}

#[test]
fn crates_depend_only_on_what_they_may() {
    let metadata = metadata();
    let allowed: BTreeMap<&str, &[&str]> = ALLOWED.iter().copied().collect();
    let mut faults = Vec::new();
    for package in metadata.workspace_packages() {
        let name = package.name.as_str();
        let Some(allowed) = allowed.get(name) else {
            faults.push(format!("{name} is not in the table of allowed dependencies"));
            continue;
        };
        let closure = closure(&metadata, &package.id);
        for dep in closure.iter().filter(|dep| dep.starts_with("fornax-")) {
            if !allowed.contains(&dep.as_str()) {
                faults.push(format!("{name} depends on {dep}"));
            }
        }
        for (theirs, owner) in OWNED {
            // Tests may read what they test with the same means.
            let names_it = name != "fornax-tests"
                && package
                    .dependencies
                    .iter()
                    .any(|dep| dep.name == *theirs && dep.kind != DependencyKind::Development);
            let has_it = closure.contains(*theirs);
            if name != *owner && (names_it || (has_it && !closure.contains(*owner))) {
                faults.push(format!("{name} depends on {theirs}, which only {owner} may know"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_compiling_half_of_the_program_is_optional() {
    let metadata = metadata();
    let packages = metadata.workspace_packages();
    let compiler = packages.iter().find(|package| package.name == "fornax-compiler");
    let dependencies = &compiler.expect("the compiler is in the workspace").dependencies;
    for name in OPTIONAL_IN_COMPILER {
        let dependency = dependencies.iter().find(|dependency| dependency.name == *name);
        let dependency = dependency.unwrap_or_else(|| panic!("the compiler lacks {name}"));
        assert!(dependency.optional, "{name} is not optional");
    }
}

#[test]
fn crates_use_the_lints_of_the_workspace() {
    for package in metadata().workspace_packages() {
        let manifest = std::fs::read_to_string(&package.manifest_path).unwrap();
        assert!(manifest.contains("[lints]\nworkspace = true"), "{}", package.name);
    }
}

/// Text files of the tree, but for what is built.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    const ENDINGS: &[&str] =
        &["rs", "py", "toml", "md", "sh", "yml", "h", "c", "gir", "plan", "kir"];
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with('.') || name == "target" {
            continue;
        }
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| ENDINGS.contains(&&*e.to_string_lossy())) {
            found.push(path);
        }
    }
    found.sort();
}

fn all_sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    sources(&root(), &mut found);
    found
}

#[test]
fn nothing_is_left_unfinished() {
    // Put together here so that this file does not name them.
    let marks = [["TO", "DO"], ["FIX", "ME"], ["to", "do!("], ["unimpl", "emented!("]];
    let marks = marks.map(|parts| parts.concat());
    let mut faults = Vec::new();
    for path in all_sources() {
        let text = std::fs::read_to_string(&path).unwrap();
        for (number, line) in text.lines().enumerate() {
            if marks.iter().any(|mark| line.contains(mark)) {
                faults.push(format!("{}:{}: {}", path.display(), number + 1, line.trim()));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// What stands between backquotes in a Markdown text.
fn code_spans(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
}

#[test]
fn files_named_in_the_architecture_exist() {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    // The code map names folders below that of their crate: the end of a path is enough.
    let mut known: BTreeSet<String> = BTreeSet::new();
    for path in all_sources() {
        let below = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
        let parts: Vec<&str> = below.split('/').collect();
        for start in 0..parts.len() {
            known.insert(parts[start..].join("/"));
            known.extend((start + 1..parts.len()).map(|end| parts[start..end].join("/") + "/"));
        }
    }
    let is_path = |span: &&str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-');
        span.chars().all(plain) && (span.contains('/') || span.ends_with(".rs"))
    };
    let missing: Vec<&str> =
        code_spans(&text).filter(is_path).filter(|path| !known.contains(*path)).collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md names files that are not there: {missing:?}");
}

#[test]
fn the_ops_table_has_every_op() {
    let Ok(text) = std::fs::read_to_string(root().join("docs/ops.md")) else { return };
    let named: BTreeSet<&str> = code_spans(&text).collect();
    let ops = fornax_ir::op::all().iter().map(|def| def.name);
    let missing: Vec<&str> = ops.filter(|name| !named.contains(name)).collect();
    assert!(missing.is_empty(), "docs/ops.md lacks {missing:?}; write it again with `fornax ops`");
}

/// Sizes, for people: `cargo test --test tidy -- --nocapture sizes`.
#[test]
fn sizes() {
    let root = root();
    let mut crates: BTreeMap<String, (usize, usize, usize)> = BTreeMap::new();
    for path in all_sources().iter().filter(|path| path.extension().is_some_and(|e| e == "rs")) {
        let below = path.strip_prefix(&root).unwrap();
        let folder = below.components().next().unwrap().as_os_str().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(path).unwrap();
        let docs = text.lines().filter(|line| line.trim_start().starts_with("//")).count();
        let (files, lines, comments) = crates.entry(folder).or_default();
        *files += 1;
        *lines += text.lines().count();
        *comments += docs;
    }
    for (name, (files, lines, comments)) in &crates {
        println!("{name:10} {files:4} files {lines:7} lines, {comments:6} of them comments");
    }
    assert!(crates.contains_key("ir"));
}
