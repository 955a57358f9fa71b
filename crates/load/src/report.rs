//! Results of a run as data: per step the latencies, throughput and failures, then the seconds by
//! wall clock, and the CPU use of the generator itself.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::arrivals::Stretch;
use crate::clock::RunClock;
use crate::histogram::{Latencies, Latency, OpKind, add, histogram};
use crate::scrape::{Scraper, ServiceTime};
use crate::spec::{Pacing, Spec, Workload};
use crate::tally::Tally;
use crate::timeline::Second;

/// Share of a core above which a generator thread distorts its own measurement.
pub(crate) const GENERATOR_CPU_MAX: f64 = 0.8;

/// Results of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Spec of the run.
    pub spec: Spec,
    /// Start, milliseconds since 1970.
    pub started_unix_ms: u64,
    /// End, milliseconds since 1970.
    pub ended_unix_ms: u64,
    /// True if it was stopped early.
    pub stopped: bool,
    /// CPU of the busiest generator thread while measuring, as a share of its core.
    pub generator_cpu: f64,
    /// True if the generator used more than 80 % of a core. The results then do not describe the
    /// server.
    pub invalid: bool,
    /// Results of each step.
    pub steps: Vec<StepReport>,
    /// Service times measured by the server meanwhile, if its metrics were available.
    pub service: Vec<ServiceTime>,
    /// Reasons to doubt the results, as sentences.
    pub warnings: Vec<String>,
    /// Results of each second, warm-up included.
    pub seconds: Vec<Second>,
}

/// Results of one step.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StepReport {
    /// Configured requests a second. `None`: closed loop.
    pub rate_per_s: Option<f64>,
    /// Start, milliseconds since 1970.
    pub begin_unix_ms: u64,
    /// Duration, seconds.
    pub seconds: f64,
    /// Requests that became due: the sum of `sent`, `unsent` and `turned_away`.
    pub due: u64,
    /// Requests sent.
    pub sent: u64,
    /// Requests answered without error.
    pub answered: u64,
    /// Requests answered with an error, all codes together.
    pub errors: u64,
    /// Errors because the server was overloaded.
    pub overloaded: u64,
    /// Requests lost with their connection.
    pub lost: u64,
    /// Requests sent but not answered by the end of the run.
    pub unanswered: u64,
    /// Requests due but not sent by the end of the run: a limit was reached, or no connection was
    /// open.
    pub unsent: u64,
    /// Requests due while their client waited for the time that a refusal named, and not sent.
    #[serde(default)]
    pub turned_away: u64,
    /// Answers during the step within the time limit of their requests. Zero without a limit.
    #[serde(default)]
    pub in_time: u64,
    /// Requests delayed by a limit on requests in flight. Their wait is part of the latencies.
    pub held_back: u64,
    /// Most requests in flight at once, summed over the threads.
    pub in_flight_max: usize,
    /// Requests in flight, mean over the step.
    #[serde(default)]
    pub in_flight_mean: f64,
    /// Broken connections.
    pub connections_broken: u64,
    /// Errors by code.
    pub error_codes: Vec<ErrorCount>,
    /// Requests answered a second during the step.
    pub throughput_per_s: f64,
    /// Delay by the generator itself, 99th percentile, µs. Part of the latencies of an open loop.
    pub generator_lag_p99_us: f64,
    /// Latency of all requests from the time they were sent. Tools without a schedule report this.
    /// It omits the wait before sending, and so favours a server that stalls.
    #[serde(default)]
    pub from_sent: Latency,
    /// CPU of the busiest generator thread, as a share of its core.
    pub generator_cpu: f64,
    /// Generator CPU per request, all threads together, µs.
    pub generator_us_per_request: f64,
    /// Reads, including slices. `None`: no reads.
    pub reads: Option<Operations>,
    /// Writes. `None`: no writes.
    pub writes: Option<Operations>,
    /// Raw histograms.
    #[serde(skip)]
    pub latencies: Latencies,
}

/// Results for one kind of request in one step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Operations {
    /// Requests answered without error.
    pub count: u64,
    /// Rows returned.
    pub rows: u64,
    /// Reads that returned no row.
    pub empty: u64,
    /// Latency.
    pub latency: Latency,
}

/// Number of errors with one code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorCount {
    /// Error code of the protocol.
    pub code: i32,
    /// Name of the code.
    pub name: String,
    /// Number of errors.
    pub count: u64,
    /// First message with this code.
    pub example: String,
}

