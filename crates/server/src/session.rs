//! A client's session: its role, its keyspace, its service level, and the answers that wait to be
//! sent.
//!
//! The connection's task owns the socket. It shares the session with the tasks that work on the
//! client's requests. Each task encodes its answer into the one output buffer and wakes the
//! connection to send it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use access::Login;
use bytes::Bytes;
use engine::{PAGE_BYTES_MAX, Warnings};
use frontdoor::{Account, Charge, WriteHalf};
use wire::{Encoder, Event, Failure, FailureKind, Prelude};

use workload::{Arrived, Effective, InFlight, Rejection};

use crate::client_facts::ClientFacts;
use crate::core::{BUFFER_BYTES, Core};
use crate::counters::bump;
use crate::failure;
use crate::held::Held;
use crate::panics;
use crate::request::CqlRequest;
use crate::tasks::Tasks;
use crate::unacked::{Unacked, nanoseconds};

/// Identity of an authenticated session.
pub(crate) struct Role {
    pub(crate) login: Rc<Login>,
    /// Number of the role on this core.
    pub(crate) number: u32,
    /// The role at the nodes of a cluster.
    pub(crate) remote: Option<Rc<cluster::Role>>,
}

/// The sender responsible for the output buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Sending {
    /// No sender is scheduled.
    #[default]
    None,
    /// Sent when the group pauses.
    Deferred,
    /// Sent by the connection's task, as soon as the socket takes more.
    Connection,
}

/// Encoded answers that the socket has not taken yet.
pub(crate) struct Unsent {
    pub(crate) bytes: Bytes,
    /// Charge that is released once all bytes are sent.
    #[expect(dead_code, reason = "held until dropped, never read")]
    pub(crate) charge: Option<Charge>,
}

/// Time for an ended session to finish its writes and to send its last answers. Then its connection
/// is closed, whether its client reads or not.
const END_WITHIN: Duration = Duration::from_millis(500);
/// Unread answers of a connection that are not charged to its account, bytes: a new output buffer,
/// so that a client that reads its answers is charged for none.
const UNCHARGED_BYTES: usize = BUFFER_BYTES;
/// Limit on the pages of one connection's reads in flight, bytes, beyond [`PAGE_BYTES_MIN`] for
/// each read.
const ANSWER_BYTES_MAX: usize = 8 << 20;
/// Minimum size limit of a page, bytes, regardless of other requests in flight.
const PAGE_BYTES_MIN: usize = 16 << 10;

/// A session.
pub(crate) struct Session {
    pub(crate) core: Rc<Core>,
    pub(crate) id: u64,
    pub(crate) peer: SocketAddr,
    pub(crate) role: RefCell<Option<Role>>,
    /// Memory account of the session's requests.
    pub(crate) account: RefCell<Arc<Account>>,
    pub(crate) keyspace: RefCell<Option<Rc<str>>>,
    /// Types of [`wire::EVENT_TYPES`] for which the client registered.
    pub(crate) wanted_events: Cell<[bool; wire::EVENT_TYPES.len()]>,
    /// Client facts for `system.connections`.
    pub(crate) client: ClientFacts,
    pub(crate) life: Life,
    pub(crate) requests: Requests,
    pub(crate) outgoing: Outgoing,
    connection: RefCell<Option<Waker>>,
}

/// Times and ends of a session.
pub(crate) struct Life {
    /// Time of the last bytes received or of the last request in flight, ns of the monotonic clock.
    pub(crate) active_ns: Cell<u64>,
    /// Time before which the socket is not read, because a request was refused, ns of the monotonic
    /// clock.
    pub(crate) paused_until_ns: Cell<u64>,
    /// True if no more requests are read. Requests in flight finish.
    pub(crate) draining: Cell<bool>,
    /// True if the connection must close at once.
    pub(crate) killed: Cell<bool>,
}

/// Requests whose answers are not in the output buffer yet.
#[derive(Default)]
pub(crate) struct Requests {
    /// Their number.
    pub(crate) in_flight: Cell<usize>,
    /// Their memory.
    pub(crate) held: Rc<Held>,
    /// Writes that wait for the disk.
    pub(crate) unacked: RefCell<Unacked>,
    /// Tasks of the others.
    pub(crate) tasks: RefCell<Tasks>,
}

