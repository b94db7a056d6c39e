//! Single- and double-precision arithmetic.

use super::super::program::{FloatMode, FloatOp1, FloatOp2, Op, Rounding, Slot, Src, TestClass};
use super::approx::{self, Approximation};
use super::registers::{LANES, Row, row_of};
use super::rounding::{NAN32, NAN64, add_to_odd, flush, to_f32, to_odd};

impl Row<'_> {
    /// Runs a single- or double-precision instruction.
    #[inline]
    pub(super) fn float(&mut self, op: &Op, approximation: Approximation) {
        match *op {
            Op::F32Fma { mode, dst, a, b, c } => self.f32_fma(mode, dst, a, b, c),
            Op::F32Two { op, mode, dst, a, b } => self.f32_two(op, mode, dst, a, b, approximation),
            Op::F32One { op, mode, dst, a } => self.f32_one(op, mode, dst, a, approximation),
            Op::F64Fma { dst, a, b, c } => {
                self.map3(dst, (a, b, c), |a: f64, b: f64, c: f64| {
                    settle64(a.mul_add(b, c), [a, b, c])
                });
            }
            Op::F64Two { op, dst, a, b } => self.f64_two(op, dst, a, b),
            Op::F64One { op, dst, a } => self.f64_one(op, dst, a, approximation),
            _ => {}
        }
    }

    #[inline]
    fn f32_fma(&mut self, mode: FloatMode, dst: Slot, a: Src, b: Src, c: Src) {
        if is_plain(mode) {
            let (a, b, c) = (self.get::<f32>(a), self.get::<f32>(b), self.get::<f32>(c));
            self.put(dst, fma_lanes(&a, &b, &c));
            return;
        }
        self.map3(dst, (a, b, c), |a: f32, b: f32, c: f32| {
            let [a, b, c] = [a, b, c].map(|x| input(x, mode));
            // The product of two singles is exact in double precision.
            let exact = add_to_odd(f64::from(a) * f64::from(b), f64::from(c));
            finish(directed_zero(exact, f64::from(a) * f64::from(b), f64::from(c), mode), mode)
        });
    }

    #[inline]
    fn f32_two(
        &mut self,
        op: FloatOp2,
        mode: FloatMode,
        dst: Slot,
        a: Src,
        b: Src,
        approximation: Approximation,
    ) {
        match op {
            FloatOp2::Add if is_plain(mode) => {
                self.map2(dst, a, b, |a: f32, b: f32| canonical(a + b));
            }
            FloatOp2::Sub if is_plain(mode) => {
                self.map2(dst, a, b, |a: f32, b: f32| canonical(a - b));
            }
            FloatOp2::Mul if is_plain(mode) => {
                self.map2(dst, a, b, |a: f32, b: f32| canonical(a * b));
            }
            _ => self.map2(dst, a, b, |a: f32, b: f32| {
                f32_two(op, mode, input(a, mode), input(b, mode), approximation)
            }),
        }
    }

    fn f32_one(
        &mut self,
        op: FloatOp1,
        mode: FloatMode,
        dst: Slot,
        a: Src,
        approximation: Approximation,
    ) {
        match op {
            FloatOp1::Neg => self.map1(dst, a, |a: f32| sign_only(input(a, mode), |a| -a)),
            FloatOp1::Abs => self.map1(dst, a, |a: f32| sign_only(input(a, mode), f32::abs)),
            FloatOp1::Rcp => self.map1(dst, a, |a: f32| {
                let a = f64::from(input(a, mode));
                finish(quotient(1.0, a), mode)
            }),
            FloatOp1::Sqrt => self.map1(dst, a, |a: f32| {
                let a = f64::from(input(a, mode));
                let root = a.sqrt();
                finish(to_odd(root, (-root).mul_add(root, a)), mode)
            }),
            FloatOp1::Approx(op) => self.map1(dst, a, |a: f32| {
                let value = approx::unary(op, input(a, mode), approximation);
                finish(f64::from(value), mode)
            }),
        }
    }

    fn f64_two(&mut self, op: FloatOp2, dst: Slot, a: Src, b: Src) {
        self.map2(dst, a, b, |a: f64, b: f64| match op {
            FloatOp2::Add => settle64(a + b, [a, b]),
            FloatOp2::Sub => settle64(a - b, [a, b]),
            FloatOp2::Mul => settle64(a * b, [a, b]),
            FloatOp2::Div => settle64(a / b, [a, b]),
            FloatOp2::CopySign => b.copysign(a),
            _ => min_max64(op, a, b),
        });
    }

    fn f64_one(&mut self, op: FloatOp1, dst: Slot, a: Src, approximation: Approximation) {
        self.map1(dst, a, |a: f64| match op {
            FloatOp1::Neg => -a,
            FloatOp1::Abs => a.abs(),
            FloatOp1::Rcp => settle64(1.0 / a, [a]),
            FloatOp1::Sqrt => settle64(a.sqrt(), [a]),
            FloatOp1::Approx(_) => settle64(approx::rsqrt64(a, approximation), [a]),
        });
    }

    /// `testp`: the lanes whose value is of a class; zeros count as normal.
    pub(super) fn test_class(&self, wide: bool, class: TestClass, a: Src) -> u32 {
        let classify =
            |finite: bool, infinite: bool, nan: bool, normal: bool, subnormal: bool| match class {
                TestClass::Finite => finite,
                TestClass::Infinite => infinite,
                TestClass::Number => !nan,
                TestClass::NotANumber => nan,
                TestClass::Normal => normal,
                TestClass::Subnormal => subnormal,
            };
        if wide {
            self.test2(a, a, |x: f64, _| {
                let (finite, nan) = (x.is_finite(), x.is_nan());
                classify(finite, x.is_infinite(), nan, x.is_normal() || x == 0.0, x.is_subnormal())
            })
        } else {
            self.test2(a, a, |x: f32, _| {
                let (finite, nan) = (x.is_finite(), x.is_nan());
                classify(finite, x.is_infinite(), nan, x.is_normal() || x == 0.0, x.is_subnormal())
            })
        }
    }
}

