//! The pace of background work. Measurements go to the controllers of `sched::control`. Their
//! decisions go to the lanes' shares, to flushes and compactions in flight, and to acknowledgements
//! of writes.
//!
//! A task of the fast lane decides every 20 ms while there is work. Heavy work gets decisions
//! through the atomics of [`Pace`]: between chunks it reports its progress and sleeps to keep the
//! rate.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use sched::control::{
    Compaction, CompactionInput, Division, Flush, FlushInput, INTERVAL_NS, Pacer, Throttle, UNLIMITED,
    divide, pressure_ppm,
};

use crate::env::{Env, LocalBoxFuture, Work};
use crate::event::FlushReason;
use crate::shard::Shard;
use crate::state::stats::Stats;
use crate::state::{FROZEN_MAX, State};

/// The initial estimate of the cost of flushing or compacting 1 MiB, ns of CPU: 250 MiB/s.
const COST_NS_PER_MIB: u64 = 4_000_000;

/// A memtable smaller than this, and than a quarter of the largest, is not worth a table file.
const IDLE_BYTES_MIN: usize = 16 << 20;

/// The most log records between two calls of [`Shard::flush_if_idle`] that count as idle, if they
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
        while let Some(owed_ns) = pacer.owed_ns(env.now_ns(), self.rate.load(Relaxed))
            && !self.is_stopped()
        {
            env.heavy_sleep(Duration::from_nanos(owed_ns)).await;
        }
    }
}

/// The fast lane's state of pacing.
#[derive(Debug, Default)]
pub(crate) struct Pacing {
    pub(crate) flush: Arc<Pace>,
    pub(crate) compaction: Arc<Pace>,
    /// The number of callers that wait for flushes. Flushes are not paced meanwhile.
    pub(crate) waiting: Cell<u32>,
    /// Flushes and compactions stand still, for tests of data that is not flushed or compacted yet.
    #[cfg(test)]
    pub(crate) paused: Cell<bool>,
    /// A compaction is in flight.
    pub(crate) compacting: Cell<bool>,
    /// The slow-down of writers because runs pile up, millionths.
    pub(crate) runs_pressure_ppm: Cell<u32>,
    throttle: RefCell<Throttle>,
    delayed_ns: Cell<u64>,
    /// The last log record, and the bytes written to all memtables, at the last check for idleness.
    seen: Cell<(u64, u64)>,
    controls: RefCell<Controls>,
}

impl Pacing {
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
    /// Bytes done, CPU time and disk time at the last measurement.
    measured: (u64, u64, u64),
}

impl Default for Cost {
    fn default() -> Cost {
        Cost { ns_per_mib: COST_NS_PER_MIB, measured: (0, 0, 0) }
    }
}

