//! Admission of a session's statement, from its planning to the sending of its answer. A statement
//! is admitted once: its execution has the permit of its planning, if both come together.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use workload::{InFlight, Level};

/// Statements of a driver before its client's own that run in the level `driver`. Drivers run at
/// most a dozen.
const STARTING_MAX: u32 = 32;

/// The statements by which a driver connects. They run in the level `driver`, so that no limit of a
/// level locks its users out: up to the client's first statement, and [`STARTING_MAX`] of them.
pub(crate) struct Starting(Cell<u32>);

impl Default for Starting {
    fn default() -> Starting {
        Starting(Cell::new(STARTING_MAX))
    }
}

impl Starting {
    /// Counts a statement that is planned. One that is not of a driver is the first of the client.
    pub(crate) fn count(&self, is_of_driver: bool) {
        self.0.set(if is_of_driver { self.0.get().saturating_sub(1) } else { 0 });
    }

    /// Returns true if another one may follow.
    pub(crate) fn is_any_left(&self) -> bool {
        self.0.get() > 0
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
