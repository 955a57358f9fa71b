//! A client's session: who it is, which keyspace it uses, the level it runs under, and the answers on their way to it.
//!
//! The connection's task owns the socket; the session is what it shares with the tasks that work on its requests.
//! An answer is encoded into the one output buffer wherever it becomes known, and the connection is woken to send it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

use access::Login;
use frontdoor::{Account, WriteHalf};
use wire::{Encoder, Event, Failure, FailureKind, Prelude};

use workload::Effective;

use crate::acks::Unacked;
use crate::answers::Unsent;
use crate::core::Core;
use crate::counters::bump;
use crate::output::Sending;
use crate::running::Running;
use crate::sessions::ClientFacts;

/// Who a session is.
pub(crate) struct Role {
    pub(crate) login: Rc<Login>,
    /// The role's number on this core.
    pub(crate) number: u32,
}

/// Tasks of reads, of work on files, and of what waits for a slot, by key.
#[derive(Default)]
pub(crate) struct Reads {
    tasks: Vec<Option<Kept>>,
    free: Vec<usize>,
    /// Tasks kept so far: their numbers, none of which comes again.
    numbers: u64,
}

/// A task in its place.
struct Kept {
    task: lanes::Task<()>,
    running: Running,
    number: u64,
}

impl Reads {
    /// A place for a task.
    pub(crate) fn reserve(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.tasks.push(None);
            self.tasks.len() - 1
        })
    }

    /// Keeps a task in its place: dropped with the session's connection, it is cancelled.
    pub(crate) fn keep(&mut self, key: usize, task: lanes::Task<()>, running: Running) {
        self.numbers += 1;
        self.tasks[key] = Some(Kept { task, running, number: self.numbers });
    }

    /// Statements that run or wait, by number.
    pub(crate) fn running(&self) -> impl Iterator<Item = (u64, &Running)> {
        self.tasks.iter().flatten().map(|kept| (kept.number, &kept.running))
    }

    /// Takes the task of that number out of its place, to end it.
    pub(crate) fn take(&mut self, number: u64) -> Option<(lanes::Task<()>, Running)> {
        let of_number = |kept: &Option<Kept>| kept.as_ref().is_some_and(|kept| kept.number == number);
        let key = self.tasks.iter().position(of_number)?;
        let Kept { task, running, .. } = self.tasks[key].take()?;
        self.free.push(key);
        Some((task, running))
    }

    /// Takes out the tasks that are known to be reads or to wait for a slot.
    fn take_known(&mut self) -> Vec<Kept> {
        let mut known = Vec::new();
        for (key, place) in self.tasks.iter_mut().enumerate() {
            if let Some(kept) = place.take_if(|kept| !kept.running.is_being_opened()) {
                known.push(kept);
                self.free.push(key);
            }
        }
        known
    }

    /// The task in that place is about to end by itself.
    pub(crate) fn done(&mut self, key: usize) {
        // All are gone where the connection has ended.
        if let Some(kept) = self.tasks.get_mut(key).and_then(Option::take) {
            kept.task.detach();
            self.free.push(key);
        }
    }
}

/// A session.
pub(crate) struct Session {
    pub(crate) core: Rc<Core>,
    pub(crate) id: u64,
    pub(crate) peer: SocketAddr,
    pub(crate) encoder: RefCell<Encoder>,
    /// The socket's sending side, from the TLS handshake to the end of the connection.
    pub(crate) output: RefCell<Option<WriteHalf>>,
    pub(crate) sending: Cell<Sending>,
    /// Requests whose answers are not in the output buffer yet.
    pub(crate) in_flight: Cell<usize>,
    pub(crate) role: RefCell<Option<Role>>,
    pub(crate) keyspace: RefCell<Option<Rc<str>>>,
    /// Whether it wants to hear of schema changes.
    pub(crate) wants_schema: Cell<bool>,
    /// When it last sent something, or had a request in flight, ns.
    pub(crate) active_ns: Cell<u64>,
    /// No more requests are read; what runs is finished.
    pub(crate) draining: Cell<bool>,
    /// To be closed at once.
    pub(crate) killed: Cell<bool>,
    pub(crate) unacked: RefCell<Unacked>,
    /// Reads under way; they end with the connection.
    pub(crate) reads: RefCell<Reads>,
    /// Bytes of its requests.
    pub(crate) account: RefCell<Arc<Account>>,
    /// Large answers, to be sent before what is in the encoder.
    pub(crate) outbox: RefCell<VecDeque<Unsent>>,
    /// Reads that wait until the client reads.
    pub(crate) gated: RefCell<Vec<Waker>>,
    /// Bytes of answers that are being encoded elsewhere.
    pub(crate) encoding_bytes: Cell<usize>,
    /// Bytes of the pages that the reads in flight may make.
    pub(crate) paged_bytes: Cell<usize>,
    /// What `system.connections` shows of the client.
    pub(crate) client: ClientFacts,
    connection: RefCell<Option<Waker>>,
}

