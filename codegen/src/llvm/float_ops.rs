//! The operations that our mathematical functions are written in, as LLVM instructions.

use inkwell::types::FloatType;
use inkwell::values::{FloatValue, IntValue};
use inkwell::{FloatPredicate, IntPredicate};

use super::ir::Ir;
use crate::math::{FloatOps, Width};

/// Operations of one width in a function under construction.
pub(super) struct LlvmFloat<'a, 'c> {
    pub ir: &'a Ir<'c>,
    pub ty: FloatType<'c>,
}

impl<'c> LlvmFloat<'_, 'c> {
    fn bit_width(&self) -> u32 {
        self.width().bits as u32
    }
}

impl<'c> FloatOps for LlvmFloat<'_, 'c> {
    type Float = FloatValue<'c>;
    type Int = IntValue<'c>;
    type Bool = IntValue<'c>;

    fn width(&self) -> Width {
        if self.ty == self.ir.context.f64_type() { Width::DOUBLE } else { Width::SINGLE }
    }

    fn float(&self, value: f64) -> FloatValue<'c> {
        self.ty.const_float(value)
    }

    fn int(&self, value: i64) -> IntValue<'c> {
        self.ir.int_type(self.bit_width()).const_int(value as u64, true)
    }

    fn add(&self, a: FloatValue<'c>, b: FloatValue<'c>) -> FloatValue<'c> {
        self.ir.fadd(a, b)
    }

    fn sub(&self, a: FloatValue<'c>, b: FloatValue<'c>) -> FloatValue<'c> {
        self.ir.fsub(a, b)
    }

    fn mul(&self, a: FloatValue<'c>, b: FloatValue<'c>) -> FloatValue<'c> {
        self.ir.fmul(a, b)
    }

    fn div(&self, a: FloatValue<'c>, b: FloatValue<'c>) -> FloatValue<'c> {
        self.ir.fdiv(a, b)
    }

    fn fma(&self, a: FloatValue<'c>, b: FloatValue<'c>, c: FloatValue<'c>) -> FloatValue<'c> {
        self.ir.fma(a, b, c)
    }

    fn neg(&self, a: FloatValue<'c>) -> FloatValue<'c> {
        self.ir.fneg(a)
    }

    fn abs(&self, a: FloatValue<'c>) -> FloatValue<'c> {
        self.ir.float_intrinsic("llvm.fabs", &[a])
    }

    fn sqrt(&self, a: FloatValue<'c>) -> FloatValue<'c> {
        self.ir.float_intrinsic("llvm.sqrt", &[a])
    }

    fn max(&self, a: FloatValue<'c>, b: FloatValue<'c>) -> FloatValue<'c> {
        self.ir.float_intrinsic("llvm.maximum", &[a, b])
    }

    fn min(&self, a: FloatValue<'c>, b: FloatValue<'c>) -> FloatValue<'c> {
        self.ir.float_intrinsic("llvm.minimum", &[a, b])
    }

    fn inverse_near(&self, a: FloatValue<'c>) -> FloatValue<'c> {
        match self.bit_width() {
            64 => self.ir.fdiv(self.float(1.0), a),
            _ => {
                let name = "llvm.nvvm.rcp.approx.ftz.f";
                self.ir.intrinsic(name, &[], &[a.into()]).into_float_value()
            }
        }
    }

    fn rint(&self, a: FloatValue<'c>) -> FloatValue<'c> {
        self.ir.float_intrinsic("llvm.roundeven", &[a])
    }

    fn trunc(&self, a: FloatValue<'c>) -> FloatValue<'c> {
        self.ir.float_intrinsic("llvm.trunc", &[a])
    }

    fn lt(&self, a: FloatValue<'c>, b: FloatValue<'c>) -> IntValue<'c> {
        self.ir.fcompare(FloatPredicate::OLT, a, b)
    }

    fn eq(&self, a: FloatValue<'c>, b: FloatValue<'c>) -> IntValue<'c> {
        self.ir.fcompare(FloatPredicate::OEQ, a, b)
    }

    fn and(&self, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        self.ir.and(a, b)
    }

    fn or(&self, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        self.ir.or(a, b)
    }

    fn not(&self, a: IntValue<'c>) -> IntValue<'c> {
        self.ir.not(a)
    }

    fn select(
        &self,
        c: IntValue<'c>,
        then: FloatValue<'c>,
        otherwise: FloatValue<'c>,
    ) -> FloatValue<'c> {
        self.ir.select_float(c, then, otherwise)
    }

    fn select_int(
        &self,
        c: IntValue<'c>,
        then: IntValue<'c>,
        otherwise: IntValue<'c>,
    ) -> IntValue<'c> {
        self.ir.select_int(c, then, otherwise)
    }

    fn bits(&self, a: FloatValue<'c>) -> IntValue<'c> {
        self.ir.bits(a)
    }

    fn float_of_bits(&self, a: IntValue<'c>) -> FloatValue<'c> {
        self.ir.bit_cast(a.into(), self.ty.into()).into_float_value()
    }

    fn to_int(&self, a: FloatValue<'c>) -> IntValue<'c> {
        // LLVM's own conversion is undefined for NaN, the instruction is not.
        let name = if self.bit_width() == 64 { "llvm.nvvm.d2ll.rz" } else { "llvm.nvvm.f2i.rz" };
        self.ir.intrinsic(name, &[], &[a.into()]).into_int_value()
    }

    fn float_of_int(&self, a: IntValue<'c>) -> FloatValue<'c> {
        self.ir.int_to_float(true, a, self.ty)
    }

    fn int_add(&self, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        self.ir.add(a, b)
    }

    fn int_sub(&self, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        self.ir.sub(a, b)
    }

    fn int_mul(&self, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        self.ir.mul(a, b)
    }

    fn mul_high(&self, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        let name = match self.bit_width() {
            64 => "llvm.nvvm.mulhi.ull",
            _ => "llvm.nvvm.mulhi.ui",
        };
        self.ir.intrinsic(name, &[], &[a.into(), b.into()]).into_int_value()
    }

    fn int_rem(&self, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        self.ir.rem(false, a, b)
    }

    fn int_and(&self, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        self.ir.and(a, b)
    }

    fn int_or(&self, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        self.ir.or(a, b)
    }

    fn int_xor(&self, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        self.ir.xor(a, b)
    }

    fn shl(&self, a: IntValue<'c>, count: IntValue<'c>) -> IntValue<'c> {
        self.ir.shl(a, count)
    }

    fn shr(&self, a: IntValue<'c>, count: IntValue<'c>) -> IntValue<'c> {
        self.ir.shr(false, a, count)
    }

    fn int_eq(&self, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        self.ir.compare(IntPredicate::EQ, a, b)
    }

    fn int_lt(&self, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        self.ir.compare(IntPredicate::SLT, a, b)
    }

    fn int_below(&self, a: IntValue<'c>, b: IntValue<'c>) -> IntValue<'c> {
        self.ir.compare(IntPredicate::ULT, a, b)
    }

    fn unless_rare<const N: usize>(
        &self,
        condition: IntValue<'c>,
        usual: [IntValue<'c>; N],
        rare: impl FnOnce(&Self) -> [IntValue<'c>; N],
    ) -> [IntValue<'c>; N] {
        let ir = self.ir;
        let before = ir.current_block();
        let (inside, after) = (ir.block("rare"), ir.block("joined"));
        ir.branch(condition, inside, after);
        ir.builder.position_at_end(inside);
        let values = rare(self);
        let end = ir.current_block();
        ir.jump(after);
        ir.builder.position_at_end(after);
        std::array::from_fn(|k| {
            let phi = ir.phi(usual[k].get_type().into());
            phi.add_incoming(&[(&usual[k], before), (&values[k], end)]);
            phi.as_basic_value().into_int_value()
        })
    }

    fn repeat<const N: usize>(
        &self,
        state: [IntValue<'c>; N],
        more: impl Fn(&Self, [IntValue<'c>; N]) -> IntValue<'c>,
        round: impl Fn(&Self, [IntValue<'c>; N]) -> [IntValue<'c>; N],
    ) -> [IntValue<'c>; N] {
        let ir = self.ir;
        let before = ir.current_block();
        let (head, body, after) = (ir.block("while"), ir.block("repeat"), ir.block("repeated"));
        ir.jump(head);
        ir.builder.position_at_end(head);
        let phis = state.map(|value| ir.phi(value.get_type().into()));
        let values = phis.map(|phi| phi.as_basic_value().into_int_value());
        let condition = more(self, values);
        ir.branch(condition, body, after);
        ir.builder.position_at_end(body);
        let next = round(self, values);
        let end = ir.current_block();
        ir.jump(head);
        for (phi, (first, next)) in phis.iter().zip(state.iter().zip(&next)) {
            phi.add_incoming(&[(first, before), (next, end)]);
        }
        ir.builder.position_at_end(after);
        values
    }
}
