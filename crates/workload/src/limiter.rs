//! Limits the concurrency of levels with `max_concurrency = 'auto'`, and of levels without the
//! option if the server's `concurrency_limit` is `auto`. A task on core 0 measures the work of a
//! level's statements every [`INTERVAL_NS`], and publishes a limit for each core, and the part of
//! the core that is due to each level. Admission applies them. [`sched::control::Concurrency`]
//! decides; `docs/scheduler.md` derives it.
//!
//! ```text
//!   lanes: CPU, disk ─┐                                          ┌─▶ core 0: OnCore::limit ─▶ admission
//!   statements ended ─┼─▶ work of a statement ─▶ Concurrency ────┤
//!   active levels ────┘                          (of each core)  └─▶ core 1: …
//! ```
//!
//! In front of a cluster, the time of requests at nodes counts as time at the device. And a level
//! has at most [`NODE_PARTS_MAX`] times its part of the windows of nodes in flight: one part is at
//! the nodes, and as much waits for them. The rest stays in its sockets, where it costs no memory.
//!
//! Limits: without a level to limit, entitlements are up to [`IDLE`] old. Work is measured over all
//! cores, because a statement works where its data is. The entitlement counts the levels of users
//! alone. A level is active on a core if a statement is in flight there, or ended since the last
//! decision.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use lanes::{Group, Usage};
use sched::control::{Concurrency, ConcurrencyInput, INTERVAL_NS, LevelBounds, Spread, entitlement_ppm};

use crate::admission::{INTERACTIVE_IN_FLIGHT_MAX, LEVEL_IN_FLIGHT_MAX};
use crate::latency::{Latencies, cpu_ns, device_ns};
use crate::overload::Overload;
use crate::slots::nanoseconds;
use crate::{LevelEntry, Levels, RequestKind, WorkloadType};

/// Interval of checks for levels with a limit or a latency target, while none has a limit.
const IDLE: Duration = Duration::from_millis(500);
/// Highest service time of a write, in mean writes of the commit log. A write waits for the one in
/// flight and for its own. Times of log writes vary, and a stalled one holds many: about six at a
/// high load. A longer wait is for the core, or for memtables: a queue.
const LOG_WRITES_MAX: u64 = 8;
/// Requests in flight on a core, as a multiple of the level's part of the windows of nodes.
const NODE_PARTS_MAX: u32 = 2;
/// Work units charged for the decision on one level and core: about 0.1 µs.
const DECISION_UNITS: u32 = 1;
/// Time for which the longest time limit of statements counts, ns.
const TIME_LIMITS_NS: u64 = 1_000_000_000;

/// Measurements of a level, summed over cores, at the last decision.
struct Known {
    usage: Usage,
    ended: u64,
    /// Number of writes, and the sum of their service times, ns.
    writes: (u64, u64),
    refusal_ns: u64,
    /// Time of its requests at nodes of a cluster, ns.
    node_ns: u64,
    /// Sum of queue delays, ns, and their number.
    queue: (u64, u64),
    /// The state of each core.
    cores: Vec<Concurrency>,
    /// CPU and disk time on each core, ns.
    used_ns: Vec<u64>,
    spread: Spread,
    /// Longest time limits of statements, ns: in this period and in the previous one.
    time_limits_ns: (u64, u64),
    /// Start of this period, ns.
    period_ns: u64,
    /// Decision in which it was seen last.
    seen: u64,
}

/// The limiter of all levels of this process.
struct Limiter {
    levels: Arc<Levels>,
    /// Time limit of a level before its first statement, ns.
    time_limit_ns: u64,
    known: HashMap<u64, Known>,
    /// State of each level on each core at the last decision: true if it was active, and the number
    /// of its statements that had ended.
    active: HashMap<u64, Vec<(bool, u64)>>,
    log: Usage,
    decisions: u64,
    last_ns: u64,
    latencies: Latencies,
    overload: Overload,
}

/// Decides on the limits of all levels, and on their shares for latency targets, until the process
/// ends. `time_limit` is that of a level before its first statement. Run it once, on core 0's fast
/// lane, in [`Group::CONTROL`].
pub async fn limit_levels(levels: Arc<Levels>, time_limit: Duration) {
    let time_limit_ns = nanoseconds(time_limit);
    let last_ns = lanes::time::monotonic_ns();
    let known = HashMap::new();
    let active = HashMap::new();
    let log = Usage::default();
    let latencies = Latencies::default();
    let overload = Overload::default();
    let decisions = 0;
    let mut limiter =
        Limiter { levels, time_limit_ns, known, active, log, decisions, last_ns, latencies, overload };
    loop {
        let is_used = limiter.decide().await;
        let now_ns = lanes::time::monotonic_ns();
        limiter.latencies.decide(&limiter.levels, now_ns);
        limiter.overload.decide(&limiter.levels, now_ns);
        let pause = if is_used { Duration::from_nanos(INTERVAL_NS) } else { IDLE };
        lanes::time::sleep(pause).await;
    }
}