impl Session {
    pub(crate) fn new(core: Rc<Core>, id: u64, peer: SocketAddr) -> Rc<Session> {
        let account = RefCell::new(core.shared.config.accounts.all().clone());
        Rc::new(Session {
            account,
            core,
            id,
            peer,
            encoder: RefCell::new(Encoder::new(wire::Direction::Response, wire::Version::V5)),
            output: RefCell::default(),
            sending: Cell::default(),
            in_flight: Cell::new(0),
            role: RefCell::new(None),
            keyspace: RefCell::new(None),
            wants_schema: Cell::new(false),
            active_ns: Cell::new(lanes::time::monotonic_ns()),
            draining: Cell::new(false),
            killed: Cell::new(false),
            unacked: RefCell::default(),
            reads: RefCell::default(),
            outbox: RefCell::default(),
            gated: RefCell::default(),
            encoding_bytes: Cell::new(0),
            paged_bytes: Cell::new(0),
            client: ClientFacts::new(),
            connection: RefCell::new(None),
        })
    }

    /// What holds for the session now: one atomic load while nothing changed anywhere.
    pub(crate) fn effective(&self) -> Rc<Effective> {
        match &*self.role.borrow() {
            Some(role) => {
                if !role.login.is_current() {
                    self.draining.set(true);
                }
                self.core.access.effective(&role.login)
            }
            None => self.core.access.handshake(),
        }
    }

    /// Makes the session a role's, and the account of its requests one of the role's. The session ends,
    /// after the answers to what is written, when the role may not log in so any more.
    pub(crate) fn log_in(self: &Rc<Self>, login: Login) {
        let session = Rc::downgrade(self);
        login.on_end(move || {
            let Some(session) = session.upgrade() else { return };
            session.draining.set(true);
            session.give_up_reads();
            session.wake();
        });
        let number = self.core.role_number(login.role());
        *self.account.borrow_mut() = self.core.shared.config.accounts.connection(login.role());
        *self.role.borrow_mut() = Some(Role { login: Rc::new(login), number });
    }

    /// The role's number on this core; 0 before it has authenticated.
    pub(crate) fn role_number(&self) -> u32 {
        self.role.borrow().as_ref().map_or(0, |role| role.number)
    }

    /// Who the session is, once it has authenticated.
    pub(crate) fn login(&self) -> Option<Rc<Login>> {
        self.role.borrow().as_ref().map(|role| role.login.clone())
    }

    /// Remembers whom to wake.
    pub(crate) fn set_connection(&self, waker: &Waker) {
        let mut connection = self.connection.borrow_mut();
        if !connection.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *connection = Some(waker.clone());
        }
    }

    /// Wakes the connection: there is something to send, or to stop.
    pub(crate) fn wake(&self) {
        if let Some(waker) = &*self.connection.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Gives an empty output buffer room, from those that other connections do not need now.
    pub(crate) fn warm_output(&self) {
        let mut encoder = self.encoder.borrow_mut();
        if encoder.pending() == 0 {
            let out = encoder.finish();
            if out.capacity() == 0 {
                *out = self.core.buffers.take();
            }
        }
    }

    /// Appends an ERROR.
    pub(crate) fn refuse(&self, stream: i16, failure: &Failure) {
        self.core.counters.error(failure.kind.code());
        let mut encoder = self.encoder.borrow_mut();
        if encoder.error(stream, failure, &Prelude::default()).is_err() {
            let plain = Failure::new(FailureKind::Server, "The error does not fit the protocol");
            encoder.error(stream, &plain, &Prelude::default()).expect("a server error has no fields");
        }
    }

    /// Appends an event, and returns true, if the client registered for it. A client that does not read is disconnected.
    pub(crate) fn tell(&self, event: &Event) -> bool {
        if !self.wants_schema.get() {
            return false;
        }
        if self.unsent_bytes() > self.core.shared.config.output_bytes_max {
            self.killed.set(true);
        } else {
            // An event that does not fit the protocol is about names no client can have made.
            let _ = self.encoder.borrow_mut().event(event);
        }
        self.wake();
        true
    }

    /// A request whose answer comes later has begun.
    pub(crate) fn begin(&self) {
        bump(&self.in_flight, 1);
    }

    /// Gives up the reads and the work on files in flight, and what waits for a slot or is being opened: the connection has ended.
    pub(crate) fn give_up_reads(&self) {
        // Taken out first: what goes with a task may look here.
        let reads = std::mem::take(&mut *self.reads.borrow_mut());
        bump(&self.in_flight, -(reads.tasks.iter().flatten().count() as isize));
    }

    /// Gives up the same, but for long requests that are being opened: the client sends no more, and may still read the
    /// answer to a write that was received whole.
    pub(crate) fn give_up_known_reads(&self) {
        let given_up = self.reads.borrow_mut().take_known();
        bump(&self.in_flight, -(given_up.len() as isize));
    }

    /// Its answer is in the output buffer.
    pub(crate) fn end(&self) {
        bump(&self.in_flight, -1);
        self.wake();
    }
}
