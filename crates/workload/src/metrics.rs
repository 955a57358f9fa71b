//! Metrics of the levels as Prometheus text. Counters of all cores are summed on request.

use std::fmt::Write;

use lanes::{Group, Usage};

use crate::histogram::Merged;
use crate::level::Totals;
use crate::waits::Names;
use crate::{Catalog, Entry, Kind, Levels, LimitUse, MemoryUse, SlotUse};

/// A metric from a counter of the lanes: name, labels beside the level, help, and value (divided by
/// 10^9 for seconds).
type LaneMetric = (&'static str, &'static str, &'static str, fn(&Usage) -> f64);

const LANE_METRICS: [LaneMetric; 15] = [
    ("fairlane_cpu_seconds_total", ",lane=\"fast\"", "CPU time by lane.", |u| seconds(u.cpu_fast_ns)),
    ("fairlane_cpu_seconds_total", ",lane=\"heavy\"", "", |u| seconds(u.cpu_heavy_ns)),
    ("fairlane_wait_seconds_total", "", "Time that tasks were ready and did not run.", |u| {
        seconds(u.wait_ns)
    }),
    ("fairlane_dispatches_total", ",lane=\"fast\"", "Time slices by lane.", |u| u.dispatches as f64),
    ("fairlane_dispatches_total", ",lane=\"heavy\"", "", |u| u.heavy_dispatches as f64),
    ("fairlane_throttled_seconds_total", "", "Time that the CPU limit throttled it.", |u| {
        seconds(u.throttled_ns)
    }),
    ("fairlane_disk_bytes_total", ",direction=\"read\"", "Disk traffic.", |u| u.disk_read_bytes as f64),
    ("fairlane_disk_bytes_total", ",direction=\"write\"", "", |u| u.disk_write_bytes as f64),
    ("fairlane_disk_operations_total", ",direction=\"read\"", "Disk requests.", |u| u.disk_read_ops as f64),
    ("fairlane_disk_operations_total", ",direction=\"write\"", "", |u| u.disk_write_ops as f64),
    ("fairlane_disk_seconds_total", "", "Time of disk requests from submission to completion.", |u| {
        seconds(u.disk_wait_ns)
    }),
    (
        "fairlane_disk_queue_seconds_total",
        "",
        "Time of disk requests in the queue. Its rate is the average queue length.",
        |u| seconds(u.disk_queue_ns),
    ),
    ("fairlane_disk_charged_seconds_total", "", "Disk time charged to requests.", |u| seconds(u.disk_ns)),
    ("fairlane_cache_lookups_total", ",found=\"yes\"", "Block lookups in the cache.", |u| {
        u.cache_hits as f64
    }),
    ("fairlane_cache_lookups_total", ",found=\"no\"", "", |u| u.cache_misses as f64),
];

/// Background work of the server, which belongs to no level. Its CPU and disk traffic are exported
/// beside those of the levels.
pub(crate) const SYSTEM: [(&str, Group); 4] = [
    ("control", Group::CONTROL),
    ("log", Group::LOG),
    ("flush", Group::FLUSH),
    ("compaction", Group::COMPACTION),
];

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Returns the value of a label, escaped.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn histogram(out: &mut String, name: &str, labels: &str, values: &Merged) {
    for (bound_ns, count) in values.cumulative() {
        let _ = writeln!(out, "{name}_bucket{{{labels},le=\"{}\"}} {count}", seconds(bound_ns));
    }
    let _ = writeln!(out, "{name}_bucket{{{labels},le=\"+Inf\"}} {}", values.count);
    let _ = writeln!(out, "{name}_sum{{{labels}}} {}", seconds(values.sum_ns));
    let _ = writeln!(out, "{name}_count{{{labels}}} {}", values.count);
}

impl Levels {
    /// Appends the metrics of every level, and the counters of the lanes for the server's own
    /// groups. Empty histograms are omitted.
    pub fn metrics_text(&self, out: &mut String) {
        let catalog = self.catalog();
        let levels: Vec<(String, &Entry, Totals, Usage)> = catalog
            .entries()
            .map(|entry| {
                let label = format!("level=\"{}\"", escaped(&entry.spec.name));
                (label, &**entry, entry.level.totals(), self.lanes.usage(entry.level.group()))
            })
            .collect();
        head(out, "fairlane_shares", "gauge", "Shares of the service level.");
        for (level, entry, ..) in &levels {
            let _ = writeln!(out, "fairlane_shares{{{level}}} {}", entry.spec.shares);
        }
        requests(out, &levels);
        let system = SYSTEM.map(|(name, group)| (format!("group=\"{name}\""), self.lanes.usage(group)));
        let mut last = "";
        for (name, labels, help, value) in LANE_METRICS {
            if name != last {
                head(out, name, "counter", help);
                last = name;
            }
            let of_levels = levels.iter().map(|(level, .., usage)| (level, usage));
            for (owner, usage) in of_levels.chain(system.iter().map(|(group, usage)| (group, usage))) {
                let _ = writeln!(out, "{name}{{{owner}{labels}}} {}", value(usage));
            }
        }
        self.waits(out, &catalog);
    }

    /// Appends the groups that each group waited for, if there were any.
    fn waits(&self, out: &mut String, catalog: &Catalog) {
        let name = "fairlane_waited_for_seconds_total";
        head(out, name, "counter", "Time that another group had the core while tasks were ready.");
        let names = Names::new(catalog);
        let levels = catalog.entries().map(|entry| ("level", &*entry.spec.name, entry.level.group()));
        for (label, waiter, group) in levels.chain(SYSTEM.map(|(name, group)| ("group", name, group))) {
            for (holder, ns) in names.waited_for(&self.lanes, group) {
                let (waiter, holder) = (escaped(waiter), escaped(&holder));
                let _ = writeln!(out, "{name}{{{label}=\"{waiter}\",whom=\"{holder}\"}} {}", seconds(ns));
            }
        }
    }
}

/// Appends the metrics of query memory.
fn memory(out: &mut String, levels: &[(String, &Entry, Totals, Usage)]) {
    type Value = fn(&MemoryUse) -> u64;
    const MEMORY: [(&str, &str, &str, Value); 3] = [
        ("fairlane_query_memory_bytes", "gauge", "Query memory that the level uses.", |u| u.used),
        ("fairlane_query_memory_most_bytes", "gauge", "Highest use of query memory.", |u| u.peak),
        ("fairlane_query_memory_refused_total", "counter", "Refused requests for query memory.", |u| {
            u.refused
        }),
    ];
    for (name, kind, help, value) in MEMORY {
        head(out, name, kind, help);
        for (level, entry, ..) in levels {
            let _ = writeln!(out, "{name}{{{level}}} {}", value(&entry.level.memory().usage()));
        }
    }
}

/// Appends the limits of the levels with `max_concurrency = 'auto'`.
fn limits(out: &mut String, levels: &[(String, &Entry, Totals, Usage)]) {
    let uses: Vec<(&String, LimitUse)> =
        levels.iter().filter_map(|(level, entry, ..)| Some((level, entry.level.limit_use()?))).collect();
    type Value = fn(&LimitUse) -> f64;
    const LIMITS: [(&str, &str, Value); 4] = [
        ("fairlane_concurrency_limit", "Statements that the limiter lets run.", |u| u.statements as f64),
        ("fairlane_statement_work_seconds", "Measured CPU or disk time of a statement.", |u| {
            seconds(u.work_ns)
        }),
        ("fairlane_queue_delay_seconds", "Recent mean queue delay.", |u| seconds(u.queue_delay_ns)),
        ("fairlane_queue_delay_target_seconds", "Target of the limiter.", |u| seconds(u.target_ns)),
    ];
    for (name, help, value) in LIMITS {
        head(out, name, "gauge", help);
        for (level, limit) in &uses {
            let _ = writeln!(out, "{name}{{{level}}} {}", value(limit));
        }
    }
}

/// Appends the slots of the levels that have or had a `max_concurrency`.
fn slots(out: &mut String, levels: &[(String, &Entry, Totals, Usage)]) {
    let uses: Vec<(&String, SlotUse)> = levels
        .iter()
        .map(|(level, entry, ..)| (level, entry, entry.level.slot_use()))
        .filter(|(_, entry, slots)| {
            entry.spec.slots.max_concurrency.is_some() || *slots != SlotUse::default()
        })
        .map(|(level, _, slots)| (level, slots))
        .collect();
    type Value = fn(&SlotUse) -> f64;
    const SLOTS: [(&str, &str, &str, &str, Value); 6] = [
        ("fairlane_slots_running", "", "gauge", "Statements with a slot of max_concurrency.", |u| {
            f64::from(u.occupancy.running)
        }),
        ("fairlane_slots_waiting", "", "gauge", "Statements waiting for a slot.", |u| {
            f64::from(u.occupancy.waiting)
        }),
        ("fairlane_slots_refused_total", ",why=\"full\"", "counter", "Statements refused a slot.", |u| {
            u.full as f64
        }),
        ("fairlane_slots_refused_total", ",why=\"late\"", "counter", "", |u| u.timed_out as f64),
        ("fairlane_slots_waited_total", "", "counter", "Statements that got a slot after a wait.", |u| {
            u.waited as f64
        }),
        (
            "fairlane_slots_wait_seconds_total",
            "",
            "counter",
            "Total wait of statements that got a slot after a wait.",
            |u| seconds(u.waited_ns),
        ),
    ];
    for (name, labels, kind, help, value) in SLOTS {
        if !help.is_empty() {
            head(out, name, kind, help);
        }
        for (level, slots) in &uses {
            let _ = writeln!(out, "{name}{{{level}{labels}}} {}", value(slots));
        }
    }
}

fn requests(out: &mut String, levels: &[(String, &Entry, Totals, Usage)]) {
    head(out, "fairlane_requests_total", "counter", "Finished requests.");
    for (level, _, totals, _) in levels {
        for kind in Kind::ALL {
            let count = totals.service[kind as usize].count;
            let _ = writeln!(out, "fairlane_requests_total{{{level},kind=\"{}\"}} {count}", kind.name());
        }
    }
    head(out, "fairlane_errors_total", "counter", "Requests finished with an error.");
    for (level, _, totals, _) in levels {
        for kind in Kind::ALL {
            let count = totals.errors[kind as usize];
            let _ = writeln!(out, "fairlane_errors_total{{{level},kind=\"{}\"}} {count}", kind.name());
        }
    }
    head(out, "fairlane_shed_total", "counter", "Requests refused because too many were in flight.");
    for (level, _, totals, _) in levels {
        let _ = writeln!(out, "fairlane_shed_total{{{level}}} {}", totals.shed);
    }
    head(out, "fairlane_in_flight", "gauge", "Admitted requests that have not ended.");
    for (level, _, totals, _) in levels {
        let _ = writeln!(out, "fairlane_in_flight{{{level}}} {}", totals.in_flight);
    }
    slots(out, levels);
    limits(out, levels);
    memory(out, levels);
    let service = "fairlane_service_time_seconds";
    head(out, service, "histogram", "Service time of requests without queues.");
    for (level, _, totals, _) in levels {
        for kind in Kind::ALL.into_iter().filter(|&kind| totals.service[kind as usize].count > 0) {
            let labels = format!("{level},kind=\"{}\"", kind.name());
            histogram(out, service, &labels, &totals.service[kind as usize]);
        }
    }
    let queue = "fairlane_queue_time_seconds";
    head(out, queue, "histogram", "Time of requests in queues before service.");
    for (level, _, totals, _) in levels.iter().filter(|(_, _, totals, _)| totals.queue.count > 0) {
        histogram(out, queue, level, &totals.queue);
    }
}
