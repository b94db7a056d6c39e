//! Schedules for reductions of rows and for scans, by an analytic model of one multiprocessor.

use std::collections::BTreeMap;

use fornax_ir::plan::{Rows, Schedule};
use fornax_ir::{Dim, DimRange, Graph, NodeId, Symbol};

use super::{ACCESS_BYTES, BLOCKS_TO_FILL, typical};

/// 32-bit registers of a multiprocessor (CUDA C++ Programming Guide, "Compute Capabilities", 9.0).
const REGISTERS: f64 = 65_536.0;
/// Threads and blocks that a multiprocessor holds at most (same table).
const THREADS: u32 = 2048;
const BLOCKS: u32 = 32;
/// Registers a thread needs beside the elements it holds.
const OTHER_REGISTERS: f64 = 32.0;
/// Elements a thread may hold, in registers: more would be spilled.
const MOST_HELD: u32 = 96;
/// Bytes that a multiprocessor must have in flight for full bandwidth: by Little's law 4.3 TB/s over 132
/// multiprocessors for about a microsecond.
const IN_FLIGHT: f64 = 32_768.0;

/// Blocks that one row may have: they wait for one another, so that each of the multiprocessors (132 of an
/// H200) must be able to hold one.
const MOST_BLOCKS: i64 = 128;
/// Elements that a thread of such a block holds: with the registers beside them a block of 512 threads
/// still fits.
const HELD_IN_GROUP: u32 = 64;

/// What a choice depends on.
struct Case {
    count: i64,
    length: i64,
    /// Bytes of an element.
    size: u32,
    /// Values of each position that live from one reduction to the next.
    held: u32,
    interleaved: bool,
    /// Elements that one access can move.
    vector: u32,
}

/// The schedule of reductions of rows.
pub(super) fn rows(body: &Graph, rows: &Rows, dims: &BTreeMap<Symbol, DimRange>) -> Schedule {
    let (count, length) = (rows.count(), rows.length());
    let interleaved = rows.are_interleaved(body, dims);
    let full = &count * &length;
    let operands: Vec<NodeId> =
        body.inputs().iter().copied().filter(|&id| body.ty(id).shape.elements() == full).collect();
    let sizes = operands.iter().map(|&id| body.ty(id).dtype.size() as u32);
    let size = sizes.max().unwrap_or(4);
    let vector = (ACCESS_BYTES / size).clamp(1, 8);
    let along = if interleaved { last_size(body, &operands) } else { length.clone() };
    let aligned = along.divisor(dims) % i64::from(vector) == 0;
    let case = Case {
        count: typical(&count, dims).max(1),
        length: typical(&length, dims).max(1),
        size,
        held: operands.len().clamp(1, 3) as u32,
        interleaved,
        vector: if aligned { vector } else { 1 },
    };
    candidates(&case)
        .into_iter()
        .filter_map(|tile| Some((score(&case, tile)?, tile)))
        .fold(None, |best: Option<(f64, Tile)>, (score, tile)| match best {
            Some((most, _)) if most >= score => best,
            _ => Some((score, tile)),
        })
        .map(|(_, tile)| Schedule::Rows {
            threads: tile.threads,
            rows: tile.rows,
            vector: case.vector,
            items: tile.items,
        })
        .or_else(|| group(&case))
        .unwrap_or_else(|| long(&case))
}

/// Blocks that hold a row together; nothing when the row is too long even for that.
fn group(case: &Case) -> Option<Schedule> {
    let Case { vector, .. } = *case;
    let words = vector * case.size.div_ceil(4) * case.held;
    let items = 1 << (HELD_IN_GROUP / words).max(1).ilog2();
    let blocks =
        |threads: u32| (case.length as u64).div_ceil(u64::from(threads * vector * items)) as i64;
    let threads = [128, 256, 512].into_iter().find(|&threads| blocks(threads) <= MOST_BLOCKS)?;
    let blocks = blocks(threads) as u32;
    (!case.interleaved).then_some(Schedule::RowGroups { threads, vector, items, blocks })
}

/// A row that is read again for each reduction. Many rows at once would drive one another out of the L2
/// cache, so blocks are large.
fn long(case: &Case) -> Schedule {
    let Case { vector, .. } = *case;
    if case.interleaved {
        return Schedule::Rows { threads: 512, rows: 32 * vector, vector, items: 4 };
    }
    Schedule::Rows { threads: 1024, rows: 1, vector, items: 8 / vector.min(4) }
}

/// The size of the last axis of the operands that has more than one element.
fn last_size(body: &Graph, operands: &[NodeId]) -> Dim {
    let shape = operands.first().map(|&id| &body.ty(id).shape);
    let last = shape.and_then(|shape| shape.iter().rev().find(|size| !size.is(1)));
    last.cloned().unwrap_or_else(|| Dim::constant(1))
}

