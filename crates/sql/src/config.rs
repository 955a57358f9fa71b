//! Settings of the SQL listener, including every bound that a client can reach.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use access::AuditLog;
use engine::scan::arrow::SCALE_DEFAULT;
use frontdoor::{Accounts, Limits, Tls};

/// Settings of the SQL listener. [`SqlConfig::default`] listens on loopback, with authentication.
#[derive(Clone, Debug)]
pub struct SqlConfig {
    /// Address for clients of the Postgres protocol. Port 0 selects a free port.
    pub listen: SocketAddr,
    /// Certificates for encrypted connections. `None`: requests for encryption are declined.
    pub tls: Option<Tls>,
    /// Accepts unencrypted connections on other addresses than loopback.
    pub allow_plaintext: bool,
    /// Requires a login. Without it every session is `anonymous` and has all rights.
    pub authenticate: bool,
    /// Folder of spill files, emptied at the start. `None` disables spilling.
    pub spill_dir: Option<PathBuf>,
    /// Maximum size of all spill files, bytes. `None`: a quarter of the disk space that is free at
    /// the start.
    pub spill_bytes_max: Option<u64>,
    /// Maximum number of connections before and after login. Each runs one statement at a time.
    pub connections: Limits,
    /// Time without a statement after which a session is closed. `None`: never.
    pub idle_timeout: Option<Duration>,
    /// Maximum length of a client's message after login, bytes.
    pub message_bytes_max: usize,
    /// Maximum length of a client's message before login, bytes.
    pub startup_bytes_max: usize,
    /// Maximum number of prepared statements of a connection, and of its portals.
    pub prepared_max: usize,
    /// Accounts of the memory that clients of all listeners occupy. The SQL listener charges
    /// prepared statements, portals, and messages while they are received.
    pub accounts: Accounts,
    /// Time limit of statements if neither the session nor its level sets one.
    pub statement_time_default: Duration,
    /// Maximum time limit of a statement.
    pub statement_time_max: Duration,
    /// Time limit from accepting a connection to its login.
    pub startup_timeout: Duration,
    /// Delay of the answer to a wrong password.
    pub auth_failure_delay: Duration,
    /// Time of work from which on a statement is slow, and passed to the log. `None`: none is.
    pub slow_statement: Option<Duration>,
    /// Audit log of logins and of reads of audited keyspaces. `None` disables it.
    pub audit: Option<Arc<AuditLog>>,
    /// Name shown as the owner of every table and schema. CQL has no owners.
    pub owner: Arc<str>,
    /// Scale with which a CQL `decimal` is read, 0 to [`engine::scan::arrow::SCALE_MAX`]. The
    /// precision is 38. A query that reads a value with a larger scale fails.
    pub decimal_scale: i8,
    /// Approximate number of rows of a batch: a few thousand, so that an operator takes about a
    /// millisecond for it.
    pub batch_rows: usize,
}

/// Something for the log of the server.
#[derive(Debug)]
pub enum LogEvent<'a> {
    /// A condition that needs attention, in a sentence.
    Warning(&'a str),
    /// A slow statement.
    Slow(&'a SlowStatement<'a>),
}

/// A statement that took long.
#[derive(Debug)]
pub struct SlowStatement<'a> {
    /// Time of planning and execution, ms.
    pub ms: u64,
    /// Time for which it waited to be admitted, ms.
    pub queue_ms: u64,
    /// Rows and bytes that it read from tables.
    pub rows_read: u64,
    /// See [`SlowStatement::rows_read`].
    pub bytes_read: u64,
    /// Its level, at the end.
    pub level: &'a str,
    /// Its role.
    pub role: &'a str,
    /// The client's address.
    pub client: SocketAddr,
    /// Its text, with `?` for literals; not the whole if it is long.
    pub text: &'a str,
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
            slow_statement: Some(Duration::from_millis(500)),
            audit: None,
            owner: "admin".into(),
            decimal_scale: SCALE_DEFAULT,
            batch_rows: 8192,
        }
    }
}

impl SqlConfig {
    /// True if clients may connect without encryption. False if every client needs a certificate.
    pub(crate) fn takes_plaintext(&self) -> bool {
        let encrypts_all = self.tls.as_ref().is_some_and(|tls| tls.files().client_required);
        !encrypts_all && (self.allow_plaintext || self.listen.ip().is_loopback())
    }
}
