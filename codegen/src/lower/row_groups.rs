//! Long rows: several blocks hold a row together and exchange what they have reduced through memory.
//!
//! Blocks take tickets, so that those of one row are neighbours in time, and wait for one another at each
//! level of reductions. Each element is read once and each partial result is combined in the order of the
//! blocks: results do not depend on timing.

use fornax_ir::plan::{Arena, RowAnchor, Rows};
use fornax_ir::{DType, Dim, Scalar};

use super::emit::{Array, Emitter, build_kernel};
use super::fold::Folding;
use super::fold_kernels::{Stretch, along_row};
use super::index::{Condition, Index, Mask};
use super::pointwise::{modes, within_extent};
use super::rows::{self, Chain, Place};
use super::site::Site;
use super::{CodegenError, Launch, LoweredRegion, Workspace, most_counters, single};
use crate::kernel::{Kernel, KernelBuilder, Layout, ValueId};

/// Threads that set the counters to zero, in a block.
const START_THREADS: u32 = 128;

/// The schedule's numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tile {
    pub threads: u32,
    pub vector: u32,
    pub items: u32,
    pub blocks: u32,
}

/// Lowers reductions of rows by groups of blocks.
pub(super) fn lower(
    site: &Site<'_>,
    rows: &Rows,
    tile: Tile,
) -> Result<LoweredRegion, CodegenError> {
    let Tile { threads, vector, items, blocks } = tile;
    let layout = rows::Tile { threads, rows: 1, vector, items }.layout(false);
    let group = Group {
        chain: Chain::new(site, rows, &layout)?,
        blocks,
        parts: [rows.count(), Dim::constant(blocks.into())],
        part: part(&rows.length(), blocks, layout.shape[1]),
        levels: rows.anchors.iter().map(|anchor| anchor.level + 1).max().unwrap_or(0),
    };
    let counters = Dim::constant(1) + rows.count() * Dim::from(group.levels);
    let kept = most_counters(site, &counters);
    let (elements, arena) = match &kept {
        Some(most) => (most.clone(), Arena::Counters),
        None => (counters.clone(), Arena::Phase),
    };
    let mut workspaces = vec![Workspace { dtype: DType::I32, elements, arena }];
    for fold in &group.chain.folds {
        let elements: Dim = group.parts.iter().product();
        let arrays = fold.accumulators().map(|dtype| Workspace {
            dtype,
            elements: elements.clone(),
            arena: Arena::Phase,
        });
        workspaces.extend(arrays);
    }
    let (kernel, mut launch) = build_kernel(site, &site.kernel_name(""), threads, |emitter, b| {
        group.emit(emitter, b)?;
        Ok(group.parts.iter().product())
    })?;
    launch.bytes = site.bytes();
    launch.flops =
        group.chain.folds.iter().map(Folding::flops).sum::<Dim>() + site.pointwise_flops();
    if kept.is_some() {
        return Ok(LoweredRegion { workspaces, ..single(kernel, launch) });
    }
    let (start, start_launch) = start(site, &[(0, DType::I32, counters)])?;
    launch.kernel = 1;
    Ok(LoweredRegion {
        kernels: vec![start, kernel],
        launches: vec![start_launch, launch],
        workspaces,
    })
}

/// Elements of a row for each block: a tile, or as many tiles as it takes.
fn part(length: &Dim, blocks: u32, width: u32) -> Dim {
    let (blocks, width) = (Dim::constant(blocks.into()), Dim::constant(width.into()));
    length.ceil_div(&blocks).ceil_div(&width).maximum(&Dim::constant(1)) * width
}

