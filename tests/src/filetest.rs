//! Filetests: input and expectation in one file.
//!
//! ```text
//! ; test: canonicalize
//!
//! graph @f(%x: f32[2]) -> (y: f32[2]) {
//!   ...
//! }
//!
//! ; the expected output
//! ```
//!
//! The header's lines are `; key: value`; the first one, `test`, names the [`Kind`]. What follows the
//! input is the expectation, as a comment. A kind gives back the whole file as it should be, so that
//! comparing and rewriting (`BLESS=1`) are the same thing.

mod annotations;
#[cfg(feature = "llvm")]
mod kernels;
mod kinds;
mod run;

use std::path::{Path, PathBuf};

pub use kinds::{KINDS, Kind};

/// A filetest, taken apart.
#[derive(Debug, Clone)]
pub struct Case {
    /// The file's extension, which says what kind of text the input is.
    pub extension: String,
    /// The header's keys and values, without `test`, in order.
    pub settings: Vec<(String, String)>,
    /// The lines up to the input, as they are.
    pub header: String,
    /// The input, from its first to its last line that is no comment.
    pub input: String,
    /// What follows the input, without comment signs.
    pub expectation: String,
}

/// All filetests below a folder, in order.
///
/// # Errors
/// When a folder cannot be read.
pub fn find(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut queue = vec![folder.to_owned()];
    while let Some(folder) = queue.pop() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                queue.push(path);
            } else {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Runs a filetest, and rewrites it when `bless` is set and it differs.
///
/// # Errors
/// What is wrong, with a diff when the output is another than expected.
pub fn check(path: &Path, bless: bool) -> Result<(), String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    let (kind, case) = Case::read(&text, &extension)?;
    let expected = (kind.run)(&case)?;
    if expected == text {
        return Ok(());
    }
    if bless {
        return std::fs::write(path, expected).map_err(|error| error.to_string());
    }
    let diff = similar::TextDiff::from_lines(&text, &expected);
    let diff = diff.unified_diff().context_radius(3).header("file", "actual").to_string();
    Err(format!("{diff}\nset BLESS=1 to accept the actual output"))
}

impl Case {
    /// Takes a filetest apart.
    ///
    /// # Errors
    /// When there is no `; test:` line, no such kind, or no input.
    pub fn read(text: &str, extension: &str) -> Result<(&'static Kind, Case), String> {
        let is_input = |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with(';');
        let lines: Vec<&str> = text.lines().collect();
        let first = lines.iter().position(|line| is_input(line)).ok_or("the file has no input")?;
        let last = lines.iter().rposition(|line| is_input(line)).unwrap_or(first);
        let mut settings: Vec<(String, String)> = lines[..first]
            .iter()
            .filter_map(|line| line.strip_prefix("; ")?.split_once(": "))
            .map(|(key, value)| (key.to_owned(), value.trim().to_owned()))
            .collect();
        if settings.first().is_none_or(|(key, _)| key != "test") {
            return Err("the first line is not `; test: KIND`".into());
        }
        let (_, name) = settings.remove(0);
        let kind = KINDS.iter().find(|kind| kind.name == name).ok_or_else(|| {
            let known: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
            format!("there is no kind `{name}` in this build, only {}", known.join(", "))
        })?;
        if !kind.extensions.contains(&extension) {
            return Err(format!("a `{name}` test is not a .{extension} file"));
        }
        let expectation: Vec<&str> = lines[last + 1..]
            .iter()
            .skip_while(|line| line.is_empty())
            .map(|line| line.strip_prefix("; ").or(line.strip_prefix(';')).unwrap_or(line))
            .collect();
        let joined = |lines: &[&str]| lines.iter().map(|line| format!("{line}\n")).collect();
        let case = Case {
            extension: extension.to_owned(),
            settings,
            header: joined(&lines[..first]),
            input: joined(&lines[first..=last]),
            expectation: joined(&expectation),
        };
        Ok((kind, case))
    }

    /// The values of a setting that may be there several times.
    pub fn all_settings(&self, key: &str) -> impl Iterator<Item = &str> {
        self.settings.iter().filter(move |(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// The file with this output as the expectation.
    pub fn with_output(&self, output: &str) -> String {
        let mut text = format!("{}{}\n", self.header, self.input);
        for line in output.lines() {
            text.push_str(format!("; {line}").trim_end());
            text.push('\n');
        }
        text
    }

    /// The file with nothing behind the input, for kinds whose expectation is inside it.
    pub fn unchanged_without_expectation(&self) -> String {
        format!("{}{}", self.header, self.input)
    }

    /// The file as it is, but for blank lines before the expectation.
    pub fn unchanged(&self) -> String {
        self.with_output(&self.expectation)
    }
}
