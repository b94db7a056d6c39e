//! Blocks that wait for one another, by counters in global memory.
//!
//! One thread of the block speaks for all: what the others wrote comes before by a barrier, and what
//! other blocks wrote before they came is visible to all after another one (PTX ISA, "Memory
//! Consistency Model": causality order is transitive over barriers and scoped fences).

use fornax_bundle::DType;
use inkwell::IntPredicate;
use inkwell::values::{BasicValueEnum, IntValue, PointerValue};

use super::emitter::Emitter;
use super::ir::Assembly;
use super::memory::{Array, Space};
use crate::kernel::{Memory, ValueId};

impl<'c> Emitter<'c, '_> {
    /// Takes the next number and tells all threads of the block.
    pub(super) fn ticket(
        &mut self,
        (memory, offset): (Memory, ValueId),
        of: ValueId,
        ordered: bool,
    ) -> BasicValueEnum<'c> {
        let of = self.registers(of)[0].into_int_value();
        let last = self.ir.sub(of, self.ir.i32(1));
        let address = self.counter(memory, offset);
        let scratch = self.scratch.expect("invariant: scratch memory is placed for all tickets");
        let array = Array { base: scratch, dtype: DType::I32, space: Space::Shared };
        let first = self.is_first();
        if ordered {
            self.touch_written();
        }
        if ordered || self.scratch_in_use || self.loop_depth > 0 {
            self.barrier();
        }
        self.scratch_in_use = true;
        let ir = &self.ir;
        // The last one's increment makes it zero again.
        let take = "@$2 atom.relaxed.gpu.global.inc.u32 $0, [$1], $4;";
        let fence = "@$2 fence.acq_rel.gpu;";
        let text = if ordered { format!("{fence} {take} {fence}") } else { take.to_owned() };
        let constraints = "=r,l,b,0,r,~{memory}".to_owned();
        let assembly = Assembly { text, constraints, effects: true };
        let i32_type = ir.context.i32_type().into();
        let operands = [address.into(), first.into(), ir.i32(0).into(), last.into()];
        let number = ir.assembly(assembly, Some(i32_type), &operands);
        let number = number.expect("invariant: a ticket has a number");
        let zero = ir.i32(0);
        ir.write(array, zero, Some(first), &[number]);
        self.barrier();
        if ordered {
            self.touch_written();
        }
        self.ir.read(array, self.ir.i32(0), None, 1)[0]
    }

    /// Counts the block and waits until all have been counted. One launch counts from 0 to `blocks`, the next
    /// one from there to twice as many, which is 0 again.
    pub(super) fn meet(&mut self, memory: Memory, offset: ValueId, blocks: u32) {
        let address = self.counter(memory, offset);
        let first = self.is_first();
        self.refuse_fewer(blocks);
        self.touch_written();
        self.barrier();
        let (counted, wait) = (self.ir.block("counted"), self.ir.block("wait"));
        let met = self.ir.block("met");
        self.ir.branch(first, counted, met);

        self.ir.builder.position_at_end(counted);
        let come = Assembly {
            text: "fence.acq_rel.gpu; atom.relaxed.gpu.global.inc.u32 $0, [$1], $2;".to_owned(),
            constraints: "=r,l,r,~{memory}".to_owned(),
            effects: true,
        };
        let i32_type = self.ir.context.i32_type().into();
        let all = self.ir.i32(blocks.into());
        let last = self.ir.i32(2 * i64::from(blocks) - 1);
        let before = self.ir.assembly(come, Some(i32_type), &[address.into(), last.into()]);
        let before = before.expect("invariant: an increment gives a value").into_int_value();
        let before = self.ir.compare(IntPredicate::UGE, before, all);
        self.ir.jump(wait);

        self.ir.builder.position_at_end(wait);
        let look = Assembly {
            text: "ld.acquire.gpu.global.u32 $0, [$1];".to_owned(),
            constraints: "=r,l,~{memory}".to_owned(),
            effects: true,
        };
        let count = self.ir.assembly(look, Some(i32_type), &[address.into()]);
        let count = count.expect("invariant: a load gives a value").into_int_value();
        let now = self.ir.compare(IntPredicate::UGE, count, all);
        let fewer = self.ir.compare(IntPredicate::EQ, now, before);
        self.ir.branch(fewer, wait, met);

        self.ir.builder.position_at_end(met);
        self.barrier();
        self.touch_written();
    }

    /// Stops with an error where blocks would wait for others that cannot run: each multiprocessor holds
    /// at least one block.
    fn refuse_fewer(&self, blocks: u32) {
        let multiprocessors = self.ir.special_register("nsmid");
        let fewer = self.ir.compare(IntPredicate::ULT, multiprocessors, self.ir.i32(blocks.into()));
        let assembly =
            Assembly { text: "@$0 trap;".to_owned(), constraints: "b".to_owned(), effects: true };
        self.ir.assembly(assembly, None, &[fewer.into()]);
    }

    fn counter(&self, memory: Memory, offset: ValueId) -> PointerValue<'c> {
        let array = self.array(memory);
        let offset = self.registers(offset)[0].into_int_value();
        let offset = self.ir.resize(true, offset, 64);
        self.ir.element_address(self.ir.context.i32_type().into(), array.base, offset)
    }

    pub(super) fn is_first(&mut self) -> IntValue<'c> {
        let thread = self.thread();
        self.ir.compare(IntPredicate::EQ, thread, self.ir.i32(0))
    }

    /// Tells LLVM that other blocks may read and write all arrays that this one writes: parameters are
    /// declared not to overlap, so that it would move accesses across a barrier otherwise.
    fn touch_written(&self) {
        let written = self.globals.iter().flatten().filter(|array| array.space == Space::Global);
        let operands: Vec<BasicValueEnum> = written.map(|array| array.base.into()).collect();
        let mut constraints = vec!["l"; operands.len()];
        constraints.push("~{memory}");
        let assembly =
            Assembly { text: String::new(), constraints: constraints.join(","), effects: true };
        self.ir.assembly(assembly, None, &operands);
    }
}
