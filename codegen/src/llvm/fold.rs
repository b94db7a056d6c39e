//! Reductions and scans over the registers and threads that hold a dimension.
//!
//! Each element starts as a range of its own. A step joins the ranges that differ in its digits: `total`
//! is the fold of a range, the same in all registers and threads of it, and `prefix` (scans only) the
//! fold of the range up to and with the element. The order of steps is the plan's, so results do not
//! depend on timing.

use std::collections::BTreeMap;

use fornax_bundle::DType;
use fornax_ir::ScalarExpr;
use inkwell::IntPredicate;
use inkwell::values::{BasicValueEnum, IntValue};

use super::emitter::{Emitter, Registers};
use super::fold_plan::{self, Digit, Step};
use super::memory::{Array, Space};
use super::shared::scratch_size;
use crate::CodegenError;
use crate::kernel::{Layout, ValueId};

/// The accumulators of one range.
type Accumulators<'c> = Vec<BasicValueEnum<'c>>;

/// What is known after some steps.
struct Ranges<'c> {
    /// By the number of the register that stands for the range.
    totals: BTreeMap<u32, Accumulators<'c>>,
    /// By register; none for reductions.
    prefixes: Option<Vec<Accumulators<'c>>>,
    /// The register that stands for each register's range.
    standing: Vec<u32>,
}

impl<'c> Emitter<'c, '_> {
    /// Emits a reduction, or a scan when `prefixes` are asked for, which come first.
    pub(super) fn fold(
        &mut self,
        dim: u32,
        values: &[ValueId],
        combine: &[ScalarExpr],
        prefixes: bool,
    ) -> Result<Vec<Registers<'c>>, CodegenError> {
        let layout = self.ty(values[0]).layout().expect("invariant: fragments are folded");
        let dtypes: Vec<DType> = values.iter().map(|&value| self.ty(value).dtype()).collect();
        let count = layout.register_count();
        let elements: Vec<Accumulators> = (0..count as usize)
            .map(|register| values.iter().map(|&v| self.registers(v)[register]).collect())
            .collect();
        let mut ranges = Ranges {
            totals: (0..count).zip(elements.iter().cloned()).collect(),
            prefixes: prefixes.then_some(elements),
            standing: (0..count).collect(),
        };
        ranges.merge_repeated(layout, dim);
        let ordered = prefixes || !fold_plan::is_commutative(combine);
        let steps = fold_plan::steps(layout, dim, ordered);
        let mut fold = Fold { emitter: self, combine, dtypes: &dtypes };
        for (index, step) in steps.iter().enumerate() {
            match step {
                Step::Registers(digit) => fold.registers(&mut ranges, *digit)?,
                Step::Lanes { bit } => fold.lanes(&mut ranges, *bit)?,
                Step::Threads(digits) => {
                    let lanes = fold_plan::combined_lanes(&steps[..index]);
                    fold.threads(&mut ranges, digits, lanes)?;
                }
            }
        }
        let totals: Vec<Accumulators> = kept_registers(layout, dim)
            .map(|register| ranges.totals[&ranges.standing[register as usize]].clone())
            .collect();
        let by_value = |folded: &[Accumulators<'c>]| -> Vec<Registers<'c>> {
            (0..values.len()).map(|v| folded.iter().map(|r| r[v]).collect()).collect()
        };
        let mut results = ranges.prefixes.map(|prefixes| by_value(&prefixes)).unwrap_or_default();
        results.extend(by_value(&totals));
        Ok(results)
    }
}

/// The registers of a layout whose digits along a dimension are 0, in order: those that remain when
/// the dimension is dropped.
fn kept_registers(layout: &Layout, dim: u32) -> impl Iterator<Item = u32> {
    (0..layout.register_count()).filter(move |&register| {
        let mut rest = register;
        layout.registers.iter().all(|mode| {
            let digit = rest % mode.size;
            rest /= mode.size;
            mode.dim != dim || digit == 0
        })
    })
}

