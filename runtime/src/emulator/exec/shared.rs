//! Shared memory: every access goes through its shadow.

use super::super::detect::{Conflict, Party};
use super::super::program::{Access, Dst, List, Order};
use super::block::BlockMemory;
use super::memory::{Kind, read_bytes, read_value};
use super::registers::{LANES, row_of};
use super::warp::Warp;
use super::{Launch, Trouble, lanes};
use crate::error::FaultKind;

impl Warp {
    pub(super) fn load_shared(
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
        memory.shadow.read_lanes(self.index, mask, addresses, n_bytes, strong).map_err(
            |(lane, conflict)| {
                let address = addresses[lane as usize];
                shared_trouble(conflict, lane, address, Kind::Read, launch)
            },
        )?;
        let mut words = [[0u32; LANES]; 8];
        let results = launch.program.results(to);
        if size == 4 {
            for (lane, &address) in addresses.iter().enumerate() {
                let bytes = &memory.shared[address as usize..][..n_bytes as usize];
                for (row, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
                    row[lane] = u32::from_le_bytes(read_bytes(bytes, 0));
                }
            }
        }
        for (i, &dst) in results.iter().enumerate() {
            match (size, dst) {
                (_, Dst::Sink) => {}
                (4, Dst::Word(slot)) => self.registers.set_words(slot, mask, &words[i]),
                _ => {
                    let row = row_of(|lane| {
                        let start = addresses[lane] as usize + i * size as usize;
                        read_value(&memory.shared, start, access.ty)
                    });
                    self.registers.set_any(dst, mask, &row);
                }
            }
        }
        Ok(())
    }

    pub(super) fn store_shared(
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
        Conflict::Unfenced(other) => (
            FaultKind::SharedRace,
            format!(
                "{verb} byte {address} of shared memory asynchronously, which {} has written without \
                 fence.proxy.async behind it",
                party(other)
            ),
        ),
        Conflict::AsyncRead => (
            FaultKind::SharedRace,
            format!("{verb} byte {address} of shared memory, which a wgmma under way reads"),
        ),
        Conflict::Pending => (
            FaultKind::SharedRace,
            format!("{verb} byte {address} of shared memory, into which a cp.async is under way"),
        ),
    };
    Trouble::new(kind, lane, detail)
}
