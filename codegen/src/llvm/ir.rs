//! A thin layer over inkwell's builder: instructions by name, without error handling at each.
//!
//! inkwell's builder fails only on operands of wrong types, which would be a fault of this folder; each
//! method therefore panics then, and the verifier looks at the finished module again.

use fornax_bundle::DType;
use inkwell::attributes::{Attribute, AttributeLoc};
use inkwell::basic_block::BasicBlock;
use inkwell::builder::{Builder, BuilderError};
use inkwell::context::Context;
use inkwell::intrinsics::Intrinsic;
use inkwell::module::Module;
use inkwell::types::{BasicMetadataTypeEnum, BasicType, BasicTypeEnum, FloatType, IntType};
use inkwell::values::{
    BasicMetadataValueEnum, BasicValue, BasicValueEnum, FloatValue, FunctionValue, IntValue,
    PhiValue, PointerValue,
};
use inkwell::{FloatPredicate, IntPredicate};

/// Global memory (PTX ISA, "State Spaces"; LLVM's NVPTX guide, "Address Spaces").
pub(super) const GLOBAL: u16 = 1;
/// Shared memory.
pub(super) const SHARED: u16 = 3;

/// Inline PTX: the text with `$n` for operands, and their constraints as LLVM's.
pub(super) struct Assembly {
    /// The instructions.
    pub text: String,
    /// Constraints of results and operands.
    pub constraints: String,
    /// Whether it must stay where it is, executed exactly as often as written.
    pub effects: bool,
}

/// One function under construction.
pub(super) struct Ir<'c> {
    pub context: &'c Context,
    pub module: Module<'c>,
    pub builder: Builder<'c>,
    pub function: FunctionValue<'c>,
}

fn built<T>(result: Result<T, BuilderError>) -> T {
    result.expect("invariant: operands have the types that the instruction takes")
}

