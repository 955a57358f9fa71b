//! Limit of the statements of a level in flight on a core, by work instead of number.
//!
//! 1. *Work.* `s` is the measured CPU or disk time of a statement, whichever is more. `f` is the
//!    level's entitlement to the core. So the level is entitled to `f ÷ s` statements a second.
//! 2. *Target of queue delay.* `q` is the time for [`QUEUE_STATEMENTS`] statements, `8 s ÷ f`, at
//!    least [`QUEUE_NS_MIN`] and one rotation of the core's slices. The target before admission `t`
//!    is `q` as well, but at least [`TARGET_NS_MIN`]. Both are at most a quarter of the time limit.
//!    A `latency_target` replaces them by `latency_target − s`.
//! 3. *Limit.* `1 + f (q + r) ÷ s`, by Little's law: statements a second times the time in the
//!    system. `r` is the time at the device, without the wait in our disk queue. A limit that
//!    counted that wait would feed on its own queue.
//! 4. *Age.* A statement that is answered at once hardly overlaps with others. It waits before its
//!    admission, in buffers and run queues. So an interactive level refuses what is older than
//!    `2 t` while its queue stands ([`StandingQueue`]), and holds other statements at its limit. A
//!    refusal of a young statement would leave the core idle before the next one comes.
//! 5. *Pause.* A refusal costs CPU. The error names a time to come back, and the connection is not
//!    read before, once its socket is empty. The pause lasts until the queue is at its target. The
//!    more CPU refusals cost, the longer it is, and the older a statement may be. Otherwise ten
//!    times capacity are a core full of refusals.
//!
//! The limit does not depend on response times. Under shares they rise by design when another level
//! wakes, and a limiter that compares them with earlier ones would cut a level that did nothing
//! wrong. It does not depend on CPU percentages either: a full core is no overload.
//!
//! Limits: statements of very different cost in one level share one `s`. A caller counts a
//! statement from its admission until its answer was sent, or its socket takes no more: a client
//! that does not read must not use up the limit of others. The age of a statement is an estimate,
//! as a socket does not report since when its bytes wait.

mod limit;
mod spread;
mod standing_queue;
mod verdict;

pub use limit::{ConcurrencyLimit, LimitChange};
pub use spread::Spread;
pub use standing_queue::StandingQueue;
pub use verdict::{Arriving, Overload, Verdict};

use self::limit::{QUEUE_NS_MIN, TARGET_OF_TIME_LIMIT, work_of_busiest_ns};
use self::spread::decayed;
use super::{PPM, scale};
use crate::LATENCY_SLICE_NS;

/// Statements over which work is measured at least, in thousandths. Long statements that run
/// together end together: the first of them ends with the CPU time of all.
const ENDED_MILLI_MIN: u64 = 8000;
/// Work of a statement until one has ended, ns: a read from disk (19 µs).
const WORK_NS_START: u64 = 20_000;
/// Statements that may wait. Enough that random arrivals leave no gap, few compared with a time
/// limit.
const QUEUE_STATEMENTS: u64 = 8;
/// Lowest target of queue delay, ns: that of CoDel (RFC 8289). Statements wait for milliseconds at
/// any high load, for flushes, log writes and other levels. 1 ms refused writes below capacity.
const TARGET_NS_MIN: u64 = 5_000_000;

/// Measurements of a level on a core since the last decision. Work on other cores for statements of
/// this core counts here.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ConcurrencyInput {
    /// Time since the last decision, ns.
    pub interval_ns: u64,
    /// Statements whose answer was sent.
    pub ended: u64,
    /// CPU time of the level on both lanes, without refusals, ns.
    pub cpu_ns: u64,
    /// CPU time of its refusals, ns.
    pub refusal_ns: u64,
    /// Disk time of the level as the disk model charges it, ns.
    pub disk_ns: u64,
    /// Time of its requests at the device without the disk queue, and service time of its writes,
    /// at most that of a few log writes each, ns.
    pub device_ns: u64,
    /// Statements that run now, at least 1. While none ends, each has used at least its part of
    /// the work since the last one ended, so that the longest of them has used no less.
    pub running: u32,
    /// Its statements in flight on other cores.
    pub elsewhere: u32,
    /// Part of its work that the busiest core does, in millionths, from [`Spread`]. 0: not known,
    /// so that it counts as all.
    pub busiest_ppm: u32,
    /// Part of the core that is due to the level, from [`entitlement_ppm`].
    pub entitlement_ppm: u32,
    /// Bounds of its limit.
    pub bounds: LevelBounds,
}

/// Bounds that options and requests of a level set for its limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LevelBounds {
    /// Longest time limit of its recent statements, ns.
    pub time_limit_ns: u64,
    /// The option `latency_target`, ns.
    pub latency_target_ns: Option<u64>,
    /// Highest limit, which bounds memory.
    pub limit_max: u32,
}

/// State of the limiter of a level on a core.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Concurrency {
    sums: Sums,
    /// Measurements since a statement ended last, and their time.
    pending: Sums,
    pending_ns: u64,
    /// CPU time of refusals, and of other work, decayed, ns.
    spent_ns: [u64; 2],
}

/// Sums that decay. All of them decay alike, so that their ratios do not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Sums {
    /// In thousandths, so that decay leaves a part of a single statement.
    ended_milli: u64,
    cpu_ns: u64,
    disk_ns: u64,
    device_ns: u64,
}

