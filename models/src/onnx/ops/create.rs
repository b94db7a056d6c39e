//! Operators that make tensors from nothing but sizes and numbers.

use fornax_ir::{DType, Dim, NodeId, Shape, attrs};

use super::movement;
use crate::build::known::Known;
use crate::onnx::call::{Build as _, Call, Result, Value};

/// Constant, in its tensor and plain forms.
pub(in crate::onnx) fn constant(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let name = call.node.output.first().cloned().unwrap_or_default();
    if let Some(proto) = call.tensor("value")? {
        let value = call.importer.tensor_value(&name, proto);
        return match value {
            Ok(value) => Ok(vec![value]),
            Err(error) => Err(call.invalid(format!("attribute `value`: {error}"))),
        };
    }
    let floats = |shape: &[usize], values: &[f32]| fornax_ir::Tensor::from_f32(shape, values);
    let ints = |shape: &[usize], values: &[i64]| fornax_ir::Tensor::from_i64(shape, values);
    let tensor = if let Some(value) = call.float("value_float")? {
        floats(&[], &[value])
    } else if let Some(values) = call.float_list("value_floats")? {
        floats(&[values.len()], &values)
    } else if let Some(value) = call.int("value_int")? {
        ints(&[], &[value])
    } else if let Some(values) = call.int_list("value_ints")? {
        ints(&[values.len()], &values)
    } else {
        return Err(call.unsupported("only constants of numbers in dense tensors are supported"));
    };
    Ok(vec![Value::tensor(&name, tensor)])
}

/// ConstantOfShape: one number, repeated.
pub(in crate::onnx) fn constant_of_shape(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let shape = call.dims(0, "shape")?;
    let value = movement::fill_value(call)?;
    let scalar = call.materialize(&Value::tensor("", value))?;
    call.broadcast(scalar, &shape)
}

/// EyeLike: ones on the `k`-th diagonal.
pub(in crate::onnx) fn eye_like(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let like = call.ty(0)?;
    let dtype = call.dtype("dtype")?.unwrap_or(like.dtype);
    let diagonal = call.int_or("k", 0)?;
    if like.rank() != 2 {
        return Err(call.invalid(format!("the input must be a matrix, but is {like}")));
    }
    let rows = call.positions(0, &like.shape)?;
    let columns = call.positions(1, &like.shape)?;
    let offset = call.scalar_like(diagonal as f64, rows)?;
    let rows = call.add("add", attrs! {}, &[rows, offset])?;
    let on = call.add("eq", attrs! {}, &[rows, columns])?;
    call.cast(on, dtype)
}

/// Range, when it is too large to fold or made of floats.
pub(in crate::onnx) fn range(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let dtype = call.ty(0)?.dtype;
    // Sums are made in f32 or wider whatever the stash type.
    call.ignore("stash_type");
    let count = if dtype.is_float() { float_count(call)? } else { int_count(call)? };
    let positions = call.positions(0, &[count])?;
    let positions = call.cast(positions, dtype)?;
    let mut scalar = |index: usize| {
        let node = call.input(index)?;
        let node = call.reshape(node, &[])?;
        let shape = call.graph().ty(positions).shape.clone();
        call.broadcast(node, &shape)
    };
    let (start, step) = (scalar(0)?, scalar(2)?);
    let offsets = call.add("mul", attrs! {}, &[positions, step])?;
    call.add("add", attrs! {}, &[start, offsets])
}

fn float_count(call: &Call<'_, '_>) -> Result<Dim> {
    let number = |index, what| {
        let values = call.floats(index, what)?;
        values.first().copied().ok_or_else(|| call.invalid(format!("{what} is empty")))
    };
    let (start, limit, step) = (number(0, "start")?, number(1, "limit")?, number(2, "delta")?);
    let count = ((limit - start) / step).ceil().max(0.0);
    if count.is_finite() && count < 2f64.powi(40) {
        Ok(Dim::constant(count as i64))
    } else {
        Err(call.invalid(format!("a range from {start} to {limit} by {step} has no length")))
    }
}

fn int_count(call: &Call<'_, '_>) -> Result<Dim> {
    let number = |index, what| {
        let values = call.dims(index, what)?;
        values.into_iter().next().ok_or_else(|| call.invalid(format!("{what} is empty")))
    };
    let (start, limit, step) = (number(0, "start")?, number(1, "limit")?, number(2, "delta")?);
    let length = &limit - &start;
    let zero = Dim::constant(0);
    match step.as_const() {
        Some(step) if step > 0 => {
            Ok(crate::build::sizes::larger(&zero, &length).ceil_div(&Dim::constant(step)))
        }
        Some(step) if step < 0 && step != i64::MIN => {
            Ok(crate::build::sizes::larger(&zero, &-&length).ceil_div(&Dim::constant(-step)))
        }
        _ => {
            let message = format!("a range from {start} to {limit} by {step} has no known length");
            Err(call.fault("not-constant", message))
        }
    }
}