impl<'c> Ir<'c> {
    /// The type values of an element type have in registers: narrow floats are kept as `f32`.
    pub fn register_type(&self, dtype: DType) -> BasicTypeEnum<'c> {
        match dtype {
            DType::F64 => self.context.f64_type().into(),
            float if float.is_float() => self.context.f32_type().into(),
            DType::Bool => self.context.bool_type().into(),
            int => self.int_type(8 * int.size() as u32).into(),
        }
    }

    /// The type values of an element type have in memory.
    pub fn storage_type(&self, dtype: DType) -> BasicTypeEnum<'c> {
        match dtype {
            DType::F16 => self.context.f16_type().into(),
            DType::BF16 => self.context.bf16_type().into(),
            DType::Bool => self.int_type(8).into(),
            other => self.register_type(other),
        }
    }

    pub fn int_type(&self, bits: u32) -> IntType<'c> {
        match bits {
            1 => self.context.bool_type(),
            8 => self.context.i8_type(),
            16 => self.context.i16_type(),
            32 => self.context.i32_type(),
            _ => self.context.i64_type(),
        }
    }

    pub fn i32(&self, value: i64) -> IntValue<'c> {
        self.context.i32_type().const_int(value as u64, true)
    }

    pub fn i64(&self, value: i64) -> IntValue<'c> {
        self.context.i64_type().const_int(value as u64, true)
    }

    pub fn bool(&self, value: bool) -> IntValue<'c> {
        self.context.bool_type().const_int(value.into(), false)
    }

    /// An integer constant of the type of `like`.
    pub fn int_like(&self, like: IntValue<'c>, value: i64) -> IntValue<'c> {
        like.get_type().const_int(value as u64, true)
    }

    pub fn add(&self, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        built(self.builder.build_int_add(a, b, ""))
    }

    /// A sum that never leaves the type.
    pub fn add_exact(&self, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        built(self.builder.build_int_nsw_add(a, b, ""))
    }

    pub fn sub(&self, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        built(self.builder.build_int_sub(a, b, ""))
    }

    pub fn mul(&self, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        built(self.builder.build_int_mul(a, b, ""))
    }

    /// A product that never leaves the type.
    pub fn mul_exact(&self, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        built(self.builder.build_int_nsw_mul(a, b, ""))
    }

    /// Quotient; the divisor is not zero and the quotient fits.
    pub fn div(&self, signed: bool, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        built(if signed {
            self.builder.build_int_signed_div(a, b, "")
        } else {
            self.builder.build_int_unsigned_div(a, b, "")
        })
    }

    /// Remainder; the divisor is not zero and the quotient fits.
    pub fn rem(&self, signed: bool, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        built(if signed {
            self.builder.build_int_signed_rem(a, b, "")
        } else {
            self.builder.build_int_unsigned_rem(a, b, "")
        })
    }

    pub fn and(&self, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        built(self.builder.build_and(a, b, ""))
    }

    pub fn or(&self, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        built(self.builder.build_or(a, b, ""))
    }

    pub fn xor(&self, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        built(self.builder.build_xor(a, b, ""))
    }

    pub fn not(&self, a: IntValue<'c>) -> IntValue<'c> {
        built(self.builder.build_not(a, ""))
    }

    /// Shift to the left by less than the width.
    pub fn shl(&self, a: IntValue<'c>, count: IntValue<'c>) -> IntValue<'c> {
        built(self.builder.build_left_shift(a, count, ""))
    }

    /// Shift to the right by less than the width.
    pub fn shr(&self, signed: bool, a: IntValue<'c>, count: IntValue<'c>) -> IntValue<'c> {
        built(self.builder.build_right_shift(a, count, signed, ""))
    }

    pub fn compare(&self, is: IntPredicate, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        built(self.builder.build_int_compare(is, a, b, ""))
    }

    /// An integer made wider or narrower.
    pub fn resize(&self, signed: bool, a: IntValue<'c>, bits: u32) -> IntValue<'c> {
        built(self.builder.build_int_cast_sign_flag(a, self.int_type(bits), signed, ""))
    }

    pub fn fadd(&self, a: FloatValue<'c>, b: FloatValue<'c>) -> FloatValue<'c> {
        built(self.builder.build_float_add(a, b, ""))
    }

    pub fn fsub(&self, a: FloatValue<'c>, b: FloatValue<'c>) -> FloatValue<'c> {
        built(self.builder.build_float_sub(a, b, ""))
    }

    pub fn fmul(&self, a: FloatValue<'c>, b: FloatValue<'c>) -> FloatValue<'c> {
        built(self.builder.build_float_mul(a, b, ""))
    }

    pub fn fdiv(&self, a: FloatValue<'c>, b: FloatValue<'c>) -> FloatValue<'c> {
        built(self.builder.build_float_div(a, b, ""))
    }

    pub fn fneg(&self, a: FloatValue<'c>) -> FloatValue<'c> {
        built(self.builder.build_float_neg(a, ""))
    }

    pub fn fcompare(
        &self,
        is: FloatPredicate,
        a: FloatValue<'c>,
        b: FloatValue<'c>,
    ) -> IntValue<'c> {
        built(self.builder.build_float_compare(is, a, b, ""))
    }

    /// A float rounded to a narrower type.
    pub fn ftrunc(&self, a: FloatValue<'c>, to: FloatType<'c>) -> FloatValue<'c> {
        built(self.builder.build_float_trunc(a, to, ""))
    }

    /// A float in a wider type.
    pub fn fext(&self, a: FloatValue<'c>, to: FloatType<'c>) -> FloatValue<'c> {
        built(self.builder.build_float_ext(a, to, ""))
    }

    /// The nearest float.
    pub fn int_to_float(&self, signed: bool, a: IntValue<'c>, to: FloatType<'c>) -> FloatValue<'c> {
        built(if signed {
            self.builder.build_signed_int_to_float(a, to, "")
        } else {
            self.builder.build_unsigned_int_to_float(a, to, "")
        })
    }

    pub fn bits(&self, a: FloatValue<'c>) -> IntValue<'c> {
        let bits = if a.get_type() == self.context.f64_type() { 64 } else { 32 };
        built(self.builder.build_bit_cast(a, self.int_type(bits), "")).into_int_value()
    }

    pub fn bit_cast(&self, a: BasicValueEnum<'c>, to: BasicTypeEnum<'c>) -> BasicValueEnum<'c> {
        built(self.builder.build_bit_cast(a, to, ""))
    }

    pub fn select<V: BasicValue<'c>>(
        &self,
        condition: IntValue<'c>,
        then: V,
        otherwise: V,
    ) -> BasicValueEnum<'c> {
        built(self.builder.build_select(condition, then, otherwise, ""))
    }

    pub fn select_int(
        &self,
        condition: IntValue<'c>,
        then: IntValue<'c>,
        otherwise: IntValue<'c>,
    ) -> IntValue<'c> {
        self.select(condition, then, otherwise).into_int_value()
    }

    pub fn select_float(
        &self,
        condition: IntValue<'c>,
        then: FloatValue<'c>,
        otherwise: FloatValue<'c>,
    ) -> FloatValue<'c> {
        self.select(condition, then, otherwise).into_float_value()
    }

    /// Calls an intrinsic that gives a value.
    pub fn intrinsic(
        &self,
        name: &str,
        overload: &[BasicTypeEnum<'c>],
        operands: &[BasicMetadataValueEnum<'c>],
    ) -> BasicValueEnum<'c> {
        self.call_intrinsic(name, overload, operands)
            .expect("invariant: this intrinsic gives a value")
    }

    /// Calls an intrinsic.
    pub fn call_intrinsic(
        &self,
        name: &str,
        overload: &[BasicTypeEnum<'c>],
        operands: &[BasicMetadataValueEnum<'c>],
    ) -> Option<BasicValueEnum<'c>> {
        let declaration = Intrinsic::find(name)
            .and_then(|intrinsic| intrinsic.get_declaration(&self.module, overload))
            .expect("invariant: LLVM 22 has the intrinsics used here");
        built(self.builder.build_call(declaration, operands, "")).try_as_basic_value().basic()
    }

    /// A float function that LLVM has an intrinsic for, all operands of one type.
    pub fn float_intrinsic(&self, name: &str, operands: &[FloatValue<'c>]) -> FloatValue<'c> {
        let operands_of: Vec<BasicMetadataValueEnum> =
            operands.iter().map(|&operand| operand.into()).collect();
        self.intrinsic(name, &[operands[0].get_type().into()], &operands_of).into_float_value()
    }

    pub fn fma(&self, a: FloatValue<'c>, b: FloatValue<'c>, c: FloatValue<'c>) -> FloatValue<'c> {
        self.float_intrinsic("llvm.fma", &[a, b, c])
    }

    /// Reads a special register of 32 bits, such as `tid.x`.
    pub fn special_register(&self, name: &str) -> IntValue<'c> {
        self.intrinsic(&format!("llvm.nvvm.read.ptx.sreg.{name}"), &[], &[]).into_int_value()
    }

    /// Inline PTX.
    pub fn assembly(
        &self,
        assembly: Assembly,
        result: Option<BasicTypeEnum<'c>>,
        operands: &[BasicValueEnum<'c>],
    ) -> Option<BasicValueEnum<'c>> {
        let types: Vec<BasicMetadataTypeEnum> =
            operands.iter().map(|operand| operand.get_type().into()).collect();
        let ty = match result {
            Some(result) => result.fn_type(&types, false),
            None => self.context.void_type().fn_type(&types, false),
        };
        let Assembly { text, constraints, effects } = assembly;
        let callee =
            self.context.create_inline_asm(ty, text, constraints, effects, false, None, false);
        let operands: Vec<BasicMetadataValueEnum> =
            operands.iter().map(|&operand| operand.into()).collect();
        let call = built(self.builder.build_indirect_call(ty, callee, &operands, ""));
        call.add_attribute(AttributeLoc::Function, self.attribute("nounwind"));
        if effects {
            call.add_attribute(AttributeLoc::Function, self.attribute("convergent"));
        } else {
            call.add_attribute(AttributeLoc::Function, self.attribute("willreturn"));
        }
        call.try_as_basic_value().basic()
    }

    pub fn attribute(&self, name: &str) -> Attribute {
        self.context.create_enum_attribute(Attribute::get_named_enum_kind_id(name), 0)
    }

    pub fn element(&self, vector: BasicValueEnum<'c>, index: u32) -> BasicValueEnum<'c> {
        let index = self.i32(index.into());
        built(self.builder.build_extract_element(vector.into_vector_value(), index, ""))
    }

    pub fn vector(&self, elements: &[BasicValueEnum<'c>]) -> BasicValueEnum<'c> {
        let ty = match elements[0].get_type() {
            BasicTypeEnum::IntType(ty) => ty.vec_type(elements.len() as u32),
            BasicTypeEnum::FloatType(ty) => ty.vec_type(elements.len() as u32),
            other => unreachable!("{other:?} is no element of a vector"),
        };
        elements.iter().enumerate().fold(ty.get_poison().into(), |vector, (index, &element)| {
            let index = self.i32(index as i64);
            let vector: inkwell::values::VectorValue = BasicValueEnum::into_vector_value(vector);
            built(self.builder.build_insert_element(vector, element, index, "")).into()
        })
    }

    pub fn field(&self, aggregate: BasicValueEnum<'c>, index: u32) -> BasicValueEnum<'c> {
        built(self.builder.build_extract_value(aggregate.into_struct_value(), index, ""))
    }

    /// The address `offset` elements beyond `base`; the address may lie anywhere.
    pub fn element_address(
        &self,
        element: BasicTypeEnum<'c>,
        base: PointerValue<'c>,
        offset: IntValue<'c>,
    ) -> PointerValue<'c> {
        // SAFETY: without `inbounds` the result may point anywhere; `element` is a sized type.
        built(unsafe { self.builder.build_gep(element, base, &[offset], "") })
    }

    pub fn load(
        &self,
        ty: BasicTypeEnum<'c>,
        address: PointerValue<'c>,
        align: u32,
    ) -> BasicValueEnum<'c> {
        let value = built(self.builder.build_load(ty, address, ""));
        value
            .as_instruction_value()
            .and_then(|load| load.set_alignment(align).ok())
            .expect("invariant: a load takes an alignment that is a power of two");
        value
    }

    pub fn store(&self, value: BasicValueEnum<'c>, address: PointerValue<'c>, align: u32) {
        built(self.builder.build_store(address, value))
            .set_alignment(align)
            .expect("invariant: a store takes an alignment that is a power of two");
    }

    pub fn pointer_to_int(&self, pointer: PointerValue<'c>, bits: u32) -> IntValue<'c> {
        built(self.builder.build_ptr_to_int(pointer, self.int_type(bits), ""))
    }

    pub fn block(&self, name: &str) -> BasicBlock<'c> {
        self.context.append_basic_block(self.function, name)
    }

    pub fn current_block(&self) -> BasicBlock<'c> {
        self.builder.get_insert_block().expect("invariant: the builder stands in a block")
    }

    pub fn jump(&self, to: BasicBlock<'c>) {
        built(self.builder.build_unconditional_branch(to));
    }

    pub fn branch(
        &self,
        condition: IntValue<'c>,
        then: BasicBlock<'c>,
        otherwise: BasicBlock<'c>,
    ) -> inkwell::values::InstructionValue<'c> {
        built(self.builder.build_conditional_branch(condition, then, otherwise))
    }

    pub fn phi(&self, ty: BasicTypeEnum<'c>) -> PhiValue<'c> {
        built(self.builder.build_phi(ty, ""))
    }

    pub fn return_nothing(&self) {
        built(self.builder.build_return(None));
    }
}
