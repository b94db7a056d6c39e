//! Matrix multiply-accumulate, and the swizzled shared memory that feeds it.

use fornax_bundle::DType;
use inkwell::types::BasicTypeEnum;
use inkwell::values::{BasicMetadataValueEnum, BasicValueEnum, IntValue};

use super::emitter::{Emitter, Registers};
use crate::kernel::{Factor, Instruction, MmaTile, ValueId};

/// Bytes of a row of swizzled memory, and of its parts that change places.
const ROW_BYTES: u32 = 128;
const PART_BYTES: u32 = 16;

impl<'c> Emitter<'c, '_> {
    /// See [`Instruction::Mma`].
    pub fn mma(&self, tile: &MmaTile, operands: &[ValueId; 3]) -> Registers<'c> {
        let [left, right] =
            [operands[0], operands[1]].map(|operand| self.packed(tile.factor, operand));
        let mut sums = self.registers(operands[2]).to_vec();
        // Registers of a thread per row and instruction, and instructions along what it holds.
        let each = 2;
        let held = (tile.factor.held() / tile.factor.per_instruction()) * each;
        let pair = tile.interleaved() as usize;
        let (products_m, products_n) = (tile.products_m() as usize, tile.products_n() as usize);
        for first in (0..held as usize).step_by(each as usize) {
            for n in 0..products_n {
                for m in 0..products_m {
                    let row = |half: usize, part: usize| {
                        left[(half + 2 * m) * held as usize + first + part]
                    };
                    let a = [row(0, 0), row(1, 0), row(0, 1), row(1, 1)];
                    let b = [0, 1].map(|part| right[n * held as usize + first + part]);
                    let at = |half: usize, element: usize| {
                        let within = element + 2 * (n % pair) + 2 * pair * half;
                        within + 4 * pair * (m + products_m * (n / pair))
                    };
                    let places = [at(0, 0), at(0, 1), at(1, 0), at(1, 1)];
                    let result = self.multiply(tile.factor, &a, &b, places.map(|at| sums[at]));
                    for (number, at) in places.into_iter().enumerate() {
                        sums[at] = self.ir.field(result, number as u32);
                    }
                }
            }
        }
        sums
    }

    /// Factors as the instruction takes them: one 32-bit register for `f32`, for two narrow floats.
    pub fn packed(&self, factor: Factor, operand: ValueId) -> Registers<'c> {
        let registers = self.registers(operand);
        let word: BasicTypeEnum = self.ir.int_type(32).into();
        let dtype = factor.dtype();
        match factor {
            Factor::Tf32 => registers.iter().map(|&x| self.ir.bit_cast(x, word)).collect(),
            Factor::Bf16 | Factor::F16 => registers
                .chunks(2)
                .map(|pair| {
                    let stored = [pair[0], pair[1]].map(|x| self.ir.to_storage(dtype, x));
                    let vector = self.ir.vector(&stored);
                    match dtype {
                        DType::BF16 => self.ir.bit_cast(vector, word),
                        _ => vector,
                    }
                })
                .collect(),
        }
    }

    fn multiply(
        &self,
        factor: Factor,
        a: &[BasicValueEnum<'c>; 4],
        b: &[BasicValueEnum<'c>; 2],
        c: [BasicValueEnum<'c>; 4],
    ) -> BasicValueEnum<'c> {
        let name = match factor {
            Factor::Tf32 => "llvm.nvvm.mma.m16n8k8.row.col.tf32",
            Factor::Bf16 => "llvm.nvvm.mma.m16n8k16.row.col.bf16",
            Factor::F16 => "llvm.nvvm.mma.m16n8k16.row.col.f32.f32",
        };
        let operands: Vec<BasicMetadataValueEnum> =
            a.iter().chain(b).chain(&c).map(|&operand| operand.into()).collect();
        self.ir.intrinsic(name, &[], &operands)
    }

    /// See [`Instruction::RoundTf32`].
    pub fn round_tf32(&self, x: BasicValueEnum<'c>) -> BasicValueEnum<'c> {
        let bits = self.ir.intrinsic("llvm.nvvm.f2tf32.rna", &[], &[x.into()]);
        self.ir.bit_cast(bits, self.ir.context.f32_type().into())
    }

    /// See [`Instruction::Reorder`].
    pub fn reorder(&self, value: ValueId, result: ValueId) -> Registers<'c> {
        let layout = |value: ValueId| {
            self.ty(value)
                .layout()
                .expect("invariant: the verifier checks that these are fragments")
        };
        let (from, to) = (layout(value), layout(result));
        let coordinates: Vec<Vec<u32>> =
            (0..from.register_count()).map(|register| from.register_coordinate(register)).collect();
        let registers = self.registers(value);
        (0..to.register_count())
            .map(|register| {
                let wanted = to.register_coordinate(register);
                let found = coordinates.iter().position(|other| *other == wanted);
                registers[found.expect("invariant: both layouts have the same digits")]
            })
            .collect()
    }

    /// Where elements of swizzled memory lie. Groups of `vector` registers are adjacent.
    ///
    /// Offsets that differ by a multiple of eight rows are swizzled alike, so that only the first of them
    /// needs arithmetic where the difference is known.
    pub fn swizzled(&self, dtype: DType, offset: ValueId, vector: u32) -> Vec<IntValue<'c>> {
        let size = dtype.size() as u32;
        let period = i64::from(8 * ROW_BYTES / size);
        let offsets = self.registers(offset);
        let relative = self.relative(offset);
        let mut known: Vec<(i64, IntValue<'c>)> = Vec::new();
        let mut places = Vec::new();
        for first in (0..offsets.len()).step_by(vector as usize) {
            let at = relative.map(|relative| relative[first]);
            let alike = at.and_then(|at| {
                known.iter().find(|(other, _)| (at - other).rem_euclid(period) == 0).copied()
            });
            let place = match (at, alike) {
                (Some(at), Some((other, place))) => {
                    self.ir.add_exact(place, self.ir.int_like(place, at - other))
                }
                _ => self.swizzle(size, offsets[first].into_int_value()),
            };
            if let (Some(at), None) = (at, alike) {
                known.push((at, place));
            }
            places.push(place);
        }
        places
    }

    fn swizzle(&self, size: u32, offset: IntValue<'c>) -> IntValue<'c> {
        let ir = &self.ir;
        let number = |value: u32| ir.int_like(offset, value.into());
        let row = ir.shr(false, offset, number((ROW_BYTES / size).ilog2()));
        let row = ir.and(row, number(7));
        ir.xor(offset, ir.shl(row, number((PART_BYTES / size).ilog2())))
    }

    /// What the registers of an integer result add to its first one, where the instruction tells.
    pub fn relative_of(&self, instruction: &Instruction, result: ValueId) -> Option<Vec<i64>> {
        let layout = self.ty(result).layout()?;
        let count = layout.register_count();
        let difference = |values: &[i64]| values.iter().map(|value| value - values[0]).collect();
        match instruction {
            Instruction::Coordinate(dim) => Some(
                (0..count)
                    .map(|register| layout.register_coordinate(register)[*dim as usize].into())
                    .collect(),
            ),
            Instruction::Lookup { dim, table } => Some(
                (0..count)
                    .map(|register| {
                        let at = layout.register_coordinate(register)[*dim as usize];
                        table[at as usize].into()
                    })
                    .collect(),
            ),
            Instruction::Splat(_) | Instruction::Constant(_) => Some(vec![0; count as usize]),
            Instruction::Broadcast(x) => {
                let from = self.relative(*x)?;
                Some(self.sources(*x, layout).into_iter().map(|source| from[source]).collect())
            }
            Instruction::Cast(_, x) => Some(self.relative(*x)?.to_vec()),
            Instruction::Binary(fornax_ir::BinaryFn::Add, x, y) => {
                let (x, y) = (self.relative(*x)?, self.relative(*y)?);
                Some(x.iter().zip(y).map(|(x, y)| x + y).collect())
            }
            Instruction::Binary(fornax_ir::BinaryFn::Mul, x, y) => {
                let (value, factor) = match (self.constant(*x), self.constant(*y)) {
                    (_, Some(factor)) => (*x, factor),
                    (Some(factor), _) => (*y, factor),
                    _ => return None,
                };
                Some(self.relative(value)?.iter().map(|value| value * factor).collect())
            }
            _ => None,
        }
        .map(|values: Vec<i64>| difference(&values))
    }

    /// The number that an integer is in every register.
    fn constant(&self, value: ValueId) -> Option<i64> {
        let mut numbers = self.registers(value).iter().map(|register| match register {
            BasicValueEnum::IntValue(value) => value.get_sign_extended_constant(),
            _ => None,
        });
        let first = numbers.next()??;
        numbers.all(|number| number == Some(first)).then_some(first)
    }
}
