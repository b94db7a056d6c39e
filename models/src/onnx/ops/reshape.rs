//! Operators that give the same elements another shape.

use fornax_ir::{Dim, NodeId};

use crate::build::reshape::fill_open;
use crate::onnx::call::{Build as _, Call, Result};

/// Adds the reshape to the shape that `shape` computes.
pub(in crate::onnx) fn reshape(
    call: &mut Call<'_, '_>,
    shape: fn(&Call<'_, '_>) -> Result<Vec<Dim>>,
) -> Result<NodeId> {
    let target = shape(call)?;
    let input = call.input(0)?;
    call.reshape(input, &target)
}

/// Reshape: 0 copies a size (unless `allowzero`), -1 takes what is left.
pub(in crate::onnx) fn reshape_shape(call: &Call<'_, '_>) -> Result<Vec<Dim>> {
    let from = call.ty(0)?.shape;
    let wanted = match call.int_list("shape")? {
        Some(sizes) => sizes.into_iter().map(Dim::constant).collect(),
        None => call.dims(1, "shape")?,
    };
    let copies_zero = !call.flag("allowzero", false)?;
    let mut shape = Vec::with_capacity(wanted.len());
    let mut open = None;
    for (axis, size) in wanted.iter().enumerate() {
        match size.as_const() {
            Some(0) if copies_zero => match from.get(axis) {
                Some(size) => shape.push(size.clone()),
                None => {
                    let message = format!("the shape copies axis {axis}, which the input lacks");
                    return Err(call.invalid(message));
                }
            },
            Some(-1) if open.replace(axis).is_some() => {
                return Err(call.invalid("the shape has -1 more than once"));
            }
            Some(-1) => shape.push(Dim::constant(1)),
            Some(size) if size < 0 => {
                return Err(call.invalid(format!("the shape has the size {size}")));
            }
            _ => shape.push(size.clone()),
        }
    }
    match open {
        Some(axis) => fill_open(call, &from, shape, axis),
        None => Ok(shape),
    }
}

/// Flatten to a matrix at `axis`.
pub(in crate::onnx) fn flatten_shape(call: &Call<'_, '_>) -> Result<Vec<Dim>> {
    let from = call.ty(0)?.shape;
    let axis = call.int_or("axis", 1)?;
    let rank = from.rank() as i64;
    let at = if axis < 0 { axis.saturating_add(rank) } else { axis };
    if !(0..=rank).contains(&at) {
        return Err(call.invalid(format!("axis {axis} is out of range for rank {rank}")));
    }
    let (outer, inner) = from.split_at(at as usize);
    Ok(vec![outer.iter().product(), inner.iter().product()])
}

/// The axes of Squeeze and Unsqueeze: an attribute before opset 13, an input from then on.
fn listed_axes(call: &Call<'_, '_>) -> Result<Option<Vec<i64>>> {
    if call.has(1) { call.ints(1, "axes").map(Some) } else { call.int_list("axes") }
}

/// Squeeze: without axes, all axes of size 1 go.
pub(in crate::onnx) fn squeeze_shape(call: &Call<'_, '_>) -> Result<Vec<Dim>> {
    let from = call.ty(0)?.shape;
    let Some(axes) = listed_axes(call)? else {
        return Ok(from.iter().filter(|size| !size.is(1)).cloned().collect());
    };
    let axes = call.axes(&axes, from.rank())?;
    if let Some(&axis) = axes.iter().find(|&&axis| !from[axis].is(1)) {
        let message =
            format!("axis {axis} has size {}, and only size 1 can be squeezed", from[axis]);
        return Err(call.invalid(message));
    }
    let kept = from.iter().enumerate().filter(|(axis, _)| !axes.contains(axis));
    Ok(kept.map(|(_, size)| size.clone()).collect())
}

/// Unsqueeze: axes count in the result.
pub(in crate::onnx) fn unsqueeze_shape(call: &Call<'_, '_>) -> Result<Vec<Dim>> {
    let from = call.ty(0)?.shape;
    let axes = listed_axes(call)?.ok_or_else(|| call.needs("axes"))?;
    let axes = call.axes(&axes, from.rank() + axes.len())?;
    let mut shape = from.to_vec();
    for axis in axes {
        shape.insert(axis, Dim::constant(1));
    }
    Ok(shape)
}
