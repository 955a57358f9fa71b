//! `system.connections`: connections of all listeners, before and after login. A role sees its own
//! sessions. A role that may DESCRIBE ALL ROLES sees all. `CANCEL SESSION` ends a session by its
//! id.
//!
//! There may be as many rows as connections, so rows are created in chunks. Each row shows its
//! session at the time when the row is created. A session that has ended by then has no row.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use schema::CqlType;

use crate::{About, LaterRows, Subject, Viewer, VirtualRow, VirtualTable};

/// Work units of one row: two dozen cells, about 2 µs.
const ROW_UNITS: u32 = 20;
/// Columns of the table.
const COLUMNS: usize = 20;
/// Sessions listed per work unit.
const LISTED_PER_UNIT: usize = 16;

/// Stage of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SessionStage {
    /// The client has not authenticated.
    #[default]
    Login,
    /// Statements are accepted.
    Ready,
    /// The session is ending and accepts no statements.
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

/// Connection of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientSession {
    /// Identifier, unique in the server while the session lasts.
    pub id: String,
    /// Core of the session.
    pub core: u32,
    /// Listener: `cql` or `sql`.
    pub protocol: &'static str,
    /// Address of the client.
    pub client: SocketAddr,
    /// Role, level and stage.
    pub standing: SessionStanding,
    /// Protocol, driver and application.
    pub software: ClientSoftware,
    /// Keyspace of names without one.
    pub keyspace: Option<String>,
    /// Encryption of the connection.
    pub encryption: SessionEncryption,
    /// Requests, and the memory that they hold.
    pub requests: SessionRequests,
    /// Time of connection, milliseconds since 1970.
    pub connected_ms: i64,
    /// Time in microseconds since the client last sent data. 0 while requests are in flight.
    pub idle_us: u64,
}

/// Role, level and stage of a session.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SessionStanding {
    /// Role, after authentication.
    pub role: Option<Arc<str>>,
    /// Service level of the next statement, after authentication.
    pub service_level: Option<Arc<str>>,
    /// Stage.
    pub stage: SessionStage,
}

impl SessionStanding {
    const COLUMNS: [(&'static str, CqlType); 3] =
        [("role", CqlType::Text), ("service_level", CqlType::Text), ("stage", CqlType::Text)];

    fn cells(&self) -> [Option<Bytes>; 3] {
        [
            self.role.as_deref().and_then(text),
            self.service_level.as_deref().and_then(text),
            Some(Bytes::from_static(self.stage.name().as_bytes())),
        ]
    }
}

/// Software of a client, as far as the client sent it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClientSoftware {
    /// Version of the protocol, after negotiation.
    pub protocol_version: Option<String>,
    /// Name of the driver.
    pub driver_name: Option<String>,
    /// Version of the driver.
    pub driver_version: Option<String>,
    /// Name of the application.
    pub application_name: Option<String>,
}

impl ClientSoftware {
    const COLUMNS: [(&'static str, CqlType); 4] = [
        ("protocol_version", CqlType::Text),
        ("driver_name", CqlType::Text),
        ("driver_version", CqlType::Text),
        ("application_name", CqlType::Text),
    ];

    fn cells(&self) -> [Option<Bytes>; 4] {
        [&self.protocol_version, &self.driver_name, &self.driver_version, &self.application_name]
            .map(optional)
    }
}

/// Encryption of a connection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SessionEncryption {
    /// True if the connection is encrypted.
    pub is_encrypted: bool,
    /// Subject of the client's certificate.
    pub certificate_subject: Option<String>,
}

impl SessionEncryption {
    const COLUMNS: [(&'static str, CqlType); 2] =
        [("encrypted", CqlType::Boolean), ("certificate_subject", CqlType::Text)];

    fn cells(&self) -> [Option<Bytes>; 2] {
        let is_encrypted = Bytes::from_static(if self.is_encrypted { &[1] } else { &[0] });
        [Some(is_encrypted), optional(&self.certificate_subject)]
    }
}

/// Requests of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SessionRequests {
    /// Requests not answered yet.
    pub in_flight: u32,
    /// Requests since login.
    pub total: u64,
    /// Bytes of its requests, and of answers that the client has not read.
    pub bytes: u64,
}

impl SessionRequests {
    const COLUMNS: [(&'static str, CqlType); 3] = [
        ("requests_in_flight", CqlType::Int),
        ("requests", CqlType::BigInt),
        ("bytes_held", CqlType::BigInt),
    ];

    fn cells(&self) -> [Option<Bytes>; 3] {
        [int(self.in_flight), bigint(self.total), bigint(self.bytes)]
    }
}

/// Returns the first characters of a client's name, at most `bytes_max` bytes, without splitting a
/// character.
#[must_use]
pub fn shortened(name: &str, bytes_max: usize) -> &str {
    let end = (0..=bytes_max.min(name.len())).rev().find(|end| name.is_char_boundary(*end));
    &name[..end.unwrap_or_default()]
}

fn text(text: &str) -> Option<Bytes> {
    Some(Bytes::copy_from_slice(text.as_bytes()))
}

fn optional(value: &Option<String>) -> Option<Bytes> {
    value.as_deref().and_then(text)
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
    /// Creates the table for the registry of a core, which concatenates the rows of several
    /// listeners. `list` returns the sessions of the core, `role` the role of a session. `describe`
    /// describes a session, or returns `None` if it has ended.
    pub fn table<T: 'static>(
        list: impl Fn() -> Vec<T> + 'static,
        role: impl Fn(&T) -> Option<Arc<str>> + 'static,
        describe: impl Fn(&T) -> Option<ClientSession> + 'static,
    ) -> VirtualTable {
        let columns = [
            &[
                ("id", CqlType::Text),
                ("core", CqlType::Int),
                ("protocol", CqlType::Text),
                ("address", CqlType::Inet),
                ("port", CqlType::Int),
            ],
            &SessionStanding::COLUMNS[..],
            &ClientSoftware::COLUMNS,
            &[("keyspace_name", CqlType::Text)],
            &SessionEncryption::COLUMNS,
            &SessionRequests::COLUMNS,
            &[("connected_at", CqlType::Timestamp), ("idle_us", CqlType::BigInt)],
        ]
        .concat();
        let rows = session_rows(list, role, move |session| describe(session).map(|session| session.row()));
        VirtualTable::new("system", "connections", 1, 0, &columns, Vec::new)
            .in_chunks(rows)
            .of_every_core()
            .about(Subject::Role(5))
    }

