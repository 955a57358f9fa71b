//! Lists that the terminal and the report both show: every load with its latencies, and how full the cores were.

use load::Latency;

use super::figures::{Chapter, Outcome, Run, Window};

/// One load in one phase.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Chapter and phase.
    pub(super) part: String,
    pub(super) load: String,
    pub(super) per_s: f64,
    pub(super) latency: Latency,
}

/// A phase by its chapter's short name.
pub(super) fn phase(chapter: &Chapter, label: &str) -> String {
    format!("{}: {label}", chapter.id.replace('_', " "))
}

/// Every load, phase by phase; where phases do not tell latencies apart, over all of them.
pub(super) fn loads(outcome: &Outcome) -> Vec<Entry> {
    let run = |part: String, run: &Run| Entry {
        part,
        load: run.load.clone(),
        per_s: run.throughput_per_s,
        latency: run.latency,
    };
    let capacity =
        [&outcome.capacity.reads, &outcome.capacity.batch, &outcome.capacity.writes].into_iter().flatten();
    let mut out: Vec<Entry> = capacity.map(|found| run("capacity, alone".into(), found)).collect();
    for chapter in &outcome.chapters {
        for window in &chapter.windows {
            out.extend(window.loads.iter().map(|load| Entry {
                part: phase(chapter, &window.label),
                load: load.load.clone(),
                per_s: load.throughput_per_s,
                latency: load.latency.unwrap_or_default(),
            }));
        }
        let told = |load: &str| chapter.windows.iter().any(|window| window.latency(load).is_some());
        let untold = chapter.runs.iter().filter(|run| !told(&run.load));
        out.extend(untold.map(|found| run(phase(chapter, "all phases"), found)));
    }
    out
}

/// The percentiles shown, with their names, µs.
pub(super) fn percentiles(latency: &Latency) -> [(&'static str, f64); 6] {
    [
        ("mean", latency.mean_us),
        ("p50", latency.p50_us),
        ("p95", latency.p95_us),
        ("p99", latency.p99_us),
        ("p99.9", latency.p999_us),
        ("max", latency.max_us),
    ]
}

/// How full the cores were in one phase, as parts of them.
#[derive(Clone, Debug)]
pub(super) struct Full {
    /// Chapter and phase.
    pub(super) part: String,
    /// The server's process, as the system counts.
    pub(super) process: f64,
    /// The server's cores, by whomever they were used.
    pub(super) busy: f64,
    /// The cores of the loads, by whomever they were used, where that was measured.
    pub(super) loads: Option<f64>,
    /// The busiest sender's part of its core, likewise.
    pub(super) sender: Option<f64>,
    /// How late the senders of open loops were, 99th percentile, µs.
    pub(super) lag_us: Option<f64>,
}

/// Phase by phase.
pub(super) fn fullness(outcome: &Outcome) -> Vec<Full> {
    let load_cores = outcome.machine.load_cores.len().max(1) as f64;
    let line = |chapter: &Chapter, window: &Window| {
        let cores = window.cpu.cores.max(1) as f64;
        let sender = window.loads.iter().map(|load| load.generator_cpu).fold(0.0, f64::max);
        let measured = |value: f64| (value > 0.0).then_some(value);
        Full {
            part: phase(chapter, &window.label),
            process: window.cpu.process / cores,
            busy: window.cpu.busy / cores,
            loads: measured(window.cpu.loads_busy / load_cores),
            sender: measured(sender),
            lag_us: measured(window.loads.iter().map(|load| load.generator_lag_p99_us).fold(0.0, f64::max)),
        }
    };
    let chapters = outcome.chapters.iter();
    chapters.flat_map(|chapter| chapter.windows.iter().map(move |window| line(chapter, window))).collect()
}
