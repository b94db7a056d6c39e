//! Half-precision arithmetic, scalar and packed.

use super::super::program::{FloatMode, FloatOp1, FloatOp2, HalfType, Op, Rounding, Slot, Src};
use super::approx::{self, Approximation};
use super::float::min_max;
use super::registers::Row;
use super::rounding::{NAN16, add_to_odd, from_half, to_half};

const SIGN: u16 = 1 << 15;

impl Row<'_> {
    /// Runs a half-precision instruction.
    pub(super) fn half(&mut self, op: &Op, approximation: Approximation) {
        match *op {
            Op::HalfOne { ty, op, mode, dst, a } => {
                self.half_map(ty, dst, [a, a, a], |[a, _, _]| one(ty, op, mode, a, approximation));
            }
            Op::HalfTwo { ty, op, mode, dst, a, b } => {
                self.half_map(ty, dst, [a, b, b], |[a, b, _]| two(ty, op, mode, a, b));
            }
            Op::HalfFma { ty, mode, dst, a, b, c } => {
                self.half_map(ty, dst, [a, b, c], |operands| {
                    let [a, b, c] = operands.map(|bits| value(ty, mode, bits));
                    finish(ty, mode, add_to_odd(a * b, c))
                });
            }
            Op::ConvertPair { bf16, mode, dst, a, b } => {
                let ty = HalfType { bf16, packed: true };
                self.map2(dst, a, b, |a: f32, b: f32| {
                    let high = pack_half(ty, mode, a);
                    let low = pack_half(ty, mode, b);
                    u32::from(high) << 16 | u32::from(low)
                });
            }
            _ => {}
        }
    }

    fn half_map(
        &mut self,
        ty: HalfType,
        dst: Slot,
        [a, b, c]: [Src; 3],
        f: impl Fn([u16; 3]) -> u16,
    ) {
        self.map3(dst, (a, b, c), |a: u32, b: u32, c: u32| {
            let low = f([a as u16, b as u16, c as u16]);
            let high = if ty.packed {
                f([(a >> 16) as u16, (b >> 16) as u16, (c >> 16) as u16])
            } else {
                0
            };
            u32::from(high) << 16 | u32::from(low)
        });
    }
}

fn value(ty: HalfType, mode: FloatMode, bits: u16) -> f64 {
    f64::from(from_half(flush(ty, mode, bits), ty.bf16))
}

/// A subnormal becomes a zero of its sign, if the mode says so.
fn flush(ty: HalfType, mode: FloatMode, bits: u16) -> u16 {
    let exponent = if ty.bf16 { 0x7f80 } else { 0x7c00 };
    if mode.ftz && bits & exponent == 0 { bits & SIGN } else { bits }
}

/// Rounds an exact (or to-odd) result and applies the modifiers.
fn finish(ty: HalfType, mode: FloatMode, exact: f64) -> u16 {
    let mut value = exact;
    if mode.saturate {
        value = if value > 0.0 { value.min(1.0) } else { 0.0 };
    }
    if mode.relu && value <= 0.0 {
        value = 0.0;
    }
    flush(ty, mode, to_half(value, ty.bf16, Rounding::Nearest))
}

fn pack_half(ty: HalfType, mode: FloatMode, value: f32) -> u16 {
    let value = if mode.relu && value <= 0.0 { 0.0 } else { value };
    to_half(f64::from(value), ty.bf16, mode.rounding)
}

fn one(ty: HalfType, op: FloatOp1, mode: FloatMode, a: u16, approximation: Approximation) -> u16 {
    let is_nan = from_half(a, ty.bf16).is_nan();
    match op {
        _ if is_nan => NAN16,
        FloatOp1::Neg => flush(ty, mode, a) ^ SIGN,
        FloatOp1::Abs => flush(ty, mode, a) & !SIGN,
        FloatOp1::Approx(op) => {
            let exact = approx::unary(op, value(ty, mode, a) as f32, approximation);
            finish(ty, mode, f64::from(exact))
        }
        FloatOp1::Rcp | FloatOp1::Sqrt => NAN16,
    }
}

fn two(ty: HalfType, op: FloatOp2, mode: FloatMode, a: u16, b: u16) -> u16 {
    let (x, y) = (value(ty, mode, a), value(ty, mode, b));
    match op {
        FloatOp2::Add => finish(ty, mode, add_to_odd(x, y)),
        FloatOp2::Sub => finish(ty, mode, add_to_odd(x, -y)),
        FloatOp2::Mul => finish(ty, mode, x * y),
        _ => finish(ty, mode, f64::from(min_max(op, x as f32, y as f32))),
    }
}