/// Two-operand operations in the general case; inputs are flushed already.
fn f32_two(op: FloatOp2, mode: FloatMode, a: f32, b: f32, approximation: Approximation) -> f32 {
    let (a64, b64) = (f64::from(a), f64::from(b));
    match op {
        FloatOp2::Add => finish(directed_zero(add_to_odd(a64, b64), a64, b64, mode), mode),
        FloatOp2::Sub => finish(directed_zero(add_to_odd(a64, -b64), a64, -b64, mode), mode),
        FloatOp2::Mul => finish(a64 * b64, mode),
        FloatOp2::Div => finish(quotient(a64, b64), mode),
        FloatOp2::CopySign => f32::from_bits(b.to_bits() & !SIGN | a.to_bits() & SIGN),
        FloatOp2::DivApprox | FloatOp2::DivFull => {
            let full = op == FloatOp2::DivFull;
            finish(f64::from(approx::divide(a, b, full, approximation)), mode)
        }
        _ => min_max32(op, a, b),
    }
}

const SIGN: u32 = 1 << 31;

/// An exact sum of zero is negative when rounding down, unless both terms are positive zeros.
fn directed_zero(sum: f64, a: f64, b: f64, mode: FloatMode) -> f64 {
    let cancels = sum == 0.0 && mode.rounding == Rounding::Down;
    let both_positive = a.is_sign_positive() && b.is_sign_positive();
    if cancels && !both_positive { -0.0 } else { sum }
}

/// `a / b` rounded to odd, for singles: the remainder's sign tells on which side the quotient is.
fn quotient(a: f64, b: f64) -> f64 {
    let quotient = a / b;
    if !quotient.is_finite() || quotient == 0.0 || b.is_infinite() {
        return quotient;
    }
    let remainder = (-quotient).mul_add(b, a);
    to_odd(quotient, remainder / b)
}

fn is_plain(mode: FloatMode) -> bool {
    mode.rounding == Rounding::Nearest && !mode.ftz && !mode.saturate && !mode.relu
}

#[inline(always)]
fn input(value: f32, mode: FloatMode) -> f32 {
    if mode.ftz { flush(value) } else { value }
}

