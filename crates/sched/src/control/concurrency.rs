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
//! The limit does not look at response times. Under shares they rise by design when another level
//! wakes, and a limiter that compares them with earlier ones would cut a level that did nothing
//! wrong. It does not look at CPU percentages either: a full core is no overload.
//!
//! Limits: statements of very different cost in one level share one `s`. A caller counts a
//! statement from its admission until its answer was sent, or its socket takes no more: a client
//! that does not read must not use up the limit of others. The age of a statement is an estimate,
//! as a socket does not report since when its bytes wait.

use super::{PPM, scale};
use crate::LATENCY_SLICE_NS;

/// Time constant of the measurements, ns: ten decisions.
const MEASURED_OVER_NS: u64 = 200_000_000;
/// Statements over which work is measured at least, in thousandths. Long statements that run
/// together end together: the first of them ends with the CPU time of all.
const ENDED_MILLI_MIN: u64 = 8000;
/// Work of a statement until one has ended, ns: a read from disk (19 µs).
const WORK_NS_START: u64 = 20_000;
/// Statements that may wait. Enough that random arrivals leave no gap, few compared with a time
/// limit.
const QUEUE_STATEMENTS: u64 = 8;
/// Least time for which the limit lets statements wait after their admission, ns: an order of
/// magnitude above a lane switch and a poll (200 µs).
const QUEUE_NS_MIN: u64 = 1_000_000;
/// Lowest target of queue delay, ns: that of CoDel (RFC 8289). Statements wait for milliseconds at
/// any high load, for flushes, log writes and other levels. 1 ms refused writes below capacity.
const TARGET_NS_MIN: u64 = 5_000_000;
/// Highest target as a divisor of the time limit: the statement also needs time to run.
const TARGET_OF_TIME_LIMIT: u64 = 4;
/// Time without an empty queue from which on it stands, and without late statements until it no
/// longer does, ns. The interval of CoDel (RFC 8289), which absorbs a burst or a stall of the core.
const STANDS_NS: u64 = 100_000_000;
/// Binary logarithm of the time constant of the mean age, ns: 0.13 s, about [`STANDS_NS`].
const MEAN_OVER_BITS: u32 = 27;
/// Highest age in the mean, ns: 69 s. Its product with the time constant has 63 bits.
const MEAN_AGE_NS_MAX: u64 = 1 << 36;

/// Work of a statement below which a level refuses only what has waited for
/// 1 ÷ [`TARGET_OF_TIME_LIMIT`] of its time limit, ns. To read, decode and refuse one takes 2.5 µs:
/// alongside reads from memory (3.5 µs) refusals would take most of the core, so that fewer are
/// answered than without a limit.
const REFUSABLE_WORK_NS: u64 = 10_000;

/// Part of the level's CPU time from which on refusals make statements late later, in millionths.
/// At [`REFUSALS_FILL_PPM`] they are late after 1 ÷ [`TARGET_OF_TIME_LIMIT`] of their time limit.
/// Sockets fill up then, so that clients are blocked and fewer statements are to be refused.
const REFUSALS_COSTLY_PPM: u64 = PPM / 3;
/// Part from which on refusals fill the core. At [`REFUSALS_MOST_PPM`] only what cannot end in time
/// is refused. If all that full sockets hold is late at first sight, a core does nothing but
/// refuse.
const REFUSALS_FILL_PPM: u64 = PPM / 3 * 2;
const REFUSALS_MOST_PPM: u64 = PPM / 6 * 5;

/// A pause after a refusal doubles if refusals cost one part in this many of the other work.
const REFUSALS_DOUBLE_AT: u64 = 16;

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

/// The part of a level's work that its busiest core does. The work of a parallel statement is on
/// all cores, whichever core admitted it.
#[derive(Clone, Debug)]
pub struct Spread {
    /// Work on each core, decayed, ns.
    cores_ns: Vec<u64>,
}

