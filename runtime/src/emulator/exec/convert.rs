//! Conversions (PTX ISA section 9.7.9.21, `cvt`), comparisons and selections.

use half::{bf16, f16};

use super::super::parse::Type;
use super::super::program::{
    AnySrc, Compare, CompareType, Conversion, Dst, FloatType, IntType, Op, Rounding, Src,
};
use super::integer::combine;
use super::registers::{Row, row_of};
use super::rounding::{
    NAN16, TF32, direct_f64, flush, from_half, integer_to_odd, to_f32, to_half, to_integral,
};

impl Row<'_> {
    /// Runs `cvt`.
    pub(super) fn convert(&mut self, conversion: Conversion, dst: Dst, a: AnySrc) {
        let plain = !conversion.saturate
            && !conversion.ftz
            && !conversion.relu
            && !conversion.integral
            && conversion.rounding == Rounding::Nearest;
        match (conversion.to, conversion.from, dst, a) {
            (Type::F32, Type::F16, Dst::Word(dst), AnySrc::Word(a)) if plain => {
                self.map1(dst, a, |bits: u32| widen(f16::from_bits(bits as u16).to_f32()));
            }
            (Type::F32, Type::Bf16, Dst::Word(dst), AnySrc::Word(a)) if plain => {
                // NaN keeps its bits here, on the hardware too.
                self.map1(dst, a, |bits: u32| bits << 16);
            }
            (Type::F16, Type::F32, Dst::Half(dst), AnySrc::Word(a)) if plain => {
                self.map1(dst, a, |x: f32| match x.is_nan() {
                    true => NAN16,
                    false => f16::from_f32(x).to_bits(),
                });
            }
            (Type::Bf16, Type::F32, Dst::Half(dst), AnySrc::Word(a)) if plain => {
                self.map1(dst, a, |x: f32| match x.is_nan() {
                    true => NAN16,
                    false => bf16::from_f32(x).to_bits(),
                });
            }
            (Type::F32, Type::S32, Dst::Word(dst), AnySrc::Word(a)) if plain => {
                self.map1(dst, a, |x: i32| x as f32);
            }
            (Type::F32, Type::U32, Dst::Word(dst), AnySrc::Word(a)) if plain => {
                self.map1(dst, a, |x: u32| x as f32);
            }
            (Type::S64, Type::S32, Dst::Wide(dst), AnySrc::Word(a)) if plain => {
                self.map1(dst, a, |x: i32| i64::from(x));
            }
            (Type::U64, Type::U32, Dst::Wide(dst), AnySrc::Word(a)) if plain => {
                self.map1(dst, a, |x: u32| u64::from(x));
            }
            (Type::U32 | Type::S32, Type::U64 | Type::S64, Dst::Word(dst), AnySrc::Wide(a))
                if plain =>
            {
                self.map1(dst, a, |x: u64| x as u32);
            }
            _ => {
                let values = self.registers.any(self.constants, a);
                let results = row_of(|lane| convert(conversion, values[lane]));
                self.registers.set_any(dst, self.mask, &results);
            }
        }
    }

    /// Runs `cvt` to tf32, `setp`, `set`, `selp` or `slct`.
    #[inline]
    pub(super) fn compare(&mut self, op: &Op) {
        match *op {
            Op::Setp { ty, compare, ftz, dst, inverse, a, b, combine: with } => {
                let holds = self.comparison(ty, compare, ftz, a, b);
                let lanes = with.map_or((holds, !holds), |(op, p)| {
                    let p = self.registers.predicate(p);
                    (combine(op, holds, p), combine(op, !holds, p))
                });
                self.registers.set_predicate(dst, self.mask, lanes.0);
                if let Some(inverse) = inverse {
                    self.registers.set_predicate(inverse, self.mask, lanes.1);
                }
            }
            Op::SetpPair { bf16, compare, ftz, dst, high, a, b, combine: with } => {
                for (slot, shift) in [(Some(dst), 0), (high, 16)] {
                    let Some(slot) = slot else { continue };
                    let mut lanes = self.test2(a, b, |a: u32, b: u32| {
                        half_holds(compare, ftz, bf16, (a >> shift) as u16, (b >> shift) as u16)
                    });
                    if let Some((op, p)) = with {
                        lanes = combine(op, lanes, self.registers.predicate(p));
                    }
                    self.registers.set_predicate(slot, self.mask, lanes);
                }
            }
            Op::Set { ty, compare, ftz, float, dst, a, b, combine: with } => {
                let mut holds = self.comparison(ty, compare, ftz, a, b);
                if let Some((op, p)) = with {
                    holds = combine(op, holds, self.registers.predicate(p));
                }
                let yes = if float { 1.0f32.to_bits() } else { u32::MAX };
                self.put(dst, row_of(|lane| if holds >> lane & 1 != 0 { yes } else { 0 }));
            }
            Op::Selp { wide, dst, a, b, p } => {
                let chosen = self.registers.predicate(p);
                self.select(wide, dst, a, b, chosen);
            }
            Op::Slct { wide, float, dst, a, b, c } => {
                let chosen = if float {
                    self.test2(c, c, |c: f32, _| c >= 0.0)
                } else {
                    self.test2(c, c, |c: i32, _| c >= 0)
                };
                self.select(wide, dst, a, b, chosen);
            }
            Op::ConvertTf32 { rounding, dst, a } => {
                self.map1(dst, a, |x: f32| match x.is_nan() {
                    true => super::rounding::NAN32,
                    false => TF32.round(f64::from(x), rounding) as f32,
                });
            }
            _ => {}
        }
    }

    #[inline]
    fn select(&mut self, wide: bool, dst: u32, a: Src, b: Src, chosen: u32) {
        if wide {
            let (a, b) = (self.get::<u64>(a), self.get::<u64>(b));
            self.put(dst, row_of(|lane| if chosen >> lane & 1 != 0 { a[lane] } else { b[lane] }));
        } else {
            let (a, b) = (self.get::<u32>(a), self.get::<u32>(b));
            self.put(dst, row_of(|lane| if chosen >> lane & 1 != 0 { a[lane] } else { b[lane] }));
        }
    }

    #[inline]
    fn comparison(&self, ty: CompareType, compare: Compare, ftz: bool, a: Src, b: Src) -> u32 {
        match ty {
            CompareType::Int(IntType::U16) => self.ordered::<u16>(compare, a, b),
            CompareType::Int(IntType::S16) => self.ordered::<i16>(compare, a, b),
            CompareType::Int(IntType::U32) => self.ordered::<u32>(compare, a, b),
            CompareType::Int(IntType::S32) => self.ordered::<i32>(compare, a, b),
            CompareType::Int(IntType::U64) => self.ordered::<u64>(compare, a, b),
            CompareType::Int(IntType::S64) => self.ordered::<i64>(compare, a, b),
            CompareType::Float(FloatType::F32) if ftz => {
                self.test2(a, b, |a: f32, b: f32| holds(compare, flush(a), flush(b)))
            }
            CompareType::Float(FloatType::F32) => {
                self.test2(a, b, |a: f32, b: f32| holds(compare, a, b))
            }
            CompareType::Float(FloatType::F64) => {
                self.test2(a, b, |a: f64, b: f64| holds(compare, a, b))
            }
            CompareType::Float(half) => {
                let is_bf16 = half == FloatType::Bf16;
                self.test2(a, b, |a: u16, b: u16| half_holds(compare, ftz, is_bf16, a, b))
            }
        }
    }

    #[inline]
    fn ordered<T: super::registers::Lane + Ord>(&self, compare: Compare, a: Src, b: Src) -> u32 {
        match compare {
            Compare::Eq => self.test2(a, b, |a: T, b: T| a == b),
            Compare::Ne => self.test2(a, b, |a: T, b: T| a != b),
            Compare::Lt => self.test2(a, b, |a: T, b: T| a < b),
            Compare::Le => self.test2(a, b, |a: T, b: T| a <= b),
            Compare::Gt => self.test2(a, b, |a: T, b: T| a > b),
            _ => self.test2(a, b, |a: T, b: T| a >= b),
        }
    }
}

