//! A warp: 32 lanes, of which a group at a time runs.
//!
//! Lanes that have gone different ways wait at program counters of their own; the group at the
//! least one runs, and takes in the others when it comes to where they wait. For code laid out
//! by a compiler that is where paths meet again. A group that comes to a barrier or another
//! instruction of the whole warp without all lanes named there is parked until they come.

use super::super::program::{BarrierAction, Inst, Op, PredSrc, Program, Special, Src};
use super::block::BlockMemory;
use super::memory::AsyncCopies;
use super::registers::{LANES, Registers, Row};
use super::{Launch, Trouble, lanes};
use crate::error::FaultKind;

/// Instructions that a warp runs before the others get a turn.
const SLICE: u32 = 20_000;

/// Why a warp stopped for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Its slice is used up.
    Slice,
    /// It waits at a barrier.
    Barrier(Arrival),
    /// All its lanes have exited.
    Done,
}

/// A warp's arrival at a block barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// Barrier number.
    pub(crate) id: u32,
    /// Number of threads that it needs, if given.
    pub(crate) n_threads: Option<u32>,
    /// The lanes that arrive.
    pub(crate) mask: u32,
    /// What to do beside waiting.
    pub(crate) action: BarrierAction,
    /// The lanes whose predicate is true, for the reducing forms.
    pub(crate) predicate: u32,
}

/// The state of a warp.
#[derive(Debug, Default)]
pub(crate) struct Warp {
    /// Number of the warp in its block.
    pub(crate) index: u32,
    /// The registers.
    pub(crate) registers: Registers,
    /// Lanes that have not exited.
    pub(crate) live: u32,
    /// The running lanes.
    pub(crate) active: u32,
    /// Where the running lanes are.
    pub(crate) pc: u32,
    /// Asynchronous copies under way.
    pub(crate) copies: AsyncCopies,
    /// Instructions run.
    pub(crate) n_executed: u64,
    carry: u32,
    /// Where each lane that is not active is.
    lane_pc: [u32; LANES],
    /// Lanes that can run.
    waiting: u32,
    /// Lanes that stand at an instruction which needs more lanes.
    parked: u32,
    /// Lanes that may exit although others of the warp are parked at a barrier.
    excused: u32,
    /// The least program counter of waiting and parked lanes.
    next_meet: u32,
    /// Lanes that have written each tracked register.
    initialised: Vec<u32>,
}

impl Warp {
    /// Puts `n_lanes` lanes at the start of the program.
    pub(crate) fn start(&mut self, index: u32, n_lanes: u32, program: &Program) {
        let all = if n_lanes >= 32 { u32::MAX } else { (1 << n_lanes) - 1 };
        if program.tracked_registers.is_empty() {
            self.registers.reserve(program.n_slots);
        } else {
            self.registers = Registers::default();
            self.registers.reserve(program.n_slots);
        }
        self.index = index;
        self.live = all;
        self.active = all;
        self.pc = 0;
        self.copies = AsyncCopies::default();
        self.n_executed = 0;
        self.carry = 0;
        self.waiting = 0;
        self.parked = 0;
        self.excused = 0;
        self.next_meet = u32::MAX;
        self.initialised.clear();
        self.initialised.resize(program.tracked_registers.len(), 0);
    }

    /// Runs until the slice is used up, a barrier is reached or all lanes have exited.
    pub(crate) fn run(
        &mut self,
        memory: &mut BlockMemory,
        launch: &Launch<'_>,
    ) -> Result<Stop, Box<Trouble>> {
        let program = launch.program;
        for _ in 0..SLICE {
            if self.active == 0 && !self.resume(program)? {
                return Ok(Stop::Done);
            }
            if self.pc >= self.next_meet {
                self.meet();
            }
            self.n_executed += 1;
            let inst = &program.code[self.pc as usize];
            let mask = match inst.guard {
                PredSrc::Constant(true) => self.active,
                guard => self.active & self.registers.predicate(guard),
            };
            if inst.checks_registers && launch.options.uninitialised {
                self.check_registers(program, mask)?;
            }
            if mask == 0 {
                self.pc += 1;
                continue;
            }
            if self.data(inst, mask, memory, launch)? {
                self.pc += 1;
            } else if let Some(stop) = self.control(inst, mask, memory, launch)? {
                return Ok(stop);
            }
        }
        Ok(Stop::Slice)
    }

