//! Large answers, and limits on the memory of answers.
//!
//! An answer larger than [`INLINE_ANSWER_BYTES`] is encoded and compressed on the heavy lane. Its
//! bytes then wait in the session's outbox, behind the answers that were encoded before it.
//!
//! A client that reads nothing holds at most about [`ANSWER_BYTES_MAX`], and a small page for each
//! request in flight:
//!
//! - Pending reads are not polled while the client does not read its answers ([`PendingResult`]).
//! - The pages of a connection shrink with its remaining answer memory ([`Session::page_bytes`]).
//!
//! An answer without pages is charged to the connection's account as it grows. Every large answer
//! is charged until it is sent.

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

/// Maximum size of an answer encoded on the fast lane, bytes of cells. 64 KiB take about 10 µs, or
/// 100 µs with LZ4.
pub(crate) const INLINE_ANSWER_BYTES: usize = 64 << 10;

/// Limit on the pages of one connection's reads in flight, bytes, beyond [`PAGE_BYTES_MIN`] for
/// each read.
const ANSWER_BYTES_MAX: usize = 8 << 20;
/// Minimum size limit of a page, bytes, regardless of other requests in flight.
const PAGE_BYTES_MIN: usize = 16 << 10;

impl Session {
    /// Encodes an answer of many rows on the heavy lane, and puts it into the outbox. Charges it to
    /// the connection's account until it is sent.
    ///
    /// # Errors
    /// The account has not enough free memory.
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
                reply::unencodable(&mut encoder, stream, &error);
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

    /// Returns the bytes of answers that the socket has not taken yet.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.encoder.borrow().pending()
            + self.outbox.borrow().iter().map(|unsent| unsent.bytes.len()).sum::<usize>()
    }

    /// Returns the bytes of answers that the client has not read, including those being encoded.
    pub(crate) fn answer_bytes(&self) -> usize {
        self.unsent_bytes() + self.encoding_bytes.get()
    }

    /// Returns true if the unread answers have reached `output_bytes_max`.
    pub(crate) fn is_output_full(&self) -> bool {
        self.answer_bytes() >= self.core.shared.config.output_bytes_max
    }

    /// Returns the size limit of the connection's next page, bytes: 1/8 of the free part of
    /// [`ANSWER_BYTES_MAX`].
    pub(crate) fn page_bytes(&self) -> usize {
        let used = self.paged_bytes.get() + self.answer_bytes();
        (ANSWER_BYTES_MAX.saturating_sub(used) / 8).clamp(PAGE_BYTES_MIN, PAGE_BYTES_MAX)
    }

    /// Wakes the reads that are paused until the client reads its answers.
    pub(crate) fn wake_paused_reads(&self) {
        let waiting = std::mem::take(&mut *self.paused_reads.borrow_mut());
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
    /// Charge that is released once all bytes are sent.
    _charge: Option<Charge>,
}

/// An answer that is being encoded. Its bytes are counted until it is in the outbox.
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
