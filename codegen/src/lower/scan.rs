//! Scans: a block goes along a row and keeps the accumulators between its steps.

use fornax_ir::op::{OpCtx, ScanForm};
use fornax_ir::{DType, Dim, NodeId, ScalarExpr};

use super::emit::{Emitter, build_kernel};
use super::index::{Condition, Index, Mask};
use super::pointwise::{modes, tail};
use super::site::{Site, functions, uses};
use super::{CodegenError, LoweredRegion, single};
use crate::kernel::{KernelBuilder, Layout, ValueId};

/// One block a row, `threads * items` elements a step.
pub(super) fn lower(
    site: &Site<'_>,
    anchor: NodeId,
    form: fn(&OpCtx<'_>) -> ScanForm,
    threads: u32,
    items: u32,
) -> Result<LoweredRegion, CodegenError> {
    let form = site.with_ctx(anchor, form);
    let shape = site.shape();
    let length = &shape[form.axis];
    let mut rows = shape.to_vec();
    rows.remove(form.axis);
    let total: Dim = rows.iter().product();
    let width = threads * items;
    let layout = Layout {
        shape: vec![width],
        registers: modes(&[(0, items, 1)]),
        threads: modes(&[(0, threads, items)]),
    };
    let (kernel, mut launch) = build_kernel(site, &site.kernel_name(""), threads, |emitter, b| {
        emitter.set_tile(&layout);
        let block = emitter.block(b);
        let row = emitter.iterate(&total, Some(block), None);
        let row = emitter.space.delinearize(&Index::var(row), &rows);
        let start: Vec<ValueId> = form
            .reducer
            .init
            .iter()
            .map(|&number| {
                let number = b.constant(number);
                b.splat(number, &layout.dropped(0))
            })
            .collect();
        let ends = (b.int(emitter.index_dtype, 0), emitter.size(b, length), width);
        emitter.for_loop(b, ends, &start, 1, |emitter, b, at, carried| {
            let at = emitter.iterate(length, Some(at), Some(0));
            let mask = tail(at, length, width.into());
            let step = Step { node: anchor, form: &form, row: &row, length, mask: &mask };
            step.emit(emitter, b, &Index::var(at), carried)
        })?;
        Ok(total.clone())
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
        let prefixes = b.scan(0, &lifted, combine);
        let totals = b.reduce(0, &lifted, combine);
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
