//! Wait for a slot of a level with `max_concurrency`, one number for the whole server:
//!
//! ```text
//!   any lane ──arrive──▶ one word: running, waiting ──slot free, queue empty──▶ Ticket
//!                             │ else
//!                             └──▶ wait queue on the level's home core ──▶ Ticket, or timeout
//!   Ticket dropped on any lane ──▶ running - 1; if statements wait, notify the home core
//! ```
//!
//! `gate` has the word. Only the home core admits from the queue, in the order of turns. No
//! path takes a lock. CQL statements of a level without `max_concurrency` bypass this module.
//! Setting the option later does not count those that are running.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};
use std::time::Duration;

use lanes::sync::cross;
use lanes::{Group, Lanes, PerCore};

use crate::slots::{Arrival, Occupancy, Queue, SlotLease, SlotLimits, Waiter};
use crate::{Effective, Level};

/// A slot of a level. Dropping it on any thread releases the slot.
#[must_use = "dropping this releases the slot"]
pub struct Ticket {
    level: Arc<Level>,
    lanes: Lanes,
    /// Begin, ns of the monotonic clock.
    since_ns: u64,
}

/// A refused statement, with the text of its Overloaded error (0x1001).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Overloaded(pub String);

/// Outcome of a request for a slot.
#[derive(Debug)]
pub enum SlotRequest {
    /// The statement has a slot.
    In(Ticket),
    /// The statement is in the wait queue.
    Waits(WaitingStatement),
    /// The queue is full, or so long that the statement could not begin in time.
    Full(Overloaded),
}

/// A statement in the wait queue of a level. Resolves to a slot, or to an error after its timeout.
/// Dropping it leaves the queue.
#[must_use = "dropping this leaves the wait queue"]
pub struct WaitingStatement {
    entry: QueueEntry,
    answer: cross::Receiver<Result<Ticket, Overloaded>>,
}

struct QueueEntry {
    level: Arc<Level>,
    lanes: Lanes,
    number: u64,
    /// True if the wait has ended, so that the queue has no entry any more.
    ended: bool,
}

/// Channel for the outcome of a wait.
type ReplyChannel = cross::Sender<Result<Ticket, Overloaded>>;

/// A wait queue with its timer.
#[derive(Default)]
struct WaitQueue {
    queue: Queue<ReplyChannel>,
    /// Deadline of the timer in ns, and the task that waits for it.
    timer: Option<(u64, lanes::Task<()>)>,
}

/// Wait queues of the levels whose home is a core, by [`Level::id`].
type WaitQueues = RefCell<HashMap<u64, WaitQueue>>;

static WAIT_QUEUES: LazyLock<PerCore<WaitQueues>> = LazyLock::new(PerCore::new);

/// Returns the wait queues of this core.
fn wait_queues() -> Rc<WaitQueues> {
    WAIT_QUEUES.get_or_set(RefCell::default)
}

/// Requests a slot for a statement, on a lane. A level without `max_concurrency` grants it at once
/// and counts it. Without `queue_timeout`, the statement waits for at most `default_timeout`.
pub fn enter(effective: &Effective, default_timeout: Duration) -> SlotRequest {
    let level = effective.level.clone();
    let lanes = lanes::handle();
    match level.gate.arrive() {
        Arrival::Enter => SlotRequest::In(Ticket::new(level, lanes)),
        Arrival::Full => {
            level.gate.count_full();
            SlotRequest::Full(level.refusal(Why::QueueFull))
        }
        Arrival::Wait => match level.predicts_late(default_timeout) {
            None => SlotRequest::Waits(WaitingStatement::begin(level, lanes, default_timeout)),
            Some(why) => {
                level.gate.count_predicted();
                let refused = level.refusal(why);
                level.gate.change(|occupancy| Some(occupancy.give_up()));
                // One that joined the queue behind it meanwhile may have a slot now.
                level.at_home(&lanes, |level, lanes| level.admit_waiters(lanes));
                SlotRequest::Full(refused)
            }
        },
    }
}

/// Reason of a refusal.
#[derive(Clone, Copy)]
enum Why {
    QueueFull,
    /// It waited for as long as it may.
    Late(Duration),
    /// It would wait for the first time, ns, and may wait for the second.
    Predicted(u64, Duration),
}

impl Ticket {
    fn new(level: Arc<Level>, lanes: Lanes) -> Ticket {
        Ticket { level, lanes, since_ns: lanes::time::monotonic_ns() }
    }
}

/// Takes a slot for a statement that runs already and moves to the level. It cannot wait: it holds
/// memory and rows. So it has a slot beyond the limit if none is free.
pub fn enter_running(effective: &Effective) -> Ticket {
    effective.level.gate.change(|occupancy| Some(occupancy.enter_running()));
    Ticket::new(effective.level.clone(), lanes::handle())
}

