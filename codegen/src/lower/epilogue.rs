//! What stands behind a contraction: pointwise nodes on a tile of sums in registers, and reductions along the
//! side of the tile that holds all elements which are folded together, or parts of them: then the last tile to be
//! finished puts the parts together, in their order.

use fornax_ir::op::AxisRole;
use fornax_ir::plan::{Arena, Reduced};
use fornax_ir::{BinaryFn, DType, Dim};

use super::emit::{Array, Emitter};
use super::fold::Folding;
use super::fold_kernels::{Join, over_all};
use super::index::{Index, Mask};
use super::product::Product;
use super::pull::union;
use super::{CodegenError, Workspace, most_counters};
use crate::kernel::{KernelBuilder, ValueId};

/// Accumulators that a thread reads at once, and parts that they are of, at most.
const READ_AT_ONCE: u32 = 32;
const PARTS_AT_ONCE: u32 = 8;

/// The tiles of a contraction's result.
pub(super) struct Grid {
    /// Positions of the batch, and blocks along dimension 0 and dimension 1 of a tile.
    pub blocks: [Dim; 3],
    /// The sizes of a tile.
    pub shape: [u32; 2],
    /// The dimension along which a tile has columns of the product.
    pub columns_dim: u32,
    /// The number of the first workspace that is not the contraction's.
    pub first: usize,
}

impl Grid {
    /// The dimension of a tile along which reductions fold.
    fn folded(&self, reduced: &Reduced) -> usize {
        let columns = self.columns_dim as usize;
        if reduced.role == AxisRole::Columns { columns } else { 1 - columns }
    }

    /// Sizes that tiles are counted by which fold parts of the same, and their number.
    fn groups(&self, folded: usize) -> ([Dim; 2], Dim) {
        let [batch, blocks @ ..] = &self.blocks;
        ([batch.clone(), blocks[1 - folded].clone()], blocks[folded].clone())
    }

    /// Sizes of the accumulators of parts: parts, groups, positions of a tile.
    fn partial_sizes(&self, folded: usize) -> [Dim; 3] {
        let (groups, parts) = self.groups(folded);
        [parts, groups.iter().product(), Dim::constant(self.shape[1 - folded].into())]
    }

    /// What parts of reductions are exchanged by: accumulators, and counters behind them.
    pub fn workspaces(&self, product: &Product<'_>) -> Result<Vec<Workspace>, CodegenError> {
        let Some(reduced) = product.reduced().filter(|reduced| reduced.in_parts) else {
            return Ok(Vec::new());
        };
        let sizes = self.partial_sizes(self.folded(reduced));
        let folding = Folding::new(product.site, reduced.folds[0].node)?;
        let elements: Dim = sizes.iter().product();
        let workspace =
            |dtype| Workspace { dtype, elements: elements.clone(), arena: Arena::Phase };
        let mut workspaces: Vec<Workspace> = folding.accumulators().map(workspace).collect();
        let counters = most_counters(product.site, &sizes[1]).ok_or_else(|| {
            let reason = format!("{} groups of tiles are too many to be counted", sizes[1]);
            product.site.error(reduced.folds[0].node, reason)
        })?;
        let arena = Arena::Counters;
        workspaces.push(Workspace { dtype: DType::I32, elements: counters, arena });
        Ok(workspaces)
    }
}

/// A tile of a contraction's result.
pub(super) struct Finished<'t> {
    /// Positions along the contraction's axes.
    pub axes: &'t [Index],
    /// Where there are positions, along dimension 0 and along dimension 1.
    pub masks: [Mask; 2],
    pub grid: Grid,
    /// Where in the grid it is.
    pub place: &'t [Index],
    pub sums: ValueId,
}

/// Computes and writes the region's results.
pub(super) fn finish(
    emitter: &mut Emitter<'_>,
    b: &mut KernelBuilder,
    product: &Product<'_>,
    tile: &Finished<'_>,
) -> Result<(), CodegenError> {
    let out = product.form.out.iter();
    let index: Vec<Index> = out.map(|expr| emitter.space.compose(expr, tile.axes, &[])).collect();
    let result = b.cast(product.site.body.ty(product.node).dtype, tile.sums);
    emitter.bind_anchor(product.node, &index, result);
    match product.reduced() {
        Some(reduced) => finish_reduced(emitter, b, (product, reduced), tile, &index),
        None => emitter.store_outputs(b, &index, &union(&tile.masks[0], &tile.masks[1])),
    }
}

