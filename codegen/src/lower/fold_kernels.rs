//! Kernels for folds: by single threads, by blocks, and in parts by two kernels.

use std::ops::Range;

use fornax_ir::op::OpClass;
use fornax_ir::{BinaryFn, Dim, NodeId};

use super::emit::{Array, Emitter, build_kernel};
use super::fold::Folding;
use super::index::{Condition, Index, Mask, Var};
use super::pointwise::{modes, tail, whole_or_masked, within_extent};
use super::site::Site;
use super::{CodegenError, Launch, LoweredRegion, Workspace, single};
use crate::kernel::{Kernel, KernelBuilder, Layout, ValueId};

/// Folds of at most this many elements are written out.
pub(super) const WRITTEN_OUT: i64 = 32;

/// How often loops over folded elements are unrolled: several loads are in flight then.
const UNROLL: u32 = 4;

/// Threads in a warp.
const WARP: u32 = 32;

/// One thread folds each group of `vector` adjacent results alone.
pub(super) fn by_thread(
    site: &Site<'_>,
    anchor: NodeId,
    threads: u32,
    vector: u32,
) -> Result<LoweredRegion, CodegenError> {
    let folding = Folding::new(site, anchor)?;
    let total: Dim = folding.outer.iter().product();
    let tile = i64::from(threads * vector);
    let layout = Layout {
        shape: vec![threads * vector],
        registers: modes(&[(0, vector, 1)]),
        threads: modes(&[(0, threads, vector)]),
    };
    let groups = adjacent_axes(site, anchor, folding.inner.len());
    let (kernel, mut launch) = build_kernel(site, &site.kernel_name(""), threads, |emitter, b| {
        emitter.set_tile(&layout);
        let block = emitter.block(b);
        let base = b.mul_int(block, tile);
        let var = emitter.iterate(&total, Some(base), Some(0));
        whole_or_masked(emitter, b, (base, tile), (var, &total), |emitter, b, mask| {
            let outer = emitter.space.delinearize(&Index::var(var), &folding.outer);
            let sums = folding.initial(emitter, b);
            let nest = Nest { groups: &groups, written_out: WRITTEN_OUT };
            let sums = nested(emitter, b, &folding, (&outer, nest, Vec::new()), mask, &sums)?;
            finish(emitter, b, &folding, &outer, mask, &sums)
        })?;
        Ok(total.ceil_div(&Dim::constant(tile)))
    })?;
    launch.bytes = site.bytes();
    launch.flops = folding.flops() + site.pointwise_flops();
    Ok(single(kernel, launch))
}

/// Ranges of folded axes that are adjacent in the operand: one loop goes over all of them.
pub(super) fn adjacent_axes(site: &Site<'_>, anchor: NodeId, count: usize) -> Vec<Range<usize>> {
    let OpClass::Reduce(form) = site.body.node(anchor).op.class() else {
        return (0..count).map(|axis| axis..axis + 1).collect();
    };
    let axes = site.with_ctx(anchor, form).axes;
    let mut groups: Vec<Range<usize>> = Vec::new();
    for position in 0..count {
        match groups.last_mut() {
            Some(last) if axes[position] == axes[position - 1] + 1 => last.end = position + 1,
            _ => groups.push(position..position + 1),
        }
    }
    groups
}

/// Loops over folded axes.
#[derive(Clone, Copy)]
pub(super) struct Nest<'g> {
    /// Ranges of axes, one loop each.
    pub groups: &'g [Range<usize>],
    /// Loops over at most this many elements in all are written out.
    pub written_out: i64,
}

