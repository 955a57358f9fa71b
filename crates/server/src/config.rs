//! Settings of a server. Every limit that a client can meet is here, with its default.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use access::AuditLog;
use frontdoor::{Accounts, Limits, Tls};
use uuid::Uuid;

/// Settings of a server. [`ServerConfig::default`] listens on loopback with authentication on.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Address of the CQL port. Port 0 takes a free one.
    pub listen: SocketAddr,
    /// Shard-aware port, on the same address. The core of a connection is the client's source port
    /// modulo the number of cores. Port 0 takes a free one. `None` switches it off.
    pub shard_aware_port: Option<u16>,
    /// Address announced in `system.local`. `None` announces the bound address, or loopback if that
    /// is a wildcard.
    pub advertise: Option<SocketAddr>,
    /// Address of `/metrics` and `/health/*`. `None` serves neither.
    pub http: Option<SocketAddr>,
    /// Host names accepted in requests for `/metrics`, besides `localhost` and IP addresses.
    pub http_hosts: Vec<String>,
    /// Certificate for clients that use TLS. The first byte of a client shows if it does.
    pub tls: Option<Tls>,
    /// True to accept plain text beyond loopback. Otherwise an address beyond loopback needs `tls`,
    /// and its clients must encrypt.
    pub allow_plaintext: bool,
    /// True to require a name and a password. Otherwise every session is `anonymous` with all
    /// rights.
    pub authenticate: bool,
    /// Cluster name in `system.local`.
    pub cluster_name: String,
    /// Id of this server. It stays the same after a restart.
    pub host_id: Uuid,
    /// True if drivers find the other servers in front of the same cluster in the tables of this
    /// one.
    pub show_peers: bool,
    /// Rack shown to drivers.
    pub rack: String,
    /// Limits on connections, before and after login.
    pub connections: Limits,
    /// Time without a request after which a session is closed. `None` closes none.
    pub idle_timeout: Option<Duration>,
    /// Maximum body of a frame, bytes, before and after decompression.
    pub frame_bytes_max: usize,
    /// Maximum body of a frame before the client has authenticated, bytes.
    pub handshake_frame_bytes_max: usize,
    /// Maximum number of requests in flight on one connection. At the limit the socket is not read.
    pub in_flight_max: usize,
    /// Maximum number of unread answer bytes of one connection. At the limit the socket is not
    /// read.
    pub output_bytes_max: usize,
    /// Bytes of rows that the reads of several rows hold on each core, at most, apart from their
    /// answers. Further reads wait.
    pub read_bytes_max: usize,
    /// Time limit from accepting a connection to its authentication.
    pub handshake_timeout: Duration,
    /// Number of refused credentials after which a connection is closed.
    pub auth_failures_max: u32,
    /// Delay before a wrong password is answered.
    pub auth_failure_delay: Duration,
    /// Default time limit of a statement, if neither its level nor `USING TIMEOUT` specifies one.
    pub request_timeout: Duration,
    /// Maximum number of prepared statements on each core. The least recently used are evicted, and
    /// their clients prepare them again.
    pub prepared_max: usize,
    /// Memory for prepared statements on each core, bytes.
    pub prepared_bytes_max: usize,
    /// Maximum number of plans of unprepared statements cached on each core.
    pub unprepared_max: usize,
    /// Accounts of the memory that clients make the server hold, over all listeners.
    pub accounts: Accounts,
    /// Maximum time limit of a statement, whatever its level or `USING TIMEOUT` specifies.
    pub statement_timeout_max: Duration,
    /// Log of logins, of changes to roles, rights, levels and schema, and of statements on audited
    /// keyspaces. `None` logs none.
    pub audit: Option<Arc<AuditLog>>,
    /// Minimum duration of a statement that is logged as slow. `None` logs none.
    pub slow_statement: Option<Duration>,
    /// Data folder, for the metrics of its file system.
    pub data_dir: Option<PathBuf>,
    /// Settings of the process by name, for `system_views.settings`. They have no secrets.
    pub settings: Vec<(&'static str, String)>,
}

/// Default maximum body of a frame, bytes.
const FRAME_BYTES_MAX: usize = 16 << 20;

/// Returns the memory that the largest request takes, bytes: a frame as it arrives, assembled, and
/// as a text in its syntax tree.
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
            show_peers: true,
            rack: "rack1".to_owned(),
            connections: Limits::of_sessions(16_384),
            idle_timeout: None,
            frame_bytes_max: FRAME_BYTES_MAX,
            handshake_frame_bytes_max: 16 << 10,
            in_flight_max: 2048,
            output_bytes_max: 1 << 20,
            read_bytes_max: 64 << 20,
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
            data_dir: None,
            settings: Vec::new(),
        }
    }
}

impl ServerConfig {
    /// Returns the maximum memory of one prepared statement, bytes.
    pub(crate) fn prepared_statement_bytes_max(&self) -> usize {
        (self.prepared_bytes_max / 4).min(4 << 20)
    }

    /// Returns true if CQL clients may use plain text. Clients that need a certificate may not.
    pub(crate) fn takes_plaintext_cql(&self) -> bool {
        let encrypts_all = self.tls.as_ref().is_some_and(|tls| tls.files().client_required);
        !encrypts_all && self.takes_plaintext(self.listen)
    }

    /// Returns true if plain text is permitted on this address.
    pub(crate) fn takes_plaintext(&self, listen: SocketAddr) -> bool {
        self.allow_plaintext || listen.ip().is_loopback()
    }

    /// Returns the address announced to clients for a bound address.
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
