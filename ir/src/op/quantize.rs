//! Linear quantisation.

use fornax_bundle::{DType, Dim};

use super::contraction::accumulator;
use super::domain::Domain;
use super::{Arity, Expansion, OpClass, OpCtx, OpDef, Violation, require};
use crate::interp::{Array, EvalCtx, Real, Value, rounded};
use crate::{AttrKind, Diagnostic, NodeId, Shape, Type, attrs, eval_real};

pub(super) const DEFS: &[OpDef] = &[
    OpDef {
        name: "quantize_linear",
        arity: Arity::AtLeast(2),
        attrs: &[("axis", AttrKind::Int), ("block_size", AttrKind::Int), ("to", AttrKind::DType)],
        infer: infer_quantize,
        eval: eval_real!(eval_quantize),
        class: OpClass::Composite(expand_quantize),
        doc: "`saturate(round(x / scale) + zero_point)` of type `to`, rounded to nearest with ties \
              to even; operands `x`, `scale`, and optionally `zero_point` (else 0). NaN gives 0. \
              Floats narrower than 32 bits are divided in `f32`. Scale and zero point are one \
              number (of rank 0 or one element), one per position of `axis`, or with a positive \
              `block_size` one per that many positions of `axis` (and per position of the other \
              axes). (C1) Two or three operands; `x` and `scale` are float, `zero_point` is of \
              type `to`. (C2) `to` is an integer type of 8 or 16 bits. (C3) Scale and zero point \
              have one shape, which is one of those said. Source: ONNX QuantizeLinear, opset 21.",
    },
    OpDef {
        name: "dequantize_linear",
        arity: Arity::AtLeast(2),
        attrs: &[("axis", AttrKind::Int), ("block_size", AttrKind::Int), ("to", AttrKind::DType)],
        infer: infer_dequantize,
        eval: eval_real!(eval_dequantize),
        class: OpClass::Composite(expand_dequantize),
        doc: "`(x - zero_point) * scale` of type `to`, computed in the type of `scale` (`f32` at \
              least); operands `x`, `scale`, and optionally `zero_point` (else 0). Shapes of scale \
              and zero point as in `quantize_linear`. (C1) Two or three operands; `x` is an \
              integer of 8 or 16 bits, or `i32` without a zero point; `scale` is float, \
              `zero_point` has the type of `x`. (C2) `to` is float. (C3) As `quantize_linear`. \
              Source: ONNX DequantizeLinear, opset 21.",
    },
];

/// How a scale or zero point lies on `x`.
enum Granularity {
    Tensor,
    Axis(usize),
    Block(usize),
}

fn granularity(ctx: &OpCtx<'_>) -> Option<Granularity> {
    let (x, factor) = (&ctx.operands[0].shape, &ctx.operands[1].shape);
    let (axis, block) = (ctx.attrs.int("axis"), ctx.attrs.int("block_size"));
    let axis = usize::try_from(axis).ok().filter(|&axis| axis < x.rank());
    if block > 0 {
        let axis = axis.filter(|_| factor.rank() == x.rank())?;
        let blocks = x[axis].ceil_div(&Dim::constant(block));
        let fits = (0..x.rank()).all(|i| factor[i] == if i == axis { blocks.clone() } else { x[i].clone() });
        return fits.then_some(Granularity::Block(axis));
    }
    match &**factor {
        [] => Some(Granularity::Tensor),
        [one] if one.is(1) => Some(Granularity::Tensor),
        [size] => axis.filter(|&axis| *size == x[axis]).map(Granularity::Axis),
        _ => None,
    }
}

fn require_factors(ctx: &OpCtx<'_>) -> Result<(), Violation> {
    let (x, scale) = (&ctx.operands[0], &ctx.operands[1]);
    let fits = granularity(ctx).is_some();
    require(fits && ctx.operands.iter().skip(2).all(|zero| zero.shape == scale.shape), "C3", || {
        format!(
            "scale {scale} and zero point do not fit {x} along axis {} with block size {}",
            ctx.attrs.int("axis"),
            ctx.attrs.int("block_size")
        )
    })
}

