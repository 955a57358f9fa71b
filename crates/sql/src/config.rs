//! What the SQL door is told when it starts. Every bound that a client can run into is here.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use access::AuditLog;
use engine::scan::arrow::DECIMALS;
use frontdoor::{Accounts, Limits, Tls};

/// Settings of the SQL door. [`SqlConfig::default`] listens on loopback with authentication on.
#[derive(Clone, Debug)]
pub struct SqlConfig {
    /// Where the Postgres protocol is spoken. Port 0 takes a free one.
    pub listen: SocketAddr,
    /// What connections are encrypted with, if clients ask for it.
    pub tls: Option<Tls>,
    /// Whether plain text is spoken beyond loopback.
    pub allow_plaintext: bool,
    /// Whether clients must log in. Without it every session is `anonymous` and may do everything.
    pub authenticate: bool,
    /// Where queries put aside what they are refused memory for. Emptied at the start; without it they cannot.
    pub spill_dir: Option<PathBuf>,
    /// The most that all queries have there, bytes; else a quarter of what is free at the start.
    pub spill_bytes_max: Option<u64>,
    /// Connections at once, before and after login. Each runs one statement at a time.
    pub connections: Limits,
    /// Sessions without a statement for so long are closed; `None` closes none.
    pub idle_timeout: Option<Duration>,
    /// Longest message of a client, bytes.
    pub message_bytes_max: usize,
    /// Longest message of a client that has not logged in, bytes.
    pub startup_bytes_max: usize,
    /// Prepared statements of one connection, and as many portals.
    pub prepared_max: usize,
    /// Accounts of what clients make the server hold, at all listeners: here prepared statements, portals, and messages while they
    /// are received.
    pub accounts: Accounts,
    /// Time limit of statements for which neither the session nor its level sets one.
    pub statement_time_default: Duration,
    /// Time limit that no session may exceed.
    pub statement_time_max: Duration,
    /// Time from accepting a connection to its login.
    pub startup_timeout: Duration,
    /// Wait before a wrong password is answered.
    pub auth_failure_delay: Duration,
    /// Takes logins and reads of audited keyspaces; `None` logs none.
    pub audit: Option<Arc<AuditLog>>,
    /// Digits behind the point that a CQL `decimal` is read with, of 38, 0 to [`engine::scan::arrow::DECIMALS_MAX`]. A query that reads one
    /// with more fails.
    pub decimals: i8,
    /// Rows of a batch, about: a few thousand, so that a batch is a piece of work of a millisecond or so.
    pub batch_rows: usize,
}

impl Default for SqlConfig {
    fn default() -> SqlConfig {
        SqlConfig {
            listen: SocketAddr::from(([127, 0, 0, 1], 5432)),
            tls: None,
            allow_plaintext: false,
            authenticate: true,
            spill_dir: None,
            spill_bytes_max: None,
            connections: Limits::of_sessions(1024),
            idle_timeout: None,
            message_bytes_max: 16 << 20,
            startup_bytes_max: 10_000,
            prepared_max: 256,
            accounts: Accounts::new(256 << 20, 64 << 20),
            statement_time_default: Duration::from_secs(3600),
            statement_time_max: Duration::from_secs(24 * 3600),
            startup_timeout: Duration::from_secs(10),
            auth_failure_delay: Duration::from_millis(200),
            audit: None,
            decimals: DECIMALS,
            batch_rows: 8192,
        }
    }
}

impl SqlConfig {
    /// Whether clients may come without encryption. Where they need a certificate, they may not.
    pub(crate) fn takes_plaintext(&self) -> bool {
        let encrypts_all = self.tls.as_ref().is_some_and(|tls| tls.files().client_required);
        !encrypts_all && (self.allow_plaintext || self.listen.ip().is_loopback())
    }
}
