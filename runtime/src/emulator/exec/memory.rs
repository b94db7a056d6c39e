//! Loads, stores and copies, with the checks of every access.

use super::super::detect::{Conflict, Party, Writer};
use super::super::memory::{
    Allocation, Cell, LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, WINDOW_BYTES, outside,
};
use super::super::parse::{Space, Type};
use super::super::program::{Access, Address, AnySrc, Dst, List, Op, Order, Slot, Src};
use super::block::BlockMemory;
use super::convert::extend;
use super::registers::LANES;
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

/// What an access does, for messages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
}

impl Warp {
    /// Runs a load.
    pub(super) fn load(
        &mut self,
        access: Access,
        to: List,
        mask: u32,
        memory: &mut BlockMemory,
        launch: &Launch<'_>,
    ) -> Result<(), Box<Trouble>> {
        let n_bytes = access.ty.n_bytes() * to.count;
        let addresses = self.addresses(access.address, mask, launch);
        check_alignment(&addresses, mask, n_bytes)?;
        for_each_space(access.space, &addresses, mask, launch, |space, addresses, mask| match space
        {
            Space::Global | Space::Const | Space::Generic => {
                self.load_global(access, to, addresses, mask, memory, launch)
            }
            Space::Shared => self.load_shared(access, to, addresses, mask, memory, launch),
            Space::Local => self.load_local(access, to, addresses, mask, memory, launch),
            Space::Param => self.load_param(access, to, addresses, mask, launch),
        })
    }

    /// Runs a store.
    pub(super) fn store(
        &mut self,
        access: Access,
        from: List,
        mask: u32,
        memory: &mut BlockMemory,
        launch: &Launch<'_>,
    ) -> Result<(), Box<Trouble>> {
        let n_bytes = access.ty.n_bytes() * from.count;
        let addresses = self.addresses(access.address, mask, launch);
        check_alignment(&addresses, mask, n_bytes)?;
        for_each_space(access.space, &addresses, mask, launch, |space, addresses, mask| match space
        {
            Space::Shared => self.store_shared(access, from, addresses, mask, memory, launch),
            Space::Local => self.store_local(access, from, addresses, mask, memory, launch),
            Space::Param => {
                let lane = mask.trailing_zeros();
                Err(Trouble::new(FaultKind::OutOfBounds, lane, "parameters cannot be written"))
            }
            _ => self.store_global(access, from, addresses, mask, memory, launch),
        })
    }

    /// The address of each lane; lanes that take no part have that of the first one that does.
    #[inline]
    pub(super) fn addresses(
        &self,
        address: Address,
        mask: u32,
        launch: &Launch<'_>,
    ) -> [u64; LANES] {
        let base = self.registers.any(&launch.program.constants, address.base);
        let offset = i64::from(address.offset);
        let mut addresses = base.map(|base| base.wrapping_add_signed(offset));
        if mask != u32::MAX {
            let first = addresses[mask.trailing_zeros() as usize];
            for (lane, address) in addresses.iter_mut().enumerate() {
                if mask >> lane & 1 == 0 {
                    *address = first;
                }
            }
        }
        addresses
    }

