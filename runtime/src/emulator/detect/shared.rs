//! Races in shared memory, by the epochs of FastTrack (Flanagan and Freund, "FastTrack: efficient
//! and precise dynamic race detection", 2009) with warps in the place of threads.
//!
//! Each warp has a clock that every barrier moves on, and knows up to which time of each other
//! warp it has synchronised. An access races with an earlier one of another warp if that happened
//! after the last time known; and with one of another lane of its own warp if no warp-level
//! barrier came between. Per grain (the narrowest access of the kernel) the last write is kept,
//! and per warp the last read.

/// Marks a grain that belongs to no variable.
const OUTSIDE: u64 = u64::MAX;
/// The reader's lane when several lanes of the warp have read.
const MANY_LANES: u32 = 63;
/// The writer's warp when several have, atomically.
const MANY_WARPS: u64 = 0xff;

/// Why an access is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Conflict {
    /// The bytes belong to no variable.
    OutOfBounds,
    /// Nothing has written the bytes.
    Uninitialised,
    /// Another thread has written them without a barrier between.
    Written(Party),
    /// Another thread has read them without a barrier between.
    Read(Party),
    /// An asynchronous copy into them has not been waited for.
    Pending,
    /// A thread has written them and not made that visible to asynchronous operations.
    Unfenced(Party),
    /// An asynchronous operation that reads them has not been waited for.
    AsyncRead,
}

/// The other thread of a race.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Party {
    /// Its warp, if it is known.
    pub(crate) warp: Option<u32>,
    /// Its lane, if it is known.
    pub(crate) lane: Option<u32>,
}

/// The state of each grain of a block's shared memory.
#[derive(Debug, Default)]
pub(crate) struct SharedShadow {
    grain_shift: u32,
    n_warps: usize,
    n_grains: usize,
    check_uninitialised: bool,
    check_races: bool,
    /// Clock (upper half), atomic flag (bit 16), warp (bits 8 to 15) and lane of the last write;
    /// 0 before the first.
    writes: Vec<u64>,
    /// By warp, then grain: clock (upper 26 bits) and lane of the last read.
    reads: Vec<u32>,
    /// Asynchronous copies under way, by grain.
    pending: Vec<u8>,
    n_pending: usize,
    /// Asynchronous reads under way, by grain.
    async_reads: Vec<u16>,
    n_async_reads: usize,
    /// By warp: its writes up to this clock are visible to asynchronous operations.
    fenced: Vec<u32>,
    /// By warp, then other warp: the other's time up to which the warp has synchronised; on the
    /// diagonal the warp's own time.
    clocks: Vec<u32>,
    /// By warp: a write by anyone at this clock or before is ordered before what the warp does.
    settled: Vec<u64>,
}

impl SharedShadow {
    /// Starts a block: `ranges` are the offsets and sizes of the variables.
    pub(crate) fn reset(
        &mut self,
        ranges: impl Iterator<Item = (u32, u32)> + Clone,
        grain: u32,
        n_warps: usize,
        (check_uninitialised, check_races): (bool, bool),
    ) {
        let aligned =
            |grain: u32| ranges.clone().all(|(offset, size)| (offset | size) % grain == 0);
        let mut grain = grain;
        while grain > 1 && !aligned(grain) {
            grain /= 2;
        }
        self.grain_shift = grain.trailing_zeros();
        let end = ranges.clone().map(|(offset, size)| offset + size).max().unwrap_or(0);
        self.n_grains = (end >> self.grain_shift) as usize;
        self.n_warps = n_warps;
        self.check_uninitialised = check_uninitialised;
        self.check_races = check_races;
        self.writes.clear();
        self.writes.resize(self.n_grains, OUTSIDE);
        for (offset, size) in ranges {
            let range = (offset >> self.grain_shift)..(offset + size) >> self.grain_shift;
            self.writes[range.start as usize..range.end as usize].fill(0);
        }
        self.reads.clear();
        self.pending.clear();
        self.n_pending = 0;
        self.async_reads.clear();
        self.n_async_reads = 0;
        self.fenced.clear();
        self.fenced.resize(n_warps, 0);
        if check_races {
            self.reads.resize(self.n_grains * n_warps, 0);
        }
        self.clocks.clear();
        self.clocks.resize(n_warps * n_warps, 0);
        for warp in 0..n_warps {
            self.clocks[warp * n_warps + warp] = 1;
        }
        self.settled.clear();
        self.settled.resize(n_warps, if check_races { 0 } else { u64::from(u32::MAX) - 1 });
    }

