//! Folding of shape arithmetic: the column `fold` of the op table.
//!
//! A fold function gives the outputs of a node when they can be told while importing, else `None`; the
//! node's handler then adds it to the graph or reports what is wrong with it.

use fornax_ir::{DType, Dim};

use super::call::{Build as _, Call};
use super::ops::movement;
use crate::build::known::{Binary, Element, Known, MAX_ELEMENTS, Unary};

type Folded = Option<Vec<Known>>;

fn one(known: Option<Known>) -> Folded {
    known.map(|known| vec![known])
}

/// Shape, with `start` and `end` of opset 15.
pub(super) fn shape(call: &Call<'_, '_>) -> Folded {
    let shape = call.ty(0).ok()?.shape;
    let rank = shape.rank() as i64;
    let place = |position: i64| {
        let from_front = if position < 0 { position.saturating_add(rank) } else { position };
        from_front.clamp(0, rank) as usize
    };
    let start = place(call.int_or("start", 0).ok()?);
    let end = place(call.int_or("end", rank).ok()?).max(start);
    Some(vec![Known::from_dims(&shape[start..end])])
}

/// Size: the number of elements.
pub(super) fn size(call: &Call<'_, '_>) -> Folded {
    let elements = call.ty(0).ok()?.shape.elements();
    one(Known::new(DType::I64, vec![], vec![Element::Int(elements)]))
}

/// Identity and other operators that pass their first input on.
pub(super) fn identity(call: &Call<'_, '_>) -> Folded {
    one(call.known(0))
}

/// Cast.
pub(super) fn cast(call: &Call<'_, '_>) -> Folded {
    one(call.known(0)?.cast(call.dtype("to").ok()??))
}

/// CastLike.
pub(super) fn cast_like(call: &Call<'_, '_>) -> Folded {
    one(call.known(0)?.cast(call.ty(1).ok()?.dtype))
}

/// An element-wise operator of one operand.
pub(super) fn unary(call: &Call<'_, '_>, operator: Unary) -> Folded {
    one(call.known(0)?.unary(operator))
}

/// An element-wise operator of two operands.
pub(super) fn binary(call: &Call<'_, '_>, operator: Binary) -> Folded {
    if operator == Binary::Mod && call.flag("fmod", false).ok()? {
        return None;
    }
    one(call.known(0)?.binary(operator, &call.known(1)?))
}

/// Min and Max of any number of operands.
pub(super) fn variadic(call: &Call<'_, '_>, operator: Binary) -> Folded {
    let first = call.known(0)?;
    let rest = (1..call.input_count()).map(|index| call.known(index));
    one(rest.into_iter().try_fold(first, |sum, next| sum.binary(operator, &next?)))
}

/// Where.
pub(super) fn select(call: &Call<'_, '_>) -> Folded {
    one(call.known(0)?.select(&call.known(1)?, &call.known(2)?))
}

/// Gather along an axis.
pub(super) fn gather(call: &Call<'_, '_>) -> Folded {
    let (data, indices) = (call.known(0)?, call.known(1)?);
    let axis = call.axis(call.int_or("axis", 0).ok()?, data.shape.len()).ok()?;
    let size = i64::try_from(data.shape[axis]).ok()?;
    let positions = indices
        .elements
        .iter()
        .map(|element| {
            let position = element.as_i64()?;
            usize::try_from(if position < 0 { position + size } else { position }).ok()
        })
        .collect::<Option<Vec<usize>>>()?;
    let rank = indices.shape.len();
    let shape = [&data.shape[..axis], &indices.shape[..], &data.shape[axis + 1..]].concat();
    one(data.moved(shape, |index| {
        let flat = (0..rank).fold(0, |flat, i| flat * indices.shape[i] + index[axis + i]);
        Some([&index[..axis], &[*positions.get(flat)?], &index[axis + rank..]].concat())
    }))
}

/// Concat.
pub(super) fn concat(call: &Call<'_, '_>) -> Folded {
    let parts: Vec<Known> =
        (0..call.input_count()).map(|i| call.known(i)).collect::<Option<_>>()?;
    let axis = call.axis(call.int("axis").ok()??, parts.first()?.shape.len()).ok()?;
    one(Known::concat(&parts.iter().collect::<Vec<_>>(), axis))
}

/// Slice.
pub(super) fn slice(call: &Call<'_, '_>) -> Folded {
    let data = call.known(0)?;
    let sizes: Vec<Dim> = data.shape.iter().map(|&size| Dim::from(size)).collect();
    let spans = movement::slice_spans(call, &sizes).ok()?;
    let count = |span: &crate::build::sizes::Span| usize::try_from(span.count.as_const()?).ok();
    let shape = spans.iter().map(count).collect::<Option<Vec<_>>>()?;
    one(data.moved(shape, |index| {
        let place = |(span, &i): (&crate::build::sizes::Span, &usize)| {
            usize::try_from(span.start.as_const()? + span.step * i as i64).ok()
        };
        spans.iter().zip(index).map(place).collect()
    }))
}

