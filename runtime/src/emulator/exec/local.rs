//! Local memory and kernel parameters.

use super::super::program::{Access, List};
use super::block::BlockMemory;
use super::memory::read_value;
use super::registers::LANES;
use super::warp::Warp;
use super::{Launch, Trouble, lanes};
use crate::error::FaultKind;

impl Warp {
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

    pub(super) fn load_local(
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

    pub(super) fn store_local(
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

    pub(super) fn load_param(
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
}
