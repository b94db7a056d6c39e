//! Pooling.

use fornax_ir::{Attrs, Dim, NodeId, attrs};

use super::window::{batched, unbatched};
use crate::aten::call::{Build as _, Call, Result};
use crate::aten::{Handle, Item};
use crate::build::reduce::fold;
use crate::build::window::Geometry;

fn geometry(call: &mut Call<'_>, spatial: usize) -> Result<Geometry> {
    let kernel = call.spatial("kernel_size", spatial, &vec![1; spatial])?;
    let padding = call.spatial("padding", spatial, &vec![0; spatial])?;
    let geometry = Geometry {
        strides: call.spatial("stride", spatial, &kernel)?,
        dilations: call.spatial("dilation", spatial, &vec![1; spatial])?,
        pads_begin: padding.clone(),
        pads_end: padding,
        kernel,
    };
    geometry.check(call)?;
    Ok(geometry)
}

fn pool_attrs(geometry: Geometry, ceil_mode: bool) -> Attrs {
    attrs! {
        kernel: geometry.kernel,
        strides: geometry.strides,
        pads_begin: geometry.pads_begin,
        pads_end: geometry.pads_end,
        dilations: geometry.dilations,
        ceil_mode: ceil_mode,
    }
}

/// max_pool1d, max_pool2d, max_pool3d.
pub(in crate::aten) fn max_pool(call: &mut Call<'_>, spatial: usize) -> Result<NodeId> {
    let attrs = pool_attrs(geometry(call, spatial)?, call.flag("ceil_mode")?);
    let input = call.input("self")?;
    let (input, added) = batched(call, input, spatial)?;
    let result = call.add("max_pool", attrs, &[input])?;
    unbatched(call, result, added)
}

/// The forms that also give positions, which are not supported.
pub(in crate::aten) fn max_pool_pair(call: &mut Call<'_>, spatial: usize) -> Result<Item> {
    let values = max_pool(call, spatial)?;
    Ok(Item::tuple(vec![Handle::new(values).into(), Item::Unknown]))
}

/// avg_pool1d, avg_pool2d, avg_pool3d.
pub(in crate::aten) fn avg_pool(call: &mut Call<'_>, spatial: usize) -> Result<NodeId> {
    if call.has("divisor_override") {
        return Err(call.unsupported("`divisor_override` is not supported"));
    }
    let mut attrs = pool_attrs(geometry(call, spatial)?, call.flag("ceil_mode")?);
    attrs.insert("count_include_pad", call.flag("count_include_pad")?);
    let input = call.input("self")?;
    let (input, added) = batched(call, input, spatial)?;
    let result = call.add("avg_pool", attrs, &[input])?;
    unbatched(call, result, added)
}

/// adaptive_avg_pool and adaptive_max_pool: as many windows as asked for. Windows of one size are pooled, one window is
/// a reduction; windows of different sizes are refused.
pub(in crate::aten) fn adaptive(call: &mut Call<'_>, spatial: usize, op: &str) -> Result<NodeId> {
    let wanted = match call.argument("output_size").elements() {
        Some(items) if items.iter().any(Item::is_none) => {
            return Err(call.unsupported("an output size of None"));
        }
        _ => call.spatial("output_size", spatial, &[])?,
    };
    let input = call.input("self")?;
    let (input, added) = batched(call, input, spatial)?;
    let shape = call.graph().ty(input).shape.clone();
    let sizes = &shape[2..];
    let result = if wanted.iter().all(|&size| size == 1) {
        let axes: Vec<usize> = (2..spatial + 2).collect();
        let fold_op = if op == "avg_pool" { "reduce_mean" } else { "reduce_max" };
        fold(call, fold_op, input, &axes, true)?
    } else if wanted.iter().zip(sizes).all(|(&want, size)| size.is(want)) {
        input
    } else {
        let kernel = kernel(call, sizes, &wanted)?;
        let zeros = vec![0i64; spatial];
        let geometry = Geometry {
            strides: kernel.clone(),
            dilations: vec![1; spatial],
            pads_begin: zeros.clone(),
            pads_end: zeros,
            kernel,
        };
        geometry.check(call)?;
        let mut attrs = pool_attrs(geometry, false);
        if op == "avg_pool" {
            attrs.insert("count_include_pad", false);
        }
        call.add(op, attrs, &[input])?
    };
    unbatched(call, result, added)
}

fn kernel(call: &Call<'_>, sizes: &[Dim], wanted: &[i64]) -> Result<Vec<i64>> {
    let divide = |(size, &want): (&Dim, &i64)| {
        let exact = size.as_const().filter(|size| want > 0 && size % want == 0);
        exact.map(|size| size / want).ok_or_else(|| {
            let message =
                format!("an adaptive pooling of an axis of size {size} into {want} windows");
            call.unsupported(message).note("only windows of one size are supported")
        })
    };
    sizes.iter().zip(wanted).map(divide).collect()
}

/// The adaptive forms that also give positions, which are not supported.
pub(in crate::aten) fn adaptive_pair(call: &mut Call<'_>, spatial: usize) -> Result<Item> {
    let values = adaptive(call, spatial, "max_pool")?;
    Ok(Item::tuple(vec![Handle::new(values).into(), Item::Unknown]))
}
