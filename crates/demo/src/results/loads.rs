//! Results of loads: over a whole run, in one phase, and at one offered rate.

use load::{Latency, Report, StepReport};
use serde::{Deserialize, Serialize};

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
