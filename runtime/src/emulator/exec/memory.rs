//! Loads and stores: addresses, alignment, and the way to each state space.

use super::super::memory::{LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, WINDOW_BYTES};
use super::super::parse::{Space, Type};
use super::super::program::{Access, Address, AnySrc, Dst, List, Order, Slot, Src};
use super::block::BlockMemory;
use super::convert::extend;
use super::registers::{LANES, row_of};
use super::warp::Warp;
use super::{Launch, Trouble, lanes};
use crate::error::FaultKind;

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
        if access.order == Order::Strong && access.space != Space::Shared {
            // It may be looking for what another block has yet to write.
            std::thread::yield_now();
        }
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
        let mut addresses = row_of(|lane| base[lane].wrapping_add_signed(offset));
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
        let results = row_of(|lane| match to_space {
            true => addresses[lane].wrapping_sub(base),
            false => addresses[lane].wrapping_add(base),
        });
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
            let local = row_of(|lane| {
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

#[inline(always)]
pub(super) fn read_bytes<const N: usize>(memory: &[u8], offset: usize) -> [u8; N] {
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
