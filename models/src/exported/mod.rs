//! The importer of `.pt2` files, which `torch.export.save` writes.
//!
//! The archive's JSON ([`schema`]) holds the graph as calls of ATen operators with all arguments, sizes as expressions
//! of symbols with ranges, and a signature that tells parameters from inputs; the weights lie beside it ([`weights`]).

mod import;
mod node;
mod program;
mod schema;
mod symbolic;
mod types;
mod weights;

pub(crate) use import::import;
pub(crate) use program::is_exported;
