//! The operations in the host's `f32`, for tests.

use super::FloatOps;

pub(super) struct Host;

impl FloatOps for Host {
    type Float = f32;
    type Int = u32;
    type Bool = bool;

    fn float(&self, value: f64) -> f32 {
        value as f32
    }

    fn int(&self, value: i64) -> u32 {
        value as u32
    }

    fn add(&self, a: f32, b: f32) -> f32 {
        a + b
    }

    fn sub(&self, a: f32, b: f32) -> f32 {
        a - b
    }

    fn mul(&self, a: f32, b: f32) -> f32 {
        a * b
    }

    fn div(&self, a: f32, b: f32) -> f32 {
        a / b
    }

    fn fma(&self, a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }

    fn neg(&self, a: f32) -> f32 {
        -a
    }

    fn abs(&self, a: f32) -> f32 {
        a.abs()
    }

    fn sqrt(&self, a: f32) -> f32 {
        a.sqrt()
    }

    fn rint(&self, a: f32) -> f32 {
        a.round_ties_even()
    }

    fn trunc(&self, a: f32) -> f32 {
        a.trunc()
    }

    fn lt(&self, a: f32, b: f32) -> bool {
        a < b
    }

    fn eq(&self, a: f32, b: f32) -> bool {
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

    fn select(&self, c: bool, then: f32, otherwise: f32) -> f32 {
        if c { then } else { otherwise }
    }

    fn select_int(&self, c: bool, then: u32, otherwise: u32) -> u32 {
        if c { then } else { otherwise }
    }

    fn bits(&self, a: f32) -> u32 {
        a.to_bits()
    }

    fn from_bits(&self, a: u32) -> f32 {
        f32::from_bits(a)
    }

    fn to_int(&self, a: f32) -> u32 {
        a as i32 as u32
    }

    fn from_int(&self, a: u32) -> f32 {
        a as i32 as f32
    }

    fn int_add(&self, a: u32, b: u32) -> u32 {
        a.wrapping_add(b)
    }

    fn int_sub(&self, a: u32, b: u32) -> u32 {
        a.wrapping_sub(b)
    }

    fn int_mul(&self, a: u32, b: u32) -> u32 {
        a.wrapping_mul(b)
    }

    fn mul_high(&self, a: u32, b: u32) -> u32 {
        ((u64::from(a) * u64::from(b)) >> 32) as u32
    }

    fn int_rem(&self, a: u32, b: u32) -> u32 {
        a % b
    }

    fn int_and(&self, a: u32, b: u32) -> u32 {
        a & b
    }

    fn int_or(&self, a: u32, b: u32) -> u32 {
        a | b
    }

    fn int_xor(&self, a: u32, b: u32) -> u32 {
        a ^ b
    }

    fn shl(&self, a: u32, count: u32) -> u32 {
        a << count
    }

    fn shr(&self, a: u32, count: u32) -> u32 {
        a >> count
    }

    fn int_eq(&self, a: u32, b: u32) -> bool {
        a == b
    }

    fn int_lt(&self, a: u32, b: u32) -> bool {
        (a as i32) < (b as i32)
    }

    fn int_below(&self, a: u32, b: u32) -> bool {
        a < b
    }

    fn unless_rare<const N: usize>(
        &self,
        condition: bool,
        usual: [u32; N],
        rare: impl FnOnce(&Self) -> [u32; N],
    ) -> [u32; N] {
        if condition { rare(self) } else { usual }
    }

    fn repeat<const N: usize>(
        &self,
        mut state: [u32; N],
        more: impl Fn(&Self, [u32; N]) -> bool,
        round: impl Fn(&Self, [u32; N]) -> [u32; N],
    ) -> [u32; N] {
        while more(self, state) {
            state = round(self, state);
        }
        state
    }
}
