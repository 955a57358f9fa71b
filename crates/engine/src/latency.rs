//! Latencies of one table on one core, as cheap as they can be: an index, an addition and a comparison for each statement, in
//! memory that is there from the start.
//!
//! ```text
//!  bucket   0: below 1.25 µs   1: below 1.5 µs   …   4 buckets for each doubling   …   111: 240 s and above
//! ```
//!
//! A value is known within a quarter of it.

use std::cell::Cell;

/// 2^10 ns: the end of nothing, below which all is one bucket.
const FIRST_LOG2: u32 = 10;
/// 2^2 buckets a doubling.
const SUB_LOG2: u32 = 2;
/// 28 doublings of four: up to 2^38 ns.
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

/// The bucket of a duration.
fn bucket_of(ns: u64) -> usize {
    let ns = ns.max(1 << FIRST_LOG2);
    let log2 = ns.ilog2();
    let sub = (ns >> (log2 - SUB_LOG2)) as usize & ((1 << SUB_LOG2) - 1);
    ((((log2 - FIRST_LOG2) as usize) << SUB_LOG2) + sub).min(BUCKETS - 1)
}

/// The least duration, ns, above every one in the bucket.
fn end_of(bucket: usize) -> u64 {
    let (doubling, sub) = (bucket as u32 >> SUB_LOG2, bucket as u64 & ((1 << SUB_LOG2) - 1));
    ((1 << SUB_LOG2) + sub + 1) << (FIRST_LOG2 - SUB_LOG2 + doubling)
}

impl Latencies {
    /// Counts a statement.
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

/// Latencies of several cores together.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct LatencySummary {
    /// Empty as long as nothing was added.
    buckets: Vec<u64>,
    /// Statements.
    pub count: u64,
    /// The sum of their latencies, ns.
    pub sum_ns: u64,
    /// The greatest latency, ns.
    pub max_ns: u64,
}

impl LatencySummary {
    /// Those of one core.
    pub fn of(latencies: &Latencies) -> LatencySummary {
        let buckets: Vec<u64> = latencies.buckets.iter().map(Cell::get).collect();
        let count = buckets.iter().sum();
        let buckets = if count == 0 { Vec::new() } else { buckets };
        LatencySummary { buckets, count, sum_ns: latencies.sum_ns.get(), max_ns: latencies.max_ns.get() }
    }

    /// Adds those of another core.
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

    /// An upper bound of the latency that `per_mille` of a thousand statements did not exceed, ns; `None` without statements.
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
    fn every_duration_is_in_a_bucket_no_wider_than_a_quarter_of_it() {
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
    fn quantiles_are_those_of_all_cores() {
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
