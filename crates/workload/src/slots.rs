//! Decisions on the slots of a level with `max_concurrency`, as pure functions. `gate` carries them
//! out.
//!
//! 1. An arriving statement starts at once if the queue is empty and a slot is free.
//! 2. Otherwise it joins the end of the queue. It is refused if `max_queue_size` statements wait.
//! 3. A released slot goes to the next statement in the queue. Connections take turns: a statement
//!    waits for at most one of each other connection that was in the queue before it.
//!    Those of one connection are first in, first out.
//! 4. A statement is refused after it has waited for `queue_timeout`. Without that option, the
//!    caller's timeout applies.
//!
//! Altered limits apply at once, also to waiting statements.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use lanes::Flow;

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

/// Part of a level's `max_concurrency` that this server may use, where several servers share it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotLease {
    /// Statements that may run here at once.
    pub slots: u32,
    /// Time until which it holds, of [`lanes::time::boot_ns`]. Then no statement gets a slot.
    pub until_ns: u64,
    /// Number of the servers. `max_queue_size` is divided by it, rounded up.
    pub holders: u32,
}

impl SlotLease {
    /// The lease of a server that has none yet.
    pub const NONE: SlotLease = SlotLease { slots: 0, until_ns: 0, holders: 1 };
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

    /// Moves a statement that has just got a slot back to the queue.
    #[must_use]
    pub fn take_back_slot(self) -> Occupancy {
        Occupancy { waiting: self.waiting + 1, ..self.release_slot() }
    }

    /// Counts a statement that runs already, also beyond the limit.
    #[must_use]
    pub fn enter_running(self) -> Occupancy {
        Occupancy { running: self.running.saturating_add(1), ..self }
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
    /// Its connection.
    pub flow: Flow,
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

/// Wait queue of a level. [`Occupancy::arrive`] bounds its length. Every operation takes
/// logarithmic time.
///
/// Each waiter has a round. The first of a flow joins the present round, each further one the round
/// after that of the one before. Waiters are admitted by round, those of a round by number.
#[derive(Debug)]
pub struct Queue<T> {
    /// Waiters by number, with their rounds.
    waiters: BTreeMap<u64, (Waiter<T>, u64)>,
    /// Rounds and numbers of the waiters, in the order of their admission.
    order: BTreeSet<(u64, u64)>,
    /// Flows that wait: the round of the last waiter, and their number.
    flows: HashMap<Flow, (u64, u32)>,
    /// Round of the waiter that was admitted last.
    round: u64,
    /// Deadlines without a `queue_timeout`, ns, with the numbers of their waiters.
    deadlines: BTreeSet<(u64, u64)>,
}

impl<T> Default for Queue<T> {
    fn default() -> Queue<T> {
        Queue {
            waiters: BTreeMap::new(),
            order: BTreeSet::new(),
            flows: HashMap::new(),
            round: 0,
            deadlines: BTreeSet::new(),
        }
    }
}

impl<T> Queue<T> {
    /// Adds a waiter. Numbers are those of [`Waiter::number`], which grow.
    pub fn join(&mut self, waiter: Waiter<T>) {
        let number = waiter.number;
        let mut round = self.round;
        if waiter.flow != Flow::NONE {
            let (last, waiting) = self.flows.entry(waiter.flow).or_insert((round, 0));
            if *waiting > 0 {
                round = round.max(*last + 1);
            }
            (*last, *waiting) = (round, *waiting + 1);
        }
        self.deadlines.insert((waiter.own_deadline_ns(), number));
        self.order.insert((round, number));
        self.waiters.insert(number, (waiter, round));
    }

    /// Removes the waiter whose turn it is.
    pub fn first(&mut self) -> Option<Waiter<T>> {
        let (round, number) = *self.order.first()?;
        self.round = round;
        self.remove(number)
    }

    /// Removes the waiter whose turn it is if its receiver is gone.
    pub fn take_abandoned(&mut self, is_gone: impl Fn(&T) -> bool) -> Option<Waiter<T>> {
        let &(_, number) = self.order.first()?;
        let (first, _) = &self.waiters[&number];
        if is_gone(&first.reply) { self.remove(number) } else { None }
    }

    /// Removes the waiter with this number, which no longer waits.
    pub fn remove(&mut self, number: u64) -> Option<Waiter<T>> {
        let (waiter, round) = self.waiters.remove(&number)?;
        self.order.remove(&(round, number));
        if let Some((_, waiting)) = self.flows.get_mut(&waiter.flow) {
            *waiting -= 1;
            if *waiting == 0 {
                self.flows.remove(&waiter.flow);
            }
        }
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
                let (number, (first, _)) = self.waiters.first_key_value()?;
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
