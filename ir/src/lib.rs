//! The Fornax graph IR.
//!
//! A model is a [`Graph`] of operators from the op table ([`op`]). Importers build graphs, passes
//! rewrite them and group them into the regions of a [`plan::Plan`], code generation lowers regions.
//! The reference interpreter ([`interp`]) defines what a graph means.

mod attr;
mod diag;
mod graph;
mod index;
pub mod interp;
mod loc;
pub mod op;
pub mod plan;
mod scalar;
pub mod text;
mod types;
pub mod verify;

pub use attr::{AttrKind, AttrValue, Attrs, Float};
pub use diag::Diagnostic;
pub use fornax_bundle::{DType, Dim, DimRange, Dims, Precision, PrecisionPolicy, Symbol, Tensor};
pub use graph::{Graph, Node, NodeId, Output, infer, size_from_back};
pub use index::{Guard, IndexExpr, delinearize, linearize};
pub use loc::{Loc, LocSet, SourceMap, SourceNode};
pub use scalar::{BinaryFn, Scalar, ScalarExpr, UnaryFn};
pub use types::{Shape, Type};
