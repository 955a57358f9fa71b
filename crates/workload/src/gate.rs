//! State of a level's slots: limits, running and waiting statements, and counters. All of it is
//! atomic, and any lane changes it. The pure functions of `slots` change the numbers of statements
//! in one atomic step, so that concurrent callers never exceed the limit.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use std::time::Duration;

use crate::slots::{Arrival, Occupancy, SlotLease, SlotLimits};

/// Statements whose time in a slot must be known before a wait is predicted. Fewer are not enough:
/// the first ones of a starting server predicted seconds for a queue that took one.
const HELD_MIN: u64 = 1000;
/// Part of a new time in the mean: one in this many.
const HELD_PART: u64 = 64;
/// Largest time that enters the mean, as a multiple of it. One exceptional statement predicts
/// nothing about the next ones.
const HELD_MAX: u64 = 4;

/// Marks the absence of a limit in an atomic number.
const NONE: u64 = u64::MAX;

/// Slots of a level.
pub(crate) struct Gate {
    /// An [`Occupancy`] as one word.
    occupancy: AtomicU64,
    max_concurrency: AtomicU64,
    max_queue_size: AtomicU32,
    queue_timeout_ms: AtomicU64,
    lease: LeaseWords,
    /// Next number of a waiter.
    next: AtomicU64,
    /// Recent mean time in a slot, ns, and the number of times in it. Races lose a time at most.
    held_ns: AtomicU64,
    held: AtomicU64,
    counts: SlotCounts,
}

/// A [`SlotLease`].
struct LeaseWords {
    /// [`NONE`]: slots are not leased.
    slots: AtomicU64,
    until_ns: AtomicU64,
    holders: AtomicU32,
}

/// Counters of a level's slots.
#[derive(Default)]
struct SlotCounts {
    full: AtomicU64,
    timed_out: AtomicU64,
    predicted: AtomicU64,
    waited: AtomicU64,
    waited_ns: AtomicU64,
}

/// Present use of a level's slots, and counters since its creation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SlotUse {
    /// Statements running and waiting now.
    pub occupancy: Occupancy,
    /// Statements refused because the queue was full.
    pub full: u64,
    /// Statements refused because they waited too long.
    pub timed_out: u64,
    /// Statements refused at once because their wait would have been too long.
    pub predicted: u64,
    /// Statements admitted after a wait.
    pub waited: u64,
    /// Total wait of those admitted after a wait, ns.
    pub waited_ns: u64,
}

impl Gate {
    pub(crate) fn new() -> Gate {
        let gate = Gate {
            occupancy: AtomicU64::new(0),
            max_concurrency: AtomicU64::new(NONE),
            max_queue_size: AtomicU32::new(0),
            queue_timeout_ms: AtomicU64::new(NONE),
            lease: LeaseWords {
                slots: AtomicU64::new(NONE),
                until_ns: AtomicU64::new(0),
                holders: AtomicU32::new(1),
            },
            next: AtomicU64::new(0),
            held_ns: AtomicU64::new(0),
            held: AtomicU64::new(0),
            counts: SlotCounts::default(),
        };
        gate.set(&SlotLimits::NONE);
        gate
    }

    pub(crate) fn set(&self, limits: &SlotLimits) {
        self.max_concurrency.store(limits.max_concurrency.map_or(NONE, u64::from), SeqCst);
        self.max_queue_size.store(limits.max_queue_size, SeqCst);
        let ms = |timeout: Duration| u64::try_from(timeout.as_millis()).unwrap_or(NONE);
        self.queue_timeout_ms.store(limits.queue_timeout.map_or(NONE, ms), SeqCst);
    }

    /// Sets the lease of the slots. Returns false if it only renews one of as many slots that has
    /// not ended: waiting statements get no more by it.
    pub(crate) fn set_lease(&self, lease: SlotLease) -> bool {
        // Slots of an earlier time must not get its end.
        let slots = self.lease.slots.swap(lease.slots.into(), SeqCst);
        let until_ns = self.lease.until_ns.swap(lease.until_ns, SeqCst);
        self.lease.holders.store(lease.holders.max(1), SeqCst);
        slots != u64::from(lease.slots) || until_ns <= lanes::time::boot_ns()
    }

