//! Operators that take elements by index, and triangles.

use fornax_ir::{Dim, NodeId, attrs};

use super::movement::take_axis;
use crate::onnx::call::{Build as _, Call, Result};

/// Gather along an axis.
pub(in crate::onnx) fn gather(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let axis = call.axis(call.int_or("axis", 0)?, call.ty(0)?.rank())?;
    if let Some(position) = only_position(call, axis)? {
        let data = call.input(0)?;
        let taken = take_axis(call, data, axis, position, Dim::constant(1))?;
        let mut shape = call.graph().ty(taken).shape.to_vec();
        shape.remove(axis);
        return call.reshape(taken, &shape);
    }
    let (data, indices) = (call.input(0)?, call.input(1)?);
    call.add("gather", attrs! { axis: axis as i64 }, &[data, indices])
}

/// The position that a Gather takes, where it is one known number within the axis.
fn only_position(call: &Call<'_, '_>, axis: usize) -> Result<Option<Dim>> {
    if call.ty(1)?.rank() > 0 {
        return Ok(None);
    }
    let size = &call.ty(0)?.shape[axis];
    let (Some(&[index]), Some(size)) =
        (call.known(1).and_then(|known| known.ints()).as_deref(), size.as_const())
    else {
        return Ok(None);
    };
    let position = if index < 0 { index + size } else { index };
    Ok((0..size).contains(&position).then(|| Dim::constant(position)))
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
