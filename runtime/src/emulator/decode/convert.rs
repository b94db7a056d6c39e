//! Moves, conversions, comparisons and selections (PTX ISA sections 9.7.6, 9.7.7 and 9.7.9).

use super::super::parse::{Operand, ParseResult, Type};
use super::super::program::{
    BoolOp, Compare, CompareType, Conversion, Dst, FloatMode, FloatType, IntType, Op, PredSrc,
    Rounding,
};
use super::operand::special;
use super::{Decoder, Opcode};

impl Decoder<'_> {
    pub(super) fn convert(&mut self, opcode: &mut Opcode<'_>) -> ParseResult<Op> {
        match opcode.name {
            "mov" => self.mov(opcode),
            "cvt" => self.cvt(opcode),
            "setp" => self.setp(opcode),
            "set" => self.set(opcode),
            "selp" => self.selp(opcode),
            _ => self.slct(opcode),
        }
    }

    fn mov(&mut self, opcode: &mut Opcode<'_>) -> ParseResult<Op> {
        self.arity(opcode, &[2])?;
        let Some(ty) = opcode.take_type() else { return self.error("`mov` needs a type") };
        let (to, from) = (&opcode.operands[0], &opcode.operands[1]);
        if ty == Type::Pred {
            let a = self.predicate(from)?;
            return Ok(Op::MovPred { dst: self.dst_predicate(to)?, a });
        }
        if !matches!(ty.n_bytes(), 2 | 4 | 8) {
            return self.error("`mov` is supported for 16, 32 and 64 bits");
        }
        match (to, from) {
            (_, Operand::Special(name)) => {
                let Some(which) = special(name) else {
                    return self.error(format!("the emulator has no special register `{name}`"));
                };
                Ok(Op::Special { dst: self.loose_dst(to, Type::B16)?, which })
            }
            (Operand::Vector(parts), _) => self.unpack(parts, from, ty),
            (_, Operand::Vector(parts)) => self.pack(to, parts, ty),
            _ => {
                let a = self.src(from, ty)?;
                let dst = self.dst(to, ty)?;
                Ok(if ty.n_bytes() == 8 { Op::Mov64 { dst, a } } else { Op::Mov32 { dst, a } })
            }
        }
    }

    /// The type of a part when `ty` is split into `count` parts.
    fn part_type(&self, ty: Type, count: usize) -> ParseResult<Type> {
        match (ty.n_bytes(), count) {
            (4, 2) | (8, 4) => Ok(Type::B16),
            (8, 2) => Ok(Type::B32),
            _ => self.error(format!("{} bits cannot be split in {count}", ty.n_bytes() * 8)),
        }
    }

    fn pack(&mut self, to: &Operand, parts: &[Operand], ty: Type) -> ParseResult<Op> {
        let part = self.part_type(ty, parts.len())?;
        let mut sources = Vec::new();
        for operand in parts {
            sources.push(self.any_src(operand, part)?);
        }
        let dst = self.any_dst(to, ty)?;
        let part_bits = part.n_bytes() as u8 * 8;
        Ok(Op::Pack { dst, parts: self.src_list(&sources), part_bits })
    }

    fn unpack(&mut self, parts: &[Operand], from: &Operand, ty: Type) -> ParseResult<Op> {
        let part = self.part_type(ty, parts.len())?;
        let a = self.any_src(from, ty)?;
        let mut results: Vec<Dst> = Vec::new();
        for operand in parts {
            results.push(self.any_dst(operand, part)?);
        }
        let part_bits = part.n_bytes() as u8 * 8;
        Ok(Op::Unpack { parts: self.dst_list(&results), a, part_bits })
    }

    fn cvt(&mut self, opcode: &mut Opcode<'_>) -> ParseResult<Op> {
        let integral = opcode.take_map(|part| {
            Some(match part {
                "rni" => Rounding::Nearest,
                "rzi" => Rounding::Zero,
                "rmi" => Rounding::Down,
                "rpi" => Rounding::Up,
                _ => return None,
            })
        });
        let rounding = opcode.take_rounding();
        let (ftz, saturate, relu) = (opcode.take("ftz"), opcode.take("sat"), opcode.take("relu"));
        if opcode.take("tf32") {
            return self.cvt_tf32(opcode, rounding);
        }
        let (Some(to), Some(from)) = (opcode.take_type(), opcode.take_type()) else {
            return self.error("`cvt` needs two types");
        };
        if matches!(to, Type::F16x2 | Type::Bf16x2) {
            let mode =
                FloatMode { rounding: rounding.unwrap_or(Rounding::Nearest), ftz, saturate, relu };
            return self.cvt_pair(opcode, to, from, mode);
        }
        self.arity(opcode, &[2])?;
        let simple =
            |ty: Type| ty != Type::Pred && !matches!(ty, Type::F16x2 | Type::Bf16x2 | Type::B128);
        if !simple(to) || !simple(from) {
            return self.error("the emulator has no conversion between these types");
        }
        let inexact = match (to.is_float(), from.is_float()) {
            (true, true) => {
                to.n_bytes() < from.n_bytes() || (to.n_bytes() == from.n_bytes() && to != from)
            }
            (true, false) => true,
            (false, true) => true,
            (false, false) => false,
        };
        if inexact && rounding.is_none() && integral.is_none() {
            return self.error("this conversion needs a rounding");
        }
        if !to.is_float() && rounding.is_some() {
            return self.error("a conversion to an integer needs an integral rounding (`.rzi`)");
        }
        let conversion = Conversion {
            to,
            from,
            rounding: integral.or(rounding).unwrap_or(Rounding::Nearest),
            integral: integral.is_some(),
            saturate,
            ftz,
            relu,
        };
        let a = self.loose_src(&opcode.operands[1], from)?;
        let dst = if to.is_float() {
            self.any_dst(&opcode.operands[0], to)?
        } else {
            self.loose_dst(&opcode.operands[0], to)?
        };
        Ok(Op::Convert { conversion, dst, a })
    }

    fn cvt_tf32(&mut self, opcode: &mut Opcode<'_>, rounding: Option<Rounding>) -> ParseResult<Op> {
        self.arity(opcode, &[2])?;
        let (Some(rounding), Some(Type::F32)) = (rounding, opcode.take_type()) else {
            return self.error("a conversion to tf32 needs a rounding and the type `.f32`");
        };
        let a = self.src32(&opcode.operands[1])?;
        Ok(Op::ConvertTf32 { rounding, dst: self.dst(&opcode.operands[0], Type::B32)?, a })
    }

    fn cvt_pair(
        &mut self,
        opcode: &mut Opcode<'_>,
        to: Type,
        from: Type,
        mode: FloatMode,
    ) -> ParseResult<Op> {
        self.arity(opcode, &[3])?;
        if from != Type::F32 || !matches!(mode.rounding, Rounding::Nearest | Rounding::Zero) {
            return self.error("packed conversions go from `.f32` with `.rn` or `.rz`");
        }
        let a = self.src32(&opcode.operands[1])?;
        let b = self.src32(&opcode.operands[2])?;
        let dst = self.dst(&opcode.operands[0], Type::B32)?;
        Ok(Op::ConvertPair { bf16: to == Type::Bf16x2, mode, dst, a, b })
    }

    /// Comparison, combination and type of `setp` and `set`.
    fn comparison(&mut self, opcode: &mut Opcode<'_>) -> ParseResult<(Compare, Option<BoolOp>)> {
        let compare = opcode.take_map(|part| {
            Some(match part {
                "eq" => Compare::Eq,
                "ne" => Compare::Ne,
                "lt" | "lo" => Compare::Lt,
                "le" | "ls" => Compare::Le,
                "gt" | "hi" => Compare::Gt,
                "ge" | "hs" => Compare::Ge,
                "equ" => Compare::Equ,
                "neu" => Compare::Neu,
                "ltu" => Compare::Ltu,
                "leu" => Compare::Leu,
                "gtu" => Compare::Gtu,
                "geu" => Compare::Geu,
                "num" => Compare::Num,
                "nan" => Compare::Nan,
                _ => return None,
            })
        });
        let combine = opcode.take_map(|part| {
            Some(match part {
                "and" => BoolOp::And,
                "or" => BoolOp::Or,
                "xor" => BoolOp::Xor,
                _ => return None,
            })
        });
        match compare {
            Some(compare) => Ok((compare, combine)),
            None => self.error(format!("`{}` needs a comparison", opcode.name)),
        }
    }

    fn compare_type(&self, ty: Option<Type>, compare: Compare) -> ParseResult<(Type, CompareType)> {
        let Some(ty) = ty else { return self.error("the comparison needs a type") };
        let float = match ty {
            Type::F16 => Some(FloatType::F16),
            Type::Bf16 => Some(FloatType::Bf16),
            Type::F32 => Some(FloatType::F32),
            Type::F64 => Some(FloatType::F64),
            _ => None,
        };
        let ordered =
            [Compare::Eq, Compare::Ne, Compare::Lt, Compare::Le, Compare::Gt, Compare::Ge];
        match (float, IntType::of(ty)) {
            (Some(float), _) => Ok((ty, CompareType::Float(float))),
            (None, Some(int)) if ordered.contains(&compare) => Ok((ty, CompareType::Int(int))),
            _ => self.error("this comparison does not go with this type"),
        }
    }

    fn combine(
        &mut self,
        opcode: &Opcode<'_>,
        combine: Option<BoolOp>,
    ) -> ParseResult<Option<(BoolOp, PredSrc)>> {
        self.arity(opcode, &[if combine.is_some() { 4 } else { 3 }])?;
        match combine {
            Some(op) => Ok(Some((op, self.predicate(&opcode.operands[3])?))),
            None => Ok(None),
        }
    }

    fn setp(&mut self, opcode: &mut Opcode<'_>) -> ParseResult<Op> {
        let (compare, combine) = self.comparison(opcode)?;
        let ftz = opcode.take("ftz");
        let ty = opcode.take_type();
        let pair = ty.filter(|ty| matches!(ty, Type::F16x2 | Type::Bf16x2));
        let source = ty.unwrap_or(Type::B32);
        let scalar = match pair {
            Some(_) => None,
            None => Some(self.compare_type(ty, compare)?.1),
        };
        let combine = self.combine(opcode, combine)?;
        let a = self.src(&opcode.operands[1], source)?;
        let b = self.src(&opcode.operands[2], source)?;
        let (first, second) = self.pair(&opcode.operands[0]);
        let dst = self.dst_predicate(first)?;
        let second = match second {
            Some(Operand::Sink) | None => None,
            Some(second) => Some(self.dst_predicate(second)?),
        };
        Ok(match scalar {
            Some(ty) => Op::Setp { ty, compare, ftz, dst, inverse: second, a, b, combine },
            None => {
                let bf16 = pair == Some(Type::Bf16x2);
                Op::SetpPair { bf16, compare, ftz, dst, high: second, a, b, combine }
            }
        })
    }

    fn set(&mut self, opcode: &mut Opcode<'_>) -> ParseResult<Op> {
        let (compare, combine) = self.comparison(opcode)?;
        let ftz = opcode.take("ftz");
        let float = match opcode.take_type() {
            Some(Type::U32 | Type::S32) => false,
            Some(Type::F32) => true,
            _ => return self.error("`set` has results of type `.u32`, `.s32` and `.f32` only"),
        };
        let (source, ty) = self.compare_type(opcode.take_type(), compare)?;
        let combine = self.combine(opcode, combine)?;
        let a = self.src(&opcode.operands[1], source)?;
        let b = self.src(&opcode.operands[2], source)?;
        let dst = self.dst(&opcode.operands[0], Type::B32)?;
        Ok(Op::Set { ty, compare, ftz, float, dst, a, b, combine })
    }

    fn selp(&mut self, opcode: &mut Opcode<'_>) -> ParseResult<Op> {
        self.arity(opcode, &[4])?;
        let Some(ty) = opcode.take_type().filter(|ty| matches!(ty.n_bytes(), 2 | 4 | 8)) else {
            return self.error("`selp` needs a type of 16, 32 or 64 bits");
        };
        let a = self.src(&opcode.operands[1], ty)?;
        let b = self.src(&opcode.operands[2], ty)?;
        let p = self.predicate(&opcode.operands[3])?;
        Ok(Op::Selp { wide: ty.n_bytes() == 8, dst: self.dst(&opcode.operands[0], ty)?, a, b, p })
    }

    fn slct(&mut self, opcode: &mut Opcode<'_>) -> ParseResult<Op> {
        self.arity(opcode, &[4])?;
        let ftz = opcode.take("ftz");
        let (Some(ty), Some(selector @ (Type::S32 | Type::F32))) =
            (opcode.take_type(), opcode.take_type())
        else {
            return self.error("`slct` needs a type, then `.s32` or `.f32`");
        };
        if ftz {
            // A flushed subnormal selects as zero does, and -0.0 >= 0 holds.
            return self.error("`slct.ftz` is not supported");
        }
        let a = self.src(&opcode.operands[1], ty)?;
        let b = self.src(&opcode.operands[2], ty)?;
        let c = self.src(&opcode.operands[3], selector)?;
        let dst = self.dst(&opcode.operands[0], ty)?;
        let (wide, float) = (ty.n_bytes() == 8, selector == Type::F32);
        Ok(Op::Slct { wide, float, dst, a, b, c })
    }
}
