//! `cp.async` (PTX ISA section 9.7.9.25): copies from global to shared memory that arrive later.

use super::super::program::Op;
use super::block::BlockMemory;
use super::global::{check_written, locate, out_of_bounds};
use super::memory::{Kind, check_alignment};
use super::registers::LANES;
use super::shared::shared_trouble;
use super::warp::Warp;
use super::{Launch, Trouble, lanes};
use crate::error::FaultKind;

impl Warp {
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
