//! Sliding windows: each thread computes outputs in neighbouring rows, whose windows overlap.
//!
//! The outputs of a thread are written out, so that an element that several of their windows hold has
//! one index, by which it is loaded once. Threads that follow one another have adjacent outputs: what a
//! warp reads at once is adjacent too.

use fornax_ir::{Dim, NodeId};

use super::emit::build_kernel;
use super::fold::Folding;
use super::fold_kernels::{Nest, Place, WRITTEN_OUT, adjacent_axes, finish};
use super::index::{Index, Mask};
use super::pointwise::{modes, whole_or_masked};
use super::site::Site;
use super::{CodegenError, LoweredRegion, single};
use crate::kernel::Layout;

/// Windows are written out as long as a thread folds at most this many elements.
const MOST_WRITTEN_OUT: i64 = 512;

/// One thread computes an output in each of `rows` neighbouring rows.
pub(super) fn lower(
    site: &Site<'_>,
    anchor: NodeId,
    threads: u32,
    rows: u32,
) -> Result<LoweredRegion, CodegenError> {
    let folding = Folding::new(site, anchor)?.overhanging();
    let axis = folding.outer.len().checked_sub(2);
    let rows = if axis.is_some() { rows } else { 1 };
    let mut sizes = folding.outer.clone();
    if let Some(axis) = axis {
        sizes[axis] = sizes[axis].ceil_div(&Dim::constant(rows.into()));
    }
    let total: Dim = sizes.iter().product();
    let window: Dim = folding.inner.iter().product();
    let written_out = match window.as_const() {
        Some(window) if window * i64::from(rows) <= MOST_WRITTEN_OUT => window,
        _ => WRITTEN_OUT,
    };
    let groups = adjacent_axes(site, anchor, &folding);
    let nest = Nest { groups: &groups, written_out };
    let layout = Layout {
        shape: vec![threads, 1],
        registers: Vec::new(),
        threads: modes(&[(0, threads, 1)]),
    };
    let tile = i64::from(threads);
    let (kernel, mut launch) = build_kernel(site, &site.kernel_name(""), threads, |emitter, b| {
        emitter.set_tile(&layout);
        let block = emitter.block(b);
        let base = b.mul_int(block, tile);
        let var = emitter.iterate(&total, Some(base), Some(0));
        whole_or_masked(emitter, b, (base, tile), (var, &total), |emitter, b, mask| {
            let place = emitter.space.delinearize(&Index::var(var), &sizes);
            for number in 0..rows {
                let (mut outer, mut there) = (place.clone(), mask.clone());
                if let Some(axis) = axis {
                    let first = emitter.space.scale(&place[axis], &Dim::constant(rows.into()));
                    let row = emitter.space.add(&first, &Index::size(i64::from(number)));
                    let size = &folding.outer[axis];
                    there.extend(emitter.space.within(&row, &Dim::constant(0), size));
                    outer[axis] = row;
                }
                let results = Place { folding: &folding, outer: &outer, mask };
                let sums = results.nested(emitter, b, (nest, Vec::new()), &Mask::new())?;
                finish(emitter, b, &folding, &outer, &there, &sums)?;
            }
            Ok(())
        })?;
        Ok(total.ceil_div(&Dim::constant(tile)))
    })?;
    launch.bytes = site.bytes();
    launch.flops = folding.flops() + site.pointwise_flops();
    Ok(single(kernel, launch))
}
