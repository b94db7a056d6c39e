//! Operators that move elements.

use fornax_ir::{Dim, NodeId, Shape, Tensor};

use crate::build::movement;
pub(in crate::onnx) use crate::build::movement::{join, permute, take, take_axis};
use crate::build::sizes::{self, Span};
use crate::onnx::call::{Build as _, Call, Result, Value, common_shape};
use crate::onnx::tensor;

/// Transpose.
pub(in crate::onnx) fn transpose(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let order = permutation(call, call.ty(0)?.rank())?;
    let input = call.input(0)?;
    permute(call, input, &order)
}

/// The order of axes that Transpose asks for.
pub(in crate::onnx) fn permutation(call: &Call<'_, '_>, rank: usize) -> Result<Vec<usize>> {
    let Some(order) = call.int_list("perm")? else { return Ok((0..rank).rev().collect()) };
    let axes = order.iter().map(|&axis| call.axis(axis, rank)).collect::<Result<Vec<_>>>()?;
    let mut sorted = axes.clone();
    sorted.sort_unstable();
    if sorted.iter().copied().eq(0..rank) {
        Ok(axes)
    } else {
        Err(call.invalid(format!("`perm` {order:?} is not a permutation of {rank} axes")))
    }
}

/// Expand: to the common shape of the input and the given sizes.
pub(in crate::onnx) fn expand(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let sizes = call.dims(1, "shape")?;
    let from = call.ty(0)?.shape;
    let target = common_shape(&[&from, &sizes]).map_err(|message| call.invalid(message))?;
    let input = call.input(0)?;
    call.broadcast(input, &target)
}

/// Tile: each axis with its repetitions before it, made one.
pub(in crate::onnx) fn tile(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let from = call.ty(0)?.shape;
    let repeats = call.dims(1, "repeats")?;
    if repeats.len() != from.rank() {
        let message = format!("{} repeats are given for rank {}", repeats.len(), from.rank());
        return Err(call.invalid(message));
    }
    let input = call.input(0)?;
    movement::tile(call, input, &repeats)
}

/// Slice.
pub(in crate::onnx) fn slice(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let from = call.ty(0)?.shape;
    let spans = slice_spans(call, &from)?;
    let input = call.input(0)?;
    take(call, input, &spans)
}

/// The part of each axis that Slice takes. Starts and ends are attributes before opset 10, inputs from
/// then on.
pub(in crate::onnx) fn slice_spans(call: &Call<'_, '_>, from: &[Dim]) -> Result<Vec<Span>> {
    let fixed = |sizes: Vec<i64>| sizes.into_iter().map(Dim::constant).collect::<Vec<_>>();
    let (starts, ends) = match (call.int_list("starts")?, call.int_list("ends")?) {
        (Some(starts), Some(ends)) => (fixed(starts), fixed(ends)),
        _ => (call.dims(1, "starts")?, call.dims(2, "ends")?),
    };
    let axes = if call.has(3) { Some(call.ints(3, "axes")?) } else { call.int_list("axes")? };
    let axes = axes.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = if call.has(4) { call.ints(4, "steps")? } else { vec![1; starts.len()] };
    if [ends.len(), axes.len(), steps.len()] != [starts.len(); 3] {
        return Err(call.invalid("starts, ends, axes and steps differ in length"));
    }
    call.axes(&axes, from.len())?;
    let whole = |size: &Dim| Span { start: Dim::constant(0), count: size.clone(), step: 1 };
    let mut spans: Vec<Span> = from.iter().map(whole).collect();
    for (position, &axis) in axes.iter().enumerate() {
        let axis = call.axis(axis, from.len())?;
        let (start, end, step) = (&starts[position], &ends[position], steps[position]);
        if step == 0 {
            return Err(call.invalid("a step is 0"));
        }
        spans[axis] = sizes::span(start, end, step, &from[axis]).ok_or_else(|| {
            call.fault(
                "onnx-not-constant",
                format!("whether {start}..{end} counts from the front or the back is not known"),
            )
        })?;
    }
    Ok(spans)
}

/// Split: one slice an output.
pub(in crate::onnx) fn split(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let from = call.ty(0)?.shape;
    let (axis, parts) = split_parts(call, &from)?;
    let input = call.input(0)?;
    let mut start = Dim::constant(0);
    let mut outputs = Vec::with_capacity(parts.len());
    for part in parts {
        outputs.push(take_axis(call, input, axis, start.clone(), part.clone())?.into());
        start = start + part;
    }
    Ok(outputs)
}