    fn load_global(
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
                    let row = offsets.map(|offset| u32::load(allocation, offset + skip));
                    self.registers.set_words(slot, mask, &row);
                }
                _ => {
                    let row = offsets.map(|offset| load_cell(allocation, offset + skip, access.ty));
                    self.registers.set_any(dst, mask, &row);
                }
            }
        }
        Ok(())
    }

    fn store_global(
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

    fn load_shared(
        &mut self,
        access: Access,
        to: List,
        addresses: &[u64; LANES],
        mask: u32,
        memory: &mut BlockMemory,
        launch: &Launch<'_>,
    ) -> Result<(), Box<Trouble>> {
        let size = access.ty.n_bytes();
        let n_bytes = size * to.count;
        let strong = access.order == Order::Strong;
        let first = mask.trailing_zeros();
        let mut check = |lane: u32| {
            let address = addresses[lane as usize];
            memory
                .shadow
                .read(self.index, lane, address, n_bytes, strong)
                .map_err(|conflict| shared_trouble(conflict, lane, address, Kind::Read, launch))
        };
        check(first)?;
        if addresses.iter().any(|&address| address != addresses[first as usize]) {
            for lane in lanes(mask & (mask - 1)) {
                check(lane)?;
            }
        } else if mask & (mask - 1) != 0 {
            // One more lane is enough to note that several have read.
            check(31 - mask.leading_zeros())?;
        }
        for (i, &dst) in launch.program.results(to).iter().enumerate() {
            let skip = i * size as usize;
            match (size, dst) {
                (_, Dst::Sink) => {}
                (4, Dst::Word(slot)) => {
                    let row = addresses.map(|a| read_bytes::<4>(&memory.shared, a as usize + skip));
                    self.registers.set_words(slot, mask, &row.map(u32::from_le_bytes));
                }
                _ => {
                    let row =
                        addresses.map(|a| read_value(&memory.shared, a as usize + skip, access.ty));
                    self.registers.set_any(dst, mask, &row);
                }
            }
        }
        Ok(())
    }

    fn store_shared(
        &mut self,
        access: Access,
        from: List,
        addresses: &[u64; LANES],
        mask: u32,
        memory: &mut BlockMemory,
        launch: &Launch<'_>,
    ) -> Result<(), Box<Trouble>> {
        let size = access.ty.n_bytes() as usize;
        let n_bytes = size as u32 * from.count;
        let strong = access.order == Order::Strong;
        let mut values = [[0u64; LANES]; 8];
        let sources = launch.program.sources(from);
        for (row, &src) in values.iter_mut().zip(sources) {
            *row = self.registers.any(&launch.program.constants, src);
        }
        for lane in lanes(mask) {
            let address = addresses[lane as usize];
            let mut bytes = [0u8; 32];
            for (row, bytes) in values.iter().zip(bytes.chunks_exact_mut(size)).take(sources.len())
            {
                bytes.copy_from_slice(&row[lane as usize].to_le_bytes()[..size]);
            }
            let bytes = &bytes[..n_bytes as usize];
            let range = address as usize..address.saturating_add(u64::from(n_bytes)) as usize;
            let shared = &memory.shared;
            let same_value = || shared.get(range.clone()) == Some(bytes);
            memory
                .shadow
                .write(self.index, lane, address, n_bytes, strong, same_value)
                .map_err(|conflict| shared_trouble(conflict, lane, address, Kind::Write, launch))?;
            memory.shared[range].copy_from_slice(bytes);
        }
        Ok(())
    }

    fn local_range(
        &self,
        lane: u32,
        address: u64,
        n_bytes: u32,
        launch: &Launch<'_>,
    ) -> Result<std::ops::Range<usize>, Box<Trouble>> {
        let size = launch.program.local_bytes;
        if address + u64::from(n_bytes) > u64::from(size) {
            let detail = format!("byte {address} of {size} bytes of local memory");
            return Err(Trouble::new(FaultKind::OutOfBounds, lane, detail));
        }
        let start = (self.index * 32 + lane) as usize * size as usize + address as usize;
        Ok(start..start + n_bytes as usize)
    }

    fn load_local(
        &mut self,
        access: Access,
        to: List,
        addresses: &[u64; LANES],
        mask: u32,
        memory: &mut BlockMemory,
        launch: &Launch<'_>,
    ) -> Result<(), Box<Trouble>> {
        let n_bytes = access.ty.n_bytes() * to.count;
        let mut values = [[0u64; LANES]; 8];
        for lane in lanes(mask) {
            let range = self.local_range(lane, addresses[lane as usize], n_bytes, launch)?;
            let written = &memory.local_written[range.clone()];
            if launch.options.uninitialised && written.contains(&false) {
                let detail = format!("local memory at byte {}", addresses[lane as usize]);
                return Err(Trouble::new(FaultKind::Uninitialised, lane, detail));
            }
            for (i, row) in values.iter_mut().enumerate().take(to.count as usize) {
                let offset = range.start + i * access.ty.n_bytes() as usize;
                row[lane as usize] = read_value(&memory.local, offset, access.ty);
            }
        }
        self.set_all(to, mask, &values, launch);
        Ok(())
    }

    fn store_local(
        &mut self,
        access: Access,
        from: List,
        addresses: &[u64; LANES],
        mask: u32,
        memory: &mut BlockMemory,
        launch: &Launch<'_>,
    ) -> Result<(), Box<Trouble>> {
        let size = access.ty.n_bytes() as usize;
        for lane in lanes(mask) {
            let n_bytes = size as u32 * from.count;
            let range = self.local_range(lane, addresses[lane as usize], n_bytes, launch)?;
            memory.local_written[range.clone()].fill(true);
            let places = memory.local[range].chunks_exact_mut(size);
            for (place, &src) in places.zip(launch.program.sources(from)) {
                let value = self.registers.any(&launch.program.constants, src)[lane as usize];
                place.copy_from_slice(&value.to_le_bytes()[..size]);
            }
        }
        Ok(())
    }

    fn load_param(
        &mut self,
        access: Access,
        to: List,
        addresses: &[u64; LANES],
        mask: u32,
        launch: &Launch<'_>,
    ) -> Result<(), Box<Trouble>> {
        let n_bytes = access.ty.n_bytes() * to.count;
        let size = launch.parameters.len() as u64;
        let mut values = [[0u64; LANES]; 8];
        for lane in lanes(mask) {
            let address = addresses[lane as usize];
            let inside = launch.program.parameters.iter().any(|&(offset, length)| {
                address >= u64::from(offset)
                    && address.saturating_add(u64::from(n_bytes)) <= u64::from(offset + length)
            });
            if !inside {
                let detail = format!("byte {address} of {size} bytes of parameters");
                return Err(Trouble::new(FaultKind::OutOfBounds, lane, detail));
            }
            for (i, row) in values.iter_mut().enumerate().take(to.count as usize) {
                let offset = address as usize + i * access.ty.n_bytes() as usize;
                row[lane as usize] = read_value(&launch.parameters, offset, access.ty);
            }
        }
        self.set_all(to, mask, &values, launch);
        Ok(())
    }

    fn set_all(&mut self, to: List, mask: u32, values: &[[u64; LANES]; 8], launch: &Launch<'_>) {
        for (row, &dst) in values.iter().zip(launch.program.results(to)) {
            self.registers.set_any(dst, mask, row);
        }
    }

    /// Runs `cvta`: between the addresses of a space and generic ones.
    pub(super) fn cvta(
        &mut self,
        dst: Dst,
        a: AnySrc,
        space: Space,
        to_space: bool,
        mask: u32,
        launch: &Launch<'_>,
    ) {
        let base = window(space);
        let addresses = self.registers.any(&launch.program.constants, a);
        let results =
            addresses.map(|a| if to_space { a.wrapping_sub(base) } else { a.wrapping_add(base) });
        self.registers.set_any(dst, mask, &results);
    }

    /// Runs `isspacep`.
    pub(super) fn is_space(
        &mut self,
        space: Space,
        dst: Slot,
        a: Src,
        mask: u32,
        launch: &Launch<'_>,
    ) {
        let addresses = self.registers.wides(&launch.program.constants, a);
        let inside = (0..LANES).fold(0, |inside, lane| {
            let found = generic_space(addresses[lane]) == space;
            inside | u32::from(found) << lane
        });
        self.registers.set_predicate(dst, mask, inside);
    }

    /// Runs `cp.async`: the bytes are read now and arrive when they are waited for.
    pub(super) fn async_copy(
        &mut self,
        op: &Op,
        mask: u32,
        memory: &mut BlockMemory,
        launch: &Launch<'_>,
    ) -> Result<(), Box<Trouble>> {
        let Op::AsyncCopy { target, source, n_bytes, source_bytes, site } = *op else {
            return Ok(());
        };
        let n_bytes = u32::from(n_bytes);
        let targets = self.addresses(target, mask, launch);
        let sources = self.addresses(source, mask, launch);
        check_alignment(&targets, mask, n_bytes)?;
        check_alignment(&sources, mask, n_bytes)?;
        let wanted = match source_bytes {
            Some(src) => self.registers.words(&launch.program.constants, src),
            None => [n_bytes; LANES],
        };
        for lane in lanes(mask) {
            let index = lane as usize;
            let wanted = wanted[index];
            if wanted > n_bytes {
                let detail = format!("{wanted} source bytes for a copy of {n_bytes}");
                return Err(Trouble::new(FaultKind::InvalidOperand, lane, detail));
            }
            let mut bytes = [0; 16];
            if wanted > 0 {
                let here = [sources[index]; LANES];
                let Some(place) = locate(site, &here, wanted, memory, launch) else {
                    let lane_mask = 1 << lane;
                    return Err(out_of_bounds(&here, lane_mask, wanted, Kind::Read, launch));
                };
                if launch.options.uninitialised {
                    check_written(&place, 1 << lane, wanted)?;
                }
                place.allocation.read(place.offsets[index], &mut bytes[..wanted as usize]);
            }
            let address = targets[index];
            let trouble = |conflict| shared_trouble(conflict, lane, address, Kind::Write, launch);
            let shadow = &mut memory.shadow;
            shadow.write(self.index, lane, address, n_bytes, false, || false).map_err(trouble)?;
            shadow.start_copy(address, n_bytes).map_err(trouble)?;
            self.copies.start(lane, address, n_bytes, bytes);
        }
        Ok(())
    }

    /// Runs `cp.async.wait_group` or `wait_all`.
    pub(super) fn async_wait(
        &mut self,
        pending: u32,
        all: bool,
        mask: u32,
        memory: &mut BlockMemory,
    ) -> Result<(), Box<Trouble>> {
        let warp = self.index;
        self.copies.wait(mask, pending, all, |copy| {
            memory.shadow.end_copy(copy.address, copy.n_bytes);
            // The copy was checked when it started, and nothing may touch its bytes since.
            let _ =
                memory.shadow.write(warp, copy.lane, copy.address, copy.n_bytes, false, || true);
            let start = copy.address as usize;
            let n_bytes = copy.n_bytes as usize;
            memory.shared[start..start + n_bytes].copy_from_slice(&copy.bytes[..n_bytes]);
        });
        Ok(())
    }
}

