//! Device memory: allocations at made-up addresses, with gaps between them, and a record of which
//! bytes have been written.
//!
//! Blocks on several threads touch the same memory, and a faulty kernel may do so without order, so
//! every access is atomic. An address is never handed out twice: a stale pointer hits nothing.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::error::Error;

/// The first address handed out.
const FIRST_ADDRESS: u64 = 0x0100_0000_0000;
/// Allocations are aligned to this and this far apart at least.
const GAP_BYTES: u64 = 1 << 20;

/// Generic addresses from here on, up to the next window, are shared memory.
pub(crate) const SHARED_WINDOW: u64 = 0x7000_0000_0000_0000;
/// Generic addresses of local memory.
pub(crate) const LOCAL_WINDOW: u64 = 0x7100_0000_0000_0000;
/// Generic addresses of kernel parameters.
pub(crate) const PARAM_WINDOW: u64 = 0x7200_0000_0000_0000;
/// The size of each window.
pub(crate) const WINDOW_BYTES: u64 = 1 << 32;

/// A piece of device memory.
#[derive(Debug)]
pub(crate) struct Allocation {
    /// Address of the first byte.
    pub(crate) base: u64,
    /// Size in bytes.
    pub(crate) n_bytes: u64,
    /// Whether kernels may only read it.
    pub(crate) read_only: bool,
    data: Box<[AtomicU64]>,
    /// One bit a byte: whether it has been written.
    written: Box<[AtomicU8]>,
    /// Whether all bytes have been written, so that `written` need not be looked at.
    all_written: AtomicBool,
}

/// An integer that memory is accessed as.
pub(crate) trait Cell: Copy + Default {
    /// Reads at a byte offset that is a multiple of the size.
    fn load(allocation: &Allocation, offset: u64) -> Self;
    /// Writes at a byte offset that is a multiple of the size.
    fn store(allocation: &Allocation, offset: u64, value: Self);
    /// Replaces the value as `f` says, atomically; returns the old one.
    fn update(allocation: &Allocation, offset: u64, f: impl Fn(Self) -> Self) -> Self;
}

macro_rules! cell {
    ($($ty:ty: $atomic:ty;)*) => {
        $(impl Cell for $ty {
            #[inline(always)]
            fn load(allocation: &Allocation, offset: u64) -> $ty {
                allocation.cell::<$ty, $atomic>(offset).load(Ordering::Relaxed)
            }

            #[inline(always)]
            fn store(allocation: &Allocation, offset: u64, value: $ty) {
                allocation.cell::<$ty, $atomic>(offset).store(value, Ordering::Relaxed);
            }

            fn update(allocation: &Allocation, offset: u64, f: impl Fn($ty) -> $ty) -> $ty {
                let cell = allocation.cell::<$ty, $atomic>(offset);
                let mut old = cell.load(Ordering::SeqCst);
                loop {
                    let order = Ordering::SeqCst;
                    match cell.compare_exchange_weak(old, f(old), order, order) {
                        Ok(old) => return old,
                        Err(now) => old = now,
                    }
                }
            }
        })*
    };
}

cell! {
    u8: AtomicU8;
    u16: AtomicU16;
    u32: AtomicU32;
    u64: AtomicU64;
}

impl Allocation {
    fn new(base: u64, n_bytes: u64, read_only: bool) -> Allocation {
        let n_words = n_bytes.div_ceil(8) as usize;
        Allocation {
            base,
            n_bytes,
            read_only,
            data: zeroed(n_words),
            written: (0..n_words).map(|_| AtomicU8::new(0)).collect(),
            all_written: AtomicBool::new(n_bytes == 0),
        }
    }

    /// Address past the last byte.
    pub(crate) fn end(&self) -> u64 {
        self.base + self.n_bytes
    }

    /// Whether the range lies inside.
    #[inline]
    pub(crate) fn contains(&self, address: u64, n_bytes: u64) -> bool {
        address >= self.base
            && address.checked_add(n_bytes).is_some_and(|end| end <= self.base + self.n_bytes)
    }

