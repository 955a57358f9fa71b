//! Report as text: the load, a table of latencies, and the warnings.

use std::fmt::Write as _;

use crate::report::{Operations, Report, StepReport};
use crate::timeline::Second;

/// Formats a time given in microseconds, in a suitable unit.
pub(crate) fn time(us: f64) -> String {
    match us {
        us if us < 1000.0 => format!("{us:.0} µs"),
        us if us < 1_000_000.0 => format!("{:.2} ms", us / 1000.0),
        us => format!("{:.2} s", us / 1_000_000.0),
    }
}

impl Report {
    /// Formats the report as text of about twenty lines.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let spec = &self.spec;
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "{:?} load on {}: {} keys ({:?}), {} connections, {} threads",
            spec.workload,
            spec.hosts.join(","),
            spec.keys.population,
            spec.keys.distribution,
            spec.connections,
            spec.threads,
        );
        for step in &self.steps {
            step_text(&mut out, step, ["reads", "writes"]);
        }
        for level in &self.service {
            let _ = writeln!(
                out,
                "  server's own service time, level '{}': mean {}, p50 {}, p99 {} ({} requests)",
                level.level,
                time(level.mean_us),
                time(level.p50_us),
                time(level.p99_us),
                level.count
            );
        }
        let _ = writeln!(out, "generator: {:.0} % of its core", self.generator_cpu * 100.0);
        for warning in &self.warnings {
            let _ = writeln!(out, "! {warning}");
        }
        out
    }
}

/// Formats a step. `labels` name the reads and the writes.
pub(crate) fn step_text(out: &mut String, step: &StepReport, labels: [&str; 2]) {
    let pacing = match step.rate_per_s {
        Some(rate) => format!("open loop, {rate:.0}/s configured"),
        None => "closed loop".to_string(),
    };
    let _ = writeln!(
        out,
        "\n{pacing}, {:.1} s: {:.0} answers/s; {} due, {} sent, {} answered, {} errors, {} lost, {} unanswered; \
         at most {} in flight",
        step.seconds,
        step.throughput_per_s,
        step.due,
        step.sent,
        step.answered,
        step.errors,
        step.lost,
        step.unanswered,
        step.in_flight_max,
    );
    let _ = writeln!(
        out,
        "  {:<7}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}",
        "", "count", "mean", "p50", "p95", "p99", "p99.9", "p99.99", "max"
    );
    for (name, operations) in labels.into_iter().zip([&step.reads, &step.writes]) {
        if let Some(operations) = operations {
            operations_text(out, name, operations);
        }
    }
    if step.rate_per_s.is_some() {
        let _ = writeln!(out, "  delay by the generator itself (p99): {}", time(step.generator_lag_p99_us));
    }
    for error in &step.error_codes {
        // CQL error codes have names. The name of a SQL error is its SQLSTATE.
        let code = if error.code < 1 << 16 { format!("0x{:04X} ", error.code) } else { String::new() };
        let _ =
            writeln!(out, "  error {code}({}): {} times, first: {}", error.name, error.count, error.example);
    }
}

fn operations_text(out: &mut String, name: &str, operations: &Operations) {
    let latency = &operations.latency;
    let _ = write!(out, "  {name:<7}{:>10}", operations.count);
    let times_us = [
        latency.mean_us,
        latency.p50_us,
        latency.p95_us,
        latency.p99_us,
        latency.p999_us,
        latency.p9999_us,
        latency.max_us,
    ];
    for us in times_us {
        let _ = write!(out, "{:>10}", time(us));
    }
    out.push('\n');
    if operations.rows > operations.count {
        let _ = writeln!(out, "  {name} returned {} rows", operations.rows);
    }
}

/// Formats one second as a line of progress.
pub(crate) fn progress(second: &Second) -> String {
    let phase = match second.step {
        -1 => "warm-up".to_string(),
        -2 => "waiting".to_string(),
        step => format!("step {}", step + 1),
    };
    format!(
        "{:>7.1} s  {phase:<8}{:>9.0}/s  p50 {:>9}  p99 {:>9}  max {:>9}  in flight {:>5}  errors {}",
        second.at_s + second.seconds,
        second.rate(),
        time(second.all.p50_us),
        time(second.all.p99_us),
        time(second.all.max_us),
        second.in_flight,
        second.errors,
    )
}
