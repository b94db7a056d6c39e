//! Upsampling.

use fornax_ir::{Dim, NodeId};

use crate::aten::call::{Build as _, Call, Result};
use crate::build::resize::{AxisChange, attributes};

/// upsample_nearest, upsample_linear and their like: the spatial axes get the sizes `output_size`, or are scaled.
pub(in crate::aten) fn upsample(call: &mut Call<'_>, mode: &str, spatial: usize) -> Result<NodeId> {
    let input = call.input("input")?;
    let shape = call.graph().ty(input).shape.to_vec();
    if shape.len() != spatial + 2 {
        return Err(
            call.invalid(format!("{spatial} spatial axes need an input of rank {}", spatial + 2))
        );
    }
    let scales = scales(call, spatial)?;
    let wanted = call.dims("output_size")?;
    let mut changes = Vec::new();
    for axis in 0..spatial {
        let own = &shape[axis + 2];
        let size = match (wanted.get(axis), scales.get(axis)) {
            (Some(size), _) => size.clone(),
            (None, Some(&scale)) => scaled_size(call, own, scale)?,
            (None, None) => return Err(call.invalid("neither sizes nor factors are given")),
        };
        let scale = match (scales.get(axis), size.as_const(), own.as_const()) {
            (Some(&scale), ..) => scale,
            (None, Some(new), Some(old)) if old > 0 => new as f64 / old as f64,
            _ => return Err(symbolic(call, own)),
        };
        if scale != 1.0 || size != *own {
            changes.push(AxisChange { axis: axis + 2, size, scale });
        }
    }
    if changes.is_empty() {
        return Ok(input);
    }
    let mut attrs = attributes(&changes, &[]);
    let coordinates = match (mode, call.flag("align_corners")?) {
        ("nearest", _) => "asymmetric",
        (_, true) => "align_corners",
        (_, false) => "half_pixel",
    };
    attrs.insert("mode", mode);
    attrs.insert("coordinate_transformation_mode", coordinates);
    attrs.insert("nearest_mode", "floor");
    attrs.insert("cubic_coeff_a", -0.75);
    attrs.insert("exclude_outside", false);
    attrs.insert("antialias", false);
    attrs.insert("extrapolation_value", 0.0);
    call.add("resize", attrs, &[input])
}

/// The factors by any of the names that they have.
fn scales(call: &Call<'_>, spatial: usize) -> Result<Vec<f64>> {
    let listed = call.floats("scale_factors")?;
    if !listed.is_empty() {
        return Ok(listed);
    }
    let names: &[&str] = match spatial {
        1 => &["scales"],
        2 => &["scales_h", "scales_w"],
        _ => &["scales_d", "scales_h", "scales_w"],
    };
    if names.iter().any(|name| !call.has(name)) {
        return Ok(Vec::new());
    }
    names.iter().map(|name| call.float(name)).collect()
}

fn scaled_size(call: &Call<'_>, own: &Dim, scale: f64) -> Result<Dim> {
    match own.as_const() {
        Some(size) => Ok(Dim::constant((size as f64 * scale).floor() as i64)),
        None if scale.fract() == 0.0 => Ok(own * &Dim::constant(scale as i64)),
        None => Err(symbolic(call, own)),
    }
}

fn symbolic(call: &Call<'_>, size: &Dim) -> fornax_ir::Diagnostic {
    call.fault("not-constant", format!("an axis of the symbolic size {size} is resized"))
        .note("specialise the sizes with --dim or --shape")
}