    /// Returns the limits of the level, on all servers.
    pub(crate) fn limits_of_all(&self) -> SlotLimits {
        let set = |value: &AtomicU64| Some(value.load(SeqCst)).filter(|value| *value != NONE);
        SlotLimits {
            max_concurrency: set(&self.max_concurrency).and_then(|max| u32::try_from(max).ok()),
            max_queue_size: self.max_queue_size.load(SeqCst),
            queue_timeout: set(&self.queue_timeout_ms).map(Duration::from_millis),
            is_auto: false,
        }
    }

    /// Returns the limits on this server.
    pub(crate) fn limits(&self) -> SlotLimits {
        let limits = self.limits_of_all();
        let LeaseWords { slots, until_ns, holders } = &self.lease;
        let (Some(max), leased) = (limits.max_concurrency, slots.load(SeqCst)) else { return limits };
        if leased == NONE {
            return limits;
        }
        let holds = lanes::time::boot_ns() < until_ns.load(SeqCst);
        let leased = if holds { u32::try_from(leased).unwrap_or(u32::MAX) } else { 0 };
        let max_queue_size = limits.max_queue_size.div_ceil(holders.load(SeqCst));
        SlotLimits { max_concurrency: Some(max.min(leased)), max_queue_size, ..limits }
    }

    /// Changes the numbers of statements in one step. Returns those before, or `None` if `change`
    /// does.
    pub(crate) fn change(&self, mut change: impl FnMut(Occupancy) -> Option<Occupancy>) -> Option<Occupancy> {
        let changed = self
            .occupancy
            .fetch_update(SeqCst, SeqCst, |word| change(Occupancy::from_word(word)).map(Occupancy::to_word));
        changed.ok().map(Occupancy::from_word)
    }

    pub(crate) fn arrive(&self) -> Arrival {
        let mut limits = self.limits();
        loop {
            let mut arrival = Arrival::Full;
            self.change(|occupancy| {
                let (after, decided) = occupancy.arrive(&limits);
                arrival = decided;
                Some(after)
            });
            let is_within = self.is_within(&mut limits);
            if arrival != Arrival::Enter || is_within {
                return arrival;
            }
            self.change(|occupancy| Some(occupancy.release_slot()));
        }
    }

    /// Moves the first waiter to a slot. False: no slot is free, or the queue is empty.
    pub(crate) fn grant_slot(&self) -> bool {
        let mut limits = self.limits();
        while self.change(|occupancy| occupancy.grant_slot(&limits)).is_some() {
            if self.is_within(&mut limits) {
                return true;
            }
            self.change(|occupancy| Some(occupancy.take_back_slot()));
        }
        false
    }

    /// Returns true if a statement that has got a slot by `limits` is within the limits of now,
    /// which it writes there. A lease may end, or be lowered, while a slot is given. The lower
    /// lease is set before the running statements are counted: either this statement is among
    /// them, or it sees the lower lease here.
    fn is_within(&self, limits: &mut SlotLimits) -> bool {
        if self.lease.slots.load(SeqCst) == NONE {
            return true;
        }
        let before = std::mem::replace(limits, self.limits());
        limits.max_concurrency >= before.max_concurrency
    }

    /// Returns a number for a waiter, larger than those before.
    pub(crate) fn next_number(&self) -> u64 {
        self.next.fetch_add(1, Relaxed)
    }

    /// Returns the running and waiting statements.
    pub(crate) fn occupancy(&self) -> Occupancy {
        Occupancy::from_word(self.occupancy.load(SeqCst))
    }

    /// Counts a statement that was refused because the queue was full.
    pub(crate) fn count_full(&self) {
        self.counts.full.fetch_add(1, Relaxed);
    }

    /// Counts a statement that was refused because it waited too long.
    pub(crate) fn count_timed_out(&self) {
        self.counts.timed_out.fetch_add(1, Relaxed);
    }

    /// Counts a statement that was refused because its wait would have been too long.
    pub(crate) fn count_predicted(&self) {
        self.counts.predicted.fetch_add(1, Relaxed);
    }

    /// Records the time for which a statement has held its slot.
    pub(crate) fn record_held(&self, ns: u64) {
        let held_ns = match (self.held.fetch_add(1, Relaxed), self.held_ns.load(Relaxed)) {
            (0, _) => ns,
            (_, mean) => mean - mean / HELD_PART + ns.min(mean.max(1).saturating_mul(HELD_MAX)) / HELD_PART,
        };
        self.held_ns.store(held_ns, Relaxed);
    }

