//! The slots of a level with `max_concurrency`, one number for the whole server:
//!
//! ```text
//!   any lane ──arrive──▶ one word: running, waiting ──slot free, nobody waits──▶ Ticket
//!                             │ else
//!                             └──▶ the queue, on the level's home core ──▶ Ticket, or too late
//!   Ticket dropped, anywhere ──▶ running - 1; if somebody waits, the home core is told
//! ```
//!
//! The word is changed in one atomic step by the pure functions of `slots`, so that there are never more than the limit, whoever
//! asks at the same time; and only the home core lets in from the queue, so that its order holds. Nobody takes a lock. A level
//! without `max_concurrency` does not come here for CQL statements at all: those that run when one is set are not counted.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use std::task::{Context, Poll};
use std::time::Duration;

use lanes::sync::cross;
use lanes::{Group, Lanes};

use crate::slots::{Arrival, Crowd, Queue, SlotLimits, Waiter};
use crate::{Effective, Level};

/// No limit, where a number stands for one.
const NONE: u64 = u64::MAX;

/// What a level knows of its slots.
pub(crate) struct Gate {
    /// A [`Crowd`].
    crowd: AtomicU64,
    max_concurrency: AtomicU64,
    max_queue_size: AtomicU32,
    queue_timeout_ms: AtomicU64,
    /// Numbers for who waits.
    next: AtomicU64,
    counts: Counts,
}

/// What is counted of slots.
#[derive(Default)]
struct Counts {
    full: AtomicU64,
    late: AtomicU64,
    waited: AtomicU64,
    waited_ns: AtomicU64,
}

/// What a level's slots were asked for, and are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SlotUse {
    /// Now.
    pub crowd: Crowd,
    /// Refused because the queue was full.
    pub full: u64,
    /// Refused because they waited too long.
    pub late: u64,
    /// Let in after a wait.
    pub waited: u64,
    /// How long those waited, ns.
    pub waited_ns: u64,
}

impl Gate {
    pub(crate) fn new() -> Gate {
        let gate = Gate {
            crowd: AtomicU64::new(0),
            max_concurrency: AtomicU64::new(NONE),
            max_queue_size: AtomicU32::new(0),
            queue_timeout_ms: AtomicU64::new(NONE),
            next: AtomicU64::new(0),
            counts: Counts::default(),
        };
        gate.set(&SlotLimits::NONE);
        gate
    }

    fn set(&self, limits: &SlotLimits) {
        self.max_concurrency.store(limits.max_concurrency.map_or(NONE, u64::from), SeqCst);
        self.max_queue_size.store(limits.max_queue_size, SeqCst);
        let ms = |timeout: Duration| u64::try_from(timeout.as_millis()).unwrap_or(NONE);
        self.queue_timeout_ms.store(limits.queue_timeout.map_or(NONE, ms), SeqCst);
    }

    fn limits(&self) -> SlotLimits {
        let set = |value: &AtomicU64| Some(value.load(SeqCst)).filter(|value| *value != NONE);
        SlotLimits {
            max_concurrency: set(&self.max_concurrency).and_then(|max| u32::try_from(max).ok()),
            max_queue_size: self.max_queue_size.load(SeqCst),
            queue_timeout: set(&self.queue_timeout_ms).map(Duration::from_millis),
        }
    }

    fn change(&self, mut change: impl FnMut(Crowd) -> Option<Crowd>) -> Option<Crowd> {
        let changed =
            self.crowd.fetch_update(SeqCst, SeqCst, |word| change(Crowd::of_word(word)).map(Crowd::to_word));
        changed.ok().map(Crowd::of_word)
    }

    fn arrive(&self) -> Arrival {
        let limits = self.limits();
        let mut arrival = Arrival::Full;
        self.change(|crowd| {
            let (after, decided) = crowd.arrive(&limits);
            arrival = decided;
            Some(after)
        });
        arrival
    }

    pub(crate) fn slot_use(&self) -> SlotUse {
        let Counts { full, late, waited, waited_ns } = &self.counts;
        SlotUse {
            crowd: Crowd::of_word(self.crowd.load(SeqCst)),
            full: full.load(Relaxed),
            late: late.load(Relaxed),
            waited: waited.load(Relaxed),
            waited_ns: waited_ns.load(Relaxed),
        }
    }
}

/// A slot of a level; given back when dropped, on whatever thread.
#[must_use = "the slot is given back when this is dropped"]
pub struct Ticket {
    level: Arc<Level>,
    lanes: Lanes,
}

