//! Global and constant memory: the allocation of an access, bounds, and what has been written.

use super::super::detect::Writer;
use super::super::memory::{Allocation, Cell, outside};
use super::super::parse::Type;
use super::super::program::{Access, Dst, List, Order};
use super::block::BlockMemory;
use super::convert::extend;
use super::memory::{Kind, each_lane};
use super::registers::{LANES, row_of};
use super::warp::Warp;
use super::{Launch, Trouble, lanes};
use crate::error::FaultKind;

/// Where an access goes: an allocation and the offset in it of each lane.
pub(super) struct Place<'a> {
    /// Index in the launch's allocations.
    pub(super) index: usize,
    /// The allocation.
    pub(super) allocation: &'a Allocation,
    /// Offsets; lanes that take no part have that of one that does.
    pub(super) offsets: [u64; LANES],
}

impl Warp {
    pub(super) fn load_global(
        &mut self,
        access: Access,
        to: List,
        addresses: &[u64; LANES],
        mask: u32,
        memory: &mut BlockMemory,
        launch: &Launch<'_>,
    ) -> Result<(), Box<Trouble>> {
        let n_bytes = access.ty.n_bytes() * to.count;
        let Some(place) = locate(access.site, addresses, n_bytes, memory, launch) else {
            if mask.count_ones() == 1 {
                return Err(out_of_bounds(addresses, mask, n_bytes, Kind::Read, launch));
            }
            return each_lane(addresses, mask, |addresses, mask| {
                self.load_global(access, to, addresses, mask, memory, launch)
            });
        };
        if launch.options.uninitialised {
            check_written(&place, mask, n_bytes)?;
        }
        if access.order == Order::Strong {
            std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        }
        let (allocation, offsets) = (place.allocation, &place.offsets);
        let size = u64::from(access.ty.n_bytes());
        for (i, &dst) in launch.program.results(to).iter().enumerate() {
            let skip = i as u64 * size;
            match (size, dst) {
                (_, Dst::Sink) => {}
                (4, Dst::Word(slot)) => {
                    let row = row_of(|lane| u32::load(allocation, offsets[lane] + skip));
                    self.registers.set_words(slot, mask, &row);
                }
                _ => {
                    let row = row_of(|lane| load_cell(allocation, offsets[lane] + skip, access.ty));
                    self.registers.set_any(dst, mask, &row);
                }
            }
        }
        Ok(())
    }

    pub(super) fn store_global(
        &mut self,
        access: Access,
        from: List,
        addresses: &[u64; LANES],
        mask: u32,
        memory: &mut BlockMemory,
        launch: &Launch<'_>,
    ) -> Result<(), Box<Trouble>> {
        let n_bytes = access.ty.n_bytes() * from.count;
        let Some(place) = locate(access.site, addresses, n_bytes, memory, launch) else {
            if mask.count_ones() == 1 {
                return Err(out_of_bounds(addresses, mask, n_bytes, Kind::Write, launch));
            }
            return each_lane(addresses, mask, |addresses, mask| {
                self.store_global(access, from, addresses, mask, memory, launch)
            });
        };
        let (allocation, offsets) = (place.allocation, &place.offsets);
        if allocation.read_only {
            let lane = mask.trailing_zeros();
            let detail = "a constant variable cannot be written";
            return Err(Trouble::new(FaultKind::OutOfBounds, lane, detail));
        }
        let size = u64::from(access.ty.n_bytes());
        for (i, &src) in launch.program.sources(from).iter().enumerate() {
            let skip = i as u64 * size;
            let values = self.registers.any(&launch.program.constants, src);
            for lane in lanes(mask) {
                let lane = lane as usize;
                store_cell(allocation, offsets[lane] + skip, access.ty, values[lane]);
            }
        }
        if access.order == Order::Strong {
            std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        }
        self.note_written(&place, mask, n_bytes);
        if launch.options.block_races && access.order == Order::Weak {
            self.note_writers(&place, mask, n_bytes, memory.linear, launch);
        }
        Ok(())
    }

    fn note_written(&self, place: &Place<'_>, mask: u32, n_bytes: u32) {
        let size = u64::from(n_bytes);
        if mask == u32::MAX && is_contiguous(&place.offsets, size) {
            place.allocation.mark_written(place.offsets[0], size * LANES as u64);
        } else {
            for lane in lanes(mask) {
                place.allocation.mark_written(place.offsets[lane as usize], size);
            }
        }
    }

