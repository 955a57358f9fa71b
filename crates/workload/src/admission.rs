//! Admission of requests. Every request is admitted before any work is done for it, and counted
//! until it ends. The number of requests in flight is bounded per level and per core. At a bound,
//! the workload type decides:
//!
//! 1. `interactive` is refused first, at a lower bound: a late answer is of no use to a waiting
//!    user.
//! 2. `batch` is never refused. Its sockets are not read until a request ends, so that its clients
//!    wait.
//! 3. Any other level is refused at the level's bound.
//!
//! The bounds apply to each core, so that a server admits the bound times its cores. They protect
//! the process from overload. `max_concurrency`, one number per server, is separate (`gate`).

use std::cell::Cell;
use std::rc::Rc;

use lanes::sync::Notify;

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

/// Decides on a request of a level with `level_in_flight` requests on a core with `core_in_flight`.
#[must_use]
pub fn decide(workload_type: Option<WorkloadType>, level_in_flight: u32, core_in_flight: u32) -> Decision {
    let share = |max: u32| if workload_type == Some(WorkloadType::Interactive) { max / 2 } else { max };
    let (level_max, core_max) = (share(LEVEL_IN_FLIGHT_MAX), share(CORE_IN_FLIGHT_MAX));
    let full = if level_in_flight >= level_max {
        Decision::LevelFull(level_max)
    } else if core_in_flight >= core_max {
        Decision::CoreFull(core_max)
    } else {
        return Decision::Admit;
    };
    if workload_type == Some(WorkloadType::Batch) { Decision::Hold } else { full }
}

/// Returns the retry delay in ms for a refused client, from the expected wait.
pub(crate) fn retry_ms(wait_ns: u64) -> u64 {
    (wait_ns / 1_000_000).clamp(1, RETRY_MS_MAX)
}

/// Admission control of one core.
pub struct Admission {
    core: usize,
    in_flight: Cell<u32>,
    /// Sessions of batch levels that wait for a request to end.
    waiting: Cell<u32>,
    request_ended: Notify,
}

/// An admitted request. Dropping it ends the request.
#[must_use = "the request counts as ended when this is dropped"]
pub struct InFlight {
    admission: Rc<Admission>,
    effective: Rc<Effective>,
}

/// A request that was not admitted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refused {
    /// Keep the request and stop reading its connection. Try again after
    /// [`Admission::request_ended`].
    Hold,
    /// Answer Overloaded (0x1001) with this text.
    Overloaded(String),
}

impl Admission {
    /// Creates the admission control of core `core`, for use on its fast lane.
    #[must_use]
    pub fn new(core: usize) -> Rc<Admission> {
        Rc::new(Admission {
            core,
            in_flight: Cell::new(0),
            waiting: Cell::new(0),
            request_ended: Notify::new(),
        })
    }

    /// Admits a request.
    ///
    /// # Errors
    /// [`Refused`] if the level or the core is at its bound.
    pub fn admit(self: &Rc<Self>, effective: &Rc<Effective>) -> Result<InFlight, Refused> {
        let level = &effective.level;
        let of_level = level.in_flight(self.core);
        match decide(effective.spec.workload_type, of_level, self.in_flight.get()) {
            Decision::Admit => {
                level.set_in_flight(self.core, of_level + 1);
                self.in_flight.set(self.in_flight.get() + 1);
                Ok(InFlight { admission: self.clone(), effective: effective.clone() })
            }
            Decision::Hold => Err(Refused::Hold),
            Decision::LevelFull(max) => Err(self.refuse(level, "its queue is full", of_level, max)),
            Decision::CoreFull(max) => {
                Err(self.refuse(level, "the machine's queue is full", self.in_flight.get(), max))
            }
        }
    }

    /// Waits until a request has ended.
    pub async fn request_ended(&self) {
        self.waiting.set(self.waiting.get() + 1);
        let _waiting = WaitingSession(&self.waiting);
        self.request_ended.notified().await;
    }

