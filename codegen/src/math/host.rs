//! The operations in the host's floats, for tests.

use super::{FloatOps, Width};

macro_rules! host {
    ($name:ident: $width:ident, $float:ident, $int:ident, $signed:ident, $wide:ident) => {
        pub(super) struct $name;

        impl FloatOps for $name {
            type Float = $float;
            type Int = $int;
            type Bool = bool;

            fn width(&self) -> Width {
                Width::$width
            }

            fn float(&self, value: f64) -> $float {
                value as $float
            }

            fn int(&self, value: i64) -> $int {
                value as $int
            }

            fn add(&self, a: $float, b: $float) -> $float {
                a + b
            }

            fn sub(&self, a: $float, b: $float) -> $float {
                a - b
            }

            fn mul(&self, a: $float, b: $float) -> $float {
                a * b
            }

            fn div(&self, a: $float, b: $float) -> $float {
                a / b
            }

            fn fma(&self, a: $float, b: $float, c: $float) -> $float {
                a.mul_add(b, c)
            }

            fn neg(&self, a: $float) -> $float {
                -a
            }

            fn abs(&self, a: $float) -> $float {
                a.abs()
            }

            fn sqrt(&self, a: $float) -> $float {
                a.sqrt()
            }

            fn max(&self, a: $float, b: $float) -> $float {
                if a.is_nan() || b.is_nan() {
                    return $float::NAN;
                }
                if a.total_cmp(&b).is_lt() { b } else { a }
            }

            fn min(&self, a: $float, b: $float) -> $float {
                -self.max(-a, -b)
            }

            fn inverse_near(&self, a: $float) -> $float {
                // As far off as the instruction may be, in a direction that looks random.
                let inverse = 1.0 / a;
                match a.to_bits().wrapping_mul(0x9e37_79b1) >> 16 & 1 {
                    0 => inverse.next_up(),
                    _ => inverse.next_down(),
                }
            }

            fn rint(&self, a: $float) -> $float {
                a.round_ties_even()
            }

            fn trunc(&self, a: $float) -> $float {
                a.trunc()
            }

            fn lt(&self, a: $float, b: $float) -> bool {
                a < b
            }

            fn eq(&self, a: $float, b: $float) -> bool {
                a == b
            }

            fn and(&self, a: bool, b: bool) -> bool {
                a && b
            }

            fn or(&self, a: bool, b: bool) -> bool {
                a || b
            }

            fn not(&self, a: bool) -> bool {
                !a
            }

            fn select(&self, c: bool, then: $float, otherwise: $float) -> $float {
                if c { then } else { otherwise }
            }

            fn select_int(&self, c: bool, then: $int, otherwise: $int) -> $int {
                if c { then } else { otherwise }
            }

            fn bits(&self, a: $float) -> $int {
                a.to_bits()
            }

            fn float_of_bits(&self, a: $int) -> $float {
                $float::from_bits(a)
            }

            fn to_int(&self, a: $float) -> $int {
                a as $signed as $int
            }

            fn float_of_int(&self, a: $int) -> $float {
                a as $signed as $float
            }

            fn int_add(&self, a: $int, b: $int) -> $int {
                a.wrapping_add(b)
            }

            fn int_sub(&self, a: $int, b: $int) -> $int {
                a.wrapping_sub(b)
            }

            fn int_mul(&self, a: $int, b: $int) -> $int {
                a.wrapping_mul(b)
            }

            fn mul_high(&self, a: $int, b: $int) -> $int {
                (($wide::from(a) * $wide::from(b)) >> $int::BITS) as $int
            }

            fn int_rem(&self, a: $int, b: $int) -> $int {
                a % b
            }

            fn int_and(&self, a: $int, b: $int) -> $int {
                a & b
            }

            fn int_or(&self, a: $int, b: $int) -> $int {
                a | b
            }

            fn int_xor(&self, a: $int, b: $int) -> $int {
                a ^ b
            }

            fn shl(&self, a: $int, count: $int) -> $int {
                a << count
            }

            fn shr(&self, a: $int, count: $int) -> $int {
                a >> count
            }

            fn int_eq(&self, a: $int, b: $int) -> bool {
                a == b
            }

            fn int_lt(&self, a: $int, b: $int) -> bool {
                (a as $signed) < (b as $signed)
            }

            fn int_below(&self, a: $int, b: $int) -> bool {
                a < b
            }

            fn unless_rare<const N: usize>(
                &self,
                condition: bool,
                usual: [$int; N],
                rare: impl FnOnce(&Self) -> [$int; N],
            ) -> [$int; N] {
                if condition { rare(self) } else { usual }
            }

            fn repeat<const N: usize>(
                &self,
                mut state: [$int; N],
                more: impl Fn(&Self, [$int; N]) -> bool,
                round: impl Fn(&Self, [$int; N]) -> [$int; N],
            ) -> [$int; N] {
                while more(self, state) {
                    state = round(self, state);
                }
                state
            }
        }
    };
}

host!(Host: SINGLE, f32, u32, i32, u64);
host!(Host64: DOUBLE, f64, u64, i64, u128);
