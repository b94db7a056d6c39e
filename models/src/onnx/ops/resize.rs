//! Resize and Upsample.

use fornax_ir::{Dim, NodeId};

use crate::build::resize::{AxisChange, attributes};
use crate::onnx::call::{Build as _, Call, Result};

/// Resize. Before opset 11 it had neither `roi` nor coordinate modes.
pub(in crate::onnx) fn resize(call: &mut Call<'_, '_>) -> Result<NodeId> {
    if call.opset < 11 {
        let scales = call.floats(1, "scales")?;
        return simple(call, &scales);
    }
    let shape = call.ty(0)?.shape.to_vec();
    let axes = match call.int_list("axes")? {
        Some(axes) => {
            call.axes(&axes, shape.len())?;
            axes.iter().map(|&axis| call.axis(axis, shape.len())).collect::<Result<_>>()?
        }
        None => (0..shape.len()).collect::<Vec<usize>>(),
    };
    let coordinates = call.text_or("coordinate_transformation_mode", "half_pixel")?;
    let crops = coordinates == "tf_crop_and_resize";
    let roi = if crops { call.floats(1, "roi")? } else { Vec::new() };
    let changes = changes(call, &shape, &axes, &roi)?;
    let (kept, roi) = in_rising_order(call, &shape, changes, &roi)?;
    let mut attrs = attributes(&kept, &roi);
    attrs.insert("mode", call.text_or("mode", "nearest")?);
    attrs.insert("coordinate_transformation_mode", coordinates);
    attrs.insert("nearest_mode", call.text_or("nearest_mode", "round_prefer_floor")?);
    attrs.insert("cubic_coeff_a", call.float_or("cubic_coeff_a", -0.75)?);
    attrs.insert("exclude_outside", call.flag("exclude_outside", false)?);
    attrs.insert("antialias", call.flag("antialias", false)?);
    attrs.insert("extrapolation_value", call.float_or("extrapolation_value", 0.0)?);
    let input = call.input(0)?;
    if kept.is_empty() { Ok(input) } else { call.add("resize", attrs, &[input]) }
}

/// Upsample: scales are an attribute before opset 9, an input from then on.
pub(in crate::onnx) fn upsample(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let scales = match call.float_list("scales")? {
        Some(scales) => scales.into_iter().map(f64::from).collect(),
        None => call.floats(1, "scales")?,
    };
    simple(call, &scales)
}

/// Upsample, and Resize of opset 10: coordinates are `y / scale`; the nearest element is the one before
/// when an axis grows, the one behind when it shrinks (as onnxruntime has it; ONNX leaves it open).
fn simple(call: &mut Call<'_, '_>, scales: &[f64]) -> Result<NodeId> {
    let shape = call.ty(0)?.shape.to_vec();
    let axes: Vec<usize> = (0..shape.len()).collect();
    let changes = scaled(call, &shape, &axes, scales, &[])?;
    let (kept, roi) = in_rising_order(call, &shape, changes, &[])?;
    let shrinking = kept.iter().filter(|change| change.scale < 1.0).count();
    if shrinking != 0 && shrinking != kept.len() {
        return Err(call.unsupported("axes that grow and axes that shrink at once"));
    }
    let mode = match call.text_or("mode", "nearest")? {
        "bilinear" => "linear",
        mode => mode,
    };
    let mut attrs = attributes(&kept, &roi);
    attrs.insert("mode", mode);
    attrs.insert("coordinate_transformation_mode", "asymmetric");
    attrs.insert("nearest_mode", if shrinking > 0 { "ceil" } else { "floor" });
    attrs.insert("cubic_coeff_a", -0.75);
    attrs.insert("exclude_outside", false);
    attrs.insert("antialias", false);
    attrs.insert("extrapolation_value", 0.0);
    let input = call.input(0)?;
    if kept.is_empty() { Ok(input) } else { call.add("resize", attrs, &[input]) }
}

/// The changes sorted by axis, without those that change nothing, and the region of interest in the same
/// order.
fn in_rising_order(
    call: &Call<'_, '_>,
    shape: &[Dim],
    changes: Vec<AxisChange>,
    roi: &[f64],
) -> Result<(Vec<AxisChange>, Vec<f64>)> {
    let count = changes.len();
    if !roi.is_empty() && roi.len() != 2 * count {
        return Err(call.invalid(format!("`roi` has {} numbers for {count} axes", roi.len())));
    }
    let region = |at: usize| match roi {
        [] => (0.0, 1.0),
        _ => (roi[at], roi[at + count]),
    };
    let mut rows: Vec<(AxisChange, (f64, f64))> =
        changes.into_iter().enumerate().map(|(at, change)| (change, region(at))).collect();
    rows.retain(|(change, region)| {
        *region != (0.0, 1.0) || change.scale != 1.0 || change.size != shape[change.axis]
    });
    rows.sort_by_key(|(change, _)| change.axis);
    let (changes, regions): (Vec<_>, Vec<(f64, f64)>) = rows.into_iter().unzip();
    let starts = regions.iter().map(|region| region.0);
    let ends = regions.iter().map(|region| region.1);
    let roi = if roi.is_empty() { Vec::new() } else { starts.chain(ends).collect() };
    Ok((changes, roi))
}

