//! Large answers, and room for answers.
//!
//! An answer beyond [`INLINE_ANSWER_BYTES`] is encoded, and compressed, on the heavy lane; then its bytes wait in the session's outbox,
//! behind what was encoded before it.
//!
//! Reads that take a while are not polled while the client does not read its answers ([`PendingResult`]), and the fewer bytes are left for
//! a connection's answers, the smaller are the pages that it gets ([`Session::page_bytes`]). So a client that asks for much and reads
//! nothing holds at most about [`ANSWER_BYTES_MAX`] and a small page for each request in flight. An answer without pages is charged to the
//! connection's account as it grows, and every large answer until it is sent.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use engine::{AnswerMemory, AnswerRoom, PAGE_BYTES_MAX};
use frontdoor::{Charge, Full};
use lanes::CatchPanic;
use wire::{Direction, Encoder};

use crate::account::AnswerCharge;
use crate::panics;
use crate::reply::{self, RowsPlan};
use crate::request::Later;
use crate::session::Session;

/// Answers up to this, bytes of cells, are encoded on the fast lane: 64 KiB take about 10 µs, and 100 µs with LZ4.
pub(crate) const INLINE_ANSWER_BYTES: usize = 64 << 10;

/// Bytes of pages that the reads of one connection may make at once, beyond [`PAGE_BYTES_MIN`] for each.
const ANSWER_BYTES_MAX: usize = 8 << 20;
/// The least bytes of a page, whatever else is in flight.
const PAGE_BYTES_MIN: usize = 16 << 10;

impl Session {
    /// Encodes an answer of many rows on the heavy lane, and puts it into the outbox. It is charged to the connection's account
    /// until it is sent.
    ///
    /// # Errors
    /// The account has no room for it.
    pub(crate) fn answer_large(
        self: &Rc<Self>,
        stream: i16,
        rows: engine::Rows,
        plan: RowsPlan,
    ) -> Result<(), Full> {
        let charge = self.account.borrow().charge(rows.cells.len() as u64)?;
        let (version, framing) = {
            let encoder = self.encoder.borrow();
            (encoder.version(), encoder.framing())
        };
        let session = self.clone();
        let group = lanes::current_group();
        self.begin();
        let encoding = Encoding::begin(self, rows.cells.len());
        let encode = async move {
            let mut encoder = Encoder::new(Direction::Response, version);
            encoder.set_framing(framing);
            if let Err(error) = reply::write_rows(&mut encoder, stream, &rows, &plan) {
                reply::unsayable(&mut encoder, stream, &error);
            }
            encoder.finish().split().freeze()
        };
        let work = async move {
            let bytes = lanes::heavy(group, encode).await;
            drop(encoding);
            let before = session.encoder.borrow_mut().finish().split().freeze();
            let mut outbox = session.outbox.borrow_mut();
            let unsent = [Unsent { bytes: before, _charge: None }, Unsent { bytes, _charge: Some(charge) }];
            outbox.extend(unsent.into_iter().filter(|unsent| !unsent.bytes.is_empty()));
        };
        lanes::spawn(group, self.clone().guarded(stream, work)).detach();
        Ok(())
    }

    /// Bytes of answers that the socket has not taken yet.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.encoder.borrow().pending()
            + self.outbox.borrow().iter().map(|unsent| unsent.bytes.len()).sum::<usize>()
    }

    /// Bytes of answers that the client has not read, those included that are being encoded.
    pub(crate) fn answer_bytes(&self) -> usize {
        self.unsent_bytes() + self.encoding_bytes.get()
    }

    /// Whether the client leaves so many answers unread that no more are made.
    pub(crate) fn is_output_full(&self) -> bool {
        self.answer_bytes() >= self.core.shared.config.output_bytes_max
    }

    /// Bytes that the next page of this connection may have: an eighth of what its reads in flight have left.
    pub(crate) fn page_bytes(&self) -> usize {
        let used = self.paged_bytes.get() + self.answer_bytes();
        (ANSWER_BYTES_MAX.saturating_sub(used) / 8).clamp(PAGE_BYTES_MIN, PAGE_BYTES_MAX)
    }

    /// Wakes the reads that wait for the client to read its answers.
    pub(crate) fn wake_gated(&self) {
        let waiting = std::mem::take(&mut *self.gated.borrow_mut());
        waiting.into_iter().for_each(std::task::Waker::wake);
    }
}

impl AnswerMemory for Session {
    fn open(&self) -> Arc<dyn AnswerRoom> {
        Arc::new(AnswerCharge::new(&self.account.borrow()))
    }
}

/// Encoded answers that the socket has not taken yet.
pub(crate) struct Unsent {
    pub(crate) bytes: Bytes,
    /// Given back when all of it is sent.
    _charge: Option<Charge>,
}

/// An answer that is being encoded; its bytes count until it is in the outbox.
struct Encoding {
    session: Rc<Session>,
    bytes: usize,
}

impl Encoding {
    fn begin(session: &Rc<Session>, bytes: usize) -> Encoding {
        session.encoding_bytes.set(session.encoding_bytes.get() + bytes);
        Encoding { session: session.clone(), bytes }
    }
}

impl Drop for Encoding {
    fn drop(&mut self) {
        self.session.encoding_bytes.set(self.session.encoding_bytes.get() - self.bytes);
    }
}

/// Result of an engine call in flight; a panic becomes an error to its client. A read also passes a [`Gate`]. Owns no box but the
/// engine's, as every read that waits for another core or for the disk makes one.
pub(crate) struct PendingResult {
    gate: Option<Gate>,
    later: CatchPanic<Later>,
}

impl PendingResult {
    /// The result of a call that makes no answer of many rows.
    pub(crate) fn of(later: Later) -> PendingResult {
        PendingResult { gate: None, later: lanes::catch_panic(later) }
    }

    /// A read whose page has at most `page_bytes`.
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
        // After a panic nothing of the statement is used any more; guards have put back what it held.
        let polled = Pin::new(&mut self.later).poll(cx);
        polled.map(|caught| caught.unwrap_or_else(|panicked| Err(panics::error(panicked))))
    }
}

/// The gate of a read: closed while the client leaves its answers unread. The read's page is counted until the gate is dropped.
struct Gate {
    session: Rc<Session>,
    page_bytes: usize,
}

impl Gate {
    fn new(session: Rc<Session>, page_bytes: usize) -> Gate {
        session.paged_bytes.set(session.paged_bytes.get() + page_bytes);
        Gate { session, page_bytes }
    }

    /// Returns true if the read may be polled. A closed gate wakes the read's task when the client reads.
    fn is_open(&self, cx: &Context<'_>) -> bool {
        let is_open = !self.session.is_output_full() || self.session.killed.get();
        if !is_open {
            self.session.gated.borrow_mut().push(cx.waker().clone());
        }
        is_open
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.session.paged_bytes.set(self.session.paged_bytes.get() - self.page_bytes);
    }
}