fn widen(value: f32) -> f32 {
    if value.is_nan() { super::rounding::NAN32 } else { value }
}

#[inline]
fn half_holds(compare: Compare, ftz: bool, is_bf16: bool, a: u16, b: u16) -> bool {
    let flush = |bits: u16| match ftz && bits & 0x7c00 == 0 && !is_bf16 {
        true => bits & 0x8000,
        false => bits,
    };
    holds(compare, from_half(flush(a), is_bf16), from_half(flush(b), is_bf16))
}

#[inline(always)]
fn holds<T: PartialOrd>(compare: Compare, a: T, b: T) -> bool {
    let unordered = a.partial_cmp(&b).is_none();
    match compare {
        Compare::Eq => a == b,
        // Unlike Rust's operator, `ne` is false for NaN.
        Compare::Ne => a != b && !unordered,
        Compare::Lt => a < b,
        Compare::Le => a <= b,
        Compare::Gt => a > b,
        Compare::Ge => a >= b,
        Compare::Equ => a == b || unordered,
        Compare::Neu => a != b,
        Compare::Ltu => a < b || unordered,
        Compare::Leu => a <= b || unordered,
        Compare::Gtu => a > b || unordered,
        Compare::Geu => a >= b || unordered,
        Compare::Num => !unordered,
        Compare::Nan => unordered,
    }
}

