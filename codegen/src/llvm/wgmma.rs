//! Asynchronous matrix products of warpgroups, as inline PTX: LLVM has no intrinsics for them.

use inkwell::types::BasicTypeEnum;
use inkwell::values::{BasicValueEnum, IntValue};

use super::emitter::{Emitter, Registers};
use super::ir::Assembly;
use crate::kernel::{Factor, Memory, ValueId, WgmmaTile};

/// Bytes of a row of an operand, and of the inner elements of one instruction.
const ROW_BYTES: u32 = 128;
const STEP_BYTES: u32 = 32;

/// Registers of an instruction's left factors, where those are in registers.
const HELD_WORDS: usize = 4;

/// Threads in a warpgroup.
const GROUP_THREADS: u32 = 128;

/// What is the same in all descriptors (PTX ISA, "Matrix Descriptor Format"): 128-byte swizzle, 1024 bytes
/// from eight rows to the next, the leading offset that swizzled operands do not use.
const DESCRIPTOR: u64 = 1 << 62 | (1024 >> 4) << 32 | 1 << 16;

impl<'c> Emitter<'c, '_> {
    /// See [`crate::kernel::Instruction::Wgmma`].
    pub fn wgmma(
        &mut self,
        tile: &WgmmaTile,
        memory: [Memory; 2],
        offsets: [ValueId; 2],
        sums: ValueId,
    ) -> Registers<'c> {
        let group_m = self.thread_digit(GROUP_THREADS, tile.groups_m);
        let group_n = self.thread_digit(GROUP_THREADS * tile.groups_m, tile.groups_n);
        let rows = tile.rows / tile.groups_m;
        let left = self.descriptor(memory[0], offsets[0], group_m, rows);
        let right = self.descriptor(memory[1], offsets[1], group_n, tile.group_columns());
        let sums = self.registers(sums).to_vec();
        let each = sums.len() / tile.products() as usize;
        let mut results = Vec::new();
        for (product, sums) in (0u32..).zip(sums.chunks(each)) {
            let start = u64::from(product) * u64::from((64 * ROW_BYTES) >> 4);
            let start = left.get_type().const_int(start, false);
            let left = self.ir.add(left, start);
            let text = instructions(tile, each, false);
            results.extend(self.tied(text, sums, &[left.into(), right.into()]));
        }
        results
    }

    /// See [`crate::kernel::Instruction::WgmmaRegisters`].
    pub fn wgmma_registers(
        &mut self,
        tile: &WgmmaTile,
        left: ValueId,
        (memory, offset): (Memory, ValueId),
        sums: ValueId,
    ) -> Registers<'c> {
        let group_n = self.thread_digit(GROUP_THREADS * tile.groups_m, tile.groups_n);
        let right = self.descriptor(memory, offset, group_n, tile.group_columns());
        let left = self.packed(tile.factor, left);
        let sums = self.registers(sums).to_vec();
        let each = sums.len() / tile.products() as usize;
        let words = left.len() / tile.products() as usize;
        let mut results = Vec::new();
        for (sums, left) in sums.chunks(each).zip(left.chunks(words)) {
            let mut inputs = left.to_vec();
            inputs.push(right.into());
            results.extend(self.tied(instructions(tile, each, true), sums, &inputs));
        }
        results
    }

    /// See [`crate::kernel::Instruction::WgmmaPending`].
    pub fn wgmma_pending(&self, pending: u32) {
        self.effect(format!("wgmma.wait_group.sync.aligned {pending};"));
    }

    /// See [`crate::kernel::Instruction::WgmmaWait`].
    pub fn wgmma_wait(&self, sums: ValueId) -> Registers<'c> {
        self.tied("wgmma.wait_group.sync.aligned 0;".to_owned(), self.registers(sums), &[])
    }

    /// See [`crate::kernel::Instruction::ProxyFence`].
    pub fn proxy_fence(&self) {
        self.effect("fence.proxy.async.shared::cta;".to_owned());
    }

    /// Inline PTX without operands.
    pub fn effect(&self, text: String) {
        let assembly = Assembly { text, constraints: "~{memory}".to_owned(), effects: true };
        self.ir.assembly(assembly, None, &[]);
    }

    /// The descriptor of a warpgroup's rows of an operand.
    fn descriptor(
        &self,
        memory: Memory,
        offset: ValueId,
        group: IntValue<'c>,
        rows: u32,
    ) -> IntValue<'c> {
        let ir = &self.ir;
        let array = self.array(memory);
        let base = ir.pointer_to_int(array.base, 32);
        let offset = self.registers(offset)[0].into_int_value();
        let offset = ir.mul(offset, ir.i32(array.dtype.size() as i64));
        let own = ir.mul(group, ir.i32((rows * ROW_BYTES).into()));
        let address = ir.add(ir.add(base, offset), own);
        let address = ir.and(ir.shr(false, address, ir.i32(4)), ir.i32(0x3fff));
        let address = ir.resize(false, address, 64);
        ir.or(address, address.get_type().const_int(DESCRIPTOR, false))
    }

    /// Inline PTX that changes `f32` registers: they are its first operands, `inputs` follow.
    fn tied(
        &self,
        text: String,
        registers: &[BasicValueEnum<'c>],
        inputs: &[BasicValueEnum<'c>],
    ) -> Registers<'c> {
        let count = registers.len();
        let mut constraints = vec!["=f".to_owned(); count];
        constraints.extend(inputs.iter().map(|input| match input {
            BasicValueEnum::IntValue(word) if word.get_type().get_bit_width() == 32 => "r".into(),
            _ => "l".to_owned(),
        }));
        constraints.extend((0..count).map(|number| number.to_string()));
        constraints.push("~{memory}".to_owned());
        let assembly = Assembly { text, constraints: constraints.join(","), effects: true };
        let float: BasicTypeEnum = self.ir.context.f32_type().into();
        let result = self.ir.context.struct_type(&vec![float; count], false);
        let operands: Vec<BasicValueEnum> = inputs.iter().chain(registers).copied().collect();
        let result = self
            .ir
            .assembly(assembly, Some(result.into()), &operands)
            .expect("invariant: registers come back");
        (0..count as u32).map(|number| self.ir.field(result, number)).collect()
    }
}

