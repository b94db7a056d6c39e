//! Exchanges between the lanes of a warp.

use super::super::program::{Dst, IntType, Op, Program, ReduxOp, ShuffleMode, Slot, Src, VoteMode};
use super::registers::LANES;
use super::warp::Warp;
use super::{Trouble, lanes};
use crate::error::FaultKind;

impl Warp {
    /// Runs an instruction of several lanes once all lanes that it names are here; false if they
    /// are not.
    pub(super) fn collective(
        &mut self,
        op: &Op,
        mask: u32,
        program: &Program,
    ) -> Result<bool, Box<Trouble>> {
        if let Op::Activemask { dst } = *op {
            self.registers.set_words(dst, mask, &[mask; LANES]);
            return Ok(true);
        }
        let members = match *op {
            Op::Shuffle { members, .. }
            | Op::Vote { members, .. }
            | Op::Match { members, .. }
            | Op::Redux { members, .. }
            | Op::Elect { members, .. }
            | Op::Mma { members, .. } => members,
            _ => return Ok(true),
        };
        if !self.gather(members, mask, program)? {
            return Ok(false);
        }
        let constants = &program.constants;
        match *op {
            Op::Shuffle { mode, dst, ok, a, b, c, .. } => {
                self.shuffle(mode, (dst, ok), (a, b, c), mask, constants)?;
            }
            Op::Vote { mode, dst, a, .. } => {
                let yes = self.registers.predicate(a) & mask;
                let holds = match mode {
                    VoteMode::All => yes == mask,
                    VoteMode::Any => yes != 0,
                    VoteMode::Uni => yes == mask || yes == 0,
                    VoteMode::Ballot => {
                        self.registers.set_words(dst, mask, &[yes; LANES]);
                        return Ok(true);
                    }
                };
                self.registers.set_predicate(dst, mask, if holds { u32::MAX } else { 0 });
            }
            Op::Match { all, ty, dst, ok, a, .. } => {
                let values = match ty {
                    IntType::U64 => self.registers.wides(constants, a),
                    _ => self.registers.words(constants, a).map(u64::from),
                };
                self.match_values(all, dst, ok, &values, mask);
            }
            Op::Redux { op, dst, a, .. } => {
                let values = self.registers.words(constants, a);
                let result = redux(op, lanes(mask).map(|lane| values[lane as usize]));
                self.registers.set_words(dst, mask, &[result; LANES]);
            }
            Op::Mma { factors, dst, operands, .. } => {
                self.multiply_matrices(factors, dst, operands, mask, program)?;
            }
            Op::Elect { dst, ok, .. } => {
                let leader = mask.trailing_zeros();
                if let Dst::Word(dst) = dst {
                    self.registers.set_words(dst, mask, &[leader; LANES]);
                }
                self.registers.set_predicate(ok, mask, 1 << leader);
            }
            _ => {}
        }
        Ok(true)
    }

    /// `shfl.sync` (PTX ISA section 9.7.9.6).
    fn shuffle(
        &mut self,
        mode: ShuffleMode,
        (dst, ok): (Slot, Option<Slot>),
        (a, b, c): (Src, Src, Src),
        mask: u32,
        constants: &[u64],
    ) -> Result<(), Box<Trouble>> {
        let a = self.registers.words(constants, a);
        let b = self.registers.words(constants, b);
        let c = self.registers.words(constants, c);
        let mut results = [0; LANES];
        let mut in_range = 0;
        for lane in lanes(mask) {
            let index = lane as usize;
            let offset = b[index] & 31;
            let clamp = c[index] & 31;
            let segment = c[index] >> 8 & 31;
            let last = lane & segment | clamp & !segment;
            let (source, ok) = match mode {
                ShuffleMode::Up => {
                    let source = lane as i32 - offset as i32;
                    (source, source >= last as i32)
                }
                ShuffleMode::Down => ((lane + offset) as i32, lane + offset <= last),
                ShuffleMode::Bfly => ((lane ^ offset) as i32, lane ^ offset <= last),
                ShuffleMode::Idx => {
                    let source = lane & segment | offset & !segment;
                    (source as i32, source <= last)
                }
            };
            let source = if ok { source as u32 & 31 } else { lane };
            if mask >> source & 1 == 0 {
                let detail = format!("lane {source} is read and takes no part");
                return Err(Trouble::new(FaultKind::InvalidOperand, lane, detail));
            }
            in_range |= u32::from(ok) << lane;
            results[index] = a[source as usize];
        }
        self.registers.set_words(dst, mask, &results);
        if let Some(slot) = ok {
            self.registers.set_predicate(slot, mask, in_range);
        }
        Ok(())
    }

    fn match_values(
        &mut self,
        all: bool,
        dst: Slot,
        ok: Option<Slot>,
        values: &[u64; LANES],
        mask: u32,
    ) {
        let equal_to = |value: u64| {
            lanes(mask)
                .filter(|&lane| values[lane as usize] == value)
                .fold(0, |found, lane| found | 1 << lane)
        };
        if all {
            let agree = equal_to(values[mask.trailing_zeros() as usize]) == mask;
            self.registers.set_words(dst, mask, &[if agree { mask } else { 0 }; LANES]);
            if let Some(slot) = ok {
                self.registers.set_predicate(slot, mask, if agree { u32::MAX } else { 0 });
            }
        } else {
            let mut results = [0; LANES];
            for lane in lanes(mask) {
                results[lane as usize] = equal_to(values[lane as usize]);
            }
            self.registers.set_words(dst, mask, &results);
        }
    }
}

fn redux(op: ReduxOp, values: impl Iterator<Item = u32>) -> u32 {
    let signed = |f: fn(i32, i32) -> i32| move |a: u32, b: u32| f(a as i32, b as i32) as u32;
    match op {
        ReduxOp::Add => values.fold(0, u32::wrapping_add),
        ReduxOp::MinU => values.fold(u32::MAX, u32::min),
        ReduxOp::MaxU => values.fold(0, u32::max),
        ReduxOp::MinS => values.fold(i32::MAX as u32, signed(i32::min)),
        ReduxOp::MaxS => values.fold(i32::MIN as u32, signed(i32::max)),
        ReduxOp::And => values.fold(u32::MAX, |a, b| a & b),
        ReduxOp::Or => values.fold(0, |a, b| a | b),
        ReduxOp::Xor => values.fold(0, |a, b| a ^ b),
    }
}
