//! Regions without an anchor: each thread computes some elements of the results.

use fornax_ir::{BinaryFn, DType, Dim, Precision};

use super::emit::{Array, Emitter, build_kernel};
use super::index::{Condition, Index, Mask, Var};
use super::site::Site;
use super::{CodegenError, LoweredRegion, single};
use crate::kernel::{KernelBuilder, Layout, Mode, ValueId};

pub(super) fn lower(
    site: &Site<'_>,
    threads: u32,
    vector: u32,
    unroll: u32,
) -> Result<LoweredRegion, CodegenError> {
    lower_by(site, threads, vector, unroll, |emitter, b, index, mask| {
        emitter.store_outputs(b, index, mask)
    })
}

/// As [`lower`], with `f32` results rounded to what the precision `tf32` multiplies.
pub(super) fn pack(
    site: &Site<'_>,
    threads: u32,
    vector: u32,
) -> Result<LoweredRegion, CodegenError> {
    let rounded = site.region.precision == Precision::Tf32;
    lower_by(site, threads, vector, 1, |emitter, b, index, mask| {
        for output in 0..site.body.outputs().len() {
            let node = site.body.outputs()[output].value;
            if !rounded || site.body.ty(node).dtype != DType::F32 {
                emitter.store_output(b, output, index, mask)?;
                continue;
            }
            let value = emitter.pull(b, node, index, mask)?;
            let value = b.round_tf32(value);
            let offset = emitter.space.linearize(index, &site.body.ty(node).shape);
            let memory = emitter.array(b, Array::Output(output));
            emitter.store(b, memory, &offset, value, mask);
        }
        Ok(())
    })
}

fn lower_by<'a>(
    site: &'a Site<'a>,
    threads: u32,
    vector: u32,
    unroll: u32,
    store: impl Fn(&mut Emitter<'a>, &mut KernelBuilder, &[Index], &Mask) -> Result<(), CodegenError>,
) -> Result<LoweredRegion, CodegenError> {
    let total: Dim = site.shape().iter().product();
    let width = threads * vector;
    let layout = Layout {
        shape: vec![width * unroll],
        registers: modes(&[(0, vector, 1), (0, unroll, width)]),
        threads: modes(&[(0, threads, vector)]),
    };
    let tile = i64::from(width * unroll);
    let blocks = total.ceil_div(&Dim::constant(tile));
    let (kernel, mut launch) = build_kernel(site, &site.kernel_name(""), threads, |emitter, b| {
        emitter.set_tile(&layout);
        let block = emitter.block(b);
        let base = b.mul_int(block, tile);
        let var = emitter.iterate(&total, Some(base), Some(0));
        whole_or_masked(emitter, b, (base, tile), (var, &total), |emitter, b, mask| {
            let index = emitter.space.delinearize(&Index::var(var), site.shape());
            store(emitter, b, &index, mask)
        })?;
        Ok(blocks.clone())
    })?;
    launch.bytes = site.bytes();
    launch.flops = site.pointwise_flops();
    Ok(single(kernel, launch))
}

/// Digits of a register or thread number, without those that have one value.
pub(super) fn modes(digits: &[(u32, u32, u32)]) -> Vec<Mode> {
    digits
        .iter()
        .filter(|&&(_, size, _)| size > 1)
        .map(|&(dim, size, stride)| Mode::new(dim, size, stride))
        .collect()
}

/// The condition that a variable lies within its extent, unless steps of `tile` end there exactly.
pub(super) fn tail(var: Var, extent: &Dim, tile: i64) -> Mask {
    if extent.divided_exactly(&Dim::constant(tile)).is_some() {
        return Mask::new();
    }
    Mask::from([within_extent(var, extent)])
}

/// The condition that a variable lies within its extent.
pub(super) fn within_extent(var: Var, extent: &Dim) -> Condition {
    Condition::Within { value: Index::var(var), low: None, high: Some(extent.clone()) }
}

/// Makes code for a block's `tile` elements from `base` on: without a mask where all of them lie
/// within the extent, so that accesses are wide and free of branches; else with one.
pub(super) fn whole_or_masked<'a>(
    emitter: &mut Emitter<'a>,
    b: &mut KernelBuilder,
    (base, tile): (ValueId, i64),
    (var, extent): (Var, &Dim),
    mut body: impl FnMut(&mut Emitter<'a>, &mut KernelBuilder, &Mask) -> Result<(), CodegenError>,
) -> Result<(), CodegenError> {
    let mask = tail(var, extent, tile);
    if mask.is_empty() {
        return body(emitter, b, &mask);
    }
    let end = b.add_int(base, tile);
    let extent = emitter.size(b, extent);
    let whole = b.binary(BinaryFn::Le, end, extent);
    let partial = b.lt(extent, end);
    emitter.if_uniform(b, whole, |emitter, b| body(emitter, b, &Mask::new()))?;
    emitter.if_uniform(b, partial, |emitter, b| body(emitter, b, &mask))
}
