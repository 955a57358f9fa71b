//! Counters of the lanes and of the process, as metrics.

use std::path::Path;

use engine::Metric;
use lanes::Lanes;

use crate::exposition::Page;

/// A counter of the whole server.
type OfServer = fn(&Lanes) -> u64;

const SERVER: [(Metric, OfServer); 2] = [
    (Metric::counter("fairlane_stalls_total", "Task polls of fast lanes over 200 us."), Lanes::stalls),
    (
        Metric::counter("fairlane_overruns_total", "Heavy time slices that overran by 10 ms."),
        Lanes::slice_overruns,
    ),
];

/// A counter of one core. `None` if there is no value.
type OfCore = fn(&Lanes, usize) -> Option<f64>;

const CORES: [(Metric, OfCore); 4] = [
    (
        Metric::gauge(
            "fairlane_task_poll_units_max",
            "Maximum of work units in one task poll of the fast lane.",
        ),
        |lanes, core| Some(f64::from(lanes.most_units(core))),
    ),
    (
        Metric::counter("fairlane_starved_total", "Times that a heavy lane lagged and did not get its core."),
        |lanes, core| Some(lanes.starved(core) as f64),
    ),
    (
        Metric::counter(
            "fairlane_rescues_total",
            "Time slices of urgent heavy work at normal priority, during starvation.",
        ),
        |lanes, core| Some(lanes.promotions(core) as f64),
    ),
    (
        Metric::gauge(
            "fairlane_wake_up_seconds",
            "Median delay of wake-ups of the fast lane, measured at the start.",
        ),
        |lanes, core| Some(lanes.wake_up(core)?.p50_us as f64 / 1e6),
    ),
];

const KERNEL_CPU: Metric = Metric::counter(
    "fairlane_kernel_workers_cpu_seconds_total",
    "CPU time of io_uring workers of the kernel. It is in no level.",
);
const KERNEL_WORKERS: Metric =
    Metric::gauge("fairlane_kernel_workers", "Number of io_uring workers of the kernel.");

const BUILD: Metric = Metric::gauge("fairlane_build_info", "1, with the version of the program.");
const STARTED: Metric =
    Metric::gauge("process_start_time_seconds", "Start of the process, seconds since the Unix epoch.");
const RESIDENT: Metric =
    Metric::gauge("process_resident_memory_bytes", "Resident memory of the process, bytes.");
const CPU: Metric =
    Metric::counter("process_cpu_seconds_total", "CPU time of the process, all its threads together.");
const OPEN: Metric = Metric::gauge("process_open_fds", "Open descriptors of the process.");
const OPEN_MAX: Metric = Metric::gauge("process_max_fds", "Maximum number of open descriptors.");
const DISK_FREE: Metric =
    Metric::gauge("fairlane_disk_free_bytes", "Free bytes of the file system of the data folder.");
const DISK: Metric = Metric::gauge("fairlane_disk_bytes", "Size of the file system of the data folder.");

/// Appends the metrics of the process and of the file system of its data folder. Must run on a
/// lane.
pub(crate) async fn process_page(page: &mut Page, data_dir: Option<&Path>) {
    page.head(&BUILD);
    page.value(&BUILD, "version", env!("CARGO_PKG_VERSION"), 1.0);
    // Skip these metrics on systems without /proc.
    if let Ok(used) = lanes::disk::process_use().await {
        page.one(&STARTED, used.started_s);
        page.one(&RESIDENT, used.resident_bytes as f64);
        page.one(&CPU, used.cpu_ns as f64 / 1e9);
        page.one(&OPEN, used.open_files as f64);
    }
    let open_max = lanes::disk::open_files_max();
    if open_max < u64::MAX {
        page.one(&OPEN_MAX, open_max as f64);
    }
    let Some(data_dir) = data_dir else { return };
    if let Ok((free, all)) = lanes::disk::space(data_dir).await {
        page.one(&DISK_FREE, free as f64);
        page.one(&DISK, all as f64);
    }
}

/// Appends all lane metrics. Must run on a lane.
pub(crate) async fn page(page: &mut Page) {
    let lanes = lanes::handle();
    for (metric, value) in &SERVER {
        page.one(metric, value(&lanes) as f64);
    }
    for (metric, value) in &CORES {
        page.head(metric);
        for core in 0..lanes.cores() {
            if let Some(value) = value(&lanes, core) {
                page.value(metric, "core", core, value);
            }
        }
    }
    // Skip these metrics on systems without /proc.
    if let Ok(used) = lanes::disk::kernel_use().await {
        page.one(&KERNEL_CPU, used.cpu_ns as f64 / 1e9);
        page.one(&KERNEL_WORKERS, used.threads as f64);
    }
}
