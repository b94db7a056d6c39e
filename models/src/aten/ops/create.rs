//! Operators that make tensors from nothing but sizes and numbers.

use fornax_ir::{Attrs, DType, Dim, NodeId};

use crate::aten::call::{Build as _, Call, Result, Value};
use crate::aten::{Handle, Item, Number};
use crate::build::known::{Element, Known, MAX_ELEMENTS};

/// A number repeated to the shape that `size` says.
pub(in crate::aten) fn full(call: &mut Call<'_>, value: f64) -> Result<NodeId> {
    let shape = call.dims("size")?;
    let dtype = call.dtype("dtype")?.unwrap_or(match call.has("self") {
        true => call.ty("self")?.dtype,
        false => DType::F32,
    });
    let number = call.scalar(dtype, value);
    call.broadcast(number, &shape)
}

/// The element type of a number by itself.
fn own_dtype(number: &Number) -> DType {
    match number {
        Number::Bool(_) => DType::Bool,
        Number::Int(_) => DType::I64,
        Number::Float(_) => DType::F32,
    }
}

fn fill_value(call: &Call<'_>, name: &str) -> Result<Number> {
    let number = call.argument(name).as_number();
    number.ok_or_else(|| call.invalid(format!("the argument `{name}` must be a number")))
}

/// full, new_full: the number is given.
pub(in crate::aten) fn full_of(call: &mut Call<'_>) -> Result<NodeId> {
    let shape = call.dims("size")?;
    let number = fill_value(call, "fill_value")?;
    let dtype = match (call.dtype("dtype")?, call.has("self")) {
        (Some(dtype), _) => dtype,
        (None, true) => call.ty("self")?.dtype,
        (None, false) => own_dtype(&number),
    };
    let number = call.number(&number, dtype)?;
    call.broadcast(number, &shape)
}

/// zeros_like, ones_like.
pub(in crate::aten) fn like(call: &mut Call<'_>, value: f64) -> Result<NodeId> {
    let ty = call.ty("self")?;
    let dtype = call.dtype("dtype")?.unwrap_or(ty.dtype);
    let number = call.scalar(dtype, value);
    call.broadcast(number, &ty.shape)
}

/// full_like.
pub(in crate::aten) fn full_like(call: &mut Call<'_>) -> Result<NodeId> {
    let ty = call.ty("self")?;
    let number = fill_value(call, "fill_value")?;
    let dtype = call.dtype("dtype")?.unwrap_or(ty.dtype);
    let number = call.number(&number, dtype)?;
    call.broadcast(number, &ty.shape)
}

/// scalar_tensor, tensor: a number of rank 0, known while importing.
pub(in crate::aten) fn scalar_tensor(call: &mut Call<'_>, argument: &str) -> Result<Item> {
    let number = fill_value(call, argument)?;
    let dtype = call.dtype("dtype")?.unwrap_or(own_dtype(&number));
    let element = match number {
        Number::Bool(value) => Element::from(i64::from(value)),
        Number::Int(dim) => Element::Int(dim),
        Number::Float(value) => Element::Float(value),
    };
    let own = if matches!(element, Element::Float(_)) { DType::F64 } else { DType::I64 };
    let known = Known::new(own, vec![], vec![element]).and_then(|known| known.cast(dtype));
    match known {
        Some(known) => Ok(Handle::new(Value::known(call.result, known)).into()),
        None => Err(call.unsupported(format!("a number as a tensor of {dtype}"))),
    }
}

