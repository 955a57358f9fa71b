//! Bound on the log of a shard.
//!
//! A memtable is flushed because it is large or because its part of the log is long. Overwrites of
//! one row extend the log but not the memtable, and a small batch occupies a block of 4096 bytes.
//! Log bytes count towards the fill of a memtable, so that pacing and backpressure treat both
//! alike:
//!
//! ```text
//!  unit                the larger of a memtable and a segment
//!  3/2 units           log of the active memtable at which it is full
//!  3 units             live log above which acknowledgements wait for a flush
//!  13/4 units          live log above which further writes wait for their turn (`turns.rs`)
//! ```
//!
//! So the log occupies at most 13/4 units and four segments: the live part, the flushed front of
//! the oldest segment, the unwritten end of the newest, and a prepared one. With segments of 1/8 of
//! a memtable this is less than four memtables. A start adds a segment. What it recovers above the
//! first bound is flushed first, so only starts that crash before that flush ends add up. On a full
//! disk, records that free space may use a segment more.

use crate::options::StorageOptions;

/// Free segments kept while the shard is idle, closed or just opened.
pub(crate) const FREE_IDLE: usize = 2;

/// Sizes that bound the log, see the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LogBound {
    memtable: u64,
    unit: u64,
    segment: u64,
}

impl LogBound {
    pub(crate) fn new(options: &StorageOptions) -> LogBound {
        let memtable = (options.memtable_bytes_max as u64).max(1);
        let segment = options.segment_bytes;
        LogBound { memtable, segment, unit: memtable.max(segment) }
    }

    /// Returns the log bytes at which a memtable counts as full.
    pub(crate) fn full_at(&self) -> u64 {
        self.unit.saturating_mul(3) / 2
    }

    /// Converts log bytes into the memtable bytes that they count as.
    pub(crate) fn fill(&self, log_bytes: u64) -> u64 {
        (u128::from(log_bytes) * u128::from(self.memtable) / u128::from(self.full_at())) as u64
    }

    /// Returns the live log bytes above which acknowledgements wait.
    pub(crate) fn wait_at(&self) -> u64 {
        self.unit.saturating_mul(3)
    }

    /// Returns the live log bytes above which writes wait for their turn.
    pub(crate) fn refuse_at(&self) -> u64 {
        (self.unit / 4).saturating_mul(13)
    }

    /// Returns the number of segments, free ones included, above which free ones are removed.
    pub(crate) fn segments_max(&self) -> usize {
        self.refuse_at().div_ceil(self.segment) as usize + 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_of_an_eighth_bound_the_log_to_four_memtables() {
        const MIB: u64 = 1 << 20;
        for memtable in [4 * MIB, 64 * MIB, 256 * MIB] {
            let options = StorageOptions {
                memtable_bytes_max: memtable as usize,
                segment_bytes: memtable / 8,
                ..StorageOptions::in_memory()
            };
            let bound = LogBound::new(&options);
            assert!(bound.wait_at() < bound.refuse_at());
            assert!(bound.refuse_at() + 4 * options.segment_bytes <= 4 * memtable);
            assert!(bound.segments_max() as u64 * options.segment_bytes <= 4 * memtable);
            assert_eq!(bound.fill(bound.full_at()), memtable);
        }
    }
}
