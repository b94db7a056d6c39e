//! Linear quantisation, composed of element-wise operations.

use fornax_ir::{Attrs, DType, Dim, NodeId};

use super::movement::take_axis;
use crate::onnx::call::{Build as _, Call, Result};

/// QuantizeLinear: `saturate(round(x / scale) + zero_point)`, ties to even.
pub(in crate::onnx) fn quantize(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let to = match (call.has(2), call.dtype("output_dtype")?) {
        (true, given) => {
            let zero_point = call.ty(2)?.dtype;
            match given.filter(|&dtype| dtype != zero_point) {
                Some(given) => {
                    let message =
                        format!("`output_dtype` {given} is not the zero point's {zero_point}");
                    return Err(call.invalid(message));
                }
                None => zero_point,
            }
        }
        (false, given) => given.unwrap_or(DType::U8),
    };
    call.ignore("saturate");
    let (lowest, highest) = match to {
        DType::U8 => (0.0, 255.0),
        DType::I8 => (-128.0, 127.0),
        DType::U16 => (0.0, 65535.0),
        DType::I16 => (-32768.0, 32767.0),
        _ => return Err(call.unsupported(format!("quantisation to {to} is not supported"))),
    };
    let input = call.input(0)?;
    // The type of the scale, or `precision`, is that of the division; see `work_dtype`.
    let precision = call.dtype("precision")?.unwrap_or(call.ty(1)?.dtype);
    let work = work_dtype(precision);
    let value = call.cast(input, work)?;
    let scale = parameter(call, 1, input, work)?;
    let mut value = call.add("div", Attrs::none(), &[value, scale])?;
    if work != precision && precision.is_float() {
        let rounded = call.cast(value, precision)?;
        value = call.cast(rounded, work)?;
    }
    value = call.add("round", Attrs::none(), &[value])?;
    if call.has(2) {
        let zero_point = parameter(call, 2, input, work)?;
        value = call.add("add", Attrs::none(), &[value, zero_point])?;
    }
    for (bound, op) in [(lowest, "max"), (highest, "min")] {
        let bound = call.scalar_like(bound, value)?;
        value = call.add(op, Attrs::none(), &[value, bound])?;
    }
    call.cast(value, to)
}

/// DequantizeLinear: `(x - zero_point) * scale`.
pub(in crate::onnx) fn dequantize(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let input = call.input(0)?;
    let from = call.graph().ty(input).dtype;
    if !from.is_int() {
        return Err(call.unsupported(format!("quantised values of type {from} are not supported")));
    }
    let to = call.dtype("output_dtype")?.unwrap_or(call.ty(1)?.dtype);
    // Differences of the narrow types are exact in 32 bits.
    let mut value = call.cast(input, DType::I32)?;
    if call.has(2) {
        let zero_point = parameter(call, 2, input, DType::I32)?;
        value = call.add("sub", Attrs::none(), &[value, zero_point])?;
    }
    let work = work_dtype(to);
    let value = call.cast(value, work)?;
    let scale = parameter(call, 1, input, work)?;
    let value = call.add("mul", Attrs::none(), &[value, scale])?;
    call.cast(value, to)
}

/// 16-bit floats cannot hold the quantised integers: they are computed with in `f32`.
fn work_dtype(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// Scale or zero point, repeated to the shape of the data: one number, one per position of `axis`, or one
/// per block of positions.
fn parameter(call: &mut Call<'_, '_>, index: usize, like: NodeId, to: DType) -> Result<NodeId> {
    let axis = call.int_or("axis", 1)?;
    let block = call.int_or("block_size", 0)?;
    let shape = call.graph().ty(like).shape.clone();
    let node = call.input(index)?;
    let node = call.cast(node, to)?;
    let own = call.graph().ty(node).shape.clone();
    if own.elements().is(1) && own.rank() <= 1 {
        let scalar = call.reshape(node, &[])?;
        return call.broadcast(scalar, &shape);
    }
    let axis = call.axis(axis, shape.rank())?;
    if own.rank() == 1 && block == 0 {
        let mut column = vec![Dim::constant(1); shape.rank()];
        column[axis] = own[0].clone();
        let column = call.reshape(node, &column)?;
        return call.broadcast(column, &shape);
    }
    if own.rank() != shape.rank() || block < 1 {
        return Err(
            call.invalid(format!("a parameter of shape {own} does not fit data of {shape}"))
        );
    }
    let block = Dim::constant(block);
    let mut spread = own.to_vec();
    spread.insert(axis + 1, Dim::constant(1));
    let spread = call.reshape(node, &spread)?;
    let mut repeated = own.to_vec();
    repeated.insert(axis + 1, block.clone());
    let repeated = call.broadcast(spread, &repeated)?;
    let mut joined = own.to_vec();
    joined[axis] = &own[axis] * &block;
    let joined = call.reshape(repeated, &joined)?;
    take_axis(call, joined, axis, Dim::constant(0), shape[axis].clone())
}
