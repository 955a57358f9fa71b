//! Admission of requests. Every request is admitted before any work is done for it, and counted
//! until it ends. The number of requests in flight is bounded per level and per core. At a bound,
//! the workload type decides:
//!
//! 1. `interactive` is refused first, at a lower bound: a late answer is of no use to a waiting
//!    user.
//! 2. `batch` is not refused. Its sockets are not read until a request ends, so that its clients
//!    wait.
//! 3. Any other level is refused at the level's bound.
//!
//! The bounds apply to each core, so that a server admits the bound times its cores. They protect
//! the process from overload. A `max_concurrency` that is a number, one per server, is separate
//! (`gate`). At the bound of the core, a level with less than its part of it is still admitted: no
//! level is refused for what others keep in flight. The bound of the core is therefore exceeded by
//! what is due to the levels that come later, at most twice.
//!
//! The same holds for connections: the only request of a connection is admitted even if other
//! connections have reached a bound. So bounds are exceeded by at most the number of connections. A
//! number that the administrator configured for the level is never exceeded.
//!
//! `max_concurrency = 'auto'` adds a limit by work, which `limiter` decides (`sched::control`). It
//! refuses or holds a request by its age: the time since it arrived at its socket.
//! Held requests are checked in the order of their arrival, one each time that a request of their
//! level ends.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use lanes::Group;
use sched::control::{Arriving, INTERVAL_NS, Overload, Verdict};

use crate::{Effective, Level, WorkloadType};

/// Bound of a level's requests in flight on a core. At a few µs each, this is about 50 ms of work.
pub const LEVEL_IN_FLIGHT_MAX: u32 = 16_384;
/// Bound of an interactive level's requests in flight on a core.
pub const INTERACTIVE_IN_FLIGHT_MAX: u32 = LEVEL_IN_FLIGHT_MAX / 2;
/// Bound of the requests in flight on a core. Each may hold one frame, so this bounds memory.
pub const CORE_IN_FLIGHT_MAX: u32 = 2 * LEVEL_IN_FLIGHT_MAX;
/// Upper bound of the retry delay in the error of a refused request, ms.
const RETRY_MS_MAX: u64 = 10_000;

/// Decision on a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Start it.
    Admit,
    /// Leave it in its socket until another request ends (backpressure).
    Hold,
    /// Refuse it: the level is at this bound.
    LevelFull(u32),
    /// Refuse it: the core is at this bound.
    CoreFull(u32),
}

/// Requests in flight on a core when another one arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatementsInFlight {
    /// Requests of its level.
    pub of_level: u32,
    /// Bound of its level, for a level that is not interactive.
    pub of_level_max: u32,
    /// Requests of all levels.
    pub of_core: u32,
    /// Part of the core that is due to its level, in millionths.
    pub entitlement_ppm: u32,
    /// True if its connection has no other request in flight.
    pub is_only: bool,
}

/// Decides on a request of a level.
#[must_use]
pub fn decide(workload_type: Option<WorkloadType>, in_flight: StatementsInFlight) -> Decision {
    let StatementsInFlight { of_level, of_level_max, of_core, entitlement_ppm, is_only } = in_flight;
    let part =
        |max: u32| if workload_type == Some(WorkloadType::Interactive) { max.div_ceil(2) } else { max };
    let level_max = part(of_level_max);
    let core_max = part(CORE_IN_FLIGHT_MAX);
    let entitled = u64::from(core_max) * u64::from(entitlement_ppm) / 1_000_000;
    let full = if of_level >= level_max {
        Decision::LevelFull(level_max)
    } else if of_core >= core_max && u64::from(of_level) >= entitled {
        Decision::CoreFull(core_max)
    } else {
        return Decision::Admit;
    };
    if is_only && of_level_max >= LEVEL_IN_FLIGHT_MAX {
        return Decision::Admit;
    }
    if workload_type == Some(WorkloadType::Batch) { Decision::Hold } else { full }
}

/// Returns the retry delay in ms for a refused client, from the expected wait.
pub(crate) fn retry_ms(wait_ns: u64) -> u64 {
    (wait_ns / 1_000_000).clamp(1, RETRY_MS_MAX)
}

/// Interval of checks of held requests while no request ends.
const HELD: Duration = Duration::from_nanos(INTERVAL_NS);

/// Number of held requests that were given up above which they are removed.
const GONE_MIN: usize = 32;

/// Admission control of one core.
pub struct Admission {
    core: usize,
    in_flight: Cell<u32>,
    /// Requests that are held, by the id of their level, in the order of their arrival.
    held: RefCell<Vec<(u64, VecDeque<Rc<Held>>)>>,
    /// Number of requests in `held`, and how many of these were given up.
    held_count: Cell<usize>,
    /// Number of requests that were ever held.
    numbers: Cell<u64>,
    gone_count: Cell<usize>,
    /// True while a task checks held requests every [`HELD`].
    is_watched: Cell<bool>,
}

