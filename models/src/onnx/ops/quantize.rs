//! Linear quantisation, composed of element-wise operations and exact sums of products in 32 bits.

use fornax_ir::{Attrs, DType, Dim, NodeId, attrs};

use super::movement::take_axis;
use super::window::conv_of;
use crate::build::contraction::matmul;
use crate::build::window::add_bias;
use crate::onnx::call::{Build as _, Call, Result, Value};

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
    let range = range(call, to)?;
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
    saturated(call, value, range, to)
}

/// The least and the greatest number of a type that is quantised to.
fn range(call: &Call<'_, '_>, to: DType) -> Result<[f64; 2]> {
    match to {
        DType::U8 => Ok([0.0, 255.0]),
        DType::I8 => Ok([-128.0, 127.0]),
        DType::U16 => Ok([0.0, 65535.0]),
        DType::I16 => Ok([-32768.0, 32767.0]),
        _ => Err(call.unsupported(format!("quantisation to {to} is not supported"))),
    }
}

/// Whole numbers in floats, bounded by a range and converted to its type.
fn saturated(
    call: &mut Call<'_, '_>,
    mut value: NodeId,
    [lowest, highest]: [f64; 2],
    to: DType,
) -> Result<NodeId> {
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

/// MatMulInteger: `(a - a_zero_point) (b - b_zero_point)` in 32 bits.
pub(in crate::onnx) fn matmul_integer(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let a = centred(call, 0, 2, Side::Rows)?;
    let b = centred(call, 1, 3, Side::Columns)?;
    matmul(call, a, b)
}

/// ConvInteger: the convolution of what is left of zero points, in 32 bits; padding is 0 then.
pub(in crate::onnx) fn conv_integer(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let input = centred(call, 0, 2, Side::First)?;
    let weight = centred(call, 1, 3, Side::First)?;
    conv_of(call, input, weight)
}

/// QLinearMatMul.
pub(in crate::onnx) fn qlinear_matmul(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let a = centred(call, 0, 2, Side::Rows)?;
    let b = centred(call, 3, 5, Side::Columns)?;
    let product = matmul(call, a, b)?;
    requantized(call, product, [(1, Side::Rows), (4, Side::Columns), (6, Side::Columns)], 7)
}

/// QLinearConv.
pub(in crate::onnx) fn qlinear_conv(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let input = centred(call, 0, 2, Side::First)?;
    let weight = centred(call, 3, 5, Side::First)?;
    let product = conv_of(call, input, weight)?;
    let bias = call.optional(8)?;
    let product = add_bias(call, product, bias)?;
    requantized(call, product, [(1, Side::Second), (4, Side::Second), (6, Side::Second)], 7)
}

/// DynamicQuantizeLinear: to `u8`, with scale and zero point by the range of the data and 0.
pub(in crate::onnx) fn dynamic_quantize(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let input = call.input(0)?;
    let ty = call.graph().ty(input).clone();
    let axes: Vec<i64> = (0..ty.rank() as i64).collect();
    let mut bound = |reduction: &str, op: &str| {
        let bound =
            call.add(reduction, attrs! { axes: axes.clone(), keepdims: false }, &[input])?;
        let zero = call.scalar(ty.dtype, 0.0);
        call.add(op, Attrs::none(), &[bound, zero])
    };
    let (highest, lowest) = (bound("reduce_max", "max")?, bound("reduce_min", "min")?);
    let width = call.add("sub", Attrs::none(), &[highest, lowest])?;
    let steps = call.scalar(ty.dtype, 255.0);
    let scale = call.add("div", Attrs::none(), &[width, steps])?;
    // Data that is all 0 has no range; any divisor gives 0.
    let (zero, one) = (call.scalar(ty.dtype, 0.0), call.scalar(ty.dtype, 1.0));
    let has_range = call.add("gt", Attrs::none(), &[scale, zero])?;
    let divisor = call.add("where", Attrs::none(), &[has_range, scale, one])?;
    let below = call.add("div", Attrs::none(), &[lowest, divisor])?;
    let below = call.add("neg", Attrs::none(), &[below])?;
    let below = call.add("round", Attrs::none(), &[below])?;
    let range = range(call, DType::U8)?;
    let zero_point = saturated(call, below, range, DType::U8)?;
    let offset = call.cast(zero_point, ty.dtype)?;
    let (divisor, offset) =
        (call.broadcast(divisor, &ty.shape)?, call.broadcast(offset, &ty.shape)?);
    let value = call.add("div", Attrs::none(), &[input, divisor])?;
    let value = call.add("round", Attrs::none(), &[value])?;
    let value = call.add("add", Attrs::none(), &[value, offset])?;
    let value = saturated(call, value, range, DType::U8)?;
    Ok([value, scale, zero_point].map(Value::from).to_vec())
}

/// Which axis of an operand the numbers of a parameter belong to.
#[derive(Clone, Copy)]
enum Side {
    First,
    Second,
    /// The axis before the last.
    Rows,
    /// The last axis.
    Columns,
}

/// An input of narrow integers less its zero point, in 32 bits.
fn centred(call: &mut Call<'_, '_>, index: usize, zero: usize, side: Side) -> Result<NodeId> {
    let input = call.input(index)?;
    let value = call.cast(input, DType::I32)?;
    let shape = call.graph().ty(value).shape.to_vec();
    if !call.has(zero) {
        return Ok(value);
    }
    let zero = spread(call, zero, side, &shape, DType::I32)?;
    call.add("sub", Attrs::none(), &[value, zero])
}

/// Sums of products in the units of their factors, as narrow integers in the units of the result: the scales
/// are those of both factors and of the result.
fn requantized(
    call: &mut Call<'_, '_>,
    product: NodeId,
    scales: [(usize, Side); 3],
    zero: usize,
) -> Result<NodeId> {
    let to = call.ty(zero)?.dtype;
    let range = range(call, to)?;
    let shape = call.graph().ty(product).shape.to_vec();
    let mut value = call.cast(product, DType::F32)?;
    for ((index, side), op) in scales.into_iter().zip(["mul", "mul", "div"]) {
        let scale = spread(call, index, side, &shape, DType::F32)?;
        value = call.add(op, Attrs::none(), &[value, scale])?;
    }
    value = call.add("round", Attrs::none(), &[value])?;
    let zero = spread(call, zero, scales[2].1, &shape, DType::F32)?;
    value = call.add("add", Attrs::none(), &[value, zero])?;
    saturated(call, value, range, to)
}

/// A parameter in the shape of what it is for: one number, one for each position of an axis, or of its rank.
fn spread(
    call: &mut Call<'_, '_>,
    index: usize,
    side: Side,
    shape: &[Dim],
    to: DType,
) -> Result<NodeId> {
    let node = call.input(index)?;
    let node = call.cast(node, to)?;
    let own = call.graph().ty(node).shape.clone();
    if own.elements().is(1) && own.rank() <= 1 {
        let scalar = call.reshape(node, &[])?;
        return call.broadcast(scalar, shape);
    }
    if own.rank() != 1 {
        return call.broadcast(node, shape);
    }
    let axis = match side {
        Side::First => Some(0),
        Side::Second => Some(1),
        Side::Rows => shape.len().checked_sub(2),
        Side::Columns => shape.len().checked_sub(1),
    };
    let axis = axis.filter(|&axis| axis < shape.len()).ok_or_else(|| {
        call.invalid(format!("a parameter of shape {own} does not fit an operand of its rank"))
    })?;
    let mut column = vec![Dim::constant(1); shape.len()];
    column[axis] = own[0].clone();
    let column = call.reshape(node, &column)?;
    call.broadcast(column, shape)
}
