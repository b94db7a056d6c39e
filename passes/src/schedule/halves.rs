//! The time that products of halves take (`codegen/src/lower/halves.rs`), modelled as in [`super::contraction`].

use fornax_ir::plan::Schedule;

use super::BLOCKS_TO_FILL;
use super::contraction::{
    BLOCK_OVERHEAD, ISSUE_RATE, KIB, LATENCY, LAUNCH_OVERHEAD, MEMORY_RATE, div_ceil,
};

/// Inner elements of a round: those that share a scale of accurate products.
const ROUND: i64 = 128;

/// Multiply-adds of `f16` per cycle that `wgmma` reaches with both operands in shared memory, and accurate products
/// for each one of `f32`.
const RATE: f64 = 1800.0;
const PRODUCTS: f64 = 3.0;

/// Bytes from the L2 cache per cycle and multiprocessor where 16 of them are copied at once, as measured.
const COPY_RATE: f64 = 32.0;

/// Cycles of a round in which a block waits for barriers and, of accurate products, for the last of them to be added,
/// which takes some instructions for each sum.
const ROUND_OVERHEAD: f64 = 200.0;
const SUM_OVERHEAD: f64 = 200.0;
const SUM_INSTRUCTIONS: f64 = 3.0;

/// Inner elements from which on products of halves are as accurate as fused multiply-adds for any data, as measured:
/// where all are positive, tensor cores cut off 4.6e-7 of the sum of a round, which `f32` exceeds from 1024 additions
/// in a row on.
pub(super) const LEAST_INNER: i64 = 1024;

/// How often the bytes of an operand would pass through device memory in the time that splitting it takes, of which
/// rounded products need less for the halves and more to find the scales.
const SPLIT_TRAFFIC: f64 = 2.5;
const ROUND_TRAFFIC: f64 = 3.0;

/// Cycles of a block of the last kernel, which ends at once, and such blocks on a multiprocessor.
const MARK_CYCLES: f64 = 1500.0;
const MARK_RESIDENT: f64 = 2.0;

/// Blocks' tiles: rows, columns, warpgroups along both, and tiles of halves in shared memory.
#[rustfmt::skip]
const ACCURATE: [[u32; 5]; 4] = [
    [128, 128, 2, 1, 6],
    [128,  64, 2, 1, 8],
    [ 64, 128, 1, 1, 8],
    [ 64,  64, 1, 1, 6],
];

/// The same for rounded products, which have one set of sums.
#[rustfmt::skip]
const ROUNDED: [[u32; 5]; 5] = [
    [128, 256, 2, 1, 4],
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
    /// Whether each element has two halves, for products as accurate as `f32`.
    pub accurate: bool,
    /// Whether the right operand is split when the bundle is loaded.
    pub prepared: bool,
    /// Instructions of the epilogue for each result.
    pub epilogue: f64,
}

impl Halves {
    /// The best schedule and the cycles that it takes.
    pub fn best(&self) -> (f64, Schedule) {
        let tiles: &[[u32; 5]] = if self.accurate { &ACCURATE } else { &ROUNDED };
        let candidates = tiles.iter().map(|&tile| {
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
        // Sums, and two sets of partial ones of accurate products, leave room for two warpgroups.
        let resident = (KIB * 224 / shared).min(2 / (groups_m * groups_n)).max(1);
        let resident = resident.min(div_ceil(tiles, BLOCKS_TO_FILL)) as f64;
        let (halves, products) = if self.accurate { (2.0, PRODUCTS) } else { (1.0, 1.0) };
        let products = (m * n * ROUND) as f64 * products / RATE;
        let copies = ((m + n) * ROUND) as f64 * 2.0 * halves / COPY_RATE;
        let added = SUM_OVERHEAD + (m * n) as f64 / 32.0 * SUM_INSTRUCTIONS / ISSUE_RATE;
        let added = if self.accurate { added } else { 0.0 };
        let in_turn = (products + ROUND_OVERHEAD + added).max(copies).max(LATENCY / 4.0);
        let busy = products.max(copies);
        let bandwidth = MEMORY_RATE * BLOCKS_TO_FILL as f64;
        let moved = 4.0 * (m * n) as f64 / MEMORY_RATE;
        let finished = (m * n) as f64 * (4.0 + self.epilogue) / 32.0;
        let alone = BLOCK_OVERHEAD + rounds * in_turn + moved + finished / 1.5;
        let together = resident * (rounds * busy + finished / ISSUE_RATE);
        let waves = tiles as f64 / (BLOCKS_TO_FILL as f64 * resident);
        let waves = if waves < 8.0 { waves.ceil() } else { waves };
        let time = waves * alone.max(together).max(resident * moved);
        let elements = |positions: i64| (self.batch * self.inner) as f64 * positions as f64;
        let operands = 2.0 * halves * elements(self.rows + self.columns);
        let (launches, traffic) = match self.accurate {
            true => (1.0, SPLIT_TRAFFIC),
            false => (2.0, ROUND_TRAFFIC),
        };
        let launches = launches * if self.prepared { 1.0 } else { 2.0 };
        let split = LAUNCH_OVERHEAD * launches + 4.0 * traffic * elements(self.split) / bandwidth;
        let marked = tiles as f64 / BLOCKS_TO_FILL as f64 * MARK_CYCLES / MARK_RESIDENT;
        let again = LAUNCH_OVERHEAD + marked;
        time.max(operands / bandwidth) + split + again
    }
}

#[cfg(test)]
mod tests {
    use fornax_ir::{DType, Dim, Graph, LocSet, PrecisionPolicy, Type, attrs};

    use super::*;

    /// The schedule of a product of 512 rows, the right operand of which is a weight or an input.
    fn chosen(weight: bool, policy: PrecisionPolicy) -> Schedule {
        let ty = |sizes: [i64; 2]| Type::new(DType::F32, sizes.map(Dim::constant).to_vec());
        let mut graph = Graph::new("f");
        let x = graph.input("x", ty([512, 1024])).unwrap();
        let w = match weight {
            true => graph.weight("w", ty([1024, 4096]), None).unwrap(),
            false => graph.input("w", ty([1024, 4096])).unwrap(),
        };
        let y = graph.add("matmul", attrs! {}, &[x, w], LocSet::none()).unwrap();
        graph.output("y", y);
        let plan = crate::use_wgmma(crate::fuse(&graph, policy).unwrap());
        plan.regions.last().unwrap().schedule.clone()
    }

    #[test]
    fn accurate_products_are_of_halves_and_weights_split_once() {
        for weight in [true, false] {
            match chosen(weight, PrecisionPolicy::Fp32) {
                Schedule::Halves { prepared, .. } => assert_eq!(prepared == 1, weight),
                other => panic!("{other}"),
            }
        }
        let exact = chosen(true, PrecisionPolicy::Ieee);
        assert!(!matches!(exact, Schedule::Halves { .. }), "{exact}");
    }

    fn halves(rows: i64, columns: i64, inner: i64) -> Halves {
        let split = rows + columns;
        let accurate = true;
        Halves { batch: 1, rows, columns, inner, split, accurate, prepared: false, epilogue: 0.0 }
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
        let rounded = Halves { accurate: false, ..halves(4096, 4096, 4096) }.best().1;
        assert!(matches!(rounded, Schedule::Halves { block_n: 256, .. }), "{rounded}");
    }
}