/// Returns the part of a core that is due to a level now, in millionths: its minimum, and its
/// shares of the rest, at most its limit. `shares_active` and `min_active_ppm` are the sums over
/// the levels with work, this one included.
#[must_use]
pub fn entitlement_ppm(
    shares: u32,
    shares_active: u32,
    min_ppm: u32,
    min_active_ppm: u32,
    limit_ppm: Option<u32>,
) -> u32 {
    let rest_ppm = PPM.saturating_sub(min_active_ppm.into());
    let of_rest = scale(rest_ppm, shares.into(), shares_active.max(shares).into());
    let due = of_rest.min(PPM) + u64::from(min_ppm);
    due.min(limit_ppm.map_or(PPM, u64::from)).clamp(1, PPM) as u32
}

impl Sums {
    fn add(&mut self, other: Sums) {
        self.ended_milli = self.ended_milli.saturating_add(other.ended_milli);
        self.cpu_ns = self.cpu_ns.saturating_add(other.cpu_ns);
        self.disk_ns = self.disk_ns.saturating_add(other.disk_ns);
        self.device_ns = self.device_ns.saturating_add(other.device_ns);
    }

    fn decay(&mut self, interval_ns: u64) {
        let few = scale(PPM, ENDED_MILLI_MIN, self.ended_milli.max(ENDED_MILLI_MIN));
        let left = |sum: u64| decayed(sum, interval_ns).max(scale(sum, few, PPM));
        self.ended_milli = left(self.ended_milli);
        self.cpu_ns = left(self.cpu_ns);
        self.disk_ns = left(self.disk_ns);
        self.device_ns = left(self.device_ns);
    }

    /// Returns one statement's part of a sum, ns. 0: none has ended.
    fn each(&self, sum_ns: u64) -> u64 {
        if self.ended_milli == 0 { 0 } else { scale(sum_ns, 1000, self.ended_milli) }
    }
}

impl Concurrency {
    /// Takes the measurements. Returns the limit until the next decision.
    pub fn decide(&mut self, input: ConcurrencyInput) -> ConcurrencyLimit {
        let ConcurrencyInput { interval_ns, ended, cpu_ns, refusal_ns, disk_ns, device_ns, .. } = input;
        let ended_milli = ended.saturating_mul(1000);
        self.pending.add(Sums { ended_milli, cpu_ns, disk_ns, device_ns });
        // Decays also while nothing ends: a core may do nothing but refuse.
        for (spent_ns, new_ns) in self.spent_ns.iter_mut().zip([refusal_ns, cpu_ns]) {
            *spent_ns = decayed(*spent_ns, interval_ns).saturating_add(new_ns);
        }
        let [spent_ns, worked_ns] = self.spent_ns;
        let all_ns = spent_ns.saturating_add(worked_ns).max(1);
        let refusal_ppm = scale(spent_ns, PPM, all_ns).min(PPM - 1);
        self.pending_ns = self.pending_ns.saturating_add(interval_ns);
        let running_ns = match ended {
            0 => self.pending.cpu_ns.max(self.pending.disk_ns) / u64::from(input.running.max(1)),
            _ => 0,
        };
        // A level that ends nothing keeps its measurements: an unused limit does not grow.
        if ended > 0 {
            self.sums.decay(self.pending_ns);
            self.sums.add(self.pending);
            (self.pending, self.pending_ns) = (Sums::default(), 0);
        }
        let measured_ns = match self.sums.ended_milli {
            0 => WORK_NS_START,
            _ => self.sums.each(self.sums.cpu_ns.max(self.sums.disk_ns)),
        };
        let work_ns = measured_ns.max(running_ns).max(1);
        let LevelBounds { time_limit_ns, latency_target_ns, limit_max } = input.bounds;
        let longest_ns = time_limit_ns / TARGET_OF_TIME_LIMIT;
        let part = u64::from(input.entitlement_ppm).clamp(1, PPM);
        let queue_ns = queue_ns(work_ns, part, latency_target_ns).min(longest_ns);
        let target_ns = match latency_target_ns {
            Some(_) => queue_ns,
            None => queue_ns.max(TARGET_NS_MIN).min(longest_ns),
        };
        // A disk that stood still leaves a long `r`. A statement that stays longer than its time
        // limit needs no place.
        let device_ns = self.sums.each(self.sums.device_ns).min(longest_ns);
        let work_of_core_ns = work_ns.saturating_mul(PPM);
        let busiest_ppm = if input.busiest_ppm == 0 { PPM as u32 } else { input.busiest_ppm.min(PPM as u32) };
        let overlap = scale(queue_ns.saturating_add(device_ns), part, work_of_core_ns);
        let statements = u32::try_from(overlap.saturating_add(1)).unwrap_or(u32::MAX).min(limit_max);
        ConcurrencyLimit {
            statements: statements.max(1),
            target_ns,
            work_ns,
            device_ns,
            refusal_ppm,
            drain_ns: scale(work_of_busiest_ns(work_ns, busiest_ppm), PPM, part),
            busiest_ppm,
            elsewhere: input.elsewhere,
            has_target: latency_target_ns.is_some(),
            time_limit_ns,
        }
    }
}

/// Returns the time for which statements may wait after their admission, without the bound by the
/// time limit, ns.
fn queue_ns(work_ns: u64, part_ppm: u64, latency_target_ns: Option<u64>) -> u64 {
    // A level waits for a rotation of slices whatever the load. The wait is due to shares.
    let rotation_ns = scale(LATENCY_SLICE_NS, PPM, part_ppm);
    if let Some(latency_target_ns) = latency_target_ns {
        return latency_target_ns.saturating_sub(work_ns).max(rotation_ns);
    }
    scale(work_ns.saturating_mul(QUEUE_STATEMENTS), PPM, part_ppm).max(rotation_ns).max(QUEUE_NS_MIN)
}

#[cfg(test)]
mod tests;