/// The products of 64 rows over a row's inner elements, as one group. `count`: registers of the sums;
/// `held`: whether the left factors are in registers.
fn instructions(tile: &WgmmaTile, count: usize, held: bool) -> String {
    let columns = tile.group_columns();
    let list = |first: usize, count: usize| -> String {
        let names: Vec<String> = (first..first + count).map(|n| format!("${n}")).collect();
        format!("{{{}}}", names.join(", "))
    };
    let sums = list(0, count);
    let name = tile.factor.name();
    let inner = if tile.factor == Factor::Tf32 { 8 } else { 16 };
    let order = match (tile.factor, held) {
        (Factor::Tf32, _) => "",
        (_, true) => ", 0",
        (_, false) => ", 0, 0",
    };
    let steps = (ROW_BYTES / STEP_BYTES) as usize;
    let right = count + if held { HELD_WORDS * steps } else { 1 };
    let mut text = "{\n.reg .pred adds;\n.reg .b64 left, right;\nsetp.eq.b32 adds, 0, 0;\n\
                    wgmma.fence.sync.aligned;\n"
        .to_owned();
    for step in 0..steps {
        let start = (step * STEP_BYTES as usize) >> 4;
        let left = if held {
            list(count + HELD_WORDS * step, HELD_WORDS)
        } else {
            text += &format!("add.s64 left, ${count}, {start};\n");
            "left".to_owned()
        };
        text += &format!(
            "add.s64 right, ${right}, {start};\n\
             wgmma.mma_async.sync.aligned.m64n{columns}k{inner}.f32.{name}.{name} {sums}, \
             {left}, right, adds, 1, 1{order};\n"
        );
    }
    text + "wgmma.commit_group.sync.aligned;\n}"
}
