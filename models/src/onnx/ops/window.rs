//! Windows that slide over spatial axes: their geometry, and the convolutions.

use fornax_ir::{Dim, NodeId};

pub(in crate::onnx) use crate::build::window::Geometry;
use crate::build::window::add_bias;
use crate::onnx::call::{Build as _, Call, Result};

/// Whether and how padding is computed from the sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::onnx) enum AutoPad {
    /// As the attribute `pads` says.
    Explicit,
    /// None.
    Valid,
    /// So that the result has `ceil(size / stride)` elements; an odd rest goes to the end.
    SameUpper,
    /// As before; an odd rest goes to the begin.
    SameLower,
}

impl AutoPad {
    pub(in crate::onnx) fn read(call: &Call<'_, '_>) -> Result<Self> {
        Ok(match call.text_or("auto_pad", "NOTSET")? {
            "NOTSET" | "" => Self::Explicit,
            "VALID" => Self::Valid,
            "SAME_UPPER" => Self::SameUpper,
            "SAME_LOWER" => Self::SameLower,
            other => return Err(call.invalid(format!("`auto_pad` is {other:?}"))),
        })
    }

    /// Divides padding between begin and end.
    pub(in crate::onnx) fn divide(self, total: i64) -> (i64, i64) {
        let half = total / 2;
        if self == Self::SameLower { (total - half, half) } else { (half, total - half) }
    }
}

/// How an ONNX node says it.
impl Geometry {
    /// Kernel, strides, dilations and explicit pads; `weight` are the kernel's sizes by the weight.
    pub(in crate::onnx) fn read(
        call: &Call<'_, '_>,
        rank: usize,
        weight: Option<&[Dim]>,
    ) -> Result<Self> {
        let list = |name: &'static str, default: i64, count: usize| {
            let values = call.int_list(name)?.unwrap_or_else(|| vec![default; count]);
            if values.len() == count {
                return Ok(values);
            }
            let found = values.len();
            Err(call.invalid(format!("`{name}` has {found} entries, not {count}")))
        };
        let kernel = match (call.int_list("kernel_shape")?, weight) {
            (Some(kernel), None) => kernel,
            (None, None) => return Err(call.needs("kernel_shape")),
            (given, Some(weight)) => {
                let sizes: Option<Vec<i64>> = weight.iter().map(Dim::as_const).collect();
                let sizes =
                    sizes.ok_or_else(|| call.unsupported("the kernel's sizes must be known"))?;
                match given.filter(|given| *given != sizes) {
                    Some(given) => {
                        let message =
                            format!("`kernel_shape` {given:?} is not the weight's {sizes:?}");
                        return Err(call.invalid(message));
                    }
                    None => sizes,
                }
            }
        };
        if kernel.len() != rank {
            let message = format!("a kernel of rank {} slides over {rank} axes", kernel.len());
            return Err(call.invalid(message));
        }
        let pads = list("pads", 0, 2 * rank)?;
        let geometry = Self {
            kernel,
            strides: list("strides", 1, rank)?,
            dilations: list("dilations", 1, rank)?,
            pads_begin: pads[..rank].to_vec(),
            pads_end: pads[rank..].to_vec(),
        };
        geometry.check(call)?;
        Ok(geometry)
    }

    /// Replaces the pads by what `auto_pad` says for operands of these spatial sizes.
    pub(in crate::onnx) fn apply_auto_pad(
        &mut self,
        call: &Call<'_, '_>,
        auto_pad: AutoPad,
        sizes: &[Dim],
    ) -> Result<()> {
        for (axis, size) in sizes.iter().enumerate() {
            let (begin, end) = match auto_pad {
                AutoPad::Explicit => return Ok(()),
                AutoPad::Valid => (0, 0),
                _ => auto_pad.divide(self.same_padding(call, axis, size)?),
            };
            self.pads_begin[axis] = begin;
            self.pads_end[axis] = end;
        }
        Ok(())
    }

    /// `max(0, (ceil(size / stride) - 1) * stride + reach - size)`
    fn same_padding(&self, call: &Call<'_, '_>, axis: usize, size: &Dim) -> Result<i64> {
        let stride = Dim::constant(self.strides[axis]);
        let windows = size.ceil_div(&stride);
        let covered = (windows - Dim::constant(1)) * stride + Dim::constant(self.reach(axis));
        let padding = (covered - size).as_const().ok_or_else(|| {
            let message = format!("the padding of spatial axis {axis} depends on its size {size}");
            call.fault("not-constant", message).note("specialise the size with --dim or --shape")
        })?;
        Ok(padding.max(0))
    }
}

