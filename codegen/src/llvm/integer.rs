//! Integer functions that are total, where LLVM's are not, and conversions.

use fornax_bundle::DType;
use inkwell::values::{BasicValueEnum, FloatValue, IntValue};
use inkwell::{FloatPredicate, IntPredicate};

use super::ir::Ir;

impl<'c> Ir<'c> {
    /// A divisor for which division is defined, and whether the given one is 0 and is -1.
    fn safe_divisor(
        &self,
        signed: bool,
        b: IntValue<'c>,
    ) -> (IntValue<'c>, IntValue<'c>, IntValue<'c>) {
        let is_zero = self.compare(IntPredicate::EQ, b, self.int_like(b, 0));
        let is_minus_one = match signed {
            true => self.compare(IntPredicate::EQ, b, self.int_like(b, -1)),
            false => self.bool(false),
        };
        let safe = self.select_int(self.or(is_zero, is_minus_one), self.int_like(b, 1), b);
        (safe, is_zero, is_minus_one)
    }

    /// Quotient rounded towards zero; 0 for a zero divisor; the smallest number by -1 is itself.
    pub fn quotient(&self, signed: bool, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        let (divisor, is_zero, is_minus_one) = self.safe_divisor(signed, b);
        let zero = self.int_like(a, 0);
        let quotient = self.div(signed, a, divisor);
        let quotient = self.select_int(is_minus_one, self.sub(zero, a), quotient);
        self.select_int(is_zero, zero, quotient)
    }

    /// Remainder with the dividend's sign; 0 for a zero divisor.
    pub fn remainder(&self, signed: bool, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        // By 1 and by -1 the remainder is 0 as well.
        let (divisor, _, _) = self.safe_divisor(signed, b);
        self.rem(signed, a, divisor)
    }

    /// Remainder with the divisor's sign; 0 for a zero divisor.
    pub fn floor_remainder(&self, signed: bool, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        let remainder = self.remainder(signed, a, b);
        if !signed {
            return remainder;
        }
        let zero = self.int_like(a, 0);
        let other_sign = self.compare(IntPredicate::SLT, self.xor(remainder, b), zero);
        let not_zero = self.compare(IntPredicate::NE, remainder, zero);
        let adjusted = self.add(remainder, b);
        self.select_int(self.and(other_sign, not_zero), adjusted, remainder)
    }

