//! Wide memory accesses: an analysis of the kernel IR that finds which registers lie side by side.
//!
//! Lowerings give groups of registers consecutive elements and leave it to this pass to see where
//! that makes consecutive, aligned offsets under one mask. Facts start at constants, divisors of
//! parameters and steps of layouts, and follow the index arithmetic.

use fornax_ir::{BinaryFn, DType, Scalar};

use crate::kernel::{
    Block, Instruction, Kernel, Layout, Memory, Mode, Param, Statement, Ty, ValueId,
};

/// Bytes of the widest access (PTX ISA, "ld": vectors of 128 bits).
const ACCESS_BYTES: u32 = 16;

/// More than any number of registers.
const ALL: u32 = 1 << 16;

/// What is known of a value's registers. Runs and groups start at multiples of their size, a power of
/// two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Facts {
    /// In runs of this many registers, values go up by one.
    run: u32,
    /// In groups of this many registers, values are equal.
    equal: u32,
    /// Divides the first value of each run; 0 when all of them are 0.
    divisor: u64,
}

/// Sets the number of registers that each load and store moves at once to the largest that is legal.
pub fn vectorize(kernel: &mut Kernel) {
    let mut body = std::mem::take(&mut kernel.body);
    let count = kernel.values.len();
    let (facts, numbers) = (vec![Facts::NONE; count], vec![None; count]);
    Analysis { kernel, facts, numbers }.block(&mut body);
    kernel.body = body;
}

struct Analysis<'k> {
    kernel: &'k Kernel,
    facts: Vec<Facts>,
    /// Magnitudes of integer constants.
    numbers: Vec<Option<u64>>,
}

impl Facts {
    /// Nothing is known.
    const NONE: Facts = Facts { run: 1, equal: 1, divisor: 1 };

    /// Equal in all registers.
    fn uniform(divisor: u64) -> Facts {
        Facts { run: 1, equal: ALL, divisor }
    }

    /// Equal in groups, otherwise unknown.
    fn equal(equal: u32) -> Facts {
        Facts { equal, ..Facts::NONE }
    }

    /// What divides the first of each `run` values, where those are part of a run or equal.
    fn divisor_of(self, run: u32) -> u64 {
        if self.run > run { gcd(self.divisor, run.into()) } else { self.divisor }
    }

    /// The size of groups in which `self` goes up by one from a multiple of the size.
    fn aligned_run(self) -> u32 {
        (0..=self.run.ilog2())
            .rev()
            .map(|log| 1 << log)
            .find(|&run| self.divisor_of(run).is_multiple_of(u64::from(run)))
            .unwrap_or(1)
    }

    fn sum(self, other: Facts, negated: bool) -> Facts {
        let left = self.run.min(other.equal);
        let right = if negated { 1 } else { self.equal.min(other.run) };
        let run = left.max(right);
        Facts {
            run,
            equal: self.equal.min(other.equal),
            divisor: gcd(self.divisor_of(run), other.divisor_of(run)),
        }
    }

    fn product(self, other: Facts) -> Facts {
        Facts {
            run: 1,
            equal: self.equal.min(other.equal),
            divisor: self.divisor_of(1).saturating_mul(other.divisor_of(1)),
        }
    }

    /// The quotient of numbers that are not negative: equal where a run lies between two multiples of the
    /// divisor. `by`: the divisor, when it is known.
    fn quotient(self, other: Facts, by: Option<u64>) -> Facts {
        let within = self.aligned_run().min(power_of_two_in(other.divisor)).min(other.equal);
        let exact = by.filter(|&by| by > 0 && self.run == 1 && self.divisor.is_multiple_of(by));
        Facts {
            run: 1,
            equal: within.max(self.equal.min(other.equal)),
            divisor: exact.map_or(1, |by| self.divisor / by),
        }
    }

