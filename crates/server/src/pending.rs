//! Pending results of engine calls.
//!
//! Pending reads do not begin while the client does not read its answers, and those of several rows
//! not without a permit, so that clients hold a bounded amount of memory whatever they ask for.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use engine::{Later, Reads, TraceNote, collect_notes};
use lanes::CatchPanic;

use crate::panics;
use crate::read_permits::WaitingRead;
use crate::session::Session;

/// Pending result of an engine call. A panic becomes an error to the client. A read also passes a
/// [`Gate`]. Allocates nothing beyond the engine's box, because every read that waits for another
/// core or the disk creates one.
pub(crate) struct PendingResult {
    gate: Option<Gate>,
    later: CatchPanic<Later>,
    reads: Option<Arc<Reads>>,
    /// Notes of the engine, if the request is traced.
    #[expect(clippy::box_collection, reason = "one word in each waiting answer, and most have no notes")]
    notes: Option<Box<Vec<TraceNote>>>,
}

impl PendingResult {
    /// Creates the pending result of a call that returns few rows or none.
    pub(crate) fn of(later: Later) -> PendingResult {
        PendingResult { gate: None, later: lanes::catch_panic(later), reads: None, notes: None }
    }

    /// Creates the pending result of a read with pages of at most `page_bytes`, which holds up to
    /// `bytes` of rows in addition to its answer.
    pub(crate) fn of_read(
        session: &Rc<Session>,
        later: Later,
        bytes: usize,
        page_bytes: usize,
    ) -> PendingResult {
        PendingResult {
            gate: Some(Gate::new(session.clone(), bytes, page_bytes)),
            ..PendingResult::of(later)
        }
    }

    /// Adds the count of the rows that it reads.
    pub(crate) fn counted(self, reads: Arc<Reads>) -> PendingResult {
        PendingResult { reads: Some(reads), ..self }
    }

    /// Collects the notes of the engine, if `is_traced`.
    pub(crate) fn traced(self, is_traced: bool) -> PendingResult {
        PendingResult { notes: is_traced.then(Box::default), ..self }
    }

    /// Takes the notes of the engine.
    pub(crate) fn take_notes(&mut self) -> Vec<TraceNote> {
        self.notes.take().map(|notes| *notes).unwrap_or_default()
    }

    /// Returns the count of the rows that it reads. `None`: it reads few.
    pub(crate) fn reads(&self) -> Option<&Arc<Reads>> {
        self.reads.as_ref()
    }
}

impl Future for PendingResult {
    type Output = <Later as Future>::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if this.gate.as_mut().is_some_and(|gate| !gate.is_open(cx)) {
            return Poll::Pending;
        }
        // No part of the statement is used after a panic. Its guards have already released its
        // resources.
        let mut poll = || Pin::new(&mut this.later).poll(cx);
        let polled = match &mut this.notes {
            Some(notes) => collect_notes(notes, poll),
            None => poll(),
        };
        polled.map(|caught| caught.unwrap_or_else(|panicked| Err(panics::error(panicked))))
    }
}

/// Backpressure for a read. Closed while the client leaves its answers unread; for a read of
/// several rows, until it has its permit. With it the gate stays open: the permit is for others,
/// too. Counts the read's page until it is dropped.
struct Gate {
    session: Rc<Session>,
    page_bytes: usize,
    /// Bytes of the permit that the read needs; 0: none.
    bytes: usize,
    permit: Permit,
}

enum Permit {
    None,
    Waits(Rc<WaitingRead>),
    Held,
}

impl Gate {
    fn new(session: Rc<Session>, bytes: usize, page_bytes: usize) -> Gate {
        session.outgoing.paged_bytes.set(session.outgoing.paged_bytes.get() + page_bytes);
        Gate { session, page_bytes, bytes, permit: Permit::None }
    }

    /// Returns true if the read may be polled. A closed gate wakes the read's task when it opens.
    fn is_open(&mut self, cx: &Context<'_>) -> bool {
        if matches!(self.permit, Permit::Held) {
            return true;
        }
        if self.session.is_output_full() && !self.session.life.killed.get() {
            self.release();
            self.session.outgoing.paused_reads.borrow_mut().push(cx.waker().clone());
            return false;
        }
        let permits = &self.session.core.read_permits;
        let has_permit = match &self.permit {
            _ if self.bytes == 0 => return true,
            Permit::Waits(read) => read.has_permit(cx.waker()),
            _ => permits.try_take(self.bytes),
        };
        if has_permit {
            self.permit = Permit::Held;
        } else if matches!(self.permit, Permit::None) {
            self.permit = Permit::Waits(permits.wait(self.session.id, self.bytes, cx.waker()));
        }
        has_permit
    }

    /// Gives back the permit, or waits for none any more.
    fn release(&mut self) {
        let has_permit = match std::mem::replace(&mut self.permit, Permit::None) {
            Permit::None => false,
            Permit::Waits(read) => read.has_permit(Waker::noop()),
            Permit::Held => true,
        };
        if has_permit {
            self.session.core.read_permits.give_back(self.bytes);
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.release();
        self.session.outgoing.paged_bytes.set(self.session.outgoing.paged_bytes.get() - self.page_bytes);
    }
}
