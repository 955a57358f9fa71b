//! The audit log: one JSON object a line for each login and failed login, for each statement that changes roles, rights, levels or the
//! schema, and, for keyspaces that a setting names, for each statement that reads or writes them.
//!
//! A lane never waits for it: lines go into a bounded queue, and a thread outside of the lanes writes them. A line that finds the queue
//! full is counted, and the next line that gets in carries the count as `lost`. Passwords are never in a line, and literals only where
//! a setting asks for them.

use std::fmt::{Display, Write as _};
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Lines that wait to be written: about 1 MiB. One more is counted as lost.
const QUEUE_LINES_MAX: usize = 4096;

/// Longest text of a statement in a line, bytes.
const TEXT_BYTES_MAX: usize = 4096;

/// The kind of an event, by which lines are found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AuditKind {
    /// A client has authenticated.
    Login,
    /// A client was refused.
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

/// One event.
#[derive(Clone, Copy, Debug)]
pub struct AuditEvent<'a> {
    /// Its kind.
    pub kind: AuditKind,
    /// The listener: `cql` or `sql`.
    pub listener: &'static str,
    /// The client's address.
    pub client: SocketAddr,
    /// The role, or the name that was tried.
    pub role: &'a str,
    /// The reason of a failure; `None` where all went well.
    pub error: Option<&'a str>,
}

/// Takes events from any thread without waiting.
#[derive(Debug)]
pub struct AuditLog {
    queue: SyncSender<String>,
    keyspaces: Vec<String>,
    with_literals: bool,
    lost: AtomicU64,
    lost_in_all: AtomicU64,
}

/// The lines to be written, for a thread outside of the lanes.
#[derive(Debug)]
pub struct AuditLines(Receiver<String>);

/// Makes an audit log, and the lines that come out of it. `keyspaces` are those whose reads and writes are logged; `*` stands for all.
pub fn audit_log(keyspaces: Vec<String>, with_literals: bool) -> (Arc<AuditLog>, AuditLines) {
    let (queue, lines) = sync_channel(QUEUE_LINES_MAX);
    let (lost, lost_in_all) = (AtomicU64::new(0), AtomicU64::new(0));
    (Arc::new(AuditLog { queue, keyspaces, with_literals, lost, lost_in_all }), AuditLines(lines))
}

impl AuditLines {
    /// Writes lines to `out` as they come, until the last [`AuditLog`] is gone.
    ///
    /// # Errors
    /// `out` failed: lines from then on are lost, and counted.
    pub fn write_to(self, mut out: impl Write) -> std::io::Result<()> {
        for line in &self.0 {
            out.write_all(line.as_bytes())?;
            // A burst is written as one.
            for line in self.0.try_iter() {
                out.write_all(line.as_bytes())?;
            }
            out.flush()?;
        }
        Ok(())
    }

    /// The lines there are now.
    pub fn take(&self) -> Vec<String> {
        self.0.try_iter().collect()
    }
}

impl AuditLog {
    /// Whether statements that read or write a keyspace are logged.
    pub fn is_audited(&self, keyspace: &str) -> bool {
        self.keyspaces.iter().any(|audited| audited == keyspace || audited == "*")
    }

    /// Lines lost since the start because the queue was full.
    pub fn lost(&self) -> u64 {
        self.lost_in_all.load(Relaxed)
    }

    /// Logs an event without a statement.
    pub fn log(&self, event: &AuditEvent<'_>) {
        self.put(event, None);
    }

    /// Logs a statement, without its literals unless they were asked for.
    pub fn log_statement(&self, event: &AuditEvent<'_>, statement: &cql::Statement) {
        let text = if self.with_literals { begin(statement) } else { begin(&cql::Masked(statement)) };
        self.put(event, Some(&text));
    }

    /// As [`AuditLog::log_statement`], for a caller that has the text only. A text that is no CQL is left out.
    pub fn log_cql(&self, event: &AuditEvent<'_>, text: &str) {
        match cql::parse(text) {
            Ok(statement) => self.log_statement(event, &statement),
            Err(_) => self.log(event),
        }
    }

    /// Logs a statement of another language. `text` is printed up to a limit, so its caller leaves out literals.
    pub fn log_text(&self, event: &AuditEvent<'_>, text: &dyn Display) {
        self.put(event, Some(&begin(text)));
    }

    /// Whether literals are to be in the lines.
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
            self.lost_in_all.fetch_add(1, Relaxed);
        }
    }
}

/// The beginning of a printed statement.
fn begin(statement: &dyn Display) -> String {
    beginning(statement, TEXT_BYTES_MAX)
}

/// Returns the first `bytes_max` bytes of a printed value, up to the end of a character. Printing ends there, however long the value is.
pub fn beginning(value: &dyn Display, bytes_max: usize) -> String {
    struct Begin(String, usize);
    impl std::fmt::Write for Begin {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            let left = self.1 - self.0.len();
            if text.len() <= left {
                self.0.push_str(text);
                return Ok(());
            }
            let end = (0..=left).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
            self.0.push_str(&text[..end]);
            // An error is the way to end the printing.
            Err(std::fmt::Error)
        }
    }
    let mut begin = Begin(String::new(), bytes_max);
    let _ = write!(begin, "{value}");
    begin.0
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
    fn a_full_queue_counts_what_it_loses_and_says_so_later() {
        let (log, lines) = audit_log(Vec::new(), false);
        for _ in 0..QUEUE_LINES_MAX + 5 {
            log.log(&event(AuditKind::Login, None));
        }
        assert_eq!((lines.take().len(), log.lost()), (QUEUE_LINES_MAX, 5));
        log.log(&event(AuditKind::Login, None));
        assert!(lines.take()[0].contains("\"lost\":5"));
    }

    #[test]
    fn long_statements_are_cut() {
        let (log, lines) = audit_log(vec!["*".into()], true);
        let text = format!("SELECT * FROM t WHERE a = '{}'", "é".repeat(100_000));
        log.log_statement(&event(AuditKind::Read, None), &cql::parse(&text).expect("the text is CQL"));
        assert!(lines.take()[0].len() < TEXT_BYTES_MAX + 500);
        assert!(log.is_audited("any"));
    }
}
