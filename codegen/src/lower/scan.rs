//! Scans: a block goes along its rows and keeps the accumulators between its steps.

use fornax_ir::op::{OpCtx, ScanForm};
use fornax_ir::plan::adjacent::{is_adjacent, memory_offset};
use fornax_ir::{DType, Dim, NodeId, ScalarExpr};

use super::emit::{Array, Emitter, build_kernel};
use super::fold_kernels::{Stretch, along_row};
use super::index::{Condition, Index, IndexSpace, Mask};
use super::pointwise::{modes, tail, within_extent};
use super::pull::union;
use super::site::{Site, functions, uses};
use super::{CodegenError, LoweredRegion, single};
use crate::kernel::{KernelBuilder, Layout, ValueId};

/// Bytes of the widest access.
const ACCESS_BYTES: u32 = 16;

/// The schedule's numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tile {
    pub threads: u32,
    pub rows: u32,
    pub items: u32,
}

impl Tile {
    /// Rows along dimension 0, positions along dimension 1. `vector`: adjacent positions of a thread;
    /// none where neighbouring rows are adjacent in memory: threads that follow one another take those.
    fn layout(self, vector: Option<u32>) -> Layout {
        let Tile { threads, rows, items } = self;
        let rows = rows.min(threads);
        let each = threads / rows;
        let Some(vector) = vector else {
            return Layout {
                shape: vec![rows, each * items],
                registers: modes(&[(1, items, each)]),
                threads: modes(&[(0, rows, 1), (1, each, 1)]),
            };
        };
        let vector = vector.min(items);
        Layout {
            shape: vec![rows, each * items],
            registers: modes(&[(1, vector, 1), (1, items / vector, each * vector)]),
            threads: modes(&[(1, each, vector), (0, rows, 1)]),
        }
    }
}

/// How many adjacent elements a thread reads at once; nothing where rows are interleaved in memory.
fn vector(site: &Site<'_>, anchor: NodeId, form: &ScanForm, rows: &[Dim]) -> Option<u32> {
    let mut space = IndexSpace::new(site.dims);
    let row = space.add_var(&rows.iter().product());
    let at = space.add_var(&site.shape()[form.axis]);
    let mut index = space.delinearize(&Index::var(row), rows);
    index.insert(form.axis, Index::var(at));
    let operand = site.body.operands(anchor)[0];
    match memory_offset(site.body, &space, operand, &index) {
        Some(offset) if is_adjacent(&offset, row) && !is_adjacent(&offset, at) => None,
        // Downwards, positions are not adjacent in the order of the scan.
        _ if form.reverse => Some(1),
        _ => Some((ACCESS_BYTES / site.body.ty(operand).dtype.size() as u32).max(1)),
    }
}

/// Lowers a scan.
pub(super) fn lower(
    site: &Site<'_>,
    anchor: NodeId,
    form: fn(&OpCtx<'_>) -> ScanForm,
    tile: Tile,
) -> Result<LoweredRegion, CodegenError> {
    let form = site.with_ctx(anchor, form);
    let shape = site.shape();
    let length = &shape[form.axis];
    let mut rows = shape.to_vec();
    rows.remove(form.axis);
    let total: Dim = rows.iter().product();
    let layout = tile.layout(vector(site, anchor, &form, &rows));
    let in_block = layout.shape[0];
    let name = site.kernel_name("");
    let (kernel, mut launch) = build_kernel(site, &name, tile.threads, |emitter, b| {
        emitter.set_tile(&layout);
        let block = emitter.block(b);
        let base = b.mul_int(block, in_block.into());
        let row = emitter.iterate(&total, Some(base), Some(0));
        let mask = tail(row, &total, in_block.into());
        let row = emitter.space.delinearize(&Index::var(row), &rows);
        let start: Vec<ValueId> = form
            .reducer
            .init
            .iter()
            .map(|&number| {
                let number = b.constant(number);
                b.splat(number, &layout.dropped(1))
            })
            .collect();
        let stretch = Stretch {
            from: b.int(emitter.index_dtype, 0),
            to: emitter.size(b, length),
            extent: length,
            limit: &|at| within_extent(at, length),
            unroll: 1,
            every: 1,
        };
        along_row(emitter, b, &stretch, (&start, None), &|emitter, b, at, limits, carried| {
            let mask = union(&mask, limits);
            let step = Step { node: anchor, form: &form, row: &row, length, mask: &mask };
            step.emit(emitter, b, &Index::var(at), carried)
        })?;
        if length.is(0) {
            // No step stores anything, but the results are the kernel's all the same.
            for output in 0..site.body.outputs().len() {
                emitter.array(b, Array::Output(output));
            }
        }
        Ok(total.ceil_div(&Dim::constant(in_block.into())))
    })?;
    let each = form.reducer.lift.iter().chain(&form.reducer.combine).map(functions).sum::<usize>();
    launch.bytes = site.bytes();
    launch.flops = shape.iter().product::<Dim>() * Dim::from(each) + site.pointwise_flops();
    Ok(single(kernel, launch))
}

/// One step along a row.
struct Step<'s> {
    node: NodeId,
    form: &'s ScanForm,
    /// The index along the other axes.
    row: &'s [Index],
    length: &'s Dim,
    mask: &'s Mask,
}