    #[inline]
    fn grains(&self, offset: u64, n_bytes: u32) -> Option<std::ops::Range<usize>> {
        let first = offset >> self.grain_shift;
        let end = (offset + u64::from(n_bytes)).div_ceil(1 << self.grain_shift);
        (end <= self.n_grains as u64).then_some(first as usize..end as usize)
    }

    /// Checks and notes the reads of the lanes of `mask`; the lane and why, if one may not.
    #[inline]
    pub(crate) fn read_lanes(
        &mut self,
        warp: u32,
        mask: u32,
        addresses: &[u64; 32],
        n_bytes: u32,
        atomic: bool,
    ) -> Result<(), (u32, Conflict)> {
        let mut rest = mask;
        let mut previous = None;
        while rest != 0 {
            let lane = rest.trailing_zeros();
            rest &= rest - 1;
            let address = addresses[lane as usize];
            // A run of lanes at one address is noted by its first two.
            if previous == Some((address, true)) {
                continue;
            }
            let repeats = previous == Some((address, false));
            previous = Some((address, repeats));
            self.read(warp, lane, address, n_bytes, atomic).map_err(|why| (lane, why))?;
        }
        Ok(())
    }

    #[inline]
    fn read(
        &mut self,
        warp: u32,
        lane: u32,
        offset: u64,
        n_bytes: u32,
        atomic: bool,
    ) -> Result<(), Conflict> {
        let range = self.grains(offset, n_bytes).ok_or(Conflict::OutOfBounds)?;
        // A write that all of this warp's barriers have ordered needs no closer look. Grains
        // never written (0) and outside (all ones) do.
        let settled = self.settled[warp as usize];
        let plain = self.writes[range.clone()]
            .iter()
            .fold(true, |so_far, &write| so_far & ((write >> 32).wrapping_sub(1) < settled));
        if !plain || self.n_pending > 0 {
            self.read_closely(warp, lane, range.clone(), atomic)?;
        }
        // Strong reads are how threads wait for each other's strong writes; they are not kept.
        if self.check_races && !atomic {
            let now = self.clocks[warp as usize * self.n_warps + warp as usize];
            let start = warp as usize * self.n_grains;
            for read in &mut self.reads[start + range.start..start + range.end] {
                let same_time = *read >> 6 == now;
                let reader = if same_time && *read & 63 != lane { MANY_LANES } else { lane };
                *read = now << 6 | reader;
            }
        }
        Ok(())
    }

    fn read_closely(
        &self,
        warp: u32,
        lane: u32,
        range: std::ops::Range<usize>,
        atomic: bool,
    ) -> Result<(), Conflict> {
        let known = warp as usize * self.n_warps;
        for grain in range {
            let write = self.writes[grain];
            if write == OUTSIDE {
                return Err(Conflict::OutOfBounds);
            }
            if write == 0 && self.check_uninitialised {
                return Err(Conflict::Uninitialised);
            }
            if !self.check_races {
                continue;
            }
            if self.n_pending > 0 && self.pending[grain] > 0 {
                return Err(Conflict::Pending);
            }
            let clocks = &self.clocks[known..known + self.n_warps];
            if let Some(party) = races_with_write(write, warp, lane, atomic, clocks) {
                return Err(Conflict::Written(party));
            }
        }
        Ok(())
    }

