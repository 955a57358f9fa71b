//! `system.connections`: the connections of all listeners, before and after login. A role is shown its own sessions; roles that may
//! DESCRIBE ALL ROLES see all. `CANCEL SESSION` ends one by its id.
//!
//! There may be as many rows as connections, so they are made in chunks: a session is looked at when its row is made, and one that
//! has ended by then has none.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use schema::CqlType;

use crate::{About, LaterRows, Subject, Viewer, VirtualRow, VirtualTable};

/// Work units of one row: two dozen cells, about 2 µs.
const ROW_UNITS: u32 = 20;
/// Sessions that are listed for one work unit.
const LISTED_PER_UNIT: usize = 16;

/// The stage that a session is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SessionStage {
    /// The client has not authenticated.
    #[default]
    Login,
    /// Statements are accepted.
    Ready,
    /// The session ends; no further statements are accepted.
    Draining,
}

impl SessionStage {
    fn name(self) -> &'static str {
        match self {
            SessionStage::Login => "login",
            SessionStage::Ready => "ready",
            SessionStage::Draining => "draining",
        }
    }
}

/// A connection of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientSession {
    /// Names the session. No other session of the server has this id while it lasts.
    pub id: String,
    /// Its core.
    pub core: u32,
    /// The listener: `cql` or `sql`.
    pub protocol: &'static str,
    /// The client's address.
    pub client: SocketAddr,
    /// Its role, once it has authenticated.
    pub role: Option<Arc<str>>,
    /// The service level of its next statement, once it has authenticated.
    pub service_level: Option<Arc<str>>,
    /// Its stage.
    pub stage: SessionStage,
    /// The version of the protocol, once it is agreed on.
    pub protocol_version: Option<String>,
    /// The name of the client's driver, if it gave one.
    pub driver_name: Option<String>,
    /// The version of the client's driver, if it gave one.
    pub driver_version: Option<String>,
    /// The name of the application, if the client gave one.
    pub application_name: Option<String>,
    /// The keyspace of names without one.
    pub keyspace: Option<String>,
    /// The connection is encrypted.
    pub is_encrypted: bool,
    /// The subject of the client's certificate.
    pub certificate_subject: Option<String>,
    /// Requests that are not answered yet.
    pub in_flight: u32,
    /// Requests so far, after login.
    pub requests: u64,
    /// Bytes of its requests, and of answers that it has not read.
    pub bytes: u64,
    /// When it connected, milliseconds since 1970.
    pub connected_ms: i64,
    /// Time since the client last sent something, microseconds; 0 while requests are in flight.
    pub idle_us: u64,
}

/// Returns the beginning of a name that a client gave, of at most `bytes_max` bytes and whole characters.
#[must_use]
pub fn shortened(name: &str, bytes_max: usize) -> &str {
    let end = (0..=bytes_max.min(name.len())).rev().find(|end| name.is_char_boundary(*end));
    &name[..end.unwrap_or_default()]
}

fn text(text: &str) -> Option<Bytes> {
    Some(Bytes::copy_from_slice(text.as_bytes()))
}

fn int(number: u32) -> Option<Bytes> {
    Some(Bytes::copy_from_slice(&i32::try_from(number).unwrap_or(i32::MAX).to_be_bytes()))
}

fn bigint(number: u64) -> Option<Bytes> {
    Some(Bytes::copy_from_slice(&i64::try_from(number).unwrap_or(i64::MAX).to_be_bytes()))
}

fn inet(client: SocketAddr) -> Option<Bytes> {
    Some(match client.ip().to_canonical() {
        IpAddr::V4(ip) => Bytes::copy_from_slice(&ip.octets()),
        IpAddr::V6(ip) => Bytes::copy_from_slice(&ip.octets()),
    })
}

impl ClientSession {
    /// The table, for a core's registry, which adds up those of several listeners. `list` lists the core's sessions, `role` returns the
    /// role of one, and `look` describes one unless it has ended.
    pub fn table<T: 'static>(
        list: impl Fn() -> Vec<T> + 'static,
        role: impl Fn(&T) -> Option<Arc<str>> + 'static,
        look: impl Fn(&T) -> Option<ClientSession> + 'static,
    ) -> VirtualTable {
        use CqlType::{BigInt, Boolean, Inet, Int, Text, Timestamp};
        let columns = [
            ("id", Text),
            ("core", Int),
            ("protocol", Text),
            ("address", Inet),
            ("port", Int),
            ("role", Text),
            ("service_level", Text),
            ("stage", Text),
            ("protocol_version", Text),
            ("driver_name", Text),
            ("driver_version", Text),
            ("application_name", Text),
            ("keyspace_name", Text),
            ("encrypted", Boolean),
            ("certificate_subject", Text),
            ("requests_in_flight", Int),
            ("requests", BigInt),
            ("bytes_held", BigInt),
            ("connected_at", Timestamp),
            ("idle_us", BigInt),
        ];
        let rows = session_rows(list, role, move |session| look(session).map(|session| session.row()));
        VirtualTable::new("system", "connections", 1, 0, &columns, Vec::new)
            .in_chunks(rows)
            .of_every_core()
            .about(Subject::Role(5))
    }

    fn row(&self) -> VirtualRow {
        let optional = |value: &Option<String>| value.as_deref().and_then(text);
        vec![
            text(&self.id),
            int(self.core),
            Some(Bytes::from_static(self.protocol.as_bytes())),
            inet(self.client),
            int(self.client.port().into()),
            self.role.as_deref().and_then(text),
            self.service_level.as_deref().and_then(text),
            Some(Bytes::from_static(self.stage.name().as_bytes())),
            optional(&self.protocol_version),
            optional(&self.driver_name),
            optional(&self.driver_version),
            optional(&self.application_name),
            optional(&self.keyspace),
            Some(Bytes::from_static(if self.is_encrypted { &[1] } else { &[0] })),
            optional(&self.certificate_subject),
            int(self.in_flight),
            bigint(self.requests),
            bigint(self.bytes),
            Some(Bytes::copy_from_slice(&self.connected_ms.to_be_bytes())),
            bigint(self.idle_us),
        ]
    }
}

