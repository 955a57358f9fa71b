//! What the demo found, as data: the table, the report page and the JSON file are three views of it, and the
//! first two can be had again from the third. What an older file does not hold is taken as not measured.

use std::collections::BTreeMap;

use load::{Latency, Report, Second};
use serde::{Deserialize, Serialize};

/// What a demo shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Subject {
    /// Transactions and analytics sharing a server.
    #[default]
    Levels,
    /// Writes beside flushes and compactions.
    Flush,
    /// The space a compaction needs.
    Compaction,
    /// Queries beside each other.
    Olap,
}

impl Subject {
    /// Every subject beside the first, by the word that asks for it.
    pub(super) const WORDS: [(&'static str, Subject); 3] =
        [("flush", Subject::Flush), ("compaction", Subject::Compaction), ("olap", Subject::Olap)];
}

/// Everything one demo found.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Outcome {
    /// Version of the program.
    pub(super) version: String,
    /// The command line, as it was given.
    pub(super) command: String,
    /// When it began, milliseconds since 1970.
    pub(super) started_unix_ms: u64,
    /// How long it took, seconds.
    pub(super) seconds: f64,
    /// Whether the short form was run.
    pub(super) quick: bool,
    /// What was shown; older files do not say, and are of service levels.
    pub(super) subject: Subject,
    /// `slices` (the default) or `published`.
    pub(super) shape: String,
    /// Where it ran.
    pub(super) machine: Machine,
    /// What a reader must know before believing the figures, as sentences.
    pub(super) notes: Vec<String>,
    /// What the server can do for one kind of load alone, in closed loops; of writes for long.
    pub(super) capacity: Capacity,
    /// The experiments, in the order they ran.
    pub(super) chapters: Vec<Chapter>,
    /// The figures beside those published; filled in by the table.
    pub(super) comparison: Vec<super::compare::Row>,
}

impl Outcome {
    /// Whether something made the run say something else than it seems; a note tells what.
    pub(super) fn invalid(&self) -> bool {
        self.notes.iter().any(|note| note.starts_with("Invalid"))
    }

    /// The chapter with this id.
    pub(super) fn chapter(&self, id: &str) -> Option<&Chapter> {
        self.chapters.iter().find(|chapter| chapter.id == id)
    }
}

/// The machine, as far as it explains figures.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Machine {
    /// Processor model, when the system tells.
    pub(super) model: String,
    /// Kernel release.
    pub(super) kernel: String,
    /// Cores of the server.
    pub(super) server_cores: Vec<usize>,
    /// Cores of the loads.
    pub(super) load_cores: Vec<usize>,
}

/// Closed loops alone.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Capacity {
    /// Single rows by key.
    pub(super) reads: Option<Run>,
    /// What the batch load sends.
    pub(super) batch: Option<Run>,
    /// What the interactive load is to send.
    pub(super) interactive: Paced,
    /// Rows written.
    pub(super) writes: Option<Run>,
}

/// The rate of an open loop.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Paced {
    /// Requests a second.
    pub(super) per_s: f64,
    /// The part of the server's CPU that they took when tried, where they were.
    pub(super) cpu: Option<f64>,
}

/// One load over its whole run (or one step of it).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Run {
    /// Its name.
    pub(super) load: String,
    /// Requests answered a second.
    pub(super) throughput_per_s: f64,
    /// Requests a second asked for; nothing in a closed loop.
    pub(super) asked_per_s: Option<f64>,
    /// How long its requests took.
    pub(super) latency: Latency,
    /// Requests answered with an error.
    pub(super) errors: u64,
    /// Sent later than due because the limit on requests in flight was reached.
    pub(super) held_back: u64,
    /// Due and never sent.
    pub(super) unsent: u64,
    /// CPU of the busiest generator thread, as a share of its core.
    pub(super) generator_cpu: f64,
}

impl Run {
    /// Step `index` of a report, if it got that far.
    pub(super) fn of(name: &str, report: &Report, index: usize) -> Option<Run> {
        let step = report.steps.get(index)?;
        let latency = step.reads.as_ref().or(step.writes.as_ref()).map(|operations| operations.latency);
        Some(Run {
            load: name.to_string(),
            throughput_per_s: step.throughput_per_s,
            asked_per_s: step.rate_per_s,
            latency: latency.unwrap_or_default(),
            errors: step.errors,
            held_back: step.held_back,
            unsent: step.unsent,
            generator_cpu: step.generator_cpu,
        })
    }
}

