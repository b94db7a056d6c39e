//! Schedules of contractions, by a small model of the time that each candidate takes.
//!
//! Counts are per multiprocessor and in cycles; rates are an H200's. A step's time is that of the
//! busiest of tensor cores, shared memory and instruction issue, or the latency of memory where too
//! little runs at once.

use std::collections::BTreeMap;

use fornax_ir::op::{AxisRole, ContractionForm, OperandMap};
use fornax_ir::plan::{PACKED_MULTIPLE, Reduced, Schedule};
use fornax_ir::{DType, Dim, DimRange, IndexExpr, Precision, Symbol};

use super::dots::Dots;
use super::halves::{self, Halves};
use super::pipeline::{Patches, Stream};
use super::{BLOCKS_TO_FILL, Contracted, typical};

/// Products and sums below which a launch takes longer than fused multiply-adds do.
const SMALL_WORK: i64 = 1 << 22;

/// Positions of the result along a group up to which single results are an alternative to tiles.
const FEW: i64 = 32;

/// Inner elements of a step of fused multiply-adds.
const BLOCK_K: u32 = 16;

/// Positions of the result along a group below which tensor cores multiply mostly zeros.
const SKINNY: i64 = 4;

/// Results from which on tiles of pipelines fill the machine, and how much longer products through registers
/// then take than [`Work`] says, as measured.
const FILLING: i64 = 128 * 128 * BLOCKS_TO_FILL;
const HOPEFUL: f64 = 1.6;

/// Bytes of a step, per position of the result.
pub(super) const STEP_BYTES: i64 = 128;

/// Multiply-adds of TF32 per cycle that `mma.sync` reaches, and `wgmma` (narrow floats: twice as many).
const MMA_RATE: f64 = 450.0;
const WGMMA_RATE: f64 = 850.0;

/// Instructions issued per cycle.
pub(super) const ISSUE_RATE: f64 = 4.0;

/// The same with the warps of one block.
const SINGLE_ISSUE_RATE: f64 = 1.5;

/// Cycles from the request of a step's elements to their use.
pub(super) const LATENCY: f64 = 1000.0;

/// Bytes from the L2 cache per cycle and multiprocessor (of all together: about 6 TB/s).
pub(super) const CACHE_RATE: f64 = 27.0;

/// Cycles before the first and after the last step of a block.
pub(super) const BLOCK_OVERHEAD: f64 = 2500.0;

/// Cycles of a further launch.
pub(super) const LAUNCH_OVERHEAD: f64 = 5000.0;

/// Bytes of device memory per cycle and multiprocessor (4.0 TB/s at 1.7 GHz).
pub(super) const MEMORY_RATE: f64 = 18.0;

/// Bytes of a KiB of shared memory, of which a block may have 160 on `sm_80` and 220 on `sm_90a`.
pub(super) const KIB: i64 = 1024;

/// Limits of a multiprocessor.
pub(super) const REGISTERS: i64 = 65_536;
pub(super) const THREADS: i64 = 2048;

/// A block's tile: rows, columns, and warps or warpgroups along both.
#[derive(Debug, Clone, Copy)]
struct Tile {
    size: [u32; 2],
    units: [u32; 2],
    groups: bool,
}

const fn warps(m: u32, n: u32, units: [u32; 2]) -> Tile {
    Tile { size: [m, n], units, groups: false }
}

const fn groups(m: u32, n: u32, units: [u32; 2]) -> Tile {
    Tile { size: [m, n], units, groups: true }
}

#[rustfmt::skip]
const TILES: [Tile; 28] = [
    groups(128, 256, [2, 1]),
    groups(128, 128, [2, 1]),
    groups(256, 128, [2, 1]),
    groups(128,  64, [2, 1]),
    groups( 64, 256, [1, 2]),
    groups( 64, 128, [1, 2]),
    groups( 64, 256, [1, 1]),
    groups( 64, 128, [1, 1]),
    groups( 64,  64, [1, 1]),
    groups(128, 256, [1, 2]),
    groups(128, 128, [1, 1]),
    groups(128,  32, [2, 1]),
    groups( 64,  32, [1, 1]),
    warps(128, 128, [2, 4]),
    warps(128, 256, [2, 4]),
    warps(256, 128, [4, 2]),
    warps( 64, 256, [1, 8]),
    warps(128,  64, [4, 2]),
    warps( 64, 128, [2, 4]),
    warps( 64,  64, [2, 2]),
    warps( 32, 256, [1, 8]),
    warps( 32, 128, [1, 4]),
    warps(256,  64, [8, 1]),
    warps(256,  32, [8, 1]),
    warps(128,  32, [4, 1]),
    warps( 32,  64, [1, 4]),
    warps( 16, 256, [1, 8]),
    warps( 16, 128, [1, 4]),
];