fn infer_quantize(ctx: &OpCtx<'_>) -> Result<Type, Violation> {
    let to = ctx.attrs.dtype("to");
    require(ctx.operands.len() <= 3, "C1", || format!("{} operands", ctx.operands.len()))?;
    Domain::Float.require(ctx.operands[0].dtype, "C1")?;
    Domain::Float.require(ctx.operands[1].dtype, "C1")?;
    if let Some(zero_point) = ctx.operands.get(2) {
        require(zero_point.dtype == to, "C1", || {
            format!("the zero point is {}, not {to}", zero_point.dtype)
        })?;
    }
    require(to.is_int() && to.size() <= 2, "C2", || {
        format!("`to` is {to}, not an integer type of 8 or 16 bits")
    })?;
    require_factors(ctx)?;
    Ok(Type::new(to, ctx.shape().clone()))
}

fn infer_dequantize(ctx: &OpCtx<'_>) -> Result<Type, Violation> {
    let (x, to) = (ctx.first(), ctx.attrs.dtype("to"));
    require(ctx.operands.len() <= 3, "C1", || format!("{} operands", ctx.operands.len()))?;
    let quantized = x.dtype.is_int() && (x.dtype.size() <= 2 || x.dtype == DType::I32);
    require(quantized, "C1", || format!("{} is not a quantised type", x.dtype))?;
    Domain::Float.require(ctx.operands[1].dtype, "C1")?;
    if let Some(zero_point) = ctx.operands.get(2) {
        require(zero_point.dtype == x.dtype && x.dtype != DType::I32, "C1", || {
            format!("a zero point of {} does not go with {}", zero_point.dtype, x.dtype)
        })?;
    }
    Domain::Float.require(to, "C2")?;
    require_factors(ctx)?;
    Ok(Type::new(to, x.shape.clone()))
}

/// The position in scale and zero point for each position of `x`.
fn factor_positions(ctx: &EvalCtx<'_>, factor: &[usize]) -> Vec<usize> {
    let op_ctx = OpCtx { attrs: ctx.attrs, operands: ctx.operands };
    let granularity = granularity(&op_ctx).expect("invariant: inference checked the shapes");
    let count: usize = ctx.shape.iter().product();
    let inner = |axis: usize| ctx.shape[axis + 1..].iter().product::<usize>();
    let position = |i: usize| match granularity {
        Granularity::Tensor => 0,
        Granularity::Axis(axis) => i / inner(axis) % ctx.shape[axis],
        Granularity::Block(axis) => {
            let (inner, size) = (inner(axis), ctx.shape[axis]);
            let block = i / inner % size / ctx.attrs.axis("block_size");
            (i / inner / size * factor[axis] + block) * inner + i % inner
        }
    };
    (0..count).map(position).collect()
}

fn eval_quantize<T: Real>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    let (x, scale) = (operands[0].float(), operands[1].float());
    let (low, high) = match ctx.result.dtype {
        DType::I8 => (-128.0, 127.0),
        DType::U8 => (0.0, 255.0),
        DType::I16 => (-32768.0, 32767.0),
        _ => (0.0, 65535.0),
    };
    let zero_point = |position: usize| match operands.get(2) {
        Some(zero_point) => zero_point.int().data[position] as f64,
        None => 0.0,
    };
    let positions = factor_positions(ctx, &scale.shape);
    let quantized = x.data.iter().zip(positions).map(|(x, position)| {
        let quotient = T::from_f64(x.to_f64() / scale.data[position].to_f64()).to_f64();
        let shifted = quotient.round_ties_even() + zero_point(position);
        if shifted.is_nan() { 0 } else { shifted.clamp(low, high) as i64 }
    });
    Value::Int(Array::new(ctx.shape, quantized.collect()))
}

