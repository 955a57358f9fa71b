//! Decisions on the slots of a level with `max_concurrency`, as pure functions. `gate` carries them
//! out.
//!
//! 1. An arriving statement starts at once if the queue is empty and a slot is free.
//! 2. Otherwise it joins the end of the queue. It is refused if `max_queue_size` statements wait.
//! 3. A released slot goes to the first statement in the queue.
//! 4. A statement is refused after it has waited for `queue_timeout`. Without that option, the
//!    caller's timeout applies.
//!
//! Altered limits apply at once, also to waiting statements.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Queue length of a level without `max_queue_size`.
pub const QUEUE_SIZE_DEFAULT: u32 = 1024;
/// Upper bound of `max_queue_size` and `max_concurrency`. A waiting statement needs about 100
/// bytes.
pub const QUEUE_SIZE_MAX: u32 = 1_000_000;

/// Slot options of a level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotLimits {
    /// Statements that may run at once. `None`: no limit.
    pub max_concurrency: Option<u32>,
    /// Statements that may wait.
    pub max_queue_size: u32,
    /// Longest wait. `None`: the timeout of the caller applies.
    pub queue_timeout: Option<Duration>,
    /// `max_concurrency = 'auto'`: the limiter bounds the statements in flight on each core.
    pub is_auto: bool,
}

impl SlotLimits {
    /// Limits of a level without slot options.
    pub const NONE: SlotLimits = SlotLimits {
        max_concurrency: None,
        max_queue_size: QUEUE_SIZE_DEFAULT,
        queue_timeout: None,
        is_auto: false,
    };
}

/// Running and waiting statements of a level, on all cores together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Occupancy {
    /// Statements with a slot.
    pub running: u32,
    /// Statements waiting for a slot.
    pub waiting: u32,
}

/// Decision on an arriving statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// It has a slot.
    Enter,
    /// It joins the queue.
    Wait,
    /// It is refused: the queue is full.
    Full,
}

impl Occupancy {
    /// Decides on an arriving statement, and counts it.
    #[must_use]
    pub fn arrive(self, limits: &SlotLimits) -> (Occupancy, Arrival) {
        let Occupancy { running, waiting } = self;
        if waiting == 0 && limits.max_concurrency.is_none_or(|max| running < max) {
            (Occupancy { running: running + 1, ..self }, Arrival::Enter)
        } else if waiting < limits.max_queue_size {
            (Occupancy { waiting: waiting + 1, ..self }, Arrival::Wait)
        } else {
            (self, Arrival::Full)
        }
    }

    /// Moves the first waiter to a slot. `None`: no slot is free, or the queue is empty.
    #[must_use]
    pub fn grant_slot(self, limits: &SlotLimits) -> Option<Occupancy> {
        let Occupancy { running, waiting } = self;
        let has_slot = limits.max_concurrency.is_none_or(|max| running < max);
        (has_slot && waiting > 0).then(|| Occupancy { running: running + 1, waiting: waiting - 1 })
    }

    /// Counts the end of a running statement.
    #[must_use]
    pub fn release_slot(self) -> Occupancy {
        let running = self.running.checked_sub(1).expect("only running statements release slots");
        Occupancy { running, ..self }
    }

    /// Counts the end of a wait without a slot.
    #[must_use]
    pub fn give_up(self) -> Occupancy {
        let waiting = self.waiting.checked_sub(1).expect("only waiting statements give up");
        Occupancy { waiting, ..self }
    }

    /// Encodes the counts in one word.
    pub(crate) fn to_word(self) -> u64 {
        u64::from(self.running) << 32 | u64::from(self.waiting)
    }

    /// Decodes the counts from [`Occupancy::to_word`].
    pub(crate) fn from_word(word: u64) -> Occupancy {
        Occupancy { running: (word >> 32) as u32, waiting: word as u32 }
    }
}

/// A waiting statement.
#[derive(Debug)]
pub struct Waiter<T> {
    /// Unique number in the queue.
    pub number: u64,
    /// Start of the wait, ns.
    pub since_ns: u64,
    /// Longest wait if the level has no `queue_timeout`.
    pub default_timeout: Duration,
    /// Channel for the outcome.
    pub reply: T,
}

impl<T> Waiter<T> {
    /// Returns the deadline of the wait without a `queue_timeout`, ns.
    fn own_deadline_ns(&self) -> u64 {
        self.since_ns.saturating_add(nanoseconds(self.default_timeout))
    }
}

/// Returns a duration in ns.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Wait queue of a level, in the order of the waiters' numbers: first in, first out.
/// [`Occupancy::arrive`] bounds its length. Every operation takes logarithmic time.
#[derive(Debug)]
pub struct Queue<T> {
    waiters: BTreeMap<u64, Waiter<T>>,
    /// Deadlines without a `queue_timeout`, ns, with the numbers of their waiters.
    deadlines: BTreeSet<(u64, u64)>,
}

impl<T> Default for Queue<T> {
    fn default() -> Queue<T> {
        Queue { waiters: BTreeMap::new(), deadlines: BTreeSet::new() }
    }
}

impl<T> Queue<T> {
    /// Adds a waiter. Numbers are those of [`Waiter::number`], which grow.
    pub fn join(&mut self, waiter: Waiter<T>) {
        self.deadlines.insert((waiter.own_deadline_ns(), waiter.number));
        self.waiters.insert(waiter.number, waiter);
    }

    /// Removes the first waiter.
    pub fn first(&mut self) -> Option<Waiter<T>> {
        let number = *self.waiters.first_key_value()?.0;
        self.remove(number)
    }

    /// Removes the first waiter if its receiver is gone.
    pub fn take_abandoned(&mut self, is_gone: impl Fn(&T) -> bool) -> Option<Waiter<T>> {
        let (_, first) = self.waiters.first_key_value()?;
        if is_gone(&first.reply) { self.first() } else { None }
    }

    /// Removes the waiter with this number, which no longer waits.
    pub fn remove(&mut self, number: u64) -> Option<Waiter<T>> {
        let waiter = self.waiters.remove(&number)?;
        self.deadlines.remove(&(waiter.own_deadline_ns(), number));
        Some(waiter)
    }

    /// Removes a waiter whose deadline has passed.
    pub fn late(&mut self, now_ns: u64, limits: &SlotLimits) -> Option<Waiter<T>> {
        let (deadline_ns, number) = self.next_deadline(limits)?;
        if deadline_ns <= now_ns { self.remove(number) } else { None }
    }

    /// Returns the earliest deadline, ns. `None`: the queue is empty.
    #[must_use]
    pub fn next_deadline_ns(&self, limits: &SlotLimits) -> Option<u64> {
        self.next_deadline(limits).map(|(deadline_ns, _)| deadline_ns)
    }

    /// Returns the earliest deadline, ns, and the number of its waiter. With a `queue_timeout` that
    /// is the first waiter, which has waited longest.
    fn next_deadline(&self, limits: &SlotLimits) -> Option<(u64, u64)> {
        match limits.queue_timeout {
            Some(longest) => {
                let (number, first) = self.waiters.first_key_value()?;
                Some((first.since_ns.saturating_add(nanoseconds(longest)), *number))
            }
            None => self.deadlines.first().copied(),
        }
    }

    /// Returns true if the queue is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }
}
