//! Counts of work on the graphs of vectors of one core.

use std::cell::Cell;

/// Counts of work on the graphs of this core.
#[derive(Default)]
pub(super) struct GraphCounts {
    pub(super) inserted: Cell<u64>,
    pub(super) removed: Cell<u64>,
    pub(super) freed: Cell<u64>,
    pub(super) loaded: Cell<u64>,
    pub(super) ignored: Cell<u64>,
    pub(super) saved: Cell<u64>,
    pub(super) saved_bytes: Cell<u64>,
    pub(super) saves_failed: Cell<u64>,
}

/// Adds to a count.
pub(super) fn add(count: &Cell<u64>, more: u64) {
    count.set(count.get() + more);
}
