//! Results second by second: loads, CPU, storage, disk and space.

use std::collections::BTreeMap;

use load::Second;
use serde::{Deserialize, Serialize};

/// One load over time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Series {
    /// Name of the load.
    pub(crate) load: String,
    /// Seconds.
    pub(crate) points: Vec<Point>,
}

/// One second of a load.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Point {
    /// Middle, seconds since 1970.
    pub(crate) at_s: f64,
    /// Length, seconds.
    pub(crate) seconds: f64,
    /// Requests answered a second.
    pub(crate) rate_per_s: f64,
    /// Median latency, µs.
    pub(crate) p50_us: f64,
    /// 99th percentile, µs.
    pub(crate) p99_us: f64,
}

impl Series {
    /// Returns the seconds of a run, without the short rests at the end of steps: their rate is
    /// noise.
    pub(crate) fn of(name: &str, seconds: &[Second]) -> Series {
        let whole = seconds.iter().filter(|second| second.seconds >= 0.3);
        let point = |second: &Second| Point {
            at_s: second.unix_ms as f64 / 1e3 + second.seconds / 2.0,
            seconds: second.seconds,
            rate_per_s: second.rate(),
            p50_us: second.all.p50_us,
            p99_us: second.all.p99_us,
        };
        Series { load: name.to_string(), points: whole.map(point).collect() }
    }

    /// Returns the sum of two loads that began together. Their percentiles are the greater ones.
    pub(crate) fn plus(mut self, other: &Series) -> Series {
        for (point, other) in self.points.iter_mut().zip(&other.points) {
            point.rate_per_s += other.rate_per_s;
            point.p50_us = point.p50_us.max(other.p50_us);
            point.p99_us = point.p99_us.max(other.p99_us);
        }
        self
    }

    /// Returns the mean rate over the seconds that are entirely within the phase. A phase may be
    /// too short for one: then over the parts of seconds within it.
    pub(crate) fn rate_between(&self, begin_s: f64, end_s: f64) -> f64 {
        let inside = |point: &Point| {
            let half = point.seconds / 2.0;
            ((point.at_s + half).min(end_s) - (point.at_s - half).max(begin_s)).max(0.0)
        };
        let mean = |missing_max: f64| {
            let (mut answered, mut seconds) = (0.0, 0.0);
            for point in self.points.iter().filter(|point| inside(point) >= point.seconds - missing_max) {
                answered += point.rate_per_s * inside(point);
                seconds += inside(point);
            }
            (seconds > 0.0).then(|| answered / seconds)
        };
        mean(0.05).or_else(|| mean(f64::INFINITY)).unwrap_or(0.0)
    }
}

/// CPU in one second, in cores.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct CpuPoint {
    /// Middle, seconds since 1970.
    pub(crate) at_s: f64,
    /// CPU of each level.
    pub(crate) levels: BTreeMap<String, f64>,
    /// CPU of the server's own work.
    pub(crate) groups: BTreeMap<String, f64>,
    /// CPU of the server's process.
    pub(crate) process: f64,
    /// Use of the server's cores by all processes.
    pub(crate) busy: f64,
}

/// Activity of storage in one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct StoragePoint {
    /// Middle, seconds since 1970.
    pub(crate) at_s: f64,
    /// Bytes a second that flushes wrote.
    pub(crate) flush_bytes_per_s: f64,
    /// Bytes a second that compactions wrote.
    pub(crate) compaction_bytes_per_s: f64,
    /// Bytes a second that the log wrote.
    pub(crate) log_bytes_per_s: f64,
    /// Memtables flushed.
    pub(crate) flushes: f64,
    /// Compactions that ended.
    pub(crate) compactions: f64,
    /// Bytes in memtables, including frozen ones.
    pub(crate) memtable_bytes: f64,
    /// Table files.
    pub(crate) files: f64,
    /// Bytes in table files.
    pub(crate) file_bytes: f64,
    /// Weight of flushes that the controllers chose. All users together have 1000.
    pub(crate) flush_weight: f64,
    /// Weight of compactions that the controllers chose.
    pub(crate) compaction_weight: f64,
    /// Estimate of the bytes that compactions still have to write.
    pub(crate) backlog_bytes: f64,
}

impl StoragePoint {
    /// Returns the bytes a second that flushes and compactions wrote.
    pub(crate) fn background_bytes_per_s(&self) -> f64 {
        self.flush_bytes_per_s + self.compaction_bytes_per_s
    }
}

/// Use of the disk in one second, by level.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct DiskPoint {
    /// Middle, seconds since 1970.
    pub(crate) at_s: f64,
    /// Bytes a second, read and written.
    pub(crate) bytes_per_s: BTreeMap<String, f64>,
    /// Mean number of requests in the queue.
    pub(crate) queued: BTreeMap<String, f64>,
}

/// Operations in flight in one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct InFlight {
    /// Middle, seconds since 1970.
    pub(crate) at_s: f64,
    /// Mean number.
    pub(crate) mean: f64,
    /// Largest number.
    pub(crate) most: f64,
}

/// Space of the table files at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SpacePoint {
    /// Seconds since 1970.
    pub(crate) at_s: f64,
    /// Bytes allocated on the disk.
    pub(crate) bytes: f64,
    /// Number of files.
    pub(crate) files: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_seconds_of_a_phase_count_if_it_has_any() {
        let point = |at_s: f64, rate_per_s: f64| Point { at_s, seconds: 1.0, rate_per_s, ..Point::default() };
        let points = vec![point(0.5, 1000.0), point(1.5, 10.0), point(2.5, 20.0), point(3.5, 1000.0)];
        let series = Series { load: "a".into(), points };
        assert_eq!(series.rate_between(1.0, 3.0), 15.0);
        assert_eq!(series.rate_between(0.8, 3.2), 15.0);
        assert_eq!(series.rate_between(1.5, 2.5), 15.0);
        assert_eq!(series.rate_between(9.0, 10.0), 0.0);
    }
}
