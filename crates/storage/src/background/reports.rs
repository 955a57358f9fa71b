//! Lines of the log about flushes, merges and recovery: one for each event, and not more than a log can take.
//!
//! A storm of small flushes would flood the log, and drive out what matters. Flushes and merges each have a budget of
//! lines; events beyond it are counted, and the next line has their number.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use crate::compaction::tasks::{Compacted, Task};
use crate::event::{Event, Named};
use crate::model::TableId;
use crate::options::Options;
use crate::shard::{Shard, State};

/// Lines of one kind that a shard may write at once.
const BURST: u32 = 20;

/// A line more for each of these.
const LINE_EVERY_NS: u64 = 3_000_000_000;

/// What a start read.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Recovery {
    /// Table files opened.
    pub files: u64,
    /// Log segments read.
    pub segments: u64,
    /// Log records applied.
    pub records: u64,
    /// Bytes of those segments.
    pub bytes: u64,
    /// How long it took.
    pub duration: Duration,
}

/// A budget of lines.
#[derive(Debug)]
pub(crate) struct Lines {
    left: Cell<u32>,
    /// When the budget was last made larger.
    since_ns: Cell<u64>,
    left_out: Cell<u64>,
}

impl Default for Lines {
    fn default() -> Lines {
        Lines { left: Cell::new(BURST), since_ns: Cell::new(0), left_out: Cell::new(0) }
    }
}

impl Lines {
    /// Takes a line out of the budget: the number of events that had none since the last one. `None`: there is no line left.
    pub(crate) fn take(&self, now_ns: u64) -> Option<u64> {
        let more = now_ns.saturating_sub(self.since_ns.get()) / LINE_EVERY_NS;
        if more > 0 {
            self.left.set(self.left.get().saturating_add(more.min(u64::from(BURST)) as u32).min(BURST));
            self.since_ns.set(now_ns);
        }
        match self.left.get() {
            0 => {
                self.left_out.set(self.left_out.get() + 1);
                None
            }
            left => {
                self.left.set(left - 1);
                Some(self.left_out.take())
            }
        }
    }
}

/// The budgets of a shard, and what its start read.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    pub(crate) flushes: Lines,
    pub(crate) merges: Lines,
    recovery: Cell<Recovery>,
}

impl Reports {
    /// Reports the start of a shard.
    pub(crate) fn recovered(&self, options: &Options, recovery: Recovery) {
        self.recovery.set(recovery);
        options.teller.tell(&Event::Recovered { shard: options.shard, recovery });
    }
}

impl State {
    /// A table for a report.
    pub(crate) fn named(&self, id: TableId) -> Named {
        Named { id, name: self.names.get(&id).cloned() }
    }
}

impl Shard {
    /// Names a table in reports: keyspace and table, with a dot in between.
    pub fn name(&self, table: TableId, name: Arc<str>) {
        self.state.borrow_mut().names.insert(table, name);
    }

    /// What the start of this shard read.
    pub fn recovery(&self) -> Recovery {
        self.reports.recovery.get()
    }

    /// Background work in flight.
    pub fn running_tasks(&self) -> Vec<Task> {
        self.tasks.running()
    }

    /// The last merges that ended, oldest first: at most [`crate::HISTORY_MAX`] over all shards.
    pub fn compaction_history(&self) -> Vec<Compacted> {
        self.tasks.history()
    }

    /// Adds a merge to the history, and to the log.
    pub(crate) fn report_merge(&self, compacted: Compacted) {
        self.tasks.ended(compacted);
        if let Some(left_out) = self.reports.merges.take(self.world.now_ns()) {
            let table = self.state.borrow().named(compacted.table);
            let Compacted { kind, tally, duration_ms, .. } = compacted;
            let duration = Duration::from_millis(duration_ms);
            self.options.teller.tell(&Event::Compacted { table, kind, tally, duration, left_out });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storm_of_events_has_a_bounded_number_of_lines() {
        let lines = Lines::default();
        let burst = (0..1000).filter(|event| lines.take(*event).is_some()).count();
        assert_eq!(burst, BURST as usize);
        // A line every three seconds, which has the number of those that had none.
        assert_eq!(lines.take(LINE_EVERY_NS + 1), Some(980));
        assert_eq!(lines.take(LINE_EVERY_NS + 2), None);
        assert_eq!(lines.take(2 * LINE_EVERY_NS + 2), Some(1));
        let long_after = (0..100).filter_map(|event| lines.take(1000 * LINE_EVERY_NS + event)).count();
        assert_eq!(long_after, BURST as usize);
    }
}