    /// The remainder: a run stays one where it lies between two multiples of the divisor.
    fn remainder(self, other: Facts) -> Facts {
        let run = self.aligned_run().min(power_of_two_in(other.divisor)).min(other.equal);
        Facts {
            run,
            equal: self.equal.min(other.equal),
            divisor: gcd(self.divisor_of(run), other.divisor_of(1)),
        }
    }

    /// Where a comparison of a run with a bound has one answer for a group.
    fn compared(run: Facts, bound: Facts) -> u32 {
        run.aligned_run().min(power_of_two_in(bound.divisor)).min(bound.equal)
    }

    fn either(self, other: Facts) -> Facts {
        let run = self.run.min(other.run);
        Facts {
            run,
            equal: self.equal.min(other.equal),
            divisor: gcd(self.divisor_of(run), other.divisor_of(run)),
        }
    }
}

impl Analysis<'_> {
    fn block(&mut self, block: &mut Block) {
        for statement in &mut block.0 {
            self.statement(statement);
        }
    }

    fn facts(&self, value: ValueId) -> Facts {
        self.facts[value.0 as usize]
    }

    fn ty(&self, value: ValueId) -> &Ty {
        &self.kernel.values[value.0 as usize]
    }

    /// Facts that hold for a value whatever it is.
    fn unknown(&self, value: ValueId) -> Facts {
        match self.ty(value) {
            Ty::Scalar(_) => Facts::uniform(1),
            Ty::Fragment(..) => Facts::NONE,
        }
    }

    fn statement(&mut self, statement: &mut Statement) {
        match &mut statement.instruction {
            Instruction::Load { memory, offset, mask, vector } => {
                let mask = mask.map(|(mask, _)| mask);
                *vector = self.width(*memory, *offset, mask);
            }
            Instruction::Store { memory, offset, mask, vector, .. } => {
                *vector = self.width(*memory, *offset, *mask);
            }
            Instruction::Copy { to, from, masks, vector } => {
                *vector =
                    self.width(to.0, to.1, masks[0]).min(self.width(from.0, from.1, masks[1]));
            }
            Instruction::For { index, from, step, carried, body, .. } => {
                let divisor = gcd(self.facts(*from).divisor, (*step).into());
                self.facts[index.0 as usize] = Facts::uniform(divisor);
                for (_, inside) in carried.iter() {
                    self.facts[inside.0 as usize] = self.unknown(*inside);
                }
                self.block(body);
            }
            Instruction::If { body, .. } => self.block(body),
            _ => {}
        }
        for &result in &statement.results {
            let facts = self.result(&statement.instruction, result);
            // A scalar is the same in all registers, whatever the instruction.
            let uniform = matches!(self.ty(result), Ty::Scalar(_));
            let equal = if uniform { ALL } else { facts.equal };
            self.facts[result.0 as usize] = Facts { equal, ..facts };
            self.numbers[result.0 as usize] = match &statement.instruction {
                Instruction::Constant(number) => magnitude(*number),
                Instruction::Splat(x) | Instruction::Broadcast(x) | Instruction::Cast(_, x) => {
                    self.numbers[x.0 as usize]
                }
                _ => None,
            };
        }
    }

    fn result(&self, instruction: &Instruction, result: ValueId) -> Facts {
        match instruction {
            Instruction::Constant(number) => Facts::uniform(magnitude(*number).unwrap_or(1)),
            Instruction::Param(index) => match &self.kernel.params[*index as usize] {
                Param::Scalar { range, .. } => Facts::uniform(range.divisor.unsigned_abs()),
                Param::Global { .. } => Facts::NONE,
            },
            Instruction::Coordinate(dim) => match self.ty(result) {
                Ty::Fragment(_, layout) => coordinate(layout, *dim),
                Ty::Scalar(_) => Facts::NONE,
            },
            Instruction::Splat(value) => self.facts(*value),
            Instruction::Broadcast(value) => self.broadcast(*value, result),
            Instruction::Unary(_, x) => Facts::equal(self.facts(*x).equal),
            Instruction::Binary(function, x, y) => self.binary(*function, *x, *y),
            Instruction::Fma(x, y, z) => {
                let equal = [x, y, z].map(|&value| self.facts(value).equal);
                Facts::equal(equal.into_iter().min().unwrap_or(1))
            }
            Instruction::Select(condition, x, y) => {
                let chosen = self.facts(*x).either(self.facts(*y));
                let run = chosen.run.min(self.facts(*condition).equal);
                Facts {
                    run,
                    equal: chosen.equal.min(self.facts(*condition).equal),
                    divisor: chosen.divisor_of(run),
                }
            }
            Instruction::Cast(to, x) => {
                let facts = self.facts(*x);
                let integers = to.is_int() && self.ty(*x).dtype().is_int();
                if integers { facts } else { Facts::equal(facts.equal) }
            }
            Instruction::Load { offset, mask, .. } => {
                let mask = mask.map_or(ALL, |(mask, _)| self.facts(mask).equal);
                Facts::equal(self.facts(*offset).equal.min(mask))
            }
            _ => self.unknown(result),
        }
    }

    fn binary(&self, function: BinaryFn, x: ValueId, y: ValueId) -> Facts {
        let (a, b) = (self.facts(x), self.facts(y));
        let dtype = self.ty(x).dtype();
        let equal = a.equal.min(b.equal);
        if !dtype.is_int() {
            return Facts::equal(equal);
        }
        match function {
            BinaryFn::Add => a.sum(b, false),
            BinaryFn::Sub => a.sum(b, true),
            BinaryFn::Mul => a.product(b),
            BinaryFn::Div if dtype.is_unsigned_int() => a.quotient(b, self.numbers[y.0 as usize]),
            BinaryFn::Rem | BinaryFn::Mod => a.remainder(b),
            BinaryFn::Lt => Facts::equal(equal.max(Facts::compared(a, b))),
            BinaryFn::Le => Facts::equal(equal.max(Facts::compared(b, a))),
            BinaryFn::Min | BinaryFn::Max => {
                Facts { run: 1, equal, divisor: gcd(a.divisor_of(1), b.divisor_of(1)) }
            }
            _ => Facts::equal(equal),
        }
    }

    /// Registers along dropped dimensions repeat; those along the others keep their order.
    fn broadcast(&self, value: ValueId, result: ValueId) -> Facts {
        let facts = self.facts(value);
        let (Some(from), Some(to)) = (self.ty(value).layout(), self.ty(result).layout()) else {
            return Facts::NONE;
        };
        let repeats = |dim: u32| from.shape[dim as usize] == 1;
        let leading = |repeated: bool| -> u32 {
            let modes = to.registers.iter().take_while(|mode| repeats(mode.dim) == repeated);
            modes.map(|mode| mode.size).product()
        };
        let every = facts.divisor_of(1);
        match leading(true) {
            1 => {
                let run = facts.run.min(leading(false));
                let all = to.registers.iter().all(|mode| !repeats(mode.dim));
                let equal = if all || facts.equal == ALL {
                    facts.equal
                } else {
                    facts.equal.min(leading(false))
                };
                Facts { run, equal, divisor: facts.divisor_of(run) }
            }
            _ if facts.equal == ALL => Facts { run: 1, equal: ALL, divisor: every },
            repeated => Facts { run: 1, equal: repeated, divisor: every },
        }
    }

    /// The most registers that an access can move at once.
    fn width(&self, memory: Memory, offset: ValueId, mask: Option<ValueId>) -> u32 {
        let Some(layout) = self.ty(offset).layout() else { return 1 };
        let size =
            self.kernel.memory_dtype(memory).map_or(ACCESS_BYTES, |dtype| dtype.size() as u32);
        let mask = mask.map_or(ALL, |mask| self.facts(mask).equal);
        let run = self.facts(offset).aligned_run().min(mask);
        run.min(ACCESS_BYTES / size).min(power_of_two_in(layout.register_count().into()))
    }
}