/// Loops over the folded axes, group by group, and folds each element; `inner` holds the indices of the
/// loops around.
pub(super) fn nested(
    emitter: &mut Emitter<'_>,
    b: &mut KernelBuilder,
    folding: &Folding,
    (outer, nest, inner): (&[Index], Nest<'_>, Vec<Index>),
    mask: &Mask,
    sums: &[ValueId],
) -> Result<Vec<ValueId>, CodegenError> {
    let Some((group, rest)) = nest.groups.split_first() else {
        return folding.step(emitter, b, (outer, &inner), (mask, &Mask::new()), sums);
    };
    let rest = Nest { groups: rest, ..nest };
    let sizes = &folding.inner[group.clone()];
    let extended = |emitter: &Emitter<'_>, position: &Index| {
        let mut inner = inner.clone();
        inner.extend(emitter.space.delinearize(position, sizes));
        inner
    };
    let left: Dim = folding.inner[group.start..].iter().product();
    let extent: Dim = sizes.iter().product();
    let is_short = left.as_const().is_some_and(|left| (1..=nest.written_out).contains(&left));
    if let (true, Some(count)) = (is_short, extent.as_const()) {
        let mut sums = sums.to_vec();
        for position in 0..count {
            let inner = extended(emitter, &Index::size(position));
            sums = nested(emitter, b, folding, (outer, rest, inner), mask, &sums)?;
        }
        return Ok(sums);
    }
    let from = b.int(emitter.index_dtype, 0);
    let to = emitter.size(b, &extent);
    let unroll = if rest.groups.is_empty() { 2 * UNROLL } else { 1 };
    emitter.for_loop(b, (from, to, 1), sums, unroll, |emitter, b, at, sums| {
        let var = emitter.iterate(&extent, Some(at), None);
        let inner = extended(emitter, &Index::var(var));
        nested(emitter, b, folding, (outer, rest, inner), mask, sums)
    })
}

/// Finishes the accumulators and writes the region's results.
pub(super) fn finish(
    emitter: &mut Emitter<'_>,
    b: &mut KernelBuilder,
    folding: &Folding,
    outer: &[Index],
    mask: &Mask,
    sums: &[ValueId],
) -> Result<(), CodegenError> {
    let result = folding.finish(emitter, b, sums);
    let result = emitter.spread(b, result);
    let index = folding.result_index(emitter.site, &emitter.space, outer);
    emitter.bind_anchor(folding.node, &index, result);
    emitter.store_outputs(b, &index, mask)
}

/// The tile of blocks that fold `rows` results, each by `threads / rows` threads. `across`: adjacent
/// threads take adjacent results, else adjacent elements of one.
fn rows_layout(threads: u32, rows: u32, vector: u32, across: bool) -> Layout {
    let each = threads / rows;
    let (results, elements) = ((0, rows, 1), (1, each, vector));
    Layout {
        shape: vec![rows, each * vector],
        registers: modes(&[(1, vector, 1)]),
        threads: modes(&if across { [results, elements] } else { [elements, results] }),
    }
}

/// Part of a row: positions `from..to`, all below `extent`.
pub(super) struct Stretch<'d> {
    pub from: ValueId,
    pub to: ValueId,
    pub extent: &'d Dim,
    /// The condition on a position that it lies below `to`.
    pub limit: &'d dyn Fn(Var) -> Condition,
    /// How many full widths are in flight.
    pub unroll: u32,
    /// Only each `every`-th width is gone over, from `from` on.
    pub every: u32,
}

/// Folds the element at a position into the accumulators, where the limits hold.
pub(super) type Element<'e, 'a> = dyn Fn(
        &mut Emitter<'a>,
        &mut KernelBuilder,
        Var,
        &Mask,
        &[ValueId],
    ) -> Result<Vec<ValueId>, CodegenError>
    + 'e;

/// Goes over a stretch with the tile's dimension 1: full widths first, then the rest with a limit.
pub(super) fn along_row<'a>(
    emitter: &mut Emitter<'a>,
    b: &mut KernelBuilder,
    stretch: &Stretch<'_>,
    sums: &[ValueId],
    element: &Element<'_, 'a>,
) -> Result<Vec<ValueId>, CodegenError> {
    let &Stretch { from, to, extent, limit, unroll, every } = stretch;
    let width = emitter.tile().shape[1];
    let step = width * every;
    let count = b.sub(to, from);
    // Steps that begin a full width before the end: none where fewer elements than that are left.
    let count = b.add_int(count, i64::from(step - width));
    let steps = b.binary_with(BinaryFn::Div, count, step.into());
    let steps = b.binary_with(BinaryFn::Max, steps, 0);
    let whole = b.mul_int(steps, step.into());
    let whole = b.add(from, whole);
    let mut sums = sums.to_vec();
    if b.number(steps).is_none_or(|steps| steps.to_f64() > 0.0) {
        sums =
            emitter.for_loop(b, (from, whole, step), &sums, unroll, |emitter, b, at, sums| {
                let at = emitter.iterate(extent, Some(at), Some(1));
                element(emitter, b, at, &Mask::new(), sums)
            })?;
    }
    if b.number(whole).is_none() || b.number(whole) != b.number(to) {
        sums = emitter.for_loop(b, (whole, to, step), &sums, 1, |emitter, b, at, sums| {
            let at = emitter.iterate(extent, Some(at), Some(1));
            element(emitter, b, at, &Mask::from([limit(at)]), sums)
        })?;
    }
    Ok(sums)
}