/// Input of a report.
pub(crate) struct Measured<'a> {
    pub(crate) spec: &'a Spec,
    pub(crate) clock: RunClock,
    pub(crate) ended_ns: u64,
    pub(crate) stopped: bool,
    pub(crate) stretches: &'a [Stretch],
    pub(crate) warmup: usize,
    pub(crate) tallies: Vec<Vec<Tally>>,
    pub(crate) seconds: Vec<Second>,
    pub(crate) services: Scraper,
}

fn error_name(code: i32) -> &'static str {
    match code {
        0x0000 => "server error",
        0x000A => "protocol error",
        0x0100 => "bad credentials",
        0x1000 => "unavailable",
        0x1001 => "overloaded",
        0x1002 => "still starting",
        0x1003 => "truncation failed",
        0x1100 => "write timeout",
        0x1200 => "read timeout",
        0x1300 => "read failure",
        0x1500 => "write failure",
        0x2000 => "syntax error",
        0x2100 => "unauthorized",
        0x2200 => "invalid",
        0x2300 => "configuration error",
        0x2500 => "unprepared",
        0xF000 => "rate limit",
        _ => "other",
    }
}

/// Builds a report.
pub(crate) fn build(measured: &Measured<'_>) -> Report {
    let steps: Vec<StepReport> = (measured.warmup..measured.stretches.len())
        .filter(|stretch| measured.tallies.iter().any(|worker| worker[*stretch].wall_ns > 0))
        .map(|stretch| step(measured, stretch))
        .collect();
    let generator_cpu = steps.iter().map(|step| step.generator_cpu).fold(0.0, f64::max);
    let mut report = Report {
        spec: measured.spec.clone(),
        started_unix_ms: measured.clock.unix_ms(0),
        ended_unix_ms: measured.clock.unix_ms(measured.ended_ns),
        stopped: measured.stopped,
        generator_cpu,
        invalid: generator_cpu > GENERATOR_CPU_MAX,
        steps,
        service: measured.services.service_times(),
        warnings: Vec::new(),
        seconds: measured.seconds.clone(),
    };
    report.warnings = warnings(&report, measured);
    report
}

fn step(measured: &Measured<'_>, stretch: usize) -> StepReport {
    counted(&Counted {
        tallies: measured.tallies.iter().map(|worker| &worker[stretch]).collect(),
        clock: measured.clock,
        bounds: measured.stretches[stretch],
        open: matches!(measured.spec.pacing, Pacing::Open(_)),
        name: |code| error_name(code).to_string(),
        overloaded: |code| code == 0x1001,
    })
}

/// Input of a step.
pub(crate) struct Counted<'a> {
    /// Counts of each worker.
    pub(crate) tallies: Vec<&'a Tally>,
    pub(crate) clock: RunClock,
    pub(crate) bounds: Stretch,
    /// True for an open loop.
    pub(crate) open: bool,
    /// Returns the name of an error code.
    pub(crate) name: fn(i32) -> String,
    /// Returns true for an error code that means overload.
    pub(crate) overloaded: fn(i32) -> bool,
}

