//! Sessions of CQL as others see them: `system.connections` (see `engine::ClientSession`), `system_views.clients`, and
//! `CANCEL SESSION`, which ends one.

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

/// Longest name that a client gives of itself and that is kept, bytes.
const NAME_BYTES_MAX: usize = 128;

/// Time for an ended session to finish its writes and to send its last answers. Then it is closed as it is.
const END_WITHIN: Duration = Duration::from_secs(1);

/// What `system.connections` shows of a client.
#[derive(Debug)]
pub(crate) struct ClientFacts {
    /// When it connected, milliseconds since 1970.
    connected_ms: i64,
    /// Requests after login.
    requests: Cell<u64>,
    /// What its STARTUP said.
    startup: OnceCell<Box<Startup>>,
    /// The connection is encrypted.
    pub(crate) is_encrypted: Cell<bool>,
    /// The common name of the client's certificate, which is a role's name.
    pub(crate) certificate_subject: RefCell<Option<Arc<str>>>,
}

/// What a STARTUP message said.
#[derive(Debug)]
struct Startup {
    version: Version,
    driver_name: Option<String>,
    driver_version: Option<String>,
    application_name: Option<String>,
}

impl ClientFacts {
    /// Those of a client that has just connected.
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

    /// Keeps what a STARTUP said. `named` returns the value of one of its options.
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
    /// Whether the session has authenticated as that role.
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
        // Before login the account is the one of all connections.
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

    /// Ends the session. What it reads and what waits for a slot is cancelled and answered with an error. Writes go on to
    /// their end; their answers are sent if they are there within [`END_WITHIN`].
    fn end_by_request(self: &Rc<Self>) {
        let streams: Vec<i16> = self.reads.borrow().running().map(|(_, running)| running.stream).collect();
        self.give_up_reads();
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

/// Names a session of a core. The ids of its statements begin with it.
fn id(core: &Core, session: u64) -> String {
    format!("{}-{session}", core.index)
}

/// Ends a session of the core, for `CANCEL SESSION`.
pub(crate) fn cancel(core: &Core, wanted: &str, role: Option<&str>) -> Cancelled {
    let number = wanted.split_once('-').and_then(|(_, number)| number.parse::<u64>().ok());
    let session = number.and_then(|number| core.sessions.borrow().get(&number).cloned());
    // Compared as a whole: an id has one spelling.
    match session.filter(|session| id(core, session.id) == wanted) {
        None => Cancelled::Unknown,
        Some(session) if role.is_some_and(|role| !session.is_of(role)) => Cancelled::OfOther,
        Some(session) => {
            session.end_by_request();
            Cancelled::Done
        }
    }
}

/// This core's sessions.
fn list(core: &Rc<Core>) -> impl Fn() -> Vec<Weak<Session>> + 'static {
    let core = Rc::downgrade(core);
    move || {
        let Some(core) = core.upgrade() else { return Vec::new() };
        core.sessions.borrow().values().map(Rc::downgrade).collect()
    }
}

/// A session that was listed, while its connection lasts.
fn listed(session: &Weak<Session>) -> Option<Rc<Session>> {
    let session = session.upgrade()?;
    let is_open = session.core.sessions.borrow().contains_key(&session.id);
    is_open.then_some(session)
}

fn role_of(session: &Weak<Session>) -> Option<Arc<str>> {
    session.upgrade()?.role_name()
}

/// The table `system.connections`, for a core's registry.
pub(crate) fn table(core: &Rc<Core>) -> VirtualTable {
    ClientSession::table(list(core), role_of, |session| Some(listed(session)?.described()))
}

/// The connections as Cassandra and ScyllaDB show them. A role is shown its own.
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
