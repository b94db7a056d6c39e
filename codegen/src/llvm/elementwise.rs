//! Functions of single elements.

use fornax_bundle::DType;
use fornax_ir::{BinaryFn, ScalarExpr, UnaryFn};
use inkwell::values::{BasicValueEnum, FloatValue, IntValue};
use inkwell::{FloatPredicate, IntPredicate};

use super::emitter::Emitter;
use super::float_ops::LlvmFloat;
use crate::CodegenError;
use crate::math::{double, fmod, single};

impl<'c> Emitter<'c, '_> {
    /// A scalar expression over values of the given element types.
    pub fn expression(
        &mut self,
        expr: &ScalarExpr,
        args: &[BasicValueEnum<'c>],
        dtypes: &[DType],
    ) -> Result<BasicValueEnum<'c>, CodegenError> {
        match expr {
            ScalarExpr::Arg(index) => Ok(args[*index]),
            ScalarExpr::Const(number) => Ok(self.ir.number(*number)),
            ScalarExpr::Unary(function, x) => {
                let dtype = x.dtype(dtypes);
                let x = self.expression(x, args, dtypes)?;
                self.unary(*function, dtype, x)
            }
            ScalarExpr::Binary(function, a, b) => {
                let dtype = a.dtype(dtypes);
                let a = self.expression(a, args, dtypes)?;
                let b = self.expression(b, args, dtypes)?;
                self.binary(*function, dtype, a, b)
            }
            ScalarExpr::Select(condition, then, otherwise) => {
                let condition = self.expression(condition, args, dtypes)?.into_int_value();
                let then = self.expression(then, args, dtypes)?;
                let otherwise = self.expression(otherwise, args, dtypes)?;
                Ok(self.ir.select(condition, then, otherwise))
            }
            ScalarExpr::Cast(to, x) => {
                let from = x.dtype(dtypes);
                let x = self.expression(x, args, dtypes)?;
                Ok(self.cast(from, *to, x))
            }
        }
    }

    /// A function of one element.
    pub fn unary(
        &mut self,
        function: UnaryFn,
        dtype: DType,
        x: BasicValueEnum<'c>,
    ) -> Result<BasicValueEnum<'c>, CodegenError> {
        let value = match x {
            BasicValueEnum::FloatValue(x) => self.float_unary(function, dtype, x)?,
            x => self.int_unary(function, dtype, x.into_int_value())?.into(),
        };
        Ok(value)
    }

    fn float_unary(
        &mut self,
        function: UnaryFn,
        dtype: DType,
        x: FloatValue<'c>,
    ) -> Result<BasicValueEnum<'c>, CodegenError> {
        let ir = &self.ir;
        let number = |value: f64| x.get_type().const_float(value);
        let value = match function {
            UnaryFn::Neg => ir.fneg(x),
            UnaryFn::Abs => ir.float_intrinsic("llvm.fabs", &[x]),
            UnaryFn::Floor => ir.float_intrinsic("llvm.floor", &[x]),
            UnaryFn::Ceil => ir.float_intrinsic("llvm.ceil", &[x]),
            UnaryFn::Trunc => ir.float_intrinsic("llvm.trunc", &[x]),
            UnaryFn::RoundEven => ir.float_intrinsic("llvm.roundeven", &[x]),
            UnaryFn::Sqrt => ir.float_intrinsic("llvm.sqrt", &[x]),
            UnaryFn::Rsqrt => ir.fdiv(number(1.0), ir.float_intrinsic("llvm.sqrt", &[x])),
            UnaryFn::Reciprocal => ir.fdiv(number(1.0), x),
            UnaryFn::Sign => {
                let negative = ir.fcompare(FloatPredicate::OLT, x, number(0.0));
                let positive = ir.fcompare(FloatPredicate::OGT, x, number(0.0));
                // Makes -0 to +0 and leaves NaN.
                let rest = ir.fadd(x, number(0.0));
                let below = ir.select_float(negative, number(-1.0), rest);
                ir.select_float(positive, number(1.0), below)
            }
            UnaryFn::IsNan => return Ok(ir.fcompare(FloatPredicate::UNO, x, x).into()),
            UnaryFn::IsInf => {
                let size = ir.float_intrinsic("llvm.fabs", &[x]);
                return Ok(ir.fcompare(FloatPredicate::OEQ, size, number(f64::INFINITY)).into());
            }
            _ => return self.float_function(function, dtype, x),
        };
        Ok(value.into())
    }

    fn float_function(
        &mut self,
        function: UnaryFn,
        dtype: DType,
        x: FloatValue<'c>,
    ) -> Result<BasicValueEnum<'c>, CodegenError> {
        let m = LlvmFloat { ir: &self.ir, ty: x.get_type() };
        if dtype == DType::F64 {
            return self.wide_function(function, x);
        }
        let value = match function {
            UnaryFn::Exp => single::exp(&m, x),
            UnaryFn::Expm1 => single::expm1(&m, x),
            UnaryFn::Log => single::log(&m, x),
            UnaryFn::Log1p => single::log1p(&m, x),
            UnaryFn::Sin => single::sin(&m, x),
            UnaryFn::Cos => single::cos(&m, x),
            UnaryFn::Tan => single::tan(&m, x),
            UnaryFn::Asin => single::asin(&m, x),
            UnaryFn::Acos => single::acos(&m, x),
            UnaryFn::Atan => single::atan(&m, x),
            UnaryFn::Sinh => single::sinh(&m, x),
            UnaryFn::Cosh => single::cosh(&m, x),
            UnaryFn::Tanh => single::tanh(&m, x),
            UnaryFn::Asinh => single::asinh(&m, x),
            UnaryFn::Acosh => single::acosh(&m, x),
            UnaryFn::Atanh => single::atanh(&m, x),
            UnaryFn::Erf => single::erf(&m, x),
            UnaryFn::Erfc => single::erfc(&m, x),
            UnaryFn::Sigmoid => single::sigmoid(&m, x),
            UnaryFn::Gelu => single::gelu(&m, x),
            UnaryFn::Softplus => single::softplus(&m, x),
            UnaryFn::Mish => single::mish(&m, x),
            _ => return Err(self.unsupported(function.name(), dtype)),
        };
        Ok(value.into())
    }

    fn wide_function(
        &self,
        function: UnaryFn,
        x: FloatValue<'c>,
    ) -> Result<BasicValueEnum<'c>, CodegenError> {
        let m = LlvmFloat { ir: &self.ir, ty: x.get_type() };
        let value = match function {
            UnaryFn::Exp => double::exp(&m, x),
            UnaryFn::Expm1 => double::expm1(&m, x),
            UnaryFn::Log => double::log(&m, x),
            UnaryFn::Log1p => double::log1p(&m, x),
            UnaryFn::Sinh => double::sinh(&m, x),
            UnaryFn::Cosh => double::cosh(&m, x),
            UnaryFn::Tanh => double::tanh(&m, x),
            UnaryFn::Sigmoid => double::sigmoid(&m, x),
            UnaryFn::Softplus => double::softplus(&m, x),
            UnaryFn::Mish => double::mish(&m, x),
            _ => return Err(self.unsupported(function.name(), DType::F64)),
        };
        Ok(value.into())
    }

    fn int_unary(
        &mut self,
        function: UnaryFn,
        dtype: DType,
        x: IntValue<'c>,
    ) -> Result<IntValue<'c>, CodegenError> {
        let ir = &self.ir;
        let zero = ir.int_like(x, 0);
        let signed = dtype.is_signed_int();
        Ok(match function {
            UnaryFn::Not => ir.not(x),
            UnaryFn::Neg if dtype.is_int() => ir.sub(zero, x),
            UnaryFn::Abs if signed => {
                let negative = ir.compare(IntPredicate::SLT, x, zero);
                ir.select_int(negative, ir.sub(zero, x), x)
            }
            UnaryFn::Sign if signed => {
                let positive = ir.compare(IntPredicate::SGT, x, zero);
                let negative = ir.compare(IntPredicate::SLT, x, zero);
                let below = ir.select_int(negative, ir.int_like(x, -1), zero);
                ir.select_int(positive, ir.int_like(x, 1), below)
            }
            UnaryFn::Sign if dtype.is_int() => {
                let positive = ir.compare(IntPredicate::NE, x, zero);
                ir.select_int(positive, ir.int_like(x, 1), zero)
            }
            UnaryFn::Abs | UnaryFn::Floor | UnaryFn::Ceil | UnaryFn::Trunc | UnaryFn::RoundEven
                if dtype.is_int() =>
            {
                x
            }
            UnaryFn::IsNan | UnaryFn::IsInf => ir.bool(false),
            _ => return Err(self.unsupported(function.name(), dtype)),
        })
    }

    /// A function of two elements.
    pub fn binary(
        &mut self,
        function: BinaryFn,
        dtype: DType,
        a: BasicValueEnum<'c>,
        b: BasicValueEnum<'c>,
    ) -> Result<BasicValueEnum<'c>, CodegenError> {
        match (a, b) {
            (BasicValueEnum::FloatValue(a), BasicValueEnum::FloatValue(b)) => {
                self.float_binary(function, dtype, a, b)
            }
            (a, b) => {
                let (a, b) = (a.into_int_value(), b.into_int_value());
                Ok(self.int_binary(function, dtype, a, b)?.into())
            }
        }
    }

    fn float_binary(
        &mut self,
        function: BinaryFn,
        dtype: DType,
        a: FloatValue<'c>,
        b: FloatValue<'c>,
    ) -> Result<BasicValueEnum<'c>, CodegenError> {
        let ir = &self.ir;
        let value = match function {
            BinaryFn::Add => ir.fadd(a, b),
            BinaryFn::Sub => ir.fsub(a, b),
            BinaryFn::Mul => ir.fmul(a, b),
            BinaryFn::Div => ir.fdiv(a, b),
            BinaryFn::Max => ir.float_intrinsic("llvm.maximum", &[a, b]),
            BinaryFn::Min => ir.float_intrinsic("llvm.minimum", &[a, b]),
            BinaryFn::Eq => return Ok(ir.fcompare(FloatPredicate::OEQ, a, b).into()),
            BinaryFn::Lt => return Ok(ir.fcompare(FloatPredicate::OLT, a, b).into()),
            BinaryFn::Le => return Ok(ir.fcompare(FloatPredicate::OLE, a, b).into()),
            BinaryFn::Pow if dtype != DType::F64 => {
                single::pow(&LlvmFloat { ir, ty: a.get_type() }, a, b)
            }
            BinaryFn::Rem => fmod(&LlvmFloat { ir, ty: a.get_type() }, a, b),
            BinaryFn::Mod => {
                let remainder = fmod(&LlvmFloat { ir, ty: a.get_type() }, a, b);
                let zero = a.get_type().const_zero();
                let below = ir.fcompare(FloatPredicate::OLT, remainder, zero);
                let above = ir.fcompare(FloatPredicate::OGT, remainder, zero);
                let divisor_below = ir.fcompare(FloatPredicate::OLT, b, zero);
                let divisor_above = ir.fcompare(FloatPredicate::OGT, b, zero);
                let differ = ir.or(ir.and(below, divisor_above), ir.and(above, divisor_below));
                ir.select_float(differ, ir.fadd(remainder, b), remainder)
            }
            _ => return Err(self.unsupported(function.name(), dtype)),
        };
        Ok(value.into())
    }

    fn int_binary(
        &mut self,
        function: BinaryFn,
        dtype: DType,
        a: IntValue<'c>,
        b: IntValue<'c>,
    ) -> Result<IntValue<'c>, CodegenError> {
        let ir = &self.ir;
        let signed = dtype.is_signed_int();
        let by_sign = |s: IntPredicate, u: IntPredicate| if signed { s } else { u };
        let less = by_sign(IntPredicate::SLT, IntPredicate::ULT);
        let logical = dtype == DType::Bool;
        Ok(match function {
            BinaryFn::And => ir.and(a, b),
            BinaryFn::Or => ir.or(a, b),
            BinaryFn::Xor => ir.xor(a, b),
            BinaryFn::Eq => ir.compare(IntPredicate::EQ, a, b),
            BinaryFn::Lt => ir.compare(less, a, b),
            BinaryFn::Le => ir.compare(by_sign(IntPredicate::SLE, IntPredicate::ULE), a, b),
            BinaryFn::Max => ir.select_int(ir.compare(less, a, b), b, a),
            BinaryFn::Min => ir.select_int(ir.compare(less, b, a), b, a),
            _ if logical => return Err(self.unsupported(function.name(), dtype)),
            BinaryFn::Add => ir.add(a, b),
            BinaryFn::Sub => ir.sub(a, b),
            BinaryFn::Mul => ir.mul(a, b),
            BinaryFn::Div => ir.quotient(signed, a, b),
            BinaryFn::Rem => ir.remainder(signed, a, b),
            BinaryFn::Mod => ir.floor_remainder(signed, a, b),
            BinaryFn::Pow => ir.int_power(signed, a, b),
            BinaryFn::Shl | BinaryFn::Shr => ir.shift(function == BinaryFn::Shl, signed, a, b),
        })
    }

    /// Conversion, as [`ScalarExpr::Cast`].
    pub fn cast(&self, from: DType, to: DType, x: BasicValueEnum<'c>) -> BasicValueEnum<'c> {
        match x {
            BasicValueEnum::FloatValue(x) => self.ir.cast_float(to, x),
            x => self.ir.cast_int(from, to, x.into_int_value()),
        }
    }
}