/// The kernel that sets workspaces to zero: number, element type and size of each.
pub(super) fn start(
    site: &Site<'_>,
    zeroed: &[(usize, DType, Dim)],
) -> Result<(Kernel, Launch), CodegenError> {
    let layout = Layout {
        shape: vec![START_THREADS],
        registers: Vec::new(),
        threads: modes(&[(0, START_THREADS, 1)]),
    };
    let tile = i64::from(START_THREADS);
    build_kernel(site, &site.kernel_name("_start"), START_THREADS, |emitter, b| {
        emitter.set_tile(&layout);
        let block = emitter.block(b);
        let base = b.mul_int(block, tile);
        let mut blocks = Dim::constant(0);
        for (number, dtype, elements) in zeroed {
            let at = emitter.iterate(elements, Some(base), Some(0));
            let memory = emitter.array(b, Array::WorkspaceOut(*number, *dtype));
            let zero = b.constant(Scalar::new(*dtype, 0.0));
            let mask = Mask::from([within_extent(at, elements)]);
            emitter.store(b, memory, &Index::var(at), zero, &mask);
            blocks = blocks.maximum(&elements.ceil_div(&Dim::constant(tile)));
        }
        Ok(blocks)
    })
}

/// What the parts of the kernel share.
struct Group<'s> {
    chain: Chain<'s>,
    /// Blocks of a row.
    blocks: u32,
    /// Rows, and parts of each.
    parts: [Dim; 2],
    /// Elements of a part.
    part: Dim,
    levels: usize,
}

/// A block's part of a row.
struct Part {
    row: Index,
    number: Index,
}

