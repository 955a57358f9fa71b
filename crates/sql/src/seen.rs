//! A connection as others see it, from its first byte on: a row of `system.connections`, and what `CANCEL SESSION` ends. The
//! connection's own task notes here what changes; the session itself stays with that task.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use access::{Cancelled, Login};
use engine::{ClientSession, SessionStage, shortened};
use frontdoor::Account;
use lanes::sync::Notify;

use crate::connection::End;
use crate::failure::{Failure, state};
use crate::message::Frame;
use crate::server::Here;
use crate::settings::Settings;

/// Time for the client of an ended session to take the answers that are on their way, and the last message.
const END_WITHIN: Duration = Duration::from_secs(1);
/// Longest name of an application that is kept, bytes.
const NAME_BYTES_MAX: usize = 128;

/// See the head of this file.
pub(crate) struct Seen {
    /// Names the session on all cores, as its process id does to clients.
    pub(crate) number: i32,
    /// The client's address.
    pub(crate) peer: SocketAddr,
    /// When it connected, milliseconds since 1970.
    connected_ms: i64,
    /// The version of the protocol, once the client has sent its startup message.
    version: Cell<Option<&'static str>>,
    /// The connection is encrypted.
    pub(crate) is_encrypted: Cell<bool>,
    /// The common name of the client's certificate, which is a role's name.
    pub(crate) certificate_subject: RefCell<Option<Arc<str>>>,
    /// Bytes of its buffers.
    pub(crate) buffer_bytes: Cell<u64>,
    /// Statements and portals that were to run so far.
    requests: Cell<u64>,
    /// A message is being worked on.
    is_busy: Cell<bool>,
    /// When the client last sent a message, ns.
    active_ns: Cell<u64>,
    session: RefCell<Option<SeenSession>>,
    /// The session is to end.
    ended: Cell<bool>,
    bell: Notify,
}

/// What is known once the client has logged in.
struct SeenSession {
    login: Login,
    account: Arc<Account>,
    chosen: Chosen,
}

/// Settings of a session that are shown.
#[derive(Default, PartialEq, Eq)]
struct Chosen {
    application_name: String,
    search_path: String,
    service_level: String,
}

impl Seen {
    /// A connection that has just been accepted.
    pub(crate) fn new(number: i32, peer: SocketAddr) -> Seen {
        Seen {
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
            ended: Cell::new(false),
            bell: Notify::new(),
        }
    }

    /// The client has sent its startup message, for this minor version of the protocol.
    pub(crate) fn started(&self, minor: u32) {
        self.version.set(Some(if minor >= 2 { "3.2" } else { "3.0" }));
    }

    /// The client has logged in.
    pub(crate) fn logged_in(&self, login: Login, account: Arc<Account>, settings: &Settings) {
        *self.session.borrow_mut() = Some(SeenSession { login, account, chosen: Chosen::default() });
        self.note(settings);
    }

    /// Work on a message begins.
    pub(crate) fn begin(&self, message: &Frame) {
        if matches!(message.kind, b'Q' | b'E') {
            self.requests.set(self.requests.get() + 1);
        }
        self.is_busy.set(true);
        self.active_ns.set(lanes::time::monotonic_ns());
    }

    /// Work on a message has ended. Settings may have changed.
    pub(crate) fn rest(&self, settings: &Settings) {
        self.is_busy.set(false);
        self.note(settings);
    }

    fn note(&self, settings: &Settings) {
        let mut session = self.session.borrow_mut();
        let Some(SeenSession { chosen, .. }) = &mut *session else { return };
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

    /// Whether the session is one of that role.
    fn is_of(&self, role: &str) -> bool {
        self.session.borrow().as_ref().is_some_and(|session| **session.login.role() == *role)
    }

    /// Its role, once the client has logged in.
    pub(crate) fn role(&self) -> Option<Arc<str>> {
        self.session.borrow().as_ref().map(|session| session.login.role().clone())
    }

    /// Ends the session as soon as its task looks.
    fn end(&self) {
        self.ended.set(true);
        self.bell.notify_waiters();
    }

    /// Checks that the session may go on.
    ///
    /// # Errors
    /// It is to end.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.ended.get() {
            let text = "terminating connection due to administrator command";
            return Err(Failure::fatal(state::SHUTDOWN, text));
        }
        Ok(())
    }

    /// Does what can be left at any time, unless the session is to end.
    ///
    /// # Errors
    /// It is to end.
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

    /// Writes to the client. One whose session ends has [`END_WITHIN`] to read it.
    pub(crate) async fn writing(&self, write: impl Future<Output = io::Result<()>>) -> Result<(), End> {
        let mut write = pin!(write);
        while !self.ended.get() {
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

    /// The connection's row.
    fn described(&self, here: &Here) -> ClientSession {
        let session = self.session.borrow();
        let session = session.as_ref();
        let text = |of: fn(&Chosen) -> &str| {
            let text = session.map(|session| of(&session.chosen)).unwrap_or_default();
            (!text.is_empty()).then(|| text.to_owned())
        };
        let level = session.map(|SeenSession { login, chosen, .. }| {
            let chosen = Some(&*chosen.service_level).filter(|level| !level.is_empty());
            let of_chosen = chosen.and_then(|level| here.access.effective_using(login, level).ok());
            of_chosen.unwrap_or_else(|| here.access.effective(login)).level.name().clone()
        });
        let stage = match session {
            _ if self.ended.get() => SessionStage::Draining,
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
            role: session.map(|session| session.login.role().clone()),
            service_level: level,
            stage,
            protocol_version: self.version.get().map(str::to_owned),
            driver_name: None,
            driver_version: None,
            application_name: text(|chosen| &chosen.application_name),
            keyspace: text(|chosen| crate::settings::first_of(&chosen.search_path)),
            is_encrypted: self.is_encrypted.get(),
            certificate_subject: self.certificate_subject.borrow().as_deref().map(str::to_owned),
            in_flight: u32::from(self.is_busy.get()),
            requests: self.requests.get(),
            bytes: self.buffer_bytes.get() + session.map_or(0, |session| session.account.used_bytes()),
            connected_ms: self.connected_ms,
            idle_us: idle_ns / 1000,
        }
    }
}

/// The id of a session, which is also that of its running statement.
pub(crate) fn id(number: i32) -> String {
    format!("sql-{number}")
}

/// The table `system.connections`, for a core's registry.
pub(crate) fn table(here: &Rc<Here>) -> engine::VirtualTable {
    let (listing, looking) = (Rc::downgrade(here), Rc::downgrade(here));
    let list = move || listing.upgrade().map_or_else(Vec::new, |here| here.connections());
    ClientSession::table(
        list,
        |seen| seen.upgrade()?.role(),
        move |seen| Some(seen.upgrade()?.described(&*looking.upgrade()?)),
    )
}

/// Ends a session of the core, for `CANCEL SESSION`.
pub(crate) fn cancel(here: &Here, wanted: &str, role: Option<&str>) -> Cancelled {
    let number = wanted.strip_prefix("sql-").and_then(|number| number.parse().ok());
    let seen =
        number.and_then(|number: i32| here.connection(number)).filter(|seen| id(seen.number) == wanted);
    match seen {
        None => Cancelled::Unknown,
        Some(seen) if role.is_some_and(|role| !seen.is_of(role)) => Cancelled::OfOther,
        Some(seen) => {
            seen.end();
            here.wake(seen.number);
            Cancelled::Done
        }
    }
}