    /// Returns the expected wait for a slot with `ahead` statements in the queue, ns: by Little's
    /// law, slots become free once in the mean time in a slot, divided by their number. `None`: too
    /// few statements have ended.
    pub(crate) fn expected_wait_ns(&self, ahead: u32) -> Option<u64> {
        let slots = u64::from(self.limits().max_concurrency?.max(1));
        let is_known = self.held.load(Relaxed) >= HELD_MIN;
        let all_ns = self.held_ns.load(Relaxed).saturating_mul(u64::from(ahead) + 1);
        is_known.then_some(all_ns / slots)
    }

    /// Counts a statement that was admitted after a wait.
    pub(crate) fn count_waited(&self, waited_ns: u64) {
        self.counts.waited.fetch_add(1, Relaxed);
        self.counts.waited_ns.fetch_add(waited_ns, Relaxed);
    }

    pub(crate) fn slot_use(&self) -> SlotUse {
        let SlotCounts { full, timed_out, predicted, waited, waited_ns } = &self.counts;
        SlotUse {
            occupancy: self.occupancy(),
            full: full.load(Relaxed),
            timed_out: timed_out.load(Relaxed),
            predicted: predicted.load(Relaxed),
            waited: waited.load(Relaxed),
            waited_ns: waited_ns.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leased_slots_are_granted_within_the_lease_and_its_time() {
        let gate = Gate::new();
        gate.set(&SlotLimits { max_concurrency: Some(4), max_queue_size: 3, ..SlotLimits::NONE });
        assert!(gate.set_lease(SlotLease::NONE));
        assert_eq!(gate.arrive(), Arrival::Wait, "no lease yet");
        let now_ns = lanes::time::boot_ns();
        let lease = SlotLease { slots: 2, until_ns: now_ns + 3_600_000_000_000, holders: 2 };
        assert!(gate.set_lease(lease));
        assert!(!gate.set_lease(lease), "it is renewed");
        assert!(gate.grant_slot());
        assert_eq!(gate.arrive(), Arrival::Enter);
        assert_eq!([gate.arrive(), gate.arrive()], [Arrival::Wait; 2], "half of the queue, rounded up");
        assert_eq!(gate.arrive(), Arrival::Full);
        gate.set_lease(SlotLease { slots: 9, ..lease });
        assert!(gate.grant_slot() && gate.grant_slot() && !gate.grant_slot(), "the level has 4");
        gate.change(|occupancy| Some(occupancy.release_slot()));
        gate.set_lease(SlotLease { until_ns: now_ns, ..lease });
        assert_eq!(gate.arrive(), Arrival::Wait, "its time is over");
        assert!(gate.set_lease(lease), "it begins anew");
    }

    #[test]
    fn moved_statement_has_a_slot_beyond_the_limit() {
        let gate = Gate::new();
        gate.set(&SlotLimits { max_concurrency: Some(1), ..SlotLimits::NONE });
        assert_eq!((gate.arrive(), gate.arrive()), (Arrival::Enter, Arrival::Wait));
        gate.change(|occupancy| Some(occupancy.enter_running()));
        assert_eq!(gate.occupancy(), Occupancy { running: 2, waiting: 1 });
        let release = |occupancy: Occupancy| Some(occupancy.release_slot());
        gate.change(release);
        assert_eq!(gate.change(|occupancy| occupancy.grant_slot(&gate.limits())), None, "one runs");
        gate.change(release);
        assert!(gate.change(|occupancy| occupancy.grant_slot(&gate.limits())).is_some());
    }

    #[test]
    fn wait_is_expected_from_the_time_in_a_slot() {
        const MS: u64 = 1_000_000;
        let gate = Gate::new();
        gate.set(&SlotLimits { max_concurrency: Some(4), ..SlotLimits::NONE });
        (1..HELD_MIN).for_each(|_| gate.record_held(128 * MS));
        assert_eq!(gate.expected_wait_ns(0), None, "too few");
        gate.record_held(128 * MS);
        assert_eq!(
            [0, 3, 39].map(|ahead| gate.expected_wait_ns(ahead)),
            [32, 128, 1280].map(|ms| Some(ms * MS))
        );
        gate.record_held(1_000_000 * MS);
        assert_eq!(gate.expected_wait_ns(3), Some(134 * MS), "an exception counts four times the mean");
        (0..1000).for_each(|_| gate.record_held(0));
        assert!(gate.expected_wait_ns(3) < Some(MS));
        gate.set(&SlotLimits::NONE);
        assert_eq!(gate.expected_wait_ns(3), None);
    }
}
