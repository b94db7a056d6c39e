//! The time that pipelines of asynchronous copies and products take, modelled as in [`super::contraction`].

use fornax_ir::op::AxisRole;
use fornax_ir::plan::index::IndexSpace;
use fornax_ir::plan::windows::Windows;
use fornax_ir::plan::{PAIRED_BYTES, PAIRED_SUMS, PAIRED_THREADS, Schedule};

use super::contraction::{
    BLOCK_OVERHEAD, ISSUE_RATE, KIB, LATENCY, LAUNCH_OVERHEAD, MEMORY_RATE, REGISTERS, STEP_BYTES,
    div_ceil,
};
use super::{BLOCKS_TO_FILL, Contracted, typical};

/// Inner elements of a step.
const STEP: i64 = STEP_BYTES / 4;

/// Multiply-adds of TF32 per cycle of `wgmma` with left factors in registers, as measured.
const RATE: f64 = 640.0;

/// The same with both factors in shared memory.
const PATCH_RATE: f64 = 800.0;

/// Cycles of a step that no other block's work fills, as measured.
const STEP_CYCLES: f64 = 150.0;

/// Bytes from the L2 cache per cycle and multiprocessor where 16 of them are copied at once, as measured.
const COPY_RATE: f64 = 30.0;

/// Cycles of a step of a block beside its products: waiting for copies and for the block's other warps.
const STEP_OVERHEAD: f64 = 150.0;

/// Blocks' tiles: rows, columns, warpgroups along both.
#[rustfmt::skip]
const TILES: [[u32; 4]; 9] = [
    [128, 256, 2, 1],
    [128, 128, 2, 1],
    [256, 128, 4, 1],
    [256,  64, 4, 1],
    [128,  64, 2, 1],
    [128,  32, 2, 1],
    [128,  16, 2, 1],
    [ 64, 256, 1, 1],
    [ 64, 128, 1, 1],
];

/// Further ones for patches, whose left factors take no registers.
#[rustfmt::skip]
const PATCH_TILES: [[u32; 4]; 4] = [
    [256,  64, 2, 1],
    [256,  32, 2, 1],
    [256,  16, 2, 1],
    [ 64,  64, 1, 1],
];

const STAGES: [u32; 3] = [3, 4, 6];
/// Stages of right factors beside patches.
const PATCH_STAGES: u32 = 3;

/// Positions of a tile along the last axis.
const WIDTHS: [u32; 4] = [8, 16, 32, 64];

/// Instructions of a thread that copy four channels of a place of a patch and find out where it is, and more
/// that split them.
const PLACE_INSTRUCTIONS: f64 = 100.0;
const SPLIT_INSTRUCTIONS: f64 = 50.0;

/// How much longer it takes to write a sector that is not written as a whole, about.
const PARTIAL_STORES: f64 = 0.5;

/// Bytes that the L2 cache moves at once.
const SECTOR: i64 = 32;

/// How often the bytes of the right operand would pass through device memory in the time that packing takes, for each
/// part it is packed into, as measured (490 us for two parts of 268 MB).
const PACK_TRAFFIC: f64 = 3.7;

/// Registers of addresses and counters.
const OTHER_REGISTERS: i64 = 56;

const SPLITS: [u32; 6] = [1, 2, 3, 4, 8, 16];

/// A contraction of operands that can be pipelined, with typical sizes.
pub(super) struct Stream {
    pub batch: i64,
    pub rows: i64,
    pub columns: i64,
    pub inner: i64,
    /// Whether elements of the left operand are copied one by one.
    pub singles: bool,
    /// Adjacent ones that are copied at once.
    pub vector: i64,
    /// Products for each one of rounded factors.
    pub passes: f64,
    /// Whether the right operand is packed already.
    pub packed: bool,
    /// Instructions of the epilogue for each result.
    pub epilogue: f64,
    /// The convolution, where it can be cut into patches.
    pub patches: Option<Patches>,
    /// Whether a tile holds all rows, and all columns.
    pub held: [bool; 2],
    /// How often the bytes of the result are written, about.
    pub written: f64,
    /// Whether tiles fold what they have, all or parts of what is folded together.
    pub folds: bool,
}

