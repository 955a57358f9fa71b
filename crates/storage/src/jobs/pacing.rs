//! The pace of background work. Measurements go to the controllers of `sched::control`. Their
//! decisions go to the lanes' shares, to flushes and compactions in flight, and to acknowledgements
//! of writes.
//!
//! A task of the fast lane decides every 20 ms while there is work. Heavy work gets decisions
//! through the atomics of [`Pace`]: between chunks it reports its progress and sleeps to keep the
//! rate.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use lanes::Group;
use sched::control::{
    Compaction, CompactionInput, Division, Flush, FlushInput, INTERVAL_NS, Pacer, Pressure, Throttle,
    UNLIMITED, divide, pressure_ppm,
};

use crate::env::{Env, LocalBoxFuture, UsedTime, Work};
use crate::log::bound::LogBound;
use crate::options::{PaceOptions, StorageOptions};
use crate::state::ShardState;
use crate::state::stats::Stats;

/// The initial estimate of the cost of flushing or compacting 1 MiB, ns of CPU: 250 MiB/s.
const COST_NS_PER_MIB: u64 = 4_000_000;

/// A memtable smaller than this, and than a quarter of the largest, is not worth a table file.
const IDLE_BYTES_MIN: u64 = 16 << 20;

/// The most log records between two calls of [`Pacing::is_idle`] that count as idle, if they
/// add less than a sixteenth of the threshold above.
const IDLE_RECORDS: u64 = 500;

/// The least bytes that give a measurement. The start and the end of a flush or compaction cost
/// more than the bytes between.
const MEASURED_BYTES_MIN: u64 = 16 << 20;

/// The rate of one kind of heavy work, and its progress. Shared by both lanes. The fields are
/// independent.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Bytes per second.
    rate: AtomicU64,
    /// Bytes done since the shard was opened.
    done: AtomicU64,
    /// True if work that can be abandoned must stop.
    stop: AtomicBool,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { rate: AtomicU64::new(UNLIMITED), done: AtomicU64::new(0), stop: AtomicBool::new(false) }
    }
}

impl Pace {
    pub(crate) fn done(&self) -> u64 {
        self.done.load(Relaxed)
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    fn set(&self, rate: u64) {
        self.rate.store(rate, Relaxed);
    }

    /// Counts `bytes` as done, and sleeps until the rate allows them. Heavy work awaits this
    /// between chunks.
    pub(crate) async fn keep_rate(&self, env: &dyn Env, pacer: &mut Pacer, bytes: u64) {
        self.done.fetch_add(bytes, Relaxed);
        pacer.worked(bytes);
        while let Some(sleep_ns) = pacer.sleep_ns(env.now_ns(), self.rate.load(Relaxed))
            && !self.is_stopped()
        {
            env.heavy_sleep(Duration::from_nanos(sleep_ns)).await;
        }
    }
}

/// Compactions in flight and in need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CompactionLoad {
    pub(crate) is_running: bool,
    /// Bytes still to compact, including the rest of compactions in flight.
    pub(crate) backlog_bytes: u64,
}

/// The fast lane's state of pacing.
#[derive(Debug)]
pub(crate) struct Pacing {
    options: PaceOptions,
    /// Size at which a memtable is flushed.
    memtable_bytes: u64,
    log_bound: LogBound,
    pub(crate) flush: Arc<Pace>,
    pub(crate) compaction: Arc<Pace>,
    /// The number of callers that wait for flushes. Flushes are not paced meanwhile.
    waiting: Cell<u32>,
    /// Flushes and compactions stand still, for tests of data that is not flushed or compacted yet.
    #[cfg(test)]
    pub(crate) paused: Cell<bool>,
    /// The slow-down of writers because runs pile up, millionths.
    pub(crate) runs_pressure_ppm: Cell<u32>,
    throttle: RefCell<Throttle<Group>>,
    delayed_ns: Cell<u64>,
    /// The last log record, and the bytes written to all memtables, at the last check for idleness.
    seen: Cell<(u64, u64)>,
    controls: RefCell<Controls>,
    /// Progress of all flushes when the one in flight started.
    flush_began: Cell<u64>,
}