fn finish_reduced(
    emitter: &mut Emitter<'_>,
    b: &mut KernelBuilder,
    (product, reduced): (&Product<'_>, &Reduced),
    tile: &Finished<'_>,
    index: &[Index],
) -> Result<(), CodegenError> {
    let body = product.site.body;
    let dim = tile.grid.folded(reduced);
    let [mut kept, mut folded] = [1 - dim, dim].map(|dim| tile.masks[dim].clone());
    let dim = dim as u32;
    // Some positions of a contraction give an index outside of the result.
    for (axis, size) in body.ty(product.node).shape.iter().enumerate() {
        let is_folded = product.form.out[axis].axes().iter().any(|at| reduced.axes.contains(at));
        let within = emitter.space.within(&index[axis], &Dim::constant(0), size);
        if is_folded { &mut folded } else { &mut kept }.extend(within);
    }
    let layout = emitter.tile().dropped(dim);
    for fold in &reduced.folds {
        let folding = Folding::new(product.site, fold.node)?;
        let [outer, inner] = fold.axes(body, index);
        let axes: Vec<Index> = outer.iter().cloned().chain(inner).collect();
        let lifted = folding.lifted(emitter, b, &axes, (&kept, &folded))?;
        let sums = folding.reduce_tile(b, dim, &lifted);
        if reduced.in_parts {
            emitter.set_tile(&layout);
            let is_last = write_part(emitter, b, &folding, (tile, dim as usize), &sums);
            return emitter.if_uniform(b, is_last, |emitter, b| {
                let sums = join_parts(emitter, b, &folding, (tile, dim as usize))?;
                let result = folding.finish(emitter, b, &sums);
                let result = b.broadcast(result, &layout);
                emitter.bind_anchor(fold.node, &outer, result);
                for (number, output) in reduced.outputs.iter().enumerate() {
                    emitter.store_output(b, number, &output.index(index), &kept)?;
                }
                Ok(())
            });
        }
        let result = folding.finish(emitter, b, &sums);
        let result = b.broadcast(result, &layout);
        emitter.bind_anchor(fold.node, &outer, result);
    }
    let both = union(&kept, &folded);
    let outputs = || reduced.outputs.iter().enumerate();
    for (number, output) in outputs().filter(|(_, output)| !output.is_folded) {
        emitter.store_output(b, number, &output.index(index), &both)?;
    }
    emitter.set_tile(&layout);
    for (number, output) in outputs().filter(|(_, output)| output.is_folded) {
        emitter.store_output(b, number, &output.index(index), &kept)?;
    }
    Ok(())
}

/// Where the accumulators of a part lie, of a tile with all positions of its own that are not folded.
fn partial_offset(
    emitter: &mut Emitter<'_>,
    (tile, folded): (&Finished<'_>, usize),
    part: &Index,
) -> Index {
    let sizes = tile.grid.partial_sizes(folded);
    let own = emitter.iterate(&sizes[2], None, Some(1 - folded as u32));
    let group = group_of(emitter, (tile, folded));
    emitter.space.linearize(&[part.clone(), group, Index::var(own)], &sizes)
}

/// The number of the tile's group.
fn group_of(emitter: &Emitter<'_>, (tile, folded): (&Finished<'_>, usize)) -> Index {
    let at = [tile.place[0].clone(), tile.place[2 - folded].clone()];
    emitter.space.linearize(&at, &tile.grid.groups(folded).0)
}

/// Writes a part's accumulators; whether it is the last one of its group that does.
fn write_part(
    emitter: &mut Emitter<'_>,
    b: &mut KernelBuilder,
    folding: &Folding,
    (tile, folded): (&Finished<'_>, usize),
    sums: &[ValueId],
) -> ValueId {
    let offset = partial_offset(emitter, (tile, folded), &tile.place[1 + folded]);
    for (number, (&sum, dtype)) in sums.iter().zip(folding.accumulators()).enumerate() {
        let memory = emitter.array(b, Array::WorkspaceOut(tile.grid.first + number, dtype));
        emitter.store(b, memory, &offset, sum, &Mask::new());
    }
    let counters = Array::WorkspaceOut(tile.grid.first + sums.len(), DType::I32);
    let memory = emitter.array(b, counters);
    let group = group_of(emitter, (tile, folded));
    let group = emitter.index(b, &group);
    let of = emitter.size(b, &tile.grid.groups(folded).1);
    let before = b.ordered_ticket((memory, group), of);
    let of = b.cast(DType::I32, of);
    let last = b.add_int(of, -1);
    b.binary(BinaryFn::Eq, before, last)
}

/// The accumulators of all parts of the tile's group.
fn join_parts<'a>(
    emitter: &mut Emitter<'a>,
    b: &mut KernelBuilder,
    folding: &Folding,
    (tile, folded): (&Finished<'_>, usize),
) -> Result<Vec<ValueId>, CodegenError> {
    let start = folding.initial(emitter, b);
    let join: &Join<'_, 'a> = &|emitter, b, x, y| folding.combine(emitter, b, x, y);
    let parts = tile.grid.groups(folded).1;
    let own: u32 = emitter.tile().registers.iter().map(|mode| mode.size).product();
    let unroll = (READ_AT_ONCE / own.max(1)).clamp(1, PARTS_AT_ONCE);
    over_all(emitter, b, (&parts, unroll), (&start, join), &|emitter, b, part, sums| {
        let part = Index::var(emitter.iterate(&parts, Some(part), None));
        let offset = partial_offset(emitter, (tile, folded), &part);
        let mut partial = Vec::new();
        for (number, (neutral, dtype)) in folding.neutral().zip(folding.accumulators()).enumerate()
        {
            let memory = emitter.array(b, Array::WorkspaceOut(tile.grid.first + number, dtype));
            partial.push(emitter.load(b, memory, &offset, &Mask::new(), neutral));
        }
        Ok(folding.combine(emitter, b, sums, &partial))
    })
}