impl Stream {
    /// The best schedule and the cycles that it takes.
    pub fn best(&self) -> Option<(f64, Schedule)> {
        let streams = TILES.iter().flat_map(|&tile| {
            let shapes = STAGES.iter().flat_map(|s| SPLITS.map(|splits| (*s, splits)));
            shapes.filter_map(move |(stages, splits)| self.stream(tile, stages, splits))
        });
        let patches = PATCH_TILES.iter().chain(&TILES).flat_map(|&tile| {
            WIDTHS.into_iter().filter_map(move |width| self.patch(tile, PATCH_STAGES, width))
        });
        let mut best: Option<(f64, Schedule)> = None;
        for (time, schedule) in streams.chain(patches) {
            if best.as_ref().is_none_or(|(least, _)| time < *least) {
                best = Some((time, schedule));
            }
        }
        best
    }

    /// A pipeline and its cycles; none where it does not fit or has parts without work.
    fn stream(&self, tile: [u32; 4], stages: u32, splits: u32) -> Option<(f64, Schedule)> {
        let [block_m, block_n, groups_m, groups_n] = tile;
        let (m, parts) = (i64::from(block_m), i64::from(splits));
        let steps = div_ceil(self.inner, STEP);
        let each = div_ceil(steps, parts);
        if parts > 1 && (each < 8 || each * (parts - 1) >= steps) {
            return None;
        }
        // Elements that are copied one by one for each tap take longer than through registers; small tiles
        // are for few rows.
        if self.singles || (m < 128 && self.rows > m) {
            return None;
        }
        let candidate = Candidate {
            tile,
            stages,
            splits,
            steps: each,
            row_tiles: div_ceil(self.rows, m),
            // Rows of the left tile are padded.
            left_bytes: i64::from(stages) * m * (STEP_BYTES + 16),
            copied: m * STEP,
            bytes: (m * STEP_BYTES) as f64,
            accesses: 2.0 * (m * STEP / 32 / self.vector) as f64,
            patch: None,
            stored: 1.0,
        };
        let packed = u32::from(self.packed);
        let schedule =
            Schedule::Pipeline { block_m, block_n, groups_m, groups_n, stages, splits, packed };
        Some((self.time(&candidate)?, schedule))
    }

    /// Patches and their cycles; none where they do not fit.
    fn patch(&self, tile: [u32; 4], stages: u32, width: u32) -> Option<(f64, Schedule)> {
        let [block_m, block_n, groups_m, groups_n] = tile;
        let patches = self.patches.as_ref()?;
        let copies = if self.passes > 1.0 { 3 } else { 1 };
        let cut = patches.cut(block_m, width, copies)?;
        let copies = i64::from(copies);
        let places = cut.elements as f64 / 4.0 / cut.steps as f64;
        let each = PLACE_INSTRUCTIONS + if copies > 1 { SPLIT_INSTRUCTIONS } else { 0.0 };
        let candidate = Candidate {
            tile,
            stages,
            splits: 1,
            steps: cut.patches * cut.steps,
            row_tiles: cut.row_tiles,
            left_bytes: 4 * cut.elements * copies * if cut.patches > 1 { 2 } else { 1 },
            copied: div_ceil(cut.elements, cut.steps),
            bytes: (cut.lines * cut.line_bytes) as f64 / cut.steps as f64,
            accesses: places / 32.0 * each,
            patch: Some(cut.multiplied),
            stored: 1.0 + PARTIAL_STORES * SECTOR as f64 / (4.0 * f64::from(cut.width)),
        };
        let packed = u32::from(self.packed);
        let schedule =
            Schedule::Patch { block_m, block_n, groups_m, groups_n, width, stages, packed };
        Some((self.time(&candidate)?, schedule))
    }