impl Group<'_> {
    fn emit(&self, emitter: &mut Emitter<'_>, b: &mut KernelBuilder) -> Result<(), CodegenError> {
        let chain = &self.chain;
        emitter.set_tile(&chain.layouts[0]);
        let counters = emitter.array(b, Array::WorkspaceOut(0, DType::I32));
        let zero = b.int(DType::I32, 0);
        let of = emitter.size(b, &self.parts.iter().product());
        let ticket = b.ticket((counters, zero), of);
        let ticket = b.cast(emitter.index_dtype, ticket);
        let ticket = emitter.iterate(&self.parts.iter().product(), Some(ticket), None);
        let at = emitter.space.delinearize(&Index::var(ticket), &self.parts);
        let mut counted = |index: &Index, extent: &Dim| {
            let value = emitter.index(b, index);
            Index::var(emitter.iterate(extent, Some(value), None))
        };
        let part =
            Part { row: counted(&at[0], &self.parts[0]), number: counted(&at[1], &self.parts[1]) };
        let none = Mask::new();
        let place = Place { row: &part.row, mask: &none };
        let from = emitter.space.scale(&part.number, &self.part);
        let from = emitter.index(b, &from);
        let width = i64::from(chain.layouts[0].shape[1]);
        if self.part.is(width) {
            let at = emitter.iterate(&chain.length, Some(from), Some(1));
            let limits = match chain.length.as_const() {
                Some(length) if length == width * i64::from(self.blocks) => Mask::new(),
                _ => Mask::from([within_extent(at, &chain.length)]),
            };
            let at = Index::var(at);
            self.reduce(emitter, b, &part, |emitter, b, now| {
                let mut sums = Vec::new();
                for (anchor, fold) in now {
                    let axes = anchor.axes(&emitter.space, place.row, &at);
                    sums.extend(fold.lifted(emitter, b, &axes, (place.mask, &limits))?);
                }
                Ok(sums)
            })?;
            chain.store_elements(emitter, b, place, &at, &limits)?;
        } else {
            let (size, end) = (emitter.size(b, &self.part), emitter.size(b, &chain.length));
            let to = b.add(from, size);
            let to = b.binary(fornax_ir::BinaryFn::Min, to, end);
            let bound = emitter.known(to, &[]);
            let stretch = Stretch {
                from,
                to,
                extent: &chain.length,
                limit: &|at| Condition::Below { value: Index::var(at), bound: bound.clone() },
                unroll: 1,
                every: 1,
            };
            self.reduce(emitter, b, &part, |emitter, b, now| {
                chain.folded(emitter, b, place, &stretch, now)
            })?;
            chain.store_along(emitter, b, place, &stretch)?;
        }
        let first = Condition::Within {
            value: part.number.clone(),
            low: None,
            high: Some(Dim::constant(1)),
        };
        let mask = if self.blocks > 1 { Mask::from([first]) } else { Mask::new() };
        chain.store_rows(emitter, b, Place { row: &part.row, mask: &mask })
    }

    /// Reduces level by level. `sums` gives a tile of accumulators for the reductions of one.
    fn reduce<'a>(
        &self,
        emitter: &mut Emitter<'a>,
        b: &mut KernelBuilder,
        part: &Part,
        mut sums: impl FnMut(
            &mut Emitter<'a>,
            &mut KernelBuilder,
            &[(&RowAnchor, &Folding)],
        ) -> Result<Vec<ValueId>, CodegenError>,
    ) -> Result<(), CodegenError> {
        for level in 0..self.levels {
            let now = self.chain.level(level);
            let sums = sums(emitter, b, &now)?;
            let mut rest = &sums[..];
            for &(anchor, fold) in &now {
                let (own, others) = rest.split_at(fold.accumulators().count());
                self.write_partial(emitter, b, part, (anchor, fold), own);
                rest = others;
            }
            let counter = emitter.space.scale(&part.row, &Dim::from(self.levels));
            let counter = emitter.space.add(&counter, &Index::size(1 + level as i64));
            let counter = emitter.index(b, &counter);
            let counters = emitter.array(b, Array::WorkspaceOut(0, DType::I32));
            b.meet(counters, counter, self.blocks);
            for &(anchor, fold) in &now {
                let sums = self.read_partials(emitter, b, part, (anchor, fold))?;
                let place = Place { row: &part.row, mask: &Mask::new() };
                self.chain.bind(emitter, b, place, (anchor, fold), &sums);
            }
        }
        Ok(())
    }

    /// The number of the workspace of a reduction's first accumulator.
    fn workspace(&self, anchor: &RowAnchor) -> usize {
        let before = self.chain.rows.anchors.iter().zip(&self.chain.folds);
        let before = before.take_while(|(other, _)| other.node != anchor.node);
        1 + before.map(|(_, fold)| fold.accumulators().count()).sum::<usize>()
    }

    fn write_partial(
        &self,
        emitter: &mut Emitter<'_>,
        b: &mut KernelBuilder,
        part: &Part,
        (anchor, fold): (&RowAnchor, &Folding),
        sums: &[ValueId],
    ) {
        let sums = fold.reduce_tile(b, 1, sums);
        emitter.set_tile(&self.chain.layouts[1]);
        let offset = emitter.space.linearize(&[part.row.clone(), part.number.clone()], &self.parts);
        let first = self.workspace(anchor);
        for (number, (sum, dtype)) in sums.into_iter().zip(fold.accumulators()).enumerate() {
            let memory = emitter.array(b, Array::WorkspaceOut(first + number, dtype));
            emitter.store(b, memory, &offset, sum, &Mask::new());
        }
        emitter.set_tile(&self.chain.layouts[0]);
    }

    /// The accumulators of all parts of the row, folded within each thread.
    fn read_partials<'a>(
        &self,
        emitter: &mut Emitter<'a>,
        b: &mut KernelBuilder,
        part: &Part,
        (anchor, fold): (&RowAnchor, &Folding),
    ) -> Result<Vec<ValueId>, CodegenError> {
        let threads = self.chain.layouts[0].thread_count();
        let layout = rows::Tile { threads, rows: 1, vector: 1, items: 1 }.layout(false);
        let count = &self.parts[1];
        let first = self.workspace(anchor);
        emitter.set_tile(&layout);
        let stretch = Stretch {
            from: b.int(emitter.index_dtype, 0),
            to: emitter.size(b, count),
            extent: count,
            limit: &|at| within_extent(at, count),
            unroll: 1,
            every: 1,
        };
        let start = fold.initial(emitter, b);
        let sums =
            along_row(emitter, b, &stretch, (&start, None), &|emitter, b, at, limits, sums| {
                let at = emitter.space.linearize(&[part.row.clone(), Index::var(at)], &self.parts);
                let mut partial = Vec::new();
                for (number, (neutral, dtype)) in
                    fold.neutral().zip(fold.accumulators()).enumerate()
                {
                    let memory = emitter.array(b, Array::WorkspaceOut(first + number, dtype));
                    partial.push(emitter.load(b, memory, &at, limits, neutral));
                }
                Ok(fold.combine(emitter, b, sums, &partial))
            })?;
        emitter.set_tile(&self.chain.layouts[0]);
        Ok(sums)
    }
}