impl Cost {
    /// Updates the estimate with the totals so far. Returns the cost, ns per MiB.
    fn measure(&mut self, bytes: u64, (cpu_ns, disk_ns): (u64, u64)) -> u64 {
        let (bytes_before, cpu_before, disk_before) = self.measured;
        let done = bytes.saturating_sub(bytes_before);
        if done >= MEASURED_BYTES_MIN {
            let used_ns = cpu_ns.saturating_sub(cpu_before).max(disk_ns.saturating_sub(disk_before));
            let cost = u64::try_from(u128::from(used_ns) * (1 << 20) / u128::from(done)).unwrap_or(u64::MAX);
            self.ns_per_mib = (self.ns_per_mib.saturating_mul(3)).saturating_add(cost) / 4;
            self.measured = (bytes, cpu_ns, disk_ns);
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

impl State {
    /// Returns the bytes of frozen memtables that are not flushed yet.
    pub(crate) fn left_bytes(&self, flush: &Pace) -> u64 {
        let all: u64 = self.frozen.iter().map(|frozen| frozen.bytes).sum();
        let first = self.frozen.front().map_or(0, |frozen| frozen.bytes);
        all - flush.done().saturating_sub(self.flush_began).min(first)
    }
}

/// Chunks of memtables freed in each interval: at most a tenth of the core's time.
const CHUNKS_AN_INTERVAL: usize = 50;

impl Shard {
    fn pressure_ppm(&self, state: &State) -> u32 {
        // Without a frozen memtable, the next write that fills the active one freezes it.
        if state.frozen.is_empty() || self.log.is_none() {
            return 0;
        }
        let (held, memtable) =
            (state.filled + state.left_bytes(&self.pacing.flush), self.options.memtable_bytes_max as u64);
        pressure_ppm(held, memtable)
    }

    /// Charges a write to the throttle of acknowledgements. Free while memory and runs are below
    /// their limits.
    pub(crate) fn charge_write(&self, state: &State, bytes: u64) {
        let (memory, runs) = (self.pressure_ppm(state), self.pacing.runs_pressure_ppm.get());
        if memory.max(runs) > 0 {
            let controls = self.pacing.controls.borrow();
            // Writers may go as fast as the work that they wait for.
            let rate = if memory >= runs { controls.flush_rate } else { controls.compaction_rate };
            let pressure = memory.max(runs);
            self.pacing.throttle.borrow_mut().write(self.env.now_ns(), bytes, pressure, rate);
        }
    }

    /// Returns the wait before an acknowledgement, if there is one.
    pub(crate) fn write_delay(self: &Rc<Self>) -> Option<LocalBoxFuture<()>> {
        let log = self.log.as_ref()?;
        {
            let state = self.state.borrow();
            if state.frozen.is_empty() && self.pacing.runs_pressure_ppm.get() == 0 {
                return None;
            }
            // Only a flush in flight can end the wait.
            let full =
                state.frozen.len() >= FROZEN_MAX && state.filled >= self.options.memtable_bytes_max as u64;
            let is_long = || state.live_log(log.length()) >= self.log_bound.wait_at();
            if full || (!state.frozen.is_empty() && is_long()) {
                let (shard, flushes) = (self.clone(), state.counts.flushes);
                return Some(Box::pin(async move {
                    let flushed = || {
                        let state = shard.state.borrow();
                        let has_flushed = state.counts.flushes > flushes || state.closed;
                        (has_flushed || shard.refuses_writes()).then_some(())
                    };
                    shard.progress.wait(flushed).await;
                }));
            }
        }
        let delay = self.pacing.throttle.borrow().delay_ns(self.env.now_ns());
        // Timers have a resolution of a millisecond. A shorter delay stays in the throttle.
        let worth_it = delay >= 1_000_000;
        self.pacing.delayed_ns.set(self.pacing.delayed_ns.get() + if worth_it { delay } else { 0 });
        worth_it.then(|| self.env.sleep(Duration::from_nanos(delay)))
    }

    /// Flushes the memtable if hardly anything was written since the last call and it has a minimum
    /// size. The caller calls this every few seconds. Scans of columns are several times as fast,
    /// files take less memory, and a restart has nothing to replay.
    pub fn flush_if_idle(&self) {
        let Some(log) = &self.log else { return };
        let last = log.last_record();
        let enough = IDLE_BYTES_MIN.min(self.options.memtable_bytes_max / 4);
        {
            let state = &mut *self.state.borrow_mut();
            let filled = state.frozen_bytes + state.filled;
            let (last_seen, filled_seen) = self.pacing.seen.replace((last, filled));
            let idle = last - last_seen <= IDLE_RECORDS && filled - filled_seen <= enough as u64 / 16;
            let settled = state.frozen.is_empty();
            if !idle || !settled || state.closed || self.refuses_writes() || state.filled < enough as u64 {
                return;
            }
            state.freeze(last, log.length(), FlushReason::Idle);
            self.bound_log(state);
        }
        self.work.wake();
    }

    pub(crate) async fn pace_loop(self: Rc<Self>) {
        loop {
            let busy = || {
                let state = self.state.borrow();
                match state.closed {
                    true => Some(true),
                    false => {
                        let memory = !state.frozen.is_empty() || !state.flushed.is_empty();
                        (memory || self.pacing.compacting.get()).then_some(false)
                    }
                }
            };
            let closed = self.work.wait(busy).await;
            self.decide();
            if closed {
                return self.leave();
            }
            // Memtables that a scan held when they were flushed, and those of truncated tables.
            self.free(CHUNKS_AN_INTERVAL).await;
            self.env.sleep(Duration::from_nanos(INTERVAL_NS)).await;
        }
    }

    /// Measures, asks the controllers, and applies their decisions.
    pub(crate) fn decide(&self) {
        let state = self.state.borrow();
        let options = &self.options.pace;
        let controls = &mut *self.pacing.controls.borrow_mut();
        let now_ns = self.env.now_ns();
        let interval_ns = now_ns.saturating_sub(controls.at_ns).max(1);
        let waits = state.closed || self.pacing.waiting.get() > 0 || self.pacing.is_paused();
        if interval_ns < INTERVAL_NS / 4 && !waits {
            return;
        }
        controls.at_ns = now_ns;
        let left_bytes = state.left_bytes(&self.pacing.flush);
        let pressure_ppm = self.pressure_ppm(&state);
        let filled = state.frozen_bytes + state.filled;
        // Computed from what is left, so that errors in the estimate of a flush in flight do not
        // add up.
        let flushed = state.frozen_bytes - left_bytes;
        let decision = controls.flush.decide(FlushInput {
            interval_ns,
            filled_bytes: filled.saturating_sub(controls.filled),
            flushed_bytes: flushed.saturating_sub(controls.flushed),
            left_bytes,
            room_bytes: (self.options.memtable_bytes_max as u64).saturating_sub(state.filled),
            memtable_bytes: self.options.memtable_bytes_max as u64,
            cost_ns_per_mib: controls
                .flush_cost
                .measure(self.pacing.flush.done(), self.env.used_ns(Work::Flush)),
            pressure_ppm,
        });
        (controls.filled, controls.flushed) = (filled, flushed);
        controls.flush_rate = controls.flush.flushed_rate();
        let length = self.log.as_ref().map_or(0, |log| log.length());
        let is_long = !state.frozen.is_empty() && state.live_log(length) >= self.log_bound.wait_at();
        let hurried = state.closed || self.pacing.waiting.get() > 0 || is_long;
        self.pacing.flush.set(match () {
            () if hurried => UNLIMITED,
            () if self.pacing.is_paused() => 0,
            () if options.controllers => decision.rate,
            () => UNLIMITED,
        });
        self.pacing.compaction.set(if self.pacing.is_paused() && !hurried { 0 } else { UNLIMITED });
        self.pacing.compaction.stop.store(state.closed, Relaxed);
        let compaction = self.compaction_weight(&state, controls, interval_ns);
        if !options.controllers {
            return;
        }
        let flush = if state.frozen.is_empty() { 0 } else { decision.weight };
        controls.weights = (flush, compaction);
        let division = divide(flush, compaction, pressure_ppm > 0, options.quota_ppm);
        if controls.applied.is_none_or(|applied| differs(applied, division)) {
            controls.applied = Some(division);
            self.env.set_shares(division);
        }
    }

    fn compaction_weight(&self, state: &State, controls: &mut Controls, interval_ns: u64) -> u64 {
        let done = self.pacing.compaction.done();
        let rate = u128::from(done - controls.compacted) * 1_000_000_000 / u128::from(interval_ns);
        controls.compaction_rate = (controls.compaction_rate * 7 + rate as u64) / 8;
        controls.compacted = done;
        let options = &self.options.pace;
        let weight = controls.compaction.decide(CompactionInput {
            interval_ns,
            backlog_bytes: state.backlog_bytes(&*self.env),
            cost_ns_per_mib: controls.compaction_cost.measure(done, self.env.used_ns(Work::Compaction)),
        });
        match self.pacing.compacting.get() {
            true => options.compaction_shares.map_or(weight, u64::from),
            false => 0,
        }
    }

    /// Adds the metrics of pacing.
    pub(crate) fn pacing_stats(&self, stats: &mut Stats) {
        let state = self.state.borrow();
        let controls = self.pacing.controls.borrow();
        let flushing = !state.frozen.is_empty();
        stats.flush_rate = if flushing { controls.flush_rate } else { 0 };
        stats.compaction_rate = if self.pacing.compacting.get() { controls.compaction_rate } else { 0 };
        (stats.flush_weight, stats.compaction_weight) = controls.weights;
        stats.flush_backlog_bytes = state.left_bytes(&self.pacing.flush);
        stats.compaction_backlog_bytes = state.backlog_bytes(&*self.env);
        stats.memory_pressure_ppm = u64::from(self.pressure_ppm(&state));
        stats.throttle_delay_ns = self.pacing.delayed_ns.get();
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

    #[test]
    fn cost_is_the_greater_of_core_and_disk_time() {
        let mut cost = Cost::default();
        assert_eq!(cost.measure(MEASURED_BYTES_MIN - 1, (1 << 40, 0)), COST_NS_PER_MIB, "too few bytes");
        let mut settle = |from: u64, cpu_ns: u64, disk_ns: u64| {
            for mib in (from..from + 1000).step_by(20) {
                cost.measure(mib * MIB, (mib * cpu_ns, mib * disk_ns));
            }
            cost.ns_per_mib.div_ceil(1000)
        };
        assert_eq!(settle(20, 5_000_000, 1_000_000), 5000);
        assert_eq!(settle(10_000, 1_000_000, 30_000_000), 30_000);
    }

    #[test]
    fn extreme_numbers_do_not_panic() {
        let mut cost = Cost::default();
        for (bytes, used_ns) in [(u64::MAX, (u64::MAX, 0)), (0, (0, 0)), (u64::MAX, (u64::MAX, u64::MAX))] {
            cost.measure(bytes, used_ns);
        }
    }
}