/// Squeeze, Unsqueeze, Reshape, Flatten: the same elements under another shape.
pub(super) fn reshape(
    call: &Call<'_, '_>,
    shape: fn(&Call<'_, '_>) -> super::call::Result<Vec<Dim>>,
) -> Folded {
    let data = call.known(0)?;
    let sizes = shape(call).ok()?;
    let size = |dim: &Dim| usize::try_from(dim.as_const()?).ok();
    one(data.reshaped(sizes.iter().map(size).collect::<Option<_>>()?))
}

/// Transpose.
pub(super) fn transpose(call: &Call<'_, '_>) -> Folded {
    let data = call.known(0)?;
    let order = movement::permutation(call, data.shape.len()).ok()?;
    let shape = order.iter().map(|&axis| data.shape[axis]).collect();
    one(data.moved(shape, |index| {
        let mut source = vec![0; order.len()];
        order.iter().zip(index).for_each(|(&axis, &i)| source[axis] = i);
        Some(source)
    }))
}

/// Expand.
pub(super) fn expand(call: &Call<'_, '_>) -> Folded {
    let data = call.known(0)?;
    let sizes = call.known(1)?.ints()?;
    let sizes = sizes.iter().map(|&size| usize::try_from(size).ok()).collect::<Option<Vec<_>>>()?;
    let shape = crate::build::known::broadcast_shape(&data.shape, &sizes)?;
    let count = shape.iter().try_fold(1usize, |count, &size| count.checked_mul(size))?;
    (count <= MAX_ELEMENTS).then(|| one(data.broadcast(&shape))).flatten()
}

/// Range of integers.
pub(super) fn range(call: &Call<'_, '_>) -> Folded {
    let (start, limit, step) = (call.known(0)?, call.known(1)?, call.known(2)?);
    if start.dtype.is_float() {
        return None;
    }
    let scalar = |known: &Known| known.dims()?.into_iter().next();
    let (first, limit, step) = (scalar(&start)?, scalar(&limit)?, scalar(&step)?);
    let (length, step) = ((limit - &first).as_const()?, step.as_const().filter(|&step| step != 0)?);
    let count = match step > 0 {
        true => length.checked_add(step - 1)?.div_euclid(step),
        false => length.checked_neg()?.checked_sub(step + 1)?.div_euclid(step.checked_neg()?),
    };
    let count = count.max(0);
    if count > MAX_ELEMENTS as i64 {
        return None;
    }
    let element = |at: i64| Element::Int(&first + Dim::constant(at * step));
    one(Known::new(start.dtype, vec![count as usize], (0..count).map(element).collect()))
}

/// ConstantOfShape, when small.
pub(super) fn constant_of_shape(call: &Call<'_, '_>) -> Folded {
    let sizes = call.known(0)?.ints()?;
    let shape = sizes.iter().map(|&size| usize::try_from(size).ok()).collect::<Option<Vec<_>>>()?;
    let count = shape.iter().try_fold(1usize, |count, &size| count.checked_mul(size))?;
    if count > MAX_ELEMENTS {
        return None;
    }
    let fill = movement::fill_value(call).ok()?;
    let fill = Known::from_tensor(&fill)?;
    let element = fill.elements.first()?.clone();
    one(Known::new(fill.dtype, shape, vec![element; count]))
}

/// Split: as many outputs as the node has.
pub(super) fn split(call: &Call<'_, '_>) -> Folded {
    let data = call.known(0)?;
    let sizes: Vec<Dim> = data.shape.iter().map(|&size| Dim::from(size)).collect();
    let (axis, parts) = movement::split_parts(call, &sizes).ok()?;
    let mut start = 0;
    let mut outputs = Vec::new();
    for part in parts {
        let count = usize::try_from(part.as_const()?).ok()?;
        let mut shape = data.shape.clone();
        shape[axis] = count;
        outputs.push(data.moved(shape, |index| {
            let mut source = index.to_vec();
            source[axis] += start;
            Some(source)
        })?);
        start += count;
    }
    Some(outputs)
}

/// ReduceProd and its like on integers.
pub(super) fn reduce(call: &Call<'_, '_>, operator: Binary, start: Option<i64>) -> Folded {
    let data = call.known(0)?;
    if data.dtype.is_float() {
        return None;
    }
    let axes = super::ops::reduce::axes(call, data.shape.len()).ok()??;
    let keep_dims = call.flag("keepdims", true).ok()?;
    one(data.reduce(operator, start, &axes, keep_dims))
}
