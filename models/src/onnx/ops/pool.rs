//! Pooling.

use fornax_ir::{Attrs, NodeId, attrs};

use super::reduce;
use super::window::{AutoPad, Geometry, spatial_rank};
use crate::onnx::call::{Build as _, Call, Result, Value};

fn pool_attrs(call: &Call<'_, '_>) -> Result<Attrs> {
    let (rank, shape) = (spatial_rank(call)?, call.ty(0)?.shape);
    let mut geometry = Geometry::read(call, rank, None)?;
    geometry.apply_auto_pad(call, AutoPad::read(call)?, &shape[2..])?;
    Ok(attrs! {
        kernel: geometry.kernel,
        strides: geometry.strides,
        pads_begin: geometry.pads_begin,
        pads_end: geometry.pads_end,
        dilations: geometry.dilations,
        ceil_mode: call.flag("ceil_mode", false)?,
    })
}

/// MaxPool, with the positions of the maxima as an optional second output.
pub(in crate::onnx) fn max_pool(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let mut attrs = pool_attrs(call)?;
    let column_major = call.flag("storage_order", false)?;
    let input = call.input(0)?;
    let mut outputs = vec![call.add("max_pool", attrs.clone(), &[input])?.into()];
    if call.wants(1) {
        attrs.insert("column_major", column_major);
        outputs.push(call.add("max_pool_indices", attrs, &[input])?.into());
    }
    Ok(outputs)
}

/// AveragePool.
pub(in crate::onnx) fn average_pool(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let mut attrs = pool_attrs(call)?;
    attrs.insert("count_include_pad", call.flag("count_include_pad", false)?);
    let input = call.input(0)?;
    call.add("avg_pool", attrs, &[input])
}

/// LpPool.
pub(in crate::onnx) fn lp_pool(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let mut attrs = pool_attrs(call)?;
    attrs.insert("p", call.int_or("p", 2)?);
    let input = call.input(0)?;
    call.add("lp_pool", attrs, &[input])
}

/// GlobalAveragePool, GlobalMaxPool: a reduction over the spatial axes.
pub(in crate::onnx) fn global(call: &mut Call<'_, '_>, op: &str) -> Result<NodeId> {
    let axes: Vec<usize> = (2..spatial_rank(call)? + 2).collect();
    let input = call.input(0)?;
    reduce::fold(call, op, input, &axes, true)
}

/// GlobalLpPool: a norm over the spatial axes.
pub(in crate::onnx) fn global_lp(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let axes: Vec<usize> = (2..spatial_rank(call)? + 2).collect();
    let p = call.int_or("p", 2)?;
    let input = call.input(0)?;
    match p {
        1 => return reduce::fold(call, "reduce_l1", input, &axes, true),
        2 => return reduce::fold(call, "reduce_l2", input, &axes, true),
        p if p < 1 => return Err(call.invalid(format!("`p` is {p}"))),
        _ => {}
    }
    let size = call.add("abs", Attrs::none(), &[input])?;
    let exponent = call.scalar_like(p as f64, size)?;
    let powers = call.add("pow", Attrs::none(), &[size, exponent])?;
    let sum = reduce::fold(call, "reduce_sum", powers, &axes, true)?;
    let exponent = call.scalar_like(1.0 / p as f64, sum)?;
    call.add("pow", Attrs::none(), &[sum, exponent])
}