    /// Checks and notes a write. `same_value` says whether the memory already holds what is
    /// written, which lanes of one warp may do together.
    #[inline]
    pub(crate) fn write(
        &mut self,
        warp: u32,
        lane: u32,
        offset: u64,
        n_bytes: u32,
        atomic: bool,
        same_value: impl Fn() -> bool,
    ) -> Result<(), Conflict> {
        let range = self.grains(offset, n_bytes).ok_or(Conflict::OutOfBounds)?;
        let known = warp as usize * self.n_warps;
        let now = self.clocks[known + warp as usize];
        for grain in range {
            let write = self.writes[grain];
            if write == OUTSIDE {
                return Err(Conflict::OutOfBounds);
            }
            if self.check_races {
                if self.n_pending > 0 && self.pending[grain] > 0 {
                    return Err(Conflict::Pending);
                }
                if self.n_async_reads > 0 && self.async_reads[grain] > 0 {
                    return Err(Conflict::AsyncRead);
                }
                let clocks = &self.clocks[known..known + self.n_warps];
                if let Some(party) = races_with_write(write, warp, lane, atomic, clocks)
                    && !(party.warp == Some(warp) && same_value())
                {
                    return Err(Conflict::Written(party));
                }
                if let Some(party) = self.races_with_reads(grain, warp, lane) {
                    return Err(Conflict::Read(party));
                }
            }
            let others = atomic && write != 0 && write >> 8 & 0xff != u64::from(warp);
            let writer = if others { MANY_WARPS } else { u64::from(warp) };
            self.writes[grain] =
                u64::from(now) << 32 | u64::from(atomic) << 16 | writer << 8 | u64::from(lane);
        }
        Ok(())
    }

    /// Checks that the range has been written, for operations that both read and write it.
    pub(crate) fn check_written(&self, offset: u64, n_bytes: u32) -> Result<(), Conflict> {
        let range = self.grains(offset, n_bytes).ok_or(Conflict::OutOfBounds)?;
        match self.check_uninitialised && self.writes[range].contains(&0) {
            true => Err(Conflict::Uninitialised),
            false => Ok(()),
        }
    }

    #[inline]
    fn races_with_reads(&self, grain: usize, warp: u32, lane: u32) -> Option<Party> {
        let known = &self.clocks[warp as usize * self.n_warps..];
        for (other, &known_clock) in known.iter().enumerate().take(self.n_warps) {
            let read = self.reads[other * self.n_grains + grain];
            let recent = if other == warp as usize {
                read >> 6 >= known_clock && read & 63 != lane
            } else {
                read >> 6 > known_clock
            };
            if recent && read != 0 {
                let lane = read & 63;
                return Some(Party {
                    warp: Some(other as u32),
                    lane: (lane != MANY_LANES).then_some(lane),
                });
            }
        }
        None
    }

    /// Notes that an asynchronous copy into the range has started.
    pub(crate) fn start_copy(&mut self, offset: u64, n_bytes: u32) -> Result<(), Conflict> {
        let range = self.grains(offset, n_bytes).ok_or(Conflict::OutOfBounds)?;
        if self.writes[range.clone()].contains(&OUTSIDE) {
            return Err(Conflict::OutOfBounds);
        }
        if self.check_races {
            self.pending.resize(self.n_grains, 0);
            self.n_pending += range.len();
            for grain in range {
                self.pending[grain] = self.pending[grain].saturating_add(1);
            }
        }
        Ok(())
    }

    /// Notes that an asynchronous copy has been waited for.
    pub(crate) fn end_copy(&mut self, offset: u64, n_bytes: u32) {
        let Some(range) = self.grains(offset, n_bytes) else { return };
        if self.check_races {
            self.n_pending = self.n_pending.saturating_sub(range.len());
            for grain in range {
                self.pending[grain] = self.pending[grain].saturating_sub(1);
            }
        }
    }

