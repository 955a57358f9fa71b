//! Latency histograms with high dynamic range and three significant digits. One histogram covers
//! microseconds to an hour. Merging adds raw counts, since percentiles cannot be averaged.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Smallest latency distinguished, nanoseconds. Answers over loopback take about 20 µs.
const LOW_NS: u64 = 100;
/// Largest latency recorded, nanoseconds: one hour. Longer latencies count as one hour.
pub(crate) const HIGH_NS: u64 = 3_600_000_000_000;
/// Significant decimal digits.
const DIGITS: u8 = 3;

/// Kind of an operation in reports. Slices count as reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OpKind {
    /// Reads.
    Read = 0,
    /// Writes.
    Write = 1,
}

impl OpKind {
    /// Both kinds, in the order of their numbers.
    pub const ALL: [OpKind; 2] = [OpKind::Read, OpKind::Write];

    /// Returns `read` or `write`.
    pub fn name(self) -> &'static str {
        match self {
            OpKind::Read => "read",
            OpKind::Write => "write",
        }
    }
}

/// Returns an empty histogram with this crate's bounds.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(LOW_NS, HIGH_NS, DIGITS).expect("the bounds are constants that fit")
}

/// Adds `from` to `to`.
pub(crate) fn add(to: &mut Histogram<u64>, from: &Histogram<u64>) {
    to.add(from).expect("histograms of this crate share their bounds");
}

/// Histograms of both kinds.
#[derive(Clone, Debug)]
pub struct Latencies(pub(crate) [Histogram<u64>; 2]);

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies([histogram(), histogram()])
    }
}

impl Latencies {
    /// Counts one operation that took `ns`.
    pub(crate) fn record(&mut self, kind: OpKind, ns: u64) {
        self.0[kind as usize].saturating_record(ns);
    }

    /// Returns the raw histogram of one kind, in nanoseconds.
    pub fn of(&self, kind: OpKind) -> &Histogram<u64> {
        &self.0[kind as usize]
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Latencies) {
        for (to, from) in self.0.iter_mut().zip(&other.0) {
            add(to, from);
        }
    }

    /// Returns reads and writes in one histogram.
    pub(crate) fn both(&self) -> Histogram<u64> {
        let mut sum = self.0[0].clone();
        add(&mut sum, &self.0[1]);
        sum
    }
}

/// Summary of a histogram in microseconds. All fields are zero if it is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Mean, µs.
    pub mean_us: f64,
    /// Median, µs.
    pub p50_us: f64,
    /// 95th percentile, µs.
    pub p95_us: f64,
    /// 99th percentile, µs.
    pub p99_us: f64,
    /// 99.9th percentile, µs.
    pub p999_us: f64,
    /// 99.99th percentile, µs.
    pub p9999_us: f64,
    /// Maximum, µs.
    pub max_us: f64,
}

impl Latency {
    /// Summarizes a histogram in nanoseconds.
    pub fn of(histogram: &Histogram<u64>) -> Latency {
        if histogram.is_empty() {
            return Latency::default();
        }
        let us = |quantile: f64| histogram.value_at_quantile(quantile) as f64 / 1000.0;
        Latency {
            mean_us: histogram.mean() / 1000.0,
            p50_us: us(0.5),
            p95_us: us(0.95),
            p99_us: us(0.99),
            p999_us: us(0.999),
            p9999_us: us(0.9999),
            max_us: histogram.max() as f64 / 1000.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_exact_to_a_thousandth() {
        let mut histogram = histogram();
        for ns in (1..=10_000u64).map(|i| i * 1000) {
            histogram.saturating_record(ns);
        }
        let latency = Latency::of(&histogram);
        let near = |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 2e-3, "{found}");
        near(latency.mean_us, 5000.5);
        near(latency.p50_us, 5000.0);
        near(latency.p95_us, 9500.0);
        near(latency.p99_us, 9900.0);
        near(latency.p9999_us, 9999.0);
        near(latency.max_us, 10_000.0);
    }

    #[test]
    fn latencies_out_of_bounds_are_counted() {
        let mut latencies = Latencies::default();
        latencies.record(OpKind::Read, 0);
        latencies.record(OpKind::Write, u64::MAX);
        assert_eq!(latencies.both().len(), 2);
        assert!(Latency::of(latencies.of(OpKind::Write)).max_us >= 3.5e9);
        assert_eq!(Latency::of(&histogram()), Latency::default());
    }
}