    /// Cycles that a schedule takes; none where it does not fit.
    fn time(&self, candidate: &Candidate) -> Option<f64> {
        let [m, n, groups_m, groups_n] = candidate.tile.map(i64::from);
        if (self.held[0] && self.rows > m) || (self.held[1] && self.columns > n) {
            return None;
        }
        if self.folds && candidate.splits > 1 {
            return None;
        }
        let (stages, splits) = (i64::from(candidate.stages), i64::from(candidate.splits));
        let threads = groups_m * groups_n * 128;
        let accurate = self.passes > 1.0;
        let parts = if accurate { 2 } else { 1 };
        let shared = candidate.left_bytes + stages * n * STEP_BYTES * parts;
        let sums = m * n / threads * parts;
        let held = match candidate.patch {
            Some(_) => 0,
            None => m / groups_m / 64 * 16 * if accurate { 3 } else { 2 },
        };
        let registers = sums + held + OTHER_REGISTERS;
        // Code generation shares registers out for two such blocks.
        let paired = shared <= PAIRED_BYTES.into()
            && threads <= PAIRED_THREADS.into()
            && sums <= PAIRED_SUMS.into();
        let registers = if paired { registers.min(128) } else { registers };
        if registers > 255 || registers * threads > REGISTERS || shared > 220 * KIB {
            return None;
        }
        let resident = (KIB * 224 / shared).min(REGISTERS / (threads * registers)).max(1);
        let tiles = self.batch * candidate.row_tiles * div_ceil(self.columns, n) * splits;
        let resident = resident.min(div_ceil(tiles, BLOCKS_TO_FILL)) as f64;

        let (rate, share) = candidate.patch.map_or((RATE, 1.0), |share| (PATCH_RATE, share));
        let products = (m * n * STEP) as f64 * self.passes * share / rate;
        let copied = candidate.copied as f64 / 32.0;
        let read = match candidate.patch {
            Some(share) => {
                let stored = if accurate { 3.0 } else { 1.0 };
                let rows = (m / 64 * (64 * groups_n + n)) as f64;
                copied * (1.0 + stored) + rows * self.passes * share
            }
            None => copied * 1.25 + (m * groups_n) as f64 + (m / 64 * n) as f64 * self.passes,
        };
        let shared_cycles = read + (n * parts) as f64;
        let rounding = match candidate.patch {
            Some(_) => 0,
            None => m * groups_n * if accurate { 12 } else { 2 },
        };
        // What warps do to fill a patch is not done beside their products, as measured.
        let filled = candidate.patch.map_or(0.0, |_| candidate.accesses / ISSUE_RATE);
        let issued = (candidate.accesses + (2 * n * parts + rounding) as f64) / ISSUE_RATE;
        let bytes = candidate.bytes + (n * parts * STEP_BYTES) as f64;
        let busy =
            products.max(shared_cycles).max(issued).max(bytes / COPY_RATE) + STEP_CYCLES + filled;
        // What one block does in turn.
        let ahead = (stages - 1) as f64;
        let in_turn = products + STEP_OVERHEAD + issued / 2.0;
        let step_time = in_turn.max((LATENCY + bytes / COPY_RATE) / ahead);

        let moved = 4.0 * (m * n) as f64 * self.written / MEMORY_RATE * candidate.stored;
        let finished = (m * n) as f64 * (4.0 + self.epilogue) / 32.0;
        let each = candidate.steps as f64;
        let alone = BLOCK_OVERHEAD + each * step_time + moved + finished / 1.5;
        let together = resident * (each * busy + finished / ISSUE_RATE);
        let waves = tiles as f64 / (BLOCKS_TO_FILL as f64 * resident);
        let waves = if waves < 8.0 { waves.ceil() } else { waves };
        let mut time = waves * alone.max(together).max(resident * moved);
        let bandwidth = MEMORY_RATE * BLOCKS_TO_FILL as f64;
        let operands = 4.0 * self.batch as f64 * self.inner as f64 * self.columns as f64;
        let (inner, rows, columns) = (self.inner as f64, self.rows as f64, self.columns as f64);
        let read = if self.singles { 0.0 } else { inner * rows };
        let others = 4.0 * self.batch as f64 * (read + rows * columns * self.written);
        time = time.max((operands + others) / bandwidth);
        time += 0.05 * tiles as f64 * each * busy / BLOCKS_TO_FILL as f64;
        if splits > 1 {
            let results = (self.batch * self.rows * self.columns * splits) as f64;
            time += LAUNCH_OVERHEAD + 8.0 * results / bandwidth;
        }
        if !self.packed {
            time += LAUNCH_OVERHEAD + PACK_TRAFFIC * operands * parts as f64 / bandwidth;
        }
        Some(time)
    }
}

/// What decides about the time of a schedule.
struct Candidate {
    tile: [u32; 4],
    stages: u32,
    splits: u32,
    /// Steps of a block.
    steps: i64,
    /// Blocks along the rows.
    row_tiles: i64,
    /// Shared memory of left operands.
    left_bytes: i64,
    /// Elements of the left operand that are copied for a step.
    copied: i64,
    /// Bytes from the L2 cache for them.
    bytes: f64,
    /// Instructions of a warp that copy them, with those that find out where.
    accesses: f64,
    /// Of patches the part of a step's products that is not left out.
    patch: Option<f64>,
    /// How much longer writing the results takes than writing whole lines.
    stored: f64,
}

