//! Integer, logic, shift and bit-field instructions.

use super::super::program::{
    AnySrc, BoolOp, CountOp, IntOp1, IntOp2, IntOp3, IntType, Op, Slot, Src,
};
use super::registers::{LANES, Lane, Row, row_of};

/// Integer arithmetic that the instructions need beyond Rust's operators.
pub(super) trait Integer: Lane + Ord {
    fn neg(self) -> Self;
    fn absolute(self) -> Self;
    fn not(self) -> Self;
    fn cnot(self) -> Self;
    fn reverse(self) -> Self;
    fn add(self, other: Self) -> Self;
    fn add_saturating(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn sub_saturating(self, other: Self) -> Self;
    fn mul_low(self, other: Self) -> Self;
    fn mul_high(self, other: Self) -> Self;
    fn div(self, other: Self) -> Self;
    fn rem(self, other: Self) -> Self;
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    fn shl(self, amount: u32) -> Self;
    fn shr(self, amount: u32) -> Self;
    fn distance(self, other: Self) -> Self;
    fn bit_field(self, position: u32, length: u32) -> Self;
    fn low24(self) -> Self;
}

macro_rules! integer {
    ($($ty:ty, $unsigned:ty, $double:ty;)*) => {
        $(impl Integer for $ty {
            #[inline(always)]
            fn neg(self) -> $ty {
                self.wrapping_neg()
            }
            #[inline(always)]
            fn absolute(self) -> $ty {
                #[allow(unused_comparisons)]
                if self < 0 { self.wrapping_neg() } else { self }
            }
            #[inline(always)]
            fn not(self) -> $ty {
                !self
            }
            #[inline(always)]
            fn cnot(self) -> $ty {
                <$ty>::from(self == 0)
            }
            #[inline(always)]
            fn reverse(self) -> $ty {
                self.reverse_bits()
            }
            #[inline(always)]
            fn add(self, other: $ty) -> $ty {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn add_saturating(self, other: $ty) -> $ty {
                self.saturating_add(other)
            }
            #[inline(always)]
            fn sub(self, other: $ty) -> $ty {
                self.wrapping_sub(other)
            }
            #[inline(always)]
            fn sub_saturating(self, other: $ty) -> $ty {
                self.saturating_sub(other)
            }
            #[inline(always)]
            fn mul_low(self, other: $ty) -> $ty {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn mul_high(self, other: $ty) -> $ty {
                ((self as $double).wrapping_mul(other as $double) >> <$ty>::BITS) as $ty
            }
            // Division by zero has no defined result; all ones and the dividend are what
            // the hardware's routines give.
            #[inline(always)]
            fn div(self, other: $ty) -> $ty {
                if other == 0 { !0 } else { self.wrapping_div(other) }
            }
            #[inline(always)]
            fn rem(self, other: $ty) -> $ty {
                if other == 0 { self } else { self.wrapping_rem(other) }
            }
            #[inline(always)]
            fn and(self, other: $ty) -> $ty {
                self & other
            }
            #[inline(always)]
            fn or(self, other: $ty) -> $ty {
                self | other
            }
            #[inline(always)]
            fn xor(self, other: $ty) -> $ty {
                self ^ other
            }
            // Amounts past the width are clamped to it.
            #[inline(always)]
            fn shl(self, amount: u32) -> $ty {
                if amount >= <$ty>::BITS { 0 } else { self << amount }
            }
            #[inline(always)]
            fn shr(self, amount: u32) -> $ty {
                if amount >= <$ty>::BITS {
                    #[allow(unused_comparisons)]
                    if self < 0 { !0 } else { 0 }
                } else {
                    self >> amount
                }
            }
            #[inline(always)]
            fn distance(self, other: $ty) -> $ty {
                self.abs_diff(other) as $ty
            }
            // PTX ISA, `bfe`: bits past the top repeat the sign bit of the field.
            #[inline(always)]
            fn bit_field(self, position: u32, length: u32) -> $ty {
                let (position, length) = (position & 0xff, length & 0xff);
                if length == 0 {
                    return 0;
                }
                let shifted = self.shr(position);
                if length >= <$ty>::BITS {
                    return shifted;
                }
                let unused = <$ty>::BITS - length;
                shifted << unused >> unused
            }
            #[inline(always)]
            fn low24(self) -> $ty {
                // Only the 32-bit forms exist.
                if <$ty>::BITS == 32 { self << 8 >> 8 } else { self }
            }
        })*
    };
}

integer! {
    u16, u16, u32;
    i16, u16, i32;
    u32, u32, u64;
    i32, u32, i64;
    u64, u64, u128;
    i64, u64, i128;
}

/// Calls a generic method with the Rust type of an [`IntType`].
macro_rules! with_int {
    ($ty:expr, $row:ident . $method:ident ( $($arg:expr),* )) => {
        match $ty {
            IntType::U16 => $row.$method::<u16>($($arg),*),
            IntType::S16 => $row.$method::<i16>($($arg),*),
            IntType::U32 => $row.$method::<u32>($($arg),*),
            IntType::S32 => $row.$method::<i32>($($arg),*),
            IntType::U64 => $row.$method::<u64>($($arg),*),
            IntType::S64 => $row.$method::<i64>($($arg),*),
        }
    };
}

impl Row<'_> {
    /// Runs an integer instruction.
    #[inline]
    pub(super) fn integer(&mut self, op: &Op, carry: &mut u32) {
        match *op {
            Op::Int2 { op, ty, dst, a, b } => with_int!(ty, self.int2(op, dst, a, b)),
            Op::Int1 { op, ty, dst, a } => with_int!(ty, self.int1(op, dst, a)),
            Op::Int3 { op, ty, dst, a, b, c } => with_int!(ty, self.int3(op, dst, (a, b, c))),
            Op::MulWide { ty, dst, a, b } => self.mul_wide(ty, dst, a, b),
            Op::MadWide { ty, dst, a, b, c } => self.mad_wide(ty, dst, (a, b, c)),
            Op::Carry { subtract, carry_in, carry_out, wide, dst, a, b } => {
                let incoming = if carry_in { *carry } else { 0 };
                let outgoing = if wide {
                    self.carry64(subtract, incoming, dst, a, b)
                } else {
                    self.carry32(subtract, incoming, dst, a, b)
                };
                if carry_out {
                    *carry = (*carry & !self.mask) | (outgoing & self.mask);
                }
            }
            Op::Count { op, ty, dst, a } => self.count(op, ty, dst, a),
            _ => self.bit_fields(op),
        }
    }

    #[inline]
    fn int1<T: Integer>(&mut self, op: IntOp1, dst: Slot, a: Src) {
        match op {
            IntOp1::Neg => self.map1(dst, a, T::neg),
            IntOp1::Abs => self.map1(dst, a, T::absolute),
            IntOp1::Not => self.map1(dst, a, T::not),
            IntOp1::Cnot => self.map1(dst, a, T::cnot),
            IntOp1::Brev => self.map1(dst, a, T::reverse),
        }
    }

    #[inline]
    fn int2<T: Integer>(&mut self, op: IntOp2, dst: Slot, a: Src, b: Src) {
        match op {
            IntOp2::Add => self.map2(dst, a, b, T::add),
            IntOp2::Sub => self.map2(dst, a, b, T::sub),
            IntOp2::AddSat => self.map2(dst, a, b, T::add_saturating),
            IntOp2::SubSat => self.map2(dst, a, b, T::sub_saturating),
            IntOp2::MulLo => self.map2(dst, a, b, T::mul_low),
            IntOp2::MulHi => self.map2(dst, a, b, T::mul_high),
            IntOp2::Div => self.map2(dst, a, b, T::div),
            IntOp2::Rem => self.map2(dst, a, b, T::rem),
            IntOp2::Min => self.map2::<T, T, T>(dst, a, b, Ord::min),
            IntOp2::Max => self.map2::<T, T, T>(dst, a, b, Ord::max),
            IntOp2::MinRelu => self.map2(dst, a, b, |a: i32, b: i32| a.min(b).max(0)),
            IntOp2::MaxRelu => self.map2(dst, a, b, |a: i32, b: i32| a.max(b).max(0)),
            IntOp2::And => self.map2(dst, a, b, T::and),
            IntOp2::Or => self.map2(dst, a, b, T::or),
            IntOp2::Xor => self.map2(dst, a, b, T::xor),
            IntOp2::Shl => self.map2(dst, a, b, T::shl),
            IntOp2::Shr => self.map2(dst, a, b, T::shr),
            IntOp2::Mul24 => {
                self.map2(dst, a, b, |a: T, b: T| a.low24().mul_low(b.low24()));
            }
        }
    }

    fn int3<T: Integer>(&mut self, op: IntOp3, dst: Slot, abc: (Src, Src, Src)) {
        match op {
            IntOp3::MadLo => self.map3(dst, abc, |a: T, b: T, c: T| a.mul_low(b).add(c)),
            IntOp3::MadHi => self.map3(dst, abc, |a: T, b: T, c: T| a.mul_high(b).add(c)),
            IntOp3::Sad => self.map3(dst, abc, |a: T, b: T, c: T| a.distance(b).add(c)),
            IntOp3::Bfe => self.map3(dst, abc, T::bit_field),
        }
    }

    #[inline]
    fn mul_wide(&mut self, ty: IntType, dst: Slot, a: Src, b: Src) {
        match ty {
            IntType::U16 => self.map2(dst, a, b, |a: u16, b: u16| u32::from(a) * u32::from(b)),
            IntType::S16 => self.map2(dst, a, b, |a: i16, b: i16| i32::from(a) * i32::from(b)),
            IntType::S32 => self.map2(dst, a, b, |a: i32, b: i32| i64::from(a) * i64::from(b)),
            _ => self.map2(dst, a, b, |a: u32, b: u32| u64::from(a) * u64::from(b)),
        }
    }

    fn mad_wide(&mut self, ty: IntType, dst: Slot, abc: (Src, Src, Src)) {
        match ty {
            IntType::U16 => self.map3(dst, abc, |a: u16, b: u16, c: u32| {
                (u32::from(a) * u32::from(b)).wrapping_add(c)
            }),
            IntType::S16 => self.map3(dst, abc, |a: i16, b: i16, c: i32| {
                (i32::from(a) * i32::from(b)).wrapping_add(c)
            }),
            IntType::S32 => self.map3(dst, abc, |a: i32, b: i32, c: i64| {
                (i64::from(a) * i64::from(b)).wrapping_add(c)
            }),
            _ => self.map3(dst, abc, |a: u32, b: u32, c: u64| {
                (u64::from(a) * u64::from(b)).wrapping_add(c)
            }),
        }
    }

    fn carry32(&mut self, subtract: bool, carry: u32, dst: Slot, a: Src, b: Src) -> u32 {
        let (a, b) = (self.get::<u32>(a), self.get::<u32>(b));
        let mut outgoing = 0;
        let sums = row_of::<u32>(|lane| {
            let (sum, over) = if subtract {
                a[lane].borrowing_sub_flag(b[lane], carry >> lane & 1 != 0)
            } else {
                a[lane].carrying_add_flag(b[lane], carry >> lane & 1 != 0)
            };
            outgoing |= u32::from(over) << lane;
            sum
        });
        self.put(dst, sums);
        outgoing
    }

    fn carry64(&mut self, subtract: bool, carry: u32, dst: Slot, a: Src, b: Src) -> u32 {
        let (a, b) = (self.get::<u64>(a), self.get::<u64>(b));
        let mut outgoing = 0;
        let sums = row_of::<u64>(|lane| {
            let (sum, over) = if subtract {
                a[lane].borrowing_sub_flag(b[lane], carry >> lane & 1 != 0)
            } else {
                a[lane].carrying_add_flag(b[lane], carry >> lane & 1 != 0)
            };
            outgoing |= u32::from(over) << lane;
            sum
        });
        self.put(dst, sums);
        outgoing
    }

    fn count(&mut self, op: CountOp, ty: IntType, dst: Slot, a: Src) {
        // `bfind` of a negative signed value looks for the highest zero.
        let top32 = |v: u32| 31u32.wrapping_sub(v.leading_zeros());
        let top64 = |v: u64| 63u32.wrapping_sub(v.leading_zeros());
        let shift = |top: u32, n: u32| if top == u32::MAX { top } else { n - 1 - top };
        let plain32 = |v: i32| (v ^ (v >> 31)) as u32;
        let plain64 = |v: i64| (v ^ (v >> 63)) as u64;
        match (op, ty) {
            (CountOp::Popc, IntType::U64 | IntType::S64) => self.map1(dst, a, u64::count_ones),
            (CountOp::Popc, _) => self.map1(dst, a, u32::count_ones),
            (CountOp::Clz, IntType::U64 | IntType::S64) => self.map1(dst, a, u64::leading_zeros),
            (CountOp::Clz, _) => self.map1(dst, a, u32::leading_zeros),
            (CountOp::Bfind, IntType::U64) => self.map1(dst, a, top64),
            (CountOp::Bfind, IntType::S64) => self.map1(dst, a, |v: i64| top64(plain64(v))),
            (CountOp::Bfind, IntType::S32) => self.map1(dst, a, |v: i32| top32(plain32(v))),
            (CountOp::Bfind, _) => self.map1(dst, a, top32),
            (CountOp::BfindShift, IntType::U64) => {
                self.map1(dst, a, |v: u64| shift(top64(v), 64));
            }
            (CountOp::BfindShift, IntType::S64) => {
                self.map1(dst, a, |v: i64| shift(top64(plain64(v)), 64));
            }
            (CountOp::BfindShift, IntType::S32) => {
                self.map1(dst, a, |v: i32| shift(top32(plain32(v)), 32));
            }
            (CountOp::BfindShift, _) => self.map1(dst, a, |v: u32| shift(top32(v), 32)),
        }
    }

    fn bit_fields(&mut self, op: &Op) {
        match *op {
            Op::Prmt { mode, dst, a, b, c } => {
                self.map3(dst, (a, b, c), |a: u32, b: u32, c: u32| permute(mode, a, b, c));
            }
            Op::Shf { left, wrap, dst, a, b, c } => {
                self.map3(dst, (a, b, c), |low: u32, high: u32, amount: u32| {
                    let amount = if wrap { amount & 31 } else { amount.min(32) };
                    let both = u64::from(high) << 32 | u64::from(low);
                    if left { (both << amount >> 32) as u32 } else { (both >> amount) as u32 }
                });
            }
            Op::IntPair { op, signed, relu, dst, a, b } => {
                self.map2(dst, a, b, |a: u32, b: u32| pair(op, signed, relu, a, b));
            }
            Op::Lop3 { table, dst, a, b, c } => {
                self.map3(dst, (a, b, c), |a: u32, b: u32, c: u32| lop3(table, a, b, c));
            }
            Op::Dp4a { signed_a, signed_b, dst, a, b, c } => {
                self.map3(dst, (a, b, c), |a: u32, b: u32, c: u32| {
                    (0..4).fold(c, |sum, i| {
                        let product = byte(a, i, signed_a).wrapping_mul(byte(b, i, signed_b));
                        sum.wrapping_add(product)
                    })
                });
            }
            Op::Dp2a { signed_a, signed_b, high, dst, a, b, c } => {
                self.map3(dst, (a, b, c), |a: u32, b: u32, c: u32| {
                    (0..2).fold(c, |sum, i| {
                        let half = (a >> (16 * i)) as u16;
                        let half = if signed_a { half as i16 as u32 } else { u32::from(half) };
                        let other = byte(b, i + 2 * u32::from(high), signed_b);
                        sum.wrapping_add(half.wrapping_mul(other))
                    })
                });
            }
            Op::Bmsk { wrap, dst, a, b } => self.map2(dst, a, b, |position: u32, width: u32| {
                let (position, width) = if wrap {
                    (position & 31, width & 31)
                } else {
                    (position.min(32), width.min(32))
                };
                (((1u64 << width) - 1) << position) as u32
            }),
            Op::Szext { signed, wrap, dst, a, b } => {
                self.map2(dst, a, b, |value: u32, n_bits: u32| {
                    let n_bits = if wrap { n_bits & 31 } else { n_bits.min(32) };
                    match n_bits {
                        0 => 0,
                        _ if signed => ((value << (32 - n_bits)) as i32 >> (32 - n_bits)) as u32,
                        _ => value << (32 - n_bits) >> (32 - n_bits),
                    }
                });
            }
            _ => {}
        }
    }

    /// `bfi`: the low bits of the first part go into the second at a position.
    pub(super) fn bfi(&mut self, wide: bool, dst: Slot, parts: &[AnySrc]) {
        let values: Vec<[u64; LANES]> =
            parts.iter().map(|&part| self.registers.any(self.constants, part)).collect();
        let n_bits = if wide { 64 } else { 32 };
        let results: [u64; LANES] = row_of(|lane| {
            let (field, base) = (values[0][lane], values[1][lane]);
            let (position, length) = (values[2][lane] & 0xff, values[3][lane] & 0xff);
            if length == 0 || position >= n_bits {
                return base;
            }
            let length = length.min(n_bits - position);
            let ones = if length >= 64 { u64::MAX } else { (1 << length) - 1 };
            (base & !(ones << position)) | ((field & ones) << position)
        });
        if wide {
            self.put(dst, results);
        } else {
            self.put(dst, row_of(|lane| results[lane] as u32));
        }
    }
}

/// Combines two masks of lanes.
pub(super) fn combine(op: BoolOp, a: u32, b: u32) -> u32 {
    match op {
        BoolOp::And => a & b,
        BoolOp::Or => a | b,
        BoolOp::Xor => a ^ b,
    }
}

trait CarryFlag: Sized {
    fn carrying_add_flag(self, other: Self, carry: bool) -> (Self, bool);
    fn borrowing_sub_flag(self, other: Self, borrow: bool) -> (Self, bool);
}

macro_rules! carry_flag {
    ($($ty:ty)*) => {
        $(impl CarryFlag for $ty {
            fn carrying_add_flag(self, other: $ty, carry: bool) -> ($ty, bool) {
                let (sum, first) = self.overflowing_add(other);
                let (sum, second) = sum.overflowing_add(<$ty>::from(carry));
                (sum, first || second)
            }
            fn borrowing_sub_flag(self, other: $ty, borrow: bool) -> ($ty, bool) {
                let (difference, first) = self.overflowing_sub(other);
                let (difference, second) = difference.overflowing_sub(<$ty>::from(borrow));
                (difference, first || second)
            }
        })*
    };
}

carry_flag! { u32 u64 }

fn byte(word: u32, index: u32, signed: bool) -> u32 {
    let byte = (word >> (8 * index)) as u8;
    if signed { byte as i8 as u32 } else { u32::from(byte) }
}

/// An operation on the lower and on the upper halves.
fn pair(op: IntOp2, signed: bool, relu: bool, a: u32, b: u32) -> u32 {
    let half = |a: u16, b: u16| match (op, signed) {
        (IntOp2::Min, true) => (a as i16).min(b as i16) as u16,
        (IntOp2::Max, true) => (a as i16).max(b as i16) as u16,
        (IntOp2::Min, false) => a.min(b),
        (IntOp2::Max, false) => a.max(b),
        _ => a.wrapping_add(b),
    };
    let clamp = |value: u16| if relu && (value as i16) < 0 { 0 } else { value };
    let (low, high) = (half(a as u16, b as u16), half((a >> 16) as u16, (b >> 16) as u16));
    u32::from(clamp(high)) << 16 | u32::from(clamp(low))
}

fn lop3(table: u8, a: u32, b: u32, c: u32) -> u32 {
    (0..8).filter(|row| table >> row & 1 != 0).fold(0, |result, row| {
        let pick = |word: u32, bit: u32| if row >> bit & 1 != 0 { word } else { !word };
        result | (pick(a, 2) & pick(b, 1) & pick(c, 0))
    })
}

/// `prmt` (PTX ISA section 9.7.8.7): mode 0 is the generic one, then f4e, b4e, rc8, ecl, ecr, rc16.
fn permute(mode: u8, a: u32, b: u32, c: u32) -> u32 {
    let bytes = u64::from(b) << 32 | u64::from(a);
    let pick = |index: u32| (bytes >> (8 * (index & 7))) as u8;
    let s = c & 3;
    let selector = |position: u32| match mode {
        1 => s + position,
        2 => s.wrapping_sub(position) & 7,
        3 => s,
        4 => position.max(s),
        5 => position.min(s),
        6 => (s & 1) * 2 + (position & 1),
        _ => c >> (4 * position) & 7,
    };
    (0..4).fold(0, |word, position| {
        let mut value = pick(selector(position));
        if mode == 0 && c >> (4 * position + 3) & 1 != 0 {
            value = (value as i8 >> 7) as u8;
        }
        word | u32::from(value) << (8 * position)
    })
}