    /// Runs an instruction that concerns single lanes; false if it is of another kind.
    #[inline]
    fn data(
        &mut self,
        inst: &Inst,
        mask: u32,
        memory: &mut BlockMemory,
        launch: &Launch<'_>,
    ) -> Result<bool, Box<Trouble>> {
        let program = launch.program;
        let constants = &program.constants[..];
        let mut row = Row { registers: &mut self.registers, constants, mask };
        match inst.op {
            Op::F32Fma { .. }
            | Op::F32Two { .. }
            | Op::F32One { .. }
            | Op::F64Fma { .. }
            | Op::F64Two { .. }
            | Op::F64One { .. } => row.float(&inst.op, launch.options.approximation),
            Op::Int1 { .. }
            | Op::Int2 { .. }
            | Op::Int3 { .. }
            | Op::MulWide { .. }
            | Op::MadWide { .. }
            | Op::Carry { .. }
            | Op::Count { .. }
            | Op::Prmt { .. }
            | Op::Shf { .. }
            | Op::Lop3 { .. }
            | Op::Dp4a { .. }
            | Op::Dp2a { .. }
            | Op::Bmsk { .. }
            | Op::Szext { .. } => row.integer(&inst.op, &mut self.carry),
            Op::Load { access, to } => self.load(access, to, mask, memory, launch)?,
            Op::Store { access, from } => self.store(access, from, mask, memory, launch)?,
            Op::Mov32 { dst, a } => row.map1(dst, a, |a: u32| a),
            Op::Mov64 { dst, a } => row.map1(dst, a, |a: u64| a),
            Op::MovPred { dst, a } => {
                let lanes = row.registers.predicate(a);
                row.registers.set_predicate(dst, mask, lanes);
            }
            Op::Setp { .. }
            | Op::Set { .. }
            | Op::Selp { .. }
            | Op::Slct { .. }
            | Op::ConvertTf32 { .. } => row.compare(&inst.op),
            Op::NotPred { dst, a } => {
                let lanes = !row.registers.predicate(a);
                row.registers.set_predicate(dst, mask, lanes);
            }
            Op::BoolPred { op, dst, a, b } => {
                let (a, b) = (row.registers.predicate(a), row.registers.predicate(b));
                row.registers.set_predicate(dst, mask, super::integer::combine(op, a, b));
            }
            Op::Convert { conversion, dst, a } => row.convert(conversion, dst, a),
            Op::HalfOne { .. }
            | Op::HalfTwo { .. }
            | Op::HalfFma { .. }
            | Op::ConvertPair { .. } => row.half(&inst.op, launch.options.approximation),
            Op::Testp { wide, class, dst, a } => {
                let lanes = row.test_class(wide, class, a);
                row.registers.set_predicate(dst, mask, lanes);
            }
            Op::Special { dst, which } => {
                let values = self.special(which, memory, launch);
                self.registers.set_any(dst, mask, &values);
            }
            Op::Pack { dst, parts, part_bits } => {
                let mut whole = [0u64; LANES];
                for (i, &part) in program.sources(parts).iter().enumerate() {
                    let part = row.registers.any(constants, part);
                    for lane in 0..LANES {
                        whole[lane] |= part[lane] << (i as u32 * u32::from(part_bits));
                    }
                }
                row.registers.set_any(dst, mask, &whole);
            }
            Op::Unpack { parts, a, part_bits } => {
                let whole = row.registers.any(constants, a);
                for (i, &part) in program.results(parts).iter().enumerate() {
                    let shift = i as u32 * u32::from(part_bits);
                    row.registers.set_any(part, mask, &whole.map(|bits| bits >> shift));
                }
            }
            Op::Bfi { wide, dst, parts } => row.bfi(wide, dst, program.sources(parts)),
            Op::Atomic { .. } => self.atomic(&inst.op, mask, memory, launch)?,
            Op::Cvta { dst, a, space, to_space } => {
                self.cvta(dst, a, space, to_space, mask, launch)
            }
            Op::IsSpace { space, dst, a } => self.is_space(space, dst, a, mask, launch),
            Op::AsyncCopy { .. } => self.async_copy(&inst.op, mask, memory, launch)?,
            Op::AsyncCommit => self.copies.commit(mask),
            Op::AsyncWait { pending, all } => {
                self.async_wait(pending, all, mask, memory)?;
            }
            Op::Fence => std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst),
            Op::Nop => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Runs an instruction that concerns the warp's course or several lanes; moves the program
    /// counter.
    fn control(
        &mut self,
        inst: &Inst,
        mask: u32,
        memory: &mut BlockMemory,
        launch: &Launch<'_>,
    ) -> Result<Option<Stop>, Box<Trouble>> {
        let program = launch.program;
        match inst.op {
            Op::Branch { target } => {
                if mask == self.active {
                    self.pc = target;
                } else {
                    self.leave(mask, target);
                    self.pc += 1;
                }
            }
            Op::BranchIndexed { index, targets } => {
                let index = self.registers.words(&program.constants, index);
                let targets = program.branch_targets(targets);
                for lane in lanes(mask) {
                    let Some(&target) = targets.get(index[lane as usize] as usize) else {
                        let detail = format!(
                            "index {} into {} branch targets",
                            index[lane as usize],
                            targets.len()
                        );
                        return Err(Trouble::new(FaultKind::InvalidOperand, lane, detail));
                    };
                    self.leave(1 << lane, target);
                }
                self.pc += 1;
            }
            Op::Exit => self.exit(mask, program)?,
            Op::Trap => {
                let lane = mask.trailing_zeros();
                return Err(Trouble::new(FaultKind::Trap, lane, "the kernel gave up"));
            }
            Op::Barrier { id, n_threads, action } => {
                return self.barrier(id, n_threads, action, mask, memory, launch);
            }
            Op::WarpSync { members } => {
                if self.gather(members, mask, program)? {
                    memory.shadow.synchronise_warp(self.index);
                    self.pc += 1;
                }
            }
            _ => {
                if self.collective(&inst.op, mask, program)? {
                    self.pc += 1;
                }
            }
        }
        Ok(None)
    }

    fn special(&self, which: Special, memory: &BlockMemory, launch: &Launch<'_>) -> [u64; LANES] {
        let config = &launch.config;
        let block = memory.block;
        let uniform = |value: u32| [u64::from(value); LANES];
        let lane = |f: fn(u32) -> u32| std::array::from_fn(|lane| u64::from(f(lane as u32)));
        let clusters = |axis: usize| (block[axis] / config.cluster[axis], config.cluster[axis]);
        match which {
            Special::Tid(axis) => std::array::from_fn(|lane| {
                let thread = launch.thread(self.index * 32 + lane as u32);
                u64::from(thread[usize::from(axis)])
            }),
            Special::Ntid(axis) => uniform(config.block[usize::from(axis)]),
            Special::Ctaid(axis) => uniform(block[usize::from(axis)]),
            Special::Nctaid(axis) => uniform(config.grid[usize::from(axis)]),
            Special::ClusterCtaid(axis) => {
                uniform(block[usize::from(axis)] % config.cluster[usize::from(axis)])
            }
            Special::ClusterNctaid(axis) => uniform(config.cluster[usize::from(axis)]),
            Special::Clusterid(axis) => uniform(clusters(usize::from(axis)).0),
            Special::Nclusterid(axis) => {
                let axis = usize::from(axis);
                uniform(config.grid[axis] / config.cluster[axis])
            }
            Special::ClusterCtarank => {
                let inside = |axis: usize| block[axis] % config.cluster[axis];
                let row = inside(2) * config.cluster[1] + inside(1);
                uniform(row * config.cluster[0] + inside(0))
            }
            Special::ClusterNctarank => uniform(config.cluster.iter().product()),
            Special::Laneid => lane(|lane| lane),
            Special::Warpid => uniform(self.index),
            Special::Nwarpid => uniform(launch.n_threads().div_ceil(32)),
            Special::Zero => uniform(0),
            Special::Nsmid => uniform(launch.n_multiprocessors),
            Special::LanemaskEq => lane(|lane| 1 << lane),
            Special::LanemaskLe => lane(|lane| u32::MAX >> (31 - lane)),
            Special::LanemaskLt => lane(|lane| (1 << lane) - 1),
            Special::LanemaskGe => lane(|lane| u32::MAX << lane),
            Special::LanemaskGt => lane(|lane| (u32::MAX << lane) << 1),
            Special::Clock => [self.n_executed; LANES],
            Special::DynamicSharedBytes => uniform(config.shared_bytes),
            Special::TotalSharedBytes => {
                uniform(config.shared_bytes + launch.program.static_shared_bytes)
            }
        }
    }

    #[cold]
    fn check_registers(&mut self, program: &Program, mask: u32) -> Result<(), Box<Trouble>> {
        let checks = &program.register_checks;
        let Ok(index) = checks.binary_search_by_key(&self.pc, |check| check.pc) else {
            return Ok(());
        };
        for &register in &checks[index].reads {
            let missing = mask & !self.initialised[register as usize];
            if missing != 0 {
                let name = &program.tracked_registers[register as usize];
                let detail = format!("register `{name}` has not been written");
                let lane = missing.trailing_zeros();
                return Err(Trouble::new(FaultKind::Uninitialised, lane, detail));
            }
        }
        for &register in &checks[index].writes {
            self.initialised[register as usize] |= mask;
        }
        Ok(())
    }

    /// Sends active lanes to wait somewhere else.
    fn leave(&mut self, mask: u32, pc: u32) {
        for lane in lanes(mask) {
            self.lane_pc[lane as usize] = pc;
        }
        self.active &= !mask;
        self.waiting |= mask;
        self.next_meet = self.next_meet.min(pc);
    }

    /// Takes in lanes that wait here, or lets those run that are behind.
    #[cold]
    fn meet(&mut self) {
        let here = self.pc;
        let least = lanes(self.waiting).map(|lane| self.lane_pc[lane as usize]).min();
        if let Some(least) = least
            && least < here
        {
            self.leave(self.active, here);
            self.pc = least;
        }
        let at_pc = self.lanes_at(self.waiting | self.parked, self.pc);
        self.active |= at_pc;
        self.waiting &= !at_pc;
        self.parked &= !at_pc;
        self.find_next_meet();
    }

    fn lanes_at(&self, mask: u32, pc: u32) -> u32 {
        lanes(mask)
            .filter(|&lane| self.lane_pc[lane as usize] == pc)
            .fold(0, |found, lane| found | 1 << lane)
    }

    fn find_next_meet(&mut self) {
        let others = self.waiting | self.parked;
        self.next_meet =
            lanes(others).map(|lane| self.lane_pc[lane as usize]).min().unwrap_or(u32::MAX);
    }

    /// Makes waiting lanes active; false when all lanes have exited.
    fn resume(&mut self, program: &Program) -> Result<bool, Box<Trouble>> {
        if self.live == 0 {
            return Ok(false);
        }
        if self.waiting == 0 {
            return Err(self.stuck(program));
        }
        let least = lanes(self.waiting).map(|lane| self.lane_pc[lane as usize]).min();
        self.pc = least.unwrap_or(0);
        self.active = self.lanes_at(self.waiting | self.parked, self.pc);
        self.waiting &= !self.active;
        self.parked &= !self.active;
        self.find_next_meet();
        Ok(true)
    }

    /// All lanes are parked, at different instructions.
    fn stuck(&self, program: &Program) -> Box<Trouble> {
        let lane = self.parked.trailing_zeros();
        let pc = self.lane_pc[lane as usize];
        let others = self.parked & !self.lanes_at(self.parked, pc);
        let detail = match others {
            0 => "lanes named in the mask never come here".to_owned(),
            others => {
                let other = others.trailing_zeros();
                let line = program.code[self.lane_pc[other as usize] as usize].line;
                format!("lane {other} of the same warp waits at line {line} instead")
            }
        };
        Trouble::at(FaultKind::DivergentBarrier, lane, pc, detail)
    }

    fn exit(&mut self, mask: u32, program: &Program) -> Result<(), Box<Trouble>> {
        let unexcused = mask & !self.excused;
        let at_barrier = lanes(self.parked).find(|&lane| {
            let pc = self.lane_pc[lane as usize];
            matches!(program.code[pc as usize].op, Op::Barrier { .. })
        });
        if let Some(lane) = at_barrier
            && unexcused != 0
        {
            let pc = self.lane_pc[lane as usize];
            let gone = unexcused.trailing_zeros();
            let detail = format!("lane {gone} of the same warp exits without coming here");
            return Err(Trouble::at(FaultKind::DivergentBarrier, lane, pc, detail));
        }
        self.live &= !mask;
        self.active &= !mask;
        // Those that wait for exited lanes need not any more.
        self.waiting |= self.parked;
        self.parked = 0;
        if self.active != 0 {
            self.pc += 1;
        }
        self.find_next_meet();
        Ok(())
    }

    /// Parks the lanes of `mask` here; the other active ones go on behind the instruction.
    fn park(&mut self, mask: u32) {
        let here = self.pc;
        let rest = self.active & !mask;
        self.leave(mask, here);
        self.waiting &= !mask;
        self.parked |= mask;
        if rest != 0 {
            self.leave(rest, here + 1);
        }
        self.active = 0;
        self.find_next_meet();
    }

    /// Whether all lanes that `members` names are here; parks those that are if not.
    pub(super) fn gather(
        &mut self,
        members: Src,
        mask: u32,
        program: &Program,
    ) -> Result<bool, Box<Trouble>> {
        let members = self.registers.words(&program.constants, members);
        let first = mask.trailing_zeros();
        let named = members[first as usize];
        for lane in lanes(mask) {
            if members[lane as usize] >> lane & 1 == 0 {
                let detail =
                    format!("the mask {:#010x} leaves out its own lane", members[lane as usize]);
                return Err(Trouble::new(FaultKind::InvalidOperand, lane, detail));
            }
            if members[lane as usize] != named {
                let detail = format!(
                    "the mask is {:#010x} here and {named:#010x} in lane {first}",
                    members[lane as usize]
                );
                return Err(Trouble::new(FaultKind::InvalidOperand, lane, detail));
            }
        }
        if named & self.live & !mask != 0 {
            self.park(mask);
            return Ok(false);
        }
        Ok(true)
    }

    fn barrier(
        &mut self,
        id: Src,
        n_threads: Option<Src>,
        action: BarrierAction,
        mask: u32,
        memory: &mut BlockMemory,
        launch: &Launch<'_>,
    ) -> Result<Option<Stop>, Box<Trouble>> {
        let missing = self.live & !mask;
        if missing != 0 {
            self.excuse(missing, mask, memory, launch.program)?;
            self.park(mask);
            return Ok(None);
        }
        let constants = &launch.program.constants;
        let lane = mask.trailing_zeros();
        let id = self.registers.words(constants, id)[lane as usize];
        let n_threads = n_threads.map(|n| self.registers.words(constants, n)[lane as usize]);
        if id > 15 || n_threads.is_some_and(|n| n == 0 || !n.is_multiple_of(32)) {
            let detail = format!("barrier {id} with {n_threads:?} threads");
            return Err(Trouble::new(FaultKind::InvalidOperand, lane, detail));
        }
        let predicate = match action {
            BarrierAction::Popc(_, p) | BarrierAction::Combine(_, _, p) => {
                self.registers.predicate(p)
            }
            _ => 0,
        };
        Ok(Some(Stop::Barrier(Arrival { id, n_threads, mask, action, predicate })))
    }

    /// Lanes that are missing at a barrier must be able to come to it, or be about to exit.
    fn excuse(
        &mut self,
        missing: u32,
        mask: u32,
        memory: &mut BlockMemory,
        program: &Program,
    ) -> Result<(), Box<Trouble>> {
        for lane in lanes(missing) {
            let pc = if self.active >> lane & 1 != 0 {
                self.pc + 1
            } else {
                self.lane_pc[lane as usize]
            };
            if matches!(program.code[pc as usize].op, Op::Exit) {
                self.excused |= 1 << lane;
            } else if !memory.reaches(program, pc, self.pc) {
                let line = program.code[pc as usize].line;
                let detail = format!(
                    "lane {lane} of the same warp is at line {line} and cannot come here any more"
                );
                let first = mask.trailing_zeros();
                return Err(Trouble::new(FaultKind::DivergentBarrier, first, detail));
            }
        }
        Ok(())
    }
}
