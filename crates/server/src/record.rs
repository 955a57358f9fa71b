//! Record stage: counts answered statements for the level, and logs each slow one. The line shows
//! `?` for literals.

use std::fmt::{self, Display};
use std::rc::Rc;
use std::sync::Arc;

use wire::{Envelope, Request};

use crate::logging::{FieldValue, Level};
use crate::request::{CqlRequest, Times, own_body};
use crate::session::Session;
use crate::statement::{INLINE_TEXT_BYTES, Kind, RunsIn, Statement};

/// Maximum length of a statement's text in the log, bytes.
const TEXT_BYTES_MAX: usize = 1000;

/// Counts a statement, and logs it if it was slow.
pub(crate) fn record(session: &Session, request: CqlRequest, ended_ns: u64) {
    if let Some(slow) = count(session, &request, ended_ns) {
        log_slow_statement(session, &slow, request.statement.as_deref());
    }
    keep_until_sent(session, request);
}

/// A statement over the threshold.
struct Slow {
    service_ns: u64,
    queue_ns: u64,
    level: Arc<str>,
}

/// Counts a request as in flight until its answer was passed to the socket, for a level with a
/// limiter. An answer that the socket does not take is no work any more: a client that does not
/// read must not use up the limit of others.
fn keep_until_sent(session: &Session, request: CqlRequest) {
    if request.effective.level.is_limited() {
        session.answered.borrow_mut().extend(request.admitted);
    }
}

/// Counts a statement answered at once. Finds its text only if it was slow.
pub(crate) fn record_envelope(session: &Session, request: CqlRequest, envelope: &Envelope, ended_ns: u64) {
    if let Some(slow) = count(session, &request, ended_ns) {
        log_slow_envelope(session, &slow, envelope);
    }
    keep_until_sent(session, request);
}

#[cold]
fn log_slow_envelope(session: &Session, slow: &Slow, envelope: &Envelope) {
    if own_body(envelope).is_some()
        && let Ok((text, _)) = envelope.checked_query()
    {
        return log_slow(session, slow, &format!("a statement of {} bytes", text.len()));
    }
    let plans = &session.core.plans;
    let statement = match envelope.request() {
        Ok(Request::Execute(execute)) => match plans.prepared(execute.id) {
            None => return log_slow(session, slow, &"a prepared statement that is no longer cached"),
            found => found,
        },
        Ok(Request::Query(query)) => {
            let of_session = || session.keyspace.borrow().clone();
            let keyspace = query.params.keyspace.map(Rc::from).or_else(of_session);
            match plans.text(keyspace.as_deref(), query.text) {
                None => return log_slow(session, slow, &UncachedText(query.text)),
                found => found,
            }
        }
        _ => None,
    };
    log_slow_statement(session, slow, statement.as_deref());
}

/// Counts a statement. Returns its times if it was slow.
fn count(session: &Session, request: &CqlRequest, ended_ns: u64) -> Option<Slow> {
    let Times { arrived_ns, began_ns } = request.times;
    let service_ns = ended_ns.saturating_sub(began_ns);
    let queue_ns = began_ns.saturating_sub(arrived_ns);
    let kind = match request.kind() {
        Kind::Read => workload::Kind::Read,
        Kind::Write | Kind::Batch => workload::Kind::Write,
        Kind::Maintenance | Kind::Other => workload::Kind::Other,
    };
    request.effective.level.record(session.core.index, kind, service_ns, queue_ns, request.failed);
    let statement = request.statement.as_ref().filter(|_| !request.failed);
    if let Some(latencies) = statement.and_then(|statement| statement.latencies()) {
        latencies.record(service_ns);
    }
    let threshold = session.core.shared.config.slow_statement?;
    let level = || request.effective.level.name().clone();
    (u128::from(service_ns) >= threshold.as_nanos()).then(|| Slow { service_ns, queue_ns, level: level() })
}

fn log_slow_statement(session: &Session, slow: &Slow, statement: Option<&Statement>) {
    match statement {
        // A read by which drivers connect.
        Some(Statement { level: RunsIn::Driver, .. }) => {}
        Some(statement) => log_slow(session, slow, &cql::Masked(&statement.tree)),
        None => log_slow(session, slow, &"BATCH"),
    }
}

#[cold]
fn log_slow(session: &Session, slow: &Slow, statement: &dyn Display) {
    crate::counters::add(&session.core.counters.slow, 1);
    let text = access::beginning(statement, TEXT_BYTES_MAX);
    let role = session.login().map_or_else(String::new, |login| login.role().to_string());
    let fields = [
        ("ms", (slow.service_ns / 1_000_000).into()),
        ("queue_ms", (slow.queue_ns / 1_000_000).into()),
        ("level", (&*slow.level).into()),
        ("role", role.into()),
        ("client", FieldValue::text(session.peer)),
        ("statement", text.into()),
    ];
    session.core.shared.logger.log(Level::Warn, "slow statement", &fields);
}

/// A text whose statement is not cached. A short text is parsed again for the log.
struct UncachedText<'a>(&'a str);

impl Display for UncachedText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.len() <= INLINE_TEXT_BYTES
            && let Ok(statement) = cql::parse(self.0)
        {
            return cql::Masked(&statement).fmt(f);
        }
        write!(f, "a statement of {} bytes", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text without end.
    struct Endless;

    impl Display for Endless {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            loop {
                f.write_str("é, ")?;
            }
        }
    }

    #[test]
    fn log_text_ends_at_the_limit_between_characters() {
        let text = access::beginning(&Endless, TEXT_BYTES_MAX);
        assert!(text.len() <= TEXT_BYTES_MAX && text.len() > TEXT_BYTES_MAX - 4, "{}", text.len());
        assert_eq!(access::beginning(&"short", TEXT_BYTES_MAX), "short");
    }

    #[test]
    fn log_line_shows_no_literal() {
        assert_eq!(
            access::beginning(&UncachedText("select a from t where a = 'secret'"), TEXT_BYTES_MAX),
            "SELECT a FROM t WHERE a = ?"
        );
        assert_eq!(
            access::beginning(&UncachedText(&format!("SELECT '{}'", "x".repeat(5000))), TEXT_BYTES_MAX),
            "a statement of 5009 bytes"
        );
        assert_eq!(
            access::beginning(&UncachedText("no CQL 'secret'"), TEXT_BYTES_MAX),
            "a statement of 15 bytes"
        );
    }
}