/// The asynchronous copies of a warp that have not been waited for.
#[derive(Debug, Default)]
pub(crate) struct AsyncCopies {
    started: Vec<AsyncCopy>,
    /// Groups that each lane has committed.
    committed: [u32; LANES],
}

/// A copy under way.
#[derive(Debug)]
struct AsyncCopy {
    lane: u32,
    group: u32,
    address: u64,
    n_bytes: u32,
    bytes: [u8; 16],
}

impl AsyncCopies {
    fn start(&mut self, lane: u32, address: u64, n_bytes: u32, bytes: [u8; 16]) {
        let group = self.committed[lane as usize];
        self.started.push(AsyncCopy { lane, group, address, n_bytes, bytes });
    }

    /// Closes the current group of each lane.
    pub(super) fn commit(&mut self, mask: u32) {
        for lane in lanes(mask) {
            self.committed[lane as usize] += 1;
        }
    }

    fn wait(&mut self, mask: u32, pending: u32, all: bool, mut arrive: impl FnMut(&AsyncCopy)) {
        let committed = &self.committed;
        self.started.retain(|copy| {
            let groups = committed[copy.lane as usize];
            // Group numbers count up, so all but the last `pending` committed ones are due.
            let due = mask >> copy.lane & 1 != 0
                && (all || u64::from(copy.group) + u64::from(pending) < u64::from(groups));
            if due {
                arrive(copy);
            }
            !due
        });
    }
}

