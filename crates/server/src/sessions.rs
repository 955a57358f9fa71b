//! Views of CQL sessions: `system.connections` (see `engine::ClientSession`),
//! `system_views.clients`, and `CANCEL SESSION`, which ends one.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use access::Cancelled;
use engine::{ClientSession, SessionStage, Subject, VirtualRow, VirtualTable, session_rows, shortened};
use schema::CqlType;
use wire::{Failure, FailureKind, Version};

use crate::core::Core;
use crate::session::Session;
use crate::system::{inet, int, text};

/// Maximum length of a name sent by a client in STARTUP, bytes. Longer names are shortened.
const NAME_BYTES_MAX: usize = 128;

/// Time for an ended session to finish its writes and to send its last answers. Then its connection
/// is closed.
const END_WITHIN: Duration = Duration::from_secs(1);

/// Facts about a client for `system.connections`.
#[derive(Debug)]
pub(crate) struct ClientFacts {
    /// Connection time, milliseconds since 1970.
    connected_ms: i64,
    /// Number of requests after login.
    requests: Cell<u64>,
    /// Contents of its STARTUP, once received.
    startup: OnceCell<Box<Startup>>,
    /// True if the connection is encrypted.
    pub(crate) is_encrypted: Cell<bool>,
    /// Common name of the client's certificate, which is a role's name.
    pub(crate) certificate_subject: RefCell<Option<Arc<str>>>,
}

/// Contents of a STARTUP message.
#[derive(Debug)]
struct Startup {
    version: Version,
    driver_name: Option<String>,
    driver_version: Option<String>,
    application_name: Option<String>,
}

impl ClientFacts {
    /// Creates the facts of a client that has just connected.
    pub(crate) fn new() -> ClientFacts {
        ClientFacts {
            connected_ms: lanes::time::unix_micros() / 1000,
            requests: Cell::new(0),
            startup: OnceCell::new(),
            is_encrypted: Cell::new(false),
            certificate_subject: RefCell::default(),
        }
    }

    /// Counts a request.
    pub(crate) fn count(&self) {
        self.requests.set(self.requests.get() + 1);
    }

    /// Stores the contents of STARTUP. `named` returns the value of an option.
    pub(crate) fn started<'a>(&self, version: Version, named: impl Fn(&str) -> Option<&'a str>) {
        let name = |key| named(key).map(|name| shortened(name, NAME_BYTES_MAX).to_owned());
        self.startup.get_or_init(|| {
            Box::new(Startup {
                version,
                driver_name: name("DRIVER_NAME"),
                driver_version: name("DRIVER_VERSION"),
                application_name: name("APPLICATION_NAME"),
            })
        });
    }
}

impl Session {
    /// Returns true if the session has authenticated as that role.
    pub(crate) fn is_of(&self, role: &str) -> bool {
        self.role.borrow().as_ref().is_some_and(|own| **own.login.role() == *role)
    }

    fn role_name(&self) -> Option<Arc<str>> {
        self.role.borrow().as_ref().map(|role| role.login.role().clone())
    }

    fn described(&self) -> ClientSession {
        let ClientFacts { connected_ms, requests, startup, is_encrypted, certificate_subject } = &self.client;
        let login = self.login();
        let stage = match &login {
            _ if self.draining.get() || self.killed.get() => SessionStage::Draining,
            Some(_) => SessionStage::Ready,
            None => SessionStage::Login,
        };
        let level = login.as_ref().map(|login| self.core.access.effective(login).level.name().clone());
        let in_flight = self.in_flight.get();
        // Before login, the session uses the account of all connections.
        let requests_bytes = if login.is_some() { self.account.borrow().used_bytes() } else { 0 };
        let idle_ns = match in_flight {
            0 => lanes::time::monotonic_ns().saturating_sub(self.active_ns.get()),
            _ => 0,
        };
        let startup = startup.get();
        ClientSession {
            id: id(&self.core, self.id),
            core: self.core.index as u32,
            protocol: "cql",
            client: self.peer,
            role: self.role_name(),
            service_level: level,
            stage,
            protocol_version: startup.map(|startup| startup.version.number().to_string()),
            driver_name: startup.and_then(|startup| startup.driver_name.clone()),
            driver_version: startup.and_then(|startup| startup.driver_version.clone()),
            application_name: startup.and_then(|startup| startup.application_name.clone()),
            keyspace: self.keyspace.borrow().as_deref().map(str::to_owned),
            is_encrypted: is_encrypted.get(),
            certificate_subject: certificate_subject.borrow().as_deref().map(str::to_owned),
            in_flight: in_flight as u32,
            requests: requests.get(),
            bytes: requests_bytes + self.answer_bytes() as u64,
            connected_ms: *connected_ms,
            idle_us: idle_ns / 1000,
        }
    }

