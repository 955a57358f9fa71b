//! Counters of a group on one core.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use crate::Usage;

/// Usage of a group on one core, on a cache line (two, for the prefetcher) of its own. Only the
/// core's fast lane writes a field, unless the field names another writer.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Counters {
    pub(crate) cpu_fast_ns: AtomicU64,
    pub(crate) cpu_heavy_ns: AtomicU64,
    pub(crate) wait_ns: AtomicU64,
    pub(crate) dispatches: AtomicU64,
    pub(crate) heavy_dispatches: AtomicU64,
    pub(crate) disk_read_bytes: AtomicU64,
    pub(crate) disk_read_ops: AtomicU64,
    pub(crate) disk_write_bytes: AtomicU64,
    pub(crate) disk_write_ops: AtomicU64,
    pub(crate) disk_wait_ns: AtomicU64,
    pub(crate) disk_queue_ns: AtomicU64,
    pub(crate) disk_ns: AtomicU64,
    pub(crate) cache_hits: AtomicU64,
    pub(crate) cache_misses: AtomicU64,
    pub(crate) throttled_ns: AtomicU64,
    pub(crate) stalls: AtomicU64,
    /// CPU of finished slices of heavy workers, ns. Written by the workers.
    pub(crate) heavy_closed_ns: AtomicU64,
    /// Number of heavy tasks that are ready or running. Written by any thread.
    pub(crate) heavy_pending: AtomicU32,
    /// Number of urgent heavy tasks that wait for a worker. Written by any thread.
    pub(crate) urgent_queued: AtomicU32,
}

/// Adds to a counter that only this thread writes: no locked instruction.
pub(crate) fn count(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(by), Relaxed);
}

impl Counters {
    /// Resets the counters for the next group in the slot. Counts of heavy workers stay, because
    /// lanes charge only their growth.
    pub(crate) fn reset(&self) {
        let fields = [
            &self.cpu_fast_ns,
            &self.cpu_heavy_ns,
            &self.wait_ns,
            &self.dispatches,
            &self.heavy_dispatches,
            &self.disk_read_bytes,
            &self.disk_read_ops,
            &self.disk_write_bytes,
            &self.disk_write_ops,
            &self.disk_wait_ns,
            &self.disk_queue_ns,
            &self.disk_ns,
            &self.cache_hits,
            &self.cache_misses,
            &self.throttled_ns,
            &self.stalls,
        ];
        fields.into_iter().for_each(|counter| counter.store(0, Relaxed));
    }

    pub(crate) fn add_to(&self, sum: &mut Usage) {
        let fields = [
            (&mut sum.cpu_fast_ns, &self.cpu_fast_ns),
            (&mut sum.cpu_heavy_ns, &self.cpu_heavy_ns),
            (&mut sum.wait_ns, &self.wait_ns),
            (&mut sum.dispatches, &self.dispatches),
            (&mut sum.heavy_dispatches, &self.heavy_dispatches),
            (&mut sum.disk_read_bytes, &self.disk_read_bytes),
            (&mut sum.disk_read_ops, &self.disk_read_ops),
            (&mut sum.disk_write_bytes, &self.disk_write_bytes),
            (&mut sum.disk_write_ops, &self.disk_write_ops),
            (&mut sum.disk_wait_ns, &self.disk_wait_ns),
            (&mut sum.disk_queue_ns, &self.disk_queue_ns),
            (&mut sum.disk_ns, &self.disk_ns),
            (&mut sum.cache_hits, &self.cache_hits),
            (&mut sum.cache_misses, &self.cache_misses),
            (&mut sum.throttled_ns, &self.throttled_ns),
            (&mut sum.stalls, &self.stalls),
        ];
        fields.into_iter().for_each(|(sum, counter)| *sum += counter.load(Relaxed));
    }
}
