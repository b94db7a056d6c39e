//! Operators that join, repeat and rearrange elements.

use fornax_ir::{Dim, NodeId, attrs};

use crate::aten::Item;
use crate::aten::call::{Build as _, Call, Result};
use crate::build::movement::{join, permute, take, take_axis, tile as tiled};
use crate::build::sizes::Span;

/// cat: empty vectors among the parts do not count.
pub(in crate::aten) fn cat(call: &mut Call<'_>) -> Result<NodeId> {
    let nodes = call.inputs("tensors")?;
    let is_part = |&node: &NodeId| call.graph().ty(node).shape[..] != [Dim::constant(0)];
    let parts: Vec<NodeId> = match nodes.iter().any(is_part) {
        true => nodes.into_iter().filter(is_part).collect(),
        false => nodes,
    };
    let Some(&first) = parts.first() else { return Err(call.invalid("there is nothing to join")) };
    let axis = call.axis_of("dim", call.graph().ty(first).rank())?;
    let parts = promoted(call, &parts)?;
    join(call, &parts, axis)
}

fn promoted(call: &mut Call<'_>, nodes: &[NodeId]) -> Result<Vec<NodeId>> {
    let dtype = call.common_dtype_of(nodes)?;
    nodes.iter().map(|&node| call.cast(node, dtype)).collect()
}

/// stack: along a new axis.
pub(in crate::aten) fn stack(call: &mut Call<'_>) -> Result<NodeId> {
    let nodes = call.inputs("tensors")?;
    let nodes = promoted(call, &nodes)?;
    let Some(&first) = nodes.first() else { return Err(call.invalid("there is nothing to join")) };
    let axis = call.axis_of("dim", call.graph().ty(first).rank() + 1)?;
    let mut parts = Vec::with_capacity(nodes.len());
    for node in nodes {
        let mut shape = call.graph().ty(node).shape.to_vec();
        shape.insert(axis.min(shape.len()), Dim::constant(1));
        parts.push(call.reshape(node, &shape)?);
    }
    join(call, &parts, axis)
}

/// repeat and tile: counts for the last axes; more counts than axes give new ones.
pub(in crate::aten) fn repeat(call: &mut Call<'_>, argument: &str) -> Result<NodeId> {
    let input = call.input("self")?;
    let from = call.graph().ty(input).shape.clone();
    let mut counts = call.dims(argument)?;
    let one = Dim::constant(1);
    while counts.len() < from.rank() {
        counts.insert(0, one.clone());
    }
    let mut shape = vec![one; counts.len() - from.rank()];
    shape.extend(from.iter().cloned());
    let input = call.reshape(input, &shape)?;
    tiled(call, input, &counts)
}

/// repeat_interleave: each element several times in a row.
pub(in crate::aten) fn repeat_interleave(call: &mut Call<'_>) -> Result<NodeId> {
    let mut input = call.input("self")?;
    if !call.has("dim") {
        let elements = call.graph().ty(input).shape.elements();
        input = call.reshape(input, &[elements])?;
    }
    let shape = call.graph().ty(input).shape.to_vec();
    let axis = if call.has("dim") { call.axis_of("dim", shape.len())? } else { 0 };
    let count = call.dim("repeats")?;
    let mut spread = shape.clone();
    spread.insert(axis + 1, Dim::constant(1));
    let mut repeated = spread.clone();
    repeated[axis + 1] = count.clone();
    let mut joined = shape;
    joined[axis] = &joined[axis] * &count;
    let node = call.reshape(input, &spread)?;
    let node = call.broadcast(node, &repeated)?;
    call.reshape(node, &joined)
}

/// flip: axes backwards.
pub(in crate::aten) fn flip(call: &mut Call<'_>) -> Result<NodeId> {
    let input = call.input("self")?;
    let shape = call.graph().ty(input).shape.clone();
    let axes = call.axes(&call.ints("dims")?, shape.rank())?;
    let span = |(axis, size): (usize, &Dim)| match axes.contains(&axis) {
        true => Span { start: size - Dim::constant(1), count: size.clone(), step: -1 },
        false => Span { start: Dim::constant(0), count: size.clone(), step: 1 },
    };
    let spans: Vec<Span> = shape.iter().enumerate().map(span).collect();
    take(call, input, &spans)
}

/// roll: what leaves an axis at one end enters it at the other.
pub(in crate::aten) fn roll(call: &mut Call<'_>) -> Result<NodeId> {
    let mut node = call.input("self")?;
    let shape = call.graph().ty(node).shape.clone();
    let (shifts, axes) = (call.ints("shifts")?, call.ints("dims")?);
    if axes.is_empty() {
        node = call.reshape(node, &[shape.elements()])?;
    }
    let axes = if axes.is_empty() { vec![0] } else { axes };
    if shifts.len() != axes.len() {
        return Err(call.invalid("`shifts` and `dims` differ in length"));
    }
    for (shift, axis) in shifts.into_iter().zip(axes) {
        let axis = call.axis(axis, call.graph().ty(node).rank())?;
        let size = call.graph().ty(node).shape[axis].clone();
        let shift = Dim::constant(shift).modulo(&size);
        if shift.is(0) {
            continue;
        }
        let kept = &size - &shift;
        let tail = take_axis(call, node, axis, kept.clone(), shift)?;
        let head = take_axis(call, node, axis, Dim::constant(0), kept)?;
        node = join(call, &[tail, head], axis)?;
    }
    call.reshape(node, &shape)
}

