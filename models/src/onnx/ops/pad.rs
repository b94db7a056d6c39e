//! Pad.

use fornax_ir::{Dim, NodeId, attrs};

use crate::onnx::call::{Build as _, Call, Result};

/// Pad. Negative pads cut off; pads and the fill value are attributes before opset 11.
pub(in crate::onnx) fn pad(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let rank = call.ty(0)?.rank();
    let (before, after) = widths(call, rank)?;
    let mode = call.text_or("mode", "constant")?;
    let fill = match (call.float("value")?, call.has(2)) {
        (Some(value), _) => f64::from(value),
        (None, false) => 0.0,
        (None, true) => match call.floats(2, "constant_value")?[..] {
            [value] => value,
            _ => return Err(call.invalid("`constant_value` must be one number")),
        },
    };
    let input = call.input(0)?;
    if before.iter().chain(&after).all(|pad| pad.is(0)) {
        return Ok(input);
    }
    call.add("pad", attrs! { before: before, after: after, mode: mode, value: fill }, &[input])
}

/// How much to add before and after each axis.
fn widths(call: &Call<'_, '_>, rank: usize) -> Result<(Vec<Dim>, Vec<Dim>)> {
    let pads: Vec<Dim> = match call.int_list("pads")? {
        Some(pads) => pads.into_iter().map(Dim::constant).collect(),
        None => call.dims(1, "pads")?,
    };
    let axes = match call.has(3) {
        true => call.ints(3, "axes")?,
        false => (0..rank as i64).collect(),
    };
    call.axes(&axes, rank)?;
    if pads.len() != 2 * axes.len() {
        let message = format!("{} pads are given for {} axes", pads.len(), axes.len());
        return Err(call.invalid(message));
    }
    let (mut before, mut after) = (vec![Dim::constant(0); rank], vec![Dim::constant(0); rank]);
    for (position, &axis) in axes.iter().enumerate() {
        let axis = call.axis(axis, rank)?;
        before[axis] = pads[position].clone();
        after[axis] = pads[position + axes.len()].clone();
    }
    Ok((before, after))
}
