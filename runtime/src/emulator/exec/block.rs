//! A block: its warps take turns until all have exited.

use std::collections::HashSet;

use super::super::detect::SharedShadow;
use super::super::program::{BarrierAction, BoolOp, Op, PredSrc, Program};
use super::registers::LANES;
use super::warp::{Arrival, Stop, Warp};
use super::{Launch, Trouble, coordinates};
use crate::error::{Fault, FaultKind};

/// Memory of a block, beside its place in the grid.
#[derive(Debug, Default)]
pub(crate) struct BlockMemory {
    /// `%ctaid`.
    pub(crate) block: [u32; 3],
    /// Linear index of the block.
    pub(crate) linear: u32,
    /// Shared memory.
    pub(crate) shared: Vec<u8>,
    /// What is known of each grain of it.
    pub(crate) shadow: SharedShadow,
    /// Local memory, thread after thread.
    pub(crate) local: Vec<u8>,
    /// Which bytes of it have been written.
    pub(crate) local_written: Vec<bool>,
    /// For each access site the allocation that it last went to.
    pub(crate) site_allocations: Vec<u32>,
    /// Pairs of instructions of which the first can come to the second, and not.
    reachable: HashSet<(u32, u32)>,
    unreachable: HashSet<(u32, u32)>,
}

impl BlockMemory {
    /// Whether a thread at one instruction can come to another.
    pub(crate) fn reaches(&mut self, program: &Program, from: u32, to: u32) -> bool {
        if self.reachable.contains(&(from, to)) {
            return true;
        }
        if self.unreachable.contains(&(from, to)) {
            return false;
        }
        let mut seen = vec![false; program.code.len()];
        let mut stack = vec![from];
        let mut found = false;
        while let Some(pc) = stack.pop() {
            if pc == to {
                found = true;
                break;
            }
            if std::mem::replace(&mut seen[pc as usize], true) {
                continue;
            }
            let inst = &program.code[pc as usize];
            let mut falls_through = inst.guard != PredSrc::Constant(true);
            match inst.op {
                Op::Branch { target } => stack.push(target),
                Op::BranchIndexed { targets, .. } => {
                    stack.extend_from_slice(program.branch_targets(targets));
                }
                Op::Exit | Op::Trap => {}
                _ => falls_through = true,
            }
            if falls_through {
                stack.push(pc + 1);
            }
        }
        let known = if found { &mut self.reachable } else { &mut self.unreachable };
        known.insert((from, to));
        found
    }
}

/// How a block ended early.
#[derive(Debug)]
pub(crate) struct Stopped {
    /// What went wrong.
    pub(crate) fault: Fault,
}

/// Runs blocks one after the other, reusing its buffers.
#[derive(Debug, Default)]
pub(crate) struct BlockRunner {
    memory: BlockMemory,
    warps: Vec<Warp>,
    /// The barrier that each warp waits at.
    waiting: Vec<Option<Arrival>>,
    /// Threads counted in by `bar.arrive`, by barrier, with the warps that they belong to.
    arrived: Vec<(u32, Vec<u32>)>,
    n_executed: u64,
}

impl BlockRunner {
    /// Runs the block with this linear index.
    pub(crate) fn run(&mut self, launch: &Launch<'_>, linear: u64) -> Result<(), Box<Stopped>> {
        self.start(launch, linear);
        let result = self.run_warps(launch);
        self.n_executed += self.warps.iter().map(|warp| warp.n_executed).sum::<u64>();
        result.map_err(|(warp, trouble)| {
            let warp = &self.warps[warp];
            let pc = trouble.pc.unwrap_or(warp.pc);
            let thread = launch.thread(warp.index * 32 + trouble.lane);
            let fault = fault(launch, self.memory.block, thread, pc, &trouble);
            Box::new(Stopped { fault })
        })
    }

    /// Instructions run so far, counted once a warp.
    pub(crate) fn n_executed(&self) -> u64 {
        self.n_executed
    }

    fn start(&mut self, launch: &Launch<'_>, linear: u64) {
        let program = launch.program;
        let n_threads = launch.n_threads();
        let n_warps = n_threads.div_ceil(32);
        self.warps.resize_with(n_warps as usize, Warp::default);
        for (index, warp) in self.warps.iter_mut().enumerate() {
            let index = index as u32;
            warp.start(index, n_threads - index * 32, program);
        }
        self.waiting.clear();
        self.waiting.resize(n_warps as usize, None);
        self.arrived.clear();
        self.arrived.resize(16, (0, Vec::new()));

        let memory = &mut self.memory;
        memory.block = coordinates(linear, launch.config.grid);
        memory.linear = linear as u32;
        let dynamic = (program.dynamic_shared_offset, launch.config.shared_bytes);
        let fixed = program.shared.iter().map(|range| (range.offset, range.n_bytes));
        let ranges = fixed.chain(std::iter::once(dynamic)).filter(|&(_, size)| size > 0);
        let end = ranges.clone().map(|(offset, size)| offset + size).max().unwrap_or(0);
        memory.shared.clear();
        memory.shared.resize(end as usize, 0);
        let checks = (launch.options.uninitialised, launch.options.shared_races);
        memory.shadow.reset(ranges, program.shared_grain, n_warps as usize, checks);
        let local_bytes = program.local_bytes as usize * n_threads as usize;
        memory.local.resize(local_bytes, 0);
        memory.local_written.clear();
        memory.local_written.resize(local_bytes, false);
        memory.site_allocations.resize(program.n_sites as usize, 0);
    }