/// Sums over the levels that are active on a core.
#[derive(Clone, Copy, Default)]
struct Active {
    shares: u32,
    min_ppm: u32,
}

impl Limiter {
    /// Measures, and publishes the limits. Returns false if no level has one.
    async fn decide(&mut self) -> bool {
        let catalog = self.levels.catalog();
        let now_ns = lanes::time::monotonic_ns();
        let interval_ns = now_ns.saturating_sub(std::mem::replace(&mut self.last_ns, now_ns));
        self.decisions += 1;
        let cores = self.levels.lanes.cores();
        let mut active = vec![Active::default(); cores];
        let mut is_used = false;
        for entry in catalog.entries() {
            self.count_active(entry, &mut active);
            is_used |= entry.level.is_limited();
            if lanes::spend(DECISION_UNITS) {
                lanes::yield_now().await;
            }
        }
        let log_write_ns = self.log_write_ns();
        for entry in catalog.entries() {
            self.entitle(entry, &active);
            if entry.level.is_limited() {
                self.limit(entry, now_ns, interval_ns, log_write_ns);
            }
            if lanes::spend(DECISION_UNITS * cores as u32) {
                lanes::yield_now().await;
            }
        }
        let decisions = self.decisions;
        self.known.retain(|_, known| known.seen == decisions);
        if self.active.len() > 2 * catalog.entries().count() {
            let known: HashSet<u64> = catalog.entries().map(|entry| entry.level.id()).collect();
            self.active.retain(|id, _| known.contains(id));
        }
        is_used
    }

    /// Adds a level to the sums of the cores on which it is active.
    fn count_active(&mut self, entry: &LevelEntry, active: &mut [Active]) {
        let before = self.active.entry(entry.level.id()).or_insert_with(|| vec![(false, 0); active.len()]);
        for (core, (active, (is_active, before))) in active.iter_mut().zip(before).enumerate() {
            let ended = entry.level.ended(core);
            *is_active = std::mem::replace(before, ended) != ended || entry.level.in_flight(core) > 0;
            if *is_active {
                active.shares = active.shares.saturating_add(entry.level.shares_now(&entry.spec));
                active.min_ppm = active.min_ppm.saturating_add(entry.spec.cpu_min_ppm);
            }
        }
    }

    /// Publishes the part of each core that is due to a level. One that is not active there gets
    /// what would be due to it with a statement.
    fn entitle(&self, entry: &LevelEntry, active: &[Active]) {
        let LevelEntry { level, spec } = entry;
        let shares = level.shares_now(spec);
        let own = &self.active[&level.id()];
        for (core, (active, (is_active, _))) in active.iter().zip(own).enumerate() {
            let (own_shares, own_min_ppm) = if *is_active { (0, 0) } else { (shares, spec.cpu_min_ppm) };
            let ppm = entitlement_ppm(
                shares,
                active.shares.saturating_add(own_shares),
                spec.cpu_min_ppm,
                active.min_ppm.saturating_add(own_min_ppm),
                spec.cpu_limit_ppm,
            );
            level.set_entitlement_ppm(core, ppm);
        }
    }

    /// Returns the mean time of a write of the commit log at the device since the last decision,
    /// ns; 0 if there was none.
    fn log_write_ns(&mut self) -> u64 {
        let now = self.levels.lanes.usage(Group::LOG);
        let before = std::mem::replace(&mut self.log, now);
        device_ns(&now, &before).checked_div(now.disk_write_ops - before.disk_write_ops).unwrap_or(0)
    }

    /// Returns the CPU or disk time that a level has used on a core, whichever is more, ns.
    fn used_ns(&self, core: usize, group: Group) -> u64 {
        let usage = self.levels.lanes.core_usage(core, group);
        cpu_ns(&usage).max(usage.disk_ns)
    }