/// Answers on their way to the client.
pub(crate) struct Outgoing {
    pub(crate) encoder: RefCell<Encoder>,
    /// Large answers, to be sent before the contents of the encoder.
    pub(crate) outbox: RefCell<VecDeque<Unsent>>,
    /// Sending half of the socket, from the TLS handshake to the end of the connection.
    pub(crate) socket: RefCell<Option<WriteHalf>>,
    pub(crate) sending: Cell<Sending>,
    /// Charge for answers in the output buffer beyond [`UNCHARGED_BYTES`], until all are sent.
    pub(crate) charge: RefCell<Option<Charge>>,
    /// Requests whose answers were encoded and not passed to the socket yet, of levels with a
    /// limiter.
    pub(crate) answered: RefCell<Vec<InFlight>>,
    /// Bytes of answers that are being encoded on the heavy lane.
    pub(crate) encoding_bytes: Cell<usize>,
    /// Upper bound of the bytes in pages of the reads in flight.
    pub(crate) paged_bytes: Cell<usize>,
    /// Reads paused by backpressure until the client reads its answers.
    pub(crate) paused_reads: RefCell<Vec<Waker>>,
}

impl Session {
    pub(crate) fn new(core: Rc<Core>, id: u64, peer: SocketAddr) -> Rc<Session> {
        let account = RefCell::new(core.shared.config.accounts.all().clone());
        let life = Life {
            active_ns: Cell::new(lanes::time::monotonic_ns()),
            paused_until_ns: Cell::new(0),
            draining: Cell::new(false),
            killed: Cell::new(false),
        };
        let outgoing = Outgoing {
            encoder: RefCell::new(Encoder::new(wire::Direction::Response, wire::Version::V5)),
            outbox: RefCell::default(),
            socket: RefCell::default(),
            sending: Cell::default(),
            charge: RefCell::default(),
            answered: RefCell::default(),
            encoding_bytes: Cell::new(0),
            paged_bytes: Cell::new(0),
            paused_reads: RefCell::default(),
        };
        Rc::new(Session {
            core,
            id,
            peer,
            role: RefCell::new(None),
            account,
            keyspace: RefCell::new(None),
            wanted_events: Cell::default(),
            client: ClientFacts::new(),
            life,
            requests: Requests::default(),
            outgoing,
            connection: RefCell::new(None),
        })
    }

    /// Returns the session's current settings. Costs one atomic load while roles and levels are
    /// unchanged. Starts draining if the login is no longer valid.
    pub(crate) fn effective(&self) -> Rc<Effective> {
        match &*self.role.borrow() {
            Some(role) => {
                if !role.login.is_current() {
                    self.life.draining.set(true);
                }
                self.core.access.effective(&role.login)
            }
            None => self.core.access.handshake(),
        }
    }

    /// Assigns the session, and the memory account of its requests, to a role. When that login
    /// loses its validity, the session ends.
    pub(crate) fn log_in(self: &Rc<Self>, login: Login, remote: Option<Rc<cluster::Role>>) {
        let (session, role) = (Rc::downgrade(self), login.role().clone());
        login.on_end(move || {
            let Some(session) = session.upgrade() else { return };
            session.end_with(&failure::unbound(access::ended(&role)));
        });
        let number = self.core.role_number(login.role());
        *self.account.borrow_mut() = self.core.shared.config.accounts.connection(login.role());
        *self.role.borrow_mut() = Some(Role { login: Rc::new(login), number, remote });
    }

    /// Returns the role at the nodes of a cluster.
    pub(crate) fn remote(&self) -> Option<Rc<cluster::Role>> {
        self.role.borrow().as_ref()?.remote.clone()
    }

    /// Returns the role's number on this core, or 0 before authentication.
    pub(crate) fn role_number(&self) -> u32 {
        self.role.borrow().as_ref().map_or(0, |role| role.number)
    }

    /// Returns the login, or `None` before authentication.
    pub(crate) fn login(&self) -> Option<Rc<Login>> {
        self.role.borrow().as_ref().map(|role| role.login.clone())
    }

    /// Returns the role's name, or `None` before authentication.
    pub(crate) fn role_name(&self) -> Option<Arc<str>> {
        self.role.borrow().as_ref().map(|role| role.login.role().clone())
    }

    /// Returns true if the session has authenticated as that role.
    pub(crate) fn is_of(&self, role: &str) -> bool {
        self.role.borrow().as_ref().is_some_and(|own| **own.login.role() == *role)
    }