/// `rows` results a block, each folded by `threads / rows` threads together.
pub(super) fn by_block(
    site: &Site<'_>,
    anchor: NodeId,
    threads: u32,
    rows: u32,
    vector: u32,
) -> Result<LoweredRegion, CodegenError> {
    let folding = Folding::new(site, anchor)?;
    let total: Dim = folding.outer.iter().product();
    let length: Dim = folding.inner.iter().product();
    let layout = rows_layout(threads, rows, vector, folding.has_adjacent_results(site));
    let (kernel, mut launch) = build_kernel(site, &site.kernel_name(""), threads, |emitter, b| {
        emitter.set_tile(&layout);
        let block = emitter.block(b);
        let base = b.mul_int(block, rows.into());
        let row = emitter.iterate(&total, Some(base), Some(0));
        let mask = tail(row, &total, rows.into());
        let outer = emitter.space.delinearize(&Index::var(row), &folding.outer);
        let stretch = Stretch {
            from: b.int(emitter.index_dtype, 0),
            to: emitter.size(b, &length),
            extent: &length,
            limit: &|at| within_extent(at, &length),
            unroll: UNROLL,
            every: 1,
        };
        let sums = folding.initial(emitter, b);
        let sums = along_row(emitter, b, &stretch, &sums, &|emitter, b, at, limits, sums| {
            let inner = emitter.space.delinearize(&Index::var(at), &folding.inner);
            folding.step(emitter, b, (&outer, &inner), (&mask, limits), sums)
        })?;
        let sums = folding.reduce_tile(b, 1, &sums);
        emitter.set_tile(&layout.dropped(1));
        finish(emitter, b, &folding, &outer, &mask, &sums)?;
        Ok(total.ceil_div(&Dim::constant(rows.into())))
    })?;
    launch.bytes = site.bytes();
    launch.flops = folding.flops() + site.pointwise_flops();
    Ok(single(kernel, launch))
}

/// Each result's elements in `parts` slices, one width after another to each in turn, so that what runs at
/// once reads from one part of memory: one kernel folds each slice into a workspace, one folds
/// the slices. The order is fixed, so the result is the same at each run.
pub(super) fn by_parts(
    site: &Site<'_>,
    anchor: NodeId,
    threads: u32,
    vector: u32,
    parts: u32,
) -> Result<LoweredRegion, CodegenError> {
    let folding = Folding::new(site, anchor)?;
    let total: Dim = folding.outer.iter().product();
    let slices = &total * &Dim::constant(parts.into());
    let workspaces: Vec<Workspace> =
        folding.accumulators().map(|dtype| Workspace { dtype, elements: slices.clone() }).collect();
    let (slice_kernel, mut slice_launch) = fold_slices(site, &folding, threads, vector, parts)?;
    let (part_kernel, mut part_launch) = fold_parts(site, &folding, threads, parts)?;
    let moved: Dim = workspaces.iter().map(|w| &w.elements * &Dim::from(w.dtype.size())).sum();
    let inputs = site.bytes();
    slice_launch.bytes = inputs + &moved;
    slice_launch.flops = folding.flops();
    part_launch.kernel = 1;
    part_launch.bytes = moved + site.output_bytes();
    part_launch.flops = site.pointwise_flops();
    Ok(LoweredRegion {
        kernels: vec![slice_kernel, part_kernel],
        launches: vec![slice_launch, part_launch],
        workspaces,
    })
}

