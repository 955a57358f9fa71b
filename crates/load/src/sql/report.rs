//! Report of a SQL load, as data and as text.

use std::fmt::Write as _;

use serde::Serialize;

use super::accounting::state;
use super::run::Totals;
use super::spec::SqlSpec;
use crate::arrivals::Stretch;
use crate::histogram::Latency;
use crate::report::{Counted, GENERATOR_CPU_MAX, StepReport, counted};
use crate::spec::Pacing;
use crate::text::{step_text, time};
use crate::timeline::Second;

/// Results of a run: those of a CQL load, and those of each query.
#[derive(Clone, Debug, Serialize)]
pub struct SqlReport {
    /// Spec of the run.
    pub spec: SqlSpec,
    /// Start, milliseconds since 1970.
    pub started_unix_ms: u64,
    /// End, milliseconds since 1970.
    pub ended_unix_ms: u64,
    /// True if it was stopped early.
    pub stopped: bool,
    /// CPU of the generator while measuring, as a share of its core.
    pub generator_cpu: f64,
    /// True if the generator used more than 80 % of its core. The results then do not describe the
    /// server.
    pub invalid: bool,
    /// Results of each step.
    pub steps: Vec<SqlStep>,
    /// Reasons to doubt the results, as sentences.
    pub warnings: Vec<String>,
    /// Results of each second, warm-up included.
    pub seconds: Vec<Second>,
}

/// Results of one step. In `error_codes`, the name is the SQLSTATE, and the code the SQLSTATE read
/// in base 36.
#[derive(Clone, Debug, Serialize)]
pub struct SqlStep {
    /// Results of all queries together.
    #[serde(flatten)]
    pub all: StepReport,
    /// Results of each query that was sent, in the order of the files.
    pub queries: Vec<QueryResults>,
}

/// Results of one query in one step.
#[derive(Clone, Debug, Serialize)]
pub struct QueryResults {
    /// Name of the query.
    pub name: String,
    /// Runs answered without error.
    pub count: u64,
    /// Runs that failed or were lost with their connection.
    pub failed: u64,
    /// Rows returned by all runs.
    pub rows: u64,
    /// Latency.
    pub latency: Latency,
}

/// Builds a report.
pub(crate) fn build(
    spec: &SqlSpec,
    totals: &Totals,
    stretches: &[Stretch],
    warmup: usize,
    seconds: Vec<Second>,
    stopped: bool,
) -> SqlReport {
    let steps: Vec<SqlStep> = (warmup..stretches.len())
        .filter(|stretch| totals.tallies[*stretch].wall_ns > 0)
        .map(|stretch| SqlStep {
            all: counted(&Counted {
                tallies: vec![&totals.tallies[stretch]],
                clock: totals.clock,
                bounds: stretches[stretch],
                open: matches!(spec.pacing, Pacing::Open(_)),
                name: state,
                // Class 53 is "insufficient resources".
                overloaded: |code| state(code).starts_with("53"),
            }),
            queries: query_results(spec, totals, stretch),
        })
        .collect();
    let generator_cpu = steps.iter().map(|step| step.all.generator_cpu).fold(0.0, f64::max);
    let mut report = SqlReport {
        spec: spec.clone(),
        started_unix_ms: totals.clock.unix_ms(0),
        ended_unix_ms: totals.clock.unix_ms(totals.ended_ns),
        stopped,
        generator_cpu,
        invalid: generator_cpu > GENERATOR_CPU_MAX,
        steps,
        warnings: Vec::new(),
        seconds,
    };
    report.warnings = warnings(&report, totals);
    report
}

fn query_results(spec: &SqlSpec, totals: &Totals, stretch: usize) -> Vec<QueryResults> {
    let named = spec.queries.iter().zip(&totals.queries[stretch]);
    let results = named.map(|(query, counted)| QueryResults {
        name: query.name.clone(),
        count: counted.latencies.len(),
        failed: counted.failed,
        rows: counted.rows,
        latency: Latency::of(&counted.latencies),
    });
    results.filter(|result| result.count + result.failed > 0).collect()
}

/// Returns reasons to doubt the results, worst first.
fn warnings(report: &SqlReport, totals: &Totals) -> Vec<String> {
    let mut out = Vec::new();
    let total = |field: fn(&StepReport) -> u64| report.steps.iter().map(|step| field(&step.all)).sum::<u64>();
    if report.invalid {
        out.push(format!(
            "Invalid: the generator used {:.0} % of its core; above 80 % it distorts its own measurement.",
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
    warn(total(|s| s.unsent), "queries were due but never sent: no connection was free (--concurrency).");
    warn(
        total(|s| s.held_back),
        "queries were sent later than due: no connection was free; their wait is part of the latencies.",
    );
    warn(total(|s| s.unanswered), "queries were not answered before the end, and cancelled.");
    warn(total(|s| s.lost), "queries were lost with their connection.");
    warn(total(|s| s.overloaded), "queries were refused for lack of resources (SQLSTATE 53…).");
    warn(total(|s| s.errors - s.overloaded), "queries failed with other errors.");
    if let Some(broken) = totals.tallies.iter().find(|tally| tally.connections_broken > 0) {
        out.push(format!("Connections broke and were opened again ({}).", broken.broken_why));
    }
    out
}

impl SqlReport {
    /// Formats the report as text.
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

fn queries_text(out: &mut String, queries: &[QueryResults]) {
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
