//! Diagnostics: what is wrong, where in the user's model, and what to do.

use std::fmt;

use crate::{LocSet, SourceMap};

/// One fault, with the place in the imported model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// The constraint or area, such as `matmul.C2` or `onnx-opset`.
    pub code: String,
    /// What is wrong, in one line, lower case, no full stop.
    pub message: String,
    /// Where.
    pub loc: LocSet,
    /// Further facts and what to do, a line each.
    pub notes: Vec<String>,
}

impl Diagnostic {
    /// A fault without a place.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            code: code.into(),
            message: message.into(),
            loc: LocSet::none(),
            notes: Vec::new(),
        }
    }

    /// Adds the place.
    pub fn at(mut self, loc: impl Into<LocSet>) -> Diagnostic {
        self.loc.union(&loc.into());
        self
    }

    /// Adds a fact or advice.
    pub fn note(mut self, note: impl Into<String>) -> Diagnostic {
        self.notes.push(note.into());
        self
    }

    /// The whole message for people.
    ///
    /// ```text
    /// error[matmul.C2]: inner dimensions differ: 784 and 768
    ///   --> mlp.onnx: node 17 "encoder/fc1/MatMul" (MatMul, opset 17)
    ///   note: ...
    /// ```
    pub fn render(&self, sources: &SourceMap) -> String {
        let mut text = format!("error[{}]: {}", self.code, self.message);
        for loc in self.loc.iter() {
            let node = sources.get(loc);
            text.push_str("\n  --> ");
            if !sources.file.is_empty() {
                text.push_str(&sources.file);
                text.push_str(": ");
            }
            text.push_str("node ");
            if let Some(index) = node.index {
                text.push_str(&format!("{index} "));
            }
            text.push_str(&format!("\"{}\"", node.name));
            match (&*node.op_type, node.opset) {
                ("", _) => {}
                (op_type, Some(opset)) => text.push_str(&format!(" ({op_type}, opset {opset})")),
                (op_type, None) => text.push_str(&format!(" ({op_type})")),
            }
        }
        for note in &self.notes {
            text.push_str("\n  note: ");
            text.push_str(note);
        }
        text
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[{}]: {}", self.code, self.message)
    }
}

impl std::error::Error for Diagnostic {}
