//! Views: other shapes, other orders of axes, parts.

use fornax_ir::{Dim, NodeId};

use crate::aten::call::{Build as _, Call, Result, Value};
use crate::aten::handle::View;
use crate::aten::{Handle, Item};
use crate::build::known::Known;
use crate::build::reshape::fill_open;
use crate::build::sizes::{self, Span};

/// The operand, and its shape.
fn operand(call: &mut Call<'_>) -> Result<(Handle, Vec<Dim>)> {
    let handle = call.handle("self")?;
    let shape = call.type_of(&handle.peek()).shape.to_vec();
    Ok((handle, shape))
}

/// The operand in another shape; whether it is a view then depends on strides.
fn perhaps(call: &mut Call<'_>, handle: &Handle, shape: &[Dim]) -> Result<Item> {
    if let Value::Literal(literal) = handle.read(call)?
        && let Some(known) = literal.as_known().and_then(|known| reshaped(&known, shape))
    {
        return Ok(Handle::new(Value::known(call.result, known)).into());
    }
    let value = handle.read(call)?;
    let node = call.materialize(&value)?;
    let node = call.reshape(node, shape)?;
    Ok(handle.perhaps(call, node)?.into())
}

fn reshaped(known: &Known, shape: &[Dim]) -> Option<Known> {
    let size = |dim: &Dim| usize::try_from(dim.as_const()?).ok();
    known.reshaped(shape.iter().map(size).collect::<Option<_>>()?).filter(Known::is_small)
}

/// The sizes of `from` under the shape that `argument` asks for, where -1 takes what is left.
fn target(call: &Call<'_>, from: &[Dim], wanted: Vec<Dim>) -> Result<Vec<Dim>> {
    let mut open = wanted.iter().enumerate().filter(|(_, size)| size.is(-1)).map(|(axis, _)| axis);
    match (open.next(), open.next()) {
        (None, _) => Ok(wanted),
        (Some(axis), None) => fill_open(call, from, wanted.clone(), axis),
        _ => Err(call.invalid("the shape has -1 more than once")),
    }
}

/// view: always a view.
pub(in crate::aten) fn view(call: &mut Call<'_>) -> Result<Item> {
    let (handle, from) = operand(call)?;
    let shape = target(call, &from, call.dims("size")?)?;
    Ok(handle.view(call, View::Reshape(shape))?.into())
}

/// reshape.
pub(in crate::aten) fn reshape(call: &mut Call<'_>) -> Result<Item> {
    let (handle, from) = operand(call)?;
    let wanted = call.dims(if call.has("size") { "size" } else { "shape" })?;
    let shape = target(call, &from, wanted)?;
    perhaps(call, &handle, &shape)
}

/// view_as, reshape_as.
pub(in crate::aten) fn reshape_as(call: &mut Call<'_>) -> Result<Item> {
    let (handle, _) = operand(call)?;
    let shape = call.ty("other")?.shape;
    perhaps(call, &handle, &shape)
}

/// flatten: axes from one to another become one.
pub(in crate::aten) fn flatten(call: &mut Call<'_>) -> Result<Item> {
    let (handle, from) = operand(call)?;
    let start = call.axis_of("start_dim", from.len())?;
    let end = call.axis_of("end_dim", from.len())?;
    if start > end {
        return Err(call.invalid(format!("`start_dim` {start} lies behind `end_dim` {end}")));
    }
    let behind = from.get(end + 1..).unwrap_or_default();
    let joined: Dim = from.get(start..=end).unwrap_or_default().iter().product();
    let shape = [&from[..start], &[joined], behind].concat();
    perhaps(call, &handle, &shape)
}

/// unflatten: one axis becomes several.
pub(in crate::aten) fn unflatten(call: &mut Call<'_>) -> Result<Item> {
    let (handle, from) = operand(call)?;
    let axis = call.axis_of("dim", from.len())?;
    let sizes = target(call, &from[axis..=axis], call.dims("sizes")?)?;
    let shape = [&from[..axis], &sizes[..], &from[axis + 1..]].concat();
    Ok(handle.view(call, View::Reshape(shape))?.into())
}

