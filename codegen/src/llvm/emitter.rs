//! Statements of the kernel IR as LLVM instructions: a fragment is one LLVM value per register.

use std::collections::BTreeMap;

use fornax_ir::Scalar;
use inkwell::IntPredicate;
use inkwell::basic_block::BasicBlock;
use inkwell::values::{BasicValueEnum, IntValue};

use super::fold_plan::Digit;
use super::ir::Ir;
use super::memory::{Array, Space};
use super::shared::SharedLayout;
use super::unroll;
use crate::CodegenError;
use crate::kernel::{
    Block, Instruction, Kernel, Layout, Memory, Mode, Param, Statement, Ty, ValueId,
};

/// A value: one per register, one for a scalar.
pub(super) type Registers<'c> = Vec<BasicValueEnum<'c>>;

/// Emits one kernel.
pub(super) struct Emitter<'c, 'k> {
    pub ir: Ir<'c>,
    pub kernel: &'k Kernel,
    /// Global arrays, by parameter.
    pub globals: Vec<Option<Array<'c>>>,
    /// Arrays in shared memory.
    shared: Vec<Array<'c>>,
    /// Where reductions exchange values between warps; as bytes.
    pub scratch: Option<inkwell::values::PointerValue<'c>>,
    /// Whether a thread may still read what an earlier exchange left.
    pub scratch_in_use: bool,
    pub loop_depth: u32,
    values: Vec<Registers<'c>>,
    /// What each register of an integer adds to the first one, where that is known.
    relative: Vec<Option<Vec<i64>>>,
    /// Runs before all code: what depends on the thread number alone stands here once.
    pub entry: BasicBlock<'c>,
    digits: BTreeMap<(u32, u32), IntValue<'c>>,
    pub group_digits: BTreeMap<(u32, u32), IntValue<'c>>,
}

impl<'c, 'k> Emitter<'c, 'k> {
    pub fn new(ir: Ir<'c>, kernel: &'k Kernel, layout: &SharedLayout) -> Emitter<'c, 'k> {
        let entry = ir.block("entry");
        let start = ir.block("start");
        ir.builder.position_at_end(start);
        let globals = kernel.params.iter().enumerate().map(|(index, param)| match param {
            Param::Global { dtype, written, .. } => {
                let base = ir.function.get_nth_param(index as u32).map(|p| p.into_pointer_value());
                let space = if *written { Space::Global } else { Space::Constant };
                base.map(|base| Array { base, dtype: *dtype, space })
            }
            Param::Scalar { .. } => None,
        });
        let globals = globals.collect();
        let base = layout.declare(&ir);
        let at = |offset: u32| {
            let base = base.expect("invariant: shared memory is declared when it has a size");
            ir.element_address(ir.int_type(8).into(), base, ir.i64(offset.into()))
        };
        let shared = kernel.shared.iter().zip(&layout.offsets).map(|(array, &offset)| Array {
            base: at(offset),
            dtype: array.dtype,
            space: Space::Shared,
        });
        let shared = shared.collect();
        let scratch = layout.scratch.map(at);
        Emitter {
            ir,
            kernel,
            globals,
            shared,
            scratch,
            scratch_in_use: false,
            loop_depth: 0,
            values: vec![Vec::new(); kernel.values.len()],
            relative: vec![None; kernel.values.len()],
            entry,
            digits: BTreeMap::new(),
            group_digits: BTreeMap::new(),
        }
    }

