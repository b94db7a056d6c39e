//! Matrix multiply-accumulate (PTX ISA section 9.7.14).

use super::super::parse::{Operand, ParseResult, Type};
use super::super::program::{AsyncProduct, Factors, LeftFactors, Op};
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

    /// `wgmma` (PTX ISA section 9.7.15).
    pub(super) fn wgmma(&mut self, opcode: &mut Opcode<'_>) -> ParseResult<Op> {
        if !opcode.take("sync") || !opcode.take("aligned") {
            return self.error("`wgmma` is always `.sync.aligned`");
        }
        match opcode.take_any(&["fence", "commit_group", "wait_group", "mma_async"]) {
            // Registers are written when a product is issued, so that there is nothing to order.
            Some("fence") => Ok(Op::Nop),
            Some("commit_group") => Ok(Op::WgmmaCommit),
            Some("wait_group") => {
                self.arity(opcode, &[1])?;
                let Operand::Integer(pending) = opcode.operands[0] else {
                    return self.error("`wgmma.wait_group` takes a number");
                };
                Ok(Op::WgmmaWait { pending: pending as u32 })
            }
            Some(_) => self.async_product(opcode),
            None => self.error("the emulator does not have this form of `wgmma`"),
        }
    }

    fn async_product(&mut self, opcode: &mut Opcode<'_>) -> ParseResult<Op> {
        let sizes = opcode.take_map(|part| {
            let (columns, inner) = part.strip_prefix("m64n")?.split_once('k')?;
            Some((columns.parse::<u16>().ok()?, inner.parse::<u16>().ok()?))
        });
        let name = opcode.take_any(&["tf32", "bf16", "f16"]);
        let twice = name.is_some_and(|name| opcode.take(name));
        let factors = match (name, sizes) {
            (Some("tf32"), Some((_, 8))) => Factors::Tf32,
            (Some("bf16"), Some((_, 16))) => Factors::Bf16,
            (Some("f16"), Some((_, 16))) => Factors::F16,
            _ => return self.error("the emulator does not have this form of `wgmma`"),
        };
        if !twice || !opcode.take("f32") {
            return self.error("the emulator has `wgmma` with factors of one type and sums in f32");
        }
        let n_columns = sizes.map_or(0, |(columns, _)| columns);
        if !n_columns.is_multiple_of(8) || !(8..=256).contains(&n_columns) {
            return self.error(format!("`wgmma` has no {n_columns} columns"));
        }
        // Sums, both operands, whether to add, factors of -1, and transpositions of narrow factors in shared
        // memory.
        let held = matches!(opcode.operands.get(1), Some(Operand::Vector(_)));
        let count = match (factors, held) {
            (Factors::Tf32, _) => 6,
            (_, true) => 7,
            (_, false) => 8,
        };
        self.arity(opcode, &[count])?;
        let plain = [(4, 1), (5, 1), (6, 0), (7, 0)];
        for &(position, wanted) in plain.iter().take(opcode.operands.len() - 4) {
            let found =
                matches!(opcode.operands[position], Operand::Integer(value) if value == wanted);
            if !found {
                return self.error("the emulator has `wgmma` without negation and transposition");
            }
        }
        let parts = self.parts(&opcode.operands[0]);
        if parts.len() != usize::from(n_columns) / 2 {
            return self.error(format!("{n_columns} columns take {} registers", n_columns / 2));
        }
        let mut sums = Vec::new();
        for part in parts {
            sums.push(self.any_src(part, Type::B32)?);
        }
        let left = match held {
            true => {
                let parts = self.parts(&opcode.operands[1]);
                if parts.len() != 4 {
                    return self.error("`wgmma` takes 4 registers of left factors");
                }
                let factors: ParseResult<Vec<_>> =
                    parts.iter().map(|part| self.any_src(part, Type::B32)).collect();
                LeftFactors::Registers(self.src_list(&factors?))
            }
            false => LeftFactors::Shared(self.src(&opcode.operands[1], Type::B64)?),
        };
        let right = self.src(&opcode.operands[2], Type::B64)?;
        let adds = self.predicate(&opcode.operands[3])?;
        let mut results = Vec::new();
        for part in parts {
            results.push(self.any_dst(part, Type::B32)?);
        }
        let members = self.constant(u32::MAX.into());
        let (dst, sums) = (self.dst_list(&results), self.src_list(&sums));
        self.async_products.push(AsyncProduct {
            factors,
            n_columns,
            dst,
            sums,
            left,
            right,
            adds,
            members,
        });
        Ok(Op::Wgmma { index: self.async_products.len() as u32 - 1 })
    }
}
