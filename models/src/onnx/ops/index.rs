//! Operators that take elements by index, and triangles.

use fornax_ir::{NodeId, attrs};

use crate::onnx::call::{Call, Result};

/// Gather along an axis.
pub(in crate::onnx) fn gather(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let axis = call.axis(call.int_or("axis", 0)?, call.ty(0)?.rank())?;
    let (data, indices) = (call.input(0)?, call.input(1)?);
    call.add("gather", attrs! { axis: axis as i64 }, &[data, indices])
}

/// GatherElements along an axis.
pub(in crate::onnx) fn gather_elements(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let axis = call.axis(call.int_or("axis", 0)?, call.ty(0)?.rank())?;
    let (data, indices) = (call.input(0)?, call.input(1)?);
    call.add("gather_elements", attrs! { axis: axis as i64 }, &[data, indices])
}

/// GatherND.
pub(in crate::onnx) fn gather_nd(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let batch_dims = call.int_or("batch_dims", 0)?;
    let (data, indices) = (call.input(0)?, call.input(1)?);
    call.add("gather_nd", attrs! { batch_dims: batch_dims }, &[data, indices])
}

/// Trilu: the upper or lower triangle of each matrix, from the `k`-th diagonal on.
pub(in crate::onnx) fn trilu(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let upper = call.flag("upper", true)?;
    let diagonal = match call.has(1) {
        false => 0,
        true => match call.ints(1, "k")?[..] {
            [diagonal] => diagonal,
            _ => return Err(call.invalid("`k` must be one number")),
        },
    };
    let input = call.input(0)?;
    call.add("trilu", attrs! { upper: upper, k: diagonal }, &[input])
}
