//! The manifest: what must come of each test.
//!
//! A line is a test's name and one of
//!
//! ```text
//! pass                  right on the interpreter, and compiled on the emulator
//! interpreter REASON    right on the interpreter; the compiler refuses it
//! refused REASON        the importer refuses it
//! ```
//!
//! Lines that begin with `#` are comments; the first one names the version of the package, others say how often there is which
//! outcome.

use std::collections::{BTreeMap, BTreeSet};

use crate::outcome::{Observations, Outcome, counts};

/// The manifest.
#[derive(Debug)]
pub struct Manifest {
    /// The version of the package that the tests are from.
    pub version: String,
    expected: BTreeMap<String, Outcome>,
}

impl Manifest {
    /// Reads a manifest.
    ///
    /// # Errors
    /// The first line that is none.
    pub fn parse(text: &str) -> Result<Manifest, String> {
        let first = text.lines().next().unwrap_or_default();
        let version = first
            .strip_prefix("# Node tests of onnx ")
            .ok_or("the manifest's first line does not name the version of onnx")?;
        let mut expected = BTreeMap::new();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let words: Vec<&str> = line.split(' ').collect();
            let outcome = match words[1..] {
                ["pass"] => Outcome::Pass,
                ["interpreter", reason] => Outcome::Interpreter(reason.to_owned()),
                ["refused", reason] => Outcome::Refused(reason.to_owned()),
                _ => return Err(format!("the manifest's line {line:?} says no outcome")),
            };
            if expected.insert(words[0].to_owned(), outcome).is_some() {
                return Err(format!("the manifest names {:?} twice", words[0]));
            }
        }
        Ok(Manifest { version: version.to_owned(), expected })
    }

    /// Whether an outcome is the expected one or, with `bless`, one that may become it.
    ///
    /// # Errors
    /// Both outcomes, when they differ.
    pub fn judge(&self, name: &str, outcome: &Outcome, bless: bool) -> Result<(), String> {
        if let Outcome::Failed(message) = outcome {
            return Err(message.clone());
        }
        match self.expected.get(name) {
            _ if bless => Ok(()),
            Some(expected) if expected == outcome => Ok(()),
            Some(expected) => Err(format!(
                "the outcome is \"{outcome}\", but the manifest says \"{expected}\"; set BLESS=1 to accept it"
            )),
            None => Err(format!("the outcome is \"{outcome}\", but the manifest has no such test")),
        }
    }

    /// Checks that each line is about a test that there is.
    ///
    /// # Errors
    /// The lines that are not.
    pub fn check_names(&self, names: &[String]) -> Result<(), String> {
        let names: BTreeSet<&String> = names.iter().collect();
        let stale: Vec<&str> =
            self.expected.keys().filter(|name| !names.contains(name)).map(String::as_str).collect();
        match stale.as_slice() {
            [] => Ok(()),
            stale => {
                Err(format!("the manifest names tests that do not exist: {}", stale.join(", ")))
            }
        }
    }

    /// The manifest's text with the observed outcomes; tests that failed or did not run keep their lines.
    pub fn blessed(&self, observations: &Observations) -> String {
        let mut outcomes = self.expected.clone();
        for (name, outcome) in observations.iter() {
            if !matches!(outcome, Outcome::Failed(_)) {
                outcomes.insert(name.clone(), outcome.clone());
            }
        }
        let mut text = format!("# Node tests of onnx {}\n", self.version);
        text.push_str("# See manifest.rs; BLESS=1 cargo test -p fornax-tests --test conformance rewrites it.\n");
        for line in counts(outcomes.values()).lines() {
            text.push_str(&format!("# {line}\n"));
        }
        for (name, outcome) in &outcomes {
            text.push_str(&format!("{name} {outcome}\n"));
        }
        text
    }
}
