//! Normalisations.

use fornax_ir::{Attrs, DType, Dim, NodeId, Type, attrs};

use super::reduce;
use super::window::spatial_rank;
use crate::onnx::call::{Build as _, Call, Result, Value};

/// BatchNormalization at inference.
pub(in crate::onnx) fn batch_norm(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    if call.flag("training_mode", false)? {
        return Err(call.unsupported("BatchNormalization in training mode is not supported"));
    }
    call.ignore("momentum");
    // Opset 7 and 8: statistics per element instead of per channel.
    if !call.flag("spatial", true)? {
        return Err(call.unsupported("BatchNormalization with `spatial` 0 is not supported"));
    }
    let epsilon = call.float_or("epsilon", 1e-5)?;
    let input = call.input(0)?;
    let dtype = call.graph().ty(input).dtype;
    // From opset 14 on the parameters may have another float type than the data.
    let mut operands = vec![input];
    for index in 1..5 {
        let parameter = call.input(index)?;
        operands.push(call.cast(parameter, dtype)?);
    }
    Ok(vec![call.add("batch_norm", attrs! { epsilon: epsilon }, &operands)?.into()])
}

/// InstanceNormalization: each channel of each instance by itself.
pub(in crate::onnx) fn instance_norm(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let epsilon = call.float_or("epsilon", 1e-5)?;
    let operands = [call.input(0)?, call.input(1)?, call.input(2)?];
    call.add("instance_norm", attrs! { epsilon: epsilon }, &operands)
}

/// GroupNormalization. Scale and bias have one element per group before opset 21, per channel from then
/// on.
pub(in crate::onnx) fn group_norm(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let groups = call.int("num_groups")?.ok_or_else(|| call.needs("num_groups"))?;
    let epsilon = call.float_or("epsilon", 1e-5)?;
    float_stash(call)?;
    spatial_rank(call)?;
    let channels = call.ty(0)?.shape[1].clone();
    let mut operands = vec![call.input(0)?];
    for index in 1..3 {
        let parameter = call.input(index)?;
        operands.push(match call.opset < 21 {
            true => spread_over_group(call, parameter, groups, &channels)?,
            false => parameter,
        });
    }
    call.add("group_norm", attrs! { groups: groups, epsilon: epsilon }, &operands)
}

/// One element per group, repeated to one per channel.
fn spread_over_group(
    call: &mut Call<'_, '_>,
    parameter: NodeId,
    groups: i64,
    channels: &Dim,
) -> Result<NodeId> {
    let groups = Dim::constant(groups.max(1));
    let size = channels.divided_exactly(&groups).ok_or_else(|| {
        call.invalid(format!("{channels} channels are not divisible into {groups} groups"))
    })?;
    let column = call.reshape(parameter, &[groups.clone(), Dim::constant(1)])?;
    let repeated = call.broadcast(column, &[groups, size])?;
    call.reshape(repeated, std::slice::from_ref(channels))
}

/// LayerNormalization; mean and inverse deviation are optional further outputs.
pub(in crate::onnx) fn layer_norm(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let epsilon = call.float_or("epsilon", 1e-5)?;
    float_stash(call)?;
    let input = call.input(0)?;
    let ty = call.graph().ty(input).clone();
    let axis = call.axis(call.int_or("axis", -1)?, ty.rank())?;
    let mut operands = vec![input, parameter(call, 1, &ty)?];
    if call.has(2) {
        operands.push(parameter(call, 2, &ty)?);
    }
    let attrs = attrs! { axis: axis as i64, epsilon: epsilon };
    let mut outputs = vec![call.add("layer_norm", attrs, &operands)?.into()];
    if call.wants(1) || call.wants(2) {
        let (mean, inverse) = statistics(call, input, axis, epsilon)?;
        outputs.extend([mean.into(), inverse.into()]);
    }
    Ok(outputs)
}

/// Mean and inverse standard deviation over the axes from `axis` on, in the stash type.
fn statistics(
    call: &mut Call<'_, '_>,
    input: NodeId,
    axis: usize,
    epsilon: f64,
) -> Result<(NodeId, NodeId)> {
    let ty = call.graph().ty(input).clone();
    let axes: Vec<usize> = (axis..ty.rank()).collect();
    let work = if ty.dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let input = call.cast(input, work)?;
    let mean = reduce::fold(call, "reduce_mean", input, &axes, true)?;
    let repeated = call.broadcast(mean, &ty.shape)?;
    let centred = call.add("sub", Attrs::none(), &[input, repeated])?;
    let squares = call.add("mul", Attrs::none(), &[centred, centred])?;
    let variance = reduce::fold(call, "reduce_mean", squares, &axes, true)?;
    let epsilon = call.scalar_like(epsilon, variance)?;
    let shifted = call.add("add", Attrs::none(), &[variance, epsilon])?;
    Ok((mean, call.add("rsqrt", Attrs::none(), &[shifted])?))
}

/// RMSNormalization.
pub(in crate::onnx) fn rms_norm(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let epsilon = call.float_or("epsilon", 1e-5)?;
    float_stash(call)?;
    let input = call.input(0)?;
    let ty = call.graph().ty(input).clone();
    let axis = call.axis(call.int_or("axis", -1)?, ty.rank())?;
    let scale = parameter(call, 1, &ty)?;
    call.add("rms_norm", attrs! { axis: axis as i64, epsilon: epsilon }, &[input, scale])
}

/// A scale or bias in the type of the data.
fn parameter(call: &mut Call<'_, '_>, index: usize, like: &Type) -> Result<NodeId> {
    let node = call.input(index)?;
    call.cast(node, like.dtype)
}

/// Statistics are computed in `f32` or wider, which is the default; less precision is not offered.
fn float_stash(call: &Call<'_, '_>) -> Result<()> {
    match call.int_or("stash_type", 1)? {
        // FLOAT, FLOAT16, DOUBLE, BFLOAT16: the interpreter and kernels never compute in less than f32.
        1 | 10 | 16 => Ok(()),
        11 if call.ty(0)?.dtype == DType::F64 => Ok(()),
        other => Err(call.unsupported(format!("`stash_type` {other} is not supported"))),
    }
}

/// LpNormalization: divided by the 1- or 2-norm along an axis; 0 where the norm is 0.
pub(in crate::onnx) fn lp_norm(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let axis = call.axis(call.int_or("axis", -1)?, call.ty(0)?.rank())?;
    let p = call.int_or("p", 2)?;
    let input = call.input(0)?;
    call.add("lp_norm", attrs! { axis: axis as i64, p: p }, &[input])
}

/// MeanVarianceNormalization: `(x - mean) / (deviation + 1e-9)`. The 1e-9 is in the function body that
/// defines the operator (ONNX, opset 13).
pub(in crate::onnx) fn mean_variance_norm(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let axes = call.int_list("axes")?.unwrap_or_else(|| vec![0, 2, 3]);
    let axes = call.axes(&axes, call.ty(0)?.rank())?;
    let axes: Vec<i64> = axes.into_iter().map(|axis| axis as i64).collect();
    let input = call.input(0)?;
    call.add("mean_variance_norm", attrs! { axes: axes, epsilon: 1e-9 }, &[input])
}

/// LRN: the sum of squares over a window of channels.
pub(in crate::onnx) fn lrn(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let size = call.int("size")?.ok_or_else(|| call.needs("size"))?;
    let attrs = attrs! {
        size: size,
        alpha: call.float_or("alpha", 1e-4)?,
        beta: call.float_or("beta", 0.75)?,
        bias: call.float_or("bias", 1.0)?,
    };
    let input = call.input(0)?;
    call.add("lrn", attrs, &[input])
}
