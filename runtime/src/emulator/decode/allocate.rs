//! Packs the registers of a kernel into few slots, so that a warp's registers stay in cache.
//!
//! Liveness by data flow over basic blocks, then linear scan over whole intervals (Poletto and
//! Sarkar, "Linear scan register allocation", 1999). A slot belongs to one lane at a time and each
//! lane runs the kernel's own control flow, so liveness of a single thread is enough.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::super::parse::{Kernel, RegisterClass, RegisterId};
use super::super::program::{Inst, Op, PredSrc, Slot};
use super::Flow;

/// Where registers live.
pub(super) struct Allocation {
    /// Slot of each register.
    pub(super) slots: Vec<Slot>,
    /// Slots used of each file: predicates, 32 bits, 64 bits.
    pub(super) n_slots: [u32; 3],
    /// Registers that a path reads before it writes them, in order.
    pub(super) tracked: Vec<RegisterId>,
}

/// Chooses slots from what each instruction reads and writes.
pub(super) fn allocate(
    kernel: &Kernel,
    flow: &[Flow],
    code: &[Inst],
    targets: &[u32],
) -> Allocation {
    let n_registers = kernel.registers.len();
    let blocks = Blocks::new(code, targets);
    let live = Liveness::new(&blocks, flow, code, n_registers);
    let mut intervals = intervals(&blocks, &live, flow, n_registers);
    let tracked: Vec<RegisterId> = (0..n_registers as u32)
        .filter(|&register| live.is_live_in(0, register))
        .map(RegisterId)
        .collect();
    for register in &tracked {
        intervals[register.0 as usize] = Some((0, u32::MAX));
    }

    let mut order: Vec<u32> =
        (0..n_registers as u32).filter(|&r| intervals[r as usize].is_some()).collect();
    order.sort_by_key(|&register| (intervals[register as usize], register));
    let mut files: [File; 3] = Default::default();
    let mut slots = vec![0; n_registers];
    for register in order {
        if let Some((start, end)) = intervals[register as usize] {
            let file = match kernel.registers[register as usize] {
                RegisterClass::Pred => 0,
                RegisterClass::Bits16 | RegisterClass::Bits32 => 1,
                RegisterClass::Bits64 => 2,
            };
            slots[register as usize] = files[file].take(start, end);
        }
    }
    Allocation { slots, n_slots: files.map(|file| file.n_slots), tracked }
}

/// One register file during the scan.
#[derive(Default)]
struct File {
    busy: BinaryHeap<Reverse<(u32, Slot)>>,
    free: BinaryHeap<Reverse<Slot>>,
    n_slots: u32,
}

impl File {
    fn take(&mut self, start: u32, end: u32) -> Slot {
        while let Some(&Reverse((busy_end, slot))) = self.busy.peek() {
            if busy_end > start {
                break;
            }
            self.busy.pop();
            self.free.push(Reverse(slot));
        }
        let slot = self.free.pop().map_or_else(
            || {
                self.n_slots += 1;
                self.n_slots - 1
            },
            |Reverse(slot)| slot,
        );
        self.busy.push(Reverse((end, slot)));
        slot
    }
}

struct Blocks {
    /// First instruction of each block, and the end of the code.
    starts: Vec<u32>,
    successors: Vec<Vec<u32>>,
}

/// The instructions that may follow one, besides the next.
fn jump_targets<'t>(inst: &Inst, targets: &'t [u32], single: &'t mut [u32; 1]) -> &'t [u32] {
    match inst.op {
        Op::Branch { target } => {
            single[0] = target;
            single
        }
        Op::BranchIndexed { targets: list, .. } => {
            &targets[list.start as usize..(list.start + list.count) as usize]
        }
        _ => &[],
    }
}

fn falls_through(inst: &Inst) -> bool {
    inst.guard != PredSrc::Constant(true)
        || !matches!(inst.op, Op::Branch { .. } | Op::BranchIndexed { .. } | Op::Exit | Op::Trap)
}

