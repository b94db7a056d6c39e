//! Operators that a model uses and an importer does not have.

use std::collections::BTreeMap;

use fornax_ir::{Diagnostic, SourceMap, SourceNode};

/// The operators that are missing, with how often and where first.
#[derive(Default)]
pub(crate) struct Missing(BTreeMap<String, (usize, SourceNode)>);

impl Missing {
    /// Counts a node; `kind` names the operator.
    pub(crate) fn add(&mut self, kind: String, node: impl FnOnce() -> SourceNode) {
        self.0.entry(kind).or_insert_with(|| (0, node())).0 += 1;
    }

    /// One fault for all of them, if there are any.
    pub(crate) fn fault(self, code: &str, sources: &mut SourceMap) -> Option<Diagnostic> {
        let (_, (_, first)) = self.0.first_key_value()?;
        let loc = sources.add(first.clone());
        let kinds: Vec<&str> = self.0.keys().map(String::as_str).collect();
        let message = match kinds[..] {
            [one] => format!("the operator {one} is not supported"),
            _ => format!("{} operators are not supported: {}", kinds.len(), kinds.join(", ")),
        };
        let mut fault = Diagnostic::new(code, message).at(loc);
        for (kind, (count, first)) in &self.0 {
            let nodes = if *count == 1 { "1 node".to_owned() } else { format!("{count} nodes") };
            let index = first.index.map_or(String::new(), |index| format!(" {index}"));
            fault = fault.note(format!("{kind}: {nodes}, first node{index} {:?}", first.name));
        }
        Some(fault)
    }
}
