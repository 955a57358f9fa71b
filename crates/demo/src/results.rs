//! Results of a demo, as data. The table, the report and the JSON file are three views of it, and
//! the first two can be rendered again from the third. A value that an older file does not contain
//! counts as not measured.

use std::collections::BTreeMap;

use clap::ValueEnum;
use load::{Latency, Report, Second, StepReport};
use serde::{Deserialize, Serialize};

/// Subject of a demo.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Subject {
    /// Transactions and analytics, without and with service levels.
    #[default]
    Levels,
    /// Writes beside flushes and compactions, and without.
    Flush,
    /// The space that a major compaction needs.
    Compaction,
    /// Queries beside queries: shares, a hard limit, latency.
    Olap,
    /// Commands in order over changing keys: partitions in parallel, and batches.
    Batching,
    /// More load than the server can do, without and with max_concurrency = 'auto'.
    Overload,
    /// Large data next to small: rates, writes, shares, levels, cache, ingest.
    Petabyte,
}

/// All results of one demo.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct DemoResults {
    /// Version of the program.
    pub(crate) version: String,
    /// Command line.
    pub(crate) command: String,
    /// Start, milliseconds since 1970.
    pub(crate) started_unix_ms: u64,
    /// Duration, seconds.
    pub(crate) seconds: f64,
    /// True for the short form.
    pub(crate) quick: bool,
    /// Subject. Older files have none and are about service levels.
    pub(crate) subject: Subject,
    /// `slices` (the default) or `published`.
    pub(crate) shape: String,
    /// Machine of the run.
    pub(crate) machine: Machine,
    /// Sentences that a reader must know before relying on the results.
    pub(crate) notes: Vec<String>,
    /// Capacity of the server for one kind of load alone.
    pub(crate) capacity: Capacity,
    /// Experiments, in their order.
    pub(crate) chapters: Vec<Chapter>,
    /// Results compared with goals and published results. Computed from the rest.
    pub(crate) comparison: Vec<ComparisonRow>,
}

impl DemoResults {
    /// True if a note calls results invalid.
    pub(crate) fn invalid(&self) -> bool {
        self.notes.iter().any(|note| note.starts_with("Invalid"))
    }

    /// Returns the chapter with this id.
    pub(crate) fn chapter(&self, id: &str) -> Option<&Chapter> {
        self.chapters.iter().find(|chapter| chapter.id == id)
    }
}

/// Row of the comparison.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ComparisonRow {
    /// Name of the result.
    pub(crate) what: String,
    /// Measured value.
    pub(crate) seen: String,
    /// Values that it was computed from.
    pub(crate) detail: String,
    /// Value published for other systems.
    pub(crate) published: String,
    /// Goal.
    pub(crate) goal: String,
    /// Measured value as a number.
    pub(crate) value: f64,
    /// Verdict on the goal. `None` without a goal, or if the run does not allow a verdict.
    pub(crate) met: Option<bool>,
}

impl ComparisonRow {
    /// Returns the verdict in words.
    pub(crate) fn verdict(&self) -> &'static str {
        match self.met {
            Some(true) => "met",
            Some(false) => "not met",
            None if self.goal.is_empty() => "",
            None => "not judged",
        }
    }
}

/// Properties of the machine that explain results.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Machine {
    /// Processor model, if the system reports it.
    pub(crate) model: String,
    /// Kernel release.
    pub(crate) kernel: String,
    /// Cores of the server.
    pub(crate) server_cores: Vec<usize>,
    /// Cores of the loads.
    pub(crate) load_cores: Vec<usize>,
}

/// Capacity for loads that run alone.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Capacity {
    /// Single rows by key.
    pub(crate) reads: Option<LoadRun>,
    /// Requests of the batch load.
    pub(crate) batch: Option<LoadRun>,
    /// Rate of the interactive load.
    pub(crate) interactive: Paced,
    /// Row writes, including the time that flushes and compactions need afterwards.
    pub(crate) writes: Option<LoadRun>,
}

/// Rate of an open loop.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Paced {
    /// Requests a second.
    pub(crate) per_s: f64,
    /// Fraction of the server's CPU that the rate took, if it was tried.
    pub(crate) cpu: Option<f64>,
}

