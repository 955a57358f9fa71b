//! Background work in flight, and the merges that ended, for operators. Both are of one shard, and in memory: a restart
//! begins with an empty history.
//!
//! ```text
//!  begin ──► in flight (a TaskGuard holds it) ──► gone
//!                   merges that succeed: ──► history, of which the oldest goes first
//! ```

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use crate::background::progress::Progress;
use crate::model::TableId;

/// Merges that the history of a node has, over all its shards.
pub const HISTORY_MAX: usize = 1000;

/// Numbers of sources that partitions of a merge are told apart by; more count as the last.
pub(crate) const SOURCES_MAX: usize = 16;

/// A kind of background work, by Cassandra's names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TaskKind {
    /// Memtables are written to table files.
    Flush,
    /// Runs are merged.
    Compaction,
    /// One run is written anew without what is dead.
    TombstoneCompaction,
    /// Files that shards share are written anew after a change of the number of cores.
    Cleanup,
    /// Files are read, and damaged ones written anew.
    Scrub,
    /// Files get second names in a snapshot.
    Snapshot,
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
        }
    }
}

/// Work in flight.
#[derive(Clone, Debug)]
pub struct Task {
    /// Counts the tasks of this shard from 1.
    pub number: u64,
    /// The kind.
    pub kind: TaskKind,
    /// The table; `None`: all of them.
    pub table: Option<TableId>,
    /// Table files that it reads.
    pub files: u64,
    /// When it began, Unix seconds.
    pub began_s: u32,
    /// Bytes done of all; of a snapshot, files.
    pub progress: Progress,
}

/// A merge that ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Compacted {
    /// The number of its task.
    pub number: u64,
    /// What it was.
    pub kind: TaskKind,
    /// The table.
    pub table: TableId,
    /// When it ended, Unix seconds.
    pub ended_s: u32,
    /// How long it took, ms.
    pub duration_ms: u64,
    /// What went in and came out.
    pub tally: Tally,
}

/// What went into a merge and came out of it. Rows and tombstones are of files that record them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// Runs read.
    pub runs: u64,
    /// Table files read.
    pub files_in: u64,
    /// Bytes of those.
    pub bytes_in: u64,
    /// Rows of those.
    pub rows_in: u64,
    /// Tombstones of those.
    pub tombstones_in: u64,
    /// Table files written.
    pub files_out: u64,
    /// Bytes of those.
    pub bytes_out: u64,
    /// Rows of those.
    pub rows_out: u64,
    /// Tombstones of those.
    pub tombstones_out: u64,
    /// Partitions by the number of runs they were in, from 1; the last counts all above it as well.
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

/// Work in flight until it is dropped.
#[derive(Debug)]
pub(crate) struct TaskGuard {
    tasks: Rc<Tasks>,
    pub(crate) number: u64,
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        self.tasks.running.borrow_mut().retain(|task| task.number != self.number);
    }
}

impl Tasks {
    /// Those of one of `shards` shards.
    pub(crate) fn new(shards: u32) -> Tasks {
        let history_max = (HISTORY_MAX / shards.max(1) as usize).max(1);
        Tasks { begun: Cell::new(0), running: RefCell::default(), history: RefCell::default(), history_max }
    }

    /// Has a task seen until the answer is dropped. The number of tasks is bounded by who begins them: flushes go
    /// one by one, merges are few, and statements are counted where they come in.
    pub(crate) fn begin(
        self: &Rc<Self>,
        kind: TaskKind,
        table: Option<TableId>,
        files: u64,
        (began_s, progress): (u32, Progress),
    ) -> TaskGuard {
        let number = self.begun.get() + 1;
        self.begun.set(number);
        self.running.borrow_mut().push(Task { number, kind, table, files, began_s, progress });
        TaskGuard { tasks: self.clone(), number }
    }

    /// Adds a merge to the history.
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
    fn history_keeps_the_last_of_a_bounded_number() {
        let tasks = Rc::new(Tasks::new(500));
        for number in 1..=5 {
            let guard = tasks.begin(TaskKind::Compaction, Some(TableId(7)), number, (0, Progress::default()));
            assert_eq!(tasks.running().iter().map(|task| task.number).collect::<Vec<_>>(), [number]);
            let (kind, table) = (TaskKind::Compaction, TableId(7));
            let tally = Tally::default();
            tasks.ended(Compacted { number: guard.number, kind, table, ended_s: 0, duration_ms: 0, tally });
        }
        assert!(tasks.running().is_empty());
        assert_eq!(tasks.history().iter().map(|merge| merge.number).collect::<Vec<_>>(), [4, 5]);
    }
}