impl Spread {
    /// Creates the measurement of a level that has done nothing, for `cores` cores.
    #[must_use]
    pub fn new(cores: usize) -> Spread {
        Spread { cores_ns: vec![0; cores] }
    }

    /// Adds the work on each core in the last interval, ns. Returns the part of the busiest core,
    /// in millionths: all of it if the level has done nothing.
    pub fn add(&mut self, interval_ns: u64, work_ns: &[u64]) -> u32 {
        for (sum_ns, new_ns) in self.cores_ns.iter_mut().zip(work_ns) {
            *sum_ns = decayed(*sum_ns, interval_ns).saturating_add(*new_ns);
        }
        let all_ns = self.cores_ns.iter().fold(0, |all: u64, one| all.saturating_add(*one));
        let most_ns = self.cores_ns.iter().max().copied().unwrap_or(0);
        if all_ns == 0 { PPM as u32 } else { scale(most_ns, PPM, all_ns).clamp(1, PPM) as u32 }
    }
}

/// Returns what is left of a measurement after `interval_ns`.
fn decayed(sum: u64, interval_ns: u64) -> u64 {
    scale(sum, MEASURED_OVER_NS, MEASURED_OVER_NS.saturating_add(interval_ns))
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

/// Overload behaviour of a level, from its `workload_type`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Overload {
    /// `interactive`: refuse early. A late answer is of no use.
    Refuse,
    /// `batch`: leave statements in their sockets.
    Hold,
    /// Any other level: use the bounded wait queue.
    Queue,
}

/// Decision for a level on a core, valid until the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConcurrencyLimit {
    /// Statements that may be in flight; at least 1.
    pub statements: u32,
    /// Target of queue delay, ns.
    pub target_ns: u64,
    /// Measured work of a statement, ns; at least 1.
    pub work_ns: u64,
    /// Measured time of a statement at the device, ns.
    pub device_ns: u64,
    /// Part of the level's CPU time that refusals cost, in millionths.
    pub refusal_ppm: u64,
    /// Time in which the level gets the work of one statement done on its busiest core, ns: that
    /// work ÷ entitlement.
    pub drain_ns: u64,
    /// Part of the work of a statement that the busiest core does, in millionths.
    pub busiest_ppm: u32,
    /// Statements in flight on other cores at the decision.
    pub elsewhere: u32,
    /// True with a `latency_target`.
    pub has_target: bool,
    /// Longest time limit of the level's recent statements, ns. It bounds the target and the
    /// pauses.
    pub time_limit_ns: u64,
}

/// The measurement that changed a limit most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LimitChange {
    /// Work of a statement.
    Work,
    /// Entitlement of the level.
    Entitlement,
    /// Time at the device.
    Device,
    /// None of these: the target or the highest limit changed.
    Target,
}

impl LimitChange {
    /// Every cause, in the order of their numbers.
    pub const ALL: [LimitChange; 4] =
        [LimitChange::Work, LimitChange::Entitlement, LimitChange::Device, LimitChange::Target];

    /// Returns the name of the cause in the metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            LimitChange::Work => "work",
            LimitChange::Entitlement => "entitlement",
            LimitChange::Device => "device",
            LimitChange::Target => "target",
        }
    }
}

/// A statement before any work is done for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arriving {
    /// Time since it arrived, ns.
    pub age_ns: u64,
    /// Its own time limit, ns.
    pub time_limit_ns: u64,
    /// Statements of its level in flight on this core.
    pub level_in_flight: u32,
    /// True if the queue of its level on this core stands, from [`StandingQueue::stands`].
    pub queue_stands: bool,
    /// Behaviour of its level.
    pub overload: Overload,
    /// A random number. It spreads the return of clients that are refused together.
    pub random: u32,
}