/// The generic address of a space's first byte; global memory is addressed as it is.
fn window(space: Space) -> u64 {
    match space {
        Space::Shared => SHARED_WINDOW,
        Space::Local => LOCAL_WINDOW,
        Space::Param => PARAM_WINDOW,
        Space::Global | Space::Const | Space::Generic => 0,
    }
}

/// The space that a generic address lies in.
pub(super) fn generic_space(address: u64) -> Space {
    [Space::Shared, Space::Local, Space::Param]
        .into_iter()
        .find(|&space| address.wrapping_sub(window(space)) < WINDOW_BYTES)
        .unwrap_or(Space::Global)
}

/// Calls `f` for the lanes of each space that the addresses lie in, with addresses of that space.
pub(super) fn for_each_space(
    space: Space,
    addresses: &[u64; LANES],
    mask: u32,
    launch: &Launch<'_>,
    mut f: impl FnMut(Space, &[u64; LANES], u32) -> Result<(), Box<Trouble>>,
) -> Result<(), Box<Trouble>> {
    debug_assert!(launch.n_threads() > 0);
    if space != Space::Generic {
        return f(space, addresses, mask);
    }
    for space in [Space::Global, Space::Shared, Space::Local, Space::Param] {
        let inside = lanes(mask)
            .filter(|&lane| generic_space(addresses[lane as usize]) == space)
            .fold(0u32, |inside, lane| inside | 1 << lane);
        if inside != 0 {
            let first = addresses[inside.trailing_zeros() as usize];
            let local = std::array::from_fn(|lane| {
                let address = if inside >> lane & 1 != 0 { addresses[lane] } else { first };
                address - window(space)
            });
            f(space, &local, inside)?;
        }
    }
    Ok(())
}

