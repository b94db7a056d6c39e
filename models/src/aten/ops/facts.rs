//! What programs ask about tensors: sizes, types, the value of a tensor that is known.

use fornax_ir::DType;

use crate::aten::call::{Build as _, Call, Result};
use crate::aten::{Item, dtype};
use crate::build::known::Element;

/// size and sym_size of one axis.
pub(in crate::aten) fn size(call: &mut Call<'_>) -> Result<Item> {
    let shape = call.ty("self")?.shape;
    let axis = call.axis(call.int("dim")?, shape.rank())?;
    Ok(Item::Int(shape[axis].clone()))
}

/// The sizes of all axes.
pub(in crate::aten) fn sizes(call: &mut Call<'_>) -> Result<Item> {
    let shape = call.ty("self")?.shape;
    Ok(Item::list(shape.iter().cloned().map(Item::Int).collect()))
}

/// dim: the number of axes.
pub(in crate::aten) fn rank(call: &mut Call<'_>) -> Result<Item> {
    Ok(Item::int(call.ty("self")?.rank() as i64))
}

/// numel: the number of elements.
pub(in crate::aten) fn elements(call: &mut Call<'_>) -> Result<Item> {
    Ok(Item::Int(call.ty("self")?.shape.elements()))
}

/// len: the size of the first axis.
pub(in crate::aten) fn length(call: &mut Call<'_>) -> Result<Item> {
    match call.ty("self")?.shape.first() {
        Some(size) => Ok(Item::Int(size.clone())),
        None => Err(call.invalid("a tensor of rank 0 has no length")),
    }
}

/// is_floating_point.
pub(in crate::aten) fn is_float(call: &mut Call<'_>) -> Result<Item> {
    Ok(Item::Bool(call.ty("self")?.dtype.is_float()))
}

/// prim::dtype, as the number it has in programs.
pub(in crate::aten) fn element_type(call: &mut Call<'_>) -> Result<Item> {
    let own = call.ty("a")?.dtype;
    Ok(dtype::number_of(own).map_or(Item::DType(own), Item::int))
}

/// What is false of every tensor here: complex numbers, quantisation, other layouts.
pub(in crate::aten) fn never(_: &mut Call<'_>) -> Result<Item> {
    Ok(Item::Bool(false))
}

/// The number that a tensor of one element holds, where it is known.
pub(in crate::aten) fn item(call: &mut Call<'_>) -> Result<Item> {
    let name = "self";
    let found = call.known(name).filter(|known| known.elements.len() == 1);
    let Some(known) = found else {
        return Err(call
            .fault("data-dependent", "the number in a tensor is only known at run time")
            .note(
                "the program needs it as a size, a condition or a scalar; rewrite it with tensors",
            ));
    };
    Ok(match (&known.elements[0], known.dtype) {
        (Element::Int(dim), DType::Bool) => {
            dim.as_const().map_or(Item::Unknown, |value| Item::Bool(value != 0))
        }
        (Element::Int(dim), dtype) if dtype.is_float() => {
            dim.as_const().map_or(Item::Unknown, |value| Item::Float(value as f64))
        }
        (Element::Int(dim), _) => Item::Int(dim.clone()),
        (Element::Float(value), _) => Item::Float(*value),
    })
}
