//! Control flow and barriers (PTX ISA sections 9.7.12 and 9.7.13.1).

use super::super::parse::{Operand, ParseResult, Type};
use super::super::program::{BarrierAction, BoolOp, List, Op};
use super::{Decoder, Opcode};

impl Decoder<'_> {
    pub(super) fn control(&mut self, opcode: &mut Opcode<'_>) -> ParseResult<Op> {
        match opcode.name {
            "bra" => {
                opcode.take("uni");
                self.arity(opcode, &[1])?;
                Ok(Op::Branch { target: self.label(&opcode.operands[0])? })
            }
            "brx" => self.branch_indexed(opcode),
            "ret" | "exit" => {
                opcode.take("uni");
                Ok(Op::Exit)
            }
            "trap" => Ok(Op::Trap),
            "bar" | "barrier" => self.barrier(opcode),
            // Timing and occupancy hints; launches run one after the other here, so dependent
            // launches have nothing to wait for.
            _ => {
                while opcode.take_map(|_| Some(())).is_some() {}
                Ok(Op::Nop)
            }
        }
    }

    fn branch_indexed(&mut self, opcode: &mut Opcode<'_>) -> ParseResult<Op> {
        self.arity(opcode, &[2])?;
        opcode.take("uni");
        if !opcode.take("idx") {
            return self.error("`brx` is supported as `brx.idx` only");
        }
        let index = self.src32(&opcode.operands[0])?;
        let Operand::Symbol(name, 0) = &opcode.operands[1] else {
            return self.error("the second operand must be a list of labels");
        };
        let kernel = self.kernel;
        let labels = self.find_in_scopes(name, |key| kernel.branch_targets.get(key))?;
        let start = self.targets.len() as u32;
        for label in labels {
            let target = self.label(&Operand::Symbol(label.clone(), 0))?;
            self.targets.push(target);
        }
        Ok(Op::BranchIndexed { index, targets: List { start, count: labels.len() as u32 } })
    }

    fn barrier(&mut self, opcode: &mut Opcode<'_>) -> ParseResult<Op> {
        if opcode.take("warp") {
            self.arity(opcode, &[1])?;
            if !opcode.take("sync") {
                return self.error("`bar.warp` is supported as `bar.warp.sync` only");
            }
            return Ok(Op::WarpSync { members: self.src32(&opcode.operands[0])? });
        }
        opcode.take("cta");
        opcode.take("aligned");
        if opcode.take("red") {
            return self.reducing_barrier(opcode);
        }
        let action = match opcode.take_any(&["sync", "arrive"]) {
            Some("sync") => BarrierAction::Sync,
            Some(_) => BarrierAction::Arrive,
            None => return self.error("the emulator does not have this barrier"),
        };
        self.arity(opcode, if action == BarrierAction::Sync { &[1, 2] } else { &[2] })?;
        let id = self.src32(&opcode.operands[0])?;
        let n_threads = match opcode.operands.get(1) {
            Some(operand) => Some(self.src32(operand)?),
            None => None,
        };
        Ok(Op::Barrier { id, n_threads, action })
    }

    fn reducing_barrier(&mut self, opcode: &mut Opcode<'_>) -> ParseResult<Op> {
        self.arity(opcode, &[3, 4])?;
        let operation = opcode.take_any(&["popc", "and", "or"]);
        let ty = opcode.take_type();
        let operands = opcode.operands;
        let id = self.src32(&operands[1])?;
        let n_threads = if operands.len() == 4 { Some(self.src32(&operands[2])?) } else { None };
        let p = self.predicate(&operands[operands.len() - 1])?;
        let action = match (operation, ty) {
            (Some("popc"), Some(Type::U32)) => {
                BarrierAction::Popc(self.dst(&operands[0], Type::U32)?, p)
            }
            (Some("and"), Some(Type::Pred)) => {
                BarrierAction::Combine(BoolOp::And, self.dst_predicate(&operands[0])?, p)
            }
            (Some("or"), Some(Type::Pred)) => {
                BarrierAction::Combine(BoolOp::Or, self.dst_predicate(&operands[0])?, p)
            }
            _ => return self.error("the emulator does not have this reducing barrier"),
        };
        Ok(Op::Barrier { id, n_threads, action })
    }
}