/// Calls `f` lane by lane, each with the addresses of that lane alone.
pub(super) fn each_lane(
    addresses: &[u64; LANES],
    mask: u32,
    mut f: impl FnMut(&[u64; LANES], u32) -> Result<(), Box<Trouble>>,
) -> Result<(), Box<Trouble>> {
    lanes(mask).try_for_each(|lane| f(&[addresses[lane as usize]; LANES], 1 << lane))
}

#[inline]
pub(super) fn check_alignment(
    addresses: &[u64; LANES],
    mask: u32,
    n_bytes: u32,
) -> Result<(), Box<Trouble>> {
    let low = u64::from(n_bytes) - 1;
    if addresses.iter().fold(0, |all, address| all | address) & low == 0 {
        return Ok(());
    }
    let lane = lanes(mask).find(|&lane| addresses[lane as usize] & low != 0).unwrap_or(0);
    let address = addresses[lane as usize];
    let detail = format!("address {address:#x} is not a multiple of {n_bytes}");
    Err(Trouble::new(FaultKind::Misaligned, lane, detail))
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
    Some(Place { index, allocation, offsets: addresses.map(|address| address - allocation.base) })
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

/// A fault of shared memory in words.
#[cold]
pub(super) fn shared_trouble(
    conflict: Conflict,
    lane: u32,
    address: u64,
    kind: Kind,
    launch: &Launch<'_>,
) -> Box<Trouble> {
    let party = |party: Party| match (party.warp, party.lane) {
        (Some(warp), Some(lane)) => {
            let [x, y, z] = launch.thread(warp * 32 + lane);
            format!("thread ({x},{y},{z})")
        }
        (Some(warp), None) => format!("several threads of warp {warp}"),
        _ => "another warp".to_owned(),
    };
    let verb = if kind == Kind::Read { "reads" } else { "writes" };
    let (kind, detail) = match conflict {
        Conflict::OutOfBounds => (
            FaultKind::OutOfBounds,
            format!("{verb} byte {address} of shared memory, which belongs to no variable"),
        ),
        Conflict::Uninitialised => (
            FaultKind::Uninitialised,
            format!("byte {address} of shared memory has not been written"),
        ),
        Conflict::Written(other) => (
            FaultKind::SharedRace,
            format!(
                "{verb} byte {address} of shared memory, which {} writes with no barrier between",
                party(other)
            ),
        ),
        Conflict::Read(other) => (
            FaultKind::SharedRace,
            format!(
                "{verb} byte {address} of shared memory, which {} reads with no barrier between",
                party(other)
            ),
        ),
        Conflict::Pending => (
            FaultKind::SharedRace,
            format!("{verb} byte {address} of shared memory, into which a cp.async is under way"),
        ),
    };
    Trouble::new(kind, lane, detail)
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

#[inline(always)]
fn read_bytes<const N: usize>(memory: &[u8], offset: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&memory[offset..offset + N]);
    bytes
}

/// Reads a value of a type, extended to 64 bits.
pub(super) fn read_value(memory: &[u8], offset: usize, ty: Type) -> u64 {
    let bits = match ty.n_bytes() {
        1 => u64::from(memory[offset]),
        2 => u64::from(u16::from_le_bytes(read_bytes(memory, offset))),
        4 => u64::from(u32::from_le_bytes(read_bytes(memory, offset))),
        _ => u64::from_le_bytes(read_bytes(memory, offset)),
    };
    extend(ty, bits)
}
