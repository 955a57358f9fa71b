//! What is kept of a statement that has been answered: its level's counts, and a line in the log if it was slow.

use std::fmt::Display;

use wire::{Envelope, Request};

use crate::logging::Level;
use crate::request::{Done, Times};
use crate::session::Session;
use crate::statement::{Kind, Statement};

/// Longest text of a statement in the log, characters.
const TEXT_CHARS_MAX: usize = 1000;

impl Session {
    /// Counts a statement, and logs it if it was slow.
    pub(crate) fn record(&self, done: Done, times: Times, statement: Option<&Statement>, ended_ns: u64) {
        if let Some(service_ns) = self.count(done, times, ended_ns) {
            self.log_slow(service_ns, statement);
        }
    }

    /// Counts a statement answered at once, whose text is looked up only if it was slow.
    pub(crate) fn record_envelope(&self, done: Done, times: Times, envelope: &Envelope, ended_ns: u64) {
        if let Some(service_ns) = self.count(done, times, ended_ns) {
            let statement = match envelope.request() {
                Ok(Request::Execute(execute)) => self.core.plans.prepared(execute.id),
                Ok(Request::Query(query)) => {
                    let keyspace = self.keyspace_of(query.params.keyspace);
                    self.core.text(query.text, keyspace.as_ref()).ok()
                }
                _ => None,
            };
            self.log_slow(service_ns, statement.as_deref());
        }
    }

    /// Counts a statement; its time, ns, if it was slow.
    fn count(&self, done: Done, times: Times, ended_ns: u64) -> Option<u64> {
        let service_ns = ended_ns.saturating_sub(times.began_ns);
        let queue_ns = times.began_ns.saturating_sub(times.read_ns);
        let kind = match done.kind {
            Kind::Read => workload::Kind::Read,
            Kind::Write | Kind::Batch => workload::Kind::Write,
            Kind::Other => workload::Kind::Other,
        };
        done.effective.level.record(self.core.index, kind, service_ns, queue_ns, done.failed);
        let threshold = self.core.shared.config.slow_statement?;
        (u128::from(service_ns) >= threshold.as_nanos()).then_some(service_ns)
    }

    #[cold]
    fn log_slow(&self, service_ns: u64, statement: Option<&Statement>) {
        crate::counters::add(&self.core.counters.slow, 1);
        let mut text = statement.map_or_else(|| "BATCH".to_owned(), |statement| statement.tree.to_string());
        if let Some((end, _)) = text.char_indices().nth(TEXT_CHARS_MAX) {
            text.truncate(end);
        }
        let role = self.login().map_or_else(String::new, |login| login.role().to_string());
        let ms = service_ns / 1_000_000;
        let fields: [(&str, &dyn Display); 4] =
            [("ms", &ms), ("role", &role), ("client", &self.peer), ("statement", &text)];
        self.core.shared.logger.log(Level::Warn, "slow statement", &fields);
    }
}
