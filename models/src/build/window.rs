//! Windows that slide over spatial axes, and numbers per channel.

use fornax_ir::{Attrs, Dim, NodeId, attrs};

use super::{Build, Result};

/// How windows lie on the spatial axes, one entry per axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) kernel: Vec<i64>,
    pub(crate) strides: Vec<i64>,
    pub(crate) dilations: Vec<i64>,
    pub(crate) pads_begin: Vec<i64>,
    pub(crate) pads_end: Vec<i64>,
}

impl Geometry {
    /// Fails where a number is out of range.
    pub(crate) fn check(&self, call: &impl Build) -> Result<()> {
        const LIMIT: i64 = 1 << 31;
        let lists = [
            ("kernel_shape", &self.kernel, 1),
            ("strides", &self.strides, 1),
            ("dilations", &self.dilations, 1),
            ("pads", &self.pads_begin, 0),
            ("pads", &self.pads_end, 0),
        ];
        for (name, values, least) in lists {
            if !values.iter().all(|value| (least..LIMIT).contains(value)) {
                let message = format!("`{name}` {values:?} must be numbers of at least {least}");
                return Err(call.invalid(message));
            }
        }
        Ok(())
    }

    /// Positions from the first to the last one of a window, both included.
    pub(crate) fn reach(&self, axis: usize) -> i64 {
        (self.kernel[axis] - 1) * self.dilations[axis] + 1
    }

    /// The attributes of a convolution.
    pub(crate) fn conv_attrs(&self, groups: i64) -> Attrs {
        attrs! {
            strides: self.strides.clone(),
            pads_begin: self.pads_begin.clone(),
            pads_end: self.pads_end.clone(),
            dilations: self.dilations.clone(),
            groups: groups,
        }
    }
}

/// Adds one number per channel, if there are any.
pub(crate) fn add_bias(
    call: &mut impl Build,
    product: NodeId,
    bias: Option<NodeId>,
) -> Result<NodeId> {
    let Some(bias) = bias else { return Ok(product) };
    let bias = per_channel(call, bias, product)?;
    call.add("add", Attrs::none(), &[product, bias])
}

/// A vector with one element per channel, repeated to the shape of `like`, whose axis 1 are channels.
pub(crate) fn per_channel(call: &mut impl Build, vector: NodeId, like: NodeId) -> Result<NodeId> {
    let shape = call.graph().ty(like).shape.clone();
    let found = call.graph().ty(vector).clone();
    let Some(channels) = shape.get(1).filter(|&channels| found.shape[..] == [channels.clone()])
    else {
        let message = format!("one number per channel of {shape} is needed, but {found} is given");
        return Err(call.invalid(message));
    };
    let mut column = vec![channels.clone()];
    column.resize(shape.rank() - 1, Dim::constant(1));
    let column = call.reshape(vector, &column)?;
    call.broadcast(column, &shape)
}