    fn run_warps(&mut self, launch: &Launch<'_>) -> Result<(), (usize, Box<Trouble>)> {
        loop {
            let mut ran = false;
            let mut n_done = 0;
            for index in 0..self.warps.len() {
                if self.waiting[index].is_some() {
                    continue;
                }
                let warp = &mut self.warps[index];
                if warp.live == 0 {
                    n_done += 1;
                    continue;
                }
                ran = true;
                match warp.run(&mut self.memory, launch).map_err(|trouble| (index, trouble))? {
                    Stop::Slice => {}
                    Stop::Done => n_done += 1,
                    Stop::Barrier(arrival) if arrival.action == BarrierAction::Arrive => {
                        let (count, warps) = &mut self.arrived[arrival.id as usize];
                        *count += 32;
                        warps.push(index as u32);
                        warp.pc += 1;
                    }
                    Stop::Barrier(arrival) => self.waiting[index] = Some(arrival),
                }
                let warp = &self.warps[index];
                if warp.n_executed > launch.options.instruction_budget {
                    let lane = warp.active.trailing_zeros().min(31);
                    let detail = format!(
                        "the warp has run {} instructions, the limit is {}",
                        warp.n_executed, launch.options.instruction_budget
                    );
                    let trouble = Trouble::new(FaultKind::InstructionBudget, lane, detail);
                    return Err((index, trouble));
                }
            }
            if n_done == self.warps.len() {
                return Ok(());
            }
            let released = self.release_barriers(launch);
            if !ran && !released {
                return Err(self.deadlock(launch));
            }
            if !released && self.waiting.iter().any(Option::is_some) {
                // The running warps may be waiting for another block.
                std::thread::yield_now();
            }
        }
    }

    /// Lets the warps go on whose barrier is complete.
    fn release_barriers(&mut self, launch: &Launch<'_>) -> bool {
        let mut released = false;
        for id in 0..16 {
            let here: Vec<usize> = (0..self.warps.len())
                .filter(|&warp| self.waiting[warp].is_some_and(|arrival| arrival.id == id))
                .collect();
            let Some(first) = here.first().and_then(|&warp| self.waiting[warp]) else { continue };
            let (n_arrived, arrivers) = &self.arrived[id as usize];
            let complete = match first.n_threads {
                // Warps that have exited are not waited for.
                None => self.warps.iter().zip(&self.waiting).all(|(warp, waiting)| {
                    warp.live == 0 || waiting.is_some_and(|arrival| arrival.id == id)
                }),
                Some(n_threads) => here.len() as u32 * 32 + n_arrived >= n_threads,
            };
            if !complete {
                continue;
            }
            let mut members: Vec<u32> = here.iter().map(|&warp| warp as u32).collect();
            members.extend(arrivers);
            members.sort_unstable();
            members.dedup();
            self.memory.shadow.synchronise(&members);
            self.arrived[id as usize] = (0, Vec::new());
            self.finish_barrier(&here, launch);
            released = true;
        }
        released
    }

    fn finish_barrier(&mut self, here: &[usize], launch: &Launch<'_>) {
        let arrivals: Vec<Arrival> = here.iter().filter_map(|&warp| self.waiting[warp]).collect();
        let count: u32 = arrivals.iter().map(|a| (a.predicate & a.mask).count_ones()).sum();
        let all = arrivals.iter().all(|a| a.predicate & a.mask == a.mask);
        for &index in here {
            let Some(arrival) = self.waiting[index].take() else { continue };
            let warp = &mut self.warps[index];
            let mask = arrival.mask;
            match arrival.action {
                BarrierAction::Popc(dst, _) => {
                    warp.registers.set_words(dst, mask, &[count; LANES]);
                }
                BarrierAction::Combine(op, dst, _) => {
                    let value = if op == BoolOp::And { all } else { count > 0 };
                    warp.registers.set_predicate(dst, mask, if value { u32::MAX } else { 0 });
                }
                BarrierAction::Sync | BarrierAction::Arrive => {}
            }
            warp.pc += 1;
        }
        debug_assert!(launch.n_threads() > 0);
    }

    /// All warps wait, and no barrier is complete.
    fn deadlock(&self, launch: &Launch<'_>) -> (usize, Box<Trouble>) {
        let first = self.waiting.iter().position(Option::is_some).unwrap_or(0);
        let arrival = self.waiting[first];
        let id = arrival.map_or(0, |arrival| arrival.id);
        let other = self.waiting.iter().enumerate().find_map(|(index, waiting)| {
            waiting.filter(|arrival| arrival.id != id).map(|arrival| (index, arrival.id))
        });
        let detail = match (other, arrival.and_then(|arrival| arrival.n_threads)) {
            (Some((warp, other)), _) => {
                let line = launch.program.code[self.warps[warp].pc as usize].line;
                format!(
                    "warp {first} waits at barrier {id} and warp {warp} at barrier {other} (line {line})"
                )
            }
            (None, Some(n)) => format!("barrier {id} needs {n} threads and fewer can come"),
            (None, None) => format!("barrier {id} is never complete"),
        };
        let lane = arrival.map_or(0, |arrival| arrival.mask.trailing_zeros());
        (first, Trouble::new(FaultKind::DivergentBarrier, lane, detail))
    }
}

/// Completes a fault with its place.
fn fault(
    launch: &Launch<'_>,
    block: [u32; 3],
    thread: [u32; 3],
    pc: u32,
    trouble: &Trouble,
) -> Fault {
    let program = launch.program;
    let line = program.code[pc as usize].line as usize;
    Fault {
        kind: trouble.kind,
        kernel: program.name.clone(),
        block,
        thread,
        line,
        text: program.line_text(line),
        detail: trouble.detail.clone(),
    }
}