    #[inline(always)]
    fn cell<T, A>(&self, offset: u64) -> &A {
        const { assert!(size_of::<T>() == size_of::<A>() && size_of::<A>() <= 8) };
        let size = size_of::<A>() as u64;
        assert!(
            offset.is_multiple_of(size) && offset + size <= self.data.len() as u64 * 8,
            "invariant: accesses are checked before memory is touched"
        );
        // SAFETY: the cell lies within `data`, by the assertion; it is aligned, for `data` is
        // aligned to eight bytes and the offset to the cell's size; and all access goes through
        // atomics. Cells of different sizes may overlap; on the targets that Rust's standard
        // library supports such accesses compile to plain atomic moves of their size.
        unsafe { &*self.data.as_ptr().cast::<u8>().add(offset as usize).cast::<A>() }
    }

    /// The first byte of the range that nothing has written.
    #[inline]
    pub(crate) fn first_unwritten(&self, offset: u64, n_bytes: u64) -> Option<u64> {
        if self.all_written.load(Ordering::Relaxed) {
            return None;
        }
        let mut first = None;
        for_each_cell(offset, n_bytes, |cell, bits| {
            let missing = bits & !self.written[cell].load(Ordering::Relaxed);
            if missing != 0 {
                first = Some(cell as u64 * 8 + u64::from(missing.trailing_zeros()));
            }
            missing == 0
        });
        first
    }

    /// Notes that the range has been written.
    #[inline]
    pub(crate) fn mark_written(&self, offset: u64, n_bytes: u64) {
        if self.all_written.load(Ordering::Relaxed) {
            return;
        }
        for_each_cell(offset, n_bytes, |cell, bits| {
            let cell = &self.written[cell];
            if bits == u8::MAX {
                cell.store(bits, Ordering::Relaxed);
            } else if cell.load(Ordering::Relaxed) & bits != bits {
                cell.fetch_or(bits, Ordering::Relaxed);
            }
            true
        });
    }

    /// Looks whether everything is written by now, to make later checks cheap.
    pub(crate) fn settle(&self) {
        if !self.all_written.load(Ordering::Relaxed) {
            let complete = self.first_unwritten(0, self.n_bytes).is_none();
            self.all_written.store(complete, Ordering::Relaxed);
        }
    }

    /// Forgets that the range has been written.
    pub(crate) fn forget(&self, offset: u64, n_bytes: u64) {
        if n_bytes == 0 {
            return;
        }
        if self.all_written.swap(false, Ordering::Relaxed) {
            for cell in &self.written {
                cell.store(u8::MAX, Ordering::Relaxed);
            }
        }
        for_each_cell(offset, n_bytes, |cell, bits| {
            self.written[cell].fetch_and(!bits, Ordering::Relaxed);
            true
        });
    }

    /// Copies bytes in and notes them as written.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) {
        self.write_from(offset, bytes.len() as u64, |index| bytes[index as usize]);
    }

    fn write_from(&self, offset: u64, n_bytes: u64, byte: impl Fn(u64) -> u8) {
        let mut index = 0;
        while index < n_bytes {
            let place = offset + index;
            if place.is_multiple_of(8) && n_bytes - index >= 8 {
                let word = std::array::from_fn(|i| byte(index + i as u64));
                u64::store(self, place, u64::from_le_bytes(word));
                index += 8;
            } else {
                u8::store(self, place, byte(index));
                index += 1;
            }
        }
        if offset == 0 && n_bytes == self.n_bytes {
            self.all_written.store(true, Ordering::Relaxed);
        } else {
            self.mark_written(offset, n_bytes);
        }
    }

    /// Copies bytes out.
    pub(crate) fn read(&self, offset: u64, bytes: &mut [u8]) {
        let mut index = 0;
        while index < bytes.len() {
            let place = offset + index as u64;
            if place.is_multiple_of(8) && bytes.len() - index >= 8 {
                bytes[index..index + 8].copy_from_slice(&u64::load(self, place).to_le_bytes());
                index += 8;
            } else {
                bytes[index] = u8::load(self, place);
                index += 1;
            }
        }
    }
}

