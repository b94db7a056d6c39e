//! Operands: registers of the right class, constants and addresses.

use super::super::parse::{Operand, ParseResult, RegisterClass, RegisterId, Space, Type};
use super::super::program::{
    Address, AnySrc, CONSTANT_BIT, Dst, List, PredSrc, Slot, Special, Src,
};
use super::{Decoder, Opcode};

impl Decoder<'_> {
    /// Checks the number of operands.
    pub(super) fn arity(&self, opcode: &Opcode<'_>, counts: &[usize]) -> ParseResult<()> {
        let found = opcode.operands.len();
        if counts.contains(&found) {
            return Ok(());
        }
        let counts: Vec<String> = counts.iter().map(usize::to_string).collect();
        self.error(format!("`{}` takes {} operands, not {found}", opcode.name, counts.join(" or ")))
    }

    fn class(&self, register: RegisterId) -> RegisterClass {
        self.kernel.registers[register.0 as usize]
    }

    fn slot(&self, register: RegisterId) -> Slot {
        match self.allocation {
            Some(allocation) => allocation.slots[register.0 as usize],
            None => register.0,
        }
    }

    fn wrong_class<T>(&self, register: RegisterId, n_bits: u32) -> ParseResult<T> {
        let name = &self.kernel.register_names[register.0 as usize];
        let found = self.class(register).n_bits();
        self.error(format!("`{name}` has {found} bits where {n_bits} are needed"))
    }

    fn use_register(&mut self, register: RegisterId) -> Slot {
        self.current.uses.push(register);
        self.slot(register)
    }

    fn define_register(&mut self, register: RegisterId) -> Slot {
        self.current.defs.push(register);
        self.slot(register)
    }

    pub(super) fn implicit_def(&mut self, opcode: &Opcode<'_>) -> ParseResult<()> {
        for operand in opcode.operands {
            if let Operand::Register(register) = operand {
                self.define_register(*register);
            }
        }
        Ok(())
    }

    pub(super) fn constant(&mut self, bits: u64) -> Src {
        let next = self.constants.len() as u32;
        let index = *self.constant_index.entry(bits).or_insert(next);
        if index == next {
            self.constants.push(bits);
        }
        Src(index | CONSTANT_BIT)
    }

    /// A source of the type's width.
    pub(super) fn src(&mut self, operand: &Operand, ty: Type) -> ParseResult<Src> {
        let n_bits = ty.n_bytes() * 8;
        match operand {
            Operand::Register(register) => {
                if self.class(*register).n_bits() != n_bits {
                    return self.wrong_class(*register, n_bits);
                }
                Ok(Src(self.use_register(*register)))
            }
            _ => {
                let bits = self.constant_bits(operand, ty)?;
                Ok(self.constant(bits))
            }
        }
    }

    /// A 32-bit source.
    pub(super) fn src32(&mut self, operand: &Operand) -> ParseResult<Src> {
        self.src(operand, Type::B32)
    }

    /// A source of a 16-, 32- or 64-bit type.
    pub(super) fn any_src(&mut self, operand: &Operand, ty: Type) -> ParseResult<AnySrc> {
        let src = self.src(operand, ty)?;
        Ok(if ty.n_bytes() == 8 { AnySrc::Wide(src) } else { AnySrc::Word(src) })
    }

    /// A source that may be wider than the type, as loads, stores and conversions allow.
    pub(super) fn loose_src(&mut self, operand: &Operand, ty: Type) -> ParseResult<AnySrc> {
        match operand {
            Operand::Register(register) => {
                let class = self.class(*register);
                if class == RegisterClass::Pred || class.n_bits() < ty.n_bytes() * 8 {
                    return self.wrong_class(*register, ty.n_bytes() * 8);
                }
                let src = Src(self.use_register(*register));
                Ok(if class == RegisterClass::Bits64 {
                    AnySrc::Wide(src)
                } else {
                    AnySrc::Word(src)
                })
            }
            _ => {
                let bits = self.constant_bits(operand, ty)?;
                let src = self.constant(bits);
                Ok(if ty.n_bytes() == 8 { AnySrc::Wide(src) } else { AnySrc::Word(src) })
            }
        }
    }

    /// The bits of a literal or an address, cut to the type's width.
    fn constant_bits(&mut self, operand: &Operand, ty: Type) -> ParseResult<u64> {
        let mask = if ty.n_bytes() >= 8 { u64::MAX } else { (1 << (ty.n_bytes() * 8)) - 1 };
        let bits = match operand {
            Operand::Integer(bits) => *bits,
            Operand::Float32(bits) if ty.n_bytes() == 4 => u64::from(*bits),
            Operand::Float64(bits) if ty.n_bytes() == 8 => *bits,
            // A decimal literal takes the type of its instruction.
            Operand::Float64(bits) if ty == Type::F32 => {
                u64::from((f64::from_bits(*bits) as f32).to_bits())
            }
            Operand::Symbol(name, offset) => {
                return Ok(self.symbol(name)?.1.wrapping_add_signed(*offset) & mask);
            }
            Operand::Special(name) => {
                return self.error(format!("`{name}` can only be read by `mov`"));
            }
            _ => return self.error("this operand must be a register or a constant"),
        };
        Ok(bits & mask)
    }

    /// Space and address of a variable or parameter.
    pub(super) fn symbol(&mut self, name: &str) -> ParseResult<(Space, u64)> {
        if let Some(&(space, offset)) = self.layout.symbols.get(name) {
            return Ok((space, u64::from(offset)));
        }
        if let Some(&address) = self.globals.get(name) {
            return Ok((Space::Global, address));
        }
        match self.kernel.parameters.iter().find(|parameter| parameter.name == name) {
            Some(parameter) => Ok((Space::Param, u64::from(parameter.offset))),
            None => self.error(format!("`{name}` is not declared")),
        }
    }

    /// A predicate source.
    pub(super) fn predicate(&mut self, operand: &Operand) -> ParseResult<PredSrc> {
        match operand {
            Operand::Register(register) => self.predicate_register(*register, false),
            Operand::Not(register) => self.predicate_register(*register, true),
            Operand::Integer(bits) => Ok(PredSrc::Constant(*bits & 1 != 0)),
            _ => self.error("this operand must be a predicate"),
        }
    }

    pub(super) fn predicate_register(
        &mut self,
        register: RegisterId,
        negated: bool,
    ) -> ParseResult<PredSrc> {
        if self.class(register) != RegisterClass::Pred {
            return self.wrong_class(register, 1);
        }
        Ok(PredSrc::Slot(self.use_register(register), negated))
    }

    /// A result of the type's width.
    pub(super) fn dst(&mut self, operand: &Operand, ty: Type) -> ParseResult<Slot> {
        match operand {
            Operand::Register(register) => {
                if self.class(*register).n_bits() != ty.n_bytes() * 8 {
                    return self.wrong_class(*register, ty.n_bytes() * 8);
                }
                Ok(self.define_register(*register))
            }
            _ => self.error("the result must be a register"),
        }
    }

    /// A predicate result.
    pub(super) fn dst_predicate(&mut self, operand: &Operand) -> ParseResult<Slot> {
        match operand {
            Operand::Register(register) if self.class(*register) == RegisterClass::Pred => {
                Ok(self.define_register(*register))
            }
            _ => self.error("the result must be a predicate"),
        }
    }

    /// A result that may be wider than the type, or `_`.
    pub(super) fn loose_dst(&mut self, operand: &Operand, ty: Type) -> ParseResult<Dst> {
        match operand {
            Operand::Sink => Ok(Dst::Sink),
            Operand::Register(register) => {
                let class = self.class(*register);
                let wide_enough = class.n_bits() >= ty.n_bytes() * 8;
                let slot = self.define_register(*register);
                match class {
                    RegisterClass::Bits16 if wide_enough => Ok(Dst::Half(slot)),
                    RegisterClass::Bits32 if wide_enough => Ok(Dst::Word(slot)),
                    RegisterClass::Bits64 => Ok(Dst::Wide(slot)),
                    _ => self.wrong_class(*register, ty.n_bytes() * 8),
                }
            }
            _ => self.error("the result must be a register"),
        }
    }

    /// A result of exactly the type's width, or `_`.
    pub(super) fn any_dst(&mut self, operand: &Operand, ty: Type) -> ParseResult<Dst> {
        if let Operand::Register(register) = operand
            && self.class(*register).n_bits() != ty.n_bytes() * 8
        {
            return self.wrong_class(*register, ty.n_bytes() * 8);
        }
        self.loose_dst(operand, ty)
    }

    /// Splits `d|p` into a result and a predicate.
    pub(super) fn pair<'o>(&self, operand: &'o Operand) -> (&'o Operand, Option<&'o Operand>) {
        match operand {
            Operand::Pair(first, second) => (first, Some(second)),
            _ => (operand, None),
        }
    }

    /// An address operand, and the space of its symbol if it has one.
    pub(super) fn address(&mut self, operand: &Operand) -> ParseResult<(Address, Option<Space>)> {
        let Operand::Address(base, offset) = operand else {
            return self.error("this operand must be an address in brackets");
        };
        let Ok(offset) = i32::try_from(*offset) else {
            return self.error(format!("the offset {offset} is too large"));
        };
        let (base, space) = match base.as_ref() {
            Operand::Register(register) => {
                let src = Src(self.use_register(*register));
                match self.class(*register) {
                    RegisterClass::Bits32 => (AnySrc::Word(src), None),
                    RegisterClass::Bits64 => (AnySrc::Wide(src), None),
                    _ => return self.wrong_class(*register, 64),
                }
            }
            Operand::Integer(bits) => (AnySrc::Wide(self.constant(*bits)), None),
            Operand::Symbol(name, _) => {
                let (space, address) = self.symbol(name)?;
                (AnySrc::Wide(self.constant(address)), Some(space))
            }
            _ => return self.error("an address starts with a register, variable or number"),
        };
        Ok((Address { base, offset }, space))
    }

    /// The parts of a vector operand, or the operand itself as the only part.
    pub(super) fn parts<'o>(&self, operand: &'o Operand) -> &'o [Operand] {
        match operand {
            Operand::Vector(parts) => parts,
            _ => std::slice::from_ref(operand),
        }
    }

    pub(super) fn dst_list(&mut self, dsts: &[Dst]) -> List {
        let start = self.dsts.len() as u32;
        self.dsts.extend_from_slice(dsts);
        List { start, count: dsts.len() as u32 }
    }

    pub(super) fn src_list(&mut self, srcs: &[AnySrc]) -> List {
        let start = self.srcs.len() as u32;
        self.srcs.extend_from_slice(srcs);
        List { start, count: srcs.len() as u32 }
    }

    /// The instruction after a label, looked up outward from the current scope.
    pub(super) fn label(&self, operand: &Operand) -> ParseResult<u32> {
        let Operand::Symbol(name, 0) = operand else {
            return self.error("this operand must be a label");
        };
        self.find_in_scopes(name, |key| self.kernel.labels.get(key).copied())
    }

    pub(super) fn find_in_scopes<T>(
        &self,
        name: &str,
        find: impl Fn(&(u32, String)) -> Option<T>,
    ) -> ParseResult<T> {
        let mut key = (self.scope, name.to_owned());
        loop {
            if let Some(found) = find(&key) {
                return Ok(found);
            }
            let parent = self.kernel.scopes[key.0 as usize];
            if parent == key.0 {
                return self.error(format!("label `{name}` is not defined"));
            }
            key.0 = parent;
        }
    }
}