/// Facts of the coordinates along a dimension of a layout.
fn coordinate(layout: &Layout, dim: u32) -> Facts {
    let moves = |mode: &&Mode| mode.dim == dim && mode.stride > 0;
    if layout.registers.iter().all(|mode| !moves(&mode)) {
        return Facts::uniform(strides_divisor(layout.threads.iter().filter(moves)));
    }
    let (mut run, mut equal, mut leading) = (1u32, 1u32, 0);
    for mode in &layout.registers {
        if moves(&mode) && mode.stride == run && equal == 1 {
            run *= mode.size;
        } else if !moves(&mode) && run == 1 {
            equal *= mode.size;
        } else {
            break;
        }
        leading += 1;
    }
    let rest = layout.registers[leading..].iter().chain(&layout.threads).filter(moves);
    let divisor = strides_divisor(rest);
    let (run, whole) = (power_of_two_in(run.into()), run);
    let divisor = if run == whole { divisor } else { gcd(divisor, run.into()) };
    Facts { run, equal: power_of_two_in(equal.into()), divisor }
}

fn strides_divisor<'m>(modes: impl Iterator<Item = &'m Mode>) -> u64 {
    modes.map(|mode| u64::from(mode.stride)).fold(0, gcd)
}

fn magnitude(number: Scalar) -> Option<u64> {
    match number {
        Scalar::Int(DType::U64, value) => Some(value as u64),
        Scalar::Int(_, value) => Some(value.unsigned_abs()),
        Scalar::Float(..) => None,
    }
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The largest power of two that divides a number, at most [`ALL`].
fn power_of_two_in(number: u64) -> u32 {
    if number == 0 { ALL } else { 1 << number.trailing_zeros().min(ALL.ilog2()) }
}

#[cfg(test)]
mod tests {
    use fornax_ir::DimRange;

    use super::*;
    use crate::kernel::KernelBuilder;

    fn row(vector: u32) -> Layout {
        Layout {
            shape: vec![32 * vector],
            registers: vec![Mode::new(0, vector, 1)],
            threads: vec![Mode::new(0, 32, vector)],
        }
    }

    /// The width of a load at the offset (and mask) that `build` makes from the position of each
    /// element, a block's tile after another, and a size that `divisor` divides.
    fn width(
        dtype: DType,
        divisor: i64,
        build: impl Fn(&mut KernelBuilder, ValueId, ValueId) -> (ValueId, Option<ValueId>),
    ) -> u32 {
        let mut b = KernelBuilder::new("k", 32);
        let array = b.global("x", dtype, false);
        let size = b.scalar("n", DType::I32, DimRange { min: 0, max: 4096, divisor });
        let layout = row(16);
        let block = b.block_index(0);
        let base = b.mul_int(block, layout.shape[0].into());
        let at = b.coordinate(&layout, 0);
        let at = b.add(base, at);
        let (offset, mask) = build(&mut b, at, size);
        b.load(array, offset, mask.map(|mask| (mask, Scalar::new(dtype, 0.0))), 1);
        let mut kernel = b.finish();
        vectorize(&mut kernel);
        match kernel.body.0.last().map(|statement| &statement.instruction) {
            Some(Instruction::Load { vector, .. }) => *vector,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn consecutive_offsets_are_read_at_once() {
        assert_eq!(width(DType::F32, 1, |_, at, _| (at, None)), 4);
        assert_eq!(width(DType::F16, 1, |_, at, _| (at, None)), 8);
        assert_eq!(width(DType::I8, 1, |_, at, _| (at, None)), 16);
        assert_eq!(width(DType::F32, 1, |b, at, _| (b.add_int(at, 2), None)), 2);
        assert_eq!(width(DType::F32, 1, |b, at, _| (b.add_int(at, 1), None)), 1);
        assert_eq!(width(DType::F32, 1, |b, at, _| (b.mul_int(at, 2), None)), 1);
        assert_eq!(width(DType::F32, 6, |b, at, n| (b.add(at, n), None)), 2);
        assert_eq!(width(DType::F32, 8, |b, at, n| (b.add(at, n), None)), 4);
        assert_eq!(width(DType::F32, 8, |b, at, n| (b.sub(n, at), None)), 1);
    }

    #[test]
    fn masks_are_equal_within_an_access() {
        let below = |b: &mut KernelBuilder, at, n| (at, Some(b.lt(at, n)));
        assert_eq!(width(DType::F32, 1, below), 1);
        assert_eq!(width(DType::F32, 2, below), 2);
        assert_eq!(width(DType::F32, 12, below), 4);
        let from = |b: &mut KernelBuilder, at, n| (at, Some(b.binary(BinaryFn::Le, n, at)));
        assert_eq!(width(DType::F32, 4, from), 4);
        // `at <= n` and `n < at` change within a group even at multiples of its size.
        let most = |b: &mut KernelBuilder, at, n| (at, Some(b.binary(BinaryFn::Le, at, n)));
        assert_eq!(width(DType::F32, 4, most), 1);
        let after = |b: &mut KernelBuilder, at, n| (at, Some(b.lt(n, at)));
        assert_eq!(width(DType::F32, 4, after), 1);
    }

    #[test]
    fn remainders_keep_runs_and_quotients_groups() {
        let number = |b: &mut KernelBuilder, value| b.int(DType::U32, value);
        let wrapped = |by: i64| {
            move |b: &mut KernelBuilder, at, _| {
                let (at, by) = (b.cast(DType::U32, at), number(b, by));
                let at = b.binary(BinaryFn::Rem, at, by);
                (b.cast(DType::I32, at), None)
            }
        };
        assert_eq!(width(DType::F32, 1, wrapped(24)), 4);
        assert_eq!(width(DType::F32, 1, wrapped(6)), 2);
        assert_eq!(width(DType::F32, 1, wrapped(7)), 1);
        let transposed = |by: i64| {
            move |b: &mut KernelBuilder, at, _| {
                let (unsigned, by) = (b.cast(DType::U32, at), number(b, by));
                let row = b.binary(BinaryFn::Div, unsigned, by);
                let row = b.cast(DType::I32, row);
                let row = b.mul_int(row, 32);
                (b.add(row, at), None)
            }
        };
        assert_eq!(width(DType::F32, 1, transposed(8)), 4);
        assert_eq!(width(DType::F32, 1, transposed(6)), 2);
        assert_eq!(width(DType::F32, 1, transposed(3)), 1);
    }

    /// Facts against values: any claim must hold for each register.
    #[test]
    fn facts_of_layouts_hold() {
        let layouts = [
            row(4),
            Layout {
                shape: vec![16, 64],
                registers: vec![Mode::new(1, 4, 1), Mode::new(0, 2, 8)],
                threads: vec![Mode::new(1, 16, 4), Mode::new(0, 8, 1)],
            },
            Layout {
                shape: vec![8, 16],
                registers: vec![Mode::new(0, 2, 1), Mode::new(1, 4, 4), Mode::new(0, 4, 2)],
                threads: vec![Mode::new(1, 4, 1), Mode::new(0, 8, 0)],
            },
        ];
        for layout in layouts {
            for dim in 0..layout.shape.len() {
                let facts = coordinate(&layout, dim as u32);
                for thread in 0..layout.thread_count() {
                    let at = |register| {
                        layout.register_coordinate(register)[dim]
                            + layout.thread_coordinate(thread)[dim]
                    };
                    for register in 0..layout.register_count() {
                        let first = register / facts.run * facts.run;
                        assert_eq!(at(register), at(first) + register - first);
                        if facts.divisor > 0 {
                            assert_eq!(u64::from(at(first)) % facts.divisor, 0);
                        }
                        assert_eq!(at(register / facts.equal * facts.equal), at(register));
                    }
                }
            }
        }
    }
}