    /// Emits the body and hands the finished function's builder back.
    pub fn run(mut self) -> Result<Ir<'c>, CodegenError> {
        let start = self.ir.current_block();
        self.block(&self.kernel.body)?;
        self.ir.return_nothing();
        self.ir.builder.position_at_end(self.entry);
        self.ir.jump(start);
        Ok(self.ir)
    }

    pub fn ty(&self, value: ValueId) -> &'k Ty {
        &self.kernel.values[value.0 as usize]
    }

    pub fn registers(&self, value: ValueId) -> &[BasicValueEnum<'c>] {
        &self.values[value.0 as usize]
    }

    pub fn relative(&self, value: ValueId) -> Option<&[i64]> {
        self.relative[value.0 as usize].as_deref()
    }

    fn scalar(&self, value: ValueId) -> IntValue<'c> {
        self.registers(value)[0].into_int_value()
    }

    fn define(&mut self, value: ValueId, registers: Registers<'c>) {
        self.values[value.0 as usize] = registers;
    }

    fn block(&mut self, block: &Block) -> Result<(), CodegenError> {
        block.0.iter().try_for_each(|statement| self.statement(statement))
    }

    fn statement(&mut self, statement: &Statement) -> Result<(), CodegenError> {
        let results = match &statement.instruction {
            Instruction::Reduce { dim, values, combine } => {
                self.fold(*dim, values, combine, false)?
            }
            Instruction::Scan { dim, values, combine } => self.fold(*dim, values, combine, true)?,
            Instruction::For { .. } => self.for_loop(&statement.instruction)?,
            Instruction::If { condition, body, .. } => self.if_then(*condition, body)?,
            Instruction::Store { memory, offset, value, mask, vector } => {
                self.store(*memory, *offset, *value, *mask, *vector)
            }
            Instruction::Barrier => {
                self.barrier();
                Vec::new()
            }
            Instruction::ProxyFence => {
                self.proxy_fence();
                Vec::new()
            }
            Instruction::Copy { to, from, masks, vector } => {
                self.copy(*to, *from, *masks, *vector);
                Vec::new()
            }
            Instruction::CopyCommit => {
                self.copy_commit();
                Vec::new()
            }
            Instruction::CopyWait(pending) => {
                self.copy_wait(*pending);
                Vec::new()
            }
            Instruction::WgmmaPending(pending) => {
                self.wgmma_pending(*pending);
                Vec::new()
            }
            Instruction::Wgmma { tile, memory, offsets, sums } => {
                vec![self.wgmma(tile, *memory, *offsets, *sums)]
            }
            Instruction::WgmmaRegisters { tile, left, right, sums } => {
                vec![self.wgmma_registers(tile, *left, *right, *sums)]
            }
            Instruction::WgmmaPlaces { tile, left, places, right, sums } => {
                vec![self.wgmma_places(tile, (*left, places), *right, *sums)]
            }
            Instruction::Reorder(value) => vec![self.reorder(*value, statement.results[0])],
            Instruction::Ticket { memory, offset, of, ordered } => {
                vec![vec![self.ticket((*memory, *offset), *of, *ordered)]]
            }
            Instruction::Meet { memory, offset, blocks } => {
                self.meet(*memory, *offset, *blocks);
                Vec::new()
            }
            Instruction::Send { memory, offset, value, tag, mask } => {
                self.send((*memory, *offset), (*value, *tag), *mask);
                Vec::new()
            }
            Instruction::Receive { memory, offset, tag, mask } => {
                vec![self.receive((*memory, *offset), *tag, *mask)]
            }
            other => vec![self.value(other, self.ty(statement.results[0]))?],
        };
        for (&value, registers) in statement.results.iter().zip(results) {
            if self.ty(value).dtype().is_int() {
                self.relative[value.0 as usize] = self.relative_of(&statement.instruction, value);
            }
            self.define(value, registers);
        }
        Ok(())
    }

    /// Instructions with one result and no control flow.
    fn value(&mut self, instruction: &Instruction, ty: &Ty) -> Result<Registers<'c>, CodegenError> {
        let count = ty.layout().map_or(1, Layout::register_count) as usize;
        let each = |f: &dyn Fn(usize) -> BasicValueEnum<'c>| (0..count).map(f).collect();
        Ok(match instruction {
            Instruction::Constant(number) => vec![self.ir.number(*number); count],
            Instruction::Param(index) => vec![self.param(*index)],
            Instruction::BlockIndex(axis) => {
                let name = ["ctaid.x", "ctaid.y", "ctaid.z"][*axis as usize];
                vec![self.ir.special_register(name).into()]
            }
            Instruction::Coordinate(dim) => self.coordinate(*dim, ty),
            Instruction::Lookup { dim, table } => self.lookup(*dim, table, ty),
            Instruction::Splat(value) => vec![self.registers(*value)[0]; count],
            Instruction::Broadcast(value) => self.broadcast(*value, ty),
            Instruction::Unary(function, x) => {
                let dtype = self.ty(*x).dtype();
                let x = self.registers(*x).to_vec();
                self.map(&x, |emitter, x| emitter.unary(*function, dtype, x))?
            }
            Instruction::Binary(function, a, b) => {
                let dtype = self.ty(*a).dtype();
                let pairs = self.pairs(*a, *b);
                self.map(&pairs, |emitter, (a, b)| emitter.binary(*function, dtype, a, b))?
            }
            Instruction::Fma(a, b, c) => {
                let (a, b, c) = (self.registers(*a), self.registers(*b), self.registers(*c));
                each(&|i| self.multiply_add(a[i], b[i], c[i]))
            }
            Instruction::Select(condition, then, otherwise) => {
                let condition = self.registers(*condition);
                let (then, otherwise) = (self.registers(*then), self.registers(*otherwise));
                each(&|i| self.ir.select(condition[i].into_int_value(), then[i], otherwise[i]))
            }
            Instruction::Cast(to, x) => {
                let from = self.ty(*x).dtype();
                let x = self.registers(*x);
                each(&|i| self.cast(from, *to, x[i]))
            }
            Instruction::RoundTf32(x) => {
                let x = self.registers(*x);
                each(&|i| self.round_tf32(x[i]))
            }
            Instruction::Mma { tile, operands } => self.mma(tile, operands),
            Instruction::WgmmaWait(sums) => self.wgmma_wait(*sums),
            Instruction::Load { memory, offset, mask, vector } => {
                self.load(*memory, *offset, *mask, *vector)
            }
            other => unreachable!("{other:?} has statements or no result"),
        })
    }

    fn map<T: Copy>(
        &mut self,
        operands: &[T],
        mut f: impl FnMut(&mut Self, T) -> Result<BasicValueEnum<'c>, CodegenError>,
    ) -> Result<Registers<'c>, CodegenError> {
        operands.iter().map(|&operand| f(self, operand)).collect()
    }

    fn pairs(&self, a: ValueId, b: ValueId) -> Vec<(BasicValueEnum<'c>, BasicValueEnum<'c>)> {
        self.registers(a).iter().copied().zip(self.registers(b).iter().copied()).collect()
    }

    fn param(&self, index: u32) -> BasicValueEnum<'c> {
        self.ir.function.get_nth_param(index).expect("invariant: all parameters are declared")
    }

    pub fn array(&self, memory: Memory) -> Array<'c> {
        match memory {
            Memory::Global(index) => self.globals[index as usize]
                .expect("invariant: the verifier checks that memory is an array"),
            Memory::Shared(index) => self.shared[index as usize],
        }
    }

    fn load(
        &self,
        memory: Memory,
        offset: ValueId,
        mask: Option<(ValueId, Scalar)>,
        vector: u32,
    ) -> Registers<'c> {
        let array = self.array(memory);
        let places = self.places(memory, offset, vector);
        let read = places.into_iter().enumerate().flat_map(|(group, place)| {
            let first = group * vector as usize;
            let mask = mask
                .map(|(mask, otherwise)| (self.registers(mask)[first].into_int_value(), otherwise));
            self.ir.read(array, place, mask, vector)
        });
        read.collect()
    }

    /// The offset of the first of each group of `vector` registers.
    pub fn places(&self, memory: Memory, offset: ValueId, vector: u32) -> Vec<IntValue<'c>> {
        if let Memory::Shared(index) = memory
            && self.kernel.shared[index as usize].swizzled
        {
            return self.swizzled(self.kernel.shared[index as usize].dtype, offset, vector);
        }
        let offsets: Vec<IntValue> =
            self.registers(offset).iter().map(|offset| offset.into_int_value()).collect();
        let relative = self.relative(offset).filter(|_| offsets.len() > 1);
        let place = |register: usize| match relative {
            // Offsets do not overflow, which LLVM cannot see: written so, all addresses are one address
            // and constants.
            Some(relative) => {
                let first = offsets[0];
                self.ir.add_exact(first, self.ir.int_like(first, relative[register]))
            }
            None => offsets[register],
        };
        (0..offsets.len()).step_by(vector as usize).map(place).collect()
    }

    fn store(
        &mut self,
        memory: Memory,
        offset: ValueId,
        value: ValueId,
        mask: Option<ValueId>,
        vector: u32,
    ) -> Vec<Registers<'c>> {
        let array = self.array(memory);
        let holder = self.ty(value).layout().and_then(|layout| self.first_holder(layout));
        let places = self.places(memory, offset, vector);
        let values = self.registers(value);
        for (place, first) in places.into_iter().zip((0..values.len()).step_by(vector as usize)) {
            let mask = mask.map(|mask| self.registers(mask)[first].into_int_value());
            let mask = match (mask, holder) {
                (Some(mask), Some(holder)) => Some(self.ir.and(mask, holder)),
                (mask, holder) => mask.or(holder),
            };
            let group = &values[first..first + vector as usize];
            self.ir.write(array, place, mask, group);
        }
        Vec::new()
    }

    /// Whether the thread is the first of those that hold the same elements; none if all differ.
    pub fn first_holder(&mut self, layout: &Layout) -> Option<IntValue<'c>> {
        let mut weight = 1;
        let mut first: Option<IntValue> = None;
        for mode in &layout.threads {
            if mode.stride == 0 && mode.size > 1 {
                let digit = self.thread_digit(weight, mode.size);
                let zero = self.ir.compare(IntPredicate::EQ, digit, self.ir.i32(0));
                first = Some(first.map_or(zero, |first| self.ir.and(first, zero)));
            }
            weight *= mode.size;
        }
        first
    }

    pub fn barrier(&self) {
        let first = self.ir.i32(0);
        self.ir.call_intrinsic("llvm.nvvm.barrier.cta.sync.aligned.all", &[], &[first.into()]);
    }

    /// The thread's number in the block.
    pub fn thread(&mut self) -> IntValue<'c> {
        self.thread_digit(1, self.kernel.threads)
    }

    /// `thread / weight % size`, computed once at the start.
    pub fn thread_digit(&mut self, weight: u32, size: u32) -> IntValue<'c> {
        if let Some(&digit) = self.digits.get(&(weight, size)) {
            return digit;
        }
        let whole = weight == 1 && size == self.kernel.threads;
        let thread = if whole { None } else { Some(self.thread()) };
        let here = self.ir.current_block();
        self.ir.builder.position_at_end(self.entry);
        let ir = &self.ir;
        let digit = match thread {
            None => ir.special_register("tid.x"),
            Some(thread) => {
                let quotient = ir.div(false, thread, ir.i32(weight.into()));
                if weight * size >= self.kernel.threads {
                    quotient
                } else {
                    ir.rem(false, quotient, ir.i32(size.into()))
                }
            }
        };
        self.ir.builder.position_at_end(here);
        self.digits.insert((weight, size), digit);
        digit
    }

    fn coordinate(&mut self, dim: u32, ty: &Ty) -> Registers<'c> {
        let layout = ty.layout().expect("invariant: coordinates are fragments");
        let mut base: Option<IntValue> = None;
        let mut weight = 1;
        for &Mode { dim: along, size, stride } in &layout.threads {
            if along == dim && size > 1 && stride > 0 {
                let digit = self.thread_digit(weight, size);
                let part = self.ir.mul_exact(digit, self.ir.i32(stride.into()));
                base = Some(base.map_or(part, |base| self.ir.add_exact(base, part)));
            }
            weight *= size;
        }
        let base = base.unwrap_or_else(|| self.ir.i32(0));
        let registers = (0..layout.register_count()).map(|register| {
            let part = layout.register_coordinate(register)[dim as usize];
            self.ir.add_exact(base, self.ir.i32(part.into())).into()
        });
        registers.collect()
    }

    fn lookup(&mut self, dim: u32, table: &[i32], ty: &Ty) -> Registers<'c> {
        let layout = ty.layout().expect("invariant: what is looked up is a fragment");
        let at = |coordinate: u32| i64::from(table[coordinate as usize]);
        let mut base = self.ir.i32(0);
        let mut weight = 1;
        for &Mode { dim: along, size, stride } in &layout.threads {
            if along == dim && stride > 0 {
                for bit in (0..32).take_while(|&bit| 1 << bit < size) {
                    let digit = self.thread_digit(weight << bit, 2);
                    let step = self.ir.i32(at(stride << bit) - at(0));
                    base = self.ir.add_exact(base, self.ir.mul_exact(digit, step));
                }
            }
            weight *= size;
        }
        let registers = (0..layout.register_count()).map(|register| {
            let own = layout.register_coordinate(register)[dim as usize];
            self.ir.add_exact(base, self.ir.i32(at(own))).into()
        });
        registers.collect()
    }

    /// Registers along dropped dimensions repeat; those along the others keep their order.
    fn broadcast(&self, value: ValueId, ty: &Ty) -> Registers<'c> {
        let to = ty.layout().expect("invariant: broadcasts give fragments");
        let registers = self.registers(value);
        self.sources(value, to).into_iter().map(|source| registers[source]).collect()
    }

    /// The register of a fragment that each register of what it is broadcast to repeats.
    pub fn sources(&self, value: ValueId, to: &Layout) -> Vec<usize> {
        let from = self.ty(value).layout().expect("invariant: fragments are broadcast");
        let source = |register: u32| {
            let mut rest = register;
            let mut index = 0;
            let mut weight = 1;
            for mode in &to.registers {
                let digit = rest % mode.size;
                rest /= mode.size;
                if from.shape[mode.dim as usize] != 1 {
                    index += digit * weight;
                    weight *= mode.size;
                }
            }
            index as usize
        };
        (0..to.register_count()).map(source).collect()
    }

    fn for_loop(&mut self, instruction: &Instruction) -> Result<Vec<Registers<'c>>, CodegenError> {
        let Instruction::For { index, from, to, step, carried, body, yields, unroll } = instruction
        else {
            unreachable!("only loops are emitted as loops")
        };
        let (from, to) = (self.scalar(*from), self.scalar(*to));
        let initial: Vec<Registers> =
            carried.iter().map(|(value, _)| self.registers(*value).to_vec()).collect();
        let (round, exit) = (self.ir.block("round"), self.ir.block("after"));
        let before = self.ir.current_block();
        let any = self.ir.compare(IntPredicate::SLT, from, to);
        self.ir.branch(any, round, exit);

        self.ir.builder.position_at_end(round);
        let counter = self.ir.phi(from.get_type().into());
        self.define(*index, vec![counter.as_basic_value()]);
        let mut phis = Vec::new();
        for ((_, inside), initial) in carried.iter().zip(&initial) {
            let registers: Vec<_> = initial.iter().map(|v| self.ir.phi(v.get_type())).collect();
            self.define(*inside, registers.iter().map(|phi| phi.as_basic_value()).collect());
            phis.push(registers);
        }
        // What one round leaves in the scratch memory the next one may still read.
        self.loop_depth += 1;
        self.block(body)?;
        self.loop_depth -= 1;
        let counted = counter.as_basic_value().into_int_value();
        let next = self.ir.add_exact(counted, self.ir.int_like(counted, (*step).into()));
        let more = self.ir.compare(IntPredicate::SLT, next, to);
        let latch = self.ir.current_block();
        let jump = self.ir.branch(more, round, exit);
        unroll::set(self.ir.context, jump, *unroll);
        counter.add_incoming(&[(&from, before), (&next, latch)]);

        self.ir.builder.position_at_end(exit);
        let mut results = Vec::new();
        for ((value, phis), initial) in yields.iter().zip(&phis).zip(&initial) {
            let mut after = Vec::new();
            let last = self.registers(*value).to_vec();
            for ((phi, initial), last) in phis.iter().zip(initial).zip(&last) {
                phi.add_incoming(&[(initial, before), (last, latch)]);
                let result = self.ir.phi(initial.get_type());
                result.add_incoming(&[(initial, before), (last, latch)]);
                after.push(result.as_basic_value());
            }
            results.push(after);
        }
        Ok(results)
    }

    fn if_then(
        &mut self,
        condition: ValueId,
        body: &Block,
    ) -> Result<Vec<Registers<'c>>, CodegenError> {
        let (then, after) = (self.ir.block("then"), self.ir.block("endif"));
        self.ir.branch(self.scalar(condition), then, after);
        self.ir.builder.position_at_end(then);
        self.block(body)?;
        self.ir.jump(after);
        self.ir.builder.position_at_end(after);
        Ok(Vec::new())
    }

    /// A digit of the thread number.
    pub fn digit(&mut self, digit: Digit) -> IntValue<'c> {
        self.thread_digit(digit.weight, digit.size)
    }

    fn multiply_add(
        &self,
        a: BasicValueEnum<'c>,
        b: BasicValueEnum<'c>,
        c: BasicValueEnum<'c>,
    ) -> BasicValueEnum<'c> {
        match (a, b, c) {
            (
                BasicValueEnum::FloatValue(a),
                BasicValueEnum::FloatValue(b),
                BasicValueEnum::FloatValue(c),
            ) => self.ir.fma(a, b, c).into(),
            _ => {
                let product = self.ir.mul(a.into_int_value(), b.into_int_value());
                self.ir.add(product, c.into_int_value()).into()
            }
        }
    }

    /// The error for a function without code for an element type.
    pub fn unsupported(&self, function: &str, dtype: fornax_bundle::DType) -> CodegenError {
        CodegenError::UnsupportedFunction {
            kernel: self.kernel.name.clone(),
            function: function.to_owned(),
            dtype,
        }
    }
}
