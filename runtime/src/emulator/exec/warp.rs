//! A warp: 32 lanes, of which a group at a time runs.
//!
//! Lanes that have gone different ways wait at program counters of their own; the group at the
//! least one runs, and takes in the others when it comes to where they wait. For code laid out
//! by a compiler that is where paths meet again. A group that comes to a barrier or another
//! instruction of the whole warp without all lanes named there is parked until they come.

use super::super::program::{BarrierAction, Inst, Op, PredSrc, Program, RegisterCheck};
use super::async_copy::AsyncCopies;
use super::block::BlockMemory;
use super::matrix::AsyncProducts;
use super::registers::{LANES, Registers, Row, row_of};
use super::{Launch, Trouble};
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
    /// Asynchronous products under way.
    pub(crate) products: AsyncProducts,
    /// Instructions run.
    pub(crate) n_executed: u64,
    carry: u32,
    /// Where each lane that is not active is.
    pub(super) lane_pc: [u32; LANES],
    /// Lanes that can run.
    pub(super) waiting: u32,
    /// Lanes that stand at an instruction which needs more lanes.
    pub(super) parked: u32,
    /// Lanes that may exit although others of the warp are parked at a barrier.
    pub(super) excused: u32,
    /// The least program counter of waiting and parked lanes.
    pub(super) next_meet: u32,
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
        self.products = AsyncProducts::default();
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
            | Op::IntPair { .. }
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
            | Op::SetpPair { .. }
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
                    row.registers.set_any(part, mask, &row_of(|lane| whole[lane] >> shift));
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
            Op::WgmmaCommit => self.products.commit(),
            Op::WgmmaWait { pending } => self.products.wait(pending, &mut memory.shadow),
            Op::ProxyFence => memory.shadow.fence_proxy(self.index),
            Op::Fence => std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst),
            Op::Nop => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    #[cold]
    fn check_registers(&mut self, program: &Program, mask: u32) -> Result<(), Box<Trouble>> {
        let checks = &program.register_checks;
        let Ok(index) = checks.binary_search_by_key(&self.pc, |check| check.pc) else {
            return Ok(());
        };
        let RegisterCheck { reads, guard, writes, .. } = &checks[index];
        for &register in reads {
            // The guard is read in all lanes, the operands where it holds.
            let reading = if *guard == Some(register) { self.active } else { mask };
            let missing = reading & !self.initialised[register as usize];
            if missing != 0 {
                let name = &program.tracked_registers[register as usize];
                let detail = format!("register `{name}` has not been written");
                let lane = missing.trailing_zeros();
                return Err(Trouble::new(FaultKind::Uninitialised, lane, detail));
            }
        }
        for &register in writes {
            self.initialised[register as usize] |= mask;
        }
        Ok(())
    }
}