/// The special register of this name (PTX ISA section 10, "Special Registers").
pub(super) fn special(name: &str) -> Option<Special> {
    if let Some((vector, axis)) = name.rsplit_once('.') {
        let axis = match axis {
            "x" => 0,
            "y" => 1,
            "z" => 2,
            _ => return None,
        };
        return Some(match vector {
            "%tid" => Special::Tid(axis),
            "%ntid" => Special::Ntid(axis),
            "%ctaid" => Special::Ctaid(axis),
            "%nctaid" => Special::Nctaid(axis),
            "%cluster_ctaid" => Special::ClusterCtaid(axis),
            "%cluster_nctaid" => Special::ClusterNctaid(axis),
            "%clusterid" => Special::Clusterid(axis),
            "%nclusterid" => Special::Nclusterid(axis),
            _ => return None,
        });
    }
    Some(match name {
        "%laneid" => Special::Laneid,
        "%warpid" => Special::Warpid,
        "%nwarpid" => Special::Nwarpid,
        "%smid" | "%gridid" => Special::Zero,
        "%nsmid" => Special::Nsmid,
        "%lanemask_eq" => Special::LanemaskEq,
        "%lanemask_le" => Special::LanemaskLe,
        "%lanemask_lt" => Special::LanemaskLt,
        "%lanemask_ge" => Special::LanemaskGe,
        "%lanemask_gt" => Special::LanemaskGt,
        "%clock" | "%clock64" | "%globaltimer" | "%globaltimer_lo" => Special::Clock,
        "%cluster_ctarank" => Special::ClusterCtarank,
        "%cluster_nctarank" => Special::ClusterNctarank,
        "%dynamic_smem_size" => Special::DynamicSharedBytes,
        "%total_smem_size" => Special::TotalSharedBytes,
        _ => return None,
    })
}