/// One load over its whole run, or over one step of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct LoadRun {
    /// Its name.
    pub(crate) load: String,
    /// Requests answered a second.
    pub(crate) throughput_per_s: f64,
    /// Requested rate, a second. `None` in a closed loop.
    pub(crate) asked_per_s: Option<f64>,
    /// Latency of its requests.
    pub(crate) latency: Latency,
    /// Requests answered with an error.
    pub(crate) errors: u64,
    /// Requests sent late because the limit of requests in flight was reached.
    pub(crate) held_back: u64,
    /// Requests that were due and not sent.
    pub(crate) unsent: u64,
    /// CPU of the busiest generator thread, as a fraction of its core.
    pub(crate) generator_cpu: f64,
}

impl LoadRun {
    /// Returns step `index` of a report. `None` if the load ended before it.
    pub(crate) fn of(name: &str, report: &Report, index: usize) -> Option<LoadRun> {
        let step = report.steps.get(index)?;
        let latency = step.reads.as_ref().or(step.writes.as_ref()).map(|operations| operations.latency);
        Some(LoadRun {
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
pub(crate) struct Chapter {
    /// Stable short name for programs.
    pub(crate) id: String,
    /// Heading.
    pub(crate) title: String,
    /// Description of the experiment and its result.
    pub(crate) what: String,
    /// Phases, in order.
    pub(crate) windows: Vec<Window>,
    /// Loads over their whole run, for loads without a latency in each phase.
    pub(crate) runs: Vec<LoadRun>,
    /// Each load, second by second.
    pub(crate) series: Vec<Series>,
    /// CPU by level, second by second.
    pub(crate) cpu: Vec<CpuPoint>,
    /// Activity of storage, second by second, if it is the subject.
    pub(crate) storage: Vec<StoragePoint>,
    /// Use of the disk by level, second by second, if it is the subject.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) disk: Vec<DiskPoint>,
    /// Space of the table files over time, if it is the subject.
    pub(crate) space: Vec<SpacePoint>,
    /// Operations of the batcher in each phase, if it is the subject.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) batches: Vec<Batches>,
    /// Each offered rate without and with a limit, if overload is the subject.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) offered: Vec<Offered>,
    /// Operations in flight, second by second.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) in_flight: Vec<InFlight>,
    /// Concurrency that operations in flight should not exceed, if it was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) most_useful: Option<MostUseful>,
}

/// Concurrency that a ladder found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct MostUseful {
    /// N*, or the end of the linear region if no peak was seen.
    pub(crate) n: f64,
    /// True for N*.
    pub(crate) is_peak: bool,
    /// Largest concurrency of the ladder.
    pub(crate) up_to: u64,
}

impl MostUseful {
    /// Returns the concurrency in words.
    pub(crate) fn label(&self) -> String {
        match self.is_peak {
            true => format!("N* = {:.0}", self.n),
            false => format!("linear up to {:.0}; no retreat seen up to {}", self.n, self.up_to),
        }
    }
}

impl Chapter {
    /// Returns the phase with this id.
    pub(crate) fn window(&self, id: &str) -> Option<&Window> {
        self.windows.iter().find(|window| window.id == id)
    }

    /// Returns the begin of the first phase and the end of the last.
    pub(crate) fn ends(&self) -> (f64, f64) {
        let (first, last) = (self.windows.first(), self.windows.last());
        (first.map_or(0.0, |window| window.begin_s), last.map_or(0.0, |window| window.end_s))
    }

    /// Returns the mean of a value of storage in the phases with this label.
    pub(crate) fn storage_mean(&self, label: &str, value: fn(&StoragePoint) -> f64) -> f64 {
        let is_inside = |point: &&StoragePoint| {
            let mut phases = self.windows.iter().filter(|window| window.label == label);
            phases.any(|window| (window.begin_s..window.end_s).contains(&point.at_s))
        };
        let values: Vec<f64> = self.storage.iter().filter(is_inside).map(value).collect();
        values.iter().sum::<f64>() / values.len().max(1) as f64
    }

    /// Returns the sum of a value of storage over the seconds of a phase.
    pub(crate) fn storage_sum(&self, window: &Window, value: fn(&StoragePoint) -> f64) -> f64 {
        let phase = window.begin_s..window.end_s;
        self.storage.iter().filter(|point| phase.contains(&point.at_s)).map(value).sum()
    }

    /// Returns the space that a compaction took beyond the space at its start, as a fraction of it.
    pub(crate) fn temporary_space(&self) -> Option<f64> {
        let before = self.space.first()?.bytes;
        let most = self.space.iter().map(|point| point.bytes).fold(0.0, f64::max);
        (before > 0.0).then(|| most / before - 1.0)
    }
}

/// One phase of an experiment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Window {
    /// Stable short name for programs.
    pub(crate) id: String,
    /// Label above the chart.
    pub(crate) label: String,
    /// Begin, seconds since 1970.
    pub(crate) begin_s: f64,
    /// End, seconds since 1970.
    pub(crate) end_s: f64,
    /// Loads in this phase.
    pub(crate) loads: Vec<WindowLoad>,
    /// CPU in this phase.
    pub(crate) cpu: Cpu,
}

impl Window {
    /// True if several loads ran at once, so that the server should have been full.
    pub(crate) fn contended(&self) -> bool {
        self.loads.iter().filter(|load| load.throughput_per_s > 0.0).count() > 1
    }

    /// Returns a load of this phase.
    pub(crate) fn load(&self, load: &str) -> Option<&WindowLoad> {
        self.loads.iter().find(|found| found.load == load)
    }

    /// Returns the throughput of a load, a second.
    pub(crate) fn throughput(&self, load: &str) -> Option<f64> {
        self.load(load).map(|found| found.throughput_per_s)
    }

    /// Returns the latency of a load.
    pub(crate) fn latency(&self, load: &str) -> Option<Latency> {
        self.load(load).and_then(|found| found.latency)
    }
}

/// One load in one phase.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct WindowLoad {
    /// Its name.
    pub(crate) load: String,
    /// Requests answered a second.
    pub(crate) throughput_per_s: f64,
    /// Requested rate, a second. `None` in a closed loop.
    pub(crate) asked_per_s: Option<f64>,
    /// Latency in this phase. In an open loop it starts when a request is due. `None` if it was
    /// measured over all phases only.
    pub(crate) latency: Option<Latency>,
    /// Latency from the moment of sending, as tools without a schedule measure it.
    pub(crate) from_sent: Option<Latency>,
    /// Requests answered with an error.
    pub(crate) errors: u64,
    /// Requests sent late because the limit of requests in flight was reached.
    pub(crate) held_back: u64,
    /// CPU of the busiest generator thread, as a fraction of its core.
    pub(crate) generator_cpu: f64,
    /// Delay of the generator itself, 99th percentile, µs. It is part of the latency of an open
    /// loop.
    pub(crate) generator_lag_p99_us: f64,
    /// Each query, if the load consists of queries.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) queries: Vec<OfQuery>,
}

impl WindowLoad {
    /// Returns the load in a phase that is one step of its report. `run` is that step's.
    pub(crate) fn of(run: LoadRun, step: &StepReport) -> WindowLoad {
        WindowLoad {
            load: run.load,
            throughput_per_s: run.throughput_per_s,
            asked_per_s: run.asked_per_s,
            latency: Some(run.latency),
            from_sent: Some(step.from_sent),
            errors: run.errors,
            held_back: run.held_back,
            generator_cpu: run.generator_cpu,
            generator_lag_p99_us: step.generator_lag_p99_us,
            queries: Vec::new(),
        }
    }
}

/// One query of a load in one phase.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct OfQuery {
    /// Name, such as `q03`.
    pub(crate) name: String,
    /// Number of answers.
    pub(crate) count: u64,
    /// Latency.
    pub(crate) latency: Latency,
}