impl Tile {
    fn threads(&self) -> i64 {
        i64::from(self.units[0] * self.units[1] * if self.groups { 128 } else { 32 })
    }

    fn schedule(&self, splits: u32) -> Schedule {
        let ([block_m, block_n], [m, n], stages) = (self.size, self.units, 2);
        if self.groups {
            Schedule::Wgmma { block_m, block_n, groups_m: m, groups_n: n, stages, splits }
        } else {
            Schedule::Mma { block_m, block_n, warps_m: m, warps_n: n, stages, splits }
        }
    }
}

const SPLITS: [u32; 7] = [1, 2, 3, 4, 8, 16, 33];

/// What a contraction multiplies, with typical sizes.
struct Work {
    batch: i64,
    /// Positions that are not adjacent in the result.
    rows: i64,
    /// Positions that are.
    columns: i64,
    inner: i64,
    /// Instructions to fetch an element of each side.
    fetch: [f64; 2],
    element_bytes: [f64; 2],
    /// Instructions of the same products, relative to one multiplication of rounded factors.
    passes: f64,
    narrow: bool,
    /// Instructions of the epilogue for each result.
    epilogue: f64,
    /// Whether the machine has `wgmma`.
    wgmma: bool,
    /// Whether a tile holds all positions along its rows, and along its columns.
    held: [bool; 2],
    /// How often the bytes of the result are written, about.
    written: f64,
    /// Whether tiles fold what they have, all or parts of what is folded together.
    folds: bool,
}

/// A contraction's typical sizes.
struct Sizes {
    /// With rows or columns that tiles do not run along.
    batch: i64,
    rows: i64,
    columns: i64,
    inner: i64,
    /// Whether tiles hold all rows, and all columns.
    held: [bool; 2],
}

impl Sizes {
    fn of(contracted: &Contracted<'_>) -> Sizes {
        let Contracted { form, dims, reduced, .. } = contracted;
        let is_apart = |axis: usize| contracted.is_apart(axis);
        let size = |holds: &dyn Fn(usize) -> bool| -> i64 {
            let axes = (0..form.axes.len()).filter(|&axis| holds(axis));
            typical(&axes.map(|axis| &form.axes[axis].0).product::<Dim>(), dims).max(1)
        };
        let of = |role| size(&|axis| form.axes[axis].1 == role && !is_apart(axis));
        let holds = |role| reduced.is_some_and(|of| of.role == role && !of.in_parts);
        Sizes {
            batch: of(AxisRole::Batch).saturating_mul(size(&is_apart)),
            rows: of(AxisRole::Rows),
            columns: of(AxisRole::Columns),
            inner: of(AxisRole::Inner),
            held: [holds(AxisRole::Rows), holds(AxisRole::Columns)],
        }
    }

    fn results(&self) -> i64 {
        self.batch.saturating_mul(self.rows).saturating_mul(self.columns)
    }
}

/// Whether tiles would multiply mostly zeros.
pub(super) fn is_skinny(contracted: &Contracted<'_>) -> bool {
    let sizes = Sizes::of(contracted);
    sizes.rows.min(sizes.columns) < SKINNY
}

/// A schedule for a contraction.
pub(super) fn choose(contracted: &Contracted<'_>) -> Schedule {
    let sizes = Sizes::of(contracted);
    let Sizes { batch, rows, columns, inner, held } = sizes;
    if let Some((_, schedule)) = modelled(contracted) {
        return schedule;
    }
    if contracted.reduced.is_some() {
        return holding_tile(&sizes, held).1;
    }
    if !is_small(contracted, &sizes) {
        return skinny(&contracted.form, sizes.results(), inner, [batch, rows, columns]);
    }
    let (folded, fold) = Dots::of(&contracted.form, contracted.dims).best();
    let (tiled, tile) = tile([batch, rows, columns], inner);
    if folded < tiled { fold } else { tile }
}