/// Sums the counts of a step over the workers.
pub(crate) fn counted(step: &Counted<'_>) -> StepReport {
    let Counted { tallies, clock, bounds, open, name, overloaded } = step;
    let sum = |field: fn(&Tally) -> u64| tallies.iter().map(|tally| field(tally)).sum::<u64>();
    let mut latencies = Latencies::default();
    let mut lag = histogram();
    let mut from_sent = histogram();
    let mut codes: BTreeMap<i32, (u64, String)> = BTreeMap::new();
    for tally in tallies {
        latencies.add(&tally.latencies);
        add(&mut lag, &tally.lag);
        add(&mut from_sent, &tally.from_sent);
        for (code, (count, example)) in &tally.errors {
            codes.entry(*code).or_insert((0, example.clone())).0 += count;
        }
    }
    let wall_ns = tallies.iter().map(|tally| tally.wall_ns).max().unwrap_or(0);
    let seconds = wall_ns as f64 / 1e9;
    let busiest = tallies.iter().map(|t| t.cpu_ns as f64 / t.wall_ns.max(1) as f64).fold(0.0, f64::max);
    let sent = sum(|t| t.sent);
    let operations = |kind: OpKind, rows: u64, empty: u64| {
        let raw = latencies.of(kind);
        (!raw.is_empty()).then(|| Operations { count: raw.len(), rows, empty, latency: Latency::of(raw) })
    };
    let refused = codes.iter().filter(|(code, _)| overloaded(**code)).map(|(_, (count, _))| count).sum();
    StepReport {
        rate_per_s: open.then_some(bounds.rate_per_s),
        begin_unix_ms: clock.unix_ms(bounds.begin_ns),
        seconds,
        due: sent + sum(|t| t.unsent) + sum(|t| t.turned_away),
        sent,
        answered: sum(|t| t.answered),
        errors: codes.values().map(|(count, _)| count).sum(),
        overloaded: refused,
        lost: sum(|t| t.lost),
        unanswered: sum(|t| t.unanswered),
        unsent: sum(|t| t.unsent),
        turned_away: sum(|t| t.turned_away),
        in_time: sum(|t| t.in_time),
        held_back: sum(|t| t.delayed),
        in_flight_max: tallies.iter().map(|t| t.in_flight_max).sum(),
        in_flight_mean: tallies.iter().map(|t| t.in_flight_ns).sum::<f64>() / wall_ns.max(1) as f64,
        connections_broken: sum(|t| t.connections_broken),
        error_codes: codes
            .into_iter()
            .map(|(code, (count, example))| ErrorCount { code, name: name(code), count, example })
            .collect(),
        throughput_per_s: if seconds > 0.0 { sum(|t| t.answered_within) as f64 / seconds } else { 0.0 },
        generator_lag_p99_us: if lag.is_empty() { 0.0 } else { lag.value_at_quantile(0.99) as f64 / 1000.0 },
        from_sent: Latency::of(&from_sent),
        generator_cpu: busiest,
        generator_us_per_request: sum(|t| t.cpu_ns) as f64 / 1000.0 / sent.max(1) as f64,
        reads: operations(OpKind::Read, sum(|t| t.rows), sum(|t| t.empty_reads)),
        writes: operations(OpKind::Write, 0, 0),
        latencies,
    }
}

/// Returns reasons to doubt the results, worst first.
fn warnings(report: &Report, measured: &Measured<'_>) -> Vec<String> {
    let mut out = Vec::new();
    let total = |field: fn(&StepReport) -> u64| report.steps.iter().map(field).sum::<u64>();
    if report.invalid {
        out.push(format!(
            "Invalid: a generator thread used {:.0} % of its core; above 80 % it distorts its own \
             measurement. Use --threads or a lower rate.",
            report.generator_cpu * 100.0
        ));
    }
    if report.stopped {
        out.push("Stopped early; the results cover the time until then.".to_string());
    }
    let mut warn = |count: u64, what: &str| {
        if count > 0 {
            out.push(format!("{count} {what}"));
        }
    };
    warn(
        total(|s| s.unsent),
        "requests were due but never sent: a limit on requests in flight was reached, or no connection \
         was open (--max-in-flight, --streams, --connections).",
    );
    warn(
        total(|s| s.held_back),
        "requests were sent later than due: a limit on requests in flight was reached; their wait is \
         part of the latencies.",
    );
    warn(total(|s| s.turned_away), "requests were not sent: their client had been told to try again later.");
    warn(total(|s| s.unanswered), "requests were never answered.");
    warn(total(|s| s.lost), "requests were lost with their connection.");
    warn(total(|s| s.overloaded), "requests were refused because the server was overloaded.");
    warn(total(|s| s.errors - s.overloaded), "requests failed with other errors.");
    warn(
        total(|s| s.reads.as_ref().map_or(0, |reads| reads.empty)),
        "reads found nothing; was the key space filled (`prefill`, same --keys)?",
    );
    let broken: u64 = measured.tallies.iter().flatten().map(|tally| tally.connections_broken).sum();
    if broken > 0 {
        let why = measured.tallies.iter().flatten().find(|tally| tally.connections_broken > 0);
        let why = why.map_or("", |tally| tally.broken_why.as_str());
        out.push(format!("{broken} connections broke and were opened again ({why})."));
    }
    if measured.spec.workload == Workload::Prefill {
        let keys = measured.spec.key_range();
        let wanted = (keys.end - keys.start).saturating_mul(measured.spec.rows.per_partition.max(1));
        let missing = wanted.saturating_sub(total(|s| s.answered));
        if missing > 0 {
            out.push(format!("{missing} of {wanted} rows were not written."));
        }
    }
    out.extend(measured.services.failure.clone());
    out
}