/// Not let in: the text is for an Overloaded error (0x1001).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Overloaded(pub String);

/// What becomes of who asks for a slot.
#[derive(Debug)]
pub enum Entrance {
    /// It has one.
    In(Ticket),
    /// It is in the queue.
    Waits(Waiting),
    /// The queue is full.
    Full(Overloaded),
}

/// A place in a level's queue: gives the slot, or says that it took too long. Dropped, it is given up.
#[must_use = "the place is given up when this is dropped"]
pub struct Waiting {
    place: Place,
    answer: cross::Receiver<Result<Ticket, Overloaded>>,
}

struct Place {
    level: Arc<Level>,
    lanes: Lanes,
    number: u64,
    /// It is known how it ended.
    over: bool,
}

/// Who is told how it ended.
type Whom = cross::Sender<Result<Ticket, Overloaded>>;

/// A queue and its alarm clock.
#[derive(Default)]
struct Line {
    queue: Queue<Whom>,
    /// When the alarm goes off, ns, and the task that waits for it.
    alarm: Option<(u64, lanes::Task<()>)>,
}

thread_local! {
    /// The queues of levels whose home this core is, by the level's address: who waits holds on to the level.
    static LINES: RefCell<HashMap<usize, Line>> = RefCell::default();
}

/// Asks for a slot for a statement, on a lane. A level without `max_concurrency` gives one at once, and counts it. Where
/// `queue_timeout` does not say, it waits for `patience` at most.
pub fn enter(effective: &Effective, patience: Duration) -> Entrance {
    let (level, lanes) = (effective.level.clone(), lanes::handle());
    match level.gate.arrive() {
        Arrival::Enter => Entrance::In(Ticket { level, lanes }),
        Arrival::Full => {
            level.gate.counts.full.fetch_add(1, Relaxed);
            Entrance::Full(level.refusal(None))
        }
        Arrival::Wait => Entrance::Waits(Waiting::begin(level, lanes, patience)),
    }
}

/// As [`enter`], and waits: to be used from either lane.
///
/// # Errors
/// The queue is full, or it took too long.
pub async fn admit(effective: &Effective, patience: Duration) -> Result<Ticket, Overloaded> {
    match enter(effective, patience) {
        Entrance::In(ticket) => Ok(ticket),
        Entrance::Waits(waiting) => waiting.await,
        Entrance::Full(refused) => Err(refused),
    }
}

impl Waiting {
    fn begin(level: Arc<Level>, lanes: Lanes, patience: Duration) -> Waiting {
        let number = level.gate.next.fetch_add(1, Relaxed);
        let (whom, answer) = cross::oneshot();
        let waiter = Waiter { number, since_ns: lanes::time::monotonic_ns(), patience, whom };
        level.at_home(&lanes, move |level, lanes| {
            LINES.with_borrow_mut(|lines| lines.entry(level.address()).or_default().queue.join(waiter));
            level.settle(lanes);
        });
        Waiting { place: Place { level, lanes, number, over: false }, answer }
    }
}

impl Future for Waiting {
    type Output = Result<Ticket, Overloaded>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = std::task::ready!(Pin::new(&mut self.answer).poll(cx));
        self.place.over = true;
        // No answer at all: the server is being stopped.
        Poll::Ready(answer.unwrap_or_else(|_| Err(Overloaded("The server is shutting down".to_owned()))))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let number = self.number;
        self.level.at_home(&self.lanes, move |level, lanes| {
            let gone = LINES.with_borrow_mut(|lines| {
                lines.get_mut(&level.address()).and_then(|line| line.queue.remove(number))
            });
            // Else it was answered meanwhile: a slot that it was given comes back by itself.
            if gone.is_some() {
                level.gate.change(|crowd| Some(crowd.give_up()));
                level.settle(lanes);
            }
        });
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let before = self.level.gate.change(|crowd| Some(crowd.leave()));
        if before.is_some_and(|crowd| crowd.waiting > 0) {
            self.level.at_home(&self.lanes, |level, lanes| level.settle(lanes));
        }
    }
}

impl Level {
    fn address(self: &Arc<Self>) -> usize {
        Arc::as_ptr(self) as usize
    }

    /// Does something where the queue is; nothing, if that lane has ended.
    fn at_home(self: &Arc<Self>, lanes: &Lanes, f: impl FnOnce(&Arc<Level>, &Lanes) + Send + 'static) {
        let (level, with) = (self.clone(), lanes.clone());
        lanes.tell(self.home, Group::CONTROL, move || f(&level, &with));
    }

