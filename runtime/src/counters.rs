//! Counters of blocks, which kernels leave as they need them again: a set for each stream.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::device::{Buffer, Device, Stream};
use crate::error::Error;

/// Bytes of all sets together, about.
const POOL_BYTES: u64 = 1 << 20;

/// The fewest and the most sets.
const SETS: [u64; 2] = [8, 256];

/// Sets of counters, all zero at first.
#[derive(Debug)]
pub(crate) struct CounterPool {
    /// None for a bundle without counters.
    memory: Option<Buffer>,
    /// Of a set.
    n_bytes: u64,
    n_sets: u64,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    n_sets: u64,
    /// The set of each stream. Runs on one stream come after one another.
    by_stream: BTreeMap<u64, u64>,
}

impl CounterPool {
    /// Sets of `n_bytes`; their zeros are there when the default stream has been waited for.
    pub(crate) fn new(device: &Arc<dyn Device>, n_bytes: u64) -> Result<CounterPool, Error> {
        let [least, most] = SETS;
        let n_sets = (POOL_BYTES / n_bytes.max(1)).clamp(least, most);
        let mut memory = None;
        if n_bytes > 0 {
            let buffer = Buffer::new(device.clone(), n_sets * n_bytes)?;
            device.fill(buffer.address(), 0, buffer.n_bytes(), Stream::DEFAULT)?;
            memory = Some(buffer);
        }
        Ok(CounterPool { memory, n_bytes, n_sets, taken: Mutex::default() })
    }

    /// The address of a stream's set. What is captured into a graph gets a set of its own that is not given
    /// back, since nothing tells on which streams, and how long, the graph is launched. Nothing once all sets
    /// are taken.
    pub(crate) fn take(&self, stream: Stream, is_captured: bool) -> Option<u64> {
        let memory = self.memory.as_ref()?;
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let found = taken.by_stream.get(&stream.0).copied().filter(|_| !is_captured);
        let set = match found {
            Some(set) => set,
            None if taken.n_sets < self.n_sets => {
                let set = taken.n_sets;
                taken.n_sets += 1;
                if !is_captured {
                    taken.by_stream.insert(stream.0, set);
                }
                set
            }
            None => return None,
        };
        Some(memory.address() + set * self.n_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulator::Emulator;

    #[test]
    fn streams_keep_their_sets_and_graphs_get_new_ones() {
        let device: Arc<dyn Device> = Arc::new(Emulator::default());
        let pool = CounterPool::new(&device, POOL_BYTES).unwrap();
        let first = pool.take(Stream(1), false).unwrap();
        assert_eq!(pool.take(Stream(1), false), Some(first));
        let mut others = vec![pool.take(Stream(2), false).unwrap()];
        others.extend((2..SETS[0]).map(|_| pool.take(Stream(1), true).unwrap()));
        others.sort_unstable();
        others.dedup();
        assert_eq!(others.len() as u64, SETS[0] - 1);
        assert!(!others.contains(&first));
        assert_eq!([pool.take(Stream(1), true), pool.take(Stream(3), false)], [None; 2]);
        assert_eq!(pool.take(Stream(1), false), Some(first));
        let memory = pool.memory.as_ref().unwrap().to_bytes(Stream::DEFAULT).unwrap();
        assert!(memory.iter().all(|&byte| byte == 0));
        assert_eq!(CounterPool::new(&device, 0).unwrap().take(Stream(1), false), None);
    }
}
