//! Metrics of the levels as Prometheus text. Counters of all cores are summed on request.

use std::borrow::Borrow;
use std::fmt::Write;

use lanes::{Group, Usage};
use sched::control::LimitChange;

use crate::histogram::Merged;
use crate::level::Totals;
use crate::waits::GroupNames;
use crate::{Catalog, LevelEntry, Levels, LimitUse, MemoryUse, RequestKind, SlotUse};

/// A metric of each owner: name, further labels, help, and value (divided by 10^9 for
/// seconds). Help is empty behind the first entry of a name.
type Metric<T> = (&'static str, &'static str, &'static str, fn(&T) -> f64);

const SHARES: [Metric<LevelEntry>; 1] =
    [("fairlane_shares", "", "Shares of the service level.", |entry| entry.spec.shares.into())];

const ADMISSION: [Metric<Totals>; 2] = [
    ("fairlane_shed_total", "", "Requests refused because too many were in flight.", |t| t.shed as f64),
    ("fairlane_in_flight", "", "Admitted requests that have not ended.", |t| t.in_flight as f64),
];

const SLOTS: [Metric<SlotUse>; 7] = [
    ("fairlane_slots_running", "", "Statements with a slot of max_concurrency.", |u| {
        u.occupancy.running.into()
    }),
    ("fairlane_slots_waiting", "", "Statements waiting for a slot.", |u| u.occupancy.waiting.into()),
    ("fairlane_slots_refused_total", ",why=\"full\"", "Statements refused a slot.", |u| u.full as f64),
    ("fairlane_slots_refused_total", ",why=\"late\"", "", |u| u.timed_out as f64),
    ("fairlane_slots_refused_total", ",why=\"predicted\"", "", |u| u.predicted as f64),
    ("fairlane_slots_waited_total", "", "Statements that got a slot after a wait.", |u| u.waited as f64),
    (
        "fairlane_slots_wait_seconds_total",
        "",
        "Total wait of statements that got a slot after a wait.",
        |u| seconds(u.waited_ns),
    ),
];

/// State of the limiter, for levels that it limits.
const LIMITS: [Metric<LimitUse>; 3] = [
    ("fairlane_statement_work_seconds", "", "Measured CPU or disk time of a statement.", |u| {
        seconds(u.work_ns)
    }),
    ("fairlane_queue_delay_seconds", "", "Recent mean queue delay.", |u| seconds(u.queue_delay_ns)),
    ("fairlane_queue_delay_target_seconds", "", "Target of the limiter.", |u| seconds(u.target_ns)),
];

const MEMORY: [Metric<MemoryUse>; 3] = [
    ("fairlane_query_memory_bytes", "", "Query memory that the level uses.", |u| u.used as f64),
    ("fairlane_query_memory_most_bytes", "", "Highest use of query memory.", |u| u.peak as f64),
    ("fairlane_query_memory_refused_total", "", "Refused requests for query memory.", |u| u.refused as f64),
];

const LANES: [Metric<Usage>; 17] = [
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
    ("fairlane_row_cache_lookups_total", ",found=\"yes\"", "Row lookups in the cache.", |u| {
        u.row_cache_hits as f64
    }),
    ("fairlane_row_cache_lookups_total", ",found=\"no\"", "", |u| u.row_cache_misses as f64),
];

/// Background work of the server, which belongs to no level. Its CPU and disk traffic are exported
/// alongside those of the levels.
pub(crate) const SYSTEM: [(&str, Group); 5] = [
    ("control", Group::CONTROL),
    ("log", Group::LOG),
    ("flush", Group::FLUSH),
    ("compaction", Group::COMPACTION),
    ("index", Group::INDEX),
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

/// Appends the metrics of a table, with the label of each owner. Names of counters end in `_total`.
fn table<T, V: Borrow<T>>(out: &mut String, metrics: &[Metric<T>], owners: &[(&str, V)]) {
    for (name, labels, help, value) in metrics {
        if !help.is_empty() {
            head(out, name, if name.ends_with("_total") { "counter" } else { "gauge" }, help);
        }
        for (owner, of) in owners {
            let _ = writeln!(out, "{name}{{{owner}{labels}}} {}", value(of.borrow()));
        }
    }
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
        let levels: Vec<(String, &LevelEntry)> = catalog
            .entries()
            .map(|entry| (format!("level=\"{}\"", escaped(&entry.spec.name)), &**entry))
            .collect();
        table(out, &SHARES, &each(&levels, Some));
        requests(out, &levels);
        let mut lanes = each(&levels, |entry| Some(self.lanes.usage(entry.level.group())));
        let system = SYSTEM.map(|(name, group)| (format!("group=\"{name}\""), self.lanes.usage(group)));
        lanes.extend(system.iter().map(|(group, usage)| (&**group, *usage)));
        table(out, &LANES, &lanes);
        self.waits(out, &catalog);
    }

    /// Appends the groups that each group waited for, if there were any.
    fn waits(&self, out: &mut String, catalog: &Catalog) {
        let name = "fairlane_waited_for_seconds_total";
        head(out, name, "counter", "Time that another group had the core while tasks were ready.");
        let names = GroupNames::new(catalog);
        let levels = catalog.entries().map(|entry| ("level", &*entry.spec.name, entry.level.group()));
        for (label, waiter, group) in levels.chain(SYSTEM.map(|(name, group)| ("group", name, group))) {
            for (holder, ns) in names.waited_for(&self.lanes, group) {
                let waiter = escaped(waiter);
                let holder = escaped(&holder);
                let _ = writeln!(out, "{name}{{{label}=\"{waiter}\",whom=\"{holder}\"}} {}", seconds(ns));
            }
        }
    }
}

/// Returns a value of each level, with the label of the level. Levels without a value are omitted.
fn each<'a, V>(
    levels: &'a [(String, &'a LevelEntry)],
    of: impl Fn(&'a LevelEntry) -> Option<V>,
) -> Vec<(&'a str, V)> {
    levels.iter().filter_map(|(level, entry)| Some((&**level, of(entry)?))).collect()
}