/// arange.
pub(in crate::aten) fn arange(call: &mut Call<'_>) -> Result<Item> {
    let bound = |call: &Call<'_>, name: &str, default: i64| match call.has(name) {
        true => fill_value(call, name),
        false => Ok(Number::Int(Dim::constant(default))),
    };
    let (start, end, step) =
        (bound(call, "start", 0)?, bound(call, "end", 0)?, bound(call, "step", 1)?);
    let dtype = call.dtype("dtype")?;
    if let (Number::Int(start), Number::Int(end), Number::Int(step)) = (&start, &end, &step) {
        return whole_range(call, start, end, step, dtype.unwrap_or(DType::I64));
    }
    let numbers = [&start, &end, &step].map(Number::as_f64);
    let [Some(first), Some(end), Some(step)] = numbers else {
        return Err(call.fault("not-constant", "the bounds of a range must be known"));
    };
    let count = ((end - first) / step).ceil().max(0.0);
    if !count.is_finite() || count > 2f64.powi(40) {
        return Err(call.invalid(format!("a range from {first} to {end} by {step} has no length")));
    }
    let dtype = dtype.unwrap_or(DType::F32);
    let node = progression(call, Dim::constant(count as i64), first, step, dtype)?;
    Ok(Handle::new(node).into())
}

fn whole_range(
    call: &mut Call<'_>,
    start: &Dim,
    end: &Dim,
    step: &Dim,
    dtype: DType,
) -> Result<Item> {
    let length = end - start;
    let zero = Dim::constant(0);
    let count = match step.as_const() {
        Some(step) if step > 0 => {
            crate::build::sizes::larger(&zero, &length).ceil_div(&Dim::constant(step))
        }
        Some(step) if step < 0 && step != i64::MIN => {
            crate::build::sizes::larger(&zero, &-&length).ceil_div(&Dim::constant(-step))
        }
        _ => {
            let message = format!("a range from {start} to {end} by {step} has no known length");
            return Err(call.fault("not-constant", message));
        }
    };
    let few = count.as_const().filter(|&count| count <= MAX_ELEMENTS as i64);
    if let (Some(count), false) = (few, dtype.is_float()) {
        let elements =
            (0..count).map(|at| Element::Int(start + Dim::constant(at) * step)).collect();
        if let Some(known) = Known::new(dtype, vec![count as usize], elements) {
            return Ok(Handle::new(Value::known(call.result, known)).into());
        }
    }
    let (Some(start), Some(step)) = (start.as_const(), step.as_const()) else {
        return Err(call.fault("not-constant", "the start of a range must be known"));
    };
    let node = progression(call, count, start as f64, step as f64, dtype)?;
    Ok(Handle::new(node).into())
}

/// `start + step * position`.
fn progression(
    call: &mut Call<'_>,
    count: Dim,
    start: f64,
    step: f64,
    dtype: DType,
) -> Result<NodeId> {
    let positions = call.positions(0, &[count])?;
    let mut node = call.cast(positions, dtype)?;
    if step != 1.0 {
        let step = call.scalar_like(step, node)?;
        node = call.add("mul", Attrs::none(), &[node, step])?;
    }
    if start != 0.0 {
        let start = call.scalar_like(start, node)?;
        node = call.add("add", Attrs::none(), &[node, start])?;
    }
    Ok(node)
}

/// linspace: `steps` numbers from `start` to `end`, both included.
pub(in crate::aten) fn linspace(call: &mut Call<'_>) -> Result<NodeId> {
    let (start, end) = (call.float("start")?, call.float("end")?);
    let steps = call.int("steps")?;
    if steps < 0 {
        return Err(call.invalid(format!("`steps` is {steps}")));
    }
    let step = if steps > 1 { (end - start) / (steps - 1) as f64 } else { 0.0 };
    let dtype = call.dtype("dtype")?.unwrap_or(DType::F32);
    progression(call, Dim::constant(steps), start, step, dtype)
}

/// eye: ones on the diagonal.
pub(in crate::aten) fn eye(call: &mut Call<'_>) -> Result<NodeId> {
    let rows = call.dim("n")?;
    let columns = if call.has("m") { call.dim("m")? } else { rows.clone() };
    let shape = [rows, columns];
    let (row, column) = (call.positions(0, &shape)?, call.positions(1, &shape)?);
    let on = call.add("eq", Attrs::none(), &[row, column])?;
    let dtype = call.dtype("dtype")?.unwrap_or(DType::F32);
    call.cast(on, dtype)
}