/// A request that is held.
#[derive(Default)]
struct Held {
    /// Its place in the order of arrival.
    number: u64,
    /// True if it is the next to be checked.
    is_next: Cell<bool>,
    /// True once its session has given it up.
    is_gone: Cell<bool>,
    waker: Cell<Option<Waker>>,
}

/// Time of a request's arrival, and its time limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrived {
    /// Time since which it waits, ns of the monotonic clock.
    pub since_ns: u64,
    /// Its time limit, ns, as far as it is known before its admission.
    pub time_limit_ns: u64,
    /// True if its connection has no other request in flight.
    pub is_only: bool,
}

/// An admitted request. Dropping it ends the request.
#[must_use = "the request counts as ended when this is dropped"]
pub struct InFlight {
    admission: Rc<Admission>,
    effective: Rc<Effective>,
}

/// Answer to a request that wants to enter its level.
pub enum Entrance {
    /// It may run.
    In(InFlight),
    /// Keep the request and stop reading its connection until this ends.
    Held(HeldRequest),
    /// Answer Overloaded (0x1001).
    Refused(Rejection),
}

/// Ends when a held request is admitted or refused.
pub type HeldRequest = Pin<Box<dyn Future<Output = Result<InFlight, Rejection>>>>;

/// A request that was not admitted.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Refused {
    /// See [`Entrance::Held`].
    Hold,
    /// See [`Entrance::Refused`].
    Overloaded(Rejection),
}

/// Answer to a refused request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rejection {
    /// Text of the error.
    pub text: String,
    /// Time for which its connection should not be read, ns. Otherwise refusals could fill the
    /// core.
    pub pause_ns: u64,
}

impl Admission {
    /// Creates the admission control of core `core`, for use on its fast lane.
    #[must_use]
    pub fn new(core: usize) -> Rc<Admission> {
        Rc::new(Admission {
            core,
            in_flight: Cell::new(0),
            held: RefCell::default(),
            held_count: Cell::new(0),
            numbers: Cell::new(0),
            gone_count: Cell::new(0),
            is_watched: Cell::new(false),
        })
    }

    /// Admits, holds or refuses a request of any protocol. It is refused if the level or the core
    /// is at its bound, or if the request came too late. `now_ns` is the present time in ns of the
    /// monotonic clock. `is_exempt` is called for a request that is not admitted at once. It
    /// returns true for one that is admitted nevertheless; see [`Admission::admit_always`].
    #[inline]
    pub fn enter(
        self: &Rc<Self>,
        effective: &Rc<Effective>,
        arrived: Arrived,
        now_ns: u64,
        is_exempt: impl FnOnce() -> bool,
    ) -> Entrance {
        match self.check(effective, arrived, now_ns, false) {
            Ok(admitted) => Entrance::In(admitted),
            Err(_) if is_exempt() => Entrance::In(self.admit_always(effective)),
            Err(Refused::Overloaded(rejection)) => Entrance::Refused(rejection),
            Err(Refused::Hold) => {
                let admission = self.clone();
                let effective = effective.clone();
                Entrance::Held(Box::pin(async move { admission.hold(&effective, arrived).await }))
            }
        }
    }

    /// Admits a request regardless of limits: one on the server's own tables, by which drivers
    /// connect and operators find the cause of an overload.
    pub fn admit_always(self: &Rc<Self>, effective: &Rc<Effective>) -> InFlight {
        let level = &effective.level;
        level.set_in_flight(self.core, level.in_flight(self.core) + 1);
        self.in_flight.set(self.in_flight.get() + 1);
        InFlight { admission: self.clone(), effective: effective.clone() }
    }

    /// Admits a request. `is_next`: it is the first of the held requests of its level.
    fn check(
        self: &Rc<Self>,
        effective: &Rc<Effective>,
        arrived: Arrived,
        now_ns: u64,
        is_next: bool,
    ) -> Result<InFlight, Refused> {
        let level = &effective.level;
        if level.is_limited() {
            self.check_limit(effective, arrived, now_ns, is_next)?;
        }
        let of_level = level.in_flight(self.core);
        let in_flight = StatementsInFlight {
            of_level,
            of_level_max: level.in_flight_max(),
            of_core: self.in_flight.get(),
            entitlement_ppm: level.entitlement_ppm(self.core),
            is_only: arrived.is_only,
        };
        match decide(effective.spec.workload_type, in_flight) {
            Decision::Admit => Ok(self.admit_always(effective)),
            Decision::Hold => Err(Refused::Hold),
            Decision::LevelFull(max) => Err(self.refuse(level, "its queue is full", of_level, max)),
            Decision::CoreFull(max) => {
                Err(self.refuse(level, "the machine's queue is full", self.in_flight.get(), max))
            }
        }
    }