/// Cycles that the best schedule takes.
pub(super) fn cycles(contracted: &Contracted<'_>) -> f64 {
    if let Some((time, _)) = modelled(contracted) {
        return time;
    }
    let sizes = Sizes::of(contracted);
    if contracted.reduced.is_some() {
        return holding_tile(&sizes, sizes.held).0;
    }
    let (folded, _) = Dots::of(&contracted.form, contracted.dims).best();
    folded.min(tile([sizes.batch, sizes.rows, sizes.columns], sizes.inner).0)
}

/// Whether fused multiply-adds are enough, or all there are.
fn is_small(contracted: &Contracted<'_>, sizes: &Sizes) -> bool {
    let work = sizes.results().saturating_mul(sizes.inner);
    contracted.precision == Precision::Ieee || work < SMALL_WORK
}

/// The best schedule on tensor cores and the cycles that it takes.
fn modelled(contracted: &Contracted<'_>) -> Option<(f64, Schedule)> {
    let &Contracted { ref form, dtypes, precision, dims, epilogue, machine, reduced } = contracted;
    let sizes = Sizes::of(contracted);
    let Sizes { batch, rows, columns, inner, held } = sizes;
    if is_small(contracted, &sizes) || (rows.min(columns) < SKINNY && reduced.is_none()) {
        return None;
    }
    let rows_fastest = fastest_role(contracted) == Some(AxisRole::Rows);
    let order = |pair: [f64; 2]| if rows_fastest { [pair[1], pair[0]] } else { pair };
    let fetch = [&form.lhs, &form.rhs].map(|map| if is_window(form, map) { 10.0 } else { 1.5 });
    // The taps of phases are some steps apart, and where `pack` has been, all of them are there.
    let taps = is_window(form, &form.rhs) && form.rhs.guards.is_empty();
    let fetch = if taps { [fetch[0], 2.5] } else { fetch };
    let fetch = order(fetch);
    let narrow_operands = dtypes.iter().all(|dtype| dtype.size() == 2);
    let narrow = narrow_operands || matches!(precision, Precision::Bf16 | Precision::Fp16);
    let (tile_rows, tile_columns) = if rows_fastest { (columns, rows) } else { (rows, columns) };
    let passes = if precision == Precision::Fp32 && !narrow { 3.0 } else { 1.0 };
    let written = written(contracted);
    let (least, schedule) = Work {
        batch,
        rows: tile_rows,
        columns: tile_columns,
        inner,
        fetch,
        element_bytes: order(dtypes.map(|dtype| dtype.size() as f64)),
        passes,
        narrow,
        epilogue,
        wgmma: machine.wgmma,
        held: if rows_fastest { [held[1], held[0]] } else { held },
        written,
        folds: reduced.is_some(),
    }
    .best();
    let few = rows.min(columns) <= FEW && dtypes == [DType::F32; 2] && reduced.is_none();
    let folded = few.then(|| Dots::of(form, dims).best()).filter(|(time, _)| *time < least);
    let (least, schedule) = folded.unwrap_or((least, schedule));
    // Where there is enough to do this model is as much too hopeful, beside the others.
    let fills = sizes.results() >= FILLING;
    let mut best = (if fills { least * HOPEFUL } else { least }, schedule);
    let mut offer = |other: (f64, Schedule)| {
        if other.0 < best.0 {
            best = other;
        }
    };
    let singles = is_window(form, &form.lhs);
    let is_conv = form.lhs.index.iter().any(|expr| expr.axes().len() > 1 && !is_group(form, expr));
    match machine.pipeline {
        // Rounded products of several groups with odd lines of inner elements (KernelBench L3/29: 24 groups of 49)
        // gave NaN in the last tile on an H200, and are right on the emulator: not chosen until that is understood.
        Some(_) if passes == 1.0 && batch > 1 && inner % i64::from(PACKED_MULTIPLE) != 0 => {}
        Some(packed) if !narrow && dtypes == [DType::F32; 2] => {
            let packed = packed && passes == 1.0;
            let patches = if held[0] { None } else { Patches::of(contracted) };
            let streamed = Stream {
                batch,
                rows,
                columns,
                inner,
                vector: if singles { 1 } else { vector(form, &form.lhs, dims) },
                singles,
                passes,
                packed,
                epilogue,
                patches,
                held,
                written,
                folds: reduced.is_some(),
            };
            streamed.best().into_iter().for_each(&mut offer);
        }
        _ => {}
    }
    match machine.halves {
        // Each tap would be split by itself.
        Some(prepared)
            if !narrow
                && (passes == 1.0 || inner >= halves::LEAST_INNER)
                && !is_conv
                && !is_window(form, &form.rhs)
                && reduced.is_none() =>
        {
            let split = if prepared { rows } else { rows + columns };
            let (rows, columns, accurate) = (tile_rows, tile_columns, passes > 1.0);
            let halves =
                Halves { batch, rows, columns, inner, split, accurate, prepared, epilogue };
            offer(halves.best());
        }
        _ => {}
    }
    Some(best)
}

