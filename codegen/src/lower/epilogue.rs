//! What stands behind a contraction: pointwise nodes on a tile of sums in registers, and reductions along the
//! side of the tile that holds all elements which are folded together.

use fornax_ir::Dim;
use fornax_ir::op::AxisRole;
use fornax_ir::plan::Reduced;

use super::CodegenError;
use super::emit::Emitter;
use super::fold::Folding;
use super::index::{Index, Mask};
use super::product::Product;
use super::pull::union;
use crate::kernel::{KernelBuilder, ValueId};

/// A tile of a contraction's result.
pub(super) struct Finished<'t> {
    /// Positions along the contraction's axes.
    pub axes: &'t [Index],
    /// Where there are positions, along dimension 0 and along dimension 1.
    pub masks: [Mask; 2],
    /// The dimension along which the tile has columns of the product.
    pub columns_dim: u32,
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
    let dim = match reduced.role {
        AxisRole::Columns => tile.columns_dim,
        _ => 1 - tile.columns_dim,
    };
    let [mut kept, folded] = [1 - dim, dim].map(|dim| tile.masks[dim as usize].clone());
    // Some positions of a contraction give an index outside of the result.
    for (value, size) in index.iter().zip(body.ty(product.node).shape.iter()) {
        kept.extend(emitter.space.within(value, &Dim::constant(0), size));
    }
    let layout = emitter.tile().dropped(dim);
    for fold in &reduced.folds {
        let folding = Folding::new(product.site, fold.node)?;
        let [outer, inner] = fold.axes(body, index);
        let axes: Vec<Index> = outer.iter().cloned().chain(inner).collect();
        let lifted = folding.lifted(emitter, b, &axes, (&kept, &folded))?;
        let sums = folding.reduce_tile(b, dim, &lifted);
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