/// Returns the slots of a level that has or had a `max_concurrency`.
fn slots(entry: &LevelEntry) -> Option<SlotUse> {
    let slots = entry.level.slot_use();
    (entry.spec.slots.max_concurrency.is_some() || slots != SlotUse::default()).then_some(slots)
}

/// Appends the limit of each core, and why limits have changed, for levels with a limiter.
fn limits(out: &mut String, levels: &[(String, &LevelEntry)]) {
    let limited =
        |entry: &LevelEntry| Some(entry.level.limit_of_cores()).filter(|(cores, _)| !cores.is_empty());
    let limits = each(levels, limited);
    head(out, "fairlane_limit", "gauge", "Statements that the limiter lets run on a core.");
    for (level, (cores, _)) in &limits {
        for (core, statements) in cores {
            let _ = writeln!(out, "fairlane_limit{{{level},core=\"{core}\"}} {statements}");
        }
    }
    let help = "Changes of the limit of a core, by the measurement that changed most.";
    head(out, "fairlane_limit_changes_total", "counter", help);
    for (level, (_, changes)) in &limits {
        for (change, count) in LimitChange::ALL.iter().zip(changes) {
            let why = change.name();
            let _ = writeln!(out, "fairlane_limit_changes_total{{{level},why=\"{why}\"}} {count}");
        }
    }
}

fn requests(out: &mut String, levels: &[(String, &LevelEntry)]) {
    let totals = each(levels, |entry| Some(entry.level.totals()));
    head(out, "fairlane_requests_total", "counter", "Finished requests.");
    for (level, totals) in &totals {
        for kind in RequestKind::ALL {
            let count = totals.service[kind as usize].count;
            let _ = writeln!(out, "fairlane_requests_total{{{level},kind=\"{}\"}} {count}", kind.name());
        }
    }
    head(out, "fairlane_errors_total", "counter", "Requests finished with an error.");
    for (level, totals) in &totals {
        for kind in RequestKind::ALL {
            let count = totals.errors[kind as usize];
            let _ = writeln!(out, "fairlane_errors_total{{{level},kind=\"{}\"}} {count}", kind.name());
        }
    }
    table(out, &ADMISSION, &totals);
    table(out, &SLOTS, &each(levels, slots));
    limits(out, levels);
    table(out, &LIMITS, &each(levels, |entry| entry.level.limit_use()));
    table(out, &MEMORY, &each(levels, |entry| Some(entry.level.memory().usage())));
    let service = "fairlane_service_time_seconds";
    head(out, service, "histogram", "Service time of requests without queues.");
    for (level, totals) in &totals {
        for kind in RequestKind::ALL.into_iter().filter(|&kind| totals.service[kind as usize].count > 0) {
            let labels = format!("{level},kind=\"{}\"", kind.name());
            histogram(out, service, &labels, &totals.service[kind as usize]);
        }
    }
    let queue = "fairlane_queue_time_seconds";
    head(out, queue, "histogram", "Time of requests in queues before service.");
    for (level, totals) in totals.iter().filter(|(_, totals)| totals.queue.count > 0) {
        histogram(out, queue, level, &totals.queue);
    }
}