/// Axis and sizes of Split: given by an attribute (before opset 13) or an input, or equal parts, whose
/// last is smaller where the size is not divisible (opset 18).
pub(in crate::onnx) fn split_parts(call: &Call<'_, '_>, from: &[Dim]) -> Result<(usize, Vec<Dim>)> {
    let axis = call.axis(call.int_or("axis", 0)?, from.len())?;
    let size = &from[axis];
    let count = call.int("num_outputs")?;
    let listed = match call.int_list("split")? {
        Some(sizes) => Some(sizes.into_iter().map(Dim::constant).collect()),
        None if call.has(1) => Some(call.dims(1, "split")?),
        None => None,
    };
    let outputs = call.node.output.len();
    if let Some(parts) = listed {
        let sum: Dim = parts.iter().cloned().sum();
        if &sum != size || parts.len() != outputs || count.is_some() {
            let parts = Shape::from(parts);
            let message = format!(
                "the parts {parts} for {outputs} outputs do not add up to axis {axis} of size {size}"
            );
            return Err(call.invalid(message));
        }
        return Ok((axis, parts));
    }
    if count.is_some_and(|count| count != outputs as i64) || outputs == 0 {
        return Err(call.invalid(format!("`num_outputs` is not the number of outputs, {outputs}")));
    }
    let part = size.ceil_div(&Dim::from(outputs));
    let last = size - &part * Dim::from(outputs - 1);
    let uneven = part != last;
    if uneven && (count.is_none() || sizes::bounds(&last).0 < 0) {
        let message =
            format!("axis {axis} of size {size} cannot be split into {outputs} equal parts");
        return Err(call.invalid(message));
    }
    let mut parts = vec![part; outputs - 1];
    parts.push(last);
    Ok((axis, parts))
}

/// Concat.
pub(in crate::onnx) fn concat(call: &mut Call<'_, '_>) -> Result<NodeId> {
    // Before opset 4 the axis was optional.
    let axis = call.int("axis")?.ok_or_else(|| call.needs("axis"))?;
    let axis = call.axis(axis, call.ty(0)?.rank())?;
    let parts = call.all_inputs()?;
    join(call, &parts, axis)
}

/// DepthToSpace: with the formulas of ONNX, opset 13.
pub(in crate::onnx) fn depth_to_space(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let (shape, block) = image_and_block(call)?;
    let [batch, depth, height, width] = shape;
    let area = &block * &block;
    let channels = depth.divided_exactly(&area).ok_or_else(|| {
        call.invalid(format!("{depth} channels are not divisible by {block} * {block}"))
    })?;
    let (spread, order) = match call.text_or("mode", "DCR")? {
        "DCR" => ([&batch, &block, &block, &channels, &height, &width], [0, 3, 4, 1, 5, 2]),
        "CRD" => ([&batch, &channels, &block, &block, &height, &width], [0, 1, 4, 2, 5, 3]),
        mode => return Err(call.unsupported(format!("mode {mode:?} is not supported"))),
    };
    let joined = [batch.clone(), channels.clone(), &height * &block, &width * &block];
    blocks(call, &spread, &order, &joined)
}

/// SpaceToDepth: the inverse of DepthToSpace; its `mode` came with opset 28.
pub(in crate::onnx) fn space_to_depth(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let (shape, block) = image_and_block(call)?;
    let [batch, channels, height, width] = shape;
    let divide = |size: &Dim| {
        size.divided_exactly(&block)
            .ok_or_else(|| call.invalid(format!("size {size} is not divisible by {block}")))
    };
    let (rows, columns) = (divide(&height)?, divide(&width)?);
    let order = match call.text_or("mode", "DCR")? {
        "DCR" => [0, 3, 5, 1, 2, 4],
        "CRD" => [0, 1, 3, 5, 2, 4],
        mode => return Err(call.unsupported(format!("mode {mode:?} is not supported"))),
    };
    let spread = [&batch, &channels, &rows, &block, &columns, &block];
    let joined = [batch.clone(), &channels * &block * &block, rows.clone(), columns.clone()];
    blocks(call, &spread, &order, &joined)
}

fn image_and_block(call: &Call<'_, '_>) -> Result<([Dim; 4], Dim)> {
    let block = call.int("blocksize")?.ok_or_else(|| call.needs("blocksize"))?;
    if block < 1 {
        return Err(call.invalid(format!("`blocksize` is {block}")));
    }
    let ty = call.ty(0)?;
    let shape: [Dim; 4] = ty
        .shape
        .to_vec()
        .try_into()
        .map_err(|_| call.invalid(format!("the input must have rank 4, but is {ty}")))?;
    Ok((shape, Dim::constant(block)))
}

fn blocks(
    call: &mut Call<'_, '_>,
    spread: &[&Dim],
    order: &[usize],
    joined: &[Dim],
) -> Result<NodeId> {
    let spread: Vec<Dim> = spread.iter().map(|&size| size.clone()).collect();
    let input = call.input(0)?;
    let spread = call.reshape(input, &spread)?;
    let turned = permute(call, spread, order)?;
    call.reshape(turned, joined)
}

/// The element of ConstantOfShape: a float 0 unless the attribute says otherwise.
pub(in crate::onnx) fn fill_value(call: &Call<'_, '_>) -> Result<Tensor> {
    let Some(proto) = call.tensor("value")? else {
        return Ok(Tensor::from_f32(&[], &[0.0]));
    };
    let value = tensor::to_tensor(proto)
        .map_err(|error| call.invalid(format!("attribute `value`: {error}")))?;
    if value.len() != 1 {
        return Err(call.invalid(format!("attribute `value` has {} elements, not 1", value.len())));
    }
    value.reshaped([]).map_err(|error| call.invalid(error.to_string()))
}