    /// Stores the waker of the connection's task.
    pub(crate) fn set_connection(&self, waker: &Waker) {
        let mut connection = self.connection.borrow_mut();
        if !connection.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *connection = Some(waker.clone());
        }
    }

    /// Wakes the connection's task to send answers or to stop.
    pub(crate) fn wake(&self) {
        if let Some(waker) = &*self.connection.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Gives an empty output buffer its memory from the core's pool of buffers.
    pub(crate) fn warm_output(&self) {
        let mut encoder = self.outgoing.encoder.borrow_mut();
        if encoder.pending() == 0 {
            let out = encoder.finish();
            if out.capacity() == 0 {
                *out = self.core.buffers.take();
            }
        }
    }

    /// Returns the bytes of answers that the socket has not taken yet.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.outgoing.encoder.borrow().pending()
            + self.outgoing.outbox.borrow().iter().map(|unsent| unsent.bytes.len()).sum::<usize>()
    }

    /// Returns the bytes of answers that the client has not read, including those being encoded.
    pub(crate) fn answer_bytes(&self) -> usize {
        self.unsent_bytes() + self.outgoing.encoding_bytes.get()
    }

    /// Returns true if the unread answers have reached `output_bytes_max`, or the connection's
    /// account has no memory for them. Then no further request is read, and reads in flight pause.
    pub(crate) fn is_output_full(&self) -> bool {
        let bytes = self.answer_bytes();
        bytes > UNCHARGED_BYTES
            && (bytes >= self.core.shared.config.output_bytes_max || !self.charge_output())
    }

    /// Charges the output buffer. Large answers have charges of their own. Returns false if the
    /// account is full.
    #[cold]
    fn charge_output(&self) -> bool {
        let bytes = self.outgoing.encoder.borrow().pending().saturating_sub(UNCHARGED_BYTES) as u64;
        let mut charge = self.outgoing.charge.borrow_mut();
        let more = bytes.saturating_sub(charge.as_ref().map_or(0, Charge::bytes));
        if more == 0 {
            return true;
        }
        let more = more.next_multiple_of(UNCHARGED_BYTES as u64);
        match &mut *charge {
            Some(charge) => charge.grow(more).is_ok(),
            None => {
                *charge = self.account.borrow().charge(more).ok();
                charge.is_some()
            }
        }
    }

    /// Returns the size limit of the connection's next page, bytes: 1/8 of the free part of
    /// [`ANSWER_BYTES_MAX`].
    pub(crate) fn page_bytes(&self) -> usize {
        let used = self.outgoing.paged_bytes.get() + self.answer_bytes();
        (ANSWER_BYTES_MAX.saturating_sub(used) / 8).clamp(PAGE_BYTES_MIN, PAGE_BYTES_MAX)
    }

    /// Wakes the reads that are paused until the client reads its answers.
    pub(crate) fn wake_paused_reads(&self) {
        let waiting = std::mem::take(&mut *self.outgoing.paused_reads.borrow_mut());
        waiting.into_iter().for_each(std::task::Waker::wake);
    }

    /// Appends an ERROR and counts it.
    pub(crate) fn refuse(&self, stream: i16, failure: &Failure) {
        self.core.counters.error(failure.kind.code());
        let mut encoder = self.outgoing.encoder.borrow_mut();
        if encoder.error(stream, failure, &Prelude::default()).is_err() {
            let plain = Failure::new(FailureKind::Server, "The error does not fit the protocol");
            encoder.error(stream, &plain, &Prelude::default()).expect("a server error has no fields");
        }
    }

    /// Returns the time limit of statements of a level that give none of their own.
    pub(crate) fn time_limit(&self, effective: &Effective) -> Duration {
        effective.spec.timeout.unwrap_or(self.core.shared.config.request_timeout)
    }

    /// Returns when a request arrived, and the time limit that it has unless its statement gives
    /// one.
    pub(crate) fn arrived(&self, effective: &Effective, since_ns: u64) -> Arrived {
        let time_limit_ns = nanoseconds(self.time_limit(effective));
        Arrived { since_ns, time_limit_ns, is_only: self.requests.in_flight.get() == 0 }
    }

    /// Refuses a request that its level did not admit, and pauses the connection. Charges the CPU
    /// time since `began_ns` to the refusals of the level. Returns the time after it, ns.
    #[cold]
    pub(crate) fn refuse_admission(
        &self,
        stream: i16,
        effective: &Effective,
        rejected: Rejection,
        began_ns: u64,
    ) -> u64 {
        let pause_ns = rejected.pause_ns;
        self.refuse(stream, &failure::not_admitted(rejected));
        let ended_ns = lanes::time::monotonic_ns();
        effective.level.add_refusal_ns(self.core.index, ended_ns.saturating_sub(began_ns));
        if pause_ns > 0 {
            self.life.paused_until_ns.set(ended_ns.saturating_add(pause_ns));
        }
        ended_ns
    }

    /// Appends an event and returns true if the client registered for it. Disconnects a client that
    /// does not read its answers.
    pub(crate) fn send_event(&self, event: &Event) -> bool {
        let is_wanted = |name: &str| {
            let wanted = self.wanted_events.get();
            wire::EVENT_TYPES.iter().zip(wanted).any(|(kind, wanted)| wanted && *kind == name)
        };
        if !is_wanted(event.type_name()) {
            return false;
        }
        if self.unsent_bytes() > self.core.shared.config.output_bytes_max {
            self.life.killed.set(true);
        } else {
            // An event too long for the protocol has names that no client can have created.
            let _ = self.outgoing.encoder.borrow_mut().event(event);
        }
        self.wake();
        true
    }

    /// Ends the session. Cancels its reads and the statements that wait for a slot, and answers
    /// them with `failure`. Writes continue to their end. Their answers are sent if they are ready
    /// within [`END_WITHIN`].
    pub(crate) fn end_with(self: &Rc<Self>, failure: &Failure) {
        let streams: Vec<i16> = self.requests.tasks.borrow().running().map(|(_, task)| task.stream).collect();
        self.cancel_tasks();
        streams.iter().for_each(|stream| self.refuse(*stream, failure));
        self.life.draining.set(true);
        self.wake();
        let ended = Rc::downgrade(self);
        let close = async move {
            lanes::time::sleep(END_WITHIN).await;
            let Some(session) = ended.upgrade() else { return };
            session.life.killed.set(true);
            session.wake();
        };
        lanes::spawn(lanes::Group::CONTROL, close).detach();
    }

    /// Cancels the task with that number, and answers its request with `failure`. Returns false if
    /// it has ended.
    pub(crate) fn cancel_task(&self, number: u64, failure: &Failure) -> bool {
        let taken = self.requests.tasks.borrow_mut().take(number);
        let Some((task, running)) = taken else { return false };
        drop(task);
        self.refuse(running.stream, failure);
        // The task is dropped when its group has the core next.
        self.wake();
        true
    }

    /// Counts a request whose answer comes later, until the result is dropped.
    pub(crate) fn begin(self: &Rc<Self>) -> Unanswered {
        bump(&self.requests.in_flight, 1);
        Unanswered(self.clone())
    }

    /// Answers a write when the engine acknowledges it or when its deadline has passed. The
    /// connection polls for both (`acks.rs`).
    pub(crate) fn answer_when_acked(&self, request: CqlRequest, warnings: Warnings, write: u64) {
        bump(&self.requests.in_flight, 1);
        self.requests.unacked.borrow_mut().push(request, warnings, write);
    }

    /// Counts a write of [`Session::answer_when_acked`] as answered.
    pub(crate) fn end_acked(&self) {
        bump(&self.requests.in_flight, -1);
    }

    /// Starts a task that answers a request. If the work panics, an error is the answer.
    pub(crate) fn spawn_answer(
        self: &Rc<Self>,
        group: lanes::Group,
        stream: i16,
        work: impl Future<Output = ()> + 'static,
    ) {
        let (session, unanswered) = (self.clone(), self.begin());
        let guarded = async move {
            if let Err(panicked) = lanes::catch_panic(work).await {
                session.refuse(stream, &panics::failure(panicked));
            }
            drop(unanswered);
        };
        lanes::spawn(group, guarded).detach();
    }

    /// Cancels reads and work on files in flight, requests that wait for a slot, and long requests
    /// that are being opened. Called when the connection has ended.
    pub(crate) fn cancel_tasks(&self) {
        self.cancel(false);
    }

    /// Cancels the same tasks except long requests that are being opened. The client sends no more
    /// bytes, but may still read the answer to a write that was received completely.
    pub(crate) fn cancel_known_tasks(&self) {
        self.cancel(true);
    }

    fn cancel(&self, keep_opening: bool) {
        // Taken out first: dropping a task may borrow `tasks` again.
        let cancelled = self.requests.tasks.borrow_mut().take_running(keep_opening);
        drop(cancelled);
    }
}

/// A request whose answer comes later. Dropping it counts the request as answered and wakes the
/// connection.
pub(crate) struct Unanswered(Rc<Session>);

impl Drop for Unanswered {
    fn drop(&mut self) {
        bump(&self.0.requests.in_flight, -1);
        self.0.wake();
    }
}
