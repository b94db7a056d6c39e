//! Operators that take elements by index, and triangles.

use fornax_ir::{Attrs, Dim, NodeId, attrs};

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

/// ReverseSequence: the first elements of each sequence in reverse; how many is given for each of the batch.
pub(in crate::onnx) fn reverse_sequence(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let data = call.input(0)?;
    let shape = call.graph().ty(data).shape.to_vec();
    let time = call.axis(call.int_or("time_axis", 0)?, shape.len())?;
    let batch = call.axis(call.int_or("batch_axis", 1)?, shape.len())?;
    let lengths = along(call, 1, batch, &shape)?;
    let position = call.positions(time, &shape)?;
    let one = call.scalar_like(1.0, position)?;
    let last = call.add("sub", Attrs::none(), &[lengths, one])?;
    let mirrored = call.add("sub", Attrs::none(), &[last, position])?;
    let within = call.add("lt", Attrs::none(), &[position, lengths])?;
    let from = call.add("where", Attrs::none(), &[within, mirrored, position])?;
    call.add("gather_elements", attrs! { axis: time as i64 }, &[data, from])
}

/// TensorScatter: an update written into a cache, from a place on that is given for each of the batch; behind
/// the end it goes on at the begin if the mode is circular.
pub(in crate::onnx) fn tensor_scatter(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let (cache, update) = (call.input(0)?, call.input(1)?);
    let shape = call.graph().ty(cache).shape.to_vec();
    let axis = call.axis(call.int_or("axis", -2)?, shape.len())?;
    let mut from = call.positions(axis, &shape)?;
    let zero = call.scalar_like(0.0, from)?;
    if call.has(2) {
        let start = along(call, 2, 0, &shape)?;
        from = call.add("sub", Attrs::none(), &[from, start])?;
    }
    let is_early = call.add("lt", Attrs::none(), &[from, zero])?;
    match call.text_or("mode", "linear")? {
        "linear" => {}
        "circular" => {
            let size = known_size(call, &shape[axis])?;
            let size = call.scalar_like(size, from)?;
            let later = call.add("add", Attrs::none(), &[from, size])?;
            from = call.add("where", Attrs::none(), &[is_early, later, from])?;
        }
        other => return Err(call.invalid(format!("`mode` is {other:?}"))),
    }
    let count = call.graph().ty(update).shape.get(axis).cloned();
    let count = count.ok_or_else(|| call.invalid("the update must have the cache's rank"))?;
    let count = known_size(call, &count)?;
    let count = call.scalar_like(count, from)?;
    let begun = call.add("ge", Attrs::none(), &[from, zero])?;
    let within = call.add("lt", Attrs::none(), &[from, count])?;
    let within = call.add("and", Attrs::none(), &[begun, within])?;
    let from = call.add("where", Attrs::none(), &[within, from, zero])?;
    let written = call.add("gather_elements", attrs! { axis: axis as i64 }, &[update, from])?;
    call.add("where", Attrs::none(), &[within, written, cache])
}

fn known_size(call: &Call<'_, '_>, size: &Dim) -> Result<f64> {
    let known = size.as_const().map(|size| size as f64);
    known.ok_or_else(|| {
        call.fault("not-constant", format!("the size {size} must be known at compile time"))
            .note("specialise it with --dim")
    })
}

/// An input of whole numbers, one for each position along an axis, at every position of a shape.
fn along(call: &mut Call<'_, '_>, index: usize, axis: usize, shape: &[Dim]) -> Result<NodeId> {
    let node = call.input(index)?;
    let node = call.cast(node, fornax_ir::DType::I64)?;
    let mut column = vec![Dim::constant(1); shape.len()];
    column[axis] = shape[axis].clone();
    let column = call.reshape(node, &column)?;
    call.broadcast(column, shape)
}
