//! Admission of a session's statement, from its planning to the sending of its answer. A statement
//! is admitted once: its execution has the permit of its planning, if both come together.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use workload::{InFlight, Level};

/// Longest time for which a session's first statements run in the level `driver`. Drivers run at
/// most a dozen, each in some ms, or a hundred times that on a busy server.
const STARTING_TIME_MAX: Duration = Duration::from_secs(5);

/// The statements by which a driver connects. They run in the level `driver`, so that no limit of a
/// level locks its users out: up to the client's first statement, and for [`STARTING_TIME_MAX`] in
/// all, so that its users cannot work past the limits of their level.
pub(crate) struct Starting(Cell<Duration>);

impl Default for Starting {
    fn default() -> Starting {
        Starting(Cell::new(STARTING_TIME_MAX))
    }
}

impl Starting {
    /// Ends the start of the session: its client has sent a statement of its own.
    pub(crate) fn end(&self) {
        self.0.set(Duration::ZERO);
    }

    /// Returns true if another statement may follow.
    pub(crate) fn is_any_left(&self) -> bool {
        !self.0.get().is_zero()
    }

    /// Begins a statement.
    pub(crate) fn begin(self: &Rc<Starting>) -> StartingStatement {
        StartingStatement { starting: self.clone(), began: lanes::time::now() }
    }
}

/// A statement in the level `driver`. Takes its time from the session's when dropped.
pub(crate) struct StartingStatement {
    starting: Rc<Starting>,
    began: Instant,
}

impl StartingStatement {
    /// Returns true if the session's time is over: the statement goes on in the session's level.
    pub(crate) fn is_over(&self) -> bool {
        self.began.elapsed() >= self.starting.0.get()
    }
}

impl Drop for StartingStatement {
    fn drop(&mut self) {
        let left = &self.starting.0;
        left.set(left.get().saturating_sub(self.began.elapsed()));
    }
}

/// A statement that was admitted and planned.
pub(crate) struct Permit {
    pub(crate) in_flight: InFlight,
    /// The level that admitted it.
    pub(crate) level: Arc<Level>,
    /// Time for which it waited, ns.
    pub(crate) queue_ns: u64,
    /// Time of its planning.
    pub(crate) planned: Duration,
}

/// A refused statement.
pub(crate) struct RefusedStatement {
    pub(crate) level: Arc<Level>,
    /// Time for which the next message is not read, ns.
    pub(crate) pause_ns: u64,
    /// Begin of its refusal, ns of the monotonic clock.
    pub(crate) began_ns: u64,
}

/// Permits of a session. It has one statement at a time.
#[derive(Default)]
pub(crate) struct Permits {
    /// A statement between its planning and its execution.
    planned: RefCell<Option<Permit>>,
    /// A statement whose answer is not sent yet.
    unsent: RefCell<Option<InFlight>>,
    refused: RefCell<Option<RefusedStatement>>,
    pause_ns: Cell<u64>,
}

impl Permits {
    /// Keeps the permit of a planned statement for its execution.
    pub(crate) fn keep_planned(&self, permit: Permit) {
        self.planned.replace(Some(permit));
    }

    /// Keeps a statement that has ended in flight until its answer is sent.
    pub(crate) fn keep_unsent(&self, in_flight: Option<InFlight>) {
        self.unsent.replace(in_flight);
    }

    /// Returns the permit of a statement that was planned in `level`. The statement before it ends,
    /// even if its answer is not sent yet: its client has gone on to the next one.
    pub(crate) fn take_planned(&self, level: &Arc<Level>) -> Option<Permit> {
        self.unsent.take();
        self.planned.take().filter(|permit| Arc::ptr_eq(&permit.level, level))
    }

    /// Returns true if a statement is in flight.
    pub(crate) fn any(&self) -> bool {
        self.planned.borrow().is_some() || self.unsent.borrow().is_some()
    }

    /// Ends the session's statement.
    pub(crate) fn release(&self) {
        drop((self.planned.take(), self.unsent.take()));
    }

    /// Records that a statement is being refused.
    pub(crate) fn refuse(&self, refused: RefusedStatement) {
        self.refused.replace(Some(refused));
    }

    /// Charges the CPU time of a refusal, whose error is encoded now, to the refusals of its level.
    pub(crate) fn refused(&self) {
        if let Some(refused) = self.refused.take() {
            let cpu_ns = lanes::time::monotonic_ns().saturating_sub(refused.began_ns);
            refused.level.add_refusal_ns(lanes::current_core(), cpu_ns);
            self.pause_ns.set(refused.pause_ns);
        }
    }

    /// Returns the time for which the connection is not to be read, once.
    pub(crate) fn pause(&self) -> Duration {
        Duration::from_nanos(self.pause_ns.take())
    }
}