/// Detects a queue that stands, for a level on a core. A queue that drains in time is a burst, or
/// the end of a stall. A refusal would only lose its statements.
///
/// 1. A statement that arrived after the one before was checked found the queue empty. The queue
///    stands when no statement has found it empty for [`STANDS_NS`], and the mean age over about
///    that time is half of what is late. A busy core is rarely empty, and a stall of the log
///    makes a burst: neither is an overload.
/// 2. It stands until no statement has been late for [`STANDS_NS`]. Clients that pause after a
///    refusal empty the queue for a moment, and the overload goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StandingQueue {
    /// Time of the last statement.
    checked_ns: u64,
    /// Time of the last statement that found the queue empty.
    empty_ns: u64,
    stands_until_ns: u64,
    /// Mean age, weighted by time, ns.
    mean_ns: u64,
}

impl StandingQueue {
    /// Returns the state as words, to be stored with other counters.
    #[must_use]
    pub fn to_words(self) -> [u64; 4] {
        [self.checked_ns, self.empty_ns, self.stands_until_ns, self.mean_ns]
    }

    /// Returns the state from [`StandingQueue::to_words`].
    #[must_use]
    pub fn from_words([checked_ns, empty_ns, stands_until_ns, mean_ns]: [u64; 4]) -> StandingQueue {
        StandingQueue { checked_ns, empty_ns, stands_until_ns, mean_ns }
    }

    /// Returns true if the queue stands. Asked for each statement of the level before
    /// [`ConcurrencyLimit::admit`], with the age of the statement and that from which on it is late
    /// ([`ConcurrencyLimit::late_ns`]).
    pub fn stands(&mut self, now_ns: u64, age_ns: u64, late_ns: u64) -> bool {
        if now_ns.saturating_sub(age_ns) >= self.checked_ns {
            self.empty_ns = now_ns;
        }
        let passed_ns = now_ns.saturating_sub(std::mem::replace(&mut self.checked_ns, now_ns));
        let passed_ns = passed_ns.min(1 << MEAN_OVER_BITS);
        let sum_ns = age_ns.min(MEAN_AGE_NS_MAX) * passed_ns;
        self.mean_ns = (sum_ns + self.mean_ns * ((1 << MEAN_OVER_BITS) - passed_ns)) >> MEAN_OVER_BITS;
        let is_full = now_ns.saturating_sub(self.empty_ns) > STANDS_NS && self.mean_ns > late_ns / 2;
        let stands = now_ns < self.stands_until_ns || is_full;
        if stands && age_ns > late_ns {
            self.stands_until_ns = now_ns.saturating_add(STANDS_NS);
        }
        stands
    }
}

/// Decision on a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Start it.
    Admit,
    /// Keep it in its socket, and read no more. Ask again when a statement ends, and after each
    /// decision.
    Hold,
    /// Put it into the wait queue of its level.
    Wait,
    /// Answer Overloaded, and do not read its connection for this time, ns.
    Refuse {
        /// Expected time until the level has its target of queue delay again, ns.
        retry_ns: u64,
    },
    /// Answer Overloaded as well: it could not end within its time limit.
    Expired {
        /// As in [`Verdict::Refuse`].
        retry_ns: u64,
    },
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
        let longest_ns = input.time_limit_ns / TARGET_OF_TIME_LIMIT;
        let part = u64::from(input.entitlement_ppm).clamp(1, PPM);
        let queue_ns = queue_ns(work_ns, part, input.latency_target_ns).min(longest_ns);
        let target_ns = match input.latency_target_ns {
            Some(_) => queue_ns,
            None => queue_ns.max(TARGET_NS_MIN).min(longest_ns),
        };
        // A disk that stood still leaves a long `r`. A statement that stays longer than its time
        // limit needs no place.
        let device_ns = self.sums.each(self.sums.device_ns).min(longest_ns);
        let work_of_core_ns = work_ns.saturating_mul(PPM);
        let busiest_ppm = if input.busiest_ppm == 0 { PPM as u32 } else { input.busiest_ppm.min(PPM as u32) };
        let overlap = scale(queue_ns.saturating_add(device_ns), part, work_of_core_ns);
        let statements = u32::try_from(overlap.saturating_add(1)).unwrap_or(u32::MAX).min(input.limit_max);
        ConcurrencyLimit {
            statements: statements.max(1),
            target_ns,
            work_ns,
            device_ns,
            refusal_ppm,
            drain_ns: scale(work_of_busiest_ns(work_ns, busiest_ppm), PPM, part),
            busiest_ppm,
            elsewhere: input.elsewhere,
            has_target: input.latency_target_ns.is_some(),
            time_limit_ns: input.time_limit_ns,
        }
    }
}

