//! What a run found, as data: for every step the latencies, throughput and everything that went wrong; the
//! seconds on the wall clock's axis; and how far the generator itself may be believed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::arrivals::Stretch;
use crate::clock::Clock;
use crate::histogram::{Latencies, Latency, OpKind, add, histogram};
use crate::scrape::{Scraper, ServiceTime};
use crate::spec::{Pacing, Spec, Workload};
use crate::tally::Tally;
use crate::timeline::Second;

/// A generator thread above this share of its core measures itself.
pub(crate) const GENERATOR_CPU_MAX: f64 = 0.8;

/// A run's results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// What was run.
    pub spec: Spec,
    /// When it began, milliseconds since 1970.
    pub started_unix_ms: u64,
    /// When it ended, milliseconds since 1970.
    pub ended_unix_ms: u64,
    /// Whether it was stopped before its time.
    pub stopped: bool,
    /// CPU of the busiest generator thread while measuring, as a share of its core.
    pub generator_cpu: f64,
    /// Whether that was too much for the figures to be the server's.
    pub invalid: bool,
    /// The steps.
    pub steps: Vec<Step>,
    /// The server's own service times while measuring, when it told them.
    pub service: Vec<ServiceTime>,
    /// What a reader must know before believing the figures, as sentences.
    pub warnings: Vec<String>,
    /// Second by second, warm-up included.
    pub seconds: Vec<Second>,
}

/// One step's results.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Step {
    /// Requests a second asked for; nothing in a closed loop.
    pub rate_per_s: Option<f64>,
    /// When it began, milliseconds since 1970.
    pub begin_unix_ms: u64,
    /// How long it lasted, seconds.
    pub seconds: f64,
    /// Requests that were due or begun: `sent` and `unsent` together.
    pub due: u64,
    /// Requests sent.
    pub sent: u64,
    /// Of these, answered without error.
    pub answered: u64,
    /// Answered with an error, all codes together.
    pub errors: u64,
    /// Of these, refused because the server was overloaded.
    pub overloaded: u64,
    /// Lost with their connection.
    pub lost: u64,
    /// Sent, but not answered when the run ended.
    pub unanswered: u64,
    /// Due, but not sent when the run ended, because a limit on requests in flight was reached.
    pub unsent: u64,
    /// Sent later than due because a limit on requests in flight was reached; their wait is in the latencies.
    pub held_back: u64,
    /// The most in flight at once, summed over the threads.
    pub in_flight_max: usize,
    /// Connections that broke.
    pub connections_broken: u64,
    /// Errors by code.
    pub error_codes: Vec<ErrorCount>,
    /// Requests answered a second while the step lasted.
    pub throughput_per_s: f64,
    /// How late the generator itself sent, 99th percentile, µs; part of the latencies of an open loop.
    pub generator_lag_p99_us: f64,
    /// How long requests of all kinds took from the moment they were sent. That is what tools without a schedule
    /// report; it leaves out whatever kept a request from being sent, and so flatters a server that stalls.
    #[serde(default)]
    pub from_sent: Latency,
    /// CPU of the busiest generator thread, as a share of its core.
    pub generator_cpu: f64,
    /// Generator CPU for a request, all threads together, µs.
    pub generator_us_per_request: f64,
    /// Reads, slices among them; nothing when there were none.
    pub reads: Option<Operations>,
    /// Writes; nothing when there were none.
    pub writes: Option<Operations>,
    /// The raw histograms.
    #[serde(skip)]
    pub latencies: Latencies,
}

/// Requests of one kind in one step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Operations {
    /// Answered without error.
    pub count: u64,
    /// Rows they returned.
    pub rows: u64,
    /// Reads that found nothing.
    pub empty: u64,
    /// How long they took.
    pub latency: Latency,
}

/// One kind of error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorCount {
    /// The protocol's code.
    pub code: i32,
    /// Its name.
    pub name: String,
    /// How often.
    pub count: u64,
    /// The first message of that code.
    pub example: String,
}

/// Everything a report is made of.
pub(crate) struct Measured<'a> {
    pub(crate) spec: &'a Spec,
    pub(crate) clock: Clock,
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