/// squeeze: axes of size 1 go, all or the named ones.
pub(in crate::aten) fn squeeze(call: &mut Call<'_>) -> Result<Item> {
    let (handle, from) = operand(call)?;
    let axes = match call.has("dim") {
        true => call.ints("dim")?,
        false => (0..from.len() as i64).collect(),
    };
    let axes = if from.is_empty() { Vec::new() } else { call.axes(&axes, from.len())? };
    let kept = from.iter().enumerate().filter(|(axis, size)| !axes.contains(axis) || !size.is(1));
    let shape = kept.map(|(_, size)| size.clone()).collect();
    Ok(handle.view(call, View::Reshape(shape))?.into())
}

/// unsqueeze.
pub(in crate::aten) fn unsqueeze(call: &mut Call<'_>) -> Result<Item> {
    let (handle, mut shape) = operand(call)?;
    let axis = call.axis_of("dim", shape.len() + 1)?;
    shape.insert(axis, Dim::constant(1));
    Ok(handle.view(call, View::Reshape(shape))?.into())
}

/// transpose, t, numpy_T, mT: two axes change places, or all turn round.
pub(in crate::aten) fn transpose(call: &mut Call<'_>) -> Result<Item> {
    let (handle, shape) = operand(call)?;
    let (first, second) = (call.axis_of("dim0", shape.len())?, call.axis_of("dim1", shape.len())?);
    let mut order: Vec<usize> = (0..shape.len()).collect();
    if first != second {
        order.swap(first, second);
    }
    Ok(handle.view(call, View::Permute(order))?.into())
}

/// t and T: the axes in reverse order.
pub(in crate::aten) fn turned(call: &mut Call<'_>) -> Result<Item> {
    let (handle, shape) = operand(call)?;
    let order = (0..shape.len()).rev().collect();
    Ok(handle.view(call, View::Permute(order))?.into())
}

/// mT: the last two axes change places.
pub(in crate::aten) fn matrix_turned(call: &mut Call<'_>) -> Result<Item> {
    let (handle, shape) = operand(call)?;
    let mut order: Vec<usize> = (0..shape.len()).collect();
    match shape.len() {
        0 | 1 => return Err(call.invalid("a matrix has two axes")),
        rank => order.swap(rank - 2, rank - 1),
    }
    Ok(handle.view(call, View::Permute(order))?.into())
}

/// permute.
pub(in crate::aten) fn permute(call: &mut Call<'_>) -> Result<Item> {
    let (handle, shape) = operand(call)?;
    let axes = call.ints("dims")?;
    let order =
        axes.iter().map(|&axis| call.axis(axis, shape.len())).collect::<Result<Vec<_>>>()?;
    if call.axes(&axes, shape.len())?.len() != shape.len() {
        return Err(
            call.invalid(format!("`dims` {axes:?} is not a permutation of {} axes", shape.len()))
        );
    }
    Ok(handle.view(call, View::Permute(order))?.into())
}

/// movedim: the axes at `source` go to `destination`, the others stay in order.
pub(in crate::aten) fn move_axes(call: &mut Call<'_>) -> Result<Item> {
    let (handle, shape) = operand(call)?;
    let rank = shape.len();
    let place =
        |axes: Vec<i64>| axes.iter().map(|&axis| call.axis(axis, rank)).collect::<Result<Vec<_>>>();
    let (from, to) = (place(call.ints("source")?)?, place(call.ints("destination")?)?);
    let mut order: Vec<Option<usize>> = vec![None; rank];
    from.iter().zip(&to).for_each(|(&from, &to)| order[to] = Some(from));
    let mut rest = (0..rank).filter(|axis| !from.contains(axis));
    let order: Option<Vec<usize>> =
        order.into_iter().map(|axis| axis.or_else(|| rest.next())).collect();
    match order.filter(|_| from.len() == to.len()) {
        Some(order) => Ok(handle.view(call, View::Permute(order))?.into()),
        None => Err(call.invalid("`source` and `destination` do not fit together")),
    }
}

/// expand: -1 keeps a size.
pub(in crate::aten) fn expand(call: &mut Call<'_>) -> Result<Item> {
    let (_, from) = operand(call)?;
    let mut shape = call.dims("size")?;
    let new = shape.len().checked_sub(from.len());
    let new = new.ok_or_else(|| call.invalid("the shape has fewer axes than the tensor"))?;
    for (size, own) in shape[new..].iter_mut().zip(&from) {
        if size.is(-1) {
            *size = own.clone();
        }
    }
    expand_to(call, shape)
}