/// Requests a slot as [`enter`] does, and waits for it. Callable from either lane.
///
/// # Errors
/// [`Overloaded`] if the queue is full, or the wait exceeds its timeout or is known to.
pub async fn admit(effective: &Effective, default_timeout: Duration) -> Result<Ticket, Overloaded> {
    match enter(effective, default_timeout) {
        SlotRequest::In(ticket) => Ok(ticket),
        SlotRequest::Waits(waiting) => waiting.await,
        SlotRequest::Full(refused) => Err(refused),
    }
}

impl WaitingStatement {
    fn begin(level: Arc<Level>, lanes: Lanes, default_timeout: Duration) -> WaitingStatement {
        let number = level.gate.next_number();
        let (reply, answer) = cross::oneshot();
        let flow = lanes::current_flow();
        let since_ns = lanes::time::monotonic_ns();
        let waiter = Waiter { number, flow, since_ns, default_timeout, reply };
        level.at_home(&lanes, move |level, lanes| {
            wait_queues().borrow_mut().entry(level.id()).or_default().queue.join(waiter);
            level.admit_waiters(lanes);
        });
        WaitingStatement { entry: QueueEntry { level, lanes, number, ended: false }, answer }
    }
}

impl Future for WaitingStatement {
    type Output = Result<Ticket, Overloaded>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = std::task::ready!(Pin::new(&mut self.answer).poll(cx));
        self.entry.ended = true;
        // The channel is closed: the server is stopping.
        Poll::Ready(answer.unwrap_or_else(|_| Err(Overloaded("The server is shutting down".to_owned()))))
    }
}

impl Drop for QueueEntry {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let number = self.number;
        self.level.at_home(&self.lanes, move |level, lanes| {
            let mut gone = None;
            if let Some(wait_queue) = wait_queues().borrow_mut().get_mut(&level.id()) {
                gone = wait_queue.queue.remove(number);
            }
            // Otherwise the wait ended meanwhile. If it got a slot, dropping the ticket releases
            // the slot.
            if gone.is_some() {
                level.gate.change(|occupancy| Some(occupancy.give_up()));
                level.admit_waiters(lanes);
            }
        });
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.level.gate.record_held(lanes::time::monotonic_ns().saturating_sub(self.since_ns));
        let before = self.level.gate.change(|occupancy| Some(occupancy.release_slot()));
        if before.is_some_and(|occupancy| occupancy.waiting > 0) {
            self.level.at_home(&self.lanes, |level, lanes| level.admit_waiters(lanes));
        }
    }
}

impl Level {
    /// Runs `f` on the home core, which owns the wait queue. Does nothing if that lane has ended.
    fn at_home(self: &Arc<Self>, lanes: &Lanes, f: impl FnOnce(&Arc<Level>, &Lanes) + Send + 'static) {
        let level = self.clone();
        let with = lanes.clone();
        lanes.run_on_core(self.home, Group::CONTROL, move || f(&level, &with));
    }

    /// Applies new limits, also to waiting statements.
    pub(crate) fn set_slots(self: &Arc<Self>, lanes: &Lanes, limits: &SlotLimits) {
        self.gate.set(limits);
        self.at_home(lanes, |level, lanes| level.admit_waiters(lanes));
    }

    /// Applies a lease, also to waiting statements.
    pub(crate) fn set_lease(self: &Arc<Self>, lanes: &Lanes, lease: SlotLease) {
        if self.gate.set_lease(lease) {
            self.at_home(lanes, |level, lanes| level.admit_waiters(lanes));
        }
    }

    /// Admits waiters while slots are free, refuses late ones, and sets the timer. Call it on the
    /// home core.
    fn admit_waiters(self: &Arc<Self>, lanes: &Lanes) {
        let limits = self.gate.limits();
        let now_ns = lanes::time::monotonic_ns();
        while let Some((waiter, gets_slot)) = self.next(now_ns, &limits) {
            let answer = if gets_slot {
                self.gate.count_waited(now_ns.saturating_sub(waiter.since_ns));
                Ok(Ticket::new(self.clone(), lanes.clone()))
            } else {
                self.gate.count_timed_out();
                Err(self.refusal(Why::Late(limits.queue_timeout.unwrap_or(waiter.default_timeout))))
            };
            // If the receiver is gone, dropping the ticket releases the slot.
            waiter.reply.send(answer);
        }
        self.set_timer(lanes, &limits);
    }