/// Sign- or zero-extends the low bits of a value of the type.
pub(super) fn extend(ty: Type, bits: u64) -> u64 {
    let unused = 64 - 8 * ty.n_bytes().min(8);
    if ty.is_signed() {
        ((bits << unused) as i64 >> unused) as u64
    } else {
        bits << unused >> unused
    }
}

/// Converts one value.
fn convert(conversion: Conversion, bits: u64) -> u64 {
    let Conversion { to, from, .. } = conversion;
    match (to.is_float(), from.is_float()) {
        (false, false) => integer_to_integer(conversion, bits),
        (true, false) => integer_to_float(conversion, bits),
        (false, true) => float_to_integer(conversion, float_value(conversion, bits)),
        (true, true) => float_to_float(conversion, bits),
    }
}

fn integer_to_integer(conversion: Conversion, bits: u64) -> u64 {
    let Conversion { to, from, saturate, .. } = conversion;
    let value = extend(from, bits);
    if saturate {
        let wide = if from.is_signed() { i128::from(value as i64) } else { i128::from(value) };
        return clamp_integer(to, wide);
    }
    extend(to, value)
}

/// The nearest value that the type has, in 64 bits.
fn clamp_integer(ty: Type, value: i128) -> u64 {
    let n_bits = ty.n_bytes() * 8;
    let (low, high) = if ty.is_signed() {
        (-(1i128 << (n_bits - 1)), (1i128 << (n_bits - 1)) - 1)
    } else {
        (0, (1i128 << n_bits) - 1)
    };
    value.clamp(low, high) as u64
}

fn integer_to_float(conversion: Conversion, bits: u64) -> u64 {
    let Conversion { to, from, rounding, .. } = conversion;
    let value = extend(from, bits);
    let negative = from.is_signed() && (value as i64) < 0;
    let magnitude = if negative { value.wrapping_neg() } else { value };
    match to {
        Type::F64 => {
            let high = magnitude as f64;
            let low = (i128::from(magnitude) - high as i128) as f64;
            let sign = if negative { -1.0 } else { 1.0 };
            direct_f64(sign * high, sign * low, rounding).to_bits()
        }
        _ => float_bits(conversion, integer_to_odd(magnitude, negative)),
    }
}

/// The operand of a conversion from a floating-point type.
fn float_value(conversion: Conversion, bits: u64) -> f64 {
    match conversion.from {
        Type::F64 => f64::from_bits(bits),
        Type::F32 => {
            let value = f32::from_bits(bits as u32);
            f64::from(if conversion.ftz { flush(value) } else { value })
        }
        from => f64::from(from_half(bits as u16, from == Type::Bf16)),
    }
}

fn float_to_integer(conversion: Conversion, value: f64) -> u64 {
    let Conversion { to, from, rounding, .. } = conversion;
    if value.is_nan() {
        // PTX ISA, `cvt`: zero, unless a 64-bit type takes part.
        let wide = from == Type::F64 || to.n_bytes() == 8;
        return if wide { 1 << (to.n_bytes() * 8 - 1) } else { 0 };
    }
    // Out-of-range values clamp with or without `.sat`.
    clamp_integer(to, to_integral(value, rounding) as i128)
}

fn float_to_float(conversion: Conversion, bits: u64) -> u64 {
    let mut value = float_value(conversion, bits);
    if conversion.integral {
        value = to_integral(value, conversion.rounding);
    }
    float_bits(conversion, value)
}

/// Rounds to the result type and applies the modifiers.
fn float_bits(conversion: Conversion, value: f64) -> u64 {
    let mut value = value;
    if conversion.saturate {
        value = if value > 0.0 { value.min(1.0) } else { 0.0 };
    }
    if conversion.relu && value <= 0.0 {
        value = 0.0;
    }
    match conversion.to {
        Type::F64 if value.is_nan() => super::rounding::NAN64.to_bits(),
        Type::F64 => value.to_bits(),
        Type::F32 => {
            let rounded = to_f32(value, conversion.rounding);
            u64::from((if conversion.ftz { flush(rounded) } else { rounded }).to_bits())
        }
        to => u64::from(to_half(value, to == Type::Bf16, conversion.rounding)),
    }
}
