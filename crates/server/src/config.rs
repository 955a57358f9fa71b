//! What a server is told when it starts. Every bound that a client can run into is here, with its default.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use access::AuditLog;
use frontdoor::{Accounts, Limits, Tls};
use uuid::Uuid;

/// A server's settings. [`ServerConfig::default`] listens on loopback with authentication on.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Where CQL is spoken. Port 0 takes a free one.
    pub listen: SocketAddr,
    /// The shard-aware port, on the same address: the client's source port modulo the number of cores says which core
    /// gets the connection. Port 0 takes a free one; `None` switches it off.
    pub shard_aware_port: Option<u16>,
    /// What `system.local` announces; `None` announces the address listened on (loopback where that is a wildcard).
    pub advertise: Option<SocketAddr>,
    /// Where `/metrics` and `/health/*` are served; `None` serves neither.
    pub http: Option<SocketAddr>,
    /// Names under which `/metrics` may be asked for, beside `localhost` and IP addresses.
    pub http_hosts: Vec<String>,
    /// The certificate for clients that encrypt. They say so by the first byte that they send.
    pub tls: Option<Tls>,
    /// Whether plain text is spoken beyond loopback. Without it, an address to listen on beyond loopback needs `tls`, and clients
    /// there must encrypt.
    pub allow_plaintext: bool,
    /// Whether clients must give a name and a password. Without it every session is `anonymous` and may do everything.
    pub authenticate: bool,
    /// The name in `system.local`.
    pub cluster_name: String,
    /// Who this server is, the same after a restart.
    pub host_id: Uuid,
    /// Connections at once, before and after login.
    pub connections: Limits,
    /// Sessions without a request for so long are closed; `None` closes none.
    pub idle_timeout: Option<Duration>,
    /// Longest body of a frame, bytes, before and after decompression.
    pub frame_bytes_max: usize,
    /// Longest body of a frame before the client has authenticated, bytes.
    pub handshake_frame_bytes_max: usize,
    /// Requests of one connection being worked on; beyond it the socket is not read.
    pub in_flight_max: usize,
    /// Bytes of answers that wait for one client to read them; beyond it the socket is not read.
    pub output_bytes_max: usize,
    /// Time from accepting a connection to its authentication.
    pub handshake_timeout: Duration,
    /// Wrong passwords on one connection before it is closed.
    pub auth_failures_max: u32,
    /// Wait before a wrong password is answered.
    pub auth_failure_delay: Duration,
    /// Longest time for a statement, unless its level or `USING TIMEOUT` says otherwise.
    pub request_timeout: Duration,
    /// Prepared statements kept on each core; the least used go first, and their clients prepare them again.
    pub prepared_max: usize,
    /// Memory for prepared statements on each core, bytes.
    pub prepared_bytes_max: usize,
    /// Statements sent as text whose plans are kept on each core.
    pub unprepared_max: usize,
    /// Accounts of what clients make the server hold, at all listeners.
    pub accounts: Accounts,
    /// No statement may take longer, whatever its level or `USING TIMEOUT` says.
    pub statement_timeout_max: Duration,
    /// Takes logins, changes of roles, rights, levels and schema, and statements on audited keyspaces; `None` logs none.
    pub audit: Option<Arc<AuditLog>>,
    /// Statements that take longer than this are logged; `None` logs none.
    pub slow_statement: Option<Duration>,
}

/// Longest body of a frame unless configured otherwise, bytes.
const FRAME_BYTES_MAX: usize = 16 << 20;

/// Memory that the largest request takes, bytes: a frame as it arrives, assembled, and as a text in its syntax tree.
#[must_use]
pub fn largest_request_bytes(frame_bytes_max: usize) -> u64 {
    frame_bytes_max as u64 * 7 / 2
}

impl Default for ServerConfig {
    fn default() -> ServerConfig {
        ServerConfig {
            listen: SocketAddr::from(([127, 0, 0, 1], 9042)),
            shard_aware_port: Some(19042),
            advertise: None,
            http: Some(SocketAddr::from(([127, 0, 0, 1], 9180))),
            http_hosts: Vec::new(),
            tls: None,
            allow_plaintext: false,
            authenticate: true,
            cluster_name: "fairlane".to_owned(),
            host_id: Uuid::nil(),
            connections: Limits::of_sessions(16_384),
            idle_timeout: None,
            frame_bytes_max: FRAME_BYTES_MAX,
            handshake_frame_bytes_max: 16 << 10,
            in_flight_max: 2048,
            output_bytes_max: 1 << 20,
            handshake_timeout: Duration::from_secs(10),
            auth_failures_max: 3,
            auth_failure_delay: Duration::from_millis(200),
            request_timeout: Duration::from_secs(10),
            prepared_max: 10_000,
            prepared_bytes_max: 32 << 20,
            accounts: Accounts::new(256 << 20, largest_request_bytes(FRAME_BYTES_MAX)),
            statement_timeout_max: Duration::from_secs(3600),
            unprepared_max: 1_000,
            audit: None,
            slow_statement: Some(Duration::from_millis(500)),
        }
    }
}

impl ServerConfig {
    /// The largest prepared statement, bytes.
    pub(crate) fn prepared_statement_bytes_max(&self) -> usize {
        (self.prepared_bytes_max / 4).min(4 << 20)
    }

    /// Whether CQL clients may use plain text. Where they need a certificate, they may not.
    pub(crate) fn takes_plaintext_cql(&self) -> bool {
        let encrypts_all = self.tls.as_ref().is_some_and(|tls| tls.files().client_required);
        !encrypts_all && self.takes_plaintext(self.listen)
    }

    /// Whether plain text may be used on this address.
    pub(crate) fn takes_plaintext(&self, listen: SocketAddr) -> bool {
        self.allow_plaintext || listen.ip().is_loopback()
    }

    /// The address that clients are told, given the one bound.
    pub(crate) fn advertised(&self, bound: SocketAddr) -> SocketAddr {
        let Some(mut advertise) = self.advertise else {
            let mut address = bound;
            if address.ip().is_unspecified() {
                address.set_ip(match address {
                    SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
                    SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
                });
            }
            return address;
        };
        if advertise.port() == 0 {
            advertise.set_port(bound.port());
        }
        advertise
    }
}