    /// Ends the session. Cancels its reads and the statements that wait for a slot, and answers
    /// them with an error. Writes continue to their end. Their answers are sent if they are ready
    /// within [`END_WITHIN`].
    fn end_by_request(self: &Rc<Self>) {
        let streams: Vec<i16> =
            self.cancellable_tasks.borrow().running().map(|(_, running)| running.stream).collect();
        self.cancel_tasks();
        let failure = Failure::new(FailureKind::Invalid, "The session was ended (CANCEL SESSION)");
        streams.iter().for_each(|stream| self.refuse(*stream, &failure));
        self.draining.set(true);
        self.wake();
        let ended = Rc::downgrade(self);
        let close = async move {
            lanes::time::sleep(END_WITHIN).await;
            let Some(session) = ended.upgrade() else { return };
            session.killed.set(true);
            session.wake();
        };
        lanes::spawn(lanes::current_group(), close).detach();
    }
}

/// Returns the id of a session. The ids of its statements begin with it.
fn id(core: &Core, session: u64) -> String {
    format!("{}-{session}", core.index)
}

/// Ends a session of the core, for `CANCEL SESSION`.
pub(crate) fn cancel(core: &Core, wanted: &str, role: Option<&str>) -> Cancelled {
    let number = wanted.split_once('-').and_then(|(_, number)| number.parse::<u64>().ok());
    let session = number.and_then(|number| core.sessions.borrow().get(&number).cloned());
    // Compare the whole id: a number has several spellings, such as `7` and `07`, but an id has
    // only one.
    match session.filter(|session| id(core, session.id) == wanted) {
        None => Cancelled::Unknown,
        Some(session) if role.is_some_and(|role| !session.is_of(role)) => Cancelled::OfOther,
        Some(session) => {
            session.end_by_request();
            Cancelled::Done
        }
    }
}

/// Returns a function that lists this core's sessions.
fn list(core: &Rc<Core>) -> impl Fn() -> Vec<Weak<Session>> + 'static {
    let core = Rc::downgrade(core);
    move || {
        let Some(core) = core.upgrade() else { return Vec::new() };
        core.sessions.borrow().values().map(Rc::downgrade).collect()
    }
}

/// Returns a listed session, or `None` if its connection has ended.
fn listed(session: &Weak<Session>) -> Option<Rc<Session>> {
    let session = session.upgrade()?;
    let is_open = session.core.sessions.borrow().contains_key(&session.id);
    is_open.then_some(session)
}

fn role_of(session: &Weak<Session>) -> Option<Arc<str>> {
    session.upgrade()?.role_name()
}

/// Returns the table `system.connections` for a core's registry.
pub(crate) fn table(core: &Rc<Core>) -> VirtualTable {
    ClientSession::table(list(core), role_of, |session| Some(listed(session)?.described()))
}

/// Returns the table of connections in the layout of Cassandra and ScyllaDB. A role sees only its
/// own.
pub(crate) fn clients(core: &Rc<Core>) -> VirtualTable {
    use CqlType::{Inet, Int, Text};
    let columns =
        [("address", Inet), ("port", Int), ("keyspace_name", Text), ("shard_id", Int), ("username", Text)];
    let row = |session: &Weak<Session>| -> Option<VirtualRow> {
        let session = listed(session)?;
        Some(vec![
            inet(session.peer.ip()),
            int(i32::from(session.peer.port())),
            session.keyspace.borrow().as_deref().and_then(text),
            int(i32::try_from(session.core.index).unwrap_or(i32::MAX)),
            session.role_name().as_deref().and_then(text),
        ])
    };
    VirtualTable::new("system_views", "clients", 1, 1, &columns, Vec::new)
        .in_chunks(session_rows(list(core), role_of, row))
        .of_every_core()
        .about(Subject::Role(columns.len() - 1))
}
