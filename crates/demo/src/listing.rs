//! Lists that the terminal and the report both show: loads with their latencies, use of the cores,
//! and the machine.

use load::Latency;

use crate::results::{Chapter, DemoResults, LoadRun, Machine, Window};

/// One load in one phase.
#[derive(Clone, Debug)]
pub(crate) struct ListedLoad {
    /// Chapter and phase.
    pub(crate) part: String,
    pub(crate) load: String,
    pub(crate) per_s: f64,
    pub(crate) latency: Latency,
}

/// Returns the name of a phase with that of its chapter.
pub(crate) fn phase(chapter: &Chapter, label: &str) -> String {
    format!("{}: {label}", chapter.id.replace('_', " "))
}

/// Returns all loads, phase by phase. A load without latencies of phases is listed once for all
/// phases.
pub(crate) fn loads(outcome: &DemoResults) -> Vec<ListedLoad> {
    let run = |part: String, run: &LoadRun| ListedLoad {
        part,
        load: run.load.clone(),
        per_s: run.throughput_per_s,
        latency: run.latency,
    };
    let capacity =
        [&outcome.capacity.reads, &outcome.capacity.batch, &outcome.capacity.writes].into_iter().flatten();
    let mut out: Vec<ListedLoad> = capacity.map(|found| run("capacity, alone".into(), found)).collect();
    for chapter in &outcome.chapters {
        for window in &chapter.windows {
            out.extend(window.loads.iter().map(|load| ListedLoad {
                part: phase(chapter, &window.label),
                load: load.load.clone(),
                per_s: load.throughput_per_s,
                latency: load.latency.unwrap_or_default(),
            }));
        }
        let is_listed = |load: &str| chapter.windows.iter().any(|window| window.latency(load).is_some());
        let rest = chapter.runs.iter().filter(|run| !is_listed(&run.load));
        out.extend(rest.map(|found| run(phase(chapter, "all phases"), found)));
    }
    out
}

/// Returns the columns of a latency with their names, µs.
pub(crate) fn percentiles(latency: &Latency) -> [(&'static str, f64); 6] {
    [
        ("mean", latency.mean_us),
        ("p50", latency.p50_us),
        ("p95", latency.p95_us),
        ("p99", latency.p99_us),
        ("p99.9", latency.p999_us),
        ("max", latency.max_us),
    ]
}

/// Use of the cores in one phase, as fractions of them. `None`: not measured.
#[derive(Clone, Debug)]
pub(crate) struct Usage {
    /// Chapter and phase.
    pub(crate) part: String,
    /// Use of the server's cores by its process, as the kernel counts.
    pub(crate) process: f64,
    /// Use of the server's cores by all processes.
    pub(crate) busy: f64,
    /// Use of the cores of the loads by all processes.
    pub(crate) loads: Option<f64>,
    /// CPU of the busiest sender, as a fraction of its core.
    pub(crate) sender: Option<f64>,
    /// Largest delay of the senders of open loops, 99th percentile, µs.
    pub(crate) lag_us: Option<f64>,
}

/// Returns the use of the cores, phase by phase.
pub(crate) fn usage(outcome: &DemoResults) -> Vec<Usage> {
    let load_cores = outcome.machine.load_cores.len().max(1) as f64;
    let line = |chapter: &Chapter, window: &Window| {
        let sender = window.loads.iter().map(|load| load.generator_cpu).fold(0.0, f64::max);
        let measured = |value: f64| (value > 0.0).then_some(value);
        Usage {
            part: phase(chapter, &window.label),
            process: window.cpu.server_part(),
            busy: window.cpu.busy_part(),
            loads: measured(window.cpu.loads_busy / load_cores),
            sender: measured(sender),
            lag_us: measured(window.loads.iter().map(|load| load.generator_lag_p99_us).fold(0.0, f64::max)),
        }
    };
    let chapters = outcome.chapters.iter();
    chapters.flat_map(|chapter| chapter.windows.iter().map(move |window| line(chapter, window))).collect()
}

fn cores(cores: &[usize]) -> String {
    let list: Vec<String> = cores.iter().map(usize::to_string).collect();
    format!("{} {}", if list.len() == 1 { "core" } else { "cores" }, list.join(", "))
}

/// Returns processor, kernel, and the cores of server, front and loads in one line.
pub(crate) fn machine_line(machine: &Machine) -> String {
    let server = cores(&machine.server_cores);
    let servers = match machine.front_cores.as_slice() {
        [] => format!("server on {server}"),
        front => format!("node on {server}, front on {}", cores(front)),
    };
    format!(
        "{}, Linux {}; {}, loads on {}.",
        if machine.model.is_empty() { "unknown processor" } else { &machine.model },
        machine.kernel,
        servers,
        cores(&machine.load_cores)
    )
}