impl Work {
    fn best(&self) -> (f64, Schedule) {
        let mut best: Option<(f64, Schedule)> = None;
        for tile in TILES.iter().filter(|tile| self.wgmma || !tile.groups) {
            for splits in SPLITS {
                let Some(time) = self.time(tile, splits) else { continue };
                if best.as_ref().is_none_or(|(least, _)| time < *least) {
                    best = Some((time, tile.schedule(splits)));
                }
            }
        }
        best.expect("invariant: the smallest tiles without parts always fit")
    }

    /// Cycles that a schedule takes; none where it does not fit or has parts without work.
    fn time(&self, tile: &Tile, splits: u32) -> Option<f64> {
        let [m, n] = tile.size.map(i64::from);
        if (self.held[0] && self.rows > m) || (self.held[1] && self.columns > n) {
            return None;
        }
        if self.folds && splits > 1 {
            return None;
        }
        let threads = tile.threads();
        let step = STEP_BYTES / if self.narrow { 2 } else { 4 };
        let steps = div_ceil(self.inner, step);
        let each = div_ceil(steps, splits.into());
        if splits > 1 && (each < 8 || each * (i64::from(splits) - 1) >= steps) {
            return None;
        }
        let split = self.passes > 1.0;
        let copies = if split && tile.groups { 3 } else { 1 };
        let shared = 2 * (m + n) * STEP_BYTES * copies;
        let [unit_m, unit_n] = [m / i64::from(tile.units[0]), n / i64::from(tile.units[1])];
        // Sums, elements on their way, factors of half a step, addresses.
        let sums = m * n / threads * if split { 2 } else { 1 };
        let factors = match tile.groups {
            true => 0,
            false => (unit_m + unit_n) * 16 / 32 * if split { 2 } else { 1 },
        };
        let registers = sums + (m + n) * step / threads + factors + 45;
        if registers > 250 || shared > KIB * if tile.groups { 220 } else { 160 } {
            return None;
        }
        let resident = (KIB * 220 / shared)
            .min(REGISTERS / (threads * div_ceil(registers, 8) * 8))
            .min(THREADS / threads)
            .max(1);
        let tiles =
            self.batch * div_ceil(self.rows, m) * div_ceil(self.columns, n) * i64::from(splits);
        let resident = resident.min(div_ceil(tiles, BLOCKS_TO_FILL)) as f64;
        let rate = if tile.groups { WGMMA_RATE } else { MMA_RATE };
        let rate = rate * if self.narrow { 2.0 } else { 1.0 };
        let products = (m * n * step) as f64 * self.passes / rate;
        let units = i64::from(tile.units[0] * tile.units[1]);
        let reads = if tile.groups { self.passes } else { 1.0 };
        let read = ((unit_m + unit_n) * units) as f64 * reads;
        let shared_cycles = read + ((m + n) * copies) as f64;
        let fetched = (m as f64 * self.fetch[0] + n as f64 * self.fetch[1]) * step as f64 / 32.0;
        let multiplied = match tile.groups {
            true => 0.0,
            // One instruction, and one move of a factor for it.
            false => 2.0 * (m * n * step) as f64 * self.passes / 1024.0,
        };
        let split_elements = match (split, tile.groups) {
            (false, _) => 0,
            (true, true) => (m + n) * step,
            (true, false) => (unit_m + unit_n) * units * step,
        };
        let split_work = split_elements as f64 * 7.0 / 32.0;
        let issued = (fetched + multiplied + split_work + shared_cycles / 4.0) / ISSUE_RATE;
        let bytes = ((m + n) * STEP_BYTES) as f64;
        let busy = products.max(shared_cycles).max(issued).max(bytes / CACHE_RATE);
        // What one block does in turn: waits for elements, writes them, waits for products.
        let step_time = LATENCY + bytes / CACHE_RATE + issued + ((m + n) * copies) as f64;
        let step_time = step_time.max(products);
        let results = (self.batch * self.rows * self.columns) as f64;
        let operands = self.batch as f64
            * self.inner as f64
            * (self.rows as f64 * self.element_bytes[0]
                + self.columns as f64 * self.element_bytes[1]);
        let windowed = self.fetch.iter().any(|&fetch| fetch > 2.0);
        let read = if windowed { 0.0 } else { operands };
        let block_bytes = read / tiles as f64 + 4.0 * (m * n) as f64 * self.written;
        let moved = block_bytes / MEMORY_RATE;
        let finished = (m * n) as f64 * (4.0 + self.epilogue) / 32.0;
        let each = each as f64;
        let alone = BLOCK_OVERHEAD + each * step_time + moved + finished / SINGLE_ISSUE_RATE;
        let together = resident * (each * busy + finished / ISSUE_RATE);
        let waves = tiles as f64 / (BLOCKS_TO_FILL as f64 * resident);
        let waves = if waves < 8.0 { waves.ceil() } else { waves };
        let mut time = waves * alone.max(together).max(resident * moved);
        let multiprocessors = BLOCKS_TO_FILL as f64;
        // Of schedules that wait alike the one that works less.
        time += 0.05 * tiles as f64 * each * busy / multiprocessors;
        if splits > 1 {
            let moved = 8.0 * results * f64::from(splits);
            time += LAUNCH_OVERHEAD + moved / (MEMORY_RATE * multiprocessors);
        }
        Some(time)
    }
}

