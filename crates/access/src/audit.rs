//! Audit log. It has a line with a JSON object for each login, each failed login, and each
//! statement that changes roles, permissions, levels or the schema. For configured keyspaces, it
//! also has a line for each statement that reads or writes them.
//!
//! Lanes never wait for the log. Lines go into a bounded queue, and a thread outside of the lanes
//! writes them. If the queue is full, the line is dropped and counted. The next line in the queue
//! carries the count as `lost`. Lines never contain passwords. They contain literals only if the
//! configuration asks for them.

use std::fmt::{Display, Write as _};
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Most lines in the queue: about 1 MiB. Further lines are lost.
const QUEUE_LINES_MAX: usize = 4096;

/// Longest statement text in a line, in bytes.
const TEXT_BYTES_MAX: usize = 4096;

/// Kind of an event. Searches of the log filter by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AuditKind {
    /// A client has authenticated.
    Login,
    /// A login failed.
    LoginFailed,
    /// A statement about roles, rights or service levels.
    Access,
    /// A statement that changes the schema.
    Schema,
    /// A statement that reads an audited keyspace.
    Read,
    /// A statement that writes to an audited keyspace.
    Write,
}

impl AuditKind {
    fn name(self) -> &'static str {
        match self {
            AuditKind::Login => "login",
            AuditKind::LoginFailed => "login_failed",
            AuditKind::Access => "access",
            AuditKind::Schema => "schema",
            AuditKind::Read => "read",
            AuditKind::Write => "write",
        }
    }
}

/// An audit event.
#[derive(Clone, Copy, Debug)]
pub struct AuditEvent<'a> {
    /// Its kind.
    pub kind: AuditKind,
    /// The listener: `cql` or `sql`.
    pub listener: &'static str,
    /// The client's address.
    pub client: SocketAddr,
    /// The role, or the name of a failed login.
    pub role: &'a str,
    /// The error. `None` if the event succeeded.
    pub error: Option<&'a str>,
}

/// Audit log. Accepts events from any thread without waiting.
#[derive(Debug)]
pub struct AuditLog {
    queue: SyncSender<String>,
    keyspaces: Vec<String>,
    with_literals: bool,
    lost: AtomicU64,
    lost_total: AtomicU64,
}

/// Queued lines, for a writer thread outside of the lanes.
#[derive(Debug)]
pub struct AuditLines(Receiver<String>);

/// Creates an audit log and the receiver of its lines. `keyspaces` lists the keyspaces whose reads
/// and writes are logged. `*` means all.
pub fn audit_log(keyspaces: Vec<String>, with_literals: bool) -> (Arc<AuditLog>, AuditLines) {
    let (queue, lines) = sync_channel(QUEUE_LINES_MAX);
    let lost = AtomicU64::new(0);
    let lost_total = AtomicU64::new(0);
    (Arc::new(AuditLog { queue, keyspaces, with_literals, lost, lost_total }), AuditLines(lines))
}

impl AuditLines {
    /// Writes lines to `out` until the last [`AuditLog`] is dropped.
    ///
    /// # Errors
    /// Returns an error if `out` fails. Later lines are lost and counted.
    pub fn write_to(self, mut out: impl Write) -> std::io::Result<()> {
        for line in &self.0 {
            out.write_all(line.as_bytes())?;
            // Write a burst with one flush.
            for line in self.0.try_iter() {
                out.write_all(line.as_bytes())?;
            }
            out.flush()?;
        }
        Ok(())
    }

    /// Returns the lines that are queued now.
    pub fn take(&self) -> Vec<String> {
        self.0.try_iter().collect()
    }
}

impl AuditLog {
    /// True if statements that read or write the keyspace are logged.
    pub fn is_audited(&self, keyspace: &str) -> bool {
        self.keyspaces.iter().any(|audited| audited == keyspace || audited == "*")
    }

    /// Returns the number of lines lost since the start because the queue was full.
    pub fn lost(&self) -> u64 {
        self.lost_total.load(Relaxed)
    }

    /// Logs an event without a statement.
    pub fn log(&self, event: &AuditEvent<'_>) {
        self.put(event, None);
    }

    /// Logs a statement. Masks its literals unless the configuration asks for them.
    pub fn log_statement(&self, event: &AuditEvent<'_>, statement: &cql::Statement) {
        let text = if self.with_literals { start_of(statement) } else { start_of(&cql::Masked(statement)) };
        self.put(event, Some(&text));
    }

    /// Logs a statement like [`AuditLog::log_statement`], from its text. Omits a text that is not
    /// CQL.
    pub fn log_cql(&self, event: &AuditEvent<'_>, text: &str) {
        match cql::parse(text) {
            Ok(statement) => self.log_statement(event, &statement),
            Err(_) => self.log(event),
        }
    }

