//! What the lanes count about themselves, as Prometheus text.

use std::fmt::{Display, Write};

/// Appends all of it. On a lane.
pub(crate) async fn text(out: &mut String) {
    let lanes = lanes::handle();
    let cores = || 0..lanes.cores();
    one(out, "fairlane_stalls_total", "counter", "Fast-lane pieces over 200 us.", lanes.stalls());
    one(out, "fairlane_overruns_total", "counter", "Heavy turns that overran by 10 ms.", lanes.overruns());
    each(
        out,
        "fairlane_starved_total",
        "counter",
        "Times a heavy lane was owed its core and did not get it.",
        cores().map(|core| (core, lanes.starved(core))),
    );
    each(
        out,
        "fairlane_rescues_total",
        "counter",
        "Turns of urgent heavy work at normal priority, its lane being starved.",
        cores().map(|core| (core, lanes.rescues(core))),
    );
    each(
        out,
        "fairlane_wake_up_seconds",
        "gauge",
        "Median lateness of a fast lane's wake-ups, as measured at start.",
        cores().filter_map(|core| Some((core, lanes.wake_up(core)?.p50_us as f64 / 1e6))),
    );
    // Where there is no /proc there is nothing to say.
    if let Ok(used) = lanes::disk::kernel_use().await {
        let help = "CPU of the kernel's io_uring workers, in no level.";
        one(out, "fairlane_kernel_workers_cpu_seconds_total", "counter", help, used.cpu_ns as f64 / 1e9);
        let help = "The kernel's io_uring workers there are.";
        one(out, "fairlane_kernel_workers", "gauge", help, used.threads);
    }
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn one(out: &mut String, name: &str, kind: &str, help: &str, value: impl Display) {
    head(out, name, kind, help);
    let _ = writeln!(out, "{name} {value}");
}

fn each(
    out: &mut String,
    name: &str,
    kind: &str,
    help: &str,
    values: impl Iterator<Item = (usize, impl Display)>,
) {
    head(out, name, kind, help);
    for (core, value) in values {
        let _ = writeln!(out, "{name}{{core=\"{core}\"}} {value}");
    }
}
