//! Schedules of contractions of few results: each result is folded by threads that share its inner
//! elements, so that all loads of a small product are under way at once. Counts are in cycles of one
//! multiprocessor, as in [`super::contraction`].

use std::collections::BTreeMap;

use fornax_ir::op::{AxisRole, ContractionForm, OperandMap};
use fornax_ir::plan::Schedule;
use fornax_ir::{Dim, DimRange, IndexExpr, Symbol};

use super::contraction::{BLOCK_OVERHEAD, CACHE_RATE, LATENCY, THREADS, div_ceil};
use super::{BLOCKS_TO_FILL, typical};

/// Steps of a fold whose loads a thread has in flight: eight loads of two operands each
/// (`codegen/src/lower/fold_kernels.rs`).
const STEPS_IN_FLIGHT: i64 = 4;

/// Elements along the results that a warp reads at once.
const WARP: i64 = 32;

/// Cycles until the last block that has folded a slice has put them together: two fences with a ticket between
/// them, the slices, and what puts threads together again.
const JOINED: f64 = 4.0 * LATENCY + 0.5 * BLOCK_OVERHEAD;

/// Blocks that a multiprocessor holds at most (CUDA C++ Programming Guide, "Compute Capabilities").
const BLOCKS: i64 = 32;

/// What is folded, with typical sizes.
#[derive(Debug)]
pub(super) struct Dots {
    results: i64,
    inner: i64,
    /// Whether the inner elements of the operand that differs between adjacent results are adjacent; if not,
    /// the results' are.
    contiguous: bool,
}

impl Dots {
    pub(super) fn of(form: &ContractionForm, dims: &BTreeMap<Symbol, DimRange>) -> Dots {
        let count = |inner: bool| {
            let sizes = form.axes.iter().filter(|(_, role)| (*role == AxisRole::Inner) == inner);
            typical(&sizes.map(|(size, _)| size).product::<Dim>(), dims).max(1)
        };
        let moving = |map: &OperandMap| {
            let of = |expr: &IndexExpr| -> Vec<AxisRole> {
                let axes = expr.axes().into_iter().map(|axis| &form.axes[axis]);
                axes.filter(|(size, _)| !size.is(1)).map(|(_, role)| *role).collect()
            };
            map.index.iter().rev().map(of).find(|roles| !roles.is_empty()).unwrap_or_default()
        };
        let contiguous =
            [&form.lhs, &form.rhs].iter().all(|map| moving(map).contains(&AxisRole::Inner));
        Dots { results: count(false), inner: count(true), contiguous }
    }

    /// The fastest fold and the cycles it takes.
    pub(super) fn best(&self) -> (f64, Schedule) {
        let mut best: Option<(f64, Schedule)> = None;
        let mut offer = |time: f64, schedule: Schedule| {
            if best.as_ref().is_none_or(|(least, _)| time < *least) {
                best = Some((time, schedule));
            }
        };
        let (all_rows, vector): (&[u32], u32) =
            if self.contiguous { (&[1, 2, 4, 8], 4) } else { (&[32], 1) };
        for threads in [128, 256, 512] {
            for &rows in all_rows {
                let time = self.time([threads, rows, vector, 1].map(i64::from));
                offer(time, Schedule::FoldBlock { threads, rows, vector });
            }
        }
        let rows = if self.contiguous { 1 } else { WARP };
        for parts in [2, 4, 8, 16, 32] {
            let threads = 256;
            let sizes = [threads.into(), rows, vector.into(), parts.into()];
            let time = self.time(sizes) + JOINED;
            offer(time, Schedule::FoldSplit { threads, vector, parts });
        }
        best.expect("invariant: there are candidates")
    }

    /// Cycles of blocks that fold `rows` results, or a slice of them each.
    fn time(&self, [threads, rows, vector, parts]: [i64; 4]) -> f64 {
        let steps = div_ceil(self.inner, threads / rows * vector * parts);
        let blocks = div_ceil(self.results, rows).saturating_mul(parts);
        let resident = (THREADS / threads).min(BLOCKS);
        let waves = div_ceil(blocks, BLOCKS_TO_FILL * resident) as f64;
        let alone = BLOCK_OVERHEAD + div_ceil(steps, STEPS_IN_FLIGHT) as f64 * LATENCY;
        // Of two operands one is read for each product from the L2 cache, the other mostly from nearer.
        let products = self.results as f64 * self.inner as f64 / BLOCKS_TO_FILL as f64;
        let busy = (4.0 * products / CACHE_RATE).max(2.0 * products / WARP as f64);
        (waves * alone).max(BLOCK_OVERHEAD + busy) + 0.05 * busy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dots(results: i64, inner: i64, contiguous: bool) -> Schedule {
        Dots { results, inner, contiguous }.best().1
    }

    #[test]
    fn long_folds_of_few_results_get_many_threads() {
        let Schedule::FoldBlock { threads, rows, .. } = dots(864, 1728, true) else { panic!() };
        assert!(threads / rows >= 64, "{threads} threads, {rows} rows");
        assert!(matches!(dots(1280, 8192, false), Schedule::FoldSplit { .. }));
    }

    #[test]
    fn many_short_folds_share_blocks() {
        let Schedule::FoldBlock { rows, .. } = dots(100_000, 64, true) else { panic!() };
        assert!(rows > 1);
    }

    #[test]
    fn more_work_takes_longer() {
        let time = |results, inner| Dots { results, inner, contiguous: true }.best().0;
        assert!(time(1000, 1000) < time(100_000, 1000));
        assert!(time(1000, 1000) < time(1000, 100_000));
    }
}