/// OneHot: `on` where the position along the new axis is the index (from the back if negative).
pub(in crate::onnx) fn one_hot(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let depth = depth(call)?;
    let indices = call.input(0)?;
    let (values, ty) = (call.input(2)?, call.graph().ty(indices).clone());
    if call.graph().ty(values).shape[..] != [Dim::constant(2)] {
        return Err(call.invalid("`values` must hold two numbers, off and on"));
    }
    let rank = ty.rank() + 1;
    let axis = call.axis(call.int_or("axis", -1)?, rank)?;
    let mut shape = ty.shape.to_vec();
    shape.insert(axis, Dim::constant(1));
    // Before opset 28 indices may be floats; they are whole numbers.
    let indices = call.cast(indices, DType::I64)?;
    let indices = call.reshape(indices, &shape)?;
    shape[axis] = depth.clone();
    let indices = call.broadcast(indices, &shape)?;
    let positions = call.positions(axis, &shape)?;
    let from_front = call.add("eq", attrs! {}, &[indices, positions])?;
    let size = size_scalar(call, &depth, &shape)?;
    let behind = call.add("sub", attrs! {}, &[positions, size])?;
    let from_back = call.add("eq", attrs! {}, &[indices, behind])?;
    let hit = call.add("or", attrs! {}, &[from_front, from_back])?;
    let mut value = |at: i64| {
        let one = Dim::constant(1);
        let value = movement::take_axis(call, values, 0, Dim::constant(at), one)?;
        let value = call.reshape(value, &[])?;
        call.broadcast(value, &shape)
    };
    let (off, on) = (value(0)?, value(1)?);
    call.add("where", attrs! {}, &[hit, on, off])
}

fn depth(call: &Call<'_, '_>) -> Result<Dim> {
    let known: Option<Known> = call.known(1).and_then(|known| known.cast(DType::I64));
    let mut dims = known
        .and_then(|known| known.dims())
        .ok_or_else(|| call.fault("not-constant", "the depth must be known at compile time"))?;
    match (dims.pop(), dims.pop()) {
        (Some(depth), None) => Ok(depth),
        _ => Err(call.invalid("`depth` must be one number")),
    }
}

/// A size as an i64 value of a shape.
fn size_scalar(call: &mut Call<'_, '_>, size: &Dim, shape: &[Dim]) -> Result<NodeId> {
    match size.as_const() {
        Some(value) => {
            let scalar = call.scalar(DType::I64, value as f64);
            call.broadcast(scalar, shape)
        }
        None => {
            let shape = Shape::from(shape);
            let message = format!("the size {size} of {shape} must be known at compile time");
            Err(call.fault("not-constant", message).note("specialise it with --dim"))
        }
    }
}

/// The longest window that is computed while importing.
const MAX_WINDOW: i64 = 1 << 20;

/// HannWindow and its like: `w[0] + w[1] cos(t) + w[2] cos(2 t)`, with `t` going once around.
pub(in crate::onnx) fn window(call: &mut Call<'_, '_>, weights: [f64; 3]) -> Result<NodeId> {
    let size = match call.ints(0, "size")?[..] {
        [size] if (0..=MAX_WINDOW).contains(&size) => size,
        _ => return Err(call.invalid(format!("`size` must be one number up to {MAX_WINDOW}"))),
    };
    let dtype = call.dtype("output_datatype")?.unwrap_or(DType::F32);
    let around = if call.flag("periodic", true)? { size } else { size - 1 };
    let value = |at: i64| {
        let angle = std::f64::consts::TAU * at as f64 / around.max(1) as f64;
        weights[0] + weights[1] * angle.cos() + weights[2] * (2.0 * angle).cos()
    };
    let bytes: Vec<u8> = (0..size).flat_map(|at| value(at).to_le_bytes()).collect();
    let tensor = fornax_ir::Tensor::new(DType::F64, vec![bytes.len() / 8], bytes);
    let tensor = tensor.map_err(|error| call.invalid(format!("the window: {error}")))?;
    let name = call.node.output.first().cloned().unwrap_or_default();
    let window = call.materialize(&Value::tensor(&name, tensor))?;
    call.cast(window, dtype)
}
