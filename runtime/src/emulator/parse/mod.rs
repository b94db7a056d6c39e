//! Reads PTX text into a syntax tree with resolved registers.

mod body;
mod cursor;
mod lexer;
mod module;
mod types;

pub(crate) use body::{Instruction, Operand, RegisterClass, RegisterId};
pub(crate) use module::{Kernel, Variable, parse};
pub(crate) use types::{Space, Type};

use crate::error::Error;

/// A result of parsing or decoding.
pub(crate) type ParseResult<T> = Result<T, Error>;

/// The PTX text, for messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source<'a> {
    /// The whole text.
    pub(crate) text: &'a str,
}

impl Source<'_> {
    /// The text of a line, trimmed; empty past the end.
    pub(crate) fn line(&self, line: u32) -> &str {
        self.text.lines().nth((line as usize).saturating_sub(1)).unwrap_or("").trim()
    }

    /// An error at a line.
    pub(crate) fn error(&self, line: u32, message: impl Into<String>) -> Error {
        let text = self.line(line).to_owned();
        Error::Ptx { line: line as usize, text, message: message.into() }
    }
}