/// One experiment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Chapter {
    /// A short name that programs may rely on.
    pub(super) id: String,
    /// Its heading.
    pub(super) title: String,
    /// What was done and what to look for, in a sentence or two.
    pub(super) what: String,
    /// Its phases, in order.
    pub(super) windows: Vec<Window>,
    /// Loads over their whole run, where the phases do not tell them apart.
    pub(super) runs: Vec<Run>,
    /// Each load second by second.
    pub(super) series: Vec<Series>,
    /// CPU by level, sample by sample.
    pub(super) cpu: Vec<CpuPoint>,
    /// What storage did meanwhile, where that is the subject.
    pub(super) storage: Vec<StoragePoint>,
    /// The space of the data folder's tables over time, likewise.
    pub(super) space: Vec<SpacePoint>,
}

impl Chapter {
    /// The phase with this id.
    pub(super) fn window(&self, id: &str) -> Option<&Window> {
        self.windows.iter().find(|window| window.id == id)
    }
}

/// One phase of an experiment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Window {
    /// A short name that programs may rely on.
    pub(super) id: String,
    /// What a reader sees above the chart.
    pub(super) label: String,
    /// When it began, seconds since 1970.
    pub(super) begin_s: f64,
    /// When it ended, seconds since 1970.
    pub(super) end_s: f64,
    /// Throughput of each load and, where measured for this phase alone, its latency.
    pub(super) loads: Vec<WindowLoad>,
    /// CPU meanwhile.
    pub(super) cpu: Cpu,
}

impl Window {
    /// Whether several loads wanted the server at once, so that it must have been full.
    pub(super) fn contended(&self) -> bool {
        self.loads.iter().filter(|load| load.throughput_per_s > 0.0).count() > 1
    }

    /// One load in this phase.
    pub(super) fn load(&self, load: &str) -> Option<&WindowLoad> {
        self.loads.iter().find(|found| found.load == load)
    }

    /// Throughput of one load, a second.
    pub(super) fn throughput(&self, load: &str) -> Option<f64> {
        self.load(load).map(|found| found.throughput_per_s)
    }

    /// Latency of one load.
    pub(super) fn latency(&self, load: &str) -> Option<Latency> {
        self.load(load).and_then(|found| found.latency)
    }
}

/// One load in one phase.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct WindowLoad {
    /// Its name.
    pub(super) load: String,
    /// Requests answered a second.
    pub(super) throughput_per_s: f64,
    /// Requests a second asked for; nothing in a closed loop.
    pub(super) asked_per_s: Option<f64>,
    /// Latency in this phase alone; in an open loop from the moment a request was due.
    pub(super) latency: Option<Latency>,
    /// The same from the moment it was sent, as tools without a schedule count.
    pub(super) from_sent: Option<Latency>,
    /// Requests answered with an error.
    pub(super) errors: u64,
    /// Sent later than due because the limit on requests in flight was reached.
    pub(super) held_back: u64,
    /// CPU of the busiest thread that sends it, as a share of its core.
    pub(super) generator_cpu: f64,
    /// How late the sender itself was, 99th percentile, µs; part of the latency of an open loop.
    pub(super) generator_lag_p99_us: f64,
    /// Each query by itself, where the load is of queries.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) queries: Vec<OfQuery>,
}

/// One query of a load in one phase.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct OfQuery {
    /// Its name, as `q03`.
    pub(super) name: String,
    /// How often it was answered.
    pub(super) count: u64,
    /// How long it took.
    pub(super) latency: Latency,
}

/// Who used the server's cores in one phase. All in cores: 1 is one core all the time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Cpu {
    /// By service level, both lanes, as the server counts.
    pub(super) levels: BTreeMap<String, f64>,
    /// The server's own work, likewise: log, flush, compaction, control.
    pub(super) groups: BTreeMap<String, f64>,
    /// The whole server process, as the system counts.
    pub(super) process: f64,
    /// The server's cores, by whomever they were used.
    pub(super) busy: f64,
    /// How many cores the server has.
    pub(super) cores: usize,
    /// The cores of the loads, by whomever they were used.
    pub(super) loads_busy: f64,
    /// What the server itself says of the requests of each level.
    pub(super) served: BTreeMap<String, Served>,
}

