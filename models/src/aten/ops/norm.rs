//! Normalisations.

use fornax_ir::{Attrs, Dim, NodeId, attrs};

use crate::aten::call::{Build as _, Call, Result};
use crate::aten::{Handle, Item};
use crate::build::reduce::fold;
use crate::build::window::per_channel;

/// A vector argument, or a number repeated to a shape where it is absent.
fn parameter(
    call: &mut Call<'_>,
    name: &str,
    default: f64,
    input: NodeId,
    shape: &[Dim],
) -> Result<NodeId> {
    let dtype = call.graph().ty(input).dtype;
    match call.optional(name)? {
        Some(node) => call.cast(node, dtype),
        None => {
            let number = call.scalar(dtype, default);
            call.broadcast(number, shape)
        }
    }
}

fn channels(call: &Call<'_>, input: NodeId) -> Result<Dim> {
    let ty = call.graph().ty(input);
    ty.shape.get(1).cloned().ok_or_else(|| call.invalid(format!("{ty} has no axis of channels")))
}

/// batch_norm by its running statistics, or by those of the batch where it has none.
pub(in crate::aten) fn batch_norm(call: &mut Call<'_>) -> Result<NodeId> {
    let input = call.input("input")?;
    let channels = [channels(call, input)?];
    let epsilon = call.float("eps")?;
    let tracked = call.has("running_mean") && call.has("running_var");
    if tracked && call.flag("training")? {
        return Err(call
            .unsupported("batch normalisation in training mode changes its statistics")
            .note("export the model after calling .eval()"));
    }
    let scale = parameter(call, "weight", 1.0, input, &channels)?;
    let bias = parameter(call, "bias", 0.0, input, &channels)?;
    let (mean, variance) = match tracked {
        true => (
            parameter(call, "running_mean", 0.0, input, &channels)?,
            parameter(call, "running_var", 1.0, input, &channels)?,
        ),
        false => statistics(call, input)?,
    };
    call.add("batch_norm", attrs! { epsilon: epsilon }, &[input, scale, bias, mean, variance])
}

/// Mean and variance of each channel.
fn statistics(call: &mut Call<'_>, input: NodeId) -> Result<(NodeId, NodeId)> {
    let rank = call.graph().ty(input).rank();
    let axes: Vec<usize> = (0..rank).filter(|&axis| axis != 1).collect();
    let mean = fold(call, "reduce_mean", input, &axes, false)?;
    let repeated = per_channel(call, mean, input)?;
    let centred = call.add("sub", Attrs::none(), &[input, repeated])?;
    let squares = call.add("mul", Attrs::none(), &[centred, centred])?;
    Ok((mean, fold(call, "reduce_mean", squares, &axes, false)?))
}

/// The forms of batch_norm that also give statistics, which are not supported.
pub(in crate::aten) fn batch_norm_tuple(call: &mut Call<'_>) -> Result<Item> {
    let result = batch_norm(call)?;
    Ok(Item::tuple(vec![Handle::new(result).into(), Item::Unknown, Item::Unknown]))
}

/// The number of trailing axes that are normalised over.
fn normalized_rank(call: &Call<'_>, input: NodeId) -> Result<usize> {
    let shape = call.graph().ty(input).shape.clone();
    let normalized = call.dims("normalized_shape")?;
    let count = normalized.len();
    if count == 0 || count > shape.rank() || shape[shape.rank() - count..] != normalized[..] {
        let wanted = fornax_ir::Shape::from(normalized);
        return Err(call.invalid(format!("`normalized_shape` {wanted} is not the end of {shape}")));
    }
    Ok(count)
}

/// layer_norm over the last axes.
pub(in crate::aten) fn layer_norm(call: &mut Call<'_>) -> Result<NodeId> {
    let input = call.input("input")?;
    let shape = call.graph().ty(input).shape.clone();
    let axis = shape.rank() - normalized_rank(call, input)?;
    let mut operands = vec![input, parameter(call, "weight", 1.0, input, &shape[axis..])?];
    if call.has("bias") {
        operands.push(parameter(call, "bias", 0.0, input, &shape[axis..])?);
    }
    let epsilon = call.float("eps")?;
    call.add("layer_norm", attrs! { axis: axis as i64, epsilon: epsilon }, &operands)
}

/// native_layer_norm; its statistics are not supported.
pub(in crate::aten) fn layer_norm_tuple(call: &mut Call<'_>) -> Result<Item> {
    let result = layer_norm(call)?;
    Ok(Item::tuple(vec![Handle::new(result).into(), Item::Unknown, Item::Unknown]))
}

/// rms_norm over the last axes; without `eps` it is the type's machine epsilon.
pub(in crate::aten) fn rms_norm(call: &mut Call<'_>) -> Result<NodeId> {
    let input = call.input("input")?;
    let ty = call.graph().ty(input).clone();
    let axis = ty.rank() - normalized_rank(call, input)?;
    let scale = parameter(call, "weight", 1.0, input, &ty.shape[axis..])?;
    let machine = match ty.dtype {
        fornax_ir::DType::F64 => f64::EPSILON,
        fornax_ir::DType::F16 => 2f64.powi(-10),
        fornax_ir::DType::BF16 => 2f64.powi(-7),
        _ => f64::from(f32::EPSILON),
    };
    let epsilon = call.float_or("eps", machine)?;
    call.add("rms_norm", attrs! { axis: axis as i64, epsilon: epsilon }, &[input, scale])
}

/// group_norm; an input without spatial axes gets one of size 1.
pub(in crate::aten) fn group_norm(call: &mut Call<'_>, groups: &str) -> Result<NodeId> {
    let input = call.input("input")?;
    let shape = call.graph().ty(input).shape.clone();
    let channels = [channels(call, input)?];
    let scale = parameter(call, "weight", 1.0, input, &channels)?;
    let bias = parameter(call, "bias", 0.0, input, &channels)?;
    let attrs = attrs! { groups: call.int(groups)?, epsilon: call.float("eps")? };
    if shape.rank() > 2 {
        return call.add("group_norm", attrs, &[input, scale, bias]);
    }
    let spread = [&shape[..], &[Dim::constant(1)]].concat();
    let input = call.reshape(input, &spread)?;
    let result = call.add("group_norm", attrs, &[input, scale, bias])?;
    call.reshape(result, &shape)
}

/// native_group_norm; its statistics are not supported.
pub(in crate::aten) fn group_norm_tuple(call: &mut Call<'_>) -> Result<Item> {
    let result = group_norm(call, "group")?;
    Ok(Item::tuple(vec![Handle::new(result).into(), Item::Unknown, Item::Unknown]))
}

/// instance_norm by the statistics of each instance, or as batch_norm by running ones.
pub(in crate::aten) fn instance_norm(call: &mut Call<'_>) -> Result<NodeId> {
    if !call.flag("use_input_stats")? {
        return batch_norm(call);
    }
    if call.has("running_mean") {
        return Err(call
            .unsupported("instance normalisation in training mode changes its statistics")
            .note("export the model after calling .eval()"));
    }
    let input = call.input("input")?;
    let channels = [channels(call, input)?];
    let scale = parameter(call, "weight", 1.0, input, &channels)?;
    let bias = parameter(call, "bias", 0.0, input, &channels)?;
    let epsilon = call.float("eps")?;
    call.add("instance_norm", attrs! { epsilon: epsilon }, &[input, scale, bias])
}