/// A caller that waits for flushes.
#[derive(Debug)]
pub(crate) struct FlushWaiter<'a>(&'a Cell<u32>);

impl Drop for FlushWaiter<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Pacing {
    pub(crate) fn new(options: &StorageOptions) -> Pacing {
        Pacing {
            options: options.pace,
            memtable_bytes: options.memtable_bytes_max as u64,
            log_bound: LogBound::new(options),
            flush: Arc::default(),
            compaction: Arc::default(),
            waiting: Cell::new(0),
            #[cfg(test)]
            paused: Cell::new(false),
            runs_pressure_ppm: Cell::new(0),
            throttle: RefCell::default(),
            delayed_ns: Cell::new(0),
            seen: Cell::new((0, 0)),
            controls: RefCell::default(),
            flush_began: Cell::new(0),
        }
    }

    /// Counts a caller that waits for flushes, until the result is dropped.
    pub(crate) fn wait_for_flush(&self) -> FlushWaiter<'_> {
        self.waiting.set(self.waiting.get() + 1);
        FlushWaiter(&self.waiting)
    }

    /// Returns true while a test pauses flushes and compactions.
    pub(crate) fn is_paused(&self) -> bool {
        #[cfg(test)]
        let paused = self.paused.get();
        #[cfg(not(test))]
        let paused = false;
        paused
    }
}

/// The measured cost of heavy work of one kind: core time, or disk time if that is more.
#[derive(Debug)]
struct Cost {
    ns_per_mib: u64,
    /// Bytes done at the last measurement.
    bytes: u64,
    /// Time used at the last measurement.
    used: UsedTime,
}

impl Default for Cost {
    fn default() -> Cost {
        Cost { ns_per_mib: COST_NS_PER_MIB, bytes: 0, used: UsedTime::default() }
    }
}

impl Cost {
    /// Updates the estimate with the totals so far. Returns the cost, ns per MiB.
    fn measure(&mut self, bytes: u64, used: UsedTime) -> u64 {
        let done = bytes.saturating_sub(self.bytes);
        if done >= MEASURED_BYTES_MIN {
            let cpu_ns = used.cpu_ns.saturating_sub(self.used.cpu_ns);
            let disk_ns = used.disk_ns.saturating_sub(self.used.disk_ns);
            let used_ns = cpu_ns.max(disk_ns);
            let cost = u64::try_from(u128::from(used_ns) * (1 << 20) / u128::from(done)).unwrap_or(u64::MAX);
            self.ns_per_mib = (self.ns_per_mib.saturating_mul(3)).saturating_add(cost) / 4;
            self.bytes = bytes;
            self.used = used;
        }
        self.ns_per_mib
    }
}

#[derive(Debug, Default)]
struct Controls {
    flush: Flush,
    compaction: Compaction,
    at_ns: u64,
    filled: u64,
    flushed: u64,
    /// Bytes of memtable flushed per second, smoothed. Keeps its value between flushes.
    flush_rate: u64,
    compacted: u64,
    compaction_rate: u64,
    flush_cost: Cost,
    compaction_cost: Cost,
    weights: (u64, u64),
    applied: Option<Division>,
}

impl Pacing {
    /// Returns the bytes of frozen memtables that are not flushed yet.
    pub(crate) fn left_bytes(&self, state: &ShardState) -> u64 {
        let all: u64 = state.memory.frozen.iter().map(|frozen| frozen.bytes).sum();
        let first = state.memory.frozen.front().map_or(0, |frozen| frozen.bytes);
        all - self.flush.done().saturating_sub(self.flush_began.get()).min(first)
    }

    /// Counts the progress of flushes for the next one.
    pub(crate) fn begin_flush(&self) {
        self.flush_began.set(self.flush.done());
    }

    fn pressure_ppm(&self, state: &ShardState) -> u32 {
        // Without a frozen memtable, the next write that fills the active one freezes it.
        match state.memory.frozen.is_empty() {
            true => 0,
            false => pressure_ppm(state.memory.filled + self.left_bytes(state), self.memtable_bytes),
        }
    }

