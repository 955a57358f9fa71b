//! Views of CQL sessions: `system.connections` (see `engine::ClientSession`),
//! `system_views.clients`, and `CANCEL SESSION`, which ends one.

use std::rc::{Rc, Weak};
use std::sync::Arc;

use access::Cancelled;
use engine::{
    ClientSession, ClientSoftware, SessionEncryption, SessionRequests, SessionStage, SessionStanding,
    Subject, VirtualRow, VirtualTable, session_rows,
};
use schema::CqlType;
use wire::{Failure, FailureKind};

use crate::cells::{bigint, inet, int, text};
use crate::session::Session;
use crate::sessions::Sessions;

fn described(session: &Session) -> ClientSession {
    let client = &session.client;
    let login = session.login();
    let stage = match &login {
        _ if session.life.draining.get() || session.life.killed.get() => SessionStage::Draining,
        Some(_) => SessionStage::Ready,
        None => SessionStage::Login,
    };
    let level = login.as_ref().map(|login| session.core.access.effective(login).level.name().clone());
    let in_flight = session.requests.in_flight.get();
    // Before login, the session uses the account of all connections.
    let requests_bytes = if login.is_some() { session.account.borrow().used_bytes() } else { 0 };
    let idle_ns = match in_flight {
        0 => lanes::time::monotonic_ns().saturating_sub(session.life.active_ns.get()),
        _ => 0,
    };
    let startup = client.startup();
    ClientSession {
        id: id(session),
        core: session.core.index as u32,
        protocol: "cql",
        client: session.peer,
        standing: SessionStanding { role: session.role_name(), service_level: level, stage },
        software: ClientSoftware {
            protocol_version: startup.map(|startup| startup.version.number().to_string()),
            driver_name: startup.and_then(|startup| startup.driver_name.clone()),
            driver_version: startup.and_then(|startup| startup.driver_version.clone()),
            application_name: startup.and_then(|startup| startup.application_name.clone()),
        },
        keyspace: session.keyspace.borrow().as_deref().map(str::to_owned),
        encryption: SessionEncryption {
            is_encrypted: client.is_encrypted.get(),
            certificate_subject: client.certificate_subject.borrow().as_deref().map(str::to_owned),
        },
        requests: SessionRequests {
            in_flight: in_flight as u32,
            total: client.requests.get(),
            bytes: requests_bytes + session.answer_bytes() as u64,
        },
        connected_ms: client.connected_ms,
        idle_us: idle_ns / 1000,
    }
}

/// Returns the id of a session. The ids of its statements begin with it.
fn id(session: &Session) -> String {
    format!("{}-{}", session.core.index, session.id)
}

/// Ends a session of the core, for `CANCEL SESSION`.
pub(crate) fn cancel(sessions: &Sessions, wanted: &str, role: Option<&str>) -> Cancelled {
    let number = wanted.split_once('-').and_then(|(_, number)| number.parse::<u64>().ok());
    let session = number.and_then(|number| sessions.by_id.borrow().get(&number).cloned());
    // Compare the whole id: a number has several spellings, such as `7` and `07`, but an id has
    // only one.
    match session.filter(|session| id(session) == wanted) {
        None => Cancelled::Unknown,
        Some(session) if role.is_some_and(|role| !session.is_of(role)) => Cancelled::OfOther,
        Some(session) => {
            session.end_with(&Failure::new(FailureKind::Invalid, "The session was ended (CANCEL SESSION)"));
            Cancelled::Done
        }
    }
}

/// A session of a list. The connection may have ended.
type Listed = (Weak<Sessions>, Weak<Session>);

/// Returns a function that lists this core's sessions.
fn list(sessions: &Rc<Sessions>) -> impl Fn() -> Vec<Listed> + 'static {
    let weak = Rc::downgrade(sessions);
    move || {
        let Some(sessions) = weak.upgrade() else { return Vec::new() };
        let listed = |session| (weak.clone(), Rc::downgrade(session));
        sessions.by_id.borrow().values().map(listed).collect()
    }
}

/// Returns a listed session, or `None` if its connection has ended.
fn listed((sessions, session): &Listed) -> Option<Rc<Session>> {
    let session = session.upgrade()?;
    let is_open = sessions.upgrade()?.by_id.borrow().contains_key(&session.id);
    is_open.then_some(session)
}

fn role_of((_, session): &Listed) -> Option<Arc<str>> {
    session.upgrade()?.role_name()
}

/// Returns the table `system.connections` for a core's registry.
pub(crate) fn table(sessions: &Rc<Sessions>) -> VirtualTable {
    ClientSession::table(list(sessions), role_of, |session| {
        listed(session).map(|session| described(&session))
    })
}

/// Returns the table of connections in the layout of Cassandra, with the column `shard_id` of
/// ScyllaDB. A role sees only its own.
pub(crate) fn clients(sessions: &Rc<Sessions>) -> VirtualTable {
    use CqlType::{BigInt, Boolean, Inet, Int, Text};
    let columns = [
        ("address", Inet),
        ("port", Int),
        ("connection_stage", Text),
        ("driver_name", Text),
        ("driver_version", Text),
        ("hostname", Text),
        ("keyspace_name", Text),
        ("protocol_version", Int),
        ("request_count", BigInt),
        ("shard_id", Int),
        ("ssl_cipher_suite", Text),
        ("ssl_enabled", Boolean),
        ("ssl_protocol", Text),
        ("username", Text),
    ];
    let row = |session: &Listed| -> Option<VirtualRow> {
        let session = listed(session)?;
        let (client, startup) = (&session.client, session.client.startup());
        let is_encrypted = client.is_encrypted.get();
        Some(vec![
            inet(session.peer.ip()),
            int(i32::from(session.peer.port())),
            text(if session.login().is_some() { "ready" } else { "authenticating" }),
            startup.and_then(|startup| startup.driver_name.as_deref()).and_then(text),
            startup.and_then(|startup| startup.driver_version.as_deref()).and_then(text),
            // Names of addresses would need a resolver.
            text(&session.peer.ip().to_string()),
            session.keyspace.borrow().as_deref().and_then(text),
            startup.and_then(|startup| int(i32::from(startup.version.number()))),
            bigint(i64::try_from(client.requests.get()).unwrap_or(i64::MAX)),
            int(i32::try_from(session.core.index).unwrap_or(i32::MAX)),
            None,
            Some(bytes::Bytes::from_static(if is_encrypted { &[1] } else { &[0] })),
            None,
            session.role_name().as_deref().and_then(text),
        ])
    };
    VirtualTable::new("system_views", "clients", 1, 1, &columns, Vec::new)
        .in_chunks(session_rows(list(sessions), role_of, row))
        .of_every_core()
        .about(Subject::Role(columns.len() - 1))
}
