//! Reductions, arg-reductions, scans.

use fornax_ir::{DType, NodeId, attrs};

pub(in crate::onnx) use crate::build::reduce::{along, fold};
use crate::onnx::call::{Build as _, Call, Result};

/// The axes that a reduction folds: an attribute or (from opset 13 for ReduceSum, 18 for the others) an
/// input. `None`: no axes are given and `noop_with_empty_axes` says to fold nothing.
pub(in crate::onnx) fn axes(call: &Call<'_, '_>, rank: usize) -> Result<Option<Vec<usize>>> {
    let listed = if call.has(1) { Some(call.ints(1, "axes")?) } else { call.int_list("axes")? };
    let nothing = call.flag("noop_with_empty_axes", false)?;
    match listed.filter(|axes| !axes.is_empty()) {
        Some(axes) => call.axes(&axes, rank).map(Some),
        None if nothing => Ok(None),
        None => Ok(Some((0..rank).collect())),
    }
}

/// A reduction. Over no axes, what it does besides folding remains.
pub(in crate::onnx) fn reduce(call: &mut Call<'_, '_>, op: &str) -> Result<NodeId> {
    let ty = call.ty(0)?;
    let axes = axes(call, ty.rank())?.unwrap_or_default();
    let keepdims = call.flag("keepdims", true)?;
    // From opset 20 on, the extremes of truth values exist: any and all.
    let op = match (op, ty.dtype) {
        ("reduce_max", DType::Bool) => "reduce_any",
        ("reduce_min", DType::Bool) => "reduce_all",
        _ => op,
    };
    let input = call.input(0)?;
    fold(call, op, input, &axes, keepdims)
}

/// ArgMax, ArgMin.
pub(in crate::onnx) fn arg(call: &mut Call<'_, '_>, op: &str) -> Result<NodeId> {
    let axis = call.axis(call.int_or("axis", 0)?, call.ty(0)?.rank())?;
    let keepdims = call.flag("keepdims", true)?;
    let last = call.flag("select_last_index", false)?;
    let input = call.input(0)?;
    call.add(op, attrs! { axis: axis as i64, keepdims: keepdims, select_last: last }, &[input])
}

/// CumSum, CumProd.
pub(in crate::onnx) fn scan(call: &mut Call<'_, '_>, op: &str) -> Result<NodeId> {
    let axis = match call.ints(1, "axis")?[..] {
        [axis] => call.axis(axis, call.ty(0)?.rank())?,
        _ => return Err(call.invalid("`axis` must be one number")),
    };
    let exclusive = call.flag("exclusive", false)?;
    let reverse = call.flag("reverse", false)?;
    let input = call.input(0)?;
    call.add(op, attrs! { axis: axis as i64, exclusive: exclusive, reverse: reverse }, &[input])
}

/// Softmax and its like: along one axis, or before opset 13 over all axes from one on.
pub(in crate::onnx) fn softmax(call: &mut Call<'_, '_>, op: &str) -> Result<NodeId> {
    let ty = call.ty(0)?;
    let input = call.input(0)?;
    if call.opset >= 13 {
        let axis = call.axis(call.int_or("axis", -1)?, ty.rank())?;
        return along(call, op, input, axis);
    }
    let axis = call.int_or("axis", 1)?;
    let from = if axis == ty.rank() as i64 { ty.rank() } else { call.axis(axis, ty.rank())? };
    let (outer, inner) = ty.shape.split_at(from);
    if inner.len() == 1 {
        return along(call, op, input, from);
    }
    let matrix = [outer.iter().product(), inner.iter().product()];
    let matrix = call.reshape(input, &matrix)?;
    let result = along(call, op, matrix, 1)?;
    call.reshape(result, &ty.shape)
}