    /// Applies the limiter of the level to a request.
    fn check_limit(
        &self,
        effective: &Effective,
        Arrived { since_ns, time_limit_ns, .. }: Arrived,
        now_ns: u64,
        is_next: bool,
    ) -> Result<(), Refused> {
        let level = &effective.level;
        level.note_time_limit_ns(self.core, time_limit_ns);
        let Some(limit) = level.limit(self.core).get() else { return Ok(()) };
        let age_ns = now_ns.saturating_sub(since_ns);
        // Held requests go first.
        let level_in_flight = match !is_next && self.holds(level) {
            true => level.in_flight(self.core).max(limit.statements),
            false => level.in_flight(self.core),
        };
        let overload = match effective.spec.workload_type {
            Some(WorkloadType::Interactive) => Overload::Refuse,
            Some(_) => Overload::Hold,
            None => Overload::Queue,
        };
        let queue_stands = level.queue_stands(self.core, now_ns, age_ns, limit.late_ns());
        let random = lanes::random::u64() as u32;
        let arriving = Arriving { age_ns, time_limit_ns, level_in_flight, queue_stands, overload, random };
        let verdict = limit.admit(arriving);
        let (why, pause_ns) = match verdict {
            Verdict::Admit => return Ok(()),
            Verdict::Hold => return Err(Refused::Hold),
            Verdict::Wait => match effective.spec.slots.queue_timeout {
                Some(longest) if u128::from(age_ns) >= longest.as_nanos() => {
                    let why = format!("its statements wait longer than its queue_timeout of {longest:?}");
                    (why, limit.wait_ns(level_in_flight))
                }
                _ => return Err(Refused::Hold),
            },
            Verdict::Refuse { retry_ns } => {
                let why = format!(
                    "its statements wait {}, at most {} are useful",
                    Milliseconds(age_ns),
                    Milliseconds(limit.late_ns())
                );
                (why, retry_ns)
            }
            Verdict::Expired { retry_ns } => {
                let wait_ns = limit.wait_ns(level_in_flight);
                let why = format!(
                    "a statement that waits {} cannot end within its time limit of {}",
                    Milliseconds(age_ns.saturating_add(wait_ns)),
                    Milliseconds(time_limit_ns)
                );
                (why, retry_ns)
            }
        };
        level.record_shed(self.core);
        let pause_ns = pause_ns.min(RETRY_MS_MAX * 1_000_000);
        let text = format!(
            "The service level '{}' is overloaded: {why} ({} statements in flight on this core, limit {}). Try \
             again in {} ms.",
            level.name(),
            level.in_flight(self.core),
            limit.statements,
            retry_ms(pause_ns + 999_999)
        );
        Err(Refused::Overloaded(Rejection { text, pause_ns }))
    }

    /// Holds a request until it is admitted or refused. Requests of a level are admitted in their
    /// order of arrival.
    ///
    /// # Errors
    /// The answer to a request that came too late.
    async fn hold(
        self: &Rc<Self>,
        effective: &Rc<Effective>,
        arrived: Arrived,
    ) -> Result<InFlight, Rejection> {
        let level = &effective.level;
        let mut entry = HeldEntry::begin(self, level);
        self.watch();
        loop {
            entry.next().await;
            match self.check(effective, arrived, lanes::time::monotonic_ns(), true) {
                Ok(admitted) => return Ok(admitted),
                // The next one may have come too late as well. `entry` wakes it when it is dropped.
                Err(Refused::Overloaded(refused)) => return Err(refused),
                Err(Refused::Hold) => entry.again(),
            }
        }
    }

