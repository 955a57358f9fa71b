//! When an index is to be swept, from the entries that a core writes to it, and the results of its
//! sweeps.
//!
//! An index is due when as many entries are written as the last sweep has seen, and at least
//! [`ENTRIES_MIN`]. If that sweep found few stale entries, it takes [`FEW_STALE_FACTOR`] times as
//! many. So a sweep costs at most about one check for each entry written, and a table without
//! overwrites a fraction.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use engine::{Measure, Metric};
use storage::{Mutation, TableId};

/// Entries of an index that a core writes before it is swept, at least.
const ENTRIES_MIN: u64 = 20_000;

/// Factor for indexes whose last sweep found less than one stale entry in [`FEW_STALE_PART`].
const FEW_STALE_FACTOR: u64 = 4;
const FEW_STALE_PART: u64 = 8;

static CHECKED: Metric =
    Metric::counter("fairlane_index_entries_checked_total", "Entries of indexes that sweeps have checked.");
static REMOVED: Metric =
    Metric::counter("fairlane_index_entries_removed_total", "Stale entries of indexes that sweeps removed.");

/// Sweeps of one core.
#[derive(Default)]
pub(crate) struct Sweeps {
    indexes: RefCell<HashMap<TableId, Count>>,
    /// True while a task sweeps.
    pub(super) is_running: Cell<bool>,
    checked: Cell<u64>,
    removed: Cell<u64>,
}

/// Entries of an index.
#[derive(Clone, Copy)]
struct Count {
    /// Entries written since the last sweep began.
    written: u64,
    /// Number of them at which the next sweep begins.
    due_at: u64,
}

impl Default for Count {
    fn default() -> Count {
        Count { written: 0, due_at: ENTRIES_MIN }
    }
}

impl Sweeps {
    /// Counts entries that are being written. Returns true if an index is to be swept, and no sweep
    /// runs.
    pub(super) fn note(&self, entries: &[Mutation]) -> bool {
        let indexes = &mut *self.indexes.borrow_mut();
        let mut is_due = false;
        for mutation in entries {
            let count = indexes.entry(mutation.table).or_default();
            count.written += mutation.changes.len() as u64;
            is_due |= count.written >= count.due_at;
        }
        is_due && !self.is_running.get()
    }

    /// Returns an index to sweep.
    pub(super) fn next(&self) -> Option<TableId> {
        let indexes = self.indexes.borrow();
        indexes.iter().find(|(_, count)| count.written >= count.due_at).map(|(index, _)| *index)
    }

    /// Marks an index as due.
    pub(super) fn mark(&self, index: TableId) {
        self.indexes.borrow_mut().entry(index).or_default().written = u64::MAX / 2;
    }

    /// Sets when the next sweep of an index begins, from the entries that one has seen and removed.
    pub(super) fn set_next(&self, index: TableId, seen: u64, removed: u64) {
        let factor = if removed < seen / FEW_STALE_PART { FEW_STALE_FACTOR } else { 1 };
        let due_at = (seen * factor).max(ENTRIES_MIN);
        self.indexes.borrow_mut().insert(index, Count { written: 0, due_at });
    }

    /// Forgets indexes that are gone.
    pub(super) fn retain(&self, exists: impl Fn(TableId) -> bool) {
        self.indexes.borrow_mut().retain(|index, _| exists(*index));
    }

    /// Counts the entries of a round, and the stale ones among them.
    pub(super) fn count(&self, seen: u64, removed: u64) {
        self.checked.set(self.checked.get() + seen);
        self.removed.set(self.removed.get() + removed);
    }

    /// Returns the counters.
    pub(crate) fn metrics(&self) -> [Measure; 2] {
        let measure = |metric, count: &Cell<u64>| Measure { metric, value: count.get() as f64 };
        [measure(&CHECKED, &self.checked), measure(&REMOVED, &self.removed)]
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use storage::{Change, Deletion};

    use super::*;

    const INDEX: TableId = TableId(7);

    fn note(sweeps: &Sweeps, entries: usize) -> bool {
        let deletion = Deletion { timestamp: 1, deleted_at_s: 1 };
        let changes = vec![Change::DeletePartition(deletion); entries];
        sweeps.note(&[Mutation { table: INDEX, token: 1, key: Bytes::new(), changes }])
    }

    #[test]
    fn index_is_due_after_as_many_entries_as_the_last_sweep_saw() {
        let sweeps = Sweeps::default();
        assert!(!note(&sweeps, ENTRIES_MIN as usize - 1) && sweeps.next().is_none());
        assert!(note(&sweeps, 1));
        assert_eq!(sweeps.next(), Some(INDEX));
        sweeps.is_running.set(true);
        assert!(!note(&sweeps, 1), "one sweep at a time");
        sweeps.is_running.set(false);
        // Half of them were stale.
        sweeps.set_next(INDEX, 3 * ENTRIES_MIN, 3 * ENTRIES_MIN / 2);
        assert_eq!(sweeps.next(), None);
        assert!(!note(&sweeps, 2 * ENTRIES_MIN as usize) && note(&sweeps, ENTRIES_MIN as usize));
        // Few were.
        sweeps.set_next(INDEX, ENTRIES_MIN, 5);
        assert!(!note(&sweeps, 3 * ENTRIES_MIN as usize) && note(&sweeps, ENTRIES_MIN as usize));
        sweeps.retain(|_| false);
        assert_eq!(sweeps.next(), None);
    }
}
