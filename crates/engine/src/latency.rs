//! Histogram of latencies of one table on one core. Recording a statement costs an index, an
//! addition and a comparison, without allocation.
//!
//! ```text
//!  bucket   0: below 1.25 µs   1: below 1.5 µs   …   4 buckets for each doubling   …   111: 240 s and above
//! ```
//!
//! The error is at most a quarter of the value.

use std::cell::Cell;

/// Log2 of 1,024 ns. All shorter durations are in the first bucket.
const FIRST_LOG2: u32 = 10;
/// 2^2 buckets per doubling.
const SUB_LOG2: u32 = 2;
/// 28 doublings of four buckets: up to 2^38 ns.
const BUCKETS: usize = 28 << SUB_LOG2;

/// Latencies of one kind of statement.
#[derive(Debug)]
pub struct Latencies {
    buckets: [Cell<u64>; BUCKETS],
    sum_ns: Cell<u64>,
    max_ns: Cell<u64>,
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies { buckets: [const { Cell::new(0) }; BUCKETS], sum_ns: Cell::new(0), max_ns: Cell::new(0) }
    }
}

/// Returns the bucket of a duration.
fn bucket_of(ns: u64) -> usize {
    let ns = ns.max(1 << FIRST_LOG2);
    let log2 = ns.ilog2();
    let sub = (ns >> (log2 - SUB_LOG2)) as usize & ((1 << SUB_LOG2) - 1);
    ((((log2 - FIRST_LOG2) as usize) << SUB_LOG2) + sub).min(BUCKETS - 1)
}

/// Returns the exclusive upper bound of a bucket, ns.
fn end_of(bucket: usize) -> u64 {
    let doubling = bucket as u32 >> SUB_LOG2;
    let sub = bucket as u64 & ((1 << SUB_LOG2) - 1);
    ((1 << SUB_LOG2) + sub + 1) << (FIRST_LOG2 - SUB_LOG2 + doubling)
}

impl Latencies {
    /// Records the latency of a statement.
    #[inline]
    pub fn record(&self, ns: u64) {
        let bucket = &self.buckets[bucket_of(ns)];
        bucket.set(bucket.get() + 1);
        self.sum_ns.set(self.sum_ns.get().wrapping_add(ns));
        if ns > self.max_ns.get() {
            self.max_ns.set(ns);
        }
    }
}

/// Sum of the latencies of several cores.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct LatencySummary {
    /// Empty until latencies are added.
    buckets: Vec<u64>,
    /// Number of statements.
    pub count: u64,
    /// Sum of the latencies, ns.
    pub sum_ns: u64,
    /// Highest latency, ns.
    pub max_ns: u64,
}

impl LatencySummary {
    /// Returns the latencies of one core.
    pub fn of(latencies: &Latencies) -> LatencySummary {
        let buckets: Vec<u64> = latencies.buckets.iter().map(Cell::get).collect();
        let count = buckets.iter().sum();
        let buckets = if count == 0 { Vec::new() } else { buckets };
        LatencySummary { buckets, count, sum_ns: latencies.sum_ns.get(), max_ns: latencies.max_ns.get() }
    }

    /// Adds the latencies of another core.
    pub fn add(&mut self, other: &LatencySummary) {
        if other.buckets.is_empty() {
            return;
        }
        self.buckets.resize(BUCKETS, 0);
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(sum, more)| *sum += more);
        self.count += other.count;
        self.sum_ns = self.sum_ns.wrapping_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Returns an upper bound of the latency that `per_mille` ‰ of the statements did not exceed,
    /// ns. `None`: there are no statements.
    pub fn quantile_ns(&self, per_mille: u64) -> Option<u64> {
        let wanted = (u128::from(self.count) * u128::from(per_mille)).div_ceil(1000).max(1) as u64;
        let mut below = 0;
        let bucket = self.buckets.iter().position(|count| {
            below += count;
            below >= wanted
        })?;
        Some(end_of(bucket).min(self.max_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_width_is_at_most_a_quarter_of_the_duration() {
        for ns in (1024..40_000).chain((11..38).flat_map(|e| [(1 << e) - 1, 1 << e, (1 << e) + (1 << e) / 3]))
        {
            let bucket = bucket_of(ns);
            let start = if bucket == 0 { 0 } else { end_of(bucket - 1) };
            assert!(start <= ns && ns < end_of(bucket), "{ns} in {start}..{}", end_of(bucket));
            assert!(bucket == 0 || end_of(bucket) - start <= ns / 4 + 1, "{ns}");
        }
        assert_eq!((bucket_of(0), bucket_of(u64::MAX)), (0, BUCKETS - 1));
    }

    #[test]
    fn quantiles_include_all_cores() {
        let (one, other) = (Latencies::default(), Latencies::default());
        (0..99).for_each(|_| one.record(2_000));
        other.record(9_000_000);
        let mut all = LatencySummary::of(&one);
        assert_eq!((all.quantile_ns(500), all.max_ns), (Some(2_000), 2_000));
        all.add(&LatencySummary::of(&other));
        assert_eq!((all.count, all.sum_ns, all.max_ns), (100, 99 * 2_000 + 9_000_000, 9_000_000));
        assert_eq!((all.quantile_ns(990), all.quantile_ns(991)), (Some(2_048), Some(9_000_000)));
        assert_eq!(LatencySummary::default().quantile_ns(500), None);
    }
}
