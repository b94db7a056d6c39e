//! Composition rules.

use std::fmt;

/// The rule by which two regions may become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// Both read the same value.
    Siblings,
    /// A pointwise region joins what uses it.
    Prologue,
    /// A pointwise region joins what it uses.
    Epilogue,
    /// Reductions of the same rows join.
    ReductionChain,
    /// Reductions join the contraction whose result they fold.
    ResultReduction,
}

impl Rule {
    /// The name in reports and ledgers.
    pub fn name(self) -> &'static str {
        match self {
            Rule::Siblings => "siblings",
            Rule::Prologue => "prologue",
            Rule::Epilogue => "epilogue",
            Rule::ReductionChain => "reduction-chain",
            Rule::ResultReduction => "result-reduction",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