/// tril, triu.
pub(in crate::aten) fn triangle(call: &mut Call<'_>, upper: bool) -> Result<NodeId> {
    let diagonal = call.int("diagonal")?;
    let input = call.input("self")?;
    call.add("trilu", attrs! { upper: upper, k: diagonal }, &[input])
}

/// pixel_shuffle: channels become blocks of pixels.
pub(in crate::aten) fn pixel_shuffle(call: &mut Call<'_>) -> Result<NodeId> {
    let input = call.input("self")?;
    let shape = call.graph().ty(input).shape.to_vec();
    let factor = call.dim("upscale_factor")?;
    let [outer @ .., depth, height, width] = &shape[..] else {
        return Err(call.invalid("the input needs channels and two spatial axes"));
    };
    let channels = depth.divided_exactly(&(&factor * &factor)).ok_or_else(|| {
        call.invalid(format!("{depth} channels are not divisible by {factor} * {factor}"))
    })?;
    let inner = [channels.clone(), factor.clone(), factor.clone(), height.clone(), width.clone()];
    let joined = [channels, height * &factor, width * &factor];
    let order = [0, 3, 1, 4, 2];
    blocks(call, input, outer, &inner, &order, &joined)
}

/// pixel_unshuffle: the inverse of pixel_shuffle.
pub(in crate::aten) fn pixel_unshuffle(call: &mut Call<'_>) -> Result<NodeId> {
    let input = call.input("self")?;
    let shape = call.graph().ty(input).shape.to_vec();
    let factor = call.dim("downscale_factor")?;
    let [outer @ .., channels, height, width] = &shape[..] else {
        return Err(call.invalid("the input needs channels and two spatial axes"));
    };
    let divide = |size: &Dim| {
        size.divided_exactly(&factor)
            .ok_or_else(|| call.invalid(format!("size {size} is not divisible by {factor}")))
    };
    let (rows, columns) = (divide(height)?, divide(width)?);
    let inner = [channels.clone(), rows.clone(), factor.clone(), columns.clone(), factor.clone()];
    let joined = [channels * &factor * &factor, rows, columns];
    let order = [0, 2, 4, 1, 3];
    blocks(call, input, outer, &inner, &order, &joined)
}

/// channel_shuffle: channels counted across groups first.
pub(in crate::aten) fn channel_shuffle(call: &mut Call<'_>) -> Result<NodeId> {
    let input = call.input("self")?;
    let shape = call.graph().ty(input).shape.to_vec();
    let groups = call.dim("groups")?;
    let [batch, channels, rest @ ..] = &shape[..] else {
        return Err(call.invalid("the input needs a batch and channels"));
    };
    let each = channels.divided_exactly(&groups).ok_or_else(|| {
        call.invalid(format!("{channels} channels are not divisible into {groups} groups"))
    })?;
    let rest: Dim = rest.iter().product();
    let inner = [groups, each, rest.clone()];
    let joined = [channels.clone(), rest];
    let node = blocks(call, input, std::slice::from_ref(batch), &inner, &[1, 0, 2], &joined)?;
    call.reshape(node, &shape)
}

/// Splits the last axes into `inner`, orders these, and joins them.
fn blocks(
    call: &mut Call<'_>,
    node: NodeId,
    outer: &[Dim],
    inner: &[Dim],
    order: &[usize],
    joined: &[Dim],
) -> Result<NodeId> {
    let node = call.reshape(node, &[outer, inner].concat())?;
    let count = outer.len();
    let order: Vec<usize> = (0..count).chain(order.iter().map(|axis| axis + count)).collect();
    let node = permute(call, node, &order)?;
    call.reshape(node, &[outer, joined].concat())
}

/// meshgrid with indexing by rows: each vector along its own axis.
pub(in crate::aten) fn meshgrid(call: &mut Call<'_>) -> Result<Item> {
    if call.argument("indexing").as_text().is_some_and(|text| &*text != "ij") {
        return Err(call.unsupported("meshgrid with indexing other than \"ij\""));
    }
    let nodes = call.inputs("tensors")?;
    let mut columns = Vec::with_capacity(nodes.len());
    for (axis, &node) in nodes.iter().enumerate() {
        let mut shape = vec![Dim::constant(1); nodes.len()];
        shape[axis] = call.graph().ty(node).shape.elements();
        columns.push(call.reshape(node, &shape)?);
    }
    let nodes = call.broadcast_all(&columns)?;
    Ok(Item::list(nodes.into_iter().map(|node| crate::aten::Handle::new(node).into()).collect()))
}
