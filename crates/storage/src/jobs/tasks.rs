//! Background work in flight, and a history of compactions, for operators. Both belong to one shard
//! and are in memory only: a restart starts with an empty history.
//!
//! ```text
//!  begin ──► in flight (a TaskGuard holds it) ──► gone
//!                   successful compactions: ──► history, bounded, oldest evicted first
//! ```

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use crate::model::SOURCES_MAX;
use crate::model::TableId;
use crate::state::progress::WorkProgress;

/// Entries in the history of a node, over all its shards.
pub const HISTORY_MAX: usize = 1000;

/// A kind of background work, with Cassandra's names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TaskKind {
    /// Writes memtables to table files.
    Flush,
    /// Compacts runs into one.
    Compaction,
    /// Rewrites one run without its dead data.
    TombstoneCompaction,
    /// Rewrites files that shards share, after a change of the number of cores.
    Cleanup,
    /// Reads files and rewrites damaged ones.
    Scrub,
    /// Creates hard links to files in a snapshot.
    Snapshot,
    /// Writes the entries of an index for the rows that a table has.
    IndexBuild,
}

impl TaskKind {
    /// The name that users see.
    pub fn name(self) -> &'static str {
        match self {
            TaskKind::Flush => "flush",
            TaskKind::Compaction => "compaction",
            TaskKind::TombstoneCompaction => "tombstone compaction",
            TaskKind::Cleanup => "cleanup",
            TaskKind::Scrub => "scrub",
            TaskKind::Snapshot => "snapshot",
            TaskKind::IndexBuild => "secondary index build",
        }
    }
}

/// Work in flight.
#[derive(Clone, Debug)]
pub struct Task {
    /// Counts the tasks of this shard from 1.
    pub number: u64,
    /// The kind of work.
    pub kind: TaskKind,
    /// The table; `None`: all tables.
    pub table: Option<TableId>,
    /// The number of table files to read.
    pub files: u64,
    /// Start time, Unix seconds.
    pub began_s: u32,
    /// Bytes done and total; files for a snapshot, parts of the tokens for an index.
    pub progress: WorkProgress,
}

/// A finished compaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Compacted {
    /// The number of its task.
    pub number: u64,
    /// The kind of compaction.
    pub kind: TaskKind,
    /// The table.
    pub table: TableId,
    /// End time, Unix seconds.
    pub ended_s: u32,
    /// Duration, ms.
    pub duration_ms: u64,
    /// Sizes of inputs and outputs.
    pub tally: Tally,
}

/// Sizes of the inputs and outputs of a compaction. Rows and tombstones count only files that can
/// be opened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// Runs read.
    pub runs: u64,
    /// Table files read.
    pub files_in: u64,
    /// Bytes of the files read.
    pub bytes_in: u64,
    /// Rows of the files read.
    pub rows_in: u64,
    /// Tombstones of the files read.
    pub tombstones_in: u64,
    /// Table files written.
    pub files_out: u64,
    /// Bytes of the files written.
    pub bytes_out: u64,
    /// Rows of the files written.
    pub rows_out: u64,
    /// Tombstones of the files written.
    pub tombstones_out: u64,
    /// Partitions by the number of runs that had them, from 1. The last entry includes all larger
    /// numbers.
    pub partitions: [u64; SOURCES_MAX],
}

/// The tasks of a shard.
#[derive(Debug)]
pub(crate) struct Tasks {
    begun: Cell<u64>,
    running: RefCell<Vec<Task>>,
    history: RefCell<VecDeque<Compacted>>,
    history_max: usize,
}

/// Lists a task as in flight until it is dropped.
#[derive(Debug)]
pub struct TaskGuard {
    tasks: Rc<Tasks>,
    pub(crate) number: u64,
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        self.tasks.running.borrow_mut().retain(|task| task.number != self.number);
    }
}

impl Tasks {
    /// Creates the tasks of one of `shards` shards.
    pub(crate) fn new(shards: u32) -> Tasks {
        let history_max = (HISTORY_MAX / shards.max(1) as usize).max(1);
        Tasks { begun: Cell::new(0), running: RefCell::default(), history: RefCell::default(), history_max }
    }

    /// Lists a task as in flight until the guard is dropped. Callers bound the number of tasks:
    /// there is one flush at a time and a few compactions, and statements are limited where they
    /// arrive.
    pub(crate) fn begin(
        self: &Rc<Self>,
        kind: TaskKind,
        table: Option<TableId>,
        files: u64,
        began_s: u32,
        progress: WorkProgress,
    ) -> TaskGuard {
        let number = self.begun.get() + 1;
        self.begun.set(number);
        self.running.borrow_mut().push(Task { number, kind, table, files, began_s, progress });
        TaskGuard { tasks: self.clone(), number }
    }

    /// Adds a compaction to the history.
    pub(crate) fn ended(&self, compacted: Compacted) {
        let history = &mut *self.history.borrow_mut();
        if history.len() == self.history_max {
            history.pop_front();
        }
        history.push_back(compacted);
    }

    pub(crate) fn running(&self) -> Vec<Task> {
        self.running.borrow().clone()
    }

    pub(crate) fn history(&self) -> Vec<Compacted> {
        self.history.borrow().iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_is_bounded_and_keeps_the_latest() {
        let tasks = Rc::new(Tasks::new(500));
        for number in 1..=5 {
            let guard =
                tasks.begin(TaskKind::Compaction, Some(TableId(7)), number, 0, WorkProgress::default());
            assert_eq!(tasks.running().iter().map(|task| task.number).collect::<Vec<_>>(), [number]);
            let (kind, table) = (TaskKind::Compaction, TableId(7));
            let tally = Tally::default();
            tasks.ended(Compacted { number: guard.number, kind, table, ended_s: 0, duration_ms: 0, tally });
        }
        assert!(tasks.running().is_empty());
        assert_eq!(tasks.history().iter().map(|merge| merge.number).collect::<Vec<_>>(), [4, 5]);
    }
}
