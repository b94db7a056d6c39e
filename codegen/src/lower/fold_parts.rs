//! Kernels for long folds of few results: many blocks fold slices of a result's elements, and the last of them
//! to end folds what they have got.
//!
//! The slices are put together in their order whichever block does it, so that results do not depend on
//! timing.

use fornax_ir::plan::Arena;
use fornax_ir::{BinaryFn, DType, Dim, NodeId};

use super::emit::{Array, Emitter, build_kernel};
use super::fold::Folding;
use super::fold_kernels::{Join, Stretch, along_row, finish, items, rows_layout, unroll};
use super::index::Index;
use super::pointwise::{tail, within_extent};
use super::site::Site;
use super::{CodegenError, Launch, LoweredRegion, Workspace, most_counters, single};
use crate::kernel::{Kernel, KernelBuilder, Layout, ValueId};

/// Threads in a warp.
const WARP: u32 = 32;

/// Each result's elements in `parts` slices, one width after another to each in turn, so that what runs at
/// once reads from one part of memory. The order is fixed, so the result is the same at each run.
///
/// One kernel does it all where the results can be counted; for more of them, a second one folds the slices.
pub(super) fn by_parts(
    site: &Site<'_>,
    anchor: NodeId,
    threads: u32,
    vector: u32,
    parts: u32,
) -> Result<LoweredRegion, CodegenError> {
    let folding = Folding::new(site, anchor)?;
    let total: Dim = folding.outer.iter().product();
    // A block has one result, or a warp of adjacent ones where those read adjacent elements.
    let across = folding.has_adjacent_results(site);
    let rows = if across { WARP.min(threads) } else { 1 };
    let mut slices = Slices {
        groups: total.ceil_div(&Dim::constant(rows.into())),
        parts: Dim::constant(parts.into()),
        count: parts,
        counters: None,
        threads,
        rows,
        across,
        folding,
        total,
    };
    let elements = &slices.total * &slices.parts;
    let workspace = |dtype| Workspace { dtype, elements: elements.clone(), arena: Arena::Phase };
    let mut workspaces: Vec<Workspace> = slices.folding.accumulators().map(workspace).collect();
    let moved: Dim = workspaces.iter().map(|w| &w.elements * &Dim::from(w.dtype.size())).sum();
    if let Some(elements) = most_counters(site, &slices.groups) {
        slices.counters = Some(workspaces.len());
        workspaces.push(Workspace { dtype: DType::I32, elements, arena: Arena::Counters });
        let (kernel, mut launch) = slices.kernel(site, vector)?;
        launch.bytes = site.bytes();
        launch.flops = slices.folding.flops() + site.pointwise_flops();
        return Ok(LoweredRegion { workspaces, ..single(kernel, launch) });
    }
    let (slice_kernel, mut slice_launch) = slices.kernel(site, vector)?;
    let (part_kernel, mut part_launch) = slices.second_kernel(site)?;
    slice_launch.bytes = site.bytes() + &moved;
    slice_launch.flops = slices.folding.flops();
    part_launch.kernel = 1;
    part_launch.bytes = moved + site.output_bytes();
    part_launch.flops = site.pointwise_flops();
    Ok(LoweredRegion {
        kernels: vec![slice_kernel, part_kernel],
        launches: vec![slice_launch, part_launch],
        workspaces,
    })
}

/// How results and their elements are distributed over blocks.
struct Slices {
    folding: Folding,
    /// Results.
    total: Dim,
    /// Groups of `rows` of them.
    groups: Dim,
    /// Slices of each result's elements.
    parts: Dim,
    count: u32,
    /// The workspace that counts the blocks of each group which have folded their slices.
    counters: Option<usize>,
    threads: u32,
    rows: u32,
    /// Whether adjacent threads have adjacent results.
    across: bool,
}