impl Step<'_> {
    /// Scans a tile whose results are counted by `at` in the order of the scan, writes the region's
    /// results, and gives the accumulators after it.
    fn emit(
        &self,
        emitter: &mut Emitter<'_>,
        b: &mut KernelBuilder,
        at: &Index,
        carried: &[ValueId],
    ) -> Result<Vec<ValueId>, CodegenError> {
        let combine = &self.form.reducer.combine;
        let lifted = self.lifted(emitter, b, at)?;
        let mut prefixes = b.scan(1, &lifted, combine);
        let totals = prefixes.split_off(lifted.len());
        let before: Vec<ValueId> = carried.iter().map(|&value| emitter.spread(b, value)).collect();
        let prefixes = evaluate_all(b, combine, &[before, prefixes].concat());
        let next = evaluate_all(b, combine, &[carried, &totals].concat());

        let result = self.finished(emitter, b, at, prefixes);
        let index = self.index(emitter, at);
        emitter.bind_anchor(self.node, &index, result);
        emitter.store_outputs(b, &index, self.mask)?;
        Ok(next)
    }

    /// The index in the operand and in the result of the element that is `at` in the order of the scan.
    fn index(&self, emitter: &Emitter<'_>, at: &Index) -> Vec<Index> {
        let along = if self.form.reverse {
            let last = Index::size(self.length - &Dim::constant(1));
            emitter.space.add(&last, &emitter.space.scale(at, &Dim::constant(-1)))
        } else {
            at.clone()
        };
        let mut index = self.row.to_vec();
        index.insert(self.form.axis, along);
        index
    }

    /// The elements to scan: an exclusive scan is an inclusive one of the elements before.
    fn lifted(
        &self,
        emitter: &mut Emitter<'_>,
        b: &mut KernelBuilder,
        at: &Index,
    ) -> Result<Vec<ValueId>, CodegenError> {
        let reducer = &self.form.reducer;
        let operand = emitter.site.body.operands(self.node)[0];
        let mut guards = self.mask.clone();
        let mut element = at.clone();
        if self.form.exclusive {
            element = emitter.space.add(at, &Index::size(-1i64));
            guards.insert(Condition::Within {
                value: element.clone(),
                low: Some(Dim::constant(0)),
                high: None,
            });
        }
        let index = self.index(emitter, &element);
        let mut args = vec![emitter.pull(b, operand, &index, &guards)?];
        if reducer.lift.iter().any(|expr| uses(expr, 1)) {
            let position = emitter.index(b, &index[self.form.axis]);
            args.push(b.cast(DType::I64, position));
        }
        let args = emitter.unified(b, &args);
        let holds = emitter.mask(b, &guards);
        let lifted = reducer.lift.iter().zip(&reducer.init).map(|(expr, &neutral)| {
            let value = b.evaluate(expr, &args);
            let value = match holds {
                Some(holds) => emitter.select_or(b, holds, value, neutral),
                None => value,
            };
            emitter.spread(b, value)
        });
        Ok(lifted.collect())
    }

    fn finished(
        &self,
        emitter: &mut Emitter<'_>,
        b: &mut KernelBuilder,
        at: &Index,
        mut prefixes: Vec<ValueId>,
    ) -> ValueId {
        let finish = &self.form.reducer.finish;
        if uses(finish, prefixes.len()) {
            let first = Index::size(if self.form.exclusive { 0i64 } else { 1 });
            let count = emitter.space.add(at, &first);
            let count = emitter.index(b, &count);
            prefixes.push(b.cast(DType::I64, count));
        }
        let args = emitter.unified(b, &prefixes);
        b.evaluate(finish, &args)
    }
}

fn evaluate_all(b: &mut KernelBuilder, exprs: &[ScalarExpr], args: &[ValueId]) -> Vec<ValueId> {
    exprs.iter().map(|expr| b.evaluate(expr, args)).collect()
}