    /// Charges a write to the throttle of acknowledgements, in the running task's group. Free while
    /// memory and runs are below their limits.
    pub(crate) fn charge_write(&self, state: &ShardState, bytes: u64, env: &dyn Env) {
        let memory = self.pressure_ppm(state);
        let runs = self.runs_pressure_ppm.get();
        if memory.max(runs) > 0 {
            let controls = self.controls.borrow();
            // Writers may go as fast as the work that they wait for.
            let flush_rate = if memory >= runs { controls.flush_rate } else { controls.compaction_rate };
            let pressure = Pressure { ppm: memory.max(runs), flush_rate };
            self.throttle.borrow_mut().write(env.now_ns(), env.group(), env.shares(), bytes, pressure);
        }
    }

    /// Returns the wait of the throttle before an acknowledgement to the running task's group, if
    /// there is one.
    pub(crate) fn delay(&self, env: &dyn Env) -> Option<LocalBoxFuture<()>> {
        let delay = self.throttle.borrow().delay_ns(env.now_ns(), env.group());
        // Timers have a resolution of a millisecond. A shorter delay stays in the throttle.
        let worth_it = delay >= 1_000_000;
        self.delayed_ns.set(self.delayed_ns.get() + if worth_it { delay } else { 0 });
        worth_it.then(|| env.sleep(Duration::from_nanos(delay)))
    }

    /// Returns true if the active memtables have a minimum size, and hardly anything was written
    /// since the last call. `last` is the last log record.
    pub(crate) fn is_idle(&self, state: &ShardState, last: u64) -> bool {
        let enough = IDLE_BYTES_MIN.min(self.memtable_bytes / 4);
        let filled = state.memory.filled_ever();
        let (last_seen, filled_seen) = self.seen.replace((last, filled));
        let idle = last - last_seen <= IDLE_RECORDS && filled - filled_seen <= enough / 16;
        idle && state.memory.filled >= enough
    }

    /// Measures, asks the controllers, and applies their decisions.
    /// `log_length` is the length of the log.
    pub(crate) fn decide(&self, state: &ShardState, log_length: u64, load: CompactionLoad, env: &dyn Env) {
        let options = &self.options;
        let controls = &mut *self.controls.borrow_mut();
        let now_ns = env.now_ns();
        let interval_ns = now_ns.saturating_sub(controls.at_ns).max(1);
        let waits = state.closed || self.waiting.get() > 0 || self.is_paused();
        if interval_ns < INTERVAL_NS / 4 && !waits {
            return;
        }
        controls.at_ns = now_ns;
        let left_bytes = self.left_bytes(state);
        let pressure_ppm = self.pressure_ppm(state);
        let filled = state.memory.filled_ever();
        // Computed from what is left, so that errors in the estimate of a flush in flight do not
        // add up.
        let flushed = state.memory.frozen_bytes - left_bytes;
        let decision = controls.flush.decide(FlushInput {
            interval_ns,
            filled_bytes: filled.saturating_sub(controls.filled),
            flushed_bytes: flushed.saturating_sub(controls.flushed),
            left_bytes,
            room_bytes: self.memtable_bytes.saturating_sub(state.memory.filled),
            memtable_bytes: self.memtable_bytes,
            cost_ns_per_mib: controls.flush_cost.measure(self.flush.done(), env.used_time(Work::Flush)),
            pressure_ppm,
        });
        (controls.filled, controls.flushed) = (filled, flushed);
        controls.flush_rate = controls.flush.flushed_rate();
        let is_long =
            !state.memory.frozen.is_empty() && state.memory.live_log(log_length) >= self.log_bound.wait_at();
        let hurried = state.closed || self.waiting.get() > 0 || is_long;
        self.flush.set(match () {
            () if hurried => UNLIMITED,
            () if self.is_paused() => 0,
            () if options.controllers => decision.rate,
            () => UNLIMITED,
        });
        self.compaction.set(if self.is_paused() && !hurried { 0 } else { UNLIMITED });
        self.compaction.stop.store(state.closed, Relaxed);
        let compaction = self.compaction_weight(load, controls, interval_ns, env);
        if !options.controllers {
            return;
        }
        let flush = if state.memory.frozen.is_empty() { 0 } else { decision.weight };
        controls.weights = (flush, compaction);
        let division = divide(flush, compaction, pressure_ppm > 0, options.quota_ppm);
        if controls.applied.is_none_or(|applied| differs(applied, division)) {
            controls.applied = Some(division);
            env.set_shares(division);
        }
    }