/// CPU in one phase, in cores: 1 is one core all the time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Cpu {
    /// CPU of each service level on both lanes, as the server counts.
    pub(crate) levels: BTreeMap<String, f64>,
    /// CPU of the server's own work, such as log, flush, compaction and control.
    pub(crate) groups: BTreeMap<String, f64>,
    /// CPU of the server's process, as the kernel counts.
    pub(crate) process: f64,
    /// Use of the server's cores by all processes.
    pub(crate) busy: f64,
    /// Number of the server's cores.
    pub(crate) cores: usize,
    /// Use of the cores of the loads by all processes.
    pub(crate) loads_busy: f64,
    /// Times of the requests of each level, as the server measures them.
    pub(crate) served: BTreeMap<String, Served>,
}

impl Cpu {
    /// Returns the CPU of a level as a fraction of the server's cores.
    pub(crate) fn part(&self, level: &str) -> Option<f64> {
        self.levels.get(level).map(|used| used / self.cores.max(1) as f64)
    }

    /// Returns the CPU of the server's process as a fraction of its cores.
    pub(crate) fn server_part(&self) -> f64 {
        self.process / self.cores.max(1) as f64
    }

    /// Returns the use of the server's cores by all processes, as a fraction.
    pub(crate) fn busy_part(&self) -> f64 {
        self.busy / self.cores.max(1) as f64
    }
}