/// Puts a report together.
pub(crate) fn build(measured: &Measured<'_>) -> Report {
    let steps: Vec<Step> = (measured.warmup..measured.stretches.len())
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

fn step(measured: &Measured<'_>, stretch: usize) -> Step {
    counted(&Counted {
        tallies: measured.tallies.iter().map(|worker| &worker[stretch]).collect(),
        clock: measured.clock,
        bounds: measured.stretches[stretch],
        open: matches!(measured.spec.pacing, Pacing::Open(_)),
        name: |code| error_name(code).to_string(),
        overloaded: |code| code == 0x1001,
    })
}

/// What a step is made of.
pub(crate) struct Counted<'a> {
    /// Each worker's.
    pub(crate) tallies: Vec<&'a Tally>,
    pub(crate) clock: Clock,
    pub(crate) bounds: Stretch,
    /// Whether it was an open loop.
    pub(crate) open: bool,
    /// The name of an error's code.
    pub(crate) name: fn(i32) -> String,
    /// Whether a code says that the server was overloaded.
    pub(crate) overloaded: fn(i32) -> bool,
}

/// Adds up a step.
pub(crate) fn counted(step: &Counted<'_>) -> Step {
    let Counted { tallies, clock, bounds, open, name, overloaded } = step;
    let sum = |field: fn(&Tally) -> u64| tallies.iter().map(|tally| field(tally)).sum::<u64>();
    let mut latencies = Latencies::default();
    let (mut lag, mut from_sent) = (histogram(), histogram());
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
    let (rows, empty) = (sum(|t| t.rows), sum(|t| t.empty_reads));
    let operations = |kind: OpKind, rows: u64, empty: u64| {
        let raw = latencies.of(kind);
        (!raw.is_empty()).then(|| Operations { count: raw.len(), rows, empty, latency: Latency::of(raw) })
    };
    let refused = codes.iter().filter(|(code, _)| overloaded(**code)).map(|(_, (count, _))| count).sum();
    Step {
        rate_per_s: open.then_some(bounds.rate_per_s),
        begin_unix_ms: clock.unix_ms(bounds.begin_ns),
        seconds,
        due: sent + sum(|t| t.unsent),
        sent,
        answered: sum(|t| t.answered),
        errors: codes.values().map(|(count, _)| count).sum(),
        overloaded: refused,
        lost: sum(|t| t.lost),
        unanswered: sum(|t| t.unanswered),
        unsent: sum(|t| t.unsent),
        held_back: sum(|t| t.held_back),
        in_flight_max: tallies.iter().map(|t| t.in_flight_max).sum(),
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
        reads: operations(OpKind::Read, rows, empty),
        writes: operations(OpKind::Write, 0, 0),
        latencies,
    }
}

/// What a reader must know, worst first.
fn warnings(report: &Report, measured: &Measured<'_>) -> Vec<String> {
    let mut out = Vec::new();
    let total = |field: fn(&Step) -> u64| report.steps.iter().map(field).sum::<u64>();
    if report.invalid {
        out.push(format!(
            "Invalid: a generator thread used {:.0} % of its core; above 80 % it measures itself. Use --threads or a lower rate.",
            report.generator_cpu * 100.0
        ));
    }
    if report.stopped {
        out.push("Stopped before its time; the figures are those until then.".to_string());
    }
    let mut say = |count: u64, what: &str| {
        if count > 0 {
            out.push(format!("{count} {what}"));
        }
    };
    say(
        total(|s| s.unsent),
        "requests were due but never sent: a limit on requests in flight was reached, or no connection was open (--max-in-flight, --streams, --connections).",
    );
    say(
        total(|s| s.held_back),
        "requests were sent later than due: a limit on requests in flight was reached; their wait is part of the latencies.",
    );
    say(total(|s| s.unanswered), "requests were never answered.");
    say(total(|s| s.lost), "requests were lost with their connection.");
    say(total(|s| s.overloaded), "requests were refused because the server was overloaded.");
    say(total(|s| s.errors - s.overloaded), "requests failed with other errors.");
    say(
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
        let (begin, end) = measured.spec.key_range();
        let wanted = (end - begin).saturating_mul(measured.spec.rows.per_partition.max(1));
        let missing = wanted.saturating_sub(total(|s| s.answered));
        if missing > 0 {
            out.push(format!("{missing} of {wanted} rows were not written."));
        }
    }
    out.extend(measured.services.failure.clone());
    out
}
