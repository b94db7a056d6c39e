//! The memory plan: where values between regions lie.
//!
//! Three arenas: one for values of the prepare program, which stay as long as the bundle is loaded, one for
//! values of a run, where a value's bytes are reused as soon as no later region reads it, and one for counters.

use std::collections::BTreeMap;

use fornax_ir::plan::{Arena, MemoryPlan, Phase, Plan, Region, ValueRef};
use fornax_ir::{Dim, Type};

/// Every offset is a multiple of this.
const ALIGN: i64 = fornax_bundle::manifest::BUFFER_ALIGN as i64;

/// A piece of an arena that is in use from one region to another (both included).
#[derive(Debug)]
struct Piece {
    key: Key,
    bytes: Dim,
    first: usize,
    last: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Value(ValueRef),
    Workspace(usize, usize),
}

/// Places the outputs of all regions, but those that lie in the caller's outputs, and the workspaces:
/// `workspaces[region]` are the types of that region's, and where they lie.
pub fn plan(plan: &Plan, workspaces: &[Vec<(Type, Arena)>]) -> MemoryPlan {
    let mut memory = MemoryPlan::default();
    let Pieces { prepared, scratch, counters } = pieces(plan, workspaces);
    memory.prepared_bytes = place(prepared, &mut memory, false);
    memory.scratch_bytes = place(scratch, &mut memory, true);
    memory.counter_bytes = place(counters, &mut memory, false);
    memory
}

/// The output of the plan that each run value is written to directly: the first one it is named for.
/// Shared arrays can be outputs too.
pub fn direct_outputs(plan: &Plan) -> BTreeMap<ValueRef, usize> {
    let mut direct = BTreeMap::new();
    for (index, output) in plan.outputs.iter().enumerate() {
        let is_run = match output.value {
            ValueRef::Region { region, .. } => plan.regions[region].phase == Phase::Run,
            ValueRef::Shared(_) => true,
            ValueRef::Input(_) | ValueRef::Weight(_) => false,
        };
        if is_run {
            direct.entry(output.value).or_insert(index);
        }
    }
    direct
}

/// What lies in each arena.
#[derive(Debug, Default)]
struct Pieces {
    prepared: Vec<Piece>,
    scratch: Vec<Piece>,
    counters: Vec<Piece>,
}

fn pieces(plan: &Plan, workspaces: &[Vec<(Type, Arena)>]) -> Pieces {
    let mut last_use: BTreeMap<ValueRef, usize> = BTreeMap::new();
    for (index, region) in plan.regions.iter().enumerate() {
        for operand in &region.operands {
            last_use.insert(*operand, index);
        }
    }
    let direct = direct_outputs(plan);
    let Pieces { mut prepared, mut scratch, mut counters } = Pieces::default();
    for (number, shared) in plan.shared.iter().enumerate() {
        let key = ValueRef::Shared(number);
        let writes = |region: &Region| region.parts.values().any(|part| part.shared == number);
        let first = plan.regions.iter().position(writes);
        let last_write = plan.regions.iter().rposition(writes);
        if let (Some(first), Some(last_write), false) =
            (first, last_write, direct.contains_key(&key))
        {
            let last = last_use.get(&key).copied().unwrap_or(first).max(last_write);
            scratch.push(Piece { key: Key::Value(key), bytes: shared.ty.bytes(), first, last });
        }
    }
    for (index, region) in plan.regions.iter().enumerate() {
        let of_phase = match region.phase {
            Phase::Prepare => &mut prepared,
            Phase::Run => &mut scratch,
        };
        for (output, value) in region.body.outputs().iter().enumerate() {
            let key = ValueRef::Region { region: index, output };
            if !direct.contains_key(&key) && !region.parts.contains_key(&output) {
                let last = last_use.get(&key).copied().unwrap_or(index);
                let bytes = region.body.ty(value.value).bytes();
                of_phase.push(Piece { key: Key::Value(key), bytes, first: index, last });
            }
        }
        for (number, (ty, arena)) in workspaces[index].iter().enumerate() {
            let key = Key::Workspace(index, number);
            let piece = Piece { key, bytes: ty.bytes(), first: index, last: index };
            let pieces = match (arena, region.phase) {
                (Arena::Counters, _) => &mut counters,
                (Arena::Prepared, _) | (_, Phase::Prepare) => &mut prepared,
                (Arena::Phase, Phase::Run) => &mut scratch,
            };
            pieces.push(piece);
        }
    }
    Pieces { prepared, scratch, counters }
}

