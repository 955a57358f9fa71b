//! Keeps levels at their `latency_target`: moves their shares between `shares_min` and `shares_max`
//! once a second. [`sched::control::Latency`] decides; `docs/scheduler.md` derives it.
//!
//! The 99th percentile is that of the server: from when a statement arrived, or over SQL since the
//! one before it on its connection has ended, until its answer was encoded.

use lanes::{GroupSpec, Usage};
use sched::control::{Latency, LatencyInput};
use std::collections::{HashMap, HashSet};

use crate::histogram::Merged;
use crate::slots::nanoseconds;
use crate::{Catalog, LatencyUse, LevelEntry, LevelSpec, Levels};

/// Shortest time between two decisions on a level, ns.
const WINDOW_NS: u64 = 1_000_000_000;
/// Longest time between two decisions on a level with few statements, ns.
const WINDOW_NS_MAX: u64 = 30 * WINDOW_NS;
/// Statements of a window above which it is not lengthened.
const STATEMENTS_MIN: u64 = 200;

/// Measurements of a level at its last decision.
struct Known {
    spec: LevelSpec,
    control: Latency,
    since_ns: u64,
    usage: Usage,
    /// Response times.
    response: Merged,
    queue: (u64, u64),
    /// Total wait for slots, ns.
    slot_wait_ns: u64,
    /// CPU time of all levels, ns.
    all_cpu_ns: u64,
}

/// The controllers of all levels with a target.
#[derive(Default)]
pub(crate) struct Latencies {
    known: HashMap<u64, Known>,
    last_ns: u64,
}

impl Latencies {
    /// Decides on the levels whose window is over. It does not yield: a level that is altered
    /// meanwhile would get its old options back.
    pub(crate) fn decide(&mut self, levels: &Levels, now_ns: u64) {
        // Not more often: this sums the CPU time of all levels.
        if now_ns.saturating_sub(self.last_ns) < WINDOW_NS {
            return;
        }
        self.last_ns = now_ns;
        let catalog = levels.catalog();
        let with_target = || catalog.entries().filter(|entry| entry.spec.latency.target.is_some());
        if with_target().next().is_none() {
            self.known.clear();
            return;
        }
        let all_cpu_ns = cpu_of_all(levels, &catalog);
        let ids: HashSet<u64> = with_target().map(|entry| entry.level.id()).collect();
        self.known.retain(|id, _| ids.contains(id));
        for entry in with_target() {
            self.decide_on(levels, entry, now_ns, all_cpu_ns);
        }
    }

    fn decide_on(&mut self, levels: &Levels, entry: &LevelEntry, now_ns: u64, all_cpu_ns: u64) {
        let LevelEntry { level, spec } = entry;
        let measure = |control| {
            let totals = level.totals();
            Known {
                spec: spec.clone(),
                control,
                since_ns: now_ns,
                usage: levels.lanes.usage(level.group()),
                response: level.response(),
                queue: (totals.queue.sum_ns, totals.queue.count),
                slot_wait_ns: level.slot_use().waited_ns,
                all_cpu_ns,
            }
        };
        let known = match self.known.get_mut(&level.id()) {
            Some(known) if known.spec == *spec => known,
            _ => {
                // The level begins with the shares that it was given.
                self.known.insert(level.id(), measure(Latency::new(spec.shares.into())));
                return;
            }
        };
        let elapsed_ns = now_ns.saturating_sub(known.since_ns);
        if elapsed_ns < WINDOW_NS {
            return;
        }
        let response = level.response().since(&known.response);
        if response.count < STATEMENTS_MIN && elapsed_ns < WINDOW_NS_MAX {
            return;
        }
        let now = measure(known.control);
        let target = spec.latency.target.unwrap_or_default();
        let bounds = spec.latency;
        let target_ns = nanoseconds(target);
        let p99_ns = response.quantile_ns(990_000);
        let each = |sum_ns: u64| sum_ns / response.count.max(1);
        let own_cpu_ns = cpu_ns(&now.usage).saturating_sub(cpu_ns(&known.usage));
        let others_ns = now
            .all_cpu_ns
            .saturating_sub(known.all_cpu_ns)
            .saturating_sub(own_cpu_ns)
            .saturating_mul(1_000_000);
        let capacity_ns = elapsed_ns.saturating_mul(levels.lanes.cores() as u64).max(1);
        let slot_wait_ns = now.slot_wait_ns.saturating_sub(known.slot_wait_ns);
        // The queue delay of a statement includes its wait for a slot.
        let queue_ns = now.queue.0.saturating_sub(known.queue.0).saturating_sub(slot_wait_ns);
        let disk_queue_ns = now.usage.disk_queue_ns.saturating_sub(known.usage.disk_queue_ns);
        let input = LatencyInput {
            target_ns,
            p99_ns,
            ended: response.count,
            alone_ns: each(own_cpu_ns.saturating_add(device_ns(&now.usage, &known.usage))),
            cpu_wait_ns: queue_ns / now.queue.1.saturating_sub(known.queue.1).max(1),
            slot_wait_ns: each(slot_wait_ns),
            disk_wait_ns: each(disk_queue_ns),
            others_ppm: u32::try_from(others_ns / capacity_ns).unwrap_or(u32::MAX),
            shares_min: bounds.shares_min.unwrap_or(spec.shares).into(),
            shares_max: bounds.shares_max.unwrap_or(spec.shares).into(),
        };
        let mut control = now.control;
        let (shares, reason) = control.decide(input);
        if level.shares_now(spec) != shares {
            levels.lanes.alter_group(level.group(), GroupSpec { shares, ..spec.group_spec() });
        }
        level.set_latency_use(LatencyUse { target_ns, p99_ns, shares, reason });
        *known = Known { control, ..now };
    }
}

/// Returns the CPU time on both lanes, ns.
pub(crate) fn cpu_ns(usage: &Usage) -> u64 {
    usage.cpu_fast_ns.saturating_add(usage.cpu_heavy_ns)
}

/// Returns the growth of the time that requests spent inside the disk, ns.
pub(crate) fn device_ns(now: &Usage, before: &Usage) -> u64 {
    let inside = |usage: &Usage| usage.disk_wait_ns.saturating_sub(usage.disk_queue_ns);
    inside(now).saturating_sub(inside(before))
}

fn cpu_of_all(levels: &Levels, catalog: &Catalog) -> u64 {
    let usages = catalog.entries().map(|entry| cpu_ns(&levels.lanes.usage(entry.level.group())));
    usages.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests;
