//! Counters of a group on one core, and their sums. One table declares each counter.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// Declares the counters of a group: fields of [`Usage`] and of [`Counters`].
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Resources that a group has used since it was created. Sums of relaxed counters: read
        /// while it works, they are not of one instant.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Usage {
            $($(#[$doc])* pub $name: u64,)*
        }

        /// Usage of a group on one core, on a cache line (two, for the prefetcher) of its own. Only
        /// the core's fast lane writes a field, unless the field names another writer.
        #[derive(Default)]
        #[repr(align(128))]
        pub(crate) struct Counters {
            $($(#[$doc])* pub(crate) $name: AtomicU64,)*
            /// CPU of finished slices of heavy workers, ns. Written by the workers.
            pub(crate) heavy_closed_ns: AtomicU64,
            /// Number of heavy tasks that are ready or running. Written by any thread.
            pub(crate) heavy_pending: AtomicU32,
            /// Number of urgent heavy tasks that wait for a worker. Written by any thread.
            pub(crate) urgent_queued: AtomicU32,
        }

        impl Counters {
            /// Resets the counters for the next group in the slot. Counts of heavy workers stay,
            /// because lanes charge only their growth.
            pub(crate) fn reset(&self) {
                $(self.$name.store(0, Relaxed);)*
            }

            /// Adds the counters to a sum over cores.
            pub(crate) fn add_to(&self, sum: &mut Usage) {
                $(sum.$name += self.$name.load(Relaxed);)*
            }
        }
    };
}

counters! {
    /// CPU time on fast lanes, ns.
    cpu_fast_ns,
    /// CPU time on heavy lanes, ns.
    cpu_heavy_ns,
    /// Time it was ready to run and did not run, ns, without the time that its CPU limit throttled
    /// it.
    wait_ns,
    /// Slices on fast lanes.
    dispatches,
    /// Slices on heavy lanes.
    heavy_dispatches,
    /// Bytes read.
    disk_read_bytes,
    /// Read requests.
    disk_read_ops,
    /// Bytes written.
    disk_write_bytes,
    /// Write, sync and metadata requests.
    disk_write_ops,
    /// Time that its disk requests took from submission to completion, ns.
    disk_wait_ns,
    /// Part of `disk_wait_ns` before requests were sent, ns: waits for their turn, the disk's
    /// bucket and the group's own limit. Its growth divided by the elapsed time is the mean number
    /// of queued requests. The rest of `disk_wait_ns` likewise gives the mean number of requests
    /// inside the disk.
    disk_queue_ns,
    /// Disk time charged, ns, according to the disk's maxima.
    disk_ns,
    /// Hits of the cache of blocks; see [`crate::disk::count_lookup`].
    cache_hits,
    /// Misses of the cache of blocks.
    cache_misses,
    /// Hits of the cache of rows.
    row_cache_hits,
    /// Misses of the cache of rows.
    row_cache_misses,
    /// Time that its CPU limit throttled it, ns, summed over cores.
    throttled_ns,
    /// Fast-lane task polls longer than 200 µs.
    stalls,
}

/// An entry of a cache above the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cached {
    /// A block of a file.
    Block,
    /// A row of a table.
    Row,
}

impl Counters {
    /// Returns the counter of lookups that found an entry, or did not.
    pub(crate) fn lookups(&self, cached: Cached, found: bool) -> &AtomicU64 {
        match (cached, found) {
            (Cached::Block, true) => &self.cache_hits,
            (Cached::Block, false) => &self.cache_misses,
            (Cached::Row, true) => &self.row_cache_hits,
            (Cached::Row, false) => &self.row_cache_misses,
        }
    }
}

/// Adds to a counter that only this thread writes: no locked instruction.
pub(crate) fn count(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(by), Relaxed);
}
