//! The compaction state of one table: its next compaction, and the runs in one.
//!
//! The choice for a table (`choice.rs`) is cached with the state it depends on: runs, busy runs,
//! options. The frequent questions (is there work, how large is the backlog) then cost a comparison
//! for each table. `check_expiry` invalidates the cache, because the choice also depends on time.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::state::progress::WorkProgress;

/// The compaction state of one table.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    kept: RefCell<Option<(Stamp, Choice)>>,
    /// The number of changes of the fields below, of the options, and of expiry checks.
    version: Cell<u64>,
    /// The numbers of runs that a compaction reads or writes.
    busy: RefCell<Vec<u64>>,
    /// The numbers of runs with a row that is too large for compactions together. They wait for a
    /// requested compaction, or for a restart.
    left_out: RefCell<Vec<u64>>,
    /// Requested compactions that wait for those in flight. No other compaction of the table may
    /// start.
    pub(crate) reserved: Cell<u32>,
    /// The time since when a compaction has been needed. Reset when one starts.
    since_ns: Cell<Option<u64>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stamp {
    files: u64,
    version: u64,
}

/// The next compaction that a table needs, and its backlog.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choice {
    /// The numbers of the runs to compact. Empty: no compaction is needed.
    pub(crate) runs: Rc<[u64]>,
    /// Bytes of those runs.
    pub(crate) bytes: u64,
    /// Runs that wait for a compaction.
    pub(crate) waiting: usize,
    pub(crate) backlog: u64,
}

/// A compaction in flight.
#[derive(Clone, Debug)]
pub(crate) struct InFlight {
    /// The number of its task.
    pub(crate) number: u64,
    /// True if a statement requested it.
    pub(crate) requested: bool,
    pub(crate) progress: WorkProgress,
}

impl Needs {
    pub(crate) fn touch(&self) {
        self.version.set(self.version.get() + 1);
    }

    pub(crate) fn is_busy(&self) -> bool {
        !self.busy.borrow().is_empty()
    }

    /// Returns true if no other compaction may choose a run.
    pub(crate) fn has(&self, run: u64) -> bool {
        self.busy.borrow().contains(&run) || self.left_out.borrow().contains(&run)
    }

    /// Makes compactions leave runs out, unless they are requested.
    pub(crate) fn leave_out(&self, runs: &[u64]) {
        self.left_out.borrow_mut().extend_from_slice(runs);
        self.touch();
    }

    /// Reverts [`Needs::leave_out`].
    pub(crate) fn take_in(&self, runs: &[u64]) {
        self.left_out.borrow_mut().retain(|run| !runs.contains(run));
        self.touch();
    }

    /// Returns the choice for this version of the table's files. Calls `choose` if it has changed
    /// since the last call.
    pub(crate) fn choice(
        &self,
        files: u64,
        now_ns: impl FnOnce() -> u64,
        choose: impl FnOnce() -> Choice,
    ) -> Choice {
        let stamp = Stamp { files, version: self.version.get() };
        if let Some((kept, choice)) = &*self.kept.borrow()
            && *kept == stamp
        {
            return choice.clone();
        }
        let choice = choose();
        if choice.runs.is_empty() {
            self.since_ns.set(None);
        } else if self.since_ns.get().is_none() {
            self.since_ns.set(Some(now_ns()));
        }
        *self.kept.borrow_mut() = Some((stamp, choice.clone()));
        choice
    }

    /// Returns the time since when a compaction has been needed, if one is.
    pub(crate) fn since_ns(&self) -> Option<u64> {
        self.since_ns.get()
    }

    /// Marks runs as busy: a compaction uses them from now on.
    pub(crate) fn take(&self, runs: &[u64]) {
        self.busy.borrow_mut().extend_from_slice(runs);
        self.since_ns.set(None);
        self.touch();
    }

    /// Unmarks runs after the compaction.
    pub(crate) fn give_back(&self, runs: &[u64]) {
        self.busy.borrow_mut().retain(|run| !runs.contains(run));
        self.touch();
    }
}