    fn limit(&mut self, entry: &LevelEntry, now_ns: u64, interval_ns: u64, log_write_ns: u64) {
        let LevelEntry { level, spec } = entry;
        let totals = level.totals();
        let usage = self.levels.lanes.usage(level.group());
        let cores = self.levels.lanes.cores();
        let sum = |of: &dyn Fn(usize) -> u64| (0..cores).map(of).sum::<u64>();
        let ended = sum(&|core| level.ended(core));
        let refusal_ns = sum(&|core| level.refusal_ns(core));
        let node_ns = sum(&|core| level.node_ns(core));
        let used_ns: Vec<u64> = (0..cores).map(|core| self.used_ns(core, level.group())).collect();
        let writes = &totals.service[RequestKind::Write as usize];
        let known = self.known.entry(level.id()).or_insert_with(|| Known {
            usage,
            ended,
            writes: (writes.count, writes.sum_ns),
            refusal_ns,
            node_ns,
            queue: (totals.queue.sum_ns, totals.queue.count),
            cores: vec![Concurrency::default(); cores],
            used_ns: used_ns.clone(),
            spread: Spread::new(cores),
            time_limits_ns: (0, 0),
            period_ns: now_ns,
            seen: 0,
        });
        known.seen = self.decisions;
        let busiest_ppm = known.busiest_ppm(used_ns, interval_ns);
        let refused_ns = refusal_ns - known.refusal_ns;
        let time_limit_ns = known.time_limit_ns(level.take_time_limit_ns(), now_ns);
        let worked_ns = cpu_ns(&usage).saturating_sub(cpu_ns(&known.usage)).saturating_sub(refused_ns);
        let new_writes = writes.count - known.writes.0;
        let served_ns = writes.sum_ns.wrapping_sub(known.writes.1);
        let log_ns = served_ns.min(new_writes.saturating_mul(log_write_ns.saturating_mul(LOG_WRITES_MAX)));
        let of_all = ConcurrencyInput {
            interval_ns,
            ended: ended - known.ended,
            cpu_ns: worked_ns,
            refusal_ns: refused_ns,
            disk_ns: usage.disk_ns - known.usage.disk_ns,
            // Nodes may have left, with the times there.
            device_ns: device_ns(&usage, &known.usage)
                .saturating_add(log_ns)
                .saturating_add(node_ns.saturating_sub(known.node_ns)),
            running: u32::try_from(totals.in_flight).unwrap_or(u32::MAX),
            elsewhere: 0,
            busiest_ppm,
            entitlement_ppm: 0,
            bounds: LevelBounds {
                time_limit_ns: time_limit_ns.unwrap_or(self.time_limit_ns),
                latency_target_ns: spec.latency.target.map(nanoseconds),
                limit_max: match spec.workload_type {
                    Some(WorkloadType::Interactive) => INTERACTIVE_IN_FLIGHT_MAX,
                    _ => LEVEL_IN_FLIGHT_MAX,
                },
            },
        };
        (known.usage, known.ended, known.refusal_ns) = (usage, ended, refusal_ns);
        (known.writes, known.node_ns) = ((writes.count, writes.sum_ns), node_ns);
        let queue = (totals.queue.sum_ns, totals.queue.count);
        let before = std::mem::replace(&mut known.queue, queue);
        if queue.1 > before.1 {
            level.set_queue_delay_ns((queue.0 - before.0) / (queue.1 - before.1));
        }
        for (core, state) in known.cores.iter_mut().enumerate() {
            let entitlement_ppm = level.entitlement_ppm(core);
            let elsewhere = of_all.running.saturating_sub(level.in_flight(core));
            let of_nodes = level.node_places(core).map(|places| places.saturating_mul(NODE_PARTS_MAX));
            let limit_max = of_all.bounds.limit_max.min(of_nodes.unwrap_or(u32::MAX));
            let bounds = LevelBounds { limit_max, ..of_all.bounds };
            let limit = state.decide(ConcurrencyInput { entitlement_ppm, elsewhere, bounds, ..of_all });
            let before = level.limit(core).get();
            let change = before.and_then(|before| limit.change_from(&before));
            change.into_iter().for_each(|change| level.count_limit_change(change));
            level.limit(core).set(&limit);
        }
    }
}

impl Known {
    /// Returns the part of the level's work that its busiest core did, in millionths.
    fn busiest_ppm(&mut self, used_ns: Vec<u64>, interval_ns: u64) -> u32 {
        let before = std::mem::replace(&mut self.used_ns, used_ns);
        let new = self.used_ns.iter().zip(before).map(|(now, before)| now.saturating_sub(before));
        self.spread.add(interval_ns, &new.collect::<Vec<_>>())
    }

    /// Returns the longest time limit of the statements of the last one to two periods, ns, from
    /// that since the last decision. `None`: none arrived.
    fn time_limit_ns(&mut self, arrived_ns: u64, now_ns: u64) -> Option<u64> {
        let (now, before) = self.time_limits_ns;
        let longest_ns = now.max(arrived_ns);
        // Without statements the last value stays.
        if longest_ns > 0 && now_ns.saturating_sub(self.period_ns) >= TIME_LIMITS_NS {
            (self.time_limits_ns, self.period_ns) = ((0, longest_ns), now_ns);
        } else {
            self.time_limits_ns = (longest_ns, before);
        }
        Some(longest_ns.max(before)).filter(|ns| *ns > 0)
    }
}

#[cfg(test)]
mod tests;
