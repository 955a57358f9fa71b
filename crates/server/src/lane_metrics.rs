//! Counters of the lanes, as metrics.

use engine::Metric;
use lanes::Lanes;

use crate::exposition::Page;

/// A counter of the whole server.
type OfServer = fn(&Lanes) -> u64;

const SERVER: [(Metric, OfServer); 2] = [
    (Metric::counter("fairlane_stalls_total", "Fast-lane pieces over 200 us."), Lanes::stalls),
    (Metric::counter("fairlane_overruns_total", "Heavy turns that overran by 10 ms."), Lanes::overruns),
];

/// A counter of one core. `None` if there is no value.
type OfCore = fn(&Lanes, usize) -> Option<f64>;

const CORES: [(Metric, OfCore); 4] = [
    (
        Metric::gauge("fairlane_task_poll_units_max", "Most work units spent by one fast-lane task poll."),
        |lanes, core| Some(f64::from(lanes.most_units(core))),
    ),
    (
        Metric::counter("fairlane_starved_total", "Times a heavy lane was owed its core and did not get it."),
        |lanes, core| Some(lanes.starved(core) as f64),
    ),
    (
        Metric::counter(
            "fairlane_rescues_total",
            "Turns of urgent heavy work at normal priority, its lane being starved.",
        ),
        |lanes, core| Some(lanes.rescues(core) as f64),
    ),
    (
        Metric::gauge(
            "fairlane_wake_up_seconds",
            "Median lateness of a fast lane's wake-ups, as measured at start.",
        ),
        |lanes, core| Some(lanes.wake_up(core)?.p50_us as f64 / 1e6),
    ),
];

const KERNEL_CPU: Metric = Metric::counter(
    "fairlane_kernel_workers_cpu_seconds_total",
    "CPU of the kernel's io_uring workers, in no level.",
);
const KERNEL_WORKERS: Metric =
    Metric::gauge("fairlane_kernel_workers", "The kernel's io_uring workers there are.");

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
