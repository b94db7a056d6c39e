//! Matrix multiply-accumulate (PTX ISA section 9.7.14).

use super::super::parse::{ParseResult, Type};
use super::super::program::{Factors, Op};
use super::{Decoder, Opcode};

impl Decoder<'_> {
    pub(super) fn mma(&mut self, opcode: &mut Opcode<'_>) -> ParseResult<Op> {
        self.arity(opcode, &[4])?;
        for part in ["sync", "aligned", "row", "col", "f32", "f32"] {
            if !opcode.take(part) {
                return self.error(format!("`mma` is supported with `.{part}` only"));
            }
        }
        let shape = opcode.take_any(&["m16n8k8", "m16n8k16"]);
        let name = opcode.take_any(&["tf32", "bf16", "f16"]);
        let twice = name.is_some_and(|name| opcode.take(name));
        let factors = match (shape, name) {
            (Some("m16n8k8"), Some("tf32")) if twice => Factors::Tf32,
            (Some("m16n8k16"), Some("bf16")) if twice => Factors::Bf16,
            (Some("m16n8k16"), Some("f16")) if twice => Factors::F16,
            _ => return self.error("the emulator does not have this form of `mma`"),
        };
        // Both shapes have 4 registers of `a`, 2 of `b` and 4 of the accumulators in each lane.
        let mut operands = Vec::new();
        for (operand, count) in opcode.operands[1..].iter().zip([4, 2, 4]) {
            let parts = self.parts(operand);
            if parts.len() != count {
                return self.error(format!("`mma` takes {count} registers here"));
            }
            for part in parts {
                operands.push(self.any_src(part, Type::B32)?);
            }
        }
        let parts = self.parts(&opcode.operands[0]);
        if parts.len() != 4 {
            return self.error("`mma` gives 4 registers");
        }
        let results = parts
            .iter()
            .map(|part| self.any_dst(part, Type::B32))
            .collect::<ParseResult<Vec<_>>>()?;
        let members = self.constant(u32::MAX.into());
        let (dst, operands) = (self.dst_list(&results), self.src_list(&operands));
        Ok(Op::Mma { factors, dst, operands, members })
    }
}