/// A convolution that can be cut into patches, with typical sizes.
pub(super) struct Patches {
    windows: Windows,
    /// Positions along each window, and along the other axes of the rows together.
    positions: Vec<i64>,
    others: i64,
    channels: i64,
}

/// A convolution cut into patches.
struct Cut {
    /// Positions of a tile along the last axis.
    width: u32,
    /// Patches of a block, and steps of a patch.
    patches: i64,
    steps: i64,
    /// Elements of a patch, and lines of them.
    elements: i64,
    lines: i64,
    /// Bytes of one from the L2 cache.
    line_bytes: i64,
    row_tiles: i64,
    /// The part of the steps' products that is not left out.
    multiplied: f64,
}

impl Patches {
    /// The patches of a contraction; none where its windows are of another kind or have one tap.
    pub fn of(contracted: &Contracted<'_>) -> Option<Patches> {
        let Contracted { form, dims, .. } = contracted;
        let windows = Windows::of(form, &mut IndexSpace::new(dims))?;
        if windows.taps() == 1 {
            return None;
        }
        let size = |axis: usize| typical(&form.axes[axis].0, dims).max(1);
        let rows = (0..form.axes.len()).filter(|&axis| form.axes[axis].1 == AxisRole::Rows);
        let is_window = |axis: usize| windows.axes.iter().any(|window| window.position == axis);
        // Blocks along what is apart are counted with the batch.
        let others = rows.filter(|&axis| !is_window(axis) && !contracted.is_apart(axis));
        let others = others.map(size).product();
        Some(Patches {
            positions: windows.axes.iter().map(|window| size(window.position)).collect(),
            others,
            channels: size(windows.channel),
            windows,
        })
    }

    /// How positions, `block` together and `width` along the last axis, cut the convolution; see
    /// `codegen/src/lower/patch.rs`. `parts`: patches of each factor's parts.
    fn cut(&self, block: u32, width: u32, parts: u32) -> Option<Cut> {
        if self.positions.len() > 1 && width > block {
            return None;
        }
        let shape = self.windows.patches(self.channels, block, width, parts).next()?;
        let last = self.windows.axes.last()?;
        let length = i64::from(last.extent(*shape.tile.last()?));
        let lines = i64::from(shape.places / (shape.line * last.step));
        let (held, steps) = (i64::from(shape.held), i64::from(shape.steps));
        let taps = i64::from(self.windows.taps());
        let blocks = self.positions.iter().zip(&shape.tile);
        let row_tiles: i64 = blocks.map(|(&size, &tile)| div_ceil(size, tile.into())).product();
        Some(Cut {
            width: *shape.tile.last()?,
            patches: div_ceil(self.channels, held),
            steps,
            elements: shape.elements().into(),
            lines: lines * held,
            // Whole sectors, the first and last of which others need, too.
            line_bytes: (div_ceil(4 * length, SECTOR) + 1) * SECTOR,
            row_tiles: row_tiles * self.others,
            multiplied: div_ceil(taps * held, 8) as f64 / (4 * steps) as f64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(rows: i64, size: i64) -> Stream {
        Stream {
            batch: 1,
            rows,
            columns: size,
            inner: size,
            singles: false,
            vector: 4,
            passes: 1.0,
            packed: true,
            epilogue: 0.0,
            patches: None,
            held: [false; 2],
            written: 1.0,
            folds: false,
        }
    }

    #[test]
    fn packing_for_few_rows_takes_longer_than_the_products() {
        let time = |packed: bool| {
            let stream = Stream { passes: 3.0, packed, ..stream(128, 32768) };
            stream.best().expect("it fits").0
        };
        assert!(time(false) > 2.0 * time(true), "{} {}", time(false), time(true));
    }

    #[test]
    fn tiles_follow_the_sizes() {
        let tile = |rows: i64| match stream(rows, 4096).best() {
            Some((_, Schedule::Pipeline { block_m, block_n, .. })) => [block_m, block_n],
            other => panic!("{other:?}"),
        };
        let [m, n] = tile(4096);
        assert!(m * n >= 128 * 128, "{m} {n}");
        assert_eq!(tile(40)[0], 64);
    }
}