/// Rows about a core's sessions, in chunks, for [`VirtualTable::in_chunks`]. `list` lists the sessions, `role` returns the role of one,
/// and `row` makes its row unless it has ended. Sessions of roles that the viewer is not shown cost next to nothing.
pub fn session_rows<T: 'static>(
    list: impl Fn() -> Vec<T> + 'static,
    role: impl Fn(&T) -> Option<Arc<str>> + 'static,
    row: impl Fn(&T) -> Option<VirtualRow> + 'static,
) -> impl Fn(Option<Arc<dyn Viewer>>) -> LaterRows + 'static {
    let (role, row) = (Rc::new(role), Rc::new(row));
    move |viewer| {
        let (role, row, sessions) = (role.clone(), row.clone(), list());
        let _ = lanes::spend((sessions.len() / LISTED_PER_UNIT) as u32);
        Box::pin(async move {
            let mut rows = Vec::new();
            for session in sessions {
                let is_shown = viewer.as_ref().is_none_or(|viewer| {
                    viewer.sees(About::Role(role(&session).as_deref().unwrap_or_default()))
                });
                if is_shown {
                    rows.extend(row(&session));
                }
                if lanes::spend(if is_shown { ROW_UNITS } else { 1 }) {
                    lanes::yield_now().await;
                }
            }
            rows
        })
    }
}

#[cfg(test)]
mod tests {
    use lanes::{Config, Group, Lanes, UNITS_MAX};

    use super::*;

    /// Sees the role `ann`.
    #[derive(Debug)]
    struct Ann;

    impl Viewer for Ann {
        fn sees(&self, about: About<'_>) -> bool {
            about == About::Role("ann")
        }
    }

    fn session(number: usize) -> ClientSession {
        ClientSession {
            id: format!("0-{number}"),
            core: 0,
            protocol: "cql",
            client: SocketAddr::from(([127, 0, 0, 1], 1)),
            role: role(&number),
            service_level: None,
            stage: SessionStage::Ready,
            protocol_version: None,
            driver_name: None,
            driver_version: None,
            application_name: None,
            keyspace: None,
            is_encrypted: false,
            certificate_subject: None,
            in_flight: 0,
            requests: 0,
            bytes: 0,
            connected_ms: 0,
            idle_us: 0,
        }
    }

    /// One session in four has not logged in, one is ann's.
    fn role(number: &usize) -> Option<Arc<str>> {
        [None, Some("ann"), Some("bob"), Some("bob")][number % 4].map(Arc::from)
    }

    #[test]
    fn sixteen_thousand_rows_are_made_in_bounded_polls() {
        const SESSIONS: usize = 16_384;
        let lanes =
            Lanes::start(Config { cores: vec![0], pin: false, ..Config::detect() }).expect("lanes start");
        let rows = |viewer: Option<Arc<dyn Viewer>>| {
            lanes.block_on(0, Group::CONTROL, || async move {
                let list = || (0..SESSIONS).collect();
                // The last one has ended since it was listed.
                let look = |number: &usize| (*number != SESSIONS - 1).then(|| session(*number));
                let table = ClientSession::table(list, role, look);
                let rows = table.rows(viewer).await;
                assert!(rows.iter().all(|row| row.len() == table.def.columns.len()));
                rows.len()
            })
        };
        assert_eq!(rows(None), SESSIONS - 1);
        assert_eq!(rows(Some(Arc::new(Ann))), SESSIONS / 4);
        lanes.block_on(0, Group::CONTROL, || async {});
        assert!((1..=UNITS_MAX).contains(&lanes.most_units(0)), "{}", lanes.most_units(0));
        lanes.shutdown();
    }

    #[test]
    fn names_are_shortened_between_characters() {
        for (name, bytes_max, expected) in
            [("till", 9, "till"), ("till", 2, "ti"), ("aßb", 2, "a"), ("ß", 0, "")]
        {
            assert_eq!(shortened(name, bytes_max), expected, "{name} {bytes_max}");
        }
    }

    #[test]
    fn listeners_add_their_rows_to_one_table() {
        let lanes =
            Lanes::start(Config { cores: vec![0], pin: false, ..Config::detect() }).expect("lanes start");
        let rows = lanes.block_on(0, Group::CONTROL, || async {
            let registry = crate::Registry::default();
            for from in [0, 10] {
                let list = move || (from..from + 3).collect();
                registry.add_rows(ClientSession::table(list, role, |number| Some(session(*number))));
            }
            let table = registry.get("system", "connections").expect("added");
            assert!(table.rows_at_once().is_none(), "made in chunks");
            table.rows(None).await.len()
        });
        assert_eq!(rows, 6);
        lanes.shutdown();
    }
}