    /// Logs a statement of another language. Truncates `text`. The caller masks literals.
    pub fn log_text(&self, event: &AuditEvent<'_>, text: &dyn Display) {
        self.put(event, Some(&start_of(text)));
    }

    /// True if lines contain literals.
    pub fn with_literals(&self) -> bool {
        self.with_literals
    }

    fn put(&self, event: &AuditEvent<'_>, text: Option<&str>) {
        let AuditEvent { kind, listener, client, role, error } = event;
        let lost = self.lost.swap(0, Relaxed);
        let mut line = serde_json::json!({
            "time_us": lanes::time::unix_micros(),
            "kind": kind.name(),
            "listener": listener,
            "client": client.to_string(),
            "role": role,
            "ok": error.is_none(),
        });
        let mut add = |key: &str, value: serde_json::Value| line[key] = value;
        error.iter().for_each(|error| add("error", (*error).into()));
        text.into_iter().for_each(|text| add("statement", text.into()));
        if lost > 0 {
            add("lost", lost.into());
        }
        let mut line = line.to_string();
        line.push('\n');
        if self.queue.try_send(line).is_err() {
            self.lost.fetch_add(1 + lost, Relaxed);
            self.lost_total.fetch_add(1, Relaxed);
        }
    }
}

/// Returns the start of a printed statement.
fn start_of(statement: &dyn Display) -> String {
    beginning(statement, TEXT_BYTES_MAX)
}

/// Returns the first `bytes_max` bytes of a printed value, cut at a character boundary. Formatting
/// stops there, however long the value is.
pub fn beginning(value: &dyn Display, bytes_max: usize) -> String {
    struct Truncated(String, usize);
    impl std::fmt::Write for Truncated {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            let left = self.1 - self.0.len();
            if text.len() <= left {
                self.0.push_str(text);
                return Ok(());
            }
            let end = (0..=left).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
            self.0.push_str(&text[..end]);
            // An error stops the formatting.
            Err(std::fmt::Error)
        }
    }
    let mut truncated = Truncated(String::new(), bytes_max);
    let _ = write!(truncated, "{value}");
    truncated.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: AuditKind, error: Option<&str>) -> AuditEvent<'_> {
        let client = SocketAddr::from(([127, 0, 0, 1], 9));
        AuditEvent { kind, listener: "cql", client, role: "ann\n\"", error }
    }

    #[test]
    fn lines_are_json_without_passwords_and_literals() {
        let (log, lines) = audit_log(vec!["shop".into()], false);
        log.log(&event(AuditKind::LoginFailed, Some("wrong password")));
        let statement = |text: &str| cql::parse(text).expect("the text is CQL");
        log.log_statement(
            &event(AuditKind::Access, None),
            &statement("CREATE ROLE bob WITH PASSWORD = 'secret'"),
        );
        log.log_statement(
            &event(AuditKind::Write, None),
            &statement("INSERT INTO shop.t (a) VALUES ('secret')"),
        );
        let lines = lines.take();
        assert_eq!(lines.len(), 3);
        for line in &lines {
            assert!(line.ends_with("}\n") && !line.contains("secret"), "{line}");
            let value: serde_json::Value = serde_json::from_str(line).expect("one JSON object a line");
            assert_eq!(value["role"], "ann\n\"");
        }
        assert!(lines[0].contains("\"ok\":false") && lines[0].contains("wrong password"));
        assert!(lines[2].contains("INSERT INTO shop.t (a) VALUES (?)"));
        assert!(log.is_audited("shop") && !log.is_audited("other"));
    }

    #[test]
    fn full_queue_counts_lost_lines() {
        let (log, lines) = audit_log(Vec::new(), false);
        for _ in 0..QUEUE_LINES_MAX + 5 {
            log.log(&event(AuditKind::Login, None));
        }
        assert_eq!((lines.take().len(), log.lost()), (QUEUE_LINES_MAX, 5));
        log.log(&event(AuditKind::Login, None));
        assert!(lines.take()[0].contains("\"lost\":5"));
    }

    #[test]
    fn long_statements_are_truncated() {
        let (log, lines) = audit_log(vec!["*".into()], true);
        let text = format!("SELECT * FROM t WHERE a = '{}'", "é".repeat(100_000));
        log.log_statement(&event(AuditKind::Read, None), &cql::parse(&text).expect("the text is CQL"));
        assert!(lines.take()[0].len() < TEXT_BYTES_MAX + 500);
        assert!(log.is_audited("any"));
    }
}
