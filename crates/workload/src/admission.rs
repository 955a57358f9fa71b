//! Who may come in. Every request is admitted before anything is done for it, and counted until it ends; what may be in
//! flight at once is bounded for each level and for the core, and the answer when a bound is reached depends on what the
//! level's work is like:
//!
//! 1. `interactive` is refused first, at a lower bound: an answer that comes too late is worth nothing to those who wait.
//! 2. `batch` is never refused: its sockets are not read until there is room, and its clients wait.
//! 3. Anything else is refused at the level's bound.
//!
//! The bounds are for each core; a server has so many times its cores. They are for keeping the machine upright; `max_concurrency`,
//! which is one number for the server, is another matter (`gate`).

use std::cell::Cell;
use std::rc::Rc;

use lanes::sync::Notify;

use crate::{Effective, Level, WorkloadType};

/// Most requests of one level in flight on a core. At a few µs each this is some 50 ms of work.
pub const LEVEL_IN_FLIGHT_MAX: u32 = 16_384;
/// Most requests of one interactive level in flight on a core.
pub const INTERACTIVE_IN_FLIGHT_MAX: u32 = LEVEL_IN_FLIGHT_MAX / 2;
/// Most requests of all levels in flight on a core; with what each may hold (a frame), this bounds memory.
pub const CORE_IN_FLIGHT_MAX: u32 = 2 * LEVEL_IN_FLIGHT_MAX;
/// Longest time after which a refused client is told to come back, ms.
const RETRY_MS_MAX: u64 = 10_000;

/// What to do with a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Let it in.
    Admit,
    /// Leave it where it is until something else ends.
    Hold,
    /// Refuse it: so many of its level may be in flight.
    LevelFull(u32),
    /// Refuse it: so many may be in flight on the core.
    CoreFull(u32),
}

/// Decides on a request of a level with so many in flight on a core with so many of all levels.
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

/// When one comes back who was refused, given how long it would have waited, ms.
pub(crate) fn retry_ms(wait_ns: u64) -> u64 {
    (wait_ns / 1_000_000).clamp(1, RETRY_MS_MAX)
}

/// The door of one core.
pub struct Admission {
    core: usize,
    in_flight: Cell<u32>,
    /// Sessions of batch levels that wait for room.
    held: Cell<u32>,
    room: Notify,
}

/// A request that was let in; it has ended when this is dropped.
#[must_use = "the request counts as ended when this is dropped"]
pub struct InFlight {
    door: Rc<Admission>,
    effective: Rc<Effective>,
}

/// A request that was not let in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refused {
    /// Keep it, read no more from its connection, and ask again after [`Admission::room`].
    Hold,
    /// Answer Overloaded (0x1001) with this text.
    Overloaded(String),
}

impl Admission {
    /// The door of core `core`, to be used on its fast lane.
    #[must_use]
    pub fn new(core: usize) -> Rc<Admission> {
        Rc::new(Admission { core, in_flight: Cell::new(0), held: Cell::new(0), room: Notify::new() })
    }

    /// Lets a request in, or says why not.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn admit(self: &Rc<Self>, effective: &Rc<Effective>) -> Result<InFlight, Refused> {
        let level = &effective.level;
        let of_level = level.in_flight(self.core);
        match decide(effective.spec.workload_type, of_level, self.in_flight.get()) {
            Decision::Admit => {
                level.set_in_flight(self.core, of_level + 1);
                self.in_flight.set(self.in_flight.get() + 1);
                Ok(InFlight { door: self.clone(), effective: effective.clone() })
            }
            Decision::Hold => Err(Refused::Hold),
            Decision::LevelFull(max) => Err(self.refuse(level, "its queue is full", of_level, max)),
            Decision::CoreFull(max) => {
                Err(self.refuse(level, "the machine's queue is full", self.in_flight.get(), max))
            }
        }
    }

    /// Waits until a request has ended.
    pub async fn room(&self) {
        self.held.set(self.held.get() + 1);
        let _left = Left(&self.held);
        self.room.notified().await;
    }

    /// Requests in flight on this core.
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
            "The service level '{}' is overloaded: {full} ({in_flight} statements in flight on this core, limit {max}). \
             Try again in {retry_ms} ms.",
            level.name()
        ))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let core = self.door.core;
        let level = &self.effective.level;
        level.set_in_flight(core, level.in_flight(core) - 1);
        self.door.in_flight.set(self.door.in_flight.get() - 1);
        if self.door.held.get() > 0 {
            self.door.room.notify();
        }
    }
}

/// One session less waits, also if it was dropped while waiting.
struct Left<'a>(&'a Cell<u32>);

impl Drop for Left<'_> {
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
    fn a_refusal_names_level_queue_limit_and_time() {
        let (door, level) = (Admission::new(0), effective("olap", None));
        level.level.record(0, crate::Kind::Read, 1_000_000, 0, false);
        let inside: Vec<_> = (0..LEVEL_IN_FLIGHT_MAX).map(|_| door.admit(&level).ok().unwrap()).collect();
        let text = "The service level 'olap' is overloaded: its queue is full (16384 statements in flight on this \
                    core, limit 16384). Try again in 10000 ms.";
        assert_eq!(door.admit(&level).err(), Some(Refused::Overloaded(text.into())));
        assert!(door.admit(&effective("oltp", None)).is_ok(), "another level has room");
        let batch = effective("etl", Some(WorkloadType::Batch));
        batch.level.set_in_flight(0, LEVEL_IN_FLIGHT_MAX);
        assert_eq!(door.admit(&batch).err(), Some(Refused::Hold));
        drop(inside);
        assert_eq!((door.in_flight(), level.level.in_flight(0)), (0, 0));
        assert!(door.admit(&level).is_ok());
    }
    #[test]
    fn a_held_session_goes_on_when_a_request_ends() {
        use std::task::{Context, Waker};
        let (door, batch) = (Admission::new(0), effective("etl", Some(WorkloadType::Batch)));
        let mut inside: Vec<_> = (0..LEVEL_IN_FLIGHT_MAX).map(|_| door.admit(&batch).ok().unwrap()).collect();
        assert_eq!(door.admit(&batch).err(), Some(Refused::Hold));
        let mut room = Box::pin(door.room());
        let mut context = Context::from_waker(Waker::noop());
        assert!(room.as_mut().poll(&mut context).is_pending());
        inside.pop();
        assert!(room.as_mut().poll(&mut context).is_ready());
        drop(room);
        assert!(door.admit(&batch).is_ok());
        assert_eq!(door.held.get(), 0);
    }
}