impl Blocks {
    fn new(code: &[Inst], targets: &[u32]) -> Blocks {
        let mut is_start = vec![false; code.len() + 1];
        is_start[0] = true;
        is_start[code.len()] = true;
        for (pc, inst) in code.iter().enumerate() {
            for &target in jump_targets(inst, targets, &mut [0]) {
                is_start[target as usize] = true;
                is_start[pc + 1] = true;
            }
            is_start[pc + 1] |= !falls_through(inst);
        }
        let starts: Vec<u32> =
            (0..=code.len() as u32).filter(|&pc| is_start[pc as usize]).collect();
        let block_of = |pc: u32| starts.partition_point(|&start| start <= pc) as u32 - 1;
        let successors = starts
            .windows(2)
            .map(|range| {
                let last = &code[range[1] as usize - 1];
                let jumps = jump_targets(last, targets, &mut [0]).to_vec();
                let mut next: Vec<u32> = jumps.into_iter().map(block_of).collect();
                if falls_through(last) && (range[1] as usize) < code.len() {
                    next.push(block_of(range[1]));
                }
                next
            })
            .collect();
        Blocks { starts, successors }
    }

    fn len(&self) -> usize {
        self.successors.len()
    }

    fn range(&self, block: usize) -> std::ops::Range<usize> {
        self.starts[block] as usize..self.starts[block + 1] as usize
    }
}

struct Liveness {
    n_words: usize,
    live_in: Vec<u64>,
    live_out: Vec<u64>,
}

impl Liveness {
    fn new(blocks: &Blocks, flow: &[Flow], code: &[Inst], n_registers: usize) -> Liveness {
        let n_words = n_registers.div_ceil(64);
        let mut uses = vec![0u64; blocks.len() * n_words];
        let mut kills = vec![0u64; blocks.len() * n_words];
        for block in 0..blocks.len() {
            let base = block * n_words;
            for pc in blocks.range(block) {
                for register in &flow[pc].uses {
                    let (word, bit) = (base + register.0 as usize / 64, register.0 % 64);
                    uses[word] |= (1 << bit) & !kills[word];
                }
                if code[pc].guard == PredSrc::Constant(true) {
                    for register in &flow[pc].defs {
                        kills[base + register.0 as usize / 64] |= 1 << (register.0 % 64);
                    }
                }
            }
        }
        let mut live_in = uses;
        let mut live_out = vec![0u64; blocks.len() * n_words];
        let mut changed = true;
        while changed {
            changed = false;
            for block in (0..blocks.len()).rev() {
                for word in 0..n_words {
                    let index = block * n_words + word;
                    let out = blocks.successors[block]
                        .iter()
                        .fold(0, |out, &next| out | live_in[next as usize * n_words + word]);
                    let new_in = live_in[index] | (out & !kills[index]);
                    changed |= out != live_out[index] || new_in != live_in[index];
                    live_out[index] = out;
                    live_in[index] = new_in;
                }
            }
        }
        Liveness { n_words, live_in, live_out }
    }

    fn is_live_in(&self, block: usize, register: u32) -> bool {
        is_set(&self.live_in[block * self.n_words..], register)
    }
}

fn is_set(words: &[u64], bit: u32) -> bool {
    words[bit as usize / 64] >> (bit % 64) & 1 != 0
}

/// From the first to the last place where a register holds a value that matters. An end is the
/// last reader, or one past a writer, so that results of one instruction never share a slot.
fn intervals(
    blocks: &Blocks,
    live: &Liveness,
    flow: &[Flow],
    n_registers: usize,
) -> Vec<Option<(u32, u32)>> {
    let mut intervals: Vec<Option<(u32, u32)>> = vec![None; n_registers];
    let mut extend = |register: usize, start: u32, end: u32| {
        let (old_start, old_end) = intervals[register].unwrap_or((start, end));
        intervals[register] = Some((old_start.min(start), old_end.max(end)));
    };
    for block in 0..blocks.len() {
        let range = blocks.range(block);
        let words = block * live.n_words..(block + 1) * live.n_words;
        let mut each = |bits: &[u64], place: u32| {
            for (word, &bits) in bits.iter().enumerate() {
                let mut rest = bits;
                while rest != 0 {
                    extend(word * 64 + rest.trailing_zeros() as usize, place, place);
                    rest &= rest - 1;
                }
            }
        };
        each(&live.live_in[words.clone()], range.start as u32);
        each(&live.live_out[words], range.end as u32);
        for pc in range {
            for register in &flow[pc].uses {
                extend(register.0 as usize, pc as u32, pc as u32);
            }
            for register in &flow[pc].defs {
                extend(register.0 as usize, pc as u32, pc as u32 + 1);
            }
        }
    }
    intervals
}
