//! Rows: reductions over the same positions, with everything between, in one kernel.
//!
//! A tile has rows along dimension 0 and positions along dimension 1. Where a tile holds whole rows, all
//! values of a row stay in registers from its first use to the last; longer rows are gone over once for
//! each level of reductions, and once more for the results.

use fornax_ir::Dim;
use fornax_ir::plan::{RowAnchor, Rows};

use super::emit::{Emitter, build_kernel};
use super::fold::Folding;
use super::fold_kernels::{Join, Stretch, along_row};
use super::index::{Index, Mask};
use super::pointwise::{modes, tail, within_extent};
use super::site::Site;
use super::{CodegenError, LoweredRegion, single};
use crate::kernel::{KernelBuilder, Layout, ValueId};

/// The schedule's numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tile {
    pub threads: u32,
    pub rows: u32,
    pub vector: u32,
    pub items: u32,
}

impl Tile {
    /// `interleaved`: neighbouring rows are adjacent in memory, so that threads that follow one another
    /// take neighbouring rows.
    pub fn layout(self, interleaved: bool) -> Layout {
        let Tile { threads, rows, vector, items } = self;
        if interleaved {
            let vector = vector.min(rows);
            let across = (rows / vector).min(threads);
            let each = threads / across;
            return Layout {
                shape: vec![across * vector, each * items],
                registers: modes(&[(0, vector, 1), (1, items, each)]),
                threads: modes(&[(0, across, vector), (1, each, 1)]),
            };
        }
        let rows = rows.min(threads);
        let each = threads / rows;
        Layout {
            shape: vec![rows, each * vector * items],
            registers: modes(&[(1, vector, 1), (1, items, each * vector)]),
            threads: modes(&[(1, each, vector), (0, rows, 1)]),
        }
    }
}

/// What the parts of the kernel share.
pub(super) struct Chain<'s> {
    pub rows: &'s Rows,
    pub folds: Vec<Folding>,
    /// The tile, and the tile of values that each row has one of.
    pub layouts: [Layout; 2],
    pub length: Dim,
}

/// Lowers reductions of rows.
pub(super) fn lower(
    site: &Site<'_>,
    rows: &Rows,
    tile: Tile,
) -> Result<LoweredRegion, CodegenError> {
    let layout = tile.layout(rows.are_interleaved(site.body, site.dims));
    let chain = Chain::new(site, rows, &layout)?;
    let count = rows.count();
    let in_block = layout.shape[0];
    let name = site.kernel_name("");
    let (kernel, mut launch) = build_kernel(site, &name, tile.threads, |emitter, b| {
        emitter.set_tile(&layout);
        let block = emitter.block(b);
        let base = b.mul_int(block, in_block.into());
        let row = emitter.iterate(&count, Some(base), Some(0));
        let mask = tail(row, &count, in_block.into());
        let place = Place { row: &Index::var(row), mask: &mask };
        if chain.length.bounds(site.dims).1 <= i64::from(layout.shape[1]) {
            chain.held(emitter, b, place)?;
        } else {
            chain.reread(emitter, b, place, tile.items)?;
        }
        Ok(count.ceil_div(&Dim::constant(in_block.into())))
    })?;
    launch.bytes = site.bytes();
    launch.flops = chain.folds.iter().map(Folding::flops).sum::<Dim>() + site.pointwise_flops();
    Ok(single(kernel, launch))
}

/// A block's rows.
#[derive(Clone, Copy)]
pub(super) struct Place<'p> {
    pub row: &'p Index,
    /// Which rows there are.
    pub mask: &'p Mask,
}

