//! What comes of a test.

use std::collections::BTreeMap;
use std::fmt;

/// What came of a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Interpreter and compiled program both give the recorded results.
    Pass,
    /// The interpreter gives the recorded results; the compiler refuses the model for this reason.
    Interpreter(String),
    /// The model is refused with a clear error for this reason.
    Refused(String),
    /// A wrong result, a panic or an internal error.
    Failed(String),
}

/// The outcomes of all tests that ran, by name.
#[derive(Debug, Default)]
pub struct Observations(BTreeMap<String, Outcome>);

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Pass => write!(f, "pass"),
            Outcome::Interpreter(reason) => write!(f, "interpreter {reason}"),
            Outcome::Refused(reason) => write!(f, "refused {reason}"),
            Outcome::Failed(message) => write!(f, "failed: {message}"),
        }
    }
}

impl Observations {
    /// Adds a test's outcome.
    pub fn insert(&mut self, name: String, outcome: Outcome) {
        self.0.insert(name, outcome);
    }

    /// All outcomes by name.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &Outcome)> {
        self.0.iter()
    }

    /// How many tests had which outcome, a line each.
    pub fn summary(&self) -> String {
        counts(self.0.values())
    }
}

/// How often there is which outcome, a line each.
pub fn counts<'o>(outcomes: impl Iterator<Item = &'o Outcome>) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for outcome in outcomes {
        let kind = match outcome {
            Outcome::Failed(_) => "failed".to_owned(),
            other => other.to_string(),
        };
        *counts.entry(kind).or_insert(0) += 1;
    }
    counts.iter().map(|(kind, count)| format!("{count:5} {kind}\n")).collect()
}
