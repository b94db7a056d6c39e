//! Memory instructions (PTX ISA sections 9.7.9 and 9.7.13).

use super::super::parse::{Operand, ParseResult, Space, Type};
use super::super::program::{Access, AtomicOp, Dst, Op, Order};
use super::{Decoder, Opcode};

/// Modifiers that change neither values nor order: cache hints, scopes and volatility.
const WITHOUT_EFFECT: &[&str] = &[
    "volatile", "weak", "mmio", "cta", "cluster", "gpu", "sys", "ca", "cg", "cs", "lu", "cv", "wb",
    "wt", "nc", "unified",
];

const STRONG: &[&str] = &["relaxed", "acquire", "release", "acq_rel"];

impl Decoder<'_> {
    pub(super) fn memory(&mut self, opcode: &mut Opcode<'_>) -> ParseResult<Op> {
        match opcode.name {
            "ld" | "ldu" => self.load(opcode),
            "st" => self.store(opcode),
            "atom" | "red" => self.atomic(opcode),
            "cvta" => self.cvta(opcode),
            "isspacep" => self.isspacep(opcode),
            "cp" => self.async_copy(opcode),
            "membar" | "fence" => self.fence(opcode),
            "prefetch" | "prefetchu" | "applypriority" => {
                while opcode.take_map(|_| Some(())).is_some() {}
                Ok(Op::Nop)
            }
            name => self.error(format!("the emulator has no instruction `{name}`")),
        }
    }

    /// Takes cache and order modifiers; returns the order.
    fn order(&self, opcode: &mut Opcode<'_>) -> Order {
        let strong = opcode.take_any(STRONG).is_some();
        while opcode
            .take_map(|part| {
                let hint = part.starts_with("L1::") || part.starts_with("L2::");
                (hint || WITHOUT_EFFECT.contains(&part)).then_some(())
            })
            .is_some()
        {}
        if strong { Order::Strong } else { Order::Weak }
    }

    fn access(
        &mut self,
        opcode: &mut Opcode<'_>,
        address: &Operand,
        order: Order,
    ) -> ParseResult<(Access, usize)> {
        let space = opcode.take_map(Space::from_name).unwrap_or(Space::Generic);
        let n_elements = match opcode.take_any(&["v2", "v4", "v8"]) {
            Some("v2") => 2,
            Some("v4") => 4,
            Some(_) => 8,
            None => 1,
        };
        let Some(ty) = opcode.take_type().filter(|ty| !matches!(ty, Type::Pred | Type::B128))
        else {
            return self.error(format!("`{}` needs a type of 8 to 64 bits", opcode.name));
        };
        let (address, named) = self.address(address)?;
        if let Some(named) = named
            && named != space
            && !(named == Space::Global && matches!(space, Space::Const | Space::Generic))
        {
            return self.error(format!(
                "a variable in {} memory is accessed as {} memory",
                named.name(),
                space.name()
            ));
        }
        let n_bytes = ty.n_bytes() * n_elements as u32;
        if n_bytes > 32 {
            return self.error("an access has at most 32 bytes");
        }
        if matches!(space, Space::Shared | Space::Generic) {
            self.shared_grain = self.shared_grain.min(n_bytes);
        }
        if matches!(space, Space::Global | Space::Generic) && opcode.name != "ld" {
            self.global_grain = self.global_grain.min(n_bytes);
        }
        let site = self.n_sites;
        self.n_sites += 1;
        Ok((Access { space, ty, address, site, order }, n_elements))
    }

    fn load(&mut self, opcode: &mut Opcode<'_>) -> ParseResult<Op> {
        self.arity(opcode, &[2, 3])?;
        let order = self.order(opcode);
        let (access, n_elements) = self.access(opcode, &opcode.operands[1], order)?;
        let parts = self.parts(&opcode.operands[0]);
        if parts.len() != n_elements {
            return self.error(format!("{n_elements} results are needed, not {}", parts.len()));
        }
        let mut dsts: Vec<Dst> = Vec::new();
        for part in parts {
            dsts.push(self.loose_dst(part, access.ty)?);
        }
        Ok(Op::Load { access, to: self.dst_list(&dsts) })
    }

    fn store(&mut self, opcode: &mut Opcode<'_>) -> ParseResult<Op> {
        self.arity(opcode, &[2, 3])?;
        let order = self.order(opcode);
        let (access, n_elements) = self.access(opcode, &opcode.operands[0], order)?;
        if matches!(access.space, Space::Param | Space::Const) {
            return self.error(format!("{} memory cannot be written", access.space.name()));
        }
        let parts = self.parts(&opcode.operands[1]);
        if parts.len() != n_elements {
            return self.error(format!("{n_elements} values are needed, not {}", parts.len()));
        }
        let mut srcs = Vec::new();
        for part in parts {
            srcs.push(self.loose_src(part, access.ty)?);
        }
        Ok(Op::Store { access, from: self.src_list(&srcs) })
    }

    fn atomic(&mut self, opcode: &mut Opcode<'_>) -> ParseResult<Op> {
        let has_result = opcode.name == "atom";
        self.order(opcode);
        opcode.take("noftz");
        let op = opcode.take_map(|part| {
            Some(match part {
                "add" => AtomicOp::Add,
                "min" => AtomicOp::Min,
                "max" => AtomicOp::Max,
                "and" => AtomicOp::And,
                "or" => AtomicOp::Or,
                "xor" => AtomicOp::Xor,
                "exch" => AtomicOp::Exch,
                "cas" => AtomicOp::Cas,
                "inc" => AtomicOp::Inc,
                "dec" => AtomicOp::Dec,
                _ => return None,
            })
        });
        let Some(op) = op else {
            return self.error(format!("`{}` needs an operation", opcode.name));
        };
        let first = usize::from(has_result);
        self.arity(opcode, &[first + 2 + usize::from(op == AtomicOp::Cas)])?;
        let (access, n_elements) = self.access(opcode, &opcode.operands[first], Order::Strong)?;
        let float_ok = matches!(op, AtomicOp::Add) || !access.ty.is_float();
        let inc_ok = !matches!(op, AtomicOp::Inc | AtomicOp::Dec) || access.ty == Type::U32;
        if n_elements != 1
            || access.ty.n_bytes() < 2
            || (access.ty.n_bytes() == 2 && !access.ty.is_float() && op != AtomicOp::Cas)
            || !float_ok
            || !inc_ok
            || !matches!(access.space, Space::Global | Space::Shared | Space::Generic)
        {
            return self.error("the emulator does not have this atomic operation");
        }
        let b = self.any_src(&opcode.operands[first + 1], access.ty)?;
        let c = match opcode.operands.get(first + 2) {
            Some(operand) => Some(self.any_src(operand, access.ty)?),
            None => None,
        };
        let dst =
            if has_result { self.any_dst(&opcode.operands[0], access.ty)? } else { Dst::Sink };
        Ok(Op::Atomic { access, op, dst, b, c })
    }

    fn cvta(&mut self, opcode: &mut Opcode<'_>) -> ParseResult<Op> {
        self.arity(opcode, &[2])?;
        let to_space = opcode.take("to");
        let space = opcode.take_map(Space::from_name);
        let (Some(space), Some(ty @ (Type::U64 | Type::U32))) = (space, opcode.take_type()) else {
            return self.error("`cvta` needs a state space and the type `.u64`");
        };
        if ty == Type::U32 {
            return self.error("`cvta.u32` goes with 32-bit addresses, which are not supported");
        }
        let a = self.any_src(&opcode.operands[1], ty)?;
        let dst = self.any_dst(&opcode.operands[0], ty)?;
        Ok(Op::Cvta { dst, a, space, to_space })
    }

    fn isspacep(&mut self, opcode: &mut Opcode<'_>) -> ParseResult<Op> {
        self.arity(opcode, &[2])?;
        let Some(space) = opcode.take_map(Space::from_name) else {
            return self.error("`isspacep` needs a state space");
        };
        let a = self.src(&opcode.operands[1], Type::U64)?;
        Ok(Op::IsSpace { space, dst: self.dst_predicate(&opcode.operands[0])?, a })
    }

    fn async_copy(&mut self, opcode: &mut Opcode<'_>) -> ParseResult<Op> {
        if !opcode.take("async") || opcode.take("bulk") {
            return self.error("of the copies only `cp.async` is supported");
        }
        if opcode.take("commit_group") {
            return Ok(Op::AsyncCommit);
        }
        if opcode.take("wait_all") {
            return Ok(Op::AsyncWait { pending: 0, all: true });
        }
        if opcode.take("wait_group") {
            return match opcode.operands {
                [Operand::Integer(pending)] => {
                    let pending = u32::try_from(*pending).unwrap_or(u32::MAX);
                    Ok(Op::AsyncWait { pending, all: false })
                }
                _ => self.error("`cp.async.wait_group` takes a number"),
            };
        }
        self.arity(opcode, &[3, 4, 5])?;
        self.order(opcode);
        if opcode.take_map(Space::from_name) != Some(Space::Shared)
            || opcode.take_map(Space::from_name) != Some(Space::Global)
        {
            return self.error("`cp.async` copies from global to shared memory");
        }
        let (target, _) = self.address(&opcode.operands[0])?;
        let (source, _) = self.address(&opcode.operands[1])?;
        let n_bytes = match opcode.operands[2] {
            Operand::Integer(n @ (4 | 8 | 16)) => n as u8,
            _ => return self.error("`cp.async` copies 4, 8 or 16 bytes"),
        };
        self.shared_grain = self.shared_grain.min(u32::from(n_bytes));
        let source_bytes = match opcode.operands.get(3) {
            Some(operand) if self.register_bits(operand) != Some(64) => Some(self.src32(operand)?),
            _ => None,
        };
        let site = self.n_sites;
        self.n_sites += 1;
        Ok(Op::AsyncCopy { target, source, n_bytes, source_bytes, site })
    }

    fn fence(&mut self, opcode: &mut Opcode<'_>) -> ParseResult<Op> {
        if opcode.take("proxy") {
            if !opcode.take("async") {
                return self.error("the emulator does not have this kind of fence");
            }
            opcode.take("shared::cta");
            return Ok(Op::ProxyFence);
        }
        let order = opcode.take_any(&["sc", "acq_rel", "acquire", "release"]);
        let scope = opcode.take_any(&["cta", "gl", "gpu", "cluster", "sys"]);
        if scope.is_none() || (opcode.name == "membar" && order.is_some()) {
            return self.error("the emulator does not have this kind of fence");
        }
        Ok(Op::Fence)
    }
}