/// Whether an operand's index moves with positions of the result and inner ones together.
fn is_window(form: &ContractionForm, map: &OperandMap) -> bool {
    let has = |expr: &IndexExpr, inner: bool| {
        let moving = moving(form, expr);
        moving.into_iter().any(|axis| (form.axes[axis].1 == AxisRole::Inner) == inner)
    };
    map.index.iter().any(|expr| has(expr, true) && has(expr, false) && !is_group(form, expr))
}

/// The axes along which an index moves. A window of one tap does not.
fn moving(form: &ContractionForm, expr: &IndexExpr) -> Vec<usize> {
    expr.axes().into_iter().filter(|&axis| !form.axes[axis].0.is(1)).collect()
}

/// How often the bytes of a contraction's result are written: hardly at all where all that is left of it is folded.
fn written(contracted: &Contracted<'_>) -> f64 {
    let is_folded = |reduced: &Reduced| reduced.outputs.iter().all(|output| output.is_folded);
    if contracted.reduced.is_some_and(is_folded) { 0.0 } else { 1.0 }
}

/// Whether tiles that hold a side would write the whole result in parts of lines: they do not run along an axis that
/// takes turns with one of theirs.
pub(super) fn is_interleaved(contracted: &Contracted<'_>) -> bool {
    let form = &contracted.form;
    let turns = |expr: &IndexExpr| {
        let moving = moving(form, expr);
        moving.len() > 1 && moving.iter().any(|&axis| contracted.is_apart(axis))
    };
    written(contracted) > 0.0 && form.out.last().is_some_and(turns)
}

/// Adjacent elements of an operand that are copied at once: 4, or fewer where its lines are no multiple of that.
fn vector(form: &ContractionForm, map: &OperandMap, dims: &BTreeMap<Symbol, DimRange>) -> i64 {
    let (mut line, mut role) = (1, None);
    for expr in map.index.iter().rev() {
        match moving(form, expr)[..] {
            [] => {}
            [axis]
                if step(expr, axis) == 1
                    && *role.get_or_insert(form.axes[axis].1) == form.axes[axis].1 =>
            {
                line *= typical(&form.axes[axis].0, dims).max(1);
            }
            _ => break,
        }
    }
    [4, 2, 1].into_iter().find(|&run| line % run == 0).unwrap_or(1)
}

