//! Record stage: counts answered statements for the level, and logs each slow one. The line shows
//! `?` for literals.

use std::fmt::Display;
use std::sync::Arc;

use crate::logging::{FieldValue, Level};
use crate::request::{CqlRequest, Times};
use crate::session::Session;
use crate::statement::{RunsIn, Statement, StatementKind};
use crate::trace::{self, TracedClient};

/// Maximum length of a statement's text in the log, bytes.
const TEXT_BYTES_MAX: usize = 1000;

/// Counts a statement, and logs it if it was slow.
pub(crate) fn record(session: &Session, request: &mut CqlRequest, ended_ns: u64) {
    if let Some(trace) = request.trace.take() {
        let client = TracedClient { role: session.role_name(), address: session.peer };
        session.core.traces.add(trace.finish(client, traced_parameters(request), ended_ns));
    }
    if let Some(slow) = count(session, request, ended_ns) {
        log_slow_statement(session, &slow, request.statement.as_deref());
    }
    keep_until_sent(session, request);
}

/// Returns the column `parameters` of a trace.
#[cold]
fn traced_parameters(request: &CqlRequest) -> trace::Parameters {
    let mut parameters = vec![
        ("consistency_level", trace::consistency(request.form.consistency)),
        ("service_level", request.effective.level.name().to_string()),
    ];
    if let Some(statement) = &request.statement {
        let text = &*statement.text;
        parameters.push(("query", text[..text.floor_char_boundary(trace::TEXT_BYTES_MAX)].to_owned()));
    }
    parameters
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
fn keep_until_sent(session: &Session, request: &mut CqlRequest) {
    if request.effective.level.is_limited() {
        session.outgoing.answered.borrow_mut().extend(request.admitted.take());
    }
}

/// Counts a statement. Returns its times if it was slow.
fn count(session: &Session, request: &CqlRequest, ended_ns: u64) -> Option<Slow> {
    let Times { arrived_ns, began_ns } = request.times;
    let service_ns = ended_ns.saturating_sub(began_ns);
    let queue_ns = began_ns.saturating_sub(arrived_ns);
    let kind = match request.kind() {
        StatementKind::Read => workload::RequestKind::Read,
        StatementKind::Write | StatementKind::Batch => workload::RequestKind::Write,
        StatementKind::Maintenance | StatementKind::Other => workload::RequestKind::Other,
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
        None if session.core.front.is_some() => log_slow(session, slow, &"a statement for the cluster"),
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

#[cfg(test)]
mod tests {
    use std::fmt;

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
}