/// expand_as.
pub(in crate::aten) fn expand_as(call: &mut Call<'_>) -> Result<Item> {
    let shape = call.ty("other")?.shape.to_vec();
    expand_to(call, shape)
}

fn expand_to(call: &mut Call<'_>, shape: Vec<Dim>) -> Result<Item> {
    let handle = call.handle("self")?;
    Ok(handle.view(call, View::Expand(shape))?.into())
}

/// broadcast_tensors: each to the common shape.
pub(in crate::aten) fn broadcast_tensors(call: &mut Call<'_>) -> Result<Item> {
    let nodes = call.inputs("tensors")?;
    let nodes = call.broadcast_all(&nodes)?;
    Ok(Item::list(nodes.into_iter().map(|node| Handle::new(node).into()).collect()))
}

/// A view of the part of one axis that a span takes.
pub(in crate::aten) fn part(
    call: &mut Call<'_>,
    handle: &Handle,
    axis: usize,
    span: Span,
) -> Result<Handle> {
    let shape = call.type_of(&handle.peek()).shape;
    let whole = |size: &Dim| Span { start: Dim::constant(0), count: size.clone(), step: 1 };
    let mut spans: Vec<Span> = shape.iter().map(whole).collect();
    spans[axis] = span;
    handle.view(call, View::Slice(spans))
}

/// One position of an axis, which goes.
pub(in crate::aten) fn only(
    call: &mut Call<'_>,
    handle: &Handle,
    axis: usize,
    position: Dim,
) -> Result<Handle> {
    let one = Span { start: position, count: Dim::constant(1), step: 1 };
    let taken = part(call, handle, axis, one)?;
    let mut shape = call.type_of(&taken.peek()).shape.to_vec();
    shape.remove(axis);
    taken.view(call, View::Reshape(shape))
}

/// select: one position of an axis.
pub(in crate::aten) fn select(call: &mut Call<'_>) -> Result<Item> {
    let (handle, shape) = operand(call)?;
    let axis = axis_within(call, shape.len())?;
    let index = call.dim("index")?;
    let position = sizes::from_front(&index, &shape[axis]).ok_or_else(|| sign_unknown(call))?;
    let (low, high) = (sizes::bounds(&position).0, sizes::bounds(&(&position - &shape[axis])).1);
    if position.as_const().is_some() && shape[axis].as_const().is_some() && (low < 0 || high >= 0) {
        let message = format!("position {index} lies outside an axis of size {}", shape[axis]);
        return Err(call.invalid(message));
    }
    if let Value::Literal(literal) = handle.read(call)?
        && let (Some(known), Some(at)) = (literal.as_known(), position.as_const())
        && let Ok(at) = usize::try_from(at)
        && let Some(known) = known_position(&known, at)
    {
        return Ok(Handle::new(Value::known(call.result, known)).into());
    }
    Ok(only(call, &handle, axis, position)?.into())
}

/// An element of a known vector.
fn known_position(known: &Known, at: usize) -> Option<Known> {
    (known.shape.len() == 1).then_some(())?;
    Known::new(known.dtype, vec![], vec![known.elements.get(at)?.clone()])
}

fn axis_within(call: &Call<'_>, rank: usize) -> Result<usize> {
    call.axis(call.int("dim")?, rank)
}

fn sign_unknown(call: &Call<'_>) -> fornax_ir::Diagnostic {
    call.fault("not-constant", "whether a position counts from the front or the back is not known")
}

/// slice.
pub(in crate::aten) fn slice(call: &mut Call<'_>) -> Result<Item> {
    let (handle, shape) = operand(call)?;
    let axis = axis_within(call, shape.len())?;
    let start = call.optional_dim("start")?.unwrap_or_else(|| Dim::constant(0));
    let end = call.optional_dim("end")?.unwrap_or_else(|| Dim::constant(i64::MAX));
    let step = call.int("step")?;
    if step < 1 {
        return Err(call.invalid(format!("the step {step} is not positive")));
    }
    let span = sizes::span(&start, &end, step, &shape[axis]).ok_or_else(|| sign_unknown(call))?;
    Ok(part(call, &handle, axis, span)?.into())
}

