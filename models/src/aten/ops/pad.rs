//! Padding.

use fornax_ir::{Dim, NodeId, attrs};

use crate::aten::call::{Build as _, Call, Result};

/// Padding in a mode of the `pad` op. Widths come in pairs, the last axis first.
fn padded(call: &mut Call<'_>, widths: &[Dim], mode: &str, value: f64) -> Result<NodeId> {
    let input = call.input("self")?;
    let rank = call.graph().ty(input).rank();
    if !widths.len().is_multiple_of(2) || widths.len() / 2 > rank {
        return Err(call.invalid(format!("{} widths are given for {rank} axes", widths.len())));
    }
    let (mut before, mut after) = (vec![Dim::constant(0); rank], vec![Dim::constant(0); rank]);
    for (place, pair) in widths.chunks_exact(2).enumerate() {
        before[rank - 1 - place] = pair[0].clone();
        after[rank - 1 - place] = pair[1].clone();
    }
    if widths.iter().all(|width| width.is(0)) {
        return Ok(input);
    }
    call.add("pad", attrs! { before: before, after: after, mode: mode, value: value }, &[input])
}

/// pad, which names its mode.
pub(in crate::aten) fn pad(call: &mut Call<'_>) -> Result<NodeId> {
    let widths = call.dims("pad")?;
    let mode = call.text("mode")?;
    let mode = match &*mode {
        "constant" => "constant",
        "reflect" => "reflect",
        "replicate" => "edge",
        "circular" => "wrap",
        other => return Err(call.invalid(format!("`mode` is {other:?}"))),
    };
    let value = call.float_or("value", 0.0)?;
    padded(call, &widths, mode, value)
}

/// constant_pad_nd.
pub(in crate::aten) fn constant(call: &mut Call<'_>) -> Result<NodeId> {
    let widths = call.dims("pad")?;
    let value = call.float("value")?;
    padded(call, &widths, "constant", value)
}

/// reflection_pad and replication_pad.
pub(in crate::aten) fn repeated(call: &mut Call<'_>, mode: &str) -> Result<NodeId> {
    let widths = call.dims("padding")?;
    padded(call, &widths, mode, 0.0)
}