    /// Returns the number of requests in flight on this core.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight.get()
    }

    #[cold]
    fn refuse(&self, level: &Level, full: &str, in_flight: u32, max: u32) -> Refused {
        level.record_shed(self.core);
        let wait_ns = level.mean_service_ns(self.core).saturating_mul(in_flight.into());
        let retry_ms = retry_ms(wait_ns);
        Refused::Overloaded(format!(
            "The service level '{}' is overloaded: {full} ({in_flight} statements in flight on this core, \
             limit {max}). Try again in {retry_ms} ms.",
            level.name()
        ))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let core = self.admission.core;
        let level = &self.effective.level;
        level.set_in_flight(core, level.in_flight(core) - 1);
        self.admission.in_flight.set(self.admission.in_flight.get() - 1);
        if self.admission.waiting.get() > 0 {
            self.admission.request_ended.notify();
        }
    }
}

/// Decrements the count of waiting sessions, also if the session is dropped while waiting.
struct WaitingSession<'a>(&'a Cell<u32>);

impl Drop for WaitingSession<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Entry, LevelSpec};

    #[test]
    fn interactive_is_refused_first_and_batch_never() {
        use Decision::{Admit, CoreFull, Hold, LevelFull};
        use WorkloadType::{Batch, Interactive};
        let (level, core) = (LEVEL_IN_FLIGHT_MAX, CORE_IN_FLIGHT_MAX);
        for (kind, of_level, of_core, expected) in [
            (None, 0, 0, Admit),
            (None, level - 1, core - 1, Admit),
            (None, level, level, LevelFull(level)),
            (None, 0, core, CoreFull(core)),
            (Some(Interactive), level / 2 - 1, core / 2 - 1, Admit),
            (Some(Interactive), level / 2, level, LevelFull(INTERACTIVE_IN_FLIGHT_MAX)),
            (Some(Interactive), 0, core / 2, CoreFull(core / 2)),
            (Some(Batch), level - 1, core - 1, Admit),
            (Some(Batch), level, level, Hold),
            (Some(Batch), 0, core, Hold),
        ] {
            assert_eq!(decide(kind, of_level, of_core), expected, "{kind:?} {of_level} {of_core}");
        }
    }

    fn effective(name: &str, workload_type: Option<WorkloadType>) -> Rc<Effective> {
        let spec = LevelSpec { workload_type, ..LevelSpec::new(name) };
        let level = Arc::new(Level::new(spec.name.clone(), lanes::Group::DEFAULT, 1, &crate::Memory::new(0)));
        Rc::new(Effective::of(&Entry { level, spec }))
    }

    #[test]
    fn refusal_names_level_limit_and_retry_delay() {
        let (admission, level) = (Admission::new(0), effective("olap", None));
        level.level.record(0, crate::Kind::Read, 1_000_000, 0, false);
        let inside: Vec<_> =
            (0..LEVEL_IN_FLIGHT_MAX).map(|_| admission.admit(&level).ok().unwrap()).collect();
        let text = "The service level 'olap' is overloaded: its queue is full (16384 statements in flight on this \
                    core, limit 16384). Try again in 10000 ms.";
        assert_eq!(admission.admit(&level).err(), Some(Refused::Overloaded(text.into())));
        assert!(admission.admit(&effective("oltp", None)).is_ok(), "another level has capacity");
        let batch = effective("etl", Some(WorkloadType::Batch));
        batch.level.set_in_flight(0, LEVEL_IN_FLIGHT_MAX);
        assert_eq!(admission.admit(&batch).err(), Some(Refused::Hold));
        drop(inside);
        assert_eq!((admission.in_flight(), level.level.in_flight(0)), (0, 0));
        assert!(admission.admit(&level).is_ok());
    }

    #[test]
    fn waiting_batch_session_resumes_when_a_request_ends() {
        use std::task::{Context, Waker};
        let (admission, batch) = (Admission::new(0), effective("etl", Some(WorkloadType::Batch)));
        let mut inside: Vec<_> =
            (0..LEVEL_IN_FLIGHT_MAX).map(|_| admission.admit(&batch).ok().unwrap()).collect();
        assert_eq!(admission.admit(&batch).err(), Some(Refused::Hold));
        let mut request_ended = Box::pin(admission.request_ended());
        let mut context = Context::from_waker(Waker::noop());
        assert!(request_ended.as_mut().poll(&mut context).is_pending());
        inside.pop();
        assert!(request_ended.as_mut().poll(&mut context).is_ready());
        drop(request_ended);
        assert!(admission.admit(&batch).is_ok());
        assert_eq!(admission.waiting.get(), 0);
    }
}
