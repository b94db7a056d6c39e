//! What can go wrong when a graph is evaluated.

use fornax_bundle::{Dim, DimError, Symbol};

use crate::Diagnostic;

/// Why a graph cannot be evaluated on given values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InterpError {
    /// Another number of inputs was given. User's call.
    #[error("the graph takes {expected} inputs, {actual} were given")]
    InputCount {
        /// What the graph takes.
        expected: usize,
        /// What was given.
        actual: usize,
    },
    /// An input or weight has the wrong element type or rank. User's call.
    #[error("`{name}` is {expected}, but {actual} was given")]
    Type {
        /// The input or weight.
        name: String,
        /// The type the graph declares.
        expected: String,
        /// The type of what was given.
        actual: String,
    },
    /// An axis of an input has another size than declared. User's call.
    #[error("axis {axis} of `{name}` has {actual} elements, but `{dim}` is {expected}")]
    Size {
        /// The input or weight.
        name: String,
        /// Which axis.
        axis: usize,
        /// The declared size.
        dim: Dim,
        /// Its value.
        expected: i64,
        /// The size of what was given.
        actual: usize,
    },
    /// The data of a weight is not known. User's call: bind it.
    #[error("the weight `{0}` has no data; give it with the other weights")]
    Weight(String),
    /// A symbol's value follows from no input. User's call: give it.
    #[error("the dimension `{0}` follows from no input; give its value")]
    Symbol(Symbol),
    /// A size has no value. User's model.
    #[error("in the type of `{op}`: {source}")]
    Dim {
        /// The op whose result has the size.
        op: &'static str,
        /// What is wrong with it.
        source: DimError,
    },
    /// A size comes out negative or too large for memory. User's model or sizes.
    #[error("the result of `{op}` would have the sizes {sizes:?}")]
    Shape {
        /// The op.
        op: &'static str,
        /// The sizes.
        sizes: Vec<i64>,
    },
    /// The op needs real numbers and cannot be evaluated in the prime field. The caller's choice.
    #[error("`{0}` is no polynomial: it cannot be evaluated in the prime field")]
    NotPolynomial(&'static str),
    /// The op is no computation on operands: sources have no evaluation of their own. The caller's
    /// choice.
    #[error("`{0}` is a source: it has no operands to evaluate")]
    Source(&'static str),
    /// The op rejects its operands. User's model.
    #[error("{0}")]
    Invalid(Box<Diagnostic>),
    /// The class data of an op contradicts itself. Our bug.
    #[error("the lowering of `{op}` is wrong: {message}")]
    Lowering {
        /// The op.
        op: &'static str,
        /// How.
        message: String,
    },
}