    fn compaction_weight(
        &self,
        load: CompactionLoad,
        controls: &mut Controls,
        interval_ns: u64,
        env: &dyn Env,
    ) -> u64 {
        let done = self.compaction.done();
        let rate = u128::from(done - controls.compacted) * 1_000_000_000 / u128::from(interval_ns);
        controls.compaction_rate = (controls.compaction_rate * 7 + rate as u64) / 8;
        controls.compacted = done;
        let options = &self.options;
        let weight = controls.compaction.decide(CompactionInput {
            interval_ns,
            backlog_bytes: load.backlog_bytes,
            cost_ns_per_mib: controls.compaction_cost.measure(done, env.used_time(Work::Compaction)),
        });
        match load.is_running {
            true => options.compaction_shares.map_or(weight, u64::from),
            false => 0,
        }
    }

    /// Adds the metrics of pacing.
    pub(crate) fn add_stats(&self, state: &ShardState, load: CompactionLoad, stats: &mut Stats) {
        let controls = self.controls.borrow();
        let flushing = !state.memory.frozen.is_empty();
        stats.flush_rate = if flushing { controls.flush_rate } else { 0 };
        stats.compaction_rate = if load.is_running { controls.compaction_rate } else { 0 };
        (stats.flush_weight, stats.compaction_weight) = controls.weights;
        stats.flush_backlog_bytes = self.left_bytes(state);
        stats.compaction_backlog_bytes = load.backlog_bytes;
        stats.memory_pressure_ppm = u64::from(self.pressure_ppm(state));
        stats.throttle_delay_ns = self.delayed_ns.get();
    }
}

/// Returns true if a share differs by more than a sixteenth. Smaller changes are not worth a
/// message to every core.
fn differs(a: Division, b: Division) -> bool {
    let far = |a: u32, b: u32| a.abs_diff(b) * 16 > a.max(b);
    far(a.users, b.users)
        || far(a.system, b.system)
        || far(a.flush, b.flush)
        || far(a.compaction, b.compaction)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn used(cpu_ns: u64, disk_ns: u64) -> UsedTime {
        UsedTime { cpu_ns, disk_ns }
    }

    #[test]
    fn cost_is_the_greater_of_core_and_disk_time() {
        let mut cost = Cost::default();
        assert_eq!(cost.measure(MEASURED_BYTES_MIN - 1, used(1 << 40, 0)), COST_NS_PER_MIB, "too few bytes");
        let mut settle = |from: u64, cpu_ns: u64, disk_ns: u64| {
            for mib in (from..from + 1000).step_by(20) {
                cost.measure(mib * MIB, used(mib * cpu_ns, mib * disk_ns));
            }
            cost.ns_per_mib.div_ceil(1000)
        };
        assert_eq!(settle(20, 5_000_000, 1_000_000), 5000);
        assert_eq!(settle(10_000, 1_000_000, 30_000_000), 30_000);
    }

    #[test]
    fn extreme_numbers_keep_the_cost_in_bounds() {
        let mut cost = Cost::default();
        let settled = (COST_NS_PER_MIB * 3 + MIB) / 4;
        assert_eq!(cost.measure(u64::MAX, used(u64::MAX, 0)), settled, "a ns for each byte");
        assert_eq!(cost.measure(0, used(0, 0)), settled, "totals that fall measure nothing");
        assert_eq!(cost.measure(u64::MAX, used(u64::MAX, u64::MAX)), settled);
        let mut slow = Cost::default();
        assert_eq!(
            slow.measure(MEASURED_BYTES_MIN, used(u64::MAX, 0)),
            (COST_NS_PER_MIB * 3).div_euclid(4) + (u64::MAX >> 6)
        );
    }
}