    /// Notes that an asynchronous operation reads the range from now on.
    pub(crate) fn start_async_read(&mut self, offset: u64, n_bytes: u32) -> Result<(), Conflict> {
        let range = self.grains(offset, n_bytes).ok_or(Conflict::OutOfBounds)?;
        if !self.check_races {
            return Ok(());
        }
        for &write in &self.writes[range.clone()] {
            let (clock, warp) = ((write >> 32) as u32, write >> 8 & 0xff);
            let fenced = self.fenced.get(warp as usize).copied().unwrap_or(0);
            if write != 0 && clock > fenced {
                let known = warp != MANY_WARPS;
                return Err(Conflict::Unfenced(Party {
                    warp: known.then_some(warp as u32),
                    lane: known.then_some(write as u32 & 0xff),
                }));
            }
        }
        self.async_reads.resize(self.n_grains, 0);
        self.n_async_reads += range.len();
        for grain in range {
            self.async_reads[grain] = self.async_reads[grain].saturating_add(1);
        }
        Ok(())
    }

    /// Notes that an asynchronous read has been waited for.
    pub(crate) fn end_async_read(&mut self, offset: u64, n_bytes: u32) {
        let Some(range) = self.grains(offset, n_bytes) else { return };
        if self.check_races {
            self.n_async_reads = self.n_async_reads.saturating_sub(range.len());
            for grain in range {
                self.async_reads[grain] = self.async_reads[grain].saturating_sub(1);
            }
        }
    }

    /// Makes the warp's writes so far visible to asynchronous operations. Its clock moves on, which tells
    /// later writes apart.
    pub(crate) fn fence_proxy(&mut self, warp: u32) {
        let index = warp as usize * self.n_warps + warp as usize;
        self.fenced[warp as usize] = self.clocks[index];
        self.clocks[index] += 1;
        self.settle(warp);
    }

    /// A barrier among the lanes of a warp.
    pub(crate) fn synchronise_warp(&mut self, warp: u32) {
        let index = warp as usize * self.n_warps + warp as usize;
        self.clocks[index] += 1;
        self.settle(warp);
    }

    fn settle(&mut self, warp: u32) {
        if self.check_races {
            let row = &self.clocks[warp as usize * self.n_warps..][..self.n_warps];
            let others = row
                .iter()
                .enumerate()
                .map(|(other, &clock)| if other == warp as usize { clock - 1 } else { clock });
            self.settled[warp as usize] = u64::from(others.min().unwrap_or(0));
        }
    }

    /// A barrier among warps: what one has seen, all have.
    pub(crate) fn synchronise(&mut self, warps: &[u32]) {
        let mut joined = vec![0; self.n_warps];
        for &warp in warps {
            let row = &self.clocks[warp as usize * self.n_warps..][..self.n_warps];
            for (joined, &clock) in joined.iter_mut().zip(row) {
                *joined = (*joined).max(clock);
            }
        }
        for &warp in warps {
            let row = &mut self.clocks[warp as usize * self.n_warps..][..self.n_warps];
            row.copy_from_slice(&joined);
            row[warp as usize] += 1;
            self.settle(warp);
        }
    }
}

#[inline]
fn races_with_write(
    write: u64,
    warp: u32,
    lane: u32,
    atomic: bool,
    clocks: &[u32],
) -> Option<Party> {
    if write == 0 || (atomic && write >> 16 & 1 != 0) {
        return None;
    }
    let (clock, writer, writer_lane) =
        ((write >> 32) as u32, (write >> 8 & 0xff) as u32, write as u32 & 0xff);
    if u64::from(writer) == MANY_WARPS {
        // Which warps is not known; any barrier that this warp has been in since is enough.
        let recent = clocks.iter().max().is_some_and(|&latest| clock >= latest);
        return recent.then_some(Party { warp: None, lane: None });
    }
    let recent = if writer == warp {
        clock >= clocks[writer as usize] && writer_lane != lane
    } else {
        clock > clocks[writer as usize]
    };
    recent.then_some(Party { warp: Some(writer), lane: Some(writer_lane) })
}
