//! What a SQL load found, as data and as text.

use std::fmt::Write as _;

use serde::Serialize;

use super::book::state;
use super::run::Books;
use super::spec::SqlSpec;
use crate::arrivals::Stretch;
use crate::histogram::Latency;
use crate::report::{Counted, GENERATOR_CPU_MAX, Step, counted};
use crate::spec::Pacing;
use crate::text::{step_text, time};
use crate::timeline::Second;

/// A run's results; as those of the native protocol, and each query by itself.
#[derive(Clone, Debug, Serialize)]
pub struct SqlReport {
    /// What was run.
    pub spec: SqlSpec,
    /// When it began, milliseconds since 1970.
    pub started_unix_ms: u64,
    /// When it ended, milliseconds since 1970.
    pub ended_unix_ms: u64,
    /// Whether it was stopped before its time.
    pub stopped: bool,
    /// CPU of the generator while measuring, as a share of its core.
    pub generator_cpu: f64,
    /// Whether that was too much for the figures to be the server's.
    pub invalid: bool,
    /// The steps.
    pub steps: Vec<SqlStep>,
    /// What a reader must know before believing the figures, as sentences.
    pub warnings: Vec<String>,
    /// Second by second, warm-up included.
    pub seconds: Vec<Second>,
}

/// One step's results. In `error_codes` a code is the SQLSTATE read in base 36, and the name the SQLSTATE itself.
#[derive(Clone, Debug, Serialize)]
pub struct SqlStep {
    /// All of them together.
    #[serde(flatten)]
    pub all: Step,
    /// Each query that was sent, in the order of the files.
    pub queries: Vec<QueryFigures>,
}

/// What became of one query in one step.
#[derive(Clone, Debug, Serialize)]
pub struct QueryFigures {
    /// The query.
    pub name: String,
    /// Answered without error.
    pub count: u64,
    /// Failed, or lost with their connection.
    pub failed: u64,
    /// Rows they returned, all together.
    pub rows: u64,
    /// How long it took.
    pub latency: Latency,
}

/// Puts a report together.
pub(crate) fn build(
    spec: &SqlSpec,
    books: &Books,
    stretches: &[Stretch],
    warmup: usize,
    seconds: Vec<Second>,
    stopped: bool,
) -> SqlReport {
    let steps: Vec<SqlStep> = (warmup..stretches.len())
        .filter(|stretch| books.tallies[*stretch].wall_ns > 0)
        .map(|stretch| SqlStep {
            all: counted(&Counted {
                tallies: vec![&books.tallies[stretch]],
                clock: books.clock,
                bounds: stretches[stretch],
                open: matches!(spec.pacing, Pacing::Open(_)),
                name: state,
                // Class 53 is for what there is not enough of.
                overloaded: |code| state(code).starts_with("53"),
            }),
            queries: figures(spec, books, stretch),
        })
        .collect();
    let generator_cpu = steps.iter().map(|step| step.all.generator_cpu).fold(0.0, f64::max);
    let mut report = SqlReport {
        spec: spec.clone(),
        started_unix_ms: books.clock.unix_ms(0),
        ended_unix_ms: books.clock.unix_ms(books.ended_ns),
        stopped,
        generator_cpu,
        invalid: generator_cpu > GENERATOR_CPU_MAX,
        steps,
        warnings: Vec::new(),
        seconds,
    };
    report.warnings = warnings(&report, books);
    report
}

fn figures(spec: &SqlSpec, books: &Books, stretch: usize) -> Vec<QueryFigures> {
    let named = spec.queries.iter().zip(&books.queries[stretch]);
    let figures = named.map(|(query, counted)| QueryFigures {
        name: query.name.clone(),
        count: counted.latencies.len(),
        failed: counted.failed,
        rows: counted.rows,
        latency: Latency::of(&counted.latencies),
    });
    figures.filter(|figures| figures.count + figures.failed > 0).collect()
}

/// What a reader must know, worst first.
fn warnings(report: &SqlReport, books: &Books) -> Vec<String> {
    let mut out = Vec::new();
    let total = |field: fn(&Step) -> u64| report.steps.iter().map(|step| field(&step.all)).sum::<u64>();
    if report.invalid {
        out.push(format!(
            "Invalid: the generator used {:.0} % of its core; above 80 % it measures itself.",
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
    say(total(|s| s.unsent), "queries were due but never sent: no connection was free (--concurrency).");
    say(
        total(|s| s.held_back),
        "queries were sent later than due: no connection was free; their wait is part of the latencies.",
    );
    say(total(|s| s.unanswered), "queries were not answered before the end, and cancelled.");
    say(total(|s| s.lost), "queries were lost with their connection.");
    say(total(|s| s.overloaded), "queries were refused for want of resources (SQLSTATE 53…).");
    say(total(|s| s.errors - s.overloaded), "queries failed with other errors.");
    if let Some(broken) = books.tallies.iter().find(|tally| tally.connections_broken > 0) {
        out.push(format!("Connections broke and were opened again ({}).", broken.broken_why));
    }
    out
}

impl SqlReport {
    /// The report as text.
    pub(crate) fn text(&self) -> String {
        let spec = &self.spec;
        let mut out = format!(
            "SQL load on {}: {} queries, {} connections\n",
            spec.hosts.join(","),
            spec.queries.len(),
            spec.concurrency
        );
        for step in &self.steps {
            step_text(&mut out, &step.all, ["queries", ""]);
            queries_text(&mut out, &step.queries);
        }
        let _ = writeln!(out, "generator: {:.0} % of its core", self.generator_cpu * 100.0);
        for warning in &self.warnings {
            let _ = writeln!(out, "! {warning}");
        }
        out
    }
}

fn queries_text(out: &mut String, queries: &[QueryFigures]) {
    for query in queries {
        let latency = &query.latency;
        // Writing to a String cannot fail.
        let _ = write!(out, "  {:<9}{:>8}", query.name, query.count);
        for us in [latency.mean_us, latency.p50_us, latency.p95_us, latency.p99_us, latency.max_us] {
            let _ = write!(out, "{:>10}", time(us));
        }
        let rows = query.rows / query.count.max(1);
        let failed = if query.failed > 0 { format!(", {} failed", query.failed) } else { String::new() };
        let _ = writeln!(out, "   {rows} rows each{failed}");
    }
}