/// Gives each piece an offset; pieces share bytes when `reuse` is set and they are not in use at the
/// same time. Returns the arena's size.
///
/// Pieces of known size: the largest first, each at the lowest offset that is free for as long as it
/// lives. Symbolic sizes follow behind them; such a piece may take the place of an ended one of the
/// very same size.
fn place(pieces: Vec<Piece>, memory: &mut MemoryPlan, reuse: bool) -> Dim {
    let (mut known, symbolic): (Vec<Piece>, Vec<Piece>) =
        pieces.into_iter().partition(|piece| piece.bytes.as_const().is_some());
    known.sort_by_key(|piece| (std::cmp::Reverse(piece.bytes.as_const()), piece.key));
    let mut placed: Vec<(i64, i64, usize, usize)> = Vec::new();
    let mut end = 0i64;
    for piece in known {
        let size = round_up(piece.bytes.as_const().unwrap_or(0));
        let offset = lowest_free(&placed, &piece, size, reuse);
        placed.push((offset, size, piece.first, piece.last));
        end = end.max(offset + size);
        record(memory, piece.key, Dim::constant(offset));
    }
    let mut top = Dim::constant(end);
    let mut slots: Vec<(Dim, Dim, usize)> = Vec::new();
    for piece in symbolic {
        let size = piece.bytes.ceil_div(&Dim::constant(ALIGN)) * Dim::constant(ALIGN);
        let free =
            slots.iter_mut().find(|(of, _, last)| reuse && *of == size && *last < piece.first);
        let offset = match free {
            Some((_, offset, last)) => {
                *last = piece.last;
                offset.clone()
            }
            None => {
                let offset = top.clone();
                top = top + &size;
                slots.push((size, offset.clone(), piece.last));
                offset
            }
        };
        record(memory, piece.key, offset);
    }
    top
}

fn lowest_free(placed: &[(i64, i64, usize, usize)], piece: &Piece, size: i64, reuse: bool) -> i64 {
    let mut taken: Vec<(i64, i64)> = placed
        .iter()
        .filter(|(_, _, first, last)| !reuse || (*first <= piece.last && piece.first <= *last))
        .map(|&(offset, size, ..)| (offset, offset + size))
        .collect();
    taken.sort_unstable();
    let mut offset = 0;
    for (start, end) in taken {
        if offset + size <= start {
            break;
        }
        offset = offset.max(end);
    }
    offset
}

fn round_up(bytes: i64) -> i64 {
    (bytes.saturating_add(ALIGN - 1)) / ALIGN * ALIGN
}

fn record(memory: &mut MemoryPlan, key: Key, offset: Dim) {
    match key {
        Key::Value(value) => memory.offsets.insert(value, offset),
        Key::Workspace(region, number) => memory.workspaces.insert((region, number), offset),
    };
}

#[cfg(test)]
mod tests {
    use fornax_ir::{DType, Graph, LocSet, PrecisionPolicy, attrs};

    use super::*;

    #[test]
    fn workspaces_lie_in_their_arenas() {
        let ty = |size: i64| Type::new(DType::F32, vec![Dim::constant(size)]);
        let mut graph = Graph::new("f");
        let x = graph.input("x", ty(64)).unwrap();
        let y = graph.add("relu", attrs! {}, &[x], LocSet::none()).unwrap();
        graph.output("y", y);
        let regions = crate::fuse(&graph, PrecisionPolicy::Ieee).unwrap();
        let memory = plan(
            &regions,
            &[vec![
                (ty(1024), Arena::Prepared),
                (ty(256), Arena::Phase),
                (ty(512), Arena::Prepared),
                (ty(64), Arena::Counters),
                (ty(65), Arena::Counters),
            ]],
        );
        assert_eq!(memory.prepared_bytes.as_const(), Some(4 * (1024 + 512)));
        assert_eq!(memory.scratch_bytes.as_const(), Some(4 * 256));
        assert_eq!(memory.counter_bytes.as_const(), Some(3 * ALIGN));
        assert_ne!(memory.workspaces[&(0, 3)], memory.workspaces[&(0, 4)]);
    }
}
