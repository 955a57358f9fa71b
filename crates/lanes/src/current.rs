//! Group and task poll of the running code, in thread-local cells of every thread of the lanes.

use std::cell::Cell;

use crate::{Group, units};

thread_local! {
    static GROUP: Cell<Group> = const { Cell::new(Group::CONTROL) };
    /// Start of the running task poll, ns.
    static POLL_BEGAN: Cell<u64> = const { Cell::new(0) };
}

/// Returns the group of the running task; [`Group::CONTROL`] outside of tasks.
#[must_use]
pub fn current_group() -> Group {
    GROUP.get()
}

/// Sets the current group while `f` runs.
pub(crate) fn in_group<T>(group: Group, f: impl FnOnce() -> T) -> T {
    let outer = GROUP.replace(group);
    let result = f();
    GROUP.set(outer);
    result
}

/// Begins a task poll.
pub(crate) fn poll_begins(now_ns: u64) {
    POLL_BEGAN.set(now_ns);
    units::begin_poll();
}

/// Returns the time that the running task poll has taken, ns.
pub(crate) fn poll_ns(now_ns: u64) -> u64 {
    now_ns.saturating_sub(POLL_BEGAN.get())
}
