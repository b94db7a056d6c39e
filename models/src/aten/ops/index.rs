//! Operators that take elements by index.

use fornax_ir::{Attrs, DType, Dim, NodeId, attrs};

use crate::aten::call::{Build as _, Call, Result};

/// embedding: rows of a table.
pub(in crate::aten) fn embedding(call: &mut Call<'_>) -> Result<NodeId> {
    let (table, indices) = (call.input("weight")?, call.input("indices")?);
    call.add("gather", attrs! { axis: 0i64 }, &[table, indices])
}

/// index_select: several positions of an axis.
pub(in crate::aten) fn index_select(call: &mut Call<'_>) -> Result<NodeId> {
    let (input, indices) = (call.input("self")?, call.input("index")?);
    let axis = call.axis(call.int("dim")?, call.graph().ty(input).rank())?;
    call.add("gather", attrs! { axis: axis as i64 }, &[input, indices])
}

/// gather: an index for each element of the result.
pub(in crate::aten) fn gather(call: &mut Call<'_>) -> Result<NodeId> {
    let (input, indices) = (call.input("self")?, call.input("index")?);
    let axis = call.axis(call.int("dim")?, call.graph().ty(input).rank())?;
    call.add("gather_elements", attrs! { axis: axis as i64 }, &[input, indices])
}

/// index: tensors of indices for neighbouring axes, broadcast against each other.
pub(in crate::aten) fn index(call: &mut Call<'_>) -> Result<NodeId> {
    let input = call.input("self")?;
    let shape = call.graph().ty(input).shape.to_vec();
    let given = call.optionals("indices")?;
    if given.len() > shape.len() {
        return Err(call.invalid(format!(
            "{} indices are given for {} axes",
            given.len(),
            shape.len()
        )));
    }
    let axes: Vec<usize> = (0..given.len()).filter(|&axis| given[axis].is_some()).collect();
    let indices: Vec<NodeId> = given.into_iter().flatten().collect();
    let (Some(&first), Some(&last)) = (axes.first(), axes.last()) else { return Ok(input) };
    if last - first + 1 != axes.len() {
        return Err(call.unsupported("indices for axes that are not neighbours"));
    }
    if indices.iter().any(|&index| call.graph().ty(index).dtype == DType::Bool) {
        return Err(call
            .unsupported("an index of truth values: the result's size depends on data")
            .note("use torch.where or masked_fill instead"));
    }
    let mut flat = None;
    for (index, size) in call.broadcast_all(&indices)?.into_iter().zip(&shape[first..=last]) {
        let index = call.cast(index, DType::I64)?;
        flat = Some(match flat {
            None if axes.len() == 1 => index,
            None => from_front(call, index, size)?,
            Some(before) => {
                let index = from_front(call, index, size)?;
                let size = size_like(call, size, before)?;
                let before = call.add("mul", Attrs::none(), &[before, size])?;
                call.add("add", Attrs::none(), &[before, index])?
            }
        });
    }
    let Some(flat) = flat else { return Ok(input) };
    let joined: Dim = shape[first..=last].iter().product();
    let merged = [&shape[..first], &[joined], &shape[last + 1..]].concat();
    let merged = call.reshape(input, &merged)?;
    call.add("gather", attrs! { axis: first as i64 }, &[merged, flat])
}

/// Indices of which negative ones count from the back.
fn from_front(call: &mut Call<'_>, index: NodeId, size: &Dim) -> Result<NodeId> {
    let zero = call.scalar_like(0.0, index)?;
    let negative = call.add("lt", Attrs::none(), &[index, zero])?;
    let size = size_like(call, size, index)?;
    let wrapped = call.add("add", Attrs::none(), &[index, size])?;
    call.add("where", Attrs::none(), &[negative, wrapped, index])
}

fn size_like(call: &mut Call<'_>, size: &Dim, like: NodeId) -> Result<NodeId> {
    match size.as_const() {
        Some(size) => call.scalar_like(size as f64, like),
        None => Err(call
            .fault("not-constant", format!("the size {size} of an indexed axis must be known"))
            .note("specialise it with --dim or --shape")),
    }
}

/// one_hot: 1 at the class, 0 elsewhere, along a new last axis.
pub(in crate::aten) fn one_hot(call: &mut Call<'_>) -> Result<NodeId> {
    let input = call.input("self")?;
    let classes = call.dim("num_classes")?;
    if classes.as_const().is_some_and(|count| count < 0) {
        return Err(
            call.unsupported("one_hot without `num_classes`: the result's size depends on data")
        );
    }
    let mut shape = call.graph().ty(input).shape.to_vec();
    shape.push(Dim::constant(1));
    let rank = shape.len();
    let column = call.reshape(input, &shape)?;
    shape[rank - 1] = classes;
    let column = call.broadcast(column, &shape)?;
    let positions = call.positions(rank - 1, &shape)?;
    let hit = call.add("eq", Attrs::none(), &[column, positions])?;
    call.cast(hit, DType::I64)
}
