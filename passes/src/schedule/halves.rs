//! The time that products of halves take (`codegen/src/lower/halves.rs`), modelled as in [`super::contraction`].

use fornax_ir::plan::Schedule;

use super::BLOCKS_TO_FILL;
use super::contraction::{
    BLOCK_OVERHEAD, ISSUE_RATE, KIB, LATENCY, LAUNCH_OVERHEAD, MEMORY_RATE, div_ceil,
};

/// Inner elements of a round: those that share a scale.
const ROUND: i64 = 128;

/// Multiply-adds of `f16` per cycle that `wgmma` reaches with both operands in shared memory, and products for each
/// one of `f32`.
const RATE: f64 = 1800.0;
const PRODUCTS: f64 = 3.0;

/// Bytes from the L2 cache per cycle and multiprocessor where 16 of them are copied at once, as measured.
const COPY_RATE: f64 = 30.0;

/// Cycles of a round in which a block waits for barriers and for its last products, and instructions for each
/// sum that its products are added to.
const ROUND_OVERHEAD: f64 = 500.0;
const SUM_INSTRUCTIONS: f64 = 3.0;

/// How often the bytes of an operand would pass through device memory in the time that splitting it takes.
const SPLIT_TRAFFIC: f64 = 2.5;

/// Cycles of a block of the last kernel, which ends at once, and such blocks on a multiprocessor.
const MARK_CYCLES: f64 = 1500.0;

/// Blocks' tiles: rows, columns, warpgroups along both, and tiles of halves in shared memory.
#[rustfmt::skip]
const TILES: [[u32; 5]; 4] = [
    [128, 128, 2, 1, 6],
    [128,  64, 2, 1, 8],
    [ 64, 128, 1, 1, 8],
    [ 64,  64, 1, 1, 6],
];

/// A contraction of `f32` operands, with typical sizes. Rows are the positions that are not adjacent in the
/// result.
pub(super) struct Halves {
    pub batch: i64,
    pub rows: i64,
    pub columns: i64,
    pub inner: i64,
    /// Positions of operands that are split in each run, of one batch.
    pub split: i64,
    /// Whether the right operand is split when the bundle is loaded.
    pub prepared: bool,
    /// Instructions of the epilogue for each result.
    pub epilogue: f64,
}

impl Halves {
    /// The best schedule and the cycles that it takes.
    pub fn best(&self) -> (f64, Schedule) {
        let candidates = TILES.iter().map(|&tile| {
            let [block_m, block_n, groups_m, groups_n, stages] = tile;
            let prepared = u32::from(self.prepared);
            let schedule =
                Schedule::Halves { block_m, block_n, groups_m, groups_n, stages, prepared };
            (self.time(tile.map(i64::from)), schedule)
        });
        let best = candidates.min_by(|(a, _), (b, _)| a.total_cmp(b));
        best.expect("invariant: there are tiles")
    }

    fn time(&self, [m, n, groups_m, groups_n, stages]: [i64; 5]) -> f64 {
        let rounds = div_ceil(self.inner, ROUND) as f64;
        let shared = stages * (m + n) * 128;
        let tiles = self.batch * div_ceil(self.rows, m) * div_ceil(self.columns, n);
        // Two sets of partial sums beside the sums leave room for two warpgroups.
        let resident = (KIB * 224 / shared).min(2 / (groups_m * groups_n)).max(1);
        let resident = resident.min(div_ceil(tiles, BLOCKS_TO_FILL)) as f64;
        let products = (m * n * ROUND) as f64 * PRODUCTS / RATE;
        let bytes = ((m + n) * ROUND * 4) as f64;
        let sums = (m * n) as f64 / 32.0 * SUM_INSTRUCTIONS;
        let in_turn = products + ROUND_OVERHEAD + sums / ISSUE_RATE;
        let in_turn = in_turn.max(bytes / COPY_RATE).max(LATENCY);
        let busy = products.max(bytes / COPY_RATE);
        let bandwidth = MEMORY_RATE * BLOCKS_TO_FILL as f64;
        let moved = 4.0 * (m * n) as f64 / MEMORY_RATE;
        let finished = (m * n) as f64 * (4.0 + self.epilogue) / 32.0;
        let alone = BLOCK_OVERHEAD + rounds * in_turn + moved + finished / 1.5;
        let together = resident * (rounds * busy + finished / ISSUE_RATE);
        let waves = tiles as f64 / (BLOCKS_TO_FILL as f64 * resident);
        let waves = if waves < 8.0 { waves.ceil() } else { waves };
        let time = waves * alone.max(together).max(resident * moved);
        let elements = |positions: i64| (self.batch * self.inner) as f64 * positions as f64;
        let operands = 4.0 * elements(self.rows + self.columns);
        let split = LAUNCH_OVERHEAD * if self.prepared { 1.0 } else { 2.0 }
            + 4.0 * SPLIT_TRAFFIC * elements(self.split) / bandwidth;
        let again = LAUNCH_OVERHEAD + tiles as f64 / BLOCKS_TO_FILL as f64 * MARK_CYCLES / 2.0;
        time.max(operands / bandwidth) + split + again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn halves(rows: i64, columns: i64, inner: i64) -> Halves {
        let split = rows + columns;
        Halves { batch: 1, rows, columns, inner, split, prepared: false, epilogue: 0.0 }
    }

    #[test]
    fn weights_are_split_before() {
        let time = |prepared: bool| {
            let split = if prepared { 128 } else { 128 + 8192 };
            Halves { split, prepared, ..halves(128, 8192, 8192) }.best().0
        };
        assert!(time(false) > 1.5 * time(true), "{} {}", time(false), time(true));
    }

    #[test]
    fn tiles_follow_the_sizes() {
        let tile = |rows: i64| match halves(rows, 4096, 4096).best().1 {
            Schedule::Halves { block_m, block_n, .. } => [block_m, block_n],
            other => panic!("{other}"),
        };
        assert_eq!(tile(4096), [128, 128]);
        assert_eq!(tile(40)[0], 64);
    }
}