/// How far an index moves with one step along an axis.
fn step(expr: &IndexExpr, axis: usize) -> i64 {
    match expr {
        IndexExpr::Axis(other) => i64::from(*other == axis),
        IndexExpr::Add(a, b) => step(a, axis) + step(b, axis),
        IndexExpr::Mul(x, by) => step(x, axis) * by.as_const().unwrap_or(i64::from(i32::MAX)),
        _ => 0,
    }
}

/// Whether an index is that of a channel in its group.
fn is_group(form: &ContractionForm, expr: &IndexExpr) -> bool {
    expr.axes().iter().all(|&axis| matches!(form.axes[axis].1, AxisRole::Inner | AxisRole::Batch))
}

/// The role of the axis along which results are adjacent: of those that the last index moves along, the one
/// with the smallest step. Axes that tiles do not run along are left out, as in code generation.
fn fastest_role(contracted: &Contracted<'_>) -> Option<AxisRole> {
    let form = &contracted.form;
    form.out.iter().rev().find_map(|expr| {
        let axes = expr.axes().into_iter();
        let axes = axes.filter(|&axis| !form.axes[axis].0.is(1) && !contracted.is_apart(axis));
        axes.min_by_key(|&axis| step(expr, axis)).map(|axis| form.axes[axis].1)
    })
}

/// A contraction that reads each element of its larger operand once or a few times.
fn skinny(form: &ContractionForm, results: i64, inner: i64, sizes: [i64; 3]) -> Schedule {
    let larger = if sizes[1] >= sizes[2] { &form.lhs } else { &form.rhs };
    let last = larger.index.last().map(IndexExpr::axes).unwrap_or_default();
    let contiguous = last.iter().any(|&axis| form.axes[axis].1 == AxisRole::Inner);
    if inner >= 65_536 && results < BLOCKS_TO_FILL {
        let parts = (inner / 16_384).clamp(1, 2 * BLOCKS_TO_FILL / results.max(1)).max(1);
        return Schedule::FoldSplit { threads: 256, vector: 4, parts: parts as u32 };
    }
    if inner <= 32 || (!contiguous && results >= 128 * BLOCKS_TO_FILL) {
        return Schedule::FoldThread { threads: 128, vector: 1 };
    }
    let wanted = (inner as u64).div_ceil(16).next_power_of_two();
    let per_row = (wanted.clamp(32, 512)) as u32;
    let threads = per_row.max(128);
    Schedule::FoldBlock { threads, rows: threads / per_row, vector: 4 }
}

/// A tile of fused multiply-adds, and the cycles it takes where it waits for memory at each step.
fn tile([batch, rows, columns]: [i64; 3], inner: i64) -> (f64, Schedule) {
    let candidates = [
        (128u32, 128u32, 8u32, 8u32),
        (64, 64, 4, 4),
        (32, 64, 4, 4),
        (32, 32, 2, 4),
        (16, 32, 2, 2),
    ];
    let blocks = |m: u32, n: u32| {
        let tiles = |size: i64, tile: u32| div_ceil(size.max(1), tile.into());
        batch.saturating_mul(tiles(rows, m)).saturating_mul(tiles(columns, n))
    };
    let waste = |m: u32, n: u32| {
        blocks(m, n).saturating_mul(i64::from(m * n))
            > 2 * batch.saturating_mul(rows.max(1)).saturating_mul(columns.max(1))
    };
    let (block_m, block_n, thread_m, thread_n) = candidates
        .into_iter()
        .find(|&(m, n, ..)| blocks(m, n) >= BLOCKS_TO_FILL && !waste(m, n))
        .or_else(|| candidates.into_iter().find(|&(m, n, ..)| m <= 64 && !waste(m, n)))
        .unwrap_or(candidates[candidates.len() - 1]);
    let threads = block_m / thread_m * (block_n / thread_n);
    let time = tile_cycles(blocks(block_m, block_n), threads, inner);
    (time, Schedule::Tile { block_m, block_n, block_k: BLOCK_K, thread_m, thread_n })
}

/// Cycles until the last tile has put together what tiles have folded of `length` elements.
pub(super) fn joining_cycles(length: i64) -> f64 {
    // Of tiles of 128 positions two are read at once.
    (4 + div_ceil(length, 256)) as f64 * LATENCY
}

