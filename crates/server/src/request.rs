//! A CQL request as one value. The connection creates it when its level admits the request. Each
//! stage takes the value, fills its part and passes it on: decode, authorize, slot, execute, reply,
//! record.

use std::rc::Rc;
use std::time::Duration;

use engine::Error;
use frontdoor::Charge;
use wire::{Consistency, Envelope, Failure, Flags, LargeEnvelope};
use workload::{Effective, InFlight, Ticket, Watch};

use crate::failure;
use crate::held::{Holding, REQUEST_BYTES};
use crate::reply::MetadataRequest;
use crate::session::Session;
use crate::statement::{Statement, StatementKind};
use crate::trace::Trace;

/// Maximum size of a body decoded on the fast lane, bytes. Inflating 32 KiB takes about 15 µs.
pub(crate) const INLINE_BYTES: usize = 32 << 10;

/// Estimated memory of a waiting request without its body, bytes: its task and its entry in the
/// wait queue.
pub(crate) const WAITING_BYTES: usize = 1 << 10;

/// Estimated arrival of a request at its socket, and the time its work began, ns of the monotonic
/// clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) arrived_ns: u64,
    pub(crate) began_ns: u64,
}

/// Form of a message, on which its answer depends.
#[derive(Clone, Copy)]
pub(crate) struct MessageForm {
    pub(crate) consistency: Consistency,
    /// True if the client sent an id, false if it sent a text.
    pub(crate) is_prepared: bool,
    pub(crate) metadata: MetadataRequest,
    /// Kind of a request without a decoded statement.
    pub(crate) kind: StatementKind,
}

impl MessageForm {
    /// Returns the form of a QUERY.
    pub(crate) fn of_text(consistency: Consistency) -> MessageForm {
        MessageForm {
            consistency,
            is_prepared: false,
            metadata: MetadataRequest::default(),
            kind: StatementKind::Batch,
        }
    }
}

/// A request from its admission to its accounting.
pub(crate) struct CqlRequest {
    /// Stream number, which pairs the answer with the request.
    pub(crate) stream: i16,
    pub(crate) times: Times,
    /// Settings under which it runs.
    pub(crate) effective: Rc<Effective>,
    /// Counts the request as in flight for the level until it is dropped. `None` while the request
    /// waits for admission to the level that its statement specifies.
    pub(crate) admitted: Option<InFlight>,
    /// The session's keyspace when the request was read. A later USE does not change the meaning of
    /// a request that waits.
    pub(crate) keyspace: Option<Rc<str>>,
    pub(crate) memory: RequestMemory,
    /// Statement to run. `None` for a batch, and before decoding.
    pub(crate) statement: Option<Rc<Statement>>,
    pub(crate) form: MessageForm,
    /// Time limit from the beginning of its work to its answer.
    pub(crate) limit: Duration,
    /// Slot of the statement, for levels with `max_concurrency`. `None` until the statement has
    /// one.
    pub(crate) slot: Option<Ticket>,
    /// True if the answer is an error.
    pub(crate) failed: bool,
    /// Trace of the request, if its client asks for one.
    pub(crate) trace: Option<Box<Trace>>,
}

/// Memory of a request.
#[derive(Default)]
pub(crate) struct RequestMemory {
    /// Charges, kept until the request has been answered.
    pub(crate) charges: Vec<Charge>,
    /// Counts the memory of a request whose answer comes later, until it is answered.
    held: Option<Holding>,
}

impl RequestMemory {
    /// Returns true if the memory is counted among that of the requests in flight.
    pub(crate) fn is_held(&self) -> bool {
        self.held.is_some()
    }
}

