//! Exchanges between the lanes of a warp (PTX ISA sections 9.7.9.6 and 9.7.13).

use super::super::parse::{Operand, ParseResult, Type};
use super::super::program::{IntType, Op, ReduxOp, ShuffleMode, Slot, VoteMode};
use super::{Decoder, Opcode};

impl Decoder<'_> {
    pub(super) fn warp(&mut self, opcode: &mut Opcode<'_>) -> ParseResult<Op> {
        if opcode.name == "activemask" {
            self.arity(opcode, &[1])?;
            opcode.take_type();
            return Ok(Op::Activemask { dst: self.dst(&opcode.operands[0], Type::B32)? });
        }
        if !opcode.take("sync") {
            return self.error(format!("`{}` is supported in its `.sync` form only", opcode.name));
        }
        match opcode.name {
            "shfl" => self.shuffle(opcode),
            "vote" => self.vote(opcode),
            "match" => self.match_lanes(opcode),
            "redux" => self.redux(opcode),
            _ => self.elect(opcode),
        }
    }

    fn optional_predicate(&mut self, operand: Option<&Operand>) -> ParseResult<Option<Slot>> {
        match operand {
            None | Some(Operand::Sink) => Ok(None),
            Some(operand) => Ok(Some(self.dst_predicate(operand)?)),
        }
    }

    fn shuffle(&mut self, opcode: &mut Opcode<'_>) -> ParseResult<Op> {
        self.arity(opcode, &[5])?;
        let mode = match opcode.take_any(&["up", "down", "bfly", "idx"]) {
            Some("up") => ShuffleMode::Up,
            Some("down") => ShuffleMode::Down,
            Some("bfly") => ShuffleMode::Bfly,
            Some(_) => ShuffleMode::Idx,
            None => return self.error("`shfl` needs a mode"),
        };
        if opcode.take_type() != Some(Type::B32) {
            return self.error("`shfl` needs the type `.b32`");
        }
        let a = self.src32(&opcode.operands[1])?;
        let b = self.src32(&opcode.operands[2])?;
        let c = self.src32(&opcode.operands[3])?;
        let members = self.src32(&opcode.operands[4])?;
        let (first, second) = self.pair(&opcode.operands[0]);
        let dst = self.dst(first, Type::B32)?;
        let ok = self.optional_predicate(second)?;
        Ok(Op::Shuffle { mode, dst, ok, a, b, c, members })
    }

    fn vote(&mut self, opcode: &mut Opcode<'_>) -> ParseResult<Op> {
        self.arity(opcode, &[3])?;
        let mode = match opcode.take_any(&["all", "any", "uni", "ballot"]) {
            Some("all") => VoteMode::All,
            Some("any") => VoteMode::Any,
            Some("uni") => VoteMode::Uni,
            Some(_) => VoteMode::Ballot,
            None => return self.error("`vote` needs a mode"),
        };
        opcode.take_type();
        let a = self.predicate(&opcode.operands[1])?;
        let members = self.src32(&opcode.operands[2])?;
        let dst = if mode == VoteMode::Ballot {
            self.dst(&opcode.operands[0], Type::B32)?
        } else {
            self.dst_predicate(&opcode.operands[0])?
        };
        Ok(Op::Vote { mode, dst, a, members })
    }

    fn match_lanes(&mut self, opcode: &mut Opcode<'_>) -> ParseResult<Op> {
        self.arity(opcode, &[3])?;
        let all = match opcode.take_any(&["any", "all"]) {
            Some(mode) => mode == "all",
            None => return self.error("`match` needs `.any` or `.all`"),
        };
        let (ty, int) = match opcode.take_type() {
            Some(Type::B32) => (Type::B32, IntType::U32),
            Some(Type::B64) => (Type::B64, IntType::U64),
            _ => return self.error("`match` needs the type `.b32` or `.b64`"),
        };
        let a = self.src(&opcode.operands[1], ty)?;
        let members = self.src32(&opcode.operands[2])?;
        let (first, second) = self.pair(&opcode.operands[0]);
        let dst = self.dst(first, Type::B32)?;
        let ok = self.optional_predicate(second)?;
        Ok(Op::Match { all, ty: int, dst, ok, a, members })
    }

    fn redux(&mut self, opcode: &mut Opcode<'_>) -> ParseResult<Op> {
        self.arity(opcode, &[3])?;
        let name = opcode.take_any(&["add", "min", "max", "and", "or", "xor"]);
        let op = match (name, opcode.take_type()) {
            (Some("add"), Some(Type::U32 | Type::S32)) => ReduxOp::Add,
            (Some("min"), Some(Type::U32)) => ReduxOp::MinU,
            (Some("max"), Some(Type::U32)) => ReduxOp::MaxU,
            (Some("min"), Some(Type::S32)) => ReduxOp::MinS,
            (Some("max"), Some(Type::S32)) => ReduxOp::MaxS,
            (Some("and"), Some(Type::B32)) => ReduxOp::And,
            (Some("or"), Some(Type::B32)) => ReduxOp::Or,
            (Some("xor"), Some(Type::B32)) => ReduxOp::Xor,
            _ => return self.error("the emulator does not have this form of `redux`"),
        };
        let a = self.src32(&opcode.operands[1])?;
        let members = self.src32(&opcode.operands[2])?;
        Ok(Op::Redux { op, dst: self.dst(&opcode.operands[0], Type::B32)?, a, members })
    }

    fn elect(&mut self, opcode: &mut Opcode<'_>) -> ParseResult<Op> {
        self.arity(opcode, &[2])?;
        let members = self.src32(&opcode.operands[1])?;
        let (first, second) = self.pair(&opcode.operands[0]);
        let Some(second) = second else {
            return self.error("`elect.sync` gives a register and a predicate");
        };
        let dst = self.any_dst(first, Type::B32)?;
        Ok(Op::Elect { dst, ok: self.dst_predicate(second)?, members })
    }
}