#[derive(Clone, Copy)]
struct Tile {
    threads: u32,
    rows: u32,
    items: u32,
}

fn candidates(case: &Case) -> Vec<Tile> {
    let mut found = Vec::new();
    let powers = |from: u32, to: u32| (from.ilog2()..=to.ilog2()).map(|power| 1u32 << power);
    for threads in powers(64, 1024) {
        for items in powers(1, 64) {
            let most = if case.interleaved { threads * case.vector } else { threads };
            for rows in powers(1, most) {
                found.push(Tile { threads, rows, items });
            }
        }
    }
    found
}

/// The share of the bandwidth that a tile can reach; nothing when it does not hold whole rows.
fn score(case: &Case, tile: Tile) -> Option<f64> {
    let Tile { threads, rows, items } = tile;
    let (each, width) = if case.interleaved {
        let vector = case.vector.min(rows);
        let across = rows / vector;
        // Fewer than 32 bytes of neighbouring rows are part of a sector.
        if across == 0 || across > threads || rows * case.size < 32 {
            return None;
        }
        (threads / across, threads / across * items)
    } else {
        (threads / rows, threads / rows * case.vector * items)
    };
    let in_thread =
        if case.interleaved { case.vector.min(rows) * items } else { case.vector * items };
    let words = in_thread * case.size.div_ceil(4) * case.held;
    if i64::from(width) < case.length || words > MOST_HELD {
        return None;
    }
    let registers = OTHER_REGISTERS + 1.25 * f64::from(words);
    let blocks =
        ((REGISTERS / (registers * f64::from(threads))) as u32).min(THREADS / threads).min(BLOCKS);
    if blocks == 0 {
        return None;
    }
    let row_use =
        case.count as f64 / ((case.count as u64).div_ceil(rows.into()) * u64::from(rows)) as f64;
    let useful = case.length as f64 / f64::from(width) * row_use;
    let launched = (case.count as u64).div_ceil(rows.into()) as f64;
    let resident = f64::from(blocks) * BLOCKS_TO_FILL as f64;
    let busy = (launched / resident).min(1.0);
    // Registers hold elements about half of the time without waiting for memory.
    let bytes = 0.5 * useful * busy * f64::from(blocks * threads * in_thread * case.size);
    let bandwidth =
        (bytes / IN_FLIGHT).min(1.0) * (0.8 + 0.2 * (bytes / (4.0 * IN_FLIGHT)).min(1.0));
    // One block's loads cannot hide another one's reduction when there is no other one.
    let alone = if blocks == 1 && launched > BLOCKS_TO_FILL as f64 { 0.85 } else { 1.0 };
    let waves = launched / resident;
    let tail = if waves > 1.0 { (waves / waves.ceil()).powf(0.5) } else { 1.0 };
    // Arithmetic between the reductions needs warps to hide its latency.
    let occupied = 0.9 + 0.1 * (f64::from(blocks * threads) / 1024.0).min(1.0);
    // Reductions across warps go through shared memory and barriers; idle threads still issue.
    let warps = if case.interleaved { each } else { each.div_ceil(32) };
    let exchange = 1.0 / (1.0 + 0.01 * f64::from(warps.ilog2()));
    Some(bandwidth * alone * tail * exchange * occupied * (0.9 + 0.1 * useful))
}

/// The schedule of a scan along an axis of a result.
pub(super) fn scan(
    body: &Graph,
    anchor: NodeId,
    axis: usize,
    dims: &BTreeMap<Symbol, DimRange>,
) -> Schedule {
    let shape = &body.ty(anchor).shape;
    let length = typical(&shape[axis], dims).max(1) as u64;
    let rows = (typical(&shape.elements(), dims).max(1) as u64).div_ceil(length);
    let interleaved = shape.iter().skip(axis + 1).any(|size| !size.is(1));
    if interleaved {
        // One thread a row as long as that fills the machine.
        let threads = 128;
        let wanted = rows.div_ceil(4 * BLOCKS_TO_FILL as u64).next_power_of_two();
        return Schedule::Scan { threads, rows: (wanted as u32).clamp(8, threads), items: 8 };
    }
    let items = if length >= 1024 { 16 } else { 4 };
    let each = length.div_ceil(items).next_power_of_two().clamp(8, 256) as u32;
    let threads = each.max(128);
    Schedule::Scan { threads, rows: threads / each, items: items as u32 }
}

/// Whether a chain of reductions is better computed at once: there are enough rows to occupy the machine,
/// or they are short.
pub(crate) fn is_worth_chaining(rows: &Rows, dims: &BTreeMap<Symbol, DimRange>) -> bool {
    let held = MOST_BLOCKS * 512 * i64::from(HELD_IN_GROUP);
    typical(&rows.count(), dims) >= BLOCKS_TO_FILL || typical(&rows.length(), dims) <= held
}
