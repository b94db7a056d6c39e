//! Handlers: how each ATen operator becomes operations of the graph.

pub(super) mod attention;
pub(super) mod contraction;
pub(super) mod convert;
pub(super) mod create;
pub(super) mod facts;
pub(super) mod index;
pub(super) mod join;
pub(super) mod loss;
pub(super) mod norm;
pub(super) mod pad;
pub(super) mod pointwise;
pub(super) mod pool;
pub(super) mod recurrent;
pub(super) mod reduce;
pub(super) mod resize;
pub(super) mod shape;
pub(super) mod window;

use fornax_ir::{Diagnostic, NodeId};

use super::Item;
use super::call::{Build as _, Call};

/// Writes a result into the tensor `self`, in its element type and shape, and gives that tensor.
pub(super) fn assign(call: &mut Call<'_>, result: NodeId) -> Result<Item, Diagnostic> {
    let target = call.handle("self")?;
    let ty = call.type_of(&target.peek());
    let result = call.cast(result, ty.dtype)?;
    let result = call.broadcast(result, &ty.shape)?;
    target.write(call, result)?;
    Ok(target.into())
}
