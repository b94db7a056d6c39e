//! Numbers that blocks hand one another with tags.
//!
//! A number and its tag are written and read as one of 64 bits, which other threads see as a whole (PTX ISA,
//! "Memory Consistency Model", "Scalar Data-types"; "Single-Copy Atomicity"), so that who sees the tag has the
//! number: nothing else has to be in order.

use inkwell::IntPredicate;
use inkwell::values::{BasicValueEnum, IntValue, PointerValue};

use super::emitter::{Emitter, Registers};
use super::ir::Assembly;
use crate::kernel::{Layout, Memory, ValueId};
use fornax_ir::Scalar;

impl<'c> Emitter<'c, '_> {
    /// Writes each number with the tag.
    pub(super) fn send(
        &mut self,
        (memory, offset): (Memory, ValueId),
        (value, tag): (ValueId, ValueId),
        mask: Option<ValueId>,
    ) {
        let holder = match self.ty(value).layout().cloned() {
            Some(layout) => self.first_holder(&layout),
            None => Some(self.is_first()),
        };
        let tag = self.tag(tag);
        let values = self.registers(value).to_vec();
        for (register, element) in values.into_iter().enumerate() {
            let mask = mask.map(|mask| self.registers(mask)[register].into_int_value());
            let mask = match (mask, holder) {
                (Some(mask), Some(holder)) => Some(self.ir.and(mask, holder)),
                (mask, holder) => mask.or(holder),
            };
            let address = self.pair(memory, offset, register);
            let bits = self.ir.resize(false, self.ir.bits(element.into_float_value()), 64);
            let both = self.ir.or(bits, tag);
            let mut operands: Vec<BasicValueEnum> = vec![address.into(), both.into()];
            operands.extend(mask.map(BasicValueEnum::from));
            let (guard, constraints) = match mask {
                Some(_) => ("@$2 ", "l,l,b,~{memory}"),
                None => ("", "l,l,~{memory}"),
            };
            let assembly = Assembly {
                text: format!("{guard}st.relaxed.gpu.global.u64 [$0], $1;"),
                constraints: constraints.to_owned(),
                effects: true,
            };
            self.ir.assembly(assembly, None, &operands);
        }
    }

    /// Waits for each number with the tag.
    pub(super) fn receive(
        &mut self,
        (memory, offset): (Memory, ValueId),
        tag: ValueId,
        mask: Option<(ValueId, Scalar)>,
    ) -> Registers<'c> {
        let count = self.ty(offset).layout().map_or(1, Layout::register_count) as usize;
        let tag = self.tag(tag);
        let addresses: Vec<PointerValue> =
            (0..count).map(|register| self.pair(memory, offset, register)).collect();
        let preset = mask.map(|(_, otherwise)| {
            let bits = self.ir.bits(self.ir.number(otherwise).into_float_value());
            self.ir.or(self.ir.resize(false, bits, 64), tag)
        });
        let (wait, received) = (self.ir.block("wait"), self.ir.block("received"));
        self.ir.jump(wait);
        self.ir.builder.position_at_end(wait);
        let (mut words, mut all) = (Vec::new(), self.ir.bool(true));
        for (register, &address) in addresses.iter().enumerate() {
            let mut operands: Vec<BasicValueEnum> = vec![address.into()];
            if let (Some((mask, _)), Some(preset)) = (mask, preset) {
                operands.extend([self.registers(mask)[register], preset.into()]);
            }
            let (guard, constraints) = match mask {
                Some(_) => ("@$2 ", "=l,l,b,0,~{memory}"),
                None => ("", "=l,l,~{memory}"),
            };
            let assembly = Assembly {
                text: format!("{guard}ld.relaxed.gpu.global.u64 $0, [$1];"),
                constraints: constraints.to_owned(),
                effects: true,
            };
            let word = self.ir.assembly(assembly, Some(self.ir.int_type(64).into()), &operands);
            let word = word.expect("invariant: a load gives a value").into_int_value();
            let difference = self.ir.xor(word, tag);
            let difference = self.ir.shr(false, difference, self.ir.i64(32));
            let seen = self.ir.compare(IntPredicate::EQ, difference, self.ir.i64(0));
            all = self.ir.and(all, seen);
            words.push(word);
        }
        self.ir.branch(all, received, wait);
        self.ir.builder.position_at_end(received);
        let float = self.ir.context.f32_type().into();
        let number = |word| self.ir.bit_cast(self.ir.resize(false, word, 32).into(), float);
        words.into_iter().map(number).collect()
    }

    /// The tag in the upper half of a word.
    fn tag(&self, tag: ValueId) -> IntValue<'c> {
        let tag = self.registers(tag)[0].into_int_value();
        self.ir.shl(self.ir.resize(false, tag, 64), self.ir.i64(32))
    }

    /// The address of a number and its tag.
    fn pair(&self, memory: Memory, offset: ValueId, register: usize) -> PointerValue<'c> {
        let array = self.array(memory);
        let offset = self.registers(offset)[register].into_int_value();
        let offset = self.ir.resize(true, offset, 64);
        self.ir.element_address(self.ir.context.i64_type().into(), array.base, offset)
    }
}
