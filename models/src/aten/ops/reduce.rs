//! Reductions, arg-reductions, scans, softmax.

use fornax_ir::{Attrs, DType, Dim, NodeId, attrs};

use super::pointwise::{float_input, truth};
use crate::aten::call::{Build as _, Call, Result};
use crate::aten::{Handle, Item};
use crate::build::contraction::scaled;
use crate::build::reduce::{along, fold};

/// A reduction over `dim`, or over everything.
fn over(call: &mut Call<'_>, op: &str, input: NodeId) -> Result<NodeId> {
    let rank = call.graph().ty(input).rank();
    let axes = call.axes_or_all("dim", rank)?;
    let keepdim = call.flag("keepdim")?;
    fold(call, op, input, &axes, keepdim)
}

/// The operand in the type that `dtype` says; otherwise, truth values and integers as `i64`.
fn summed(call: &mut Call<'_>) -> Result<NodeId> {
    let input = call.input("self")?;
    let own = call.graph().ty(input).dtype;
    let wanted = call.dtype("dtype")?.unwrap_or(if own.is_float() { own } else { DType::I64 });
    call.cast(input, wanted)
}

/// sum, prod.
pub(in crate::aten) fn sum(call: &mut Call<'_>, op: &str) -> Result<NodeId> {
    let input = summed(call)?;
    over(call, op, input)
}

/// mean, of floats.
pub(in crate::aten) fn mean(call: &mut Call<'_>) -> Result<NodeId> {
    let input = summed(call)?;
    if !call.graph().ty(input).dtype.is_float() {
        return Err(call.invalid("the mean of integers has no type; give `dtype`"));
    }
    over(call, "reduce_mean", input)
}

/// amax, amin, and max and min of everything.
pub(in crate::aten) fn extreme(call: &mut Call<'_>, op: &str) -> Result<NodeId> {
    let input = call.input("self")?;
    let bools = call.graph().ty(input).dtype == DType::Bool;
    let op = match (op, bools) {
        ("reduce_max", true) => "reduce_any",
        ("reduce_min", true) => "reduce_all",
        _ => op,
    };
    over(call, op, input)
}

/// any, all.
pub(in crate::aten) fn truths(call: &mut Call<'_>, op: &str) -> Result<NodeId> {
    let input = truth(call, "self")?;
    over(call, op, input)
}

/// max and min along an axis: values and positions.
pub(in crate::aten) fn with_positions(call: &mut Call<'_>, op: &str, arg: &str) -> Result<Item> {
    let values = extreme(call, op)?;
    let positions = arg_extreme(call, arg)?;
    Ok(Item::tuple(vec![Handle::new(values).into(), Handle::new(positions).into()]))
}

/// argmax, argmin: along an axis, or of all elements in order.
pub(in crate::aten) fn arg_extreme(call: &mut Call<'_>, op: &str) -> Result<NodeId> {
    let input = call.input("self")?;
    let shape = call.graph().ty(input).shape.clone();
    let keepdim = call.flag("keepdim")?;
    let arg = |call: &mut Call<'_>, input, axis: usize, keepdims: bool| {
        let attrs = attrs! { axis: axis as i64, keepdims: keepdims, select_last: false };
        call.add(op, attrs, &[input])
    };
    if call.has("dim") && shape.rank() > 0 {
        let axis = call.axis_of("dim", shape.rank())?;
        return arg(call, input, axis, keepdim);
    }
    let flat = call.reshape(input, &[shape.elements()])?;
    let position = arg(call, flat, 0, false)?;
    match keepdim {
        true => call.reshape(position, &vec![Dim::constant(1); shape.rank()]),
        false => Ok(position),
    }
}