/// The number of spatial axes of a convolution's or pooling's operand.
pub(in crate::onnx) fn spatial_rank(call: &Call<'_, '_>) -> Result<usize> {
    let ty = call.ty(0)?;
    match ty.rank().checked_sub(2) {
        Some(rank) if rank >= 1 => Ok(rank),
        _ => {
            Err(call
                .invalid(format!("the input needs batch, channels and spatial axes, but is {ty}")))
        }
    }
}

/// Conv.
pub(in crate::onnx) fn conv(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let (input, weight) = (call.input(0)?, call.input(1)?);
    let product = conv_of(call, input, weight)?;
    let bias = call.optional(2)?;
    add_bias(call, product, bias)
}

/// A convolution as the node's attributes describe it.
pub(in crate::onnx) fn conv_of(
    call: &mut Call<'_, '_>,
    input: NodeId,
    weight: NodeId,
) -> Result<NodeId> {
    let rank = spatial_rank(call)?;
    let shape = call.graph().ty(input).shape.clone();
    let kernel = call.graph().ty(weight).shape.get(2..).unwrap_or_default().to_vec();
    let mut geometry = Geometry::read(call, rank, Some(&kernel))?;
    geometry.apply_auto_pad(call, AutoPad::read(call)?, &shape[2..])?;
    let attrs = geometry.conv_attrs(call.int_or("group", 1)?);
    call.add("conv", attrs, &[input, weight])
}

/// ConvTranspose.
pub(in crate::onnx) fn conv_transpose(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let (rank, shape) = (spatial_rank(call)?, call.ty(0)?.shape);
    let weight = call.ty(1)?;
    let kernel = weight.shape.get(2..).unwrap_or_default();
    let mut geometry = Geometry::read(call, rank, Some(kernel))?;
    let auto_pad = AutoPad::read(call)?;
    let mut extra = call.int_list("output_padding")?.unwrap_or_else(|| vec![0; rank]);
    // Some exporters also write the batch and the channels.
    let wanted = call.int_list("output_shape")?;
    let wanted = wanted.map(|sizes| sizes[sizes.len().saturating_sub(rank)..].to_vec());
    if extra.len() != rank || wanted.as_ref().is_some_and(|sizes| sizes.len() != rank) {
        return Err(
            call.invalid(format!("`output_padding` or `output_shape` lacks {rank} entries"))
        );
    }
    for axis in 0..rank {
        let size = &shape[axis + 2];
        let target = match (&wanted, auto_pad) {
            (Some(sizes), _) => Dim::constant(sizes[axis]),
            (None, AutoPad::SameUpper | AutoPad::SameLower) => {
                size * Dim::constant(geometry.strides[axis])
            }
            (None, AutoPad::Valid) => {
                (geometry.pads_begin[axis], geometry.pads_end[axis]) = (0, 0);
                continue;
            }
            (None, AutoPad::Explicit) => continue,
        };
        let full = Dim::constant(geometry.strides[axis]) * (size - Dim::constant(1))
            + Dim::constant(extra[axis] + geometry.reach(axis));
        let total = (full - target).as_const().ok_or_else(|| {
            let message = format!("the padding of spatial axis {axis} depends on its size {size}");
            call.fault("not-constant", message).note("specialise the size with --dim or --shape")
        })?;
        // ONNX, ConvTranspose: the odd rest goes to the end only for SAME_UPPER.
        let (begin, end) = match auto_pad {
            AutoPad::SameUpper => AutoPad::SameUpper.divide(total.max(0)),
            _ => AutoPad::SameLower.divide(total.max(0)),
        };
        (geometry.pads_begin[axis], geometry.pads_end[axis]) = (begin, end);
        // A result larger than what the kernel reaches ends in zeros.
        extra[axis] += (-total).max(0);
    }
    let mut attrs = geometry.conv_attrs(call.int_or("group", 1)?);
    attrs.insert("output_padding", extra);
    let (input, weight) = (call.input(0)?, call.input(1)?);
    let product = call.add("conv_transpose", attrs, &[input, weight])?;
    let bias = call.optional(2)?;
    add_bias(call, product, bias)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_padding_goes_to_the_named_side() {
        assert_eq!(AutoPad::SameUpper.divide(3), (1, 2));
        assert_eq!(AutoPad::SameLower.divide(3), (2, 1));
        assert_eq!(AutoPad::SameLower.divide(4), (2, 2));
    }
}
