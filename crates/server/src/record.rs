//! Accounting of answered statements: counters of the level, and a log line for each slow
//! statement. The line shows `?` for literals.

use std::fmt::{self, Display};
use std::rc::Rc;

use wire::{Envelope, Request};

use crate::logging::Level;
use crate::long::INLINE_TEXT_BYTES;
use crate::request::{Done, Times};
use crate::session::Session;
use crate::statement::{Kind, Statement};

/// Maximum length of a statement's text in the log, bytes.
const TEXT_BYTES_MAX: usize = 1000;

impl Session {
    /// Counts a statement, and logs it if it was slow.
    pub(crate) fn record(&self, done: Done, times: Times, statement: Option<&Statement>, ended_ns: u64) {
        if let Some(service_ns) = self.count(done, times, ended_ns) {
            match statement {
                Some(statement) => self.log_slow(service_ns, &cql::Masked(&statement.tree)),
                None => self.log_slow(service_ns, &"BATCH"),
            }
        }
    }

    /// Counts a statement answered at once. Finds its text only if it was slow.
    pub(crate) fn record_envelope(&self, done: Done, times: Times, envelope: &Envelope, ended_ns: u64) {
        if let Some(service_ns) = self.count(done, times, ended_ns) {
            let statement = match envelope.request() {
                Ok(Request::Execute(execute)) => self.core.plans.prepared(execute.id),
                Ok(Request::Query(query)) => {
                    let of_session = || self.keyspace.borrow().clone();
                    let keyspace = query.params.keyspace.map(Rc::from).or_else(of_session);
                    let found = self.core.plans.text(keyspace.as_deref(), query.text);
                    if found.is_none() {
                        return self.log_slow(service_ns, &UncachedText(query.text));
                    }
                    found
                }
                _ => None,
            };
            match statement {
                Some(statement) => self.log_slow(service_ns, &cql::Masked(&statement.tree)),
                None => self.log_slow(service_ns, &"BATCH"),
            }
        }
    }

    /// Counts a statement. Returns its service time, ns, if it was slow.
    fn count(&self, done: Done, times: Times, ended_ns: u64) -> Option<u64> {
        let service_ns = ended_ns.saturating_sub(times.began_ns);
        let queue_ns = times.began_ns.saturating_sub(times.read_ns);
        let kind = match done.kind {
            Kind::Read => workload::Kind::Read,
            Kind::Write | Kind::Batch => workload::Kind::Write,
            Kind::Maintenance | Kind::Other => workload::Kind::Other,
        };
        done.effective.level.record(self.core.index, kind, service_ns, queue_ns, done.failed);
        if let Some(latencies) = done.latencies.filter(|_| !done.failed) {
            latencies.record(service_ns);
        }
        let threshold = self.core.shared.config.slow_statement?;
        (u128::from(service_ns) >= threshold.as_nanos()).then_some(service_ns)
    }

    #[cold]
    fn log_slow(&self, service_ns: u64, statement: &dyn Display) {
        crate::counters::add(&self.core.counters.slow, 1);
        let text = access::beginning(statement, TEXT_BYTES_MAX);
        let role = self.login().map_or_else(String::new, |login| login.role().to_string());
        let ms = service_ns / 1_000_000;
        let fields: [(&str, &dyn Display); 4] =
            [("ms", &ms), ("role", &role), ("client", &self.peer), ("statement", &text)];
        self.core.shared.logger.log(Level::Warn, "slow statement", &fields);
    }
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