/// Calls `f` with each cell of the record of writes that the range touches and the bits in it,
/// as long as it says so.
#[inline]
fn for_each_cell(offset: u64, n_bytes: u64, mut f: impl FnMut(usize, u8) -> bool) {
    let end = offset + n_bytes;
    let mut byte = offset;
    while byte < end {
        let count = (8 - byte % 8).min(end - byte);
        let bits = (((1u32 << count) - 1) << (byte % 8)) as u8;
        if !f((byte / 8) as usize, bits) {
            return;
        }
        byte += count;
    }
}

/// Zeroed cells, whose pages the system provides when they are first touched.
pub(crate) fn zeroed(n_cells: usize) -> Box<[AtomicU64]> {
    let plain: Box<[u64]> = vec![0; n_cells].into_boxed_slice();
    // SAFETY: `AtomicU64` has the size, and on 64-bit targets the alignment, of `u64`.
    const { assert!(align_of::<AtomicU64>() == align_of::<u64>()) };
    unsafe { Box::from_raw(Box::into_raw(plain) as *mut [AtomicU64]) }
}

/// All allocations of a device.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    state: RwLock<State>,
}

#[derive(Debug, Default)]
struct State {
    live: BTreeMap<u64, Arc<Allocation>>,
    next: u64,
}

impl Memory {
    /// Reserves uninitialised memory.
    pub(crate) fn alloc(&self, n_bytes: u64, read_only: bool) -> Result<Arc<Allocation>, Error> {
        // A quarter of the address space of today's machines; what the machine really has shows
        // when the pages are touched.
        if n_bytes > 1 << 40 {
            let reason = "the emulator's largest allocation is 1 TiB".to_owned();
            return Err(Error::OutOfMemory { requested_bytes: n_bytes, reason });
        }
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let base = state.next.max(FIRST_ADDRESS);
        state.next = (base + n_bytes + GAP_BYTES).next_multiple_of(GAP_BYTES);
        let allocation = Arc::new(Allocation::new(base, n_bytes, read_only));
        state.live.insert(base, allocation.clone());
        Ok(allocation)
    }

    /// Gives an allocation back.
    pub(crate) fn free(&self, address: u64) -> Result<(), Error> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        match state.live.remove(&address) {
            Some(_) => Ok(()),
            None => Err(Error::Memory {
                operation: "free",
                address,
                n_bytes: 0,
                reason: "no allocation starts there".to_owned(),
            }),
        }
    }

    /// The allocation that holds the whole range.
    pub(crate) fn find(
        &self,
        operation: &'static str,
        address: u64,
        n_bytes: u64,
    ) -> Result<Arc<Allocation>, Error> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let below = state.live.range((Bound::Unbounded, Bound::Included(address))).next_back();
        match below.map(|(_, allocation)| allocation) {
            Some(allocation) if allocation.contains(address, n_bytes) => Ok(allocation.clone()),
            nearest => Err(Error::Memory {
                operation,
                address,
                n_bytes,
                reason: outside(address, nearest.map(Arc::as_ref)),
            }),
        }
    }

    /// Forgets what a range holds.
    pub(crate) fn discard(&self, address: u64, n_bytes: u64) -> Result<(), Error> {
        let allocation = self.find("discard", address, n_bytes)?;
        allocation.forget(address - allocation.base, n_bytes);
        Ok(())
    }

    /// All live allocations by increasing address: what a launch can see.
    pub(crate) fn snapshot(&self) -> Vec<Arc<Allocation>> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state.live.values().cloned().collect()
    }
}

/// Says where an address lies in relation to the allocation before it.
pub(crate) fn outside(address: u64, nearest: Option<&Allocation>) -> String {
    match nearest {
        Some(allocation) if address <= allocation.end().saturating_add(GAP_BYTES) => format!(
            "the allocation at {:#x} has {} bytes and this is byte {}",
            allocation.base,
            allocation.n_bytes,
            address - allocation.base
        ),
        _ => "no allocation is near".to_owned(),
    }
}