/// Returns the work of a statement on the busiest core, ns; at least 1.
fn work_of_busiest_ns(work_ns: u64, busiest_ppm: u32) -> u64 {
    scale(work_ns, busiest_ppm.into(), PPM).max(1)
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

impl ConcurrencyLimit {
    /// Returns the age above which a statement is late, ns: twice the target, and longer for
    /// statements that cost little more than their refusal, or while refusals cost much. With a
    /// `latency_target` the cost of a statement alone makes none late later.
    #[must_use]
    pub fn late_ns(&self) -> u64 {
        let towards = |from_ns: u64, to_ns: u64, (from_ppm, to_ppm): (u64, u64)| {
            let costly_ppm = self.refusal_ppm.clamp(from_ppm, to_ppm) - from_ppm;
            from_ns + scale(to_ns.saturating_sub(from_ns), costly_ppm, to_ppm - from_ppm)
        };
        let (late_ns, longest_ns) = (self.target_ns.saturating_mul(2), self.longest_ns());
        let late_ns = match self.work_ns < REFUSABLE_WORK_NS && !self.has_target {
            true => late_ns.max(longest_ns),
            false => towards(late_ns, longest_ns, (REFUSALS_COSTLY_PPM, REFUSALS_FILL_PPM)),
        };
        towards(late_ns, self.time_limit_ns, (REFUSALS_FILL_PPM, REFUSALS_MOST_PPM))
    }

    /// Returns the wait for the statements in flight, ns: for `level_in_flight` on this core, and
    /// for those on other cores. The wait is at least for the busiest core.
    #[must_use]
    pub fn wait_ns(&self, level_in_flight: u32) -> u64 {
        self.drain_ns.saturating_mul(u64::from(level_in_flight) + u64::from(self.elsewhere))
    }

    /// Returns the longest useful queue delay, and the longest pause, ns.
    fn longest_ns(&self) -> u64 {
        self.time_limit_ns / TARGET_OF_TIME_LIMIT
    }

    /// Returns the cause of the change from `before`. `None`: the limit is the same.
    #[must_use]
    pub fn change_from(&self, before: &ConcurrencyLimit) -> Option<LimitChange> {
        if self.statements == before.statements {
            return None;
        }
        // In millionths of the smaller value. A device time of less than 1 ms hardly counts.
        let change = |a: u64, b: u64| scale(a.max(b), PPM, a.min(b).max(1)).saturating_sub(PPM);
        let part = |limit: &ConcurrencyLimit| {
            scale(work_of_busiest_ns(limit.work_ns, limit.busiest_ppm), PPM, limit.drain_ns.max(1))
        };
        let device = |limit: &ConcurrencyLimit| limit.device_ns.saturating_add(QUEUE_NS_MIN);
        let changes = [
            (change(self.work_ns, before.work_ns), LimitChange::Work),
            (change(part(self), part(before)), LimitChange::Entitlement),
            (change(device(self), device(before)), LimitChange::Device),
        ];
        let (most, cause) = changes.into_iter().max_by_key(|(change, _)| *change)?;
        Some(if most == 0 { LimitChange::Target } else { cause })
    }

    /// Decides on a statement of the level. The server's own statements are always admitted, so
    /// their caller does not ask.
    #[must_use]
    pub fn admit(&self, arriving: Arriving) -> Verdict {
        let Arriving { age_ns, time_limit_ns, level_in_flight, queue_stands, overload, random } = arriving;
        let wait_ns = self.wait_ns(level_in_flight);
        if age_ns.saturating_add(wait_ns).saturating_add(self.device_ns) >= time_limit_ns {
            return Verdict::Expired {
                retry_ns: self.retry_ns(age_ns.max(wait_ns), self.longest_ns(), random),
            };
        }
        let late = overload == Overload::Refuse && queue_stands && age_ns > self.late_ns();
        let full = level_in_flight >= self.statements;
        match overload {
            _ if !(late || full) => Verdict::Admit,
            Overload::Hold => Verdict::Hold,
            Overload::Queue => Verdict::Wait,
            // A young statement may still begin in time. Refusing it now would leave a gap.
            Overload::Refuse if !late => Verdict::Hold,
            Overload::Refuse => {
                // Arrivals in the first half of a pause count from then. A longer pause would
                // make it late, and the next pause again: an overload that has ended would go on.
                let most_ns = self.late_ns().min(self.longest_ns());
                Verdict::Refuse { retry_ns: self.retry_ns(age_ns.max(wait_ns), most_ns, random) }
            }
        }
    }

    /// Returns the time after which a client may come back, ns: until the queue is at its target,
    /// and longer the more refusals cost, up to `most_ns`. Otherwise refusals alone can fill the
    /// core.
    fn retry_ns(&self, delay_ns: u64, most_ns: u64, random: u32) -> u64 {
        let drained_ns = delay_ns.saturating_sub(self.target_ns).max(self.target_ns);
        let costs = scale(self.refusal_ppm, REFUSALS_DOUBLE_AT * 1000, PPM - self.refusal_ppm);
        let retry_ns = scale(drained_ns, costs.saturating_add(1000), 1000);
        let retry_ns = retry_ns.min(most_ns);
        // Between half and one and a half of it.
        retry_ns / 2 + scale(retry_ns, random.into(), u64::from(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{INTERVAL_NS, SECOND_NS};
    use super::*;

    const US: u64 = 1000;
    const MS: u64 = 1000 * US;

    /// Returns the limit of a level with a thousand statements ended in the last interval.
    fn limit(work_ns: u64, part_ppm: u32, device_ns: u64) -> ConcurrencyLimit {
        let (cpu_ns, device_ns) = (1000 * work_ns, 1000 * device_ns);
        Concurrency::default().decide(ConcurrencyInput { ended: 1000, cpu_ns, device_ns, ..input(part_ppm) })
    }

    fn input(part_ppm: u32) -> ConcurrencyInput {
        ConcurrencyInput {
            interval_ns: INTERVAL_NS,
            entitlement_ppm: part_ppm,
            time_limit_ns: 10 * SECOND_NS,
            limit_max: 16_384,
            ..ConcurrencyInput::default()
        }
    }

    #[test]
    fn limit_is_time_in_the_system_over_work() {
        for (work_ns, part_ppm, device_ns, target_ns, statements) in [
            (3 * US, 1_000_000, 0, 5 * MS, 334),
            (3 * US, 100_000, 0, 5 * MS, 34),
            (3 * US, 10_000, 0, 5 * MS, 17),
            (19 * US, 1_000_000, 1200 * US, 5 * MS, 116),
            (369 * US, 1_000_000, 400 * US, 5 * MS, 10),
            (369 * US, 100_000, 0, 29_520 * US, 9),
            (100 * MS, 1_000_000, 0, 800 * MS, 9),
            (10, 1_000_000, 0, 5 * MS, 16_384),
            (2 * SECOND_NS, 10_000, 0, 2500 * MS, 1),
        ] {
            let limit = limit(work_ns, part_ppm, device_ns);
            assert_eq!((limit.target_ns, limit.statements), (target_ns, statements), "{limit:?}");
        }
    }

    #[test]
    fn state_size_matches_the_documentation() {
        let bytes = size_of::<Concurrency>() + size_of::<ConcurrencyLimit>() + size_of::<StandingQueue>();
        assert_eq!(bytes, 184);
    }

    #[test]
    fn work_is_the_larger_of_cpu_and_disk() {
        let both = ConcurrencyInput { ended: 10, cpu_ns: 30 * US, disk_ns: 190 * US, ..input(1_000_000) };
        assert_eq!(Concurrency::default().decide(both).work_ns, 19 * US);
    }

    #[test]
    fn device_time_is_at_most_a_quarter_of_the_time_limit() {
        assert_eq!(limit(100 * US, 1_000_000, 20 * SECOND_NS).device_ns, 2500 * MS);
    }

    #[test]
    fn queue_stands_after_100_ms_and_until_none_was_late_for_100_ms() {
        let mut words = [0; 4];
        // Time and age of each statement, and whether the queue stands if 2 ms are late.
        for (now_ms, age_ms, expected) in [
            (1000, 500, false), // The first one found it empty.
            (1100, 101, false), // For 100 ms.
            (1101, 2, true),
            (1102, 3, true),
            (1102, 0, true), // A moment without a queue.
            (1201, 2, true),
            (1202, 1, false), // The last late one was 100 ms ago.
            (9000, 9000, true),
            (9099, 0, true),
            (9100, 0, false),
        ] {
            // As levels keep it between two statements.
            let mut queue = StandingQueue::from_words(words);
            assert_eq!(queue.stands(now_ms * MS, age_ms * MS, 2 * MS), expected, "at {now_ms} ms");
            words = queue.to_words();
        }
    }

    #[test]
    fn busy_queue_of_young_statements_does_not_stand() {
        let mut queue = StandingQueue::default();
        // Milliseconds and age of each statement. None finds the queue empty.
        let mut stands = |range: std::ops::Range<u64>, age_ms| {
            range.filter(|ms| queue.stands(ms * MS, age_ms * MS, 10 * MS)).count()
        };
        assert_eq!(stands(1000..3000, 2), 0);
        assert_eq!(stands(3000..3010, 30), 0, "a burst");
        assert_eq!(stands(3010..5000, 2), 0);
        assert!(stands(5000..5200, 12) > 100, "an overload");
    }

    #[test]
    fn latency_target_replaces_the_target() {
        let target = |latency_target_ns| {
            let latency_target_ns = Some(latency_target_ns);
            let input = ConcurrencyInput { ended: 1, cpu_ns: MS, latency_target_ns, ..input(1_000_000) };
            Concurrency::default().decide(input).target_ns
        };
        assert_eq!([20 * MS, MS, 0].map(target), [19 * MS, LATENCY_SLICE_NS, LATENCY_SLICE_NS]);
    }

    #[test]
    fn running_statement_raises_the_work_while_none_ends() {
        let mut control = Concurrency::default();
        let mut work_ns = |ended, cpu_ns, running| {
            control.decide(ConcurrencyInput { ended, cpu_ns, running, ..input(1_000_000) }).work_ns
        };
        assert_eq!(work_ns(0, 0, 0), WORK_NS_START);
        assert_eq!(work_ns(1000, 100 * MS, 0), 100 * US);
        assert_eq!(work_ns(0, 0, 0), 100 * US, "the last value");
        assert_eq!(work_ns(0, 20 * MS, 2), 10 * MS, "two statements run and none ends");
        assert_eq!(work_ns(0, 20 * MS, 2), 20 * MS, "each has used as much at least");
        // 1000 statements of 100 µs decayed by 80 ms in 200, and one of 40 ms.
        assert_eq!(work_ns(1, 0, 0) / US, 155);
    }

    fn check(overload: Overload, age_ns: u64, level_in_flight: u32, expected: Verdict) {
        // A limit of 1000 statements of 1 ms of work each, for a tenth of the core.
        let limit = ConcurrencyLimit {
            statements: 1000,
            target_ns: 10 * MS,
            work_ns: MS,
            device_ns: 5 * MS,
            refusal_ppm: 0,
            drain_ns: 10 * MS,
            busiest_ppm: 1_000_000,
            elsewhere: 0,
            has_target: false,
            time_limit_ns: 20 * SECOND_NS,
        };
        let random = u32::MAX / 2;
        let time_limit_ns = limit.time_limit_ns;
        let arriving =
            Arriving { age_ns, time_limit_ns, level_in_flight, queue_stands: true, overload, random };
        assert_eq!(limit.admit(arriving), expected, "{arriving:?}");
    }

    #[test]
    fn statement_is_refused_only_while_the_queue_stands() {
        let limit = limit(100 * US, 1_000_000, 0);
        let refuses = |age_ns, queue_stands| {
            let (overload, time_limit_ns) = (Overload::Refuse, limit.time_limit_ns);
            let arriving =
                Arriving { age_ns, time_limit_ns, level_in_flight: 0, queue_stands, overload, random: 0 };
            matches!(limit.admit(arriving), Verdict::Refuse { .. })
        };
        assert_eq!(
            [refuses(10 * MS + 1, true), refuses(10 * MS, true), refuses(SECOND_NS, false)],
            [true, false, false]
        );
    }

    #[test]
    fn cheap_statements_are_late_after_a_quarter_of_the_time_limit_without_a_target() {
        let late_ms = |work_ns| limit(work_ns, 1_000_000, 0).late_ns() / MS;
        assert_eq!([3 * US, 9_999, 10 * US, 2 * MS].map(late_ms), [2500, 2500, 10, 32]);
        let with_target = |work_ns| {
            let latency_target_ns = Some(5 * MS);
            let input = ConcurrencyInput {
                ended: 1000,
                cpu_ns: 1000 * work_ns,
                latency_target_ns,
                ..input(1_000_000)
            };
            Concurrency::default().decide(input).late_ns() / MS
        };
        assert_eq!([3 * US, 9_999, 10 * US, 2 * MS].map(with_target), [9, 9, 9, 6]);
    }

    #[test]
    fn refusals_that_fill_the_core_make_statements_late_later() {
        let late_ms = |refusal_ppm| {
            let limit = ConcurrencyLimit { refusal_ppm, ..limit(100 * US, 1_000_000, 0) };
            limit.late_ns() / MS
        };
        assert_eq!(
            [0, 333_333, 500_000, 666_666, 750_000, 833_332, 999_999].map(late_ms),
            [10, 10, 1255, 2500, 6250, 10_000, 10_000]
        );
    }

    #[test]
    fn wait_is_for_the_busiest_core() {
        let wait_ms = |busiest_ppm, elsewhere| {
            let input =
                ConcurrencyInput { ended: 10, cpu_ns: 80 * MS, busiest_ppm, elsewhere, ..input(500_000) };
            Concurrency::default().decide(input).wait_ns(3) / MS
        };
        // 8 ms of work each, for half of a core.
        assert_eq!(wait_ms(0, 0), 48);
        assert_eq!(wait_ms(1_000_000, 0), 48);
        assert_eq!(wait_ms(125_000, 0), 6, "parallel on eight cores");
        assert_eq!(wait_ms(125_000, 21), 48, "each core has three of them");
        let mut spread = Spread::new(2);
        assert_eq!(spread.add(INTERVAL_NS, &[0, 0]), 1_000_000, "nothing is known");
        assert_eq!(spread.add(INTERVAL_NS, &[10 * MS, 10 * MS]), 500_000);
        let busiest = (0..20).map(|_| spread.add(INTERVAL_NS, &[0, 10 * MS])).last();
        assert!((800_000..1_000_000).contains(&busiest.unwrap_or(0)), "{busiest:?}");
    }

    #[test]
    fn overload_refuses_interactive_and_holds_batch() {
        use Overload::{Hold, Queue, Refuse};
        use Verdict::{Admit, Expired, Wait};
        for overload in [Refuse, Hold, Queue] {
            check(overload, 20 * MS, 999, Admit);
            // A quarter of the time limit is the most.
            let expired = Expired { retry_ns: 5 * SECOND_NS - 1 };
            check(overload, 20 * SECOND_NS - 5 * MS, 0, expired);
            check(overload, 10 * SECOND_NS - 5 * MS, 1000, expired);
        }
        check(Refuse, 20 * MS, 1000, Verdict::Hold);
        check(Refuse, 21 * MS, 0, Verdict::Refuse { retry_ns: 11 * MS - 1 });
        check(Hold, SECOND_NS, 1000, Verdict::Hold);
        check(Queue, SECOND_NS, 1000, Wait);
        check(Hold, SECOND_NS, 999, Admit);
    }

    #[test]
    fn change_of_a_limit_names_its_cause() {
        let before = limit(100 * US, 500_000, MS);
        let cause = |work_ns, part_ppm, device_ns| limit(work_ns, part_ppm, device_ns).change_from(&before);
        assert_eq!(cause(100 * US, 500_000, MS), None);
        assert_eq!(cause(300 * US, 400_000, MS), Some(LimitChange::Work));
        assert_eq!(cause(100 * US, 250_000, MS), Some(LimitChange::Entitlement));
        assert_eq!(cause(110 * US, 500_000, 5 * MS), Some(LimitChange::Device));
        let other_target = ConcurrencyLimit { statements: 1, ..before };
        assert_eq!(other_target.change_from(&before), Some(LimitChange::Target));
        let names = LimitChange::ALL.map(LimitChange::name);
        assert_eq!(names, ["work", "entitlement", "device", "target"], "the labels of the metric");
    }

    #[test]
    fn statement_expires_by_its_own_time_limit() {
        let limit = limit(MS, 1_000_000, 0);
        let expires = |time_limit_ns| {
            let (age_ns, level_in_flight, queue_stands) = (SECOND_NS, 1, false);
            let overload = Overload::Hold;
            let arriving =
                Arriving { age_ns, time_limit_ns, level_in_flight, queue_stands, overload, random: 0 };
            matches!(limit.admit(arriving), Verdict::Expired { .. })
        };
        assert_eq!([SECOND_NS, SECOND_NS + MS, 3600 * SECOND_NS].map(expires), [true, true, false]);
        let of_level = limit.time_limit_ns;
        assert!(of_level > SECOND_NS + MS && of_level < 3600 * SECOND_NS, "it does not decide: {of_level}");
    }

    #[test]
    fn pause_grows_with_the_cost_of_refusals() {
        let retry_ms = |refusal_ppm| {
            let limit = ConcurrencyLimit { refusal_ppm, ..limit(100 * US, 1_000_000, 0) };
            (limit.retry_ns(15 * MS, limit.longest_ns(), u32::MAX / 2) + MS / 2) / MS
        };
        assert_eq!([0, 58_824, 500_000, 999_999].map(retry_ms), [10, 20, 170, 2500]);
    }

    #[test]
    fn entitlement_is_the_minimum_and_shares_of_the_rest() {
        assert_eq!(entitlement_ppm(100, 400, 0, 0, None), 250_000);
        assert_eq!(entitlement_ppm(100, 400, 200_000, 200_000, None), 400_000);
        assert_eq!(entitlement_ppm(300, 400, 0, 200_000, Some(500_000)), 500_000);
        assert_eq!(entitlement_ppm(100, 0, 0, 0, None), 1_000_000, "an idle core");
        assert_eq!(entitlement_ppm(1, 2_000_000, 0, 0, None), 1, "never nothing");
    }
}