    /// Removes the next waiter to answer. `true`: it gets a slot. `false`: it waited too long.
    fn next(self: &Arc<Self>, now_ns: u64, limits: &SlotLimits) -> Option<(Waiter<ReplyChannel>, bool)> {
        let queues = wait_queues();
        let mut queues = queues.borrow_mut();
        let queue = &mut queues.get_mut(&self.id())?.queue;
        if let Some(late) = queue.late(now_ns, limits) {
            self.gate.change(|occupancy| Some(occupancy.give_up()));
            return Some((late, false));
        }
        while let Some(gone) = queue.take_abandoned(|reply| reply.is_closed()) {
            self.gate.change(|occupancy| Some(occupancy.give_up()));
            drop(gone);
        }
        if queue.is_empty() {
            return None;
        }
        if !self.gate.grant_slot() {
            return None;
        }
        queue.first().map(|first| (first, true))
    }

    fn set_timer(self: &Arc<Self>, lanes: &Lanes, limits: &SlotLimits) {
        drop(self.changed_timer(lanes, limits));
    }

    /// Sets the timer. Returns the task of the earlier timer, to be dropped.
    fn changed_timer(self: &Arc<Self>, lanes: &Lanes, limits: &SlotLimits) -> Option<(u64, lanes::Task<()>)> {
        let queues = wait_queues();
        let mut queues = queues.borrow_mut();
        let wait_queue = queues.get_mut(&self.id())?;
        let Some(at_ns) = wait_queue.queue.next_deadline_ns(limits) else {
            return queues.remove(&self.id()).and_then(|wait_queue| wait_queue.timer);
        };
        if wait_queue.timer.as_ref().is_some_and(|(set_ns, _)| *set_ns <= at_ns) {
            return None;
        }
        let level = self.clone();
        let lanes = lanes.clone();
        let wait = Duration::from_nanos(at_ns.saturating_sub(lanes::time::monotonic_ns()));
        let ring = async move {
            lanes::time::sleep(wait).await;
            // Detach the timer's own task: dropping it would cancel it while it runs.
            let timer = wait_queues().borrow_mut().get_mut(&level.id()).and_then(|queue| queue.timer.take());
            timer.into_iter().for_each(|(_, task)| task.detach());
            level.admit_waiters(&lanes);
        };
        wait_queue.timer.replace((at_ns, lanes::spawn(Group::CONTROL, ring)))
    }

    /// Returns the reason to refuse a statement that has just been counted as waiting. `None`: it
    /// may begin in time. The expected wait is an estimate, so that it must be twice the longest
    /// one.
    fn predicts_late(&self, default_timeout: Duration) -> Option<Why> {
        let ahead = self.gate.occupancy().waiting.saturating_sub(1);
        let wait_ns = self.gate.expected_wait_ns(ahead)?;
        let longest = self.gate.limits().queue_timeout.unwrap_or(default_timeout);
        (u128::from(wait_ns) > 2 * longest.as_nanos()).then_some(Why::Predicted(wait_ns, longest))
    }

    /// Returns the error of a refused statement.
    #[cold]
    fn refusal(&self, why: Why) -> Overloaded {
        let limits = self.gate.limits();
        let Occupancy { running, waiting } = self.gate.occupancy();
        let slots = limits.max_concurrency.map_or(u32::MAX, |max| max.max(1));
        let by_service_ns =
            || self.mean_service_of_all_ns().saturating_mul(u64::from(waiting) + 1) / u64::from(slots);
        let ahead_ns = self.gate.expected_wait_ns(waiting).unwrap_or_else(by_service_ns);
        let retry_ms = crate::admission::retry_ms(ahead_ns);
        let longest = match limits.queue_timeout {
            Some(_) => "its queue_timeout",
            None => "the statement's time limit",
        };
        let what = match why {
            Why::QueueFull => format!(
                "its queue is full ({waiting} statements waiting, max_queue_size {})",
                limits.max_queue_size
            ),
            Why::Late(limit) => {
                format!("a statement waited in its queue for {} ms, which is {longest}", limit.as_millis())
            }
            Why::Predicted(wait_ns, limit) => format!(
                "a statement would wait in its queue for about {} ms, more than {longest} of {} ms",
                wait_ns / 1_000_000,
                limit.as_millis()
            ),
        };
        let all = self.gate.limits_of_all().max_concurrency;
        let max = match (all, limits.max_concurrency) {
            (None, _) => "none".to_owned(),
            (Some(all), Some(here)) if here < all => format!("{all}, of which {here} on this server"),
            (Some(all), _) => all.to_string(),
        };
        Overloaded(format!(
            "The service level '{}' is overloaded: {what}; {running} statements running, max_concurrency {max}. \
             Try again in {retry_ms} ms.",
            self.name()
        ))
    }
}

impl fmt::Display for Overloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Overloaded {}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ticket({})", self.level.name())
    }
}

impl fmt::Debug for WaitingStatement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Waiting({}, {})", self.entry.level.name(), self.entry.number)
    }
}