    /// A shift whose count may be anything: all bits leave when it reaches the width.
    pub fn shift(
        &self,
        left: bool,
        signed: bool,
        a: IntValue<'c>,
        count: IntValue<'c>,
    ) -> IntValue<'c> {
        let bits = i64::from(a.get_type().get_bit_width());
        let inside = self.compare(IntPredicate::ULT, count, self.int_like(a, bits));
        let last = self.int_like(a, bits - 1);
        let safe = self.select_int(inside, count, last);
        let zero = self.int_like(a, 0);
        match (left, signed) {
            (true, _) => self.select_int(inside, self.shl(a, safe), zero),
            (false, true) => self.shr(true, a, safe),
            (false, false) => self.select_int(inside, self.shr(false, a, safe), zero),
        }
    }

    /// Power by squaring, wrapping; a negative exponent gives 0 unless the base is 1 or -1.
    pub fn int_power(&self, signed: bool, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        let one = self.int_like(a, 1);
        let zero = self.int_like(a, 0);
        let negative = match signed {
            true => self.compare(IntPredicate::SLT, b, zero),
            false => self.bool(false),
        };
        let before = self.current_block();
        let (round, after) = (self.block("power"), self.block("powered"));
        self.jump(round);
        self.builder.position_at_end(round);
        let (base, rest, result) =
            (self.phi(a.get_type().into()), self.phi(b.get_type().into()), {
                self.phi(a.get_type().into())
            });
        let value = |phi: &inkwell::values::PhiValue<'c>| phi.as_basic_value().into_int_value();
        let odd = self.compare(IntPredicate::NE, self.and(value(&rest), one), zero);
        let product = self.mul(value(&result), value(&base));
        let next = self.select_int(odd, product, value(&result));
        let square = self.mul(value(&base), value(&base));
        // For a base of 1 or -1 the exponent's parity decides, whatever its sign.
        let half = self.shr(false, value(&rest), one);
        let done = self.compare(IntPredicate::EQ, half, zero);
        self.branch(done, after, round);
        base.add_incoming(&[(&a, before), (&square, round)]);
        rest.add_incoming(&[(&b, before), (&half, round)]);
        result.add_incoming(&[(&one, before), (&next, round)]);
        self.builder.position_at_end(after);
        if !signed {
            return next;
        }
        let unit = self.or(
            self.compare(IntPredicate::EQ, a, one),
            self.compare(IntPredicate::EQ, a, self.int_like(a, -1)),
        );
        let vanishes = self.and(negative, self.not(unit));
        self.select_int(vanishes, zero, next)
    }

    /// Conversion of a float.
    pub fn cast_float(&self, to: DType, x: FloatValue<'c>) -> BasicValueEnum<'c> {
        let is_f64 = x.get_type() == self.context.f64_type();
        let f32_type = self.context.f32_type();
        match to {
            DType::F64 if is_f64 => x.into(),
            DType::F64 => self.fext(x, self.context.f64_type()).into(),
            DType::F32 if is_f64 => self.ftrunc(x, f32_type).into(),
            DType::F32 => x.into(),
            DType::F16 => self.loaded(to, self.ftrunc(x, self.context.f16_type()).into()),
            DType::BF16 => {
                let narrow = if is_f64 { self.f64_to_odd_f32(x) } else { x };
                let rounded = self.ftrunc(narrow, self.context.bf16_type());
                self.loaded(to, rounded.into())
            }
            DType::Bool => self.fcompare(FloatPredicate::UNE, x, x.get_type().const_zero()).into(),
            _ => {
                let name = if to.is_signed_int() { "llvm.fptosi.sat" } else { "llvm.fptoui.sat" };
                let int = self.register_type(to);
                self.intrinsic(name, &[int, x.get_type().into()], &[x.into()])
            }
        }
    }

    /// Conversion of an integer or bool.
    pub fn cast_int(&self, from: DType, to: DType, x: IntValue<'c>) -> BasicValueEnum<'c> {
        let signed = from.is_signed_int();
        match to {
            DType::Bool if from == DType::Bool => x.into(),
            DType::Bool => self.compare(IntPredicate::NE, x, self.int_like(x, 0)).into(),
            DType::F64 => self.int_to_float(signed, x, self.context.f64_type()).into(),
            DType::F32 => self.int_to_float(signed, x, self.context.f32_type()).into(),
            DType::F16 => {
                // Through f64 with a sticky last bit where that is not exact: 16 bits are rounded once.
                let wide = self.int_to_odd_f64(signed, x);
                self.loaded(to, self.ftrunc(wide, self.context.f16_type()).into())
            }
            DType::BF16 => {
                let narrow = self.f64_to_odd_f32(self.int_to_odd_f64(signed, x));
                self.loaded(to, self.ftrunc(narrow, self.context.bf16_type()).into())
            }
            _ => self.resize(signed, x, 8 * to.size() as u32).into(),
        }
    }

    /// An `f64` rounded to `f32` towards zero, with the last bit set when that is not exact: rounding
    /// the result to nearest in a format at least two bits narrower equals rounding `x` itself (Boldo
    /// and Melquiond, "Emulation of FMA and Correctly Rounded Sums", 2008, theorem 1).
    fn f64_to_odd_f32(&self, x: FloatValue<'c>) -> FloatValue<'c> {
        let f32_type = self.context.f32_type();
        let cut = self.intrinsic("llvm.nvvm.d2f.rz", &[], &[x.into()]).into_float_value();
        let back = self.fext(cut, self.context.f64_type());
        let inexact = self.fcompare(FloatPredicate::ONE, back, x);
        let bits = self.bits(cut);
        let odd = self.or(bits, self.resize(false, inexact, 32));
        self.bit_cast(odd.into(), f32_type.into()).into_float_value()
    }

    /// An integer as `f64`, likewise rounded to odd when 64 bits do not fit.
    fn int_to_odd_f64(&self, signed: bool, x: IntValue<'c>) -> FloatValue<'c> {
        let f64_type = self.context.f64_type();
        if x.get_type().get_bit_width() < 64 {
            return self.int_to_float(signed, x, f64_type);
        }
        let (there, back) = match signed {
            true => ("llvm.nvvm.ll2d.rz", "llvm.nvvm.d2ll.rz"),
            false => ("llvm.nvvm.ull2d.rz", "llvm.nvvm.d2ull.rz"),
        };
        let cut = self.intrinsic(there, &[], &[x.into()]);
        let again = self.intrinsic(back, &[], &[cut.into()]).into_int_value();
        let inexact = self.compare(IntPredicate::NE, again, x);
        let bits = self.bits(cut.into_float_value());
        let odd = self.or(bits, self.resize(false, inexact, 64));
        self.bit_cast(odd.into(), f64_type.into()).into_float_value()
    }
}
