//! Convolutions.

use fornax_ir::{Dim, NodeId};

use crate::aten::call::{Build as _, Call, Result};
use crate::build::window::{Geometry, add_bias};

/// An operand with a batch axis, which is added where it lacks one, and whether it was.
pub(in crate::aten) fn batched(
    call: &mut Call<'_>,
    node: NodeId,
    spatial: usize,
) -> Result<(NodeId, bool)> {
    let ty = call.graph().ty(node).clone();
    if ty.rank() == spatial + 1 {
        let shape = [&[Dim::constant(1)], &ty.shape[..]].concat();
        return Ok((call.reshape(node, &shape)?, true));
    }
    if ty.rank() != spatial + 2 {
        let message =
            format!("{spatial} spatial axes need an input of rank {}, not {ty}", spatial + 2);
        return Err(call.invalid(message));
    }
    Ok((node, false))
}

/// The result without the batch axis that [`batched`] added.
pub(in crate::aten) fn unbatched(call: &mut Call<'_>, node: NodeId, added: bool) -> Result<NodeId> {
    if !added {
        return Ok(node);
    }
    let shape = call.graph().ty(node).shape[1..].to_vec();
    call.reshape(node, &shape)
}

/// conv1d, conv2d, conv3d: as many spatial axes as the weight has.
pub(in crate::aten) fn conv(call: &mut Call<'_>) -> Result<NodeId> {
    convolve(call, false)
}

/// conv_transpose1d, conv_transpose2d, conv_transpose3d.
pub(in crate::aten) fn conv_transpose(call: &mut Call<'_>) -> Result<NodeId> {
    convolve(call, true)
}

/// convolution and _convolution, which say whether they are transposed.
pub(in crate::aten) fn convolution(call: &mut Call<'_>) -> Result<NodeId> {
    let transposed = call.flag("transposed")?;
    convolve(call, transposed)
}

fn convolve(call: &mut Call<'_>, transposed: bool) -> Result<NodeId> {
    let (input, weight) = (call.input("input")?, call.input("weight")?);
    let sizes = call.graph().ty(weight).shape.to_vec();
    let spatial = sizes.len().saturating_sub(2);
    let kernel: Option<Vec<i64>> = sizes.iter().skip(2).map(Dim::as_const).collect();
    let (Some(kernel), true) = (kernel, spatial > 0) else {
        return Err(call.unsupported("the kernel's sizes must be known"));
    };
    let ones = vec![1; spatial];
    let mut geometry = Geometry {
        strides: call.spatial("stride", spatial, &ones)?,
        dilations: call.spatial("dilation", spatial, &ones)?,
        pads_begin: vec![0; spatial],
        pads_end: vec![0; spatial],
        kernel,
    };
    if call.text("padding").is_ok() {
        named_padding(call, &mut geometry)?;
    } else {
        geometry.pads_begin = call.spatial("padding", spatial, &vec![0; spatial])?;
        geometry.pads_end = geometry.pads_begin.clone();
    }
    geometry.check(call)?;
    let mut attrs = geometry.conv_attrs(call.int("groups")?);
    if transposed {
        attrs.insert("output_padding", call.spatial("output_padding", spatial, &vec![0; spatial])?);
    }
    let (input, added) = batched(call, input, spatial)?;
    let op = if transposed { "conv_transpose" } else { "conv" };
    let product = call.add(op, attrs, &[input, weight])?;
    let bias = call.optional("bias")?;
    let result = add_bias(call, product, bias)?;
    unbatched(call, result, added)
}

/// `same`: the input's size; what is odd of the padding goes to the end. `valid`: none.
fn named_padding(call: &Call<'_>, geometry: &mut Geometry) -> Result<()> {
    match &*call.text("padding")? {
        "valid" => Ok(()),
        "same" => {
            for axis in 0..geometry.kernel.len() {
                let total = geometry.reach(axis) - 1;
                geometry.pads_begin[axis] = total / 2;
                geometry.pads_end[axis] = total - total / 2;
            }
            Ok(())
        }
        other => Err(call.invalid(format!("`padding` is {other:?}"))),
    }
}
