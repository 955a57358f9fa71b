//! State of a connection that is visible from outside its task, from its first byte on: its row of
//! `system.connections`, and the reason why it is to end. The connection's task updates it. The
//! session itself belongs to that task alone.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use access::{Access, Login};
use cluster::SessionRoles;
use engine::{
    ClientSession, ClientSoftware, SessionEncryption, SessionRequests, SessionStage, SessionStanding,
    shortened,
};
use frontdoor::Account;
use lanes::sync::Notify;

use crate::failure::{Failure, state};
use crate::postgres::error::End;
use crate::postgres::message::Frame;
use crate::postgres::settings::{Settings, first_of};

/// Time for the client of an ended session to read pending answers and the last message.
const END_WITHIN: Duration = Duration::from_millis(500);
/// Longest stored value of a setting that is shown, bytes.
const NAME_BYTES_MAX: usize = 128;

/// Visible state of one connection.
pub(crate) struct ConnectionStatus {
    /// Number of the session, unique over all cores. Clients get it as process id.
    pub(crate) number: i32,
    /// The client's address.
    pub(crate) peer: SocketAddr,
    /// Time of connecting, milliseconds since 1970.
    connected_ms: i64,
    /// Protocol version. `None` before the startup message.
    version: Cell<Option<&'static str>>,
    /// The connection is encrypted.
    pub(crate) is_encrypted: Cell<bool>,
    /// The common name of the client's certificate, which is a role's name.
    pub(crate) certificate_subject: RefCell<Option<Arc<str>>>,
    /// Memory of its buffers, bytes.
    pub(crate) buffer_bytes: Cell<u64>,
    /// Query and Execute messages so far.
    requests: Cell<u64>,
    /// A message is being processed.
    is_busy: Cell<bool>,
    /// Time of the client's last message, ns of the monotonic clock.
    active_ns: Cell<u64>,
    session: RefCell<Option<SessionStatus>>,
    /// Why the session is to end. `None`: it goes on.
    ended: Cell<Option<Ended>>,
    bell: Notify,
}

/// State known after login.
struct SessionStatus {
    login: Login,
    account: Arc<Account>,
    chosen: Chosen,
    /// Its role at the cluster in front of which the server stands.
    roles: Option<Arc<SessionRoles>>,
}

/// Reason why a session is to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// `CANCEL SESSION` names it.
    ByRequest,
    /// Its role was dropped, lost LOGIN or got another password.
    WithRole,
}

/// Settings that `system.connections` shows.
#[derive(Default, PartialEq, Eq)]
struct Chosen {
    application_name: String,
    search_path: String,
    service_level: String,
}

impl ConnectionStatus {
    /// Creates the state of a new connection.
    pub(crate) fn new(number: i32, peer: SocketAddr) -> ConnectionStatus {
        ConnectionStatus {
            number,
            peer,
            connected_ms: lanes::time::unix_micros() / 1000,
            version: Cell::new(None),
            is_encrypted: Cell::new(false),
            certificate_subject: RefCell::default(),
            buffer_bytes: Cell::new(0),
            requests: Cell::new(0),
            is_busy: Cell::new(false),
            active_ns: Cell::new(lanes::time::monotonic_ns()),
            session: RefCell::default(),
            ended: Cell::new(None),
            bell: Notify::new(),
        }
    }

    /// Records the startup message, with the minor version of the protocol.
    pub(crate) fn started(&self, minor: u32) {
        self.version.set(Some(if minor >= 2 { "3.2" } else { "3.0" }));
    }

    /// Records the login.
    pub(crate) fn logged_in(
        &self,
        login: Login,
        roles: Option<Arc<SessionRoles>>,
        account: Arc<Account>,
        settings: &Settings,
    ) {
        *self.session.borrow_mut() = Some(SessionStatus { login, account, chosen: Chosen::default(), roles });
        self.note(settings);
    }

    /// Records that processing of a message begins.
    pub(crate) fn begin(&self, message: &Frame) {
        if matches!(message.kind, b'Q' | b'E') {
            self.requests.set(self.requests.get() + 1);
        }
        self.is_busy.set(true);
        self.active_ns.set(lanes::time::monotonic_ns());
    }

    /// Records that processing of a message has ended. Settings may have changed.
    pub(crate) fn rest(&self, settings: &Settings) {
        self.is_busy.set(false);
        self.note(settings);
    }

    fn note(&self, settings: &Settings) {
        let mut session = self.session.borrow_mut();
        let Some(SessionStatus { chosen, .. }) = &mut *session else { return };
        for (kept, now) in [
            (&mut chosen.application_name, settings.application_name()),
            (&mut chosen.search_path, settings.search_path()),
            (&mut chosen.service_level, settings.service_level().unwrap_or_default()),
        ] {
            let now = shortened(now, NAME_BYTES_MAX);
            if kept != now {
                now.clone_into(kept);
            }
        }
    }