    fn row(&self) -> VirtualRow {
        let mut row = Vec::with_capacity(COLUMNS);
        row.extend([
            text(&self.id),
            int(self.core),
            Some(Bytes::from_static(self.protocol.as_bytes())),
            inet(self.client),
            int(self.client.port().into()),
        ]);
        row.extend(self.standing.cells());
        row.extend(self.software.cells());
        row.push(optional(&self.keyspace));
        row.extend(self.encryption.cells());
        row.extend(self.requests.cells());
        row.push(Some(Bytes::copy_from_slice(&self.connected_ms.to_be_bytes())));
        row.push(bigint(self.idle_us));
        row
    }
}

/// Creates the rows about a core's sessions in chunks, for [`VirtualTable::in_chunks`]. `list`
/// returns the sessions, `role` the role of a session. `row` returns its row, or `None` if it has
/// ended. Sessions that the viewer may not see cost almost nothing.
pub fn session_rows<T: 'static>(
    list: impl Fn() -> Vec<T> + 'static,
    role: impl Fn(&T) -> Option<Arc<str>> + 'static,
    row: impl Fn(&T) -> Option<VirtualRow> + 'static,
) -> impl Fn(Option<Arc<dyn Viewer>>) -> LaterRows + 'static {
    let role = Rc::new(role);
    let row = Rc::new(row);
    move |viewer| {
        let role = role.clone();
        let row = row.clone();
        let sessions = list();
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

    /// Viewer that sees the role `ann`.
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
            standing: SessionStanding {
                role: role(&number),
                stage: SessionStage::Ready,
                ..SessionStanding::default()
            },
            software: ClientSoftware::default(),
            keyspace: None,
            encryption: SessionEncryption::default(),
            requests: SessionRequests::default(),
            connected_ms: 0,
            idle_us: 0,
        }
    }

    /// Returns the role: one session in four has not logged in, one is of `ann`.
    fn role(number: &usize) -> Option<Arc<str>> {
        [None, Some("ann"), Some("bob"), Some("bob")][number % 4].map(Arc::from)
    }

    #[test]
    fn rows_are_created_in_bounded_task_polls() {
        const SESSIONS: usize = 16_384;
        let lanes =
            Lanes::start(Config { cores: vec![0], pin: false, ..Config::detect() }).expect("lanes start");
        let rows = |viewer: Option<Arc<dyn Viewer>>| {
            lanes.block_on(0, Group::CONTROL, || async move {
                let list = || (0..SESSIONS).collect();
                // The last session has ended since it was listed.
                let describe = |number: &usize| (*number != SESSIONS - 1).then(|| session(*number));
                let table = ClientSession::table(list, role, describe);
                let rows = table.rows(viewer).await;
                assert_eq!(table.def.columns.len(), COLUMNS);
                assert!(rows.iter().all(|row| row.len() == COLUMNS));
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
    fn rows_of_several_listeners_are_one_table() {
        let lanes =
            Lanes::start(Config { cores: vec![0], pin: false, ..Config::detect() }).expect("lanes start");
        let rows = lanes.block_on(0, Group::CONTROL, || async {
            let registry = crate::Registry::default();
            for from in [0, 10] {
                let list = move || (from..from + 3).collect();
                registry.add_rows(ClientSession::table(list, role, |number| Some(session(*number))));
            }
            let table = registry.get("system", "connections").expect("added");
            assert!(table.rows_at_once().is_none(), "rows are created in chunks");
            table.rows(None).await.len()
        });
        assert_eq!(rows, 6);
        lanes.shutdown();
    }
}