/// Times of a level's requests inside the server, µs, with the resolution of its histograms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Served {
    /// Mean service time, without the time in the queue.
    pub(crate) service_mean_us: f64,
    /// 99th percentile of the service time.
    pub(crate) service_p99_us: f64,
    /// Mean time in the queue.
    pub(crate) queue_mean_us: f64,
    /// 99th percentile of the time in the queue.
    pub(crate) queue_p99_us: f64,
}

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

/// Operations of a batcher in one phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Batches {
    /// Id of the phase.
    pub(crate) window: String,
    /// Number of keys in use.
    pub(crate) keys: u64,
    /// Commands that were due during the phase and did not get a place until its end.
    pub(crate) left: u64,
    /// Reads and writes done.
    pub(crate) operations: u64,
    /// Reads and writes that the commands asked for.
    pub(crate) asked: u64,
    /// Mean number of reads and writes in flight.
    pub(crate) in_flight_mean: f64,
    /// Largest number of reads and writes that may be in flight.
    pub(crate) in_flight_limit: u64,
    /// Largest number of reads and writes in flight.
    pub(crate) in_flight_most: u64,
    /// Rows compared with the result of running the commands one after the other.
    pub(crate) rows: u64,
    /// Rows and outputs that differ from it.
    pub(crate) wrong: u64,
}

impl Batches {
    /// Returns the reads and writes done, as a fraction of those asked for.
    pub(crate) fn part(&self) -> f64 {
        self.operations as f64 / self.asked.max(1) as f64
    }
}

/// One offered rate in the demo of overload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Offered {
    /// Offered rate, as a fraction of capacity. Zero: the steady load is alone.
    pub(crate) part: f64,
    /// True with the limiter.
    pub(crate) is_limited: bool,
    /// Requests due a second.
    pub(crate) due_per_s: f64,
    /// Answers within the time limit a second.
    pub(crate) goodput_per_s: f64,
    /// Answers a second, late ones included.
    pub(crate) answered_per_s: f64,
    /// Requests a second that the server refused.
    pub(crate) refused_per_s: f64,
    /// Requests a second that failed otherwise, as with a time limit that the server enforces.
    pub(crate) failed_per_s: f64,
    /// Requests a second that their clients did not send, since they had been told to wait.
    pub(crate) turned_away_per_s: f64,
    /// Requests a second that were not sent, since too many were in flight.
    pub(crate) unsent_per_s: f64,
    /// Response time of what was answered, from when a request was due.
    pub(crate) latency: Latency,
    /// The same of the steady load in the other level.
    pub(crate) steady: Latency,
    /// Requests in flight, mean.
    pub(crate) in_flight: f64,
    /// CPU of the server for each answer of both loads, µs, by its own counters.
    pub(crate) cpu_us: f64,
    /// CPU of the busiest generator thread, as a fraction of its core.
    pub(crate) generator_cpu: f64,
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

    #[test]
    fn mean_of_storage_is_over_phases_with_the_label() {
        let window = |label: &str, begin_s: f64| Window {
            label: label.into(),
            begin_s,
            end_s: begin_s + 2.0,
            ..Window::default()
        };
        let point = |at_s: f64, flush_bytes_per_s: f64| StoragePoint {
            at_s,
            flush_bytes_per_s,
            ..StoragePoint::default()
        };
        let chapter = Chapter {
            windows: vec![window("a", 0.0), window("b", 4.0)],
            storage: vec![point(0.5, 2e6), point(1.5, 4e6), point(4.5, 0.0), point(7.5, 9e9)],
            ..Chapter::default()
        };
        let mean = |label| chapter.storage_mean(label, StoragePoint::background_bytes_per_s);
        assert_eq!(["a", "b", "c"].map(mean), [3e6, 0.0, 0.0]);
    }

    #[test]
    fn temporary_space_is_the_maximum_above_the_start() {
        let of = |bytes: &[f64]| {
            let point = |bytes: &f64| SpacePoint { bytes: *bytes, ..SpacePoint::default() };
            Chapter { space: bytes.iter().map(point).collect(), ..Chapter::default() }.temporary_space()
        };
        assert_eq!(of(&[100.0, 150.0, 125.0, 60.0]), Some(0.5));
        assert_eq!(of(&[100.0, 60.0]), Some(0.0));
        assert_eq!(of(&[]), None);
    }
}