impl Ranges<'_> {
    /// Registers that hold the same element (stride 0) are one range from the start.
    fn merge_repeated(&mut self, layout: &Layout, dim: u32) {
        let mut weight = 1;
        for mode in &layout.registers {
            if mode.dim == dim && mode.stride == 0 {
                self.merge(Digit { weight, size: mode.size, stride: 0 });
            }
            weight *= mode.size;
        }
    }

    /// Lets the register whose digit is 0 stand for all that differ in the digit only.
    fn merge(&mut self, digit: Digit) {
        for standing in &mut self.standing {
            *standing -= *standing / digit.weight % digit.size * digit.weight;
        }
        self.totals.retain(|register, _| (register / digit.weight).is_multiple_of(digit.size));
    }
}

struct Fold<'e, 'c, 'k> {
    emitter: &'e mut Emitter<'c, 'k>,
    combine: &'e [ScalarExpr],
    dtypes: &'e [DType],
}

impl<'c> Fold<'_, 'c, '_> {
    fn combined(
        &mut self,
        earlier: &Accumulators<'c>,
        later: &Accumulators<'c>,
    ) -> Result<Accumulators<'c>, CodegenError> {
        let args: Accumulators = earlier.iter().chain(later).copied().collect();
        let dtypes: Vec<DType> = self.dtypes.iter().chain(self.dtypes).copied().collect();
        self.combine.iter().map(|expr| self.emitter.expression(expr, &args, &dtypes)).collect()
    }

    fn choose(
        &self,
        condition: IntValue<'c>,
        then: &Accumulators<'c>,
        otherwise: &Accumulators<'c>,
    ) -> Accumulators<'c> {
        let pairs = then.iter().zip(otherwise);
        pairs.map(|(&a, &b)| self.emitter.ir.select(condition, a, b)).collect()
    }

    fn registers(&mut self, ranges: &mut Ranges<'c>, digit: Digit) -> Result<(), CodegenError> {
        let firsts: Vec<u32> = ranges
            .totals
            .keys()
            .copied()
            .filter(|register| (register / digit.weight).is_multiple_of(digit.size))
            .collect();
        for first in firsts {
            let mut running = ranges.totals[&first].clone();
            for value in 1..digit.size {
                let register = first + value * digit.weight;
                if let Some(prefixes) = &mut ranges.prefixes {
                    for (index, prefix) in prefixes.iter_mut().enumerate() {
                        if ranges.standing[index] == register {
                            *prefix = self.combined(&running, prefix)?;
                        }
                    }
                }
                running = self.combined(&running, &ranges.totals[&register])?;
            }
            ranges.totals.insert(first, running);
        }
        ranges.merge(digit);
        Ok(())
    }

    /// Lanes whose number has the bit hold the later range.
    fn lanes(&mut self, ranges: &mut Ranges<'c>, bit: u32) -> Result<(), CodegenError> {
        let ordered = ranges.prefixes.is_some() || !fold_plan::is_commutative(self.combine);
        let later = if ordered { Some(self.thread_bit(bit)) } else { None };
        let standing: Vec<u32> = ranges.totals.keys().copied().collect();
        for register in standing {
            let own = ranges.totals[&register].clone();
            let other: Accumulators = own.iter().map(|&value| self.shuffle(value, bit)).collect();
            let total = match later {
                None => self.combined(&own, &other)?,
                Some(later) => {
                    let first = self.choose(later, &other, &own);
                    let second = self.choose(later, &own, &other);
                    self.combined(&first, &second)?
                }
            };
            if let (Some(prefixes), Some(later)) = (&mut ranges.prefixes, later) {
                self.continue_prefixes(prefixes, &ranges.standing, register, later, &other)?;
            }
            ranges.totals.insert(register, total);
        }
        Ok(())
    }

    /// Puts `before` in front of the prefixes of a range where `later` holds.
    fn continue_prefixes(
        &mut self,
        prefixes: &mut [Accumulators<'c>],
        standing: &[u32],
        register: u32,
        later: IntValue<'c>,
        before: &Accumulators<'c>,
    ) -> Result<(), CodegenError> {
        for (index, prefix) in prefixes.iter_mut().enumerate() {
            if standing[index] == register {
                let continued = self.combined(before, prefix)?;
                *prefix = self.choose(later, &continued, prefix);
            }
        }
        Ok(())
    }

    fn thread_bit(&mut self, bit: u32) -> IntValue<'c> {
        let digit = self.emitter.thread_digit(1 << bit, 2);
        self.emitter.ir.compare(IntPredicate::NE, digit, self.emitter.ir.i32(0))
    }

    /// The value of the lane whose number differs in a bit (PTX ISA, "shfl.sync", mode bfly).
    fn shuffle(&self, value: BasicValueEnum<'c>, bit: u32) -> BasicValueEnum<'c> {
        let ir = &self.emitter.ir;
        let ints = match value {
            BasicValueEnum::FloatValue(float) => ir.bits(float),
            other => other.into_int_value(),
        };
        let width = ints.get_type().get_bit_width();
        let whole = if width < 32 { ir.resize(false, ints, 32) } else { ints };
        let words = if width == 64 {
            let high = ir.shr(false, whole, ir.i64(32));
            vec![ir.resize(false, whole, 32), ir.resize(false, high, 32)]
        } else {
            vec![whole]
        };
        let threads = self.emitter.kernel.threads;
        let members = if threads >= 32 { -1 } else { (1i64 << threads) - 1 };
        let shuffled: Vec<IntValue> = words
            .into_iter()
            .map(|word| {
                let operands = [
                    ir.i32(members).into(),
                    word.into(),
                    ir.i32(1 << bit).into(),
                    ir.i32(31).into(),
                ];
                ir.intrinsic("llvm.nvvm.shfl.sync.bfly.i32", &[], &operands).into_int_value()
            })
            .collect();
        let ints = match shuffled[..] {
            [low, high] => {
                let high = ir.shl(ir.resize(false, high, 64), ir.i64(32));
                ir.or(ir.resize(false, low, 64), high)
            }
            _ => ir.resize(false, shuffled[0], width),
        };
        match value {
            BasicValueEnum::FloatValue(float) => ir.bit_cast(ints.into(), float.get_type().into()),
            _ => ints.into(),
        }
    }

    /// Through shared memory: all threads of a range write its total once and read those of all ranges
    /// that are joined, in order.
    fn threads(
        &mut self,
        ranges: &mut Ranges<'c>,
        digits: &[Digit],
        lanes: u32,
    ) -> Result<(), CodegenError> {
        let entries = self.emitter.kernel.threads >> lanes.count_ones();
        let arrays = self.scratch_arrays(ranges.totals.len() as u32 * entries);
        let thread = self.emitter.thread();
        let index = self.without_bits(thread, lanes);
        let writes = (lanes != 0).then(|| {
            let ir = &self.emitter.ir;
            let number = ir.and(thread, ir.i32(lanes.into()));
            ir.compare(IntPredicate::EQ, number, ir.i32(0))
        });
        if self.emitter.scratch_in_use || self.emitter.loop_depth > 0 {
            self.emitter.barrier();
        }
        self.emitter.scratch_in_use = true;
        for (slot, total) in ranges.totals.values().enumerate() {
            let offset = self.plus(index, slot as u32 * entries);
            for (array, &value) in arrays.iter().zip(total) {
                self.emitter.ir.write(*array, offset, writes, &[value]);
            }
        }
        self.emitter.barrier();
        let (first, own) = self.group(index, digits, lanes);
        let standing: Vec<u32> = ranges.totals.keys().copied().collect();
        for (slot, register) in standing.into_iter().enumerate() {
            let start = self.plus(first, slot as u32 * entries);
            let total = self.join(ranges, register, &arrays, start, digits, lanes, own)?;
            ranges.totals.insert(register, total);
        }
        Ok(())
    }

    /// Folds the totals of the joined ranges, and continues the prefixes of `register`'s range.
    #[expect(clippy::too_many_arguments, reason = "one step's state, used here only")]
    fn join(
        &mut self,
        ranges: &mut Ranges<'c>,
        register: u32,
        arrays: &[Array<'c>],
        start: IntValue<'c>,
        digits: &[Digit],
        lanes: u32,
        own: IntValue<'c>,
    ) -> Result<Accumulators<'c>, CodegenError> {
        let members: u32 = digits.iter().map(|digit| digit.size).product();
        let mut running: Option<Accumulators> = None;
        let mut before: Option<Accumulators> = None;
        for member in 0..members {
            let offset = self.plus(start, entry_of(member, digits, lanes));
            let total: Accumulators = arrays
                .iter()
                .map(|array| self.emitter.ir.read(*array, offset, None, 1)[0])
                .collect();
            let Some(sofar) = running else {
                running = Some(total);
                continue;
            };
            let ir = &self.emitter.ir;
            let here = ir.compare(IntPredicate::EQ, own, ir.i32(member.into()));
            let chosen = before.unwrap_or_else(|| sofar.clone());
            before = Some(self.choose(here, &sofar, &chosen));
            running = Some(self.combined(&sofar, &total)?);
        }
        if let (Some(prefixes), Some(before)) = (&mut ranges.prefixes, before) {
            let ir = &self.emitter.ir;
            let later = ir.compare(IntPredicate::NE, own, ir.i32(0));
            self.continue_prefixes(prefixes, &ranges.standing, register, later, &before)?;
        }
        Ok(running.expect("invariant: a digit has at least two values"))
    }

    /// One array of `len` elements for each accumulator in the scratch memory.
    fn scratch_arrays(&self, len: u32) -> Vec<Array<'c>> {
        let base = self.emitter.scratch.expect("invariant: scratch memory is placed for all folds");
        let mut offset = 0;
        let arrays = self.dtypes.iter().map(|&dtype| {
            let ir = &self.emitter.ir;
            let base = ir.element_address(ir.int_type(8).into(), base, ir.i64(offset.into()));
            let kept = if dtype.is_float() && dtype != DType::F64 { DType::F32 } else { dtype };
            offset += (len * scratch_size(dtype)).next_multiple_of(16);
            Array { base, dtype: kept, space: Space::Shared }
        });
        arrays.collect()
    }

    fn plus(&self, a: IntValue<'c>, b: u32) -> IntValue<'c> {
        self.emitter.ir.add_exact(a, self.emitter.ir.i32(b.into()))
    }

    /// A thread number with some of its bits left out.
    fn without_bits(&self, thread: IntValue<'c>, bits: u32) -> IntValue<'c> {
        let ir = &self.emitter.ir;
        (0..32).rev().filter(|bit| bits >> bit & 1 == 1).fold(thread, |number, bit| {
            let low = ir.and(number, ir.i32((1i64 << bit) - 1));
            let high = ir.shr(false, number, ir.i32(bit + 1));
            ir.or(ir.shl(high, ir.i32(bit)), low)
        })
    }

    /// The entry of the first range that is joined with this thread's, and which of them it is.
    fn group(
        &mut self,
        index: IntValue<'c>,
        digits: &[Digit],
        lanes: u32,
    ) -> (IntValue<'c>, IntValue<'c>) {
        let mut first = index;
        let mut own = self.emitter.ir.i32(0);
        let mut weight = 1;
        for digit in digits {
            let value = self.emitter.digit(*digit);
            let ir = &self.emitter.ir;
            let step = ir.i32(entry_weight(*digit, lanes).into());
            first = ir.sub(first, ir.mul_exact(value, step));
            own = ir.add_exact(own, ir.mul_exact(value, ir.i32(weight)));
            weight *= i64::from(digit.size);
        }
        (first, own)
    }
}

/// Entries between threads whose digit differs by one, when some bits of the number are left out.
fn entry_weight(digit: Digit, bits: u32) -> u32 {
    let below = (0..32).filter(|&bit| bits >> bit & 1 == 1 && 1 << bit < digit.weight);
    digit.weight >> below.count()
}

/// The entry of the `member`-th range, from the first one on.
fn entry_of(mut member: u32, digits: &[Digit], bits: u32) -> u32 {
    let mut entry = 0;
    for digit in digits {
        entry += member % digit.size * entry_weight(*digit, bits);
        member /= digit.size;
    }
    entry
}
