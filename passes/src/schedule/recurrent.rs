//! Schedules of recurrences.

use std::collections::BTreeMap;

use fornax_ir::op::RecurrentForm;
use fornax_ir::plan::Schedule;
use fornax_ir::{DimRange, Symbol};

use super::{BLOCKS_TO_FILL, typical};

/// Weights that a thread keeps in registers; half of what it has when 512 of them share a multiprocessor.
const WEIGHTS: i64 = 64;

/// Weights for which another thread is worth having.
const FEWEST_WEIGHTS: i64 = 16;

/// Threads of a block.
const THREADS: (i64, i64) = (64, 512);

/// Blocks that wait for one another at most: a power of two that any large GPU can run at once.
const MOST_BLOCKS: i64 = 128;

/// Sequences of a group at most: sums of all gates are in registers for each.
const MOST_SEQUENCES: i64 = 8;

/// A step takes as long as its waiting, so that few blocks share the units of one group: as few as have
/// registers for the weights. What multiprocessors are left take sequences of their own.
pub(super) fn choose(form: &RecurrentForm, dims: &BTreeMap<Symbol, DimRange>) -> Schedule {
    let hidden = typical(&form.hidden, dims).max(1);
    let weights = form.gates as i64 * hidden * hidden;
    let power = |number: i64| (number as u64).next_power_of_two() as i64;
    let most = MOST_BLOCKS.min(power(hidden));
    let blocks = power(ceil(weights, THREADS.1 * WEIGHTS)).min(most);
    let threads = power(ceil(weights, blocks * FEWEST_WEIGHTS)).clamp(THREADS.0, THREADS.1);
    let groups = (BLOCKS_TO_FILL / (blocks * form.reverse.len() as i64)).max(1);
    let batch = power(ceil(typical(&form.batch, dims).max(1), groups)).min(MOST_SEQUENCES);
    Schedule::Recurrent { threads: threads as u32, blocks: blocks as u32, batch: batch as u32 }
}

fn ceil(number: i64, by: i64) -> i64 {
    (number + by - 1) / by
}
