//! Who may begin, where a level has a `max_concurrency`: decided here with numbers, done in `gate`.
//!
//! 1. A statement that comes begins at once if nobody waits and there is a slot.
//! 2. Else it joins the end of the queue, unless `max_queue_size` wait: then it is refused.
//! 3. A slot that is given back goes to who has waited longest.
//! 4. Who has waited for `queue_timeout` is refused; without one, whoever asks says how long it would wait.
//!
//! What is altered holds at once: for who comes, and for who waits.

use std::collections::VecDeque;
use std::time::Duration;

/// Statements of a level that wait, unless its options say otherwise.
pub const QUEUE_SIZE_DEFAULT: u32 = 1024;
/// Most statements that can be allowed to wait or to run: what is kept of each is some hundred bytes.
pub const QUEUE_SIZE_MAX: u32 = 1_000_000;

/// What a level's options say of its slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotLimits {
    /// Statements at once; none is no limit.
    pub max_concurrency: Option<u32>,
    /// Statements waiting.
    pub max_queue_size: u32,
    /// Longest wait.
    pub queue_timeout: Option<Duration>,
}

impl SlotLimits {
    /// As they are where no option says anything.
    pub const NONE: SlotLimits =
        SlotLimits { max_concurrency: None, max_queue_size: QUEUE_SIZE_DEFAULT, queue_timeout: None };
}

/// How many statements of a level run, and how many wait, on all cores together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Crowd {
    /// Have a slot.
    pub running: u32,
    /// Wait for one.
    pub waiting: u32,
}

/// What becomes of a statement that comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// It has a slot.
    Enter,
    /// It is the last in the queue.
    Wait,
    /// The queue is full.
    Full,
}

impl Crowd {
    /// Decides on a statement that comes, and counts it.
    #[must_use]
    pub fn arrive(self, limits: &SlotLimits) -> (Crowd, Arrival) {
        let Crowd { running, waiting } = self;
        if waiting == 0 && limits.max_concurrency.is_none_or(|max| running < max) {
            (Crowd { running: running + 1, ..self }, Arrival::Enter)
        } else if waiting < limits.max_queue_size {
            (Crowd { waiting: waiting + 1, ..self }, Arrival::Wait)
        } else {
            (self, Arrival::Full)
        }
    }

    /// The first in the queue gets a slot, if there is one.
    #[must_use]
    pub fn let_in(self, limits: &SlotLimits) -> Option<Crowd> {
        let Crowd { running, waiting } = self;
        let room = limits.max_concurrency.is_none_or(|max| running < max);
        (room && waiting > 0).then(|| Crowd { running: running + 1, waiting: waiting - 1 })
    }

    /// One that ran has ended.
    #[must_use]
    pub fn leave(self) -> Crowd {
        let running = self.running.checked_sub(1).expect("who leaves was running");
        Crowd { running, ..self }
    }

    /// One that waited does so no longer.
    #[must_use]
    pub fn give_up(self) -> Crowd {
        let waiting = self.waiting.checked_sub(1).expect("who gives up was waiting");
        Crowd { waiting, ..self }
    }

    /// As one word.
    pub(crate) fn to_word(self) -> u64 {
        u64::from(self.running) << 32 | u64::from(self.waiting)
    }

    /// From [`Crowd::to_word`].
    pub(crate) fn of_word(word: u64) -> Crowd {
        Crowd { running: (word >> 32) as u32, waiting: word as u32 }
    }
}

/// One in a queue.
#[derive(Debug)]
pub struct Waiter<T> {
    /// Unique in its queue.
    pub number: u64,
    /// Since when it waits, ns.
    pub since_ns: u64,
    /// How long it would wait where the level does not say.
    pub patience: Duration,
    /// Whom to tell.
    pub whom: T,
}

impl<T> Waiter<T> {
    /// When it has waited too long, ns.
    fn late_ns(&self, limits: &SlotLimits) -> u64 {
        let longest = limits.queue_timeout.unwrap_or(self.patience);
        self.since_ns.saturating_add(u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// A level's queue: first in, first out. How many it may hold is decided by [`Crowd::arrive`].
#[derive(Debug)]
pub struct Queue<T>(VecDeque<Waiter<T>>);

impl<T> Default for Queue<T> {
    fn default() -> Queue<T> {
        Queue(VecDeque::new())
    }
}

impl<T> Queue<T> {
    /// Puts one at the end.
    pub fn join(&mut self, waiter: Waiter<T>) {
        self.0.push_back(waiter);
    }

    /// Takes out who has waited longest.
    pub fn first(&mut self) -> Option<Waiter<T>> {
        self.0.pop_front()
    }

    /// Takes out the first if it has gone without a word.
    pub fn abandoned(&mut self, is_gone: impl Fn(&T) -> bool) -> Option<Waiter<T>> {
        if self.0.front().is_some_and(|first| is_gone(&first.whom)) { self.0.pop_front() } else { None }
    }

    /// Takes out one who no longer wants to wait.
    pub fn remove(&mut self, number: u64) -> Option<Waiter<T>> {
        let at = self.0.iter().position(|waiter| waiter.number == number)?;
        self.0.remove(at)
    }

    /// Takes out one who has waited too long.
    pub fn late(&mut self, now_ns: u64, limits: &SlotLimits) -> Option<Waiter<T>> {
        let at = self.0.iter().position(|waiter| waiter.late_ns(limits) <= now_ns)?;
        self.0.remove(at)
    }

    /// When the next one will have waited too long, ns.
    #[must_use]
    pub fn next_late_ns(&self, limits: &SlotLimits) -> Option<u64> {
        self.0.iter().map(|waiter| waiter.late_ns(limits)).min()
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
