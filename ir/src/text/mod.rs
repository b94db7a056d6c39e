//! Text forms of graphs and plans, printed and parsed.
//!
//! ```text
//! ; comments go to the end of the line
//! graph @ffn(%x: f32[N,64], %"b:0": f32[128]) dims(N: 8..64 multiple of 8) -> (y: f32[N,128]) {
//!   %0 = weight {name = "fc.weight"} : f32[64,128]
//!   %1 = matmul %x, %0 : f32[N,128] @"fc/MatMul"
//!   %2 = constant {value = f32[] [0.5]} : f32[]
//!   %3 = reduce_sum %1 {axes = [1], keepdims = true} : f32[N,1] @["fc/Sum", "fc/Mean"]
//!   return %1
//! }
//! ```
//!
//! Everything is written out: types (checked against inference when read), attributes, the names of
//! the imported model's nodes behind `@`. Names that are no identifiers stand in quotes. Numbers read
//! back to the same bits: a NaN other than the usual one is written by its bits, such as `0x7fc00001`.
//! A tensor's elements follow in row-major order, or as `splat 0.5` when they are all the same.
//! Source ops take element type and shape from the printed type. The data of weights is not part of
//! the text.
//!
//! A plan lists the weights that regions read (with their elements if the compiler made them) and the
//! regions with their operands; output 0 of the region `r0` is `%r0#0`.
//!
//! ```text
//! plan @ffn(%x: f32[8,64]) -> (y: f32[8,128]) {
//!   weight %w: f32[64,128]
//!   weight %half: f32[1] = [0.5]
//!   %r0 = region(%x, %w)
//!     phase run
//!     schedule tile(block_m = 64, block_n = 64, block_k = 16, thread_m = 4, thread_n = 4)
//!     graph @ffn(%a0: f32[8,64], %a1: f32[64,128]) -> (y0: f32[8,128]) {
//!       %0 = matmul %a0, %a1 : f32[8,128] @"fc/MatMul"
//!       return %0
//!     }
//!   return %r0#0
//! }
//! ```
//!
//! Reading collects several faults, each with line and column. Text from anywhere may be read: it
//! cannot make the parser panic, recurse deeply or take memory out of proportion.

mod graph_parser;
mod lexer;
mod literal;
mod parser;
mod pieces;
mod plan_parser;
mod plan_printer;
mod printer;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

pub use pieces::{Application, parse_application, parse_tensors, print_tensor};
pub use plan_printer::print_plan;
pub use printer::{print_graph, value_names};

use crate::op::{OpClass, OpRef};
use crate::plan::Plan;
use crate::{AttrKind, Diagnostic, Graph, NodeId};

/// A place in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The line, from 1.
    pub line: usize,
    /// The character in the line, from 1.
    pub column: usize,
}

/// One fault in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextError {
    /// Where it is.
    pub position: Position,
    /// What is wrong: `text-syntax`, `text-name` (undefined or defined twice), `text-type` (a printed
    /// type that inference does not give), `text-limit`, or what the op itself says.
    pub diagnostic: Diagnostic,
}

/// The faults of a text, at most [`TextErrors::MOST`], in the order of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextErrors(Vec<TextError>);

impl TextErrors {
    /// Reading stops after this many faults.
    pub const MOST: usize = 20;

    fn new(mut errors: Vec<TextError>) -> TextErrors {
        errors.sort_by_key(|error| error.position);
        TextErrors(errors)
    }

    /// The faults; at least one.
    pub fn iter(&self) -> impl Iterator<Item = &TextError> {
        self.0.iter()
    }
}

/// Reads a graph.
///
/// # Errors
/// All faults, when the text is no graph.
pub fn parse_graph(text: &str) -> Result<Graph, TextErrors> {
    parse_graph_with_positions(text).map(|(graph, _)| graph)
}

/// Reads a graph; also tells where each node is declared.
///
/// # Errors
/// As [`parse_graph`].
pub fn parse_graph_with_positions(
    text: &str,
) -> Result<(Graph, BTreeMap<NodeId, Position>), TextErrors> {
    graph_parser::graph(text).map_err(TextErrors::new)
}

/// Reads a plan.
///
/// # Errors
/// All faults, when the text is no plan.
pub fn parse_plan(text: &str) -> Result<Plan, TextErrors> {
    plan_parser::plan(text).map_err(TextErrors::new)
}

impl std::str::FromStr for Plan {
    type Err = TextErrors;

    fn from_str(text: &str) -> Result<Plan, TextErrors> {
        parse_plan(text)
    }
}

impl std::str::FromStr for Graph {
    type Err = TextErrors;

    fn from_str(text: &str) -> Result<Graph, TextErrors> {
        parse_graph(text)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.position, self.diagnostic)
    }
}

impl fmt::Display for TextErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, error) in self.0.iter().enumerate() {
            write!(f, "{}{error}", if position == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

impl std::error::Error for TextErrors {}

impl Position {
    /// The place of a byte offset.
    fn of(text: &str, offset: usize) -> Position {
        let before = &text[..offset.min(text.len())];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = before.bytes().filter(|&byte| byte == b'\n').count() + 1;
        Position { line, column: before[line_start..].chars().count() + 1 }
    }
}

/// The attributes of source ops that text forms do not repeat: the printed type has them.
fn type_attrs(op: OpRef) -> &'static [(&'static str, AttrKind)] {
    const TYPE_ATTRS: &[(&str, AttrKind)] =
        &[("dtype", AttrKind::DType), ("shape", AttrKind::Dims)];
    let declares = |attr| op.def().attrs.contains(attr);
    if matches!(op.class(), OpClass::Source(_)) && TYPE_ATTRS.iter().all(declares) {
        TYPE_ATTRS
    } else {
        &[]
    }
}
