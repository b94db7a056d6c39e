//! Integer, logic and shift instructions (PTX ISA sections 9.7.1, 9.7.2 and 9.7.8).

use super::super::parse::Operand;
use super::super::parse::{ParseResult, RegisterClass, Type};
use super::super::program::{AnySrc, BoolOp, CountOp, IntOp1, IntOp2, IntOp3, IntType, Op};
use super::{Decoder, Opcode};

impl Decoder<'_> {
    pub(super) fn integer(&mut self, opcode: &mut Opcode<'_>) -> ParseResult<Op> {
        if matches!(opcode.name, "add" | "sub") && opcode.take("cc") {
            return self.carry_op(opcode, opcode.name == "sub", false, true);
        }
        match opcode.name {
            "mul" | "mad" => self.multiply(opcode),
            "addc" | "subc" => self.carry(opcode),
            "and" | "or" | "xor" | "not" => self.logic(opcode),
            "popc" | "clz" | "bfind" => self.count(opcode),
            "bfi" | "bmsk" | "szext" | "prmt" | "shf" | "lop3" | "dp4a" | "dp2a" => {
                self.bits(opcode)
            }
            "mad24" | "sad" | "bfe" => self.three(opcode),
            "neg" | "abs" | "cnot" | "brev" => {
                let (ty, int) = self.int_type(opcode)?;
                let op = match opcode.name {
                    "neg" => IntOp1::Neg,
                    "abs" => IntOp1::Abs,
                    "cnot" => IntOp1::Cnot,
                    _ => IntOp1::Brev,
                };
                self.int1(opcode, op, ty, int)
            }
            _ => self.two(opcode),
        }
    }

    fn int_type(&self, opcode: &mut Opcode<'_>) -> ParseResult<(Type, IntType)> {
        match opcode.take_type().and_then(|ty| Some((ty, IntType::of(ty)?))) {
            Some(found) => Ok(found),
            None => self.error(format!("`{}` needs an integer type", opcode.name)),
        }
    }

    fn int1(&mut self, opcode: &Opcode<'_>, op: IntOp1, ty: Type, int: IntType) -> ParseResult<Op> {
        self.arity(opcode, &[2])?;
        let a = self.src(&opcode.operands[1], ty)?;
        Ok(Op::Int1 { op, ty: int, dst: self.dst(&opcode.operands[0], ty)?, a })
    }

    fn two(&mut self, opcode: &mut Opcode<'_>) -> ParseResult<Op> {
        self.arity(opcode, &[3])?;
        let (saturate, relu) = (opcode.take("sat"), opcode.take("relu"));
        if opcode.name == "mul24" && !opcode.take("lo") {
            return self.error("`mul24` is supported as `mul24.lo` only");
        }
        if let Some(signed) = opcode.take_map(|part| match part {
            "u16x2" => Some(false),
            "s16x2" => Some(true),
            _ => None,
        }) {
            return self.pairs(opcode, signed, saturate, relu);
        }
        let (ty, int) = self.int_type(opcode)?;
        if saturate && int != IntType::S32 {
            return self.error("`.sat` needs the type `.s32`");
        }
        if relu && int != IntType::S32 {
            return self.error("`.relu` needs the type `.s32` or `.s16x2`");
        }
        let op = match opcode.name {
            "min" if relu => IntOp2::MinRelu,
            "max" if relu => IntOp2::MaxRelu,
            _ if relu => return self.error("`.relu` goes with `min` and `max`"),
            "add" if saturate => IntOp2::AddSat,
            "sub" if saturate => IntOp2::SubSat,
            "add" => IntOp2::Add,
            "sub" => IntOp2::Sub,
            "div" => IntOp2::Div,
            "rem" => IntOp2::Rem,
            "min" => IntOp2::Min,
            "max" => IntOp2::Max,
            "shl" => IntOp2::Shl,
            "shr" => IntOp2::Shr,
            "mul24" => IntOp2::Mul24,
            name => return self.error(format!("`{name}` has no integer form")),
        };
        let a = self.src(&opcode.operands[1], ty)?;
        // Shift amounts are 32 bits whatever is shifted.
        let b_type = if matches!(op, IntOp2::Shl | IntOp2::Shr) { Type::U32 } else { ty };
        let b = self.src(&opcode.operands[2], b_type)?;
        Ok(Op::Int2 { op, ty: int, dst: self.dst(&opcode.operands[0], ty)?, a, b })
    }

    /// Operations on pairs of 16-bit integers, which `sm_90` has (PTX ISA sections 9.7.1.1, 9.7.1.10
    /// and 9.7.1.11).
    fn pairs(
        &mut self,
        opcode: &Opcode<'_>,
        signed: bool,
        saturate: bool,
        relu: bool,
    ) -> ParseResult<Op> {
        let op = match (opcode.name, saturate, relu) {
            ("add", false, false) => IntOp2::Add,
            ("min", false, _) if signed || !relu => IntOp2::Min,
            ("max", false, _) if signed || !relu => IntOp2::Max,
            (name, ..) => {
                return self
                    .error(format!("`{name}` has no such form for pairs of 16-bit integers"));
            }
        };
        let a = self.src32(&opcode.operands[1])?;
        let b = self.src32(&opcode.operands[2])?;
        let dst = self.dst(&opcode.operands[0], Type::B32)?;
        Ok(Op::IntPair { op, signed, relu, dst, a, b })
    }

    fn multiply(&mut self, opcode: &mut Opcode<'_>) -> ParseResult<Op> {
        let part = opcode.take_any(&["lo", "hi", "wide"]);
        let (ty, int) = self.int_type(opcode)?;
        let is_mad = opcode.name == "mad";
        self.arity(opcode, &[if is_mad { 4 } else { 3 }])?;
        let wide = match (part, ty) {
            (Some("wide"), Type::U16) => Some(Type::U32),
            (Some("wide"), Type::S16) => Some(Type::S32),
            (Some("wide"), Type::U32) => Some(Type::U64),
            (Some("wide"), Type::S32) => Some(Type::S64),
            (Some("wide"), _) => return self.error("`.wide` needs a 16- or 32-bit type"),
            _ => None,
        };
        let a = self.src(&opcode.operands[1], ty)?;
        let b = self.src(&opcode.operands[2], ty)?;
        let result = wide.unwrap_or(ty);
        let c = if is_mad { Some(self.src(&opcode.operands[3], result)?) } else { None };
        let dst = self.dst(&opcode.operands[0], result)?;
        Ok(match (part, c) {
            (Some("wide"), None) => Op::MulWide { ty: int, dst, a, b },
            (Some("wide"), Some(c)) => Op::MadWide { ty: int, dst, a, b, c },
            (Some("lo"), None) => Op::Int2 { op: IntOp2::MulLo, ty: int, dst, a, b },
            (Some("hi"), None) => Op::Int2 { op: IntOp2::MulHi, ty: int, dst, a, b },
            (Some("lo"), Some(c)) => Op::Int3 { op: IntOp3::MadLo, ty: int, dst, a, b, c },
            (Some("hi"), Some(c)) => Op::Int3 { op: IntOp3::MadHi, ty: int, dst, a, b, c },
            _ => return self.error("an integer product needs `.lo`, `.hi` or `.wide`"),
        })
    }

    fn carry(&mut self, opcode: &mut Opcode<'_>) -> ParseResult<Op> {
        let carry_out = opcode.take("cc");
        self.carry_op(opcode, opcode.name == "subc", true, carry_out)
    }

    fn carry_op(
        &mut self,
        opcode: &mut Opcode<'_>,
        subtract: bool,
        carry_in: bool,
        carry_out: bool,
    ) -> ParseResult<Op> {
        self.arity(opcode, &[3])?;
        let (ty, int) = self.int_type(opcode)?;
        if int.n_bits() < 32 {
            return self.error("the carry flag needs a 32- or 64-bit type");
        }
        let a = self.src(&opcode.operands[1], ty)?;
        let b = self.src(&opcode.operands[2], ty)?;
        let dst = self.dst(&opcode.operands[0], ty)?;
        Ok(Op::Carry { subtract, carry_in, carry_out, wide: int.is_wide(), dst, a, b })
    }

    fn logic(&mut self, opcode: &mut Opcode<'_>) -> ParseResult<Op> {
        let Some(ty) = opcode.take_type() else {
            return self.error(format!("`{}` needs a type", opcode.name));
        };
        let is_not = opcode.name == "not";
        self.arity(opcode, &[if is_not { 2 } else { 3 }])?;
        if ty == Type::Pred {
            let a = self.predicate(&opcode.operands[1])?;
            if is_not {
                return Ok(Op::NotPred { dst: self.dst_predicate(&opcode.operands[0])?, a });
            }
            let b = self.predicate(&opcode.operands[2])?;
            let op = match opcode.name {
                "and" => BoolOp::And,
                "or" => BoolOp::Or,
                _ => BoolOp::Xor,
            };
            return Ok(Op::BoolPred { op, dst: self.dst_predicate(&opcode.operands[0])?, a, b });
        }
        let Some(int) = IntType::of(ty) else {
            return self.error(format!("`{}` needs a type of bits", opcode.name));
        };
        if is_not {
            return self.int1(opcode, IntOp1::Not, ty, int);
        }
        let op = match opcode.name {
            "and" => IntOp2::And,
            "or" => IntOp2::Or,
            _ => IntOp2::Xor,
        };
        let a = self.src(&opcode.operands[1], ty)?;
        let b = self.src(&opcode.operands[2], ty)?;
        Ok(Op::Int2 { op, ty: int, dst: self.dst(&opcode.operands[0], ty)?, a, b })
    }

    fn count(&mut self, opcode: &mut Opcode<'_>) -> ParseResult<Op> {
        self.arity(opcode, &[2])?;
        let shift = opcode.take("shiftamt");
        let (ty, int) = self.int_type(opcode)?;
        let op = match opcode.name {
            "popc" => CountOp::Popc,
            "clz" => CountOp::Clz,
            _ if shift => CountOp::BfindShift,
            _ => CountOp::Bfind,
        };
        let a = self.src(&opcode.operands[1], ty)?;
        Ok(Op::Count { op, ty: int, dst: self.dst(&opcode.operands[0], Type::U32)?, a })
    }

    fn three(&mut self, opcode: &mut Opcode<'_>) -> ParseResult<Op> {
        self.arity(opcode, &[4])?;
        let (ty, int) = self.int_type(opcode)?;
        let op = match opcode.name {
            "sad" => IntOp3::Sad,
            "bfe" => IntOp3::Bfe,
            name => return self.error(format!("the emulator has no instruction `{name}`")),
        };
        let rest = if op == IntOp3::Bfe { Type::U32 } else { ty };
        let a = self.src(&opcode.operands[1], ty)?;
        let b = self.src(&opcode.operands[2], rest)?;
        let c = self.src(&opcode.operands[3], rest)?;
        Ok(Op::Int3 { op, ty: int, dst: self.dst(&opcode.operands[0], ty)?, a, b, c })
    }

    fn bits(&mut self, opcode: &mut Opcode<'_>) -> ParseResult<Op> {
        match opcode.name {
            "bfi" => self.bfi(opcode),
            "dp4a" | "dp2a" => self.dot(opcode),
            "bmsk" | "szext" => {
                self.arity(opcode, &[3])?;
                let wrap = opcode.take("wrap");
                if !wrap && !opcode.take("clamp") {
                    return self.error("`.clamp` or `.wrap` is missing");
                }
                let (_, int) = self.int_type(opcode)?;
                let a = self.src32(&opcode.operands[1])?;
                let b = self.src32(&opcode.operands[2])?;
                let dst = self.dst(&opcode.operands[0], Type::B32)?;
                Ok(if opcode.name == "bmsk" {
                    Op::Bmsk { wrap, dst, a, b }
                } else {
                    Op::Szext { signed: int == IntType::S32, wrap, dst, a, b }
                })
            }
            _ => self.bits3(opcode),
        }
    }

    fn bits3(&mut self, opcode: &mut Opcode<'_>) -> ParseResult<Op> {
        let is_lop3 = opcode.name == "lop3";
        self.arity(opcode, &[if is_lop3 { 5 } else { 4 }])?;
        let direction = opcode.take_any(&["l", "r"]);
        let clamping = opcode.take_any(&["clamp", "wrap"]);
        let modes = ["f4e", "b4e", "rc8", "ecl", "ecr", "rc16"];
        let mode = opcode.take_any(&modes);
        if opcode.take_type() != Some(Type::B32) {
            return self.error(format!("`{}` needs the type `.b32`", opcode.name));
        }
        let a = self.src32(&opcode.operands[1])?;
        let b = self.src32(&opcode.operands[2])?;
        let c = self.src32(&opcode.operands[3])?;
        let dst = self.dst(&opcode.operands[0], Type::B32)?;
        match (opcode.name, direction, clamping) {
            ("lop3", None, None) => match &opcode.operands[4] {
                Operand::Integer(table @ 0..=255) => {
                    Ok(Op::Lop3 { table: *table as u8, dst, a, b, c })
                }
                _ => self.error("the table of `lop3` must be a number up to 255"),
            },
            ("prmt", None, None) => {
                let mode = mode.and_then(|mode| modes.iter().position(|&name| name == mode));
                Ok(Op::Prmt { mode: mode.map_or(0, |mode| mode as u8 + 1), dst, a, b, c })
            }
            ("shf", Some(direction), Some(clamping)) => {
                let (left, wrap) = (direction == "l", clamping == "wrap");
                Ok(Op::Shf { left, wrap, dst, a, b, c })
            }
            (name, ..) => self.error(format!("modifiers of `{name}` are missing or misplaced")),
        }
    }

    fn bfi(&mut self, opcode: &mut Opcode<'_>) -> ParseResult<Op> {
        self.arity(opcode, &[5])?;
        let (ty, int) = self.int_type(opcode)?;
        let parts: [AnySrc; 4] = [
            self.any_src(&opcode.operands[1], ty)?,
            self.any_src(&opcode.operands[2], ty)?,
            self.any_src(&opcode.operands[3], Type::U32)?,
            self.any_src(&opcode.operands[4], Type::U32)?,
        ];
        let dst = self.dst(&opcode.operands[0], ty)?;
        Ok(Op::Bfi { wide: int.is_wide(), dst, parts: self.src_list(&parts) })
    }

    fn dot(&mut self, opcode: &mut Opcode<'_>) -> ParseResult<Op> {
        self.arity(opcode, &[4])?;
        let high = opcode.take("hi");
        let low = opcode.take("lo");
        let (Some(a_type), Some(b_type)) = (opcode.take_type(), opcode.take_type()) else {
            return self.error(format!("`{}` needs two types", opcode.name));
        };
        let a = self.src32(&opcode.operands[1])?;
        let b = self.src32(&opcode.operands[2])?;
        let c = self.src32(&opcode.operands[3])?;
        let dst = self.dst(&opcode.operands[0], Type::B32)?;
        let (signed_a, signed_b) = (a_type == Type::S32, b_type == Type::S32);
        Ok(if opcode.name == "dp4a" {
            Op::Dp4a { signed_a, signed_b, dst, a, b, c }
        } else if high || low {
            Op::Dp2a { signed_a, signed_b, high, dst, a, b, c }
        } else {
            return self.error("`dp2a` needs `.lo` or `.hi`");
        })
    }

    /// Width of a register operand in bits, if it is one.
    pub(super) fn register_bits(&self, operand: &Operand) -> Option<u32> {
        match operand {
            Operand::Register(register) => {
                let class: RegisterClass = self.kernel.registers[register.0 as usize];
                Some(class.n_bits())
            }
            _ => None,
        }
    }
}
