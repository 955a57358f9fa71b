//! Outcome of the stages of a request on one task poll, and pending results of engine calls.
//!
//! Pending reads are not polled while the client does not read its answers, so that a client that
//! reads nothing holds a bounded amount of memory.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use engine::{Error, Outcome};
use lanes::CatchPanic;
use workload::Waiting;

use crate::panics;
use crate::request::{CqlRequest, PendingAnswer};
use crate::session::Session;

/// Continuation of a request.
pub(crate) enum Step {
    /// The answer is in the output buffer. The request is to be recorded.
    Answered(CqlRequest),
    /// The message is answered, and is no statement to be recorded.
    Unrecorded,
    /// The heavy lane has to parse or bind its texts first.
    Long(CqlRequest),
    /// The statement specifies another level, whose settings the request has now. That level has
    /// not admitted it.
    OtherLevel(CqlRequest),
    /// The request waits for a slot.
    Slot(Waiting, CqlRequest),
    /// The answer comes later.
    Later(PendingAnswer, Wait),
}

/// Event that a pending answer waits for.
pub(crate) enum Wait {
    /// Acknowledgement of a write of this core, by its number.
    Ack(u64),
    Result(PendingResult),
}

/// Result that an engine or another component returns later.
pub(crate) type Later = Pin<Box<dyn Future<Output = Result<Outcome, Error>>>>;

/// Pending result of an engine call. A panic becomes an error to the client. A read also passes a
/// [`Gate`]. Allocates nothing beyond the engine's box, because every read that waits for another
/// core or the disk creates one.
pub(crate) struct PendingResult {
    gate: Option<Gate>,
    later: CatchPanic<Later>,
}

impl PendingResult {
    /// Creates the pending result of a call that returns few rows or none.
    pub(crate) fn of(later: Later) -> PendingResult {
        PendingResult { gate: None, later: lanes::catch_panic(later) }
    }

    /// Creates the pending result of a read with pages of at most `page_bytes`.
    pub(crate) fn of_read(session: &Rc<Session>, later: Later, page_bytes: usize) -> PendingResult {
        PendingResult { gate: Some(Gate::new(session.clone(), page_bytes)), ..PendingResult::of(later) }
    }
}

impl Future for PendingResult {
    type Output = <Later as Future>::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.gate.as_ref().is_some_and(|gate| !gate.is_open(cx)) {
            return Poll::Pending;
        }
        // No part of the statement is used after a panic. Its guards have already released its
        // resources.
        let polled = Pin::new(&mut self.later).poll(cx);
        polled.map(|caught| caught.unwrap_or_else(|panicked| Err(panics::error(panicked))))
    }
}

/// Backpressure for a read: closed while the client leaves its answers unread. Counts the read's
/// page until it is dropped.
struct Gate {
    session: Rc<Session>,
    page_bytes: usize,
}

impl Gate {
    fn new(session: Rc<Session>, page_bytes: usize) -> Gate {
        session.paged_bytes.set(session.paged_bytes.get() + page_bytes);
        Gate { session, page_bytes }
    }

    /// Returns true if the read may be polled. A closed gate wakes the read's task when the client
    /// reads.
    fn is_open(&self, cx: &Context<'_>) -> bool {
        let is_open = !self.session.is_output_full() || self.session.killed.get();
        if !is_open {
            self.session.paused_reads.borrow_mut().push(cx.waker().clone());
        }
        is_open
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.session.paged_bytes.set(self.session.paged_bytes.get() - self.page_bytes);
    }
}