    /// Takes in other limits, for who waits too.
    pub(crate) fn set_slots(self: &Arc<Self>, lanes: &Lanes, limits: &SlotLimits) {
        self.gate.set(limits);
        self.at_home(lanes, |level, lanes| level.settle(lanes));
    }

    /// At home: lets in who may come in, refuses who has waited too long, and sets the alarm for the next.
    fn settle(self: &Arc<Self>, lanes: &Lanes) {
        let limits = self.gate.limits();
        let now_ns = lanes::time::monotonic_ns();
        while let Some((waiter, let_in)) = self.next(now_ns, &limits) {
            let answer = if let_in {
                let waited_ns = now_ns.saturating_sub(waiter.since_ns);
                self.gate.counts.waited.fetch_add(1, Relaxed);
                self.gate.counts.waited_ns.fetch_add(waited_ns, Relaxed);
                Ok(Ticket { level: self.clone(), lanes: lanes.clone() })
            } else {
                self.gate.counts.late.fetch_add(1, Relaxed);
                Err(self.refusal(Some(limits.queue_timeout.unwrap_or(waiter.patience))))
            };
            // What nobody is there to take comes back by itself.
            waiter.whom.send(answer);
        }
        self.set_alarm(lanes, &limits);
    }

    /// Takes the next one out of the queue, and whether it is let in or is too late.
    fn next(self: &Arc<Self>, now_ns: u64, limits: &SlotLimits) -> Option<(Waiter<Whom>, bool)> {
        LINES.with_borrow_mut(|lines| {
            let queue = &mut lines.get_mut(&self.address())?.queue;
            if let Some(late) = queue.late(now_ns, limits) {
                self.gate.change(|crowd| Some(crowd.give_up()));
                return Some((late, false));
            }
            while let Some(gone) = queue.abandoned(|whom| whom.is_closed()) {
                self.gate.change(|crowd| Some(crowd.give_up()));
                drop(gone);
            }
            if queue.is_empty() {
                return None;
            }
            self.gate.change(|crowd| crowd.let_in(limits))?;
            queue.first().map(|first| (first, true))
        })
    }

    fn set_alarm(self: &Arc<Self>, lanes: &Lanes, limits: &SlotLimits) {
        let old = LINES.with_borrow_mut(|lines| {
            let line = lines.get_mut(&self.address())?;
            let Some(at_ns) = line.queue.next_late_ns(limits) else {
                return lines.remove(&self.address()).and_then(|line| line.alarm);
            };
            if line.alarm.as_ref().is_some_and(|(set_ns, _)| *set_ns <= at_ns) {
                return None;
            }
            let (level, lanes) = (self.clone(), lanes.clone());
            let wait = Duration::from_nanos(at_ns.saturating_sub(lanes::time::monotonic_ns()));
            let ring = async move {
                lanes::time::sleep(wait).await;
                // Its own task is let go of, not cancelled while it runs.
                let alarm = LINES.with_borrow_mut(|lines| lines.get_mut(&level.address())?.alarm.take());
                alarm.into_iter().for_each(|(_, task)| task.detach());
                level.settle(&lanes);
            };
            line.alarm.replace((at_ns, lanes::spawn(Group::CONTROL, ring)))
        });
        drop(old);
    }

    /// What a statement is told that is not let in: late after so long, or because the queue is full.
    #[cold]
    fn refusal(&self, late: Option<Duration>) -> Overloaded {
        let limits = self.gate.limits();
        let Crowd { running, waiting } = Crowd::of_word(self.gate.crowd.load(SeqCst));
        let slots = limits.max_concurrency.map_or(u32::MAX, |max| max.max(1));
        let ahead_ns = self.mean_service_of_all_ns().saturating_mul(u64::from(waiting) + 1);
        let retry_ms = crate::admission::retry_ms(ahead_ns / u64::from(slots));
        let what = match late {
            None => format!(
                "its queue is full ({waiting} statements waiting, max_queue_size {})",
                limits.max_queue_size
            ),
            Some(limit) => format!(
                "a statement waited in its queue for {} ms, which is {}",
                limit.as_millis(),
                if limits.queue_timeout.is_some() {
                    "its queue_timeout"
                } else {
                    "the statement's time limit"
                }
            ),
        };
        let max = limits.max_concurrency.map_or_else(|| "none".to_owned(), |max| max.to_string());
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

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Waiting({}, {})", self.place.level.name(), self.place.number)
    }
}
