//! Histogram of durations with one writer and many readers. Buckets are log-linear: a value is
//! known within 6 % (3 % from the middle of a bucket), independent of its size.
//!
//! ```text
//!   value in units of 32 ns:  0 1 2 … 15 │ 16 17 … 31 │ 32 34 … 62 │ 64 68 … │ …  2^31 (69 s) and above: the last
//!   bucket                    0 1 2 … 15 │ 16 17 … 31 │ 32 33 … 47 │ …         16 buckets for each doubling
//! ```

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// One unit is 2^5 = 32 ns, 1/30 of the shortest request worth timing.
const UNIT_LOG2: u32 = 5;
/// 2^4 buckets per doubling.
const SUB_LOG2: u32 = 4;
const SUBS: usize = 1 << SUB_LOG2;
/// Doublings above the linear part, up to 2^31 units.
const DOUBLINGS: usize = 27;
/// 16 + 27 × 16 buckets of 8 bytes: 3.5 KiB.
pub(crate) const BUCKETS: usize = SUBS + DOUBLINGS * SUBS;

/// Histogram with one writer and many readers.
pub(crate) struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
}

/// Adds to a counter that only this thread writes. A plain load and store avoid a locked
/// instruction.
pub(crate) fn count(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(by), Relaxed);
}

/// Returns the bucket of a duration.
fn bucket_of(ns: u64) -> usize {
    let value = ns >> UNIT_LOG2;
    if value < SUBS as u64 {
        return value as usize;
    }
    let shift = value.ilog2() - SUB_LOG2;
    let bucket = SUBS * (shift as usize) + (value >> shift) as usize;
    bucket.min(BUCKETS - 1)
}

/// Returns the exclusive upper bound of a bucket, ns.
fn end_of(bucket: usize) -> u64 {
    if bucket < SUBS {
        return (bucket as u64 + 1) << UNIT_LOG2;
    }
    let shift = (bucket / SUBS - 1) as u32;
    ((bucket % SUBS + SUBS + 1) as u64) << (shift + UNIT_LOG2)
}

impl Histogram {
    pub(crate) fn new() -> Histogram {
        Histogram { buckets: [const { AtomicU64::new(0) }; BUCKETS], sum_ns: AtomicU64::new(0) }
    }

    pub(crate) fn record(&self, ns: u64) {
        count(&self.buckets[bucket_of(ns)], 1);
        count(&self.sum_ns, ns);
    }

    /// Returns the sum of all durations in ns, and their number.
    pub(crate) fn sum_and_count(&self) -> (u64, u64) {
        let count = self.buckets.iter().map(|bucket| bucket.load(Relaxed)).sum();
        (self.sum_ns.load(Relaxed), count)
    }
}

/// Sum of the histograms of several cores.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Merged {
    /// Empty until a value is added, so that unused levels cost nothing.
    buckets: Vec<u64>,
    pub(crate) sum_ns: u64,
    pub(crate) count: u64,
}

impl Merged {
    pub(crate) fn add(&mut self, histogram: &Histogram) {
        self.buckets.resize(BUCKETS, 0);
        for (sum, bucket) in self.buckets.iter_mut().zip(&histogram.buckets) {
            let bucket = bucket.load(Relaxed);
            *sum += bucket;
            self.count += bucket;
        }
        self.sum_ns = self.sum_ns.wrapping_add(histogram.sum_ns.load(Relaxed));
    }

    /// Returns the values that were added since `before`, a former state of the same histograms.
    pub(crate) fn since(mut self, before: &Merged) -> Merged {
        let former = before.buckets.iter().chain(std::iter::repeat(&0));
        self.buckets.iter_mut().zip(former).for_each(|(now, before)| *now = now.saturating_sub(*before));
        self.sum_ns = self.sum_ns.wrapping_sub(before.sum_ns);
        self.count = self.buckets.iter().sum();
        self
    }

    /// Returns a quantile, given in millionths: the upper bound of its bucket, ns. 0 without
    /// values.
    pub(crate) fn quantile_ns(&self, ppm: u64) -> u64 {
        let wanted = (u128::from(self.count) * u128::from(ppm)).div_ceil(1_000_000) as u64;
        let mut below = 0;
        let reached = self.buckets.iter().position(|count| {
            below += count;
            below >= wanted
        });
        reached.filter(|_| self.count > 0).map_or(0, end_of)
    }

    /// Returns upper bounds in ns with the number of values below each, four per doubling, from 1
    /// µs on.
    pub(crate) fn cumulative(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        const STEP: usize = SUBS / 4;
        let mut below = 0;
        let steps = self.buckets.chunks_exact(STEP).enumerate().map(move |(step, buckets)| {
            below += buckets.iter().sum::<u64>();
            (end_of(step * STEP + STEP - 1), below)
        });
        steps.filter(|&(end_ns, _)| end_ns >= 1024)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_width_is_at_most_a_sixteenth_of_the_duration() {
        for ns in (0..40_000).chain((0..36).flat_map(|e| [(1 << e) - 1, 1 << e, (1 << e) + (1 << e) / 3])) {
            let bucket = bucket_of(ns);
            let start = if bucket == 0 { 0 } else { end_of(bucket - 1) };
            assert!(start <= ns && ns < end_of(bucket), "{ns} in {start}..{}", end_of(bucket));
            assert!(end_of(bucket) - start <= (ns / 16).max(32), "{ns}: {}", end_of(bucket) - start);
        }
        assert_eq!((bucket_of((1 << 36) - 1), bucket_of(u64::MAX)), (BUCKETS - 1, BUCKETS - 1));
    }

    #[test]
    fn quantiles_are_those_of_the_values_since() {
        let histogram = Histogram::new();
        let merged = || {
            let mut merged = Merged::default();
            merged.add(&histogram);
            merged
        };
        (0..1000).for_each(|_| histogram.record(50_000_000));
        let before = merged();
        (0..990).for_each(|_| histogram.record(1_000_000));
        (0..10).for_each(|_| histogram.record(8_000_000));
        let since = merged().since(&before);
        assert_eq!((since.count, since.sum_ns), (1000, 990_000_000 + 80_000_000));
        let near = |ppm, ns: u64| (ns..ns + ns / 15).contains(&since.quantile_ns(ppm));
        assert!(near(500_000, 1_000_000) && near(990_000, 1_000_000) && near(991_000, 8_000_000));
        assert_eq!(Merged::default().since(&Merged::default()).quantile_ns(990_000), 0);
    }

    #[test]
    fn histograms_of_cores_add_up() {
        let (one, other) = (Histogram::new(), Histogram::new());
        (0..100).for_each(|_| one.record(2_000));
        (0..50).for_each(|_| other.record(9_000_000));
        let mut merged = Merged::default();
        merged.add(&one);
        merged.add(&other);
        assert_eq!((merged.count, merged.sum_ns), (150, 200_000 + 450_000_000));
        let at = |bound_ns| merged.cumulative().find(|&(end, _)| end == bound_ns).unwrap().1;
        assert_eq!((at(1536), at(2048), at(1 << 23), at(1 << 24)), (0, 100, 100, 150));
        assert_eq!(merged.cumulative().last().unwrap().1, 150);
    }
}