/// var: the mean of squared differences from the mean, times `n / (n - correction)`.
pub(in crate::aten) fn variance(call: &mut Call<'_>) -> Result<NodeId> {
    let input = float_input(call, "self")?;
    let shape = call.graph().ty(input).shape.clone();
    let axes = call.axes_or_all("dim", shape.rank())?;
    let keepdim = call.flag("keepdim")?;
    let correction = match (call.has("correction"), call.has("unbiased")) {
        (true, _) => call.float("correction")?,
        (false, true) => f64::from(u8::from(call.flag("unbiased")?)),
        (false, false) => 1.0,
    };
    let mean = fold(call, "reduce_mean", input, &axes, true)?;
    let mean = call.broadcast(mean, &shape)?;
    let centred = call.add("sub", Attrs::none(), &[input, mean])?;
    let squares = call.add("mul", Attrs::none(), &[centred, centred])?;
    let variance = fold(call, "reduce_mean", squares, &axes, keepdim)?;
    if correction == 0.0 {
        return Ok(variance);
    }
    let count: Dim = axes.iter().map(|&axis| shape[axis].clone()).product();
    let count = count.as_const().ok_or_else(|| {
        call.fault("not-constant", format!("the number of elements {count} must be known"))
            .note("specialise the sizes with --dim or --shape")
    })? as f64;
    scaled(call, variance, count / (count - correction).max(0.0))
}

/// std.
pub(in crate::aten) fn deviation(call: &mut Call<'_>) -> Result<NodeId> {
    let variance = variance(call)?;
    call.add("sqrt", Attrs::none(), &[variance])
}

/// norm and linalg_vector_norm: `sum(|x|^p)^(1/p)`; the largest for infinity, the count of others than 0 for 0.
pub(in crate::aten) fn norm(call: &mut Call<'_>) -> Result<NodeId> {
    let input = float_input(call, "self")?;
    let dtype = call.dtype("dtype")?.unwrap_or(call.graph().ty(input).dtype);
    let input = call.cast(input, dtype)?;
    let order = match call.has("ord") {
        true => call.float("ord")?,
        false => call.float_or("p", 2.0)?,
    };
    if order == 2.0 || order == 1.0 {
        return over(call, if order == 2.0 { "reduce_l2" } else { "reduce_l1" }, input);
    }
    if order == 0.0 {
        let zero = call.scalar_like(0.0, input)?;
        let other = call.add("ne", Attrs::none(), &[input, zero])?;
        let ones = call.cast(other, dtype)?;
        return over(call, "reduce_sum", ones);
    }
    let size = call.add("abs", Attrs::none(), &[input])?;
    if order.is_infinite() {
        return over(call, if order > 0.0 { "reduce_max" } else { "reduce_min" }, size);
    }
    let exponent = call.scalar_like(order, size)?;
    let powers = call.add("pow", Attrs::none(), &[size, exponent])?;
    let sum = over(call, "reduce_sum", powers)?;
    let exponent = call.scalar_like(1.0 / order, sum)?;
    call.add("pow", Attrs::none(), &[sum, exponent])
}

/// A reduction of floats, such as logsumexp.
pub(in crate::aten) fn floats(call: &mut Call<'_>, op: &str) -> Result<NodeId> {
    let input = float_input(call, "self")?;
    over(call, op, input)
}

/// cumsum, cumprod.
pub(in crate::aten) fn scan(call: &mut Call<'_>, op: &str) -> Result<NodeId> {
    let input = summed(call)?;
    let rank = call.graph().ty(input).rank();
    if rank == 0 {
        return Ok(input);
    }
    let axis = call.axis_of("dim", rank)?;
    call.add(op, attrs! { axis: axis as i64, exclusive: false, reverse: false }, &[input])
}

/// softmax, log_softmax.
pub(in crate::aten) fn softmax(call: &mut Call<'_>, op: &str) -> Result<NodeId> {
    let input = float_input(call, "self")?;
    let dtype = call.dtype("dtype")?.unwrap_or(call.graph().ty(input).dtype);
    let input = call.cast(input, dtype)?;
    let shape = call.graph().ty(input).shape.clone();
    let axis = call.axis_of("dim", shape.rank())?;
    if shape.rank() > 0 {
        return along(call, op, input, axis);
    }
    let vector = call.reshape(input, &[Dim::constant(1)])?;
    let result = along(call, op, vector, 0)?;
    call.reshape(result, &[])
}