/// The kernel that folds slice `block mod parts` of each of a block's results. A block has one result,
/// or a warp of adjacent ones where those read adjacent elements.
fn fold_slices(
    site: &Site<'_>,
    folding: &Folding,
    threads: u32,
    vector: u32,
    parts: u32,
) -> Result<(Kernel, Launch), CodegenError> {
    let total: Dim = folding.outer.iter().product();
    let length: Dim = folding.inner.iter().product();
    let across = folding.has_adjacent_results(site);
    let rows = if across { WARP.min(threads) } else { 1 };
    let count = parts;
    let parts = Dim::constant(parts.into());
    let places = [total.ceil_div(&Dim::constant(rows.into())), parts.clone()];
    let blocks: Dim = places.iter().product();
    let layout = rows_layout(threads, rows, vector, across);
    build_kernel(site, &site.kernel_name("_slices"), threads, |emitter, b| {
        emitter.set_tile(&layout);
        let block = emitter.block(b);
        let block = emitter.iterate(&blocks, Some(block), None);
        let place = emitter.space.delinearize(&Index::var(block), &places);
        let base = emitter.space.scale(&place[0], &Dim::constant(rows.into()));
        let base = emitter.index(b, &base);
        let row = emitter.iterate(&total, Some(base), Some(0));
        let mask = tail(row, &total, rows.into());
        let outer = emitter.space.delinearize(&Index::var(row), &folding.outer);
        let from = emitter.space.scale(&place[1], &Dim::constant(layout.shape[1].into()));
        let stretch = Stretch {
            from: emitter.index(b, &from),
            to: emitter.size(b, &length),
            extent: &length,
            limit: &|at| within_extent(at, &length),
            unroll: UNROLL,
            every: count,
        };
        let sums = folding.initial(emitter, b);
        let sums = along_row(emitter, b, &stretch, &sums, &|emitter, b, at, limits, sums| {
            let inner = emitter.space.delinearize(&Index::var(at), &folding.inner);
            folding.step(emitter, b, (&outer, &inner), (&mask, limits), sums)
        })?;
        let sums = folding.reduce_tile(b, 1, &sums);
        emitter.set_tile(&layout.dropped(1));
        let sizes = [total.clone(), parts.clone()];
        let offset = emitter.space.linearize(&[Index::var(row), place[1].clone()], &sizes);
        for (number, (sum, dtype)) in sums.into_iter().zip(folding.accumulators()).enumerate() {
            let memory = emitter.array(b, Array::WorkspaceOut(number, dtype));
            emitter.store(b, memory, &offset, sum, &mask);
        }
        Ok(blocks.clone())
    })
}

/// The kernel that folds the slices of each result together and finishes it.
fn fold_parts(
    site: &Site<'_>,
    folding: &Folding,
    threads: u32,
    parts: u32,
) -> Result<(Kernel, Launch), CodegenError> {
    let total: Dim = folding.outer.iter().product();
    let count = Dim::constant(parts.into());
    let threads = threads.min(parts.next_power_of_two().max(WARP));
    let layout = rows_layout(threads, 1, 1, false);
    build_kernel(site, &site.kernel_name("_parts"), threads, |emitter, b| {
        emitter.set_tile(&layout);
        let block = emitter.block(b);
        let row = Index::var(emitter.iterate(&total, Some(block), None));
        let stretch = Stretch {
            from: b.int(emitter.index_dtype, 0),
            to: emitter.size(b, &count),
            extent: &count,
            limit: &|at| within_extent(at, &count),
            unroll: UNROLL,
            every: 1,
        };
        let sums = folding.initial(emitter, b);
        let sums = along_row(emitter, b, &stretch, &sums, &|emitter, b, at, limits, sums| {
            let at = emitter
                .space
                .linearize(&[row.clone(), Index::var(at)], &[total.clone(), count.clone()]);
            let mut partial = Vec::new();
            for (number, (neutral, dtype)) in
                folding.neutral().zip(folding.accumulators()).enumerate()
            {
                let memory = emitter.array(b, Array::WorkspaceIn(number, dtype));
                partial.push(emitter.load(b, memory, &at, limits, neutral));
            }
            Ok(folding.combine(emitter, b, sums, &partial))
        })?;
        let sums = folding.reduce_tile(b, 1, &sums);
        emitter.set_tile(&layout.dropped(1));
        let outer = emitter.space.delinearize(&row, &folding.outer);
        finish(emitter, b, folding, &outer, &Mask::new(), &sums)?;
        Ok(total.clone())
    })
}
