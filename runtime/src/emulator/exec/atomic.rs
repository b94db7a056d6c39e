//! Atomic read-modify-write instructions (PTX ISA section 9.7.13.5).

use super::super::memory::Cell;
use super::super::parse::{Space, Type};
use super::super::program::{Access, AtomicOp, Dst, Op};
use super::block::BlockMemory;
use super::global::{check_written, locate, out_of_bounds};
use super::memory::{Kind, check_alignment, each_lane, for_each_space, read_value};
use super::registers::LANES;
use super::rounding::{add_to_odd, from_half, to_f32, to_half};
use super::shared::shared_trouble;
use super::warp::Warp;
use super::{Launch, Trouble, lanes};
use crate::emulator::program::Rounding;
use crate::error::FaultKind;

/// An atomic operation with its operands.
struct Atomic {
    access: Access,
    op: AtomicOp,
    dst: Dst,
    b: [u64; LANES],
    c: [u64; LANES],
}

impl Warp {
    /// Runs `atom` or `red`: lane after lane, as the hardware does in no particular order.
    pub(super) fn atomic(
        &mut self,
        op: &Op,
        mask: u32,
        memory: &mut BlockMemory,
        launch: &Launch<'_>,
    ) -> Result<(), Box<Trouble>> {
        let Op::Atomic { access, op, dst, b, c } = *op else { return Ok(()) };
        let constants = &launch.program.constants;
        let b = self.registers.any(constants, b);
        let c = c.map_or([0; LANES], |c| self.registers.any(constants, c));
        let addresses = self.addresses(access.address, mask, launch);
        check_alignment(&addresses, mask, access.ty.n_bytes())?;
        let atomic = Atomic { access, op, dst, b, c };
        for_each_space(access.space, &addresses, mask, launch, |space, addresses, mask| match space
        {
            Space::Shared => self.atomic_shared(&atomic, addresses, mask, memory, launch),
            Space::Global | Space::Generic => {
                self.atomic_global(&atomic, addresses, mask, memory, launch)
            }
            other => {
                let detail = format!("{} memory has no atomics", other.name());
                Err(Trouble::new(FaultKind::InvalidOperand, mask.trailing_zeros(), detail))
            }
        })
    }

    fn atomic_global(
        &mut self,
        atomic: &Atomic,
        addresses: &[u64; LANES],
        mask: u32,
        memory: &mut BlockMemory,
        launch: &Launch<'_>,
    ) -> Result<(), Box<Trouble>> {
        let n_bytes = atomic.access.ty.n_bytes();
        let Some(place) = locate(atomic.access.site, addresses, n_bytes, memory, launch) else {
            if mask.count_ones() == 1 {
                return Err(out_of_bounds(addresses, mask, n_bytes, Kind::Write, launch));
            }
            return each_lane(addresses, mask, |addresses, mask| {
                self.atomic_global(atomic, addresses, mask, memory, launch)
            });
        };
        if launch.options.uninitialised && atomic.op != AtomicOp::Exch {
            check_written(&place, mask, n_bytes)?;
        }
        let allocation = place.allocation;
        if allocation.read_only {
            let lane = mask.trailing_zeros();
            let detail = "a constant variable cannot be written";
            return Err(Trouble::new(FaultKind::OutOfBounds, lane, detail));
        }
        let mut olds = [0; LANES];
        for lane in lanes(mask) {
            let lane = lane as usize;
            let offset = place.offsets[lane];
            let f = |old: u64| atomic.combine(old, lane);
            olds[lane] = match n_bytes {
                2 => u64::from(u16::update(allocation, offset, |old| f(u64::from(old)) as u16)),
                4 => u64::from(u32::update(allocation, offset, |old| f(u64::from(old)) as u32)),
                _ => u64::update(allocation, offset, f),
            };
            allocation.mark_written(offset, u64::from(n_bytes));
        }
        self.registers.set_any(atomic.dst, mask, &olds);
        Ok(())
    }

    fn atomic_shared(
        &mut self,
        atomic: &Atomic,
        addresses: &[u64; LANES],
        mask: u32,
        memory: &mut BlockMemory,
        launch: &Launch<'_>,
    ) -> Result<(), Box<Trouble>> {
        let n_bytes = atomic.access.ty.n_bytes();
        let mut olds = [0; LANES];
        for lane in lanes(mask) {
            let address = addresses[lane as usize];
            let shadow = &mut memory.shadow;
            if atomic.op != AtomicOp::Exch {
                shadow
                    .check_written(address, n_bytes)
                    .map_err(|c| shared_trouble(c, lane, address, Kind::Read, launch))?;
            }
            shadow
                .write(self.index, lane, address, n_bytes, true, || false)
                .map_err(|c| shared_trouble(c, lane, address, Kind::Write, launch))?;
            let bits_type =
                [Type::B16, Type::B32, Type::B64][n_bytes.trailing_zeros() as usize - 1];
            let old = read_value(&memory.shared, address as usize, bits_type);
            let new = atomic.combine(old, lane as usize);
            let range = address as usize..address as usize + n_bytes as usize;
            memory.shared[range].copy_from_slice(&new.to_le_bytes()[..n_bytes as usize]);
            olds[lane as usize] = old;
        }
        self.registers.set_any(atomic.dst, mask, &olds);
        Ok(())
    }
}

impl Atomic {
    /// The new value for an old one.
    fn combine(&self, old: u64, lane: usize) -> u64 {
        let (b, c) = (self.b[lane], self.c[lane]);
        let ty = self.access.ty;
        let signed = |bits: u64| super::convert::extend(ty, bits) as i64;
        match self.op {
            AtomicOp::Add => add(ty, old, b),
            AtomicOp::Min if ty.is_signed() => signed(old).min(signed(b)) as u64,
            AtomicOp::Max if ty.is_signed() => signed(old).max(signed(b)) as u64,
            AtomicOp::Min => old.min(b),
            AtomicOp::Max => old.max(b),
            AtomicOp::And => old & b,
            AtomicOp::Or => old | b,
            AtomicOp::Xor => old ^ b,
            AtomicOp::Exch => b,
            AtomicOp::Cas => {
                if old == b {
                    c
                } else {
                    old
                }
            }
            AtomicOp::Inc => {
                if old >= b {
                    0
                } else {
                    old + 1
                }
            }
            AtomicOp::Dec => {
                if old == 0 || old > b {
                    b
                } else {
                    old - 1
                }
            }
        }
    }
}

fn add(ty: Type, old: u64, b: u64) -> u64 {
    let half = |old: u64, b: u64, is_bf16: bool| {
        let (old, b) = (from_half(old as u16, is_bf16), from_half(b as u16, is_bf16));
        let sum = add_to_odd(f64::from(old), f64::from(b));
        u64::from(to_half(sum, is_bf16, Rounding::Nearest))
    };
    match ty {
        Type::F32 => {
            let sum = f64::from(f32::from_bits(old as u32)) + f64::from(f32::from_bits(b as u32));
            // The double sum of two singles rounds to single as the exact one does.
            u64::from(to_f32(sum, Rounding::Nearest).to_bits())
        }
        Type::F64 => (f64::from_bits(old) + f64::from_bits(b)).to_bits(),
        Type::F16 | Type::Bf16 => half(old, b, ty == Type::Bf16),
        Type::F16x2 | Type::Bf16x2 => {
            let is_bf16 = ty == Type::Bf16x2;
            half(old >> 16, b >> 16, is_bf16) << 16 | half(old & 0xffff, b & 0xffff, is_bf16)
        }
        _ => old.wrapping_add(b),
    }
}
