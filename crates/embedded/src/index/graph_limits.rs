//! Decisions about graphs of vectors: when one is saved, and if one that was freed fits.

use std::cell::Cell;

use crate::index::graph_counts::add;

/// Changed nodes after which a graph is saved, at least.
const CHANGES_MIN: u64 = 1024;

/// Changed nodes after which a graph is saved, as a part of its nodes.
const CHANGES_PART: u64 = 4;

/// Interval of counting the rows without a write: they may expire. Counting 10 million takes about
/// a hundredth of it.
const COUNTED_EVERY_NS: u64 = 3_600 * 1_000_000_000;

/// Interval of counting the rows after writes, as a multiple of the time that counting takes.
const COUNTS_PART: u64 = 100;

/// Changes of a graph since it was saved.
#[derive(Default)]
pub(super) struct SaveState {
    changes: Cell<u64>,
    /// Changes at the last save, if it has failed.
    failed_at: Cell<u64>,
    is_saving: Cell<bool>,
    /// True if the last failure was reported, and no save has succeeded since.
    is_reported: Cell<bool>,
}

impl SaveState {
    pub(super) fn count_changes(&self, count: u64) {
        add(&self.changes, count);
    }

    /// Forgets changes: the graph is gone. The saved one stays, for a start with more memory.
    pub(super) fn forget_changes(&self) {
        self.changes.set(0);
        self.failed_at.set(0);
    }

    /// Returns the number of changes.
    pub(super) fn changes(&self) -> u64 {
        self.changes.get()
    }

    /// Returns true if a graph of `nodes` nodes has changed enough to be saved.
    pub(super) fn is_due(&self, nodes: usize) -> bool {
        let changes = self.changes.get().saturating_sub(self.failed_at.get());
        changes >= CHANGES_MIN.max(nodes as u64 / CHANGES_PART)
    }

    /// Notes that a task saves the graph, or does not any more. Returns true if one did before.
    pub(super) fn set_saving(&self, is_saving: bool) -> bool {
        self.is_saving.replace(is_saving)
    }

    /// Notes the end of a save that began after `changes` changes. Returns true if it is a failure
    /// to report.
    pub(super) fn ended(&self, changes: u64, has_succeeded: bool) -> bool {
        if has_succeeded {
            self.changes.set(self.changes.get().saturating_sub(changes));
        }
        self.failed_at.set(if has_succeeded { 0 } else { changes });
        !self.is_reported.replace(!has_succeeded) && !has_succeeded
    }
}

/// Memory that the graph of some rows needs.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Freed {
    /// Memory of a row in the graph, bytes.
    row_bytes: u64,
    /// Rows with vectors. `None`: they have to be counted.
    rows: Option<u64>,
    /// Time of the count, and its duration, ns.
    counted_ns: u64,
    took_ns: u64,
    /// True if rows were written since then.
    has_changed: bool,
}

impl Freed {
    /// Returns the estimate for a graph of which `nodes` nodes had these bytes.
    pub(super) fn new(bytes: usize, nodes: usize) -> Freed {
        Freed { row_bytes: (bytes as u64).div_ceil(nodes.max(1) as u64), ..Freed::default() }
    }

    pub(super) fn after_write(self) -> Freed {
        Freed { has_changed: true, ..self }
    }

    /// Returns it for the time while rows are counted.
    pub(super) fn while_counting(self) -> Freed {
        Freed { rows: None, has_changed: false, ..self }
    }

    pub(super) fn counted(self, rows: u64, began_ns: u64, now_ns: u64) -> Freed {
        let took_ns = now_ns.saturating_sub(began_ns);
        Freed { rows: Some(rows), counted_ns: now_ns, took_ns, ..self }
    }

    pub(super) fn has_to_be_counted(&self, now_ns: u64) -> bool {
        let after_writes_ns = self.took_ns.saturating_mul(COUNTS_PART);
        let interval_ns = if self.has_changed { after_writes_ns } else { COUNTED_EVERY_NS };
        self.rows.is_none() || now_ns.saturating_sub(self.counted_ns) >= interval_ns
    }

    /// Returns true if the graph is expected to fit.
    pub(super) fn fits(&self, free_bytes: usize) -> bool {
        let fits = |rows: u64| rows.saturating_mul(self.row_bytes) <= free_bytes as u64 / 4 * 3;
        self.rows.is_some_and(fits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graph_is_expected_to_fit_with_a_quarter_to_spare() {
        let freed = Freed::new(1000, 10);
        assert!(!freed.fits(usize::MAX), "its rows are not known");
        let freed = freed.counted(30, 1, 2);
        assert!(freed.fits(4000) && !freed.fits(3996));
        assert!(freed.counted(0, 1, 2).fits(0));
        assert!(!freed.counted(u64::MAX, 1, 2).fits(usize::MAX));
        assert!(Freed::new(1000, 0).counted(1, 1, 2).fits(1336), "an empty graph has a size, too");
    }

    #[test]
    fn counting_takes_a_hundredth_of_the_time_after_writes() {
        let freed = Freed::new(1000, 10);
        assert!(freed.has_to_be_counted(0));
        let freed = freed.counted(40, 1000, 1010);
        assert!(!freed.has_to_be_counted(1010 + COUNTED_EVERY_NS - 1));
        assert!(freed.has_to_be_counted(1010 + COUNTED_EVERY_NS));
        let freed = freed.after_write();
        assert!(!freed.has_to_be_counted(2009) && freed.has_to_be_counted(2010));
        // The scan may be past a row that is written while it counts.
        let freed = freed.while_counting();
        assert!(!freed.counted(40, 2000, 2001).has_to_be_counted(9000));
        assert!(freed.after_write().counted(40, 2000, 2001).has_to_be_counted(9000));
    }

    #[test]
    fn graph_is_saved_after_changes_of_a_quarter() {
        let saves = SaveState::default();
        saves.count_changes(CHANGES_MIN - 1);
        assert!(!saves.is_due(10));
        saves.count_changes(1);
        assert!(saves.is_due(10) && saves.is_due(4 * 1024) && !saves.is_due(4 * 1025));
        assert!(saves.ended(CHANGES_MIN, false), "the first failure is reported");
        saves.count_changes(CHANGES_MIN - 1);
        assert!(!saves.is_due(10));
        saves.count_changes(1);
        assert!(saves.is_due(10));
        // Some changes come while it is written.
        saves.count_changes(5);
        assert!(!saves.ended(2 * CHANGES_MIN, false) && !saves.ended(2 * CHANGES_MIN, true));
        assert_eq!((saves.changes(), saves.failed_at.get()), (5, 0));
        assert!(saves.ended(5, false), "the first failure after a success");
    }
}