/// A tile of fused multiply-adds that holds all positions along a side, and the cycles it takes.
fn holding_tile(sizes: &Sizes, held: [bool; 2]) -> (f64, Schedule) {
    let block = |size: i64, is_held: bool| match is_held {
        true => size.unsigned_abs().next_power_of_two().max(32) as u32,
        false => 32,
    };
    let block_m = block(sizes.rows, held[0]);
    let block_n = block(sizes.columns, held[1]);
    let thread = |block: u32| if block > 128 { 8 } else { 4 };
    let (thread_m, thread_n) = (thread(block_m), thread(block_n));
    let tiles = |size: i64, block: u32| div_ceil(size, block.into());
    let blocks = tiles(sizes.rows, block_m).saturating_mul(tiles(sizes.columns, block_n));
    let blocks = blocks.saturating_mul(sizes.batch);
    let time = tile_cycles(blocks, block_m / thread_m * (block_n / thread_n), sizes.inner);
    (time, Schedule::Tile { block_m, block_n, block_k: BLOCK_K, thread_m, thread_n })
}

/// Cycles of tiles of fused multiply-adds that wait for memory at each step.
fn tile_cycles(blocks: i64, threads: u32, inner: i64) -> f64 {
    let steps = div_ceil(inner, BLOCK_K.into()) as f64;
    let waves = div_ceil(blocks, BLOCKS_TO_FILL * (THREADS / i64::from(threads)).clamp(1, 8));
    waves as f64 * (BLOCK_OVERHEAD + steps * LATENCY)
}

pub(super) fn div_ceil(size: i64, by: i64) -> i64 {
    size.unsigned_abs().div_ceil(by.unsigned_abs()) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(rows: i64, columns: i64, inner: i64) -> Work {
        Work {
            batch: 1,
            rows,
            columns,
            inner,
            fetch: [1.5; 2],
            element_bytes: [4.0; 2],
            passes: 1.0,
            narrow: false,
            epilogue: 0.0,
            wgmma: false,
            held: [false; 2],
            written: 1.0,
            folds: false,
        }
    }

    fn blocks(schedule: &Schedule, work: &Work) -> i64 {
        let Schedule::Mma { block_m, block_n, splits, .. } = *schedule else {
            panic!("{schedule}")
        };
        let tiles = div_ceil(work.rows, block_m.into()) * div_ceil(work.columns, block_n.into());
        tiles * i64::from(splits)
    }

    #[test]
    fn large_products_get_large_tiles_and_few_tiles_get_parts() {
        let large = Work { wgmma: true, ..work(4096, 4096, 4096) };
        let Schedule::Wgmma { block_m, block_n, splits, .. } = large.best().1 else { panic!() };
        assert!(block_m * block_n >= 128 * 128 && splits == 1, "{}", large.best().1);
        let long = work(256, 256, 524_288);
        let schedule = long.best().1;
        assert!(blocks(&schedule, &long) >= 64, "{schedule}");
        let Schedule::Mma { splits, .. } = schedule else { panic!() };
        assert!(splits > 1, "{schedule}");
    }

    #[test]
    fn tiles_follow_narrow_results() {
        let narrow = work(16, 100_000, 144);
        let Schedule::Mma { block_m, .. } = narrow.best().1 else { panic!() };
        assert_eq!(block_m, 16);
    }

    #[test]
    fn warpgroups_multiply_where_there_are_some() {
        let large = Work { wgmma: true, ..work(4096, 4096, 4096) };
        assert!(matches!(large.best().1, Schedule::Wgmma { .. }), "{}", large.best().1);
        let narrow = Work { wgmma: true, ..work(16, 100_000, 144) };
        assert!(matches!(narrow.best().1, Schedule::Mma { .. }), "{}", narrow.best().1);
    }

    #[test]
    fn parts_have_work() {
        for splits in SPLITS {
            for inner in [32, 256, 300, 4096] {
                if work(64, 64, inner).time(&TILES[19], splits).is_some() {
                    let steps = div_ceil(inner, 32);
                    let each = div_ceil(steps, splits.into());
                    assert!(each * (i64::from(splits) - 1) < steps);
                }
            }
        }
    }
}