impl Cpu {
    /// A level's part of all the server's cores.
    pub(super) fn part(&self, level: &str) -> Option<f64> {
        self.levels.get(level).map(|used| used / self.cores.max(1) as f64)
    }
}

/// Where a level's requests spent their time in the server, µs, as finely as its histograms tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Served {
    /// Mean time of service, without waiting.
    pub(super) service_mean_us: f64,
    /// Its 99th percentile.
    pub(super) service_p99_us: f64,
    /// Mean time in the queue before it.
    pub(super) queue_mean_us: f64,
    /// Its 99th percentile.
    pub(super) queue_p99_us: f64,
}

/// One load, drawn over time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Series {
    /// The load.
    pub(super) load: String,
    /// Its seconds.
    pub(super) points: Vec<Point>,
}

/// One second of a load.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Point {
    /// Its middle, seconds since 1970.
    pub(super) at_s: f64,
    /// Its length, seconds.
    pub(super) seconds: f64,
    /// Requests answered a second.
    pub(super) rate_per_s: f64,
    /// Median latency, µs.
    pub(super) p50_us: f64,
    /// 99th percentile, µs.
    pub(super) p99_us: f64,
}

impl Series {
    /// The seconds of a run. Slivers at the end of a step are left out: their rate is mostly noise.
    pub(super) fn of(name: &str, seconds: &[Second]) -> Series {
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

    /// Mean rate over the seconds that lie in the phase, those at its edges left out.
    pub(super) fn rate_between(&self, begin_s: f64, end_s: f64) -> f64 {
        let inside = |point: &&Point| {
            let half = point.seconds / 2.0;
            point.at_s - half >= begin_s - 0.05 && point.at_s + half <= end_s + 0.05
        };
        let (mut answered, mut seconds) = (0.0, 0.0);
        for point in self.points.iter().filter(inside) {
            answered += point.rate_per_s * point.seconds;
            seconds += point.seconds;
        }
        if seconds > 0.0 { answered / seconds } else { 0.0 }
    }
}

/// CPU of each level around one moment, in cores.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct CpuPoint {
    /// Seconds since 1970.
    pub(super) at_s: f64,
    /// By level.
    pub(super) levels: BTreeMap<String, f64>,
    /// The server's own work.
    pub(super) groups: BTreeMap<String, f64>,
    /// The whole server process.
    pub(super) process: f64,
    /// The server's cores, by whomever they were used.
    pub(super) busy: f64,
}

/// What storage did in one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct StoragePoint {
    /// Its middle, seconds since 1970.
    pub(super) at_s: f64,
    /// Bytes a second that flushes wrote.
    pub(super) flush_bytes_per_s: f64,
    /// Bytes a second that compactions wrote.
    pub(super) compaction_bytes_per_s: f64,
    /// Bytes a second that the log wrote.
    pub(super) log_bytes_per_s: f64,
    /// Memtables flushed.
    pub(super) flushes: f64,
    /// Compactions that ended.
    pub(super) compactions: f64,
    /// Bytes in memtables, those that wait included.
    pub(super) memtable_bytes: f64,
    /// Table files.
    pub(super) files: f64,
    /// Bytes in table files.
    pub(super) file_bytes: f64,
    /// What flushes weigh beside all users together, who weigh 1000, as the controllers say.
    pub(super) flush_weight: f64,
    /// What compactions weigh, likewise.
    pub(super) compaction_weight: f64,
    /// Bytes that compaction has yet to write, as it estimates.
    pub(super) backlog_bytes: f64,
}

/// The space that table files took at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct SpacePoint {
    /// Seconds since 1970.
    pub(super) at_s: f64,
    /// Bytes allocated on the disk.
    pub(super) bytes: f64,
    /// Files.
    pub(super) files: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_seconds_inside_a_phase_count() {
        let point = |at_s: f64, rate_per_s: f64| Point { at_s, seconds: 1.0, rate_per_s, ..Point::default() };
        let points = vec![point(0.5, 1000.0), point(1.5, 10.0), point(2.5, 20.0), point(3.5, 1000.0)];
        let series = Series { load: "a".into(), points };
        assert_eq!(series.rate_between(1.0, 3.0), 15.0);
        assert_eq!(series.rate_between(0.8, 3.2), 15.0);
        assert_eq!(series.rate_between(9.0, 10.0), 0.0);
    }
}