fn eval_dequantize<T: Real>(ctx: &EvalCtx<'_>, operands: &[&Value<T>]) -> Value<T> {
    let (x, scale) = (operands[0].int(), operands[1].float());
    let precision = accumulator(ctx.operands[1].dtype);
    let zero_point = |position: usize| operands.get(2).map_or(0, |zero| zero.int().data[position]);
    let positions = factor_positions(ctx, &scale.shape);
    let real = x.data.iter().zip(positions).map(|(&x, position)| {
        let difference = rounded(precision, (x - zero_point(position)) as f64);
        T::from_f64(difference) * scale.data[position]
    });
    Value::Float(Array::new(ctx.shape, real.collect()))
}

/// A scale or zero point broadcast to the shape of `x`.
fn spread(ctx: &OpCtx<'_>, to: &mut Expansion<'_>, factor: NodeId) -> Result<NodeId, Diagnostic> {
    let shape = ctx.shape();
    let granularity = granularity(ctx).expect("invariant: inference checked the shapes");
    let shaped = match granularity {
        Granularity::Tensor => to.reshape(factor, Vec::<Dim>::new())?,
        Granularity::Axis(axis) => to.along_axis(factor, axis, shape.rank())?,
        Granularity::Block(axis) => blocks_spread(ctx, to, factor, axis)?,
    };
    to.broadcast(shaped, shape)
}

/// Repeats one value per block for each position of the block, and cuts off what the last block has too
/// many.
fn blocks_spread(
    ctx: &OpCtx<'_>,
    to: &mut Expansion<'_>,
    factor: NodeId,
    axis: usize,
) -> Result<NodeId, Diagnostic> {
    let block = Dim::constant(ctx.attrs.int("block_size"));
    let mut shape = to.ty(factor).shape.to_vec();
    shape.insert(axis + 1, Dim::constant(1));
    let split = to.reshape(factor, shape.clone())?;
    shape[axis + 1] = block;
    let repeated = to.broadcast(split, &Shape::from(shape.clone()))?;
    let size = shape.remove(axis + 1);
    shape[axis] = &shape[axis] * &size;
    let joined = to.reshape(repeated, shape.clone())?;
    if shape[axis] == ctx.shape()[axis] {
        return Ok(joined);
    }
    let cut = attrs! {
        starts: vec![Dim::constant(0); shape.len()],
        sizes: ctx.shape().to_vec(),
        steps: vec![1i64; shape.len()],
    };
    to.add("slice", cut, &[joined])
}

fn expand_quantize(ctx: &OpCtx<'_>, to: &mut Expansion<'_>) -> Result<NodeId, Diagnostic> {
    let is_double = ctx.operands[..2].iter().any(|ty| ty.dtype == DType::F64);
    let precision = if is_double { DType::F64 } else { DType::F32 };
    let x = to.cast(to.operands[0], precision)?;
    let scale = to.cast(to.operands[1], precision)?;
    let scale = spread(ctx, to, scale)?;
    let quotient = to.binary("div", x, scale)?;
    let mut rounded = to.unary("round", quotient)?;
    if let Some(&zero_point) = to.operands.get(2) {
        let zero_point = to.cast(zero_point, precision)?;
        let zero_point = spread(ctx, to, zero_point)?;
        rounded = to.binary("add", rounded, zero_point)?;
    }
    // Conversion to an integer saturates.
    to.cast(rounded, ctx.attrs.dtype("to"))
}

fn expand_dequantize(ctx: &OpCtx<'_>, to: &mut Expansion<'_>) -> Result<NodeId, Diagnostic> {
    let mut difference = to.cast(to.operands[0], DType::I32)?;
    if let Some(&zero_point) = to.operands.get(2) {
        let zero_point = to.cast(zero_point, DType::I32)?;
        let zero_point = spread(ctx, to, zero_point)?;
        difference = to.binary("sub", difference, zero_point)?;
    }
    let precision = accumulator(ctx.operands[1].dtype);
    let difference = to.cast(difference, precision)?;
    let scale = to.cast(to.operands[1], precision)?;
    let scale = spread(ctx, to, scale)?;
    let product = to.binary("mul", difference, scale)?;
    to.cast(product, ctx.attrs.dtype("to"))
}