    /// Returns the number of requests in flight on this core.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight.get()
    }

    fn holds(&self, level: &Level) -> bool {
        self.held_count.get() > 0 && self.held.borrow().iter().any(|(id, _)| *id == level.id())
    }

    /// Starts the task that checks held requests while no request ends.
    fn watch(self: &Rc<Self>) {
        if self.is_watched.replace(true) {
            return;
        }
        let admission = self.clone();
        let watch = async move {
            while admission.held_count.get() > 0 {
                lanes::time::sleep(HELD).await;
                let levels: Vec<u64> = admission.held.borrow().iter().map(|(id, _)| *id).collect();
                levels.into_iter().for_each(|id| admission.wake_next(id));
            }
            admission.is_watched.set(false);
        };
        lanes::spawn(Group::CONTROL, watch).detach();
    }

    /// Wakes the first held request of a level.
    fn wake_next(&self, level: u64) {
        let mut held = self.held.borrow_mut();
        let Some(at) = held.iter().position(|(id, _)| *id == level) else { return };
        let queue = &mut held[at].1;
        let mut next = None;
        while let Some(first) = queue.pop_front() {
            self.held_count.set(self.held_count.get() - 1);
            if !first.is_gone.get() {
                next = Some(first);
                break;
            }
            self.gone_count.set(self.gone_count.get() - 1);
        }
        if queue.is_empty() {
            held.swap_remove(at);
        }
        drop(held);
        if let Some(next) = next {
            next.is_next.set(true);
            next.waker.take().into_iter().for_each(Waker::wake);
        }
    }

    /// Wakes a held request after one of `level` ended: the first of the same level and, if the
    /// core was at its bound, one of another level. Other levels wait for their own limits.
    #[cold]
    fn ended(&self, level: u64) {
        self.wake_next(level);
        if self.in_flight.get() + 1 >= CORE_IN_FLIGHT_MAX {
            let other = self.held.borrow().iter().map(|(id, _)| *id).find(|id| *id != level);
            other.into_iter().for_each(|id| self.wake_next(id));
        }
    }

    /// Counts a held request that was given up. Removes such requests once they are the greater
    /// part.
    fn gone(&self) {
        self.gone_count.set(self.gone_count.get() + 1);
        if self.gone_count.get() < GONE_MIN || self.gone_count.get() * 2 < self.held_count.get() {
            return;
        }
        let mut held = self.held.borrow_mut();
        held.iter_mut().for_each(|(_, queue)| queue.retain(|held| !held.is_gone.get()));
        held.retain(|(_, queue)| !queue.is_empty());
        self.held_count.set(held.iter().map(|(_, queue)| queue.len()).sum());
        self.gone_count.set(0);
    }

    /// Refuses a request at a bound. Its client should come back when the requests in flight have
    /// ended: by Little's law, that takes as long as one of them does.
    #[cold]
    fn refuse(&self, level: &Level, full: &str, in_flight: u32, max: u32) -> Refused {
        level.record_shed(self.core);
        let retry_ms = retry_ms(level.mean_service_ns(self.core));
        let text = format!(
            "The service level '{}' is overloaded: {full} ({in_flight} statements in flight on this core, \
             limit {max}). Try again in {retry_ms} ms.",
            level.name()
        );
        Refused::Overloaded(Rejection { text, pause_ns: 0 })
    }
}

/// A time in ns, formatted as `1.5 ms`. Integers only: a refusal must be cheap.
struct Milliseconds(u64);

impl fmt::Display for Milliseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = self.0.saturating_add(50_000) / 100_000;
        write!(f, "{}.{} ms", tenths / 10, tenths % 10)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let level = &self.effective.level;
        level.end(self.admission.core);
        self.admission.in_flight.set(self.admission.in_flight.get() - 1);
        if self.admission.held_count.get() > 0 {
            self.admission.ended(level.id());
        }
    }
}

impl InFlight {
    /// Moves a running request to another level, which is not asked. For the previous level it has
    /// ended: that level did work for it.
    pub fn move_to(&mut self, effective: &Rc<Effective>) {
        *self = self.admission.admit_always(effective);
    }
}

/// Entry of a held request in its level's queue. Dropping it lets the next one be checked.
struct HeldEntry {
    admission: Rc<Admission>,
    level: u64,
    held: Rc<Held>,
}

impl HeldEntry {
    fn begin(admission: &Rc<Admission>, level: &Level) -> HeldEntry {
        let number = admission.numbers.get();
        admission.numbers.set(number + 1);
        let held = Rc::new(Held { number, ..Held::default() });
        let entry = HeldEntry { admission: admission.clone(), level: level.id(), held };
        entry.queue();
        entry
    }

    /// Takes its place in the queue. Others may have been checked in vain meanwhile and be back.
    fn queue(&self) {
        let mut held = self.admission.held.borrow_mut();
        let at = held.iter().position(|(id, _)| *id == self.level).unwrap_or_else(|| {
            held.push((self.level, VecDeque::new()));
            held.len() - 1
        });
        let queue = &mut held[at].1;
        let place = queue.partition_point(|other| other.number < self.held.number);
        queue.insert(place, self.held.clone());
        self.admission.held_count.set(self.admission.held_count.get() + 1);
    }

    /// Waits until the request is the next to be checked.
    async fn next(&mut self) {
        poll_fn(|cx| {
            if self.held.is_next.get() {
                return Poll::Ready(());
            }
            self.held.waker.set(Some(cx.waker().clone()));
            Poll::Pending
        })
        .await;
    }

    /// Returns to its place in the queue.
    fn again(&mut self) {
        self.held.is_next.set(false);
        self.queue();
    }
}

impl Drop for HeldEntry {
    fn drop(&mut self) {
        self.held.is_gone.set(true);
        match self.held.is_next.get() {
            true => self.admission.wake_next(self.level),
            false => self.admission.gone(),
        }
    }
}

#[cfg(test)]
mod tests;