impl Slices {
    /// The kernel that folds slice `block mod parts` of each of a block's results.
    fn kernel(&self, site: &Site<'_>, vector: u32) -> Result<(Kernel, Launch), CodegenError> {
        let folding = &self.folding;
        let length: Dim = folding.inner.iter().product();
        let each = self.threads / self.rows * vector;
        let items = items(folding, each * self.count, length.bounds(site.dims).1);
        let layout = rows_layout(self.threads, self.rows, [vector, items], self.across);
        let places = [self.groups.clone(), self.parts.clone()];
        let blocks: Dim = places.iter().product();
        let name = site.kernel_name(if self.counters.is_some() { "" } else { "_slices" });
        build_kernel(site, &name, self.threads, |emitter, b| {
            emitter.set_tile(&layout);
            let block = emitter.block(b);
            let block = emitter.iterate(&blocks, Some(block), None);
            let place = emitter.space.delinearize(&Index::var(block), &places);
            let base = emitter.space.scale(&place[0], &Dim::constant(self.rows.into()));
            let base = emitter.index(b, &base);
            let row = emitter.iterate(&self.total, Some(base), Some(0));
            let mask = tail(row, &self.total, self.rows.into());
            let outer = emitter.space.delinearize(&Index::var(row), &folding.outer);
            let from = emitter.space.scale(&place[1], &Dim::constant(layout.shape[1].into()));
            let stretch = Stretch {
                from: emitter.index(b, &from),
                to: emitter.size(b, &length),
                extent: &length,
                limit: &|at| within_extent(at, &length),
                unroll: unroll(folding, items),
                every: self.count,
            };
            let sums = folding.initial(emitter, b);
            let join: &Join<'_, '_> = &|emitter, b, x, y| folding.combine(emitter, b, x, y);
            let start = (&sums[..], Some(join));
            let sums = along_row(emitter, b, &stretch, start, &|emitter, b, at, limits, sums| {
                let inner = emitter.space.delinearize(&Index::var(at), &folding.inner);
                folding.step(emitter, b, (&outer, &inner), (&mask, limits), sums)
            })?;
            let sums = folding.reduce_tile(b, 1, &sums);
            emitter.set_tile(&layout.dropped(1));
            let offset = self.offset(emitter, &Index::var(row), &place[1]);
            for (number, (sum, dtype)) in sums.into_iter().zip(folding.accumulators()).enumerate() {
                let memory = emitter.array(b, Array::WorkspaceOut(number, dtype));
                emitter.store(b, memory, &offset, sum, &mask);
            }
            if let Some(counters) = self.counters {
                let memory = emitter.array(b, Array::WorkspaceOut(counters, DType::I32));
                let group = emitter.index(b, &place[0]);
                let of = b.int(DType::I32, self.count.into());
                let before = b.ordered_ticket((memory, group), of);
                let is_last = b.binary_with(BinaryFn::Eq, before, i64::from(self.count) - 1);
                let layout = rows_layout(self.threads, self.rows, [1, 1], self.across);
                emitter.if_uniform(b, is_last, |emitter, b| {
                    self.join(emitter, b, (base, self.rows), &layout, Array::WorkspaceOut)
                })?;
            }
            Ok(blocks.clone())
        })
    }

    /// The kernel that folds the slices of each result together and finishes it.
    fn second_kernel(&self, site: &Site<'_>) -> Result<(Kernel, Launch), CodegenError> {
        let threads = self.threads.min(self.count.next_power_of_two().max(WARP));
        let layout = rows_layout(threads, 1, [1, 1], false);
        build_kernel(site, &site.kernel_name("_parts"), threads, |emitter, b| {
            let block = emitter.block(b);
            self.join(emitter, b, (block, 1), &layout, Array::WorkspaceIn)?;
            Ok(self.total.clone())
        })
    }

    /// Where a slice's accumulators lie. Threads read them along the layout's faster dimension.
    fn offset(&self, emitter: &Emitter<'_>, row: &Index, part: &Index) -> Index {
        let (row, part) = ((row.clone(), self.total.clone()), (part.clone(), self.parts.clone()));
        let [slow, fast] = if self.across { [part, row] } else { [row, part] };
        emitter.space.linearize(&[slow.0, fast.0], &[slow.1, fast.1])
    }

    /// Folds the slices of `rows` results from `base` on together, and finishes those.
    fn join(
        &self,
        emitter: &mut Emitter<'_>,
        b: &mut KernelBuilder,
        (base, rows): (ValueId, u32),
        layout: &Layout,
        array: fn(usize, DType) -> Array,
    ) -> Result<(), CodegenError> {
        let folding = &self.folding;
        emitter.set_tile(layout);
        let row = emitter.iterate(&self.total, Some(base), Some(0));
        let mask = tail(row, &self.total, rows.into());
        let row = Index::var(row);
        let stretch = Stretch {
            from: b.int(emitter.index_dtype, 0),
            to: emitter.size(b, &self.parts),
            extent: &self.parts,
            limit: &|at| within_extent(at, &self.parts),
            unroll: 1,
            every: 1,
        };
        let sums = folding.initial(emitter, b);
        let join: &Join<'_, '_> = &|emitter, b, x, y| folding.combine(emitter, b, x, y);
        let start = (&sums[..], Some(join));
        let sums = along_row(emitter, b, &stretch, start, &|emitter, b, at, limits, sums| {
            let at = self.offset(emitter, &row, &Index::var(at));
            let there = mask.union(limits).cloned().collect();
            let mut partial = Vec::new();
            for (number, (neutral, dtype)) in
                folding.neutral().zip(folding.accumulators()).enumerate()
            {
                let memory = emitter.array(b, array(number, dtype));
                partial.push(emitter.load(b, memory, &at, &there, neutral));
            }
            Ok(folding.combine(emitter, b, sums, &partial))
        })?;
        let sums = folding.reduce_tile(b, 1, &sums);
        emitter.set_tile(&layout.dropped(1));
        let outer = emitter.space.delinearize(&row, &folding.outer);
        finish(emitter, b, folding, &outer, &mask, &sums)
    }
}