impl<'s> Chain<'s> {
    pub fn new(
        site: &Site<'_>,
        rows: &'s Rows,
        layout: &Layout,
    ) -> Result<Chain<'s>, CodegenError> {
        let folds = rows.anchors.iter().map(|anchor| Folding::new(site, anchor.node));
        Ok(Chain {
            rows,
            folds: folds.collect::<Result<_, _>>()?,
            layouts: [layout.clone(), layout.dropped(1)],
            length: rows.length(),
        })
    }

    /// The reductions of a level.
    pub fn level(&self, level: usize) -> Vec<(&RowAnchor, &Folding)> {
        let pairs = self.rows.anchors.iter().zip(&self.folds);
        pairs.filter(|(anchor, _)| anchor.level == level).collect()
    }

    /// Each tile holds whole rows.
    fn held(
        &self,
        emitter: &mut Emitter<'_>,
        b: &mut KernelBuilder,
        place: Place<'_>,
    ) -> Result<(), CodegenError> {
        let at = emitter.iterate(&self.length, None, Some(1));
        let limits = match self.length.as_const() {
            Some(length) if length == i64::from(self.layouts[0].shape[1]) => Mask::new(),
            _ => Mask::from([within_extent(at, &self.length)]),
        };
        let at = Index::var(at);
        for (anchor, fold) in self.rows.anchors.iter().zip(&self.folds) {
            let axes = anchor.axes(&emitter.space, place.row, &at);
            let lifted = fold.lifted(emitter, b, &axes, (place.mask, &limits))?;
            self.bind(emitter, b, place, (anchor, fold), &lifted);
        }
        self.store_elements(emitter, b, place, &at, &limits)?;
        self.store_rows(emitter, b, place)
    }

    /// Rows are longer than the tile.
    fn reread(
        &self,
        emitter: &mut Emitter<'_>,
        b: &mut KernelBuilder,
        place: Place<'_>,
        items: u32,
    ) -> Result<(), CodegenError> {
        let stretch = Stretch {
            from: b.int(emitter.index_dtype, 0),
            to: emitter.size(b, &self.length),
            extent: &self.length,
            limit: &|at| within_extent(at, &self.length),
            unroll: (4 / items).max(1),
            every: 1,
        };
        let levels = self.rows.anchors.iter().map(|anchor| anchor.level + 1).max().unwrap_or(0);
        for level in 0..levels {
            let now = self.level(level);
            let sums = self.folded(emitter, b, place, &stretch, &now)?;
            let mut rest = &sums[..];
            for pair in now {
                let (own, others) = rest.split_at(pair.1.accumulators().count());
                self.bind(emitter, b, place, pair, own);
                rest = others;
            }
        }
        self.store_along(emitter, b, place, &stretch)?;
        self.store_rows(emitter, b, place)
    }

    /// The accumulators of reductions over a stretch of the rows, folded within each thread.
    pub fn folded<'a>(
        &self,
        emitter: &mut Emitter<'a>,
        b: &mut KernelBuilder,
        place: Place<'_>,
        stretch: &Stretch<'_>,
        now: &[(&RowAnchor, &Folding)],
    ) -> Result<Vec<ValueId>, CodegenError> {
        let start: Vec<ValueId> =
            now.iter().flat_map(|(_, fold)| fold.initial(emitter, b)).collect();
        let join: &Join<'_, 'a> = &|emitter, b, x, y| {
            let mut sums = Vec::new();
            for (_, fold) in now {
                let own = sums.len()..sums.len() + fold.accumulators().count();
                sums.extend(fold.combine(emitter, b, &x[own.clone()], &y[own]));
            }
            sums
        };
        along_row(emitter, b, stretch, (&start, Some(join)), &|emitter, b, at, limits, sums| {
            let mut next = Vec::new();
            for &(anchor, fold) in now {
                let axes = anchor.axes(&emitter.space, place.row, &Index::var(at));
                let (outer, inner) = axes.split_at(anchor.outer.len());
                let first = next.len();
                let own = &sums[first..first + fold.accumulators().count()];
                next.extend(fold.step(emitter, b, (outer, inner), (place.mask, limits), own)?);
            }
            Ok(next)
        })
    }

    /// Writes the results that have a value for each element, over a stretch of the rows.
    pub fn store_along(
        &self,
        emitter: &mut Emitter<'_>,
        b: &mut KernelBuilder,
        place: Place<'_>,
        stretch: &Stretch<'_>,
    ) -> Result<(), CodegenError> {
        if self.rows.outputs.iter().any(|output| output.per_element) {
            along_row(emitter, b, stretch, (&[], None), &|emitter, b, at, limits, _| {
                self.store_elements(emitter, b, place, &Index::var(at), limits)?;
                Ok(Vec::new())
            })?;
        }
        Ok(())
    }

    /// Folds the tile's accumulators along the rows and binds the result to the reduction.
    pub fn bind(
        &self,
        emitter: &mut Emitter<'_>,
        b: &mut KernelBuilder,
        place: Place<'_>,
        (anchor, fold): (&RowAnchor, &Folding),
        sums: &[ValueId],
    ) {
        let sums = fold.reduce_tile(b, 1, sums);
        let result = fold.finish(emitter, b, &sums);
        let result = b.broadcast(result, &self.layouts[1]);
        let index = anchor.index(&emitter.space, place.row);
        emitter.bind_anchor(anchor.node, &index, result);
    }

    /// Writes the results that have a value for each element, at positions where the limits hold.
    pub fn store_elements(
        &self,
        emitter: &mut Emitter<'_>,
        b: &mut KernelBuilder,
        place: Place<'_>,
        at: &Index,
        limits: &Mask,
    ) -> Result<(), CodegenError> {
        let mask = super::pull::union(place.mask, limits);
        for (number, output) in self.rows.outputs.iter().enumerate() {
            if output.per_element {
                let axes = self.rows.anchors[output.anchor].axes(&emitter.space, place.row, at);
                let index: Vec<Index> = output
                    .index
                    .iter()
                    .map(|expr| emitter.space.compose(expr, &axes, &[]))
                    .collect();
                emitter.store_output(b, number, &index, &mask)?;
            }
        }
        Ok(())
    }

    /// Writes the results that have a value for each row.
    pub fn store_rows(
        &self,
        emitter: &mut Emitter<'_>,
        b: &mut KernelBuilder,
        place: Place<'_>,
    ) -> Result<(), CodegenError> {
        emitter.set_tile(&self.layouts[1]);
        for (number, output) in self.rows.outputs.iter().enumerate() {
            if !output.per_element {
                let anchor = &self.rows.anchors[output.anchor];
                let axes = anchor.index(&emitter.space, place.row);
                let index: Vec<Index> = output
                    .index
                    .iter()
                    .map(|expr| emitter.space.compose(expr, &axes, &[]))
                    .collect();
                emitter.store_output(b, number, &index, place.mask)?;
            }
        }
        Ok(())
    }
}