/// From the inputs `scales` or `sizes`, of which one is given; an empty one counts as not given.
fn changes(
    call: &Call<'_, '_>,
    shape: &[Dim],
    axes: &[usize],
    roi: &[f64],
) -> Result<Vec<AxisChange>> {
    let given = |index: usize| -> Result<bool> {
        Ok(call.has(index) && !call.ty(index)?.shape.elements().is(0))
    };
    match (given(2)?, given(3)?) {
        (true, false) => scaled(call, shape, axes, &call.floats(2, "scales")?, roi),
        (false, true) => sized(call, shape, axes, call.dims(3, "sizes")?),
        _ => Err(call.invalid("exactly one of `scales` and `sizes` must be given")),
    }
}

/// `size * (roi_end - roi_start) * scale`, rounded down, in the precision of the scales (`f32`).
fn scaled(
    call: &Call<'_, '_>,
    shape: &[Dim],
    axes: &[usize],
    scales: &[f64],
    roi: &[f64],
) -> Result<Vec<AxisChange>> {
    if scales.len() != axes.len() {
        return Err(call.invalid(format!(
            "{} scales are given for {} axes",
            scales.len(),
            axes.len()
        )));
    }
    let mut changes = Vec::with_capacity(axes.len());
    for (at, (&axis, &scale)) in axes.iter().zip(scales).enumerate() {
        if !(scale > 0.0 && scale.is_finite()) {
            return Err(call.invalid(format!("axis {axis} is scaled by {scale}")));
        }
        let part = match (roi.get(at), roi.get(at + axes.len())) {
            (Some(start), Some(end)) => (end - start) as f32,
            _ => 1.0,
        };
        let size = match shape[axis].as_const() {
            Some(size) => Dim::constant((size as f32 * part * scale as f32).floor() as i64),
            None if part == 1.0 && scale.fract() == 0.0 => {
                &shape[axis] * &Dim::constant(scale as i64)
            }
            None if part == 1.0 && scale.recip().fract() == 0.0 => {
                shape[axis].floor_div(&Dim::constant(scale.recip() as i64))
            }
            None => {
                let message =
                    format!("the size {} of axis {axis} is scaled by {scale}", shape[axis]);
                return Err(call
                    .fault("not-constant", message)
                    .note("specialise the size with --dim or --shape"));
            }
        };
        changes.push(AxisChange { axis, size, scale });
    }
    Ok(changes)
}

fn sized(
    call: &Call<'_, '_>,
    shape: &[Dim],
    axes: &[usize],
    sizes: Vec<Dim>,
) -> Result<Vec<AxisChange>> {
    if sizes.len() != axes.len() {
        return Err(call.invalid(format!(
            "{} sizes are given for {} axes",
            sizes.len(),
            axes.len()
        )));
    }
    let mut changes = Vec::with_capacity(axes.len());
    for (&axis, size) in axes.iter().zip(sizes) {
        let ratio = match (size.as_const(), shape[axis].as_const()) {
            (Some(new), Some(old)) if old > 0 => Some(new as f64 / old as f64),
            _ => size.divided_exactly(&shape[axis]).and_then(|q| q.as_const()).map(|q| q as f64),
        };
        let scale = ratio.ok_or_else(|| {
            let message = format!("axis {axis} of size {} is resized to {size}", shape[axis]);
            call.fault("not-constant", message).note("specialise the sizes with --dim or --shape")
        })?;
        changes.push(AxisChange { axis, size, scale });
    }
    let scales = changes.iter().map(|change| change.scale);
    let common = match call.text_or("keep_aspect_ratio_policy", "stretch")? {
        "stretch" => return Ok(changes),
        "not_larger" => scales.fold(f64::INFINITY, f64::min),
        "not_smaller" => scales.fold(0.0, f64::max),
        other => return Err(call.invalid(format!("`keep_aspect_ratio_policy` is {other:?}"))),
    };
    for change in &mut changes {
        let Some(old) = shape[change.axis].as_const() else {
            return Err(call.unsupported("keeping the aspect ratio of symbolic sizes"));
        };
        change.scale = common;
        // ONNX, Resize: the nearest integer, halfway cases up.
        change.size = Dim::constant((common * old as f64 + 0.5).floor() as i64);
    }
    Ok(changes)
}