    fn note_writers(
        &self,
        place: &Place<'_>,
        mask: u32,
        n_bytes: u32,
        block: u32,
        launch: &Launch<'_>,
    ) {
        for lane in lanes(mask) {
            let writer = Writer { block, pc: self.pc, thread: self.index * 32 + lane };
            let offset = place.offsets[lane as usize];
            launch.races.note(place.index, place.allocation, offset, n_bytes, writer);
        }
    }
}

/// The allocation that holds the accesses of all lanes, if one does.
#[inline]
pub(super) fn locate<'l>(
    site: u32,
    addresses: &[u64; LANES],
    n_bytes: u32,
    memory: &mut BlockMemory,
    launch: &'l Launch<'_>,
) -> Option<Place<'l>> {
    let least = addresses.iter().fold(u64::MAX, |least, &address| least.min(address));
    let most = addresses.iter().fold(0, |most, &address| most.max(address));
    let n_bytes = (most - least).checked_add(u64::from(n_bytes))?;
    let allocations = &launch.allocations;
    let cached = &mut memory.site_allocations[site as usize];
    let mut index = *cached as usize;
    if !allocations.get(index).is_some_and(|allocation| allocation.contains(least, n_bytes)) {
        index =
            allocations.partition_point(|allocation| allocation.base <= least).checked_sub(1)?;
        if !allocations[index].contains(least, n_bytes) {
            return None;
        }
        *cached = index as u32;
    }
    let allocation = &*allocations[index];
    Some(Place { index, allocation, offsets: row_of(|lane| addresses[lane] - allocation.base) })
}

#[cold]
pub(super) fn out_of_bounds(
    addresses: &[u64; LANES],
    mask: u32,
    n_bytes: u32,
    kind: Kind,
    launch: &Launch<'_>,
) -> Box<Trouble> {
    let lane = mask.trailing_zeros();
    let address = addresses[lane as usize];
    let before = launch.allocations.partition_point(|allocation| allocation.base <= address);
    let nearest = before.checked_sub(1).map(|index| &*launch.allocations[index]);
    let verb = if kind == Kind::Read { "reads" } else { "writes" };
    let detail = format!("{verb} {n_bytes} bytes at {address:#x}; {}", outside(address, nearest));
    Trouble::new(FaultKind::OutOfBounds, lane, detail)
}

/// Faults if a lane reads bytes that nothing has written.
#[inline]
pub(super) fn check_written(
    place: &Place<'_>,
    mask: u32,
    n_bytes: u32,
) -> Result<(), Box<Trouble>> {
    let (allocation, size) = (place.allocation, u64::from(n_bytes));
    if is_contiguous(&place.offsets, size)
        && allocation.first_unwritten(place.offsets[0], size * LANES as u64).is_none()
    {
        return Ok(());
    }
    for lane in lanes(mask) {
        if let Some(byte) = allocation.first_unwritten(place.offsets[lane as usize], size) {
            let detail = format!(
                "byte {byte} of the allocation at {:#x} ({} bytes) has not been written",
                allocation.base, allocation.n_bytes
            );
            return Err(Trouble::new(FaultKind::Uninitialised, lane, detail));
        }
    }
    Ok(())
}

/// Whether each lane's bytes follow those of the lane before.
#[inline]
fn is_contiguous(offsets: &[u64; LANES], size: u64) -> bool {
    (0..LANES)
        .fold(true, |so_far, lane| so_far & (offsets[lane] == offsets[0] + lane as u64 * size))
}

fn load_cell(allocation: &Allocation, offset: u64, ty: Type) -> u64 {
    let bits = match ty.n_bytes() {
        1 => u64::from(u8::load(allocation, offset)),
        2 => u64::from(u16::load(allocation, offset)),
        4 => u64::from(u32::load(allocation, offset)),
        _ => u64::load(allocation, offset),
    };
    extend(ty, bits)
}

#[inline(always)]
fn store_cell(allocation: &Allocation, offset: u64, ty: Type, value: u64) {
    match ty.n_bytes() {
        1 => u8::store(allocation, offset, value as u8),
        2 => u16::store(allocation, offset, value as u16),
        4 => u32::store(allocation, offset, value as u32),
        _ => u64::store(allocation, offset, value),
    }
}