    /// Returns true if the session belongs to `role`.
    pub(crate) fn is_of(&self, role: &str) -> bool {
        self.session.borrow().as_ref().is_some_and(|session| **session.login.role() == *role)
    }

    /// Returns its role. `None` before login.
    pub(crate) fn role(&self) -> Option<Arc<str>> {
        self.session.borrow().as_ref().map(|session| session.login.role().clone())
    }

    /// Ends the session at the next check of its task.
    pub(crate) fn end(&self, why: Ended) {
        self.ended.set(Some(why));
        self.bell.notify_waiters();
    }

    /// Returns true if a node of the cluster refuses the password of the session.
    fn is_refused(&self) -> bool {
        let session = self.session.borrow();
        let roles = session.as_ref().and_then(|session| session.roles.as_ref());
        roles.is_some_and(|roles| roles.is_ended())
    }

    /// Checks that the session may go on.
    ///
    /// # Errors
    /// The session is to end.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let text = match self.ended.get() {
            None if !self.is_refused() => return Ok(()),
            Some(Ended::ByRequest) => "terminating connection due to administrator command",
            None | Some(Ended::WithRole) => {
                "terminating connection: the role was dropped, lost LOGIN or got another password"
            }
        };
        Err(Failure::fatal(state::SHUTDOWN, text))
    }

    /// Runs `work`, which may be dropped at any await, unless the session is to end.
    ///
    /// # Errors
    /// The session is to end, or `work` failed.
    pub(crate) async fn unless_ended<T>(&self, work: impl Future<Output = Result<T, End>>) -> Result<T, End> {
        let mut work = pin!(work);
        loop {
            self.check().map_err(End::Failed)?;
            tokio::select! { biased;
                done = &mut work => return done,
                () = self.bell.notified() => {}
            }
        }
    }

    /// Writes to the client. The client of an ended session has [`END_WITHIN`] to read it.
    pub(crate) async fn writing(&self, write: impl Future<Output = io::Result<()>>) -> Result<(), End> {
        let mut write = pin!(write);
        while self.ended.get().is_none() {
            tokio::select! { biased;
                done = &mut write => return Ok(done?),
                () = self.bell.notified() => {}
            }
        }
        match lanes::time::timeout(END_WITHIN, write).await {
            Ok(done) => Ok(done?),
            Err(_) => Err(End::Gone),
        }
    }

    /// Returns the connection's row.
    pub(crate) fn described(&self, access: &Access) -> ClientSession {
        let session = self.session.borrow();
        let session = session.as_ref();
        let text = |of: fn(&Chosen) -> &str| {
            let text = session.map(|session| of(&session.chosen)).unwrap_or_default();
            (!text.is_empty()).then(|| text.to_owned())
        };
        let level = session.map(|SessionStatus { login, chosen, .. }| {
            let chosen = Some(&*chosen.service_level).filter(|level| !level.is_empty());
            let of_chosen = chosen.and_then(|level| access.effective_using(login, level).ok());
            of_chosen.unwrap_or_else(|| access.effective(login)).level.name().clone()
        });
        let stage = match session {
            _ if self.ended.get().is_some() => SessionStage::Draining,
            Some(session) if !session.login.is_current() => SessionStage::Draining,
            Some(_) => SessionStage::Ready,
            None => SessionStage::Login,
        };
        let idle_ns = match self.is_busy.get() {
            true => 0,
            false => lanes::time::monotonic_ns().saturating_sub(self.active_ns.get()),
        };
        ClientSession {
            id: id(self.number),
            core: lanes::current_core() as u32,
            protocol: "sql",
            client: self.peer,
            standing: SessionStanding {
                role: session.map(|session| session.login.role().clone()),
                service_level: level,
                stage,
            },
            software: ClientSoftware {
                protocol_version: self.version.get().map(str::to_owned),
                application_name: text(|chosen| &chosen.application_name),
                ..ClientSoftware::default()
            },
            keyspace: text(|chosen| first_of(&chosen.search_path)),
            encryption: SessionEncryption {
                is_encrypted: self.is_encrypted.get(),
                certificate_subject: self.certificate_subject.borrow().as_deref().map(str::to_owned),
            },
            requests: SessionRequests {
                in_flight: u32::from(self.is_busy.get()),
                total: self.requests.get(),
                bytes: self.buffer_bytes.get() + session.map_or(0, |session| session.account.used_bytes()),
            },
            connected_ms: self.connected_ms,
            idle_us: idle_ns / 1000,
        }
    }
}

/// Returns the id of a session, which is also that of its running statement.
pub(crate) fn id(number: i32) -> String {
    format!("sql-{number}")
}
