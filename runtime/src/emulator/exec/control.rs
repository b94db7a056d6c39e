//! The course of a warp: branches, lanes that part and meet again, and barriers.

use super::super::program::{BarrierAction, Inst, Op, Program, Src};
use super::block::BlockMemory;
use super::warp::{Arrival, Stop, Warp};
use super::{Launch, Trouble, lanes};
use crate::error::FaultKind;

impl Warp {
    /// Runs an instruction that concerns the warp's course or several lanes; moves the program
    /// counter.
    pub(super) fn control(
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
            Op::Wgmma { index } => {
                let product = program.async_products[index as usize];
                if self.gather(product.members, mask, program)? {
                    self.multiply_shared(&product, mask, memory, launch)?;
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

    /// Sends active lanes to wait somewhere else.
    pub(super) fn leave(&mut self, mask: u32, pc: u32) {
        for lane in lanes(mask) {
            self.lane_pc[lane as usize] = pc;
        }
        self.active &= !mask;
        self.waiting |= mask;
        self.next_meet = self.next_meet.min(pc);
    }

    /// Takes in lanes that wait here, or lets those run that are behind.
    #[cold]
    pub(super) fn meet(&mut self) {
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
    pub(super) fn resume(&mut self, program: &Program) -> Result<bool, Box<Trouble>> {
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
