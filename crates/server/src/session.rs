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

/// Identity of an authenticated session.
pub(crate) struct Role {
    pub(crate) login: Rc<Login>,
    /// Number of the role on this core.
    pub(crate) number: u32,
}

/// Tasks of the session that end with its connection, by key: reads, work on files, and requests
/// that wait for a slot.
#[derive(Default)]
pub(crate) struct CancellableTasks {
    tasks: Vec<Option<StoredTask>>,
    free: Vec<usize>,
    /// Number of the last task. Numbers are never reused.
    numbers: u64,
}

/// A task with its description.
struct StoredTask {
    task: lanes::Task<()>,
    running: Running,
    number: u64,
}

impl CancellableTasks {
    /// Reserves a key for a task.
    pub(crate) fn reserve(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.tasks.push(None);
            self.tasks.len() - 1
        })
    }

    /// Stores a task under its key. The task is cancelled when the connection ends and drops it.
    pub(crate) fn store(&mut self, key: usize, task: lanes::Task<()>, running: Running) {
        self.numbers += 1;
        self.tasks[key] = Some(StoredTask { task, running, number: self.numbers });
    }

    /// Returns the statements that run or wait, each with its number.
    pub(crate) fn running(&self) -> impl Iterator<Item = (u64, &Running)> {
        self.tasks.iter().flatten().map(|stored| (stored.number, &stored.running))
    }

    /// Removes the task with that number, so that the caller can end it.
    pub(crate) fn take(&mut self, number: u64) -> Option<(lanes::Task<()>, Running)> {
        let of_number =
            |stored: &Option<StoredTask>| stored.as_ref().is_some_and(|stored| stored.number == number);
        let key = self.tasks.iter().position(of_number)?;
        let StoredTask { task, running, .. } = self.tasks[key].take()?;
        self.free.push(key);
        Some((task, running))
    }

    /// Removes the tasks known to be reads or to wait for a slot.
    fn take_known(&mut self) -> Vec<StoredTask> {
        let mut known = Vec::new();
        for (key, entry) in self.tasks.iter_mut().enumerate() {
            if let Some(stored) = entry.take_if(|stored| !stored.running.is_being_opened()) {
                known.push(stored);
                self.free.push(key);
            }
        }
        known
    }

    /// Frees the key of a task that is about to end by itself.
    pub(crate) fn done(&mut self, key: usize) {
        // The list is empty if the connection has ended.
        if let Some(stored) = self.tasks.get_mut(key).and_then(Option::take) {
            stored.task.detach();
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
    /// Sending half of the socket, from the TLS handshake to the end of the connection.
    pub(crate) output: RefCell<Option<WriteHalf>>,
    pub(crate) sending: Cell<Sending>,
    /// Number of requests whose answers are not in the output buffer yet.
    pub(crate) in_flight: Cell<usize>,
    pub(crate) role: RefCell<Option<Role>>,
    pub(crate) keyspace: RefCell<Option<Rc<str>>>,
    /// True if the client registered for schema changes.
    pub(crate) wants_schema: Cell<bool>,
    /// Time of the last bytes received or of the last request in flight, ns of the monotonic clock.
    pub(crate) active_ns: Cell<u64>,
    /// True if no more requests are read. Requests in flight finish.
    pub(crate) draining: Cell<bool>,
    /// True if the connection must close at once.
    pub(crate) killed: Cell<bool>,
    pub(crate) unacked: RefCell<Unacked>,
    /// Tasks that are cancelled when the connection ends.
    pub(crate) cancellable_tasks: RefCell<CancellableTasks>,
    /// Memory account of the session's requests.
    pub(crate) account: RefCell<Arc<Account>>,
    /// Large answers, to be sent before the contents of the encoder.
    pub(crate) outbox: RefCell<VecDeque<Unsent>>,
    /// Reads paused by backpressure until the client reads its answers.
    pub(crate) paused_reads: RefCell<Vec<Waker>>,
    /// Bytes of answers that are being encoded on the heavy lane.
    pub(crate) encoding_bytes: Cell<usize>,
    /// Upper bound of the bytes in pages of the reads in flight.
    pub(crate) paged_bytes: Cell<usize>,
    /// Client facts for `system.connections`.
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
            cancellable_tasks: RefCell::default(),
            outbox: RefCell::default(),
            paused_reads: RefCell::default(),
            encoding_bytes: Cell::new(0),
            paged_bytes: Cell::new(0),
            client: ClientFacts::new(),
            connection: RefCell::new(None),
        })
    }

    /// Returns the session's current settings. Costs one atomic load while roles and levels are
    /// unchanged. Starts draining if the login is no longer valid.
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

    /// Assigns the session, and the memory account of its requests, to a role. When that login
    /// loses its validity, the session drains: it sends the answers to pending writes and then
    /// ends.
    pub(crate) fn log_in(self: &Rc<Self>, login: Login) {
        let session = Rc::downgrade(self);
        login.on_end(move || {
            let Some(session) = session.upgrade() else { return };
            session.draining.set(true);
            session.cancel_tasks();
            session.wake();
        });
        let number = self.core.role_number(login.role());
        *self.account.borrow_mut() = self.core.shared.config.accounts.connection(login.role());
        *self.role.borrow_mut() = Some(Role { login: Rc::new(login), number });
    }

    /// Returns the role's number on this core, or 0 before authentication.
    pub(crate) fn role_number(&self) -> u32 {
        self.role.borrow().as_ref().map_or(0, |role| role.number)
    }

    /// Returns the login, or `None` before authentication.
    pub(crate) fn login(&self) -> Option<Rc<Login>> {
        self.role.borrow().as_ref().map(|role| role.login.clone())
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
        let mut encoder = self.encoder.borrow_mut();
        if encoder.pending() == 0 {
            let out = encoder.finish();
            if out.capacity() == 0 {
                *out = self.core.buffers.take();
            }
        }
    }

    /// Appends an ERROR and counts it.
    pub(crate) fn refuse(&self, stream: i16, failure: &Failure) {
        self.core.counters.error(failure.kind.code());
        let mut encoder = self.encoder.borrow_mut();
        if encoder.error(stream, failure, &Prelude::default()).is_err() {
            let plain = Failure::new(FailureKind::Server, "The error does not fit the protocol");
            encoder.error(stream, &plain, &Prelude::default()).expect("a server error has no fields");
        }
    }

    /// Appends an event and returns true if the client registered for it. Disconnects a client that
    /// does not read its answers.
    pub(crate) fn send_event(&self, event: &Event) -> bool {
        if !self.wants_schema.get() {
            return false;
        }
        if self.unsent_bytes() > self.core.shared.config.output_bytes_max {
            self.killed.set(true);
        } else {
            // An event too long for the protocol has names that no client can have created.
            let _ = self.encoder.borrow_mut().event(event);
        }
        self.wake();
        true
    }

    /// Counts a request whose answer comes later.
    pub(crate) fn begin(&self) {
        bump(&self.in_flight, 1);
    }

    /// Cancels reads and work on files in flight, requests that wait for a slot, and long requests
    /// that are being opened. Called when the connection has ended.
    pub(crate) fn cancel_tasks(&self) {
        // Taken out first: dropping a task may borrow `cancellable_tasks` again.
        let tasks = std::mem::take(&mut *self.cancellable_tasks.borrow_mut());
        bump(&self.in_flight, -(tasks.tasks.iter().flatten().count() as isize));
    }

    /// Cancels the same tasks except long requests that are being opened. The client sends no more
    /// bytes, but may still read the answer to a write that was received completely.
    pub(crate) fn cancel_known_tasks(&self) {
        let cancelled = self.cancellable_tasks.borrow_mut().take_known();
        bump(&self.in_flight, -(cancelled.len() as isize));
    }

    /// Counts the request as answered and wakes the connection.
    pub(crate) fn end(&self) {
        bump(&self.in_flight, -1);
        self.wake();
    }
}
