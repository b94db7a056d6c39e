//! Asynchronous matrix products of warpgroups, as inline PTX: LLVM has no intrinsics for them.

use inkwell::types::BasicTypeEnum;
use inkwell::values::{BasicValueEnum, IntValue};

use super::emitter::{Emitter, Registers};
use super::ir::Assembly;
use crate::kernel::{Factor, Memory, Places, ValueId, WgmmaTile};

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
            let text = instructions(tile, each, &Left::row());
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
            results.extend(self.tied(instructions(tile, each, &Left::Registers), sums, &inputs));
        }
        results
    }

    /// See [`crate::kernel::Instruction::WgmmaPlaces`].
    pub fn wgmma_places(
        &mut self,
        tile: &WgmmaTile,
        ((memory, offset), places): ((Memory, ValueId), &Places),
        right: (Memory, ValueId),
        sums: ValueId,
    ) -> Registers<'c> {
        let bytes = tile.factor.dtype().size() as u32;
        let group_m = self.group_digit(GROUP_THREADS, tile.groups_m);
        let group_n = self.group_digit(GROUP_THREADS * tile.groups_m, tile.groups_n);
        let ir = &self.ir;
        let first = ir.mul(group_m, ir.i32(tile.products().into()));
        let across = ir.i32(places.across.trailing_zeros().into());
        let along = ir.and(first, ir.i32((places.across - 1).into()));
        let along = ir.mul(along, ir.i32((places.step * bytes).into()));
        let line = ir.mul(ir.shr(false, first, across), ir.i32((places.pitch * bytes).into()));
        let own = ir.add(along, line);
        let upper = [u64::from((places.stride * bytes) >> 4), DESCRIPTOR >> 32];
        let rows = ir.mul(group_n, ir.i32((tile.group_columns() * ROW_BYTES).into()));
        let left = self.place(memory, offset, own);
        let right = self.place(right.0, right.1, rows);
        let sums = self.registers(sums).to_vec();
        let each = sums.len() / tile.products() as usize;
        let mut results = Vec::new();
        for (product, sums) in (0u32..).zip(sums.chunks(each)) {
            // Where the parts of an instruction start, and from the first one to the second.
            let start = |pair: &[u32]| {
                let first = (places.product(product) + pair[0]) * bytes;
                first >> 4 | (((pair[1] - pair[0]) * bytes) >> 4) << 16
            };
            let starts = places.starts.chunks(2).map(start).collect();
            let text = instructions(tile, each, &Left::Places { starts, upper });
            results.extend(self.tied(text, sums, &[left.into(), right.into()]));
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
        let address = self.place(memory, offset, ir.mul(group, ir.i32((rows * ROW_BYTES).into())));
        let address = ir.resize(false, address, 64);
        ir.or(address, address.get_type().const_int(DESCRIPTOR, false))
    }

    /// What descriptors hold of the address of an element of shared memory and `own` bytes beyond.
    fn place(&self, memory: Memory, offset: ValueId, own: IntValue<'c>) -> IntValue<'c> {
        let ir = &self.ir;
        let array = self.array(memory);
        let base = ir.pointer_to_int(array.base, 32);
        let offset = self.registers(offset)[0].into_int_value();
        let offset = ir.mul(offset, ir.i32(array.dtype.size() as i64));
        let address = ir.add(ir.add(base, offset), own);
        ir.and(ir.shr(false, address, ir.i32(4)), ir.i32(0x3fff))
    }

    /// [`Emitter::thread_digit`] of numbers that all lanes of a warp have in common, in a way that the
    /// assembler sees it: what follows from it needs no register of each lane.
    fn group_digit(&mut self, weight: u32, size: u32) -> IntValue<'c> {
        if size == 1 {
            return self.ir.i32(0);
        }
        if let Some(&digit) = self.group_digits.get(&(weight, size)) {
            return digit;
        }
        let digit = self.thread_digit(weight, size);
        let here = self.ir.current_block();
        self.ir.builder.position_at_end(self.entry);
        let ir = &self.ir;
        let operands = [ir.i32(-1).into(), digit.into(), ir.i32(0).into(), ir.i32(31).into()];
        let digit = ir.intrinsic("llvm.nvvm.shfl.sync.idx.i32", &[], &operands).into_int_value();
        self.ir.builder.position_at_end(here);
        self.group_digits.insert((weight, size), digit);
        digit
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

/// Where the left factors of a group of products are.
enum Left {
    Registers,
    /// What each instruction adds to the descriptor.
    Shared(Vec<u64>),
    /// What each instruction adds to the descriptor's lower word, and the upper words of both descriptors.
    Places {
        starts: Vec<u32>,
        upper: [u64; 2],
    },
}

impl Left {
    /// The inner elements of a swizzled row.
    fn row() -> Left {
        let steps = u64::from(ROW_BYTES / STEP_BYTES);
        Left::Shared((0..steps).map(|step| step * u64::from(STEP_BYTES >> 4)).collect())
    }
}

/// The products of 64 rows over a row's inner elements, as one group. `count`: registers of the sums.
fn instructions(tile: &WgmmaTile, count: usize, held: &Left) -> String {
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
        (_, Left::Registers) => ", 0",
        (_, Left::Shared(_) | Left::Places { .. }) => ", 0, 0",
    };
    let (steps, right) = match held {
        Left::Registers => {
            let steps = (ROW_BYTES / STEP_BYTES) as usize;
            (steps, count + HELD_WORDS * steps)
        }
        Left::Shared(starts) => (starts.len(), count + 1),
        Left::Places { starts, .. } => (starts.len(), count + 1),
    };
    let mut text =
        "{\n.reg .pred adds;\n.reg .b32 word;\n.reg .b64 left, right;\nsetp.eq.b32 adds, 0, 0;\n\
                    wgmma.fence.sync.aligned;\n"
            .to_owned();
    for step in 0..steps {
        let left = match held {
            Left::Registers => list(count + HELD_WORDS * step, HELD_WORDS),
            Left::Shared(starts) => {
                text += &format!("add.s64 left, ${count}, {};\n", starts[step]);
                "left".to_owned()
            }
            Left::Places { starts, upper } => {
                text += &format!("add.s32 word, ${count}, {};\n", starts[step]);
                text += &format!("mov.b64 left, {{word, {}}};\n", upper[0]);
                "left".to_owned()
            }
        };
        let start = (step * STEP_BYTES as usize) >> 4;
        text += &match held {
            Left::Places { upper, .. } => {
                let leading = DESCRIPTOR & 0xffff_ffff;
                let start = start as u64 + leading;
                format!(
                    "add.s32 word, ${right}, {start};\nmov.b64 right, {{word, {}}};\n",
                    upper[1]
                )
            }
            _ => format!("add.s64 right, ${right}, {start};\n"),
        };
        text += &format!(
            "wgmma.mma_async.sync.aligned.m64n{columns}k{inner}.f32.{name}.{name} {sums}, \
             {left}, right, adds, 1, 1{order};\n"
        );
    }
    text + "wgmma.commit_group.sync.aligned;\n}"
}