/// narrow: `length` elements from `start` on.
pub(in crate::aten) fn narrow(call: &mut Call<'_>) -> Result<Item> {
    let (handle, shape) = operand(call)?;
    let axis = axis_within(call, shape.len())?;
    let start =
        sizes::from_front(&call.dim("start")?, &shape[axis]).ok_or_else(|| sign_unknown(call))?;
    let span = Span { start, count: call.dim("length")?, step: 1 };
    Ok(part(call, &handle, axis, span)?.into())
}

/// split, split_with_sizes, chunk: parts along an axis.
pub(in crate::aten) fn split(call: &mut Call<'_>) -> Result<Item> {
    let (handle, shape) = operand(call)?;
    let axis = axis_within(call, shape.len())?;
    let parts = part_sizes(call, &shape[axis])?;
    let mut start = Dim::constant(0);
    let mut items = Vec::with_capacity(parts.len());
    for count in parts {
        let span = Span { start: start.clone(), count: count.clone(), step: 1 };
        items.push(part(call, &handle, axis, span)?.into());
        start = start + count;
    }
    Ok(Item::list(items))
}

/// Most parts that a tensor is split into.
const MAX_PARTS: i64 = 4096;

fn part_sizes(call: &Call<'_>, size: &Dim) -> Result<Vec<Dim>> {
    if call.has("split_sizes") {
        let sizes = call.dims("split_sizes")?;
        let sum: Dim = sizes.iter().cloned().sum();
        return match sum == *size {
            true => Ok(sizes),
            false => Err(call.invalid(format!("the parts add up to {sum}, not {size}"))),
        };
    }
    let chunk = match call.has("chunks") {
        true => size.ceil_div(&Dim::constant(call.int("chunks")?.max(1))),
        false => call.dim("split_size")?,
    };
    let count = size.ceil_div(&chunk).as_const().filter(|count| (0..=MAX_PARTS).contains(count));
    let Some(count) = count.filter(|_| !chunk.is(0)) else {
        let message = format!("how many parts of {chunk} an axis of {size} has is not known");
        return Err(call.fault("not-constant", message).note("specialise the size with --dim"));
    };
    let mut parts = vec![chunk.clone(); count as usize];
    if let Some(last) = parts.last_mut() {
        *last = size - &chunk * Dim::constant(count - 1);
    }
    Ok(parts)
}

/// unbind: every position of an axis.
pub(in crate::aten) fn unbind(call: &mut Call<'_>) -> Result<Item> {
    let (handle, shape) = operand(call)?;
    let axis = axis_within(call, shape.len())?;
    let count = shape[axis].as_const().filter(|count| (0..=MAX_PARTS).contains(count));
    let count = count.ok_or_else(|| {
        let message = format!("an axis of size {} is taken apart", shape[axis]);
        call.fault("not-constant", message).note("specialise the size with --dim or --shape")
    })?;
    let parts = (0..count).map(|at| Ok(only(call, &handle, axis, Dim::constant(at))?.into()));
    let parts = parts.collect::<Result<Vec<Item>>>()?;
    Ok(Item::list(parts))
}

/// diagonal of the last two axes of equal size: other elements are summed away as zeros.
pub(in crate::aten) fn diagonal(call: &mut Call<'_>) -> Result<NodeId> {
    let input = call.input("self")?;
    let rank = call.graph().ty(input).rank();
    let (first, second) = (call.axis_of("dim1", rank)?, call.axis_of("dim2", rank)?);
    if call.int("offset")? != 0 || first == second || rank > 20 {
        return Err(call.unsupported("a diagonal beside the main one"));
    }
    let mut letters: Vec<char> = ('a'..).take(rank).collect();
    letters[second] = letters[first];
    let rest = (0..rank).filter(|&axis| axis != first && axis != second);
    let result: String = rest.map(|axis| letters[axis]).chain([letters[first]]).collect();
    let equation = format!("{}->{result}", letters.iter().collect::<String>());
    crate::build::contraction::einsum(call, &equation, &[input])
}