/// Rounds an exact (or to-odd) result and applies the modifiers.
fn finish(exact: f64, mode: FloatMode) -> f32 {
    let mut value = to_f32(exact, mode.rounding);
    if mode.ftz {
        value = flush(value);
    }
    if mode.saturate {
        // The comparison is false for NaN, which saturates to zero.
        value = if value > 0.0 { value.min(1.0) } else { 0.0 };
    }
    if mode.relu && value <= 0.0 {
        value = 0.0;
    }
    value
}

#[inline(always)]
fn canonical(value: f32) -> f32 {
    // By bits, for what the compiler knows of NaN values does not include their bits.
    let magnitude = value.to_bits() & !SIGN;
    if magnitude > 0x7f80_0000 { NAN32 } else { value }
}

/// A double-precision result: unlike single precision, a NaN operand goes through, made quiet.
#[inline(always)]
fn settle64<const N: usize>(value: f64, operands: [f64; N]) -> f64 {
    if !is_nan64(value) {
        return value;
    }
    match operands.into_iter().find(|&operand| is_nan64(operand)) {
        Some(operand) => f64::from_bits(operand.to_bits() | 1 << 51),
        None => NAN64,
    }
}

/// By bits, for what the compiler knows of NaN values does not include their bits.
#[inline(always)]
fn is_nan64(value: f64) -> bool {
    value.to_bits() & !(1 << 63) > 0x7ff0_0000_0000_0000
}

/// `neg` and `abs` change the sign bit alone; NaN comes out canonical.
fn sign_only(value: f32, f: impl Fn(f32) -> f32) -> f32 {
    canonical(f(value))
}

macro_rules! min_max {
    ($name:ident, $ty:ty, $nan:expr) => {
        /// `min` and `max` (PTX ISA sections 9.7.3.13 and 9.7.3.14): a NaN loses against a number,
        /// or with `.NaN` wins; -0.0 is less than +0.0.
        fn $name(op: FloatOp2, a: $ty, b: $ty) -> $ty {
            let xorsign = matches!(
                op,
                FloatOp2::MinXorsign
                    | FloatOp2::MaxXorsign
                    | FloatOp2::MinNanXorsign
                    | FloatOp2::MaxNanXorsign
            );
            let propagate = matches!(
                op,
                FloatOp2::MinNan
                    | FloatOp2::MaxNan
                    | FloatOp2::MinNanXorsign
                    | FloatOp2::MaxNanXorsign
            );
            let is_max = matches!(
                op,
                FloatOp2::Max | FloatOp2::MaxNan | FloatOp2::MaxXorsign | FloatOp2::MaxNanXorsign
            );
            let negative = a.is_sign_negative() != b.is_sign_negative();
            let (x, y) = if xorsign { (a.abs(), b.abs()) } else { (a, b) };
            let value = match (x.is_nan(), y.is_nan()) {
                (true, true) => return $nan,
                (true, false) | (false, true) if propagate => return $nan,
                (true, false) => y,
                (false, true) => x,
                (false, false) => {
                    let x_less = x < y || (x == y && x.is_sign_negative());
                    if x_less != is_max { x } else { y }
                }
            };
            if xorsign { if negative { -value } else { value } } else { value }
        }
    };
}

min_max!(min_max32, f32, NAN32);
min_max!(min_max64, f64, NAN64);

/// `min` and `max` for the half-precision types, which single precision holds exactly.
pub(super) fn min_max(op: FloatOp2, a: f32, b: f32) -> f32 {
    min_max32(op, a, b)
}

/// Fused multiply-add with one rounding, NaN canonical.
#[inline]
fn fma_lanes(a: &[f32; LANES], b: &[f32; LANES], c: &[f32; LANES]) -> [f32; LANES] {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("fma") && std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has both features.
        return unsafe { fma_lanes_avx2(a, b, c) };
    }
    row_of(|lane| canonical(a[lane].mul_add(b[lane], c[lane])))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn fma_lanes_avx2(a: &[f32; LANES], b: &[f32; LANES], c: &[f32; LANES]) -> [f32; LANES] {
    row_of(|lane| canonical(a[lane].mul_add(b[lane], c[lane])))
}