impl CqlRequest {
    /// Adds an event to the trace of the request, if it has one.
    #[inline]
    pub(crate) fn note(&mut self, text: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.note(text);
        }
    }

    /// Creates the value of a request that has just been read and admitted.
    pub(crate) fn new(
        stream: i16,
        times: Times,
        effective: Rc<Effective>,
        admitted: InFlight,
        keyspace: Option<Rc<str>>,
    ) -> CqlRequest {
        CqlRequest {
            stream,
            times,
            effective,
            admitted: Some(admitted),
            keyspace,
            memory: RequestMemory::default(),
            statement: None,
            form: MessageForm::of_text(Consistency::One),
            limit: Duration::MAX,
            slot: None,
            failed: false,
            trace: None,
        }
    }

    /// Takes the settings of a level that the client specifies. Those of its role may be merged
    /// from several levels. Returns true if another level than before has to admit the request.
    pub(crate) fn move_to(&mut self, effective: Rc<Effective>) -> bool {
        let before = std::mem::replace(&mut self.effective, effective);
        let is_other = before.group() != self.effective.group();
        if is_other {
            (self.admitted, self.slot) = (None, None);
        }
        is_other
    }

    /// Sets the decoded statement.
    pub(crate) fn decoded(&mut self, statement: Rc<Statement>, form: MessageForm) {
        (self.statement, self.form) = (Some(statement), form);
    }

    /// Sets the parameters of a batch.
    pub(crate) fn decoded_batch(&mut self, consistency: Consistency, limit: Duration) {
        (self.form.consistency, self.limit) = (consistency, limit);
    }

    /// Returns the decoded statement.
    ///
    /// # Panics
    /// The request is a batch or has not been decoded.
    pub(crate) fn statement(&self) -> &Rc<Statement> {
        self.statement.as_ref().expect("decoded before, and no batch")
    }

    /// Returns the kind of the decoded statement or batch.
    pub(crate) fn kind(&self) -> StatementKind {
        self.statement.as_ref().map_or(self.form.kind, |statement| statement.kind)
    }

    /// Counts its memory among that of the requests in flight. A large body is charged already.
    pub(crate) fn hold(&mut self, session: &Session, envelope: &Envelope) {
        let body = if own_body(envelope).is_some() { 0 } else { envelope.body.len() };
        self.memory.held = Some(session.requests.held.hold(REQUEST_BYTES + body));
    }

    /// Returns the keyspace specified with a statement, or else the session's.
    pub(crate) fn keyspace_of(&self, specified: Option<&str>) -> Option<Rc<str>> {
        match specified {
            Some(keyspace) => Some(keyspace.into()),
            None => self.keyspace.clone(),
        }
    }

    /// Returns a watch for a statement of the level, or `None` without a `query_limit`.
    pub(crate) fn watch(&self) -> Option<Watch> {
        Watch::of(&self.effective)
    }

    /// Checks that the request has not waited for its whole time limit already: its client has
    /// given it up. A wait for a slot has its own limit.
    ///
    /// # Errors
    /// The error of a statement whose time limit is over.
    pub(crate) fn check_age(&self) -> Result<(), Error> {
        let Times { arrived_ns, began_ns } = self.times;
        let age_ns = began_ns.saturating_sub(arrived_ns);
        if self.slot.is_none() && u128::from(age_ns) >= self.limit.as_nanos() {
            return Err(failure::timed_out(self.kind(), self.limit));
        }
        Ok(())
    }

    /// Converts an engine's error to the answer.
    pub(crate) fn failure(&self, error: Error) -> Failure {
        let id = self.statement.as_ref().filter(|_| self.form.is_prepared).map(|statement| &statement.id[..]);
        failure::of(error, self.kind(), self.form.consistency, id)
    }
}

/// A request as it arrives.
pub(crate) enum Frame {
    /// A request whose body is complete.
    Whole(Envelope),
    /// A request whose body is still in chunks or compressed. It is too long for the fast lane.
    Parts(LargeEnvelope),
}

impl Frame {
    /// Returns true if the client asks for a trace.
    #[inline]
    pub(crate) fn is_traced(&self) -> bool {
        let flags = match self {
            Frame::Whole(envelope) => envelope.flags,
            Frame::Parts(large) => large.flags(),
        };
        flags.has(Flags::TRACING)
    }

    /// Begins the trace of a request that arrived at `arrived_ns`.
    #[cold]
    pub(crate) fn trace(&self, arrived_ns: u64) -> Box<Trace> {
        match self {
            Frame::Whole(envelope) => Trace::begin(envelope.opcode, envelope.body.len(), arrived_ns),
            Frame::Parts(large) => Trace::begin(large.opcode(), large.bytes(), arrived_ns),
        }
    }

    /// Returns the stream number, which pairs the answer with the request.
    pub(crate) fn stream(&self) -> i16 {
        match self {
            Frame::Whole(envelope) => envelope.stream,
            Frame::Parts(large) => large.stream(),
        }
    }
}

/// Returns the body of a large request, which has memory of its own. Others share a read buffer.
pub(crate) fn own_body(envelope: &Envelope) -> Option<&bytes::Bytes> {
    (envelope.body.len() > INLINE_BYTES).then_some(&envelope.body)
}

/// Copies a request that is stored for long, so that it does not keep a whole read buffer alive.
pub(crate) fn detached(envelope: &Envelope) -> Envelope {
    if own_body(envelope).is_some() {
        return envelope.clone();
    }
    Envelope { body: bytes::Bytes::copy_from_slice(&envelope.body), ..*envelope }
}
