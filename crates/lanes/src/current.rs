//! Group, flow and task poll of the running code, in thread-local cells of every thread of the
//! lanes.

use std::cell::Cell;

use crate::{Flow, Group, sys, units};

thread_local! {
    static GROUP: Cell<Group> = const { Cell::new(Group::CONTROL) };
    static FLOW: Cell<Flow> = const { Cell::new(Flow::NONE) };
    /// Start of the running task poll, ns.
    static POLL_BEGAN: Cell<u64> = const { Cell::new(0) };
    /// The latest reading of the clock on a fast lane, ns. 0: too old, since the lane slept.
    static READ_CLOCK: Cell<u64> = const { Cell::new(0) };
}

/// Returns the group of the running task; [`Group::CONTROL`] outside of tasks.
#[must_use]
pub fn current_group() -> Group {
    GROUP.get()
}

/// Returns the flow of the running task; [`Flow::NONE`] outside of tasks.
#[must_use]
pub fn current_flow() -> Flow {
    FLOW.get()
}

/// Sets the current group and flow while `f` runs.
pub(crate) fn in_group<T>(group: Group, flow: Flow, f: impl FnOnce() -> T) -> T {
    let outer = (GROUP.replace(group), FLOW.replace(flow));
    let result = f();
    GROUP.set(outer.0);
    FLOW.set(outer.1);
    result
}

/// Begins a task poll.
pub(crate) fn poll_begins(now_ns: u64) {
    POLL_BEGAN.set(now_ns);
    units::begin_poll();
}

/// Records a reading of the clock on a fast lane, or 0 before the lane sleeps.
pub(crate) fn clock_read(now_ns: u64) {
    READ_CLOCK.set(now_ns);
}

/// Returns the time on a fast lane, ns, at a resolution of one task poll. Reads the clock only
/// after a sleep.
pub(crate) fn coarse_now_ns() -> u64 {
    match READ_CLOCK.get() {
        0 => {
            let now_ns = sys::monotonic_ns();
            READ_CLOCK.set(now_ns);
            now_ns
        }
        now_ns => now_ns,
    }
}

/// Returns the time that the running task poll has taken, ns.
pub(crate) fn poll_ns(now_ns: u64) -> u64 {
    now_ns.saturating_sub(POLL_BEGAN.get())
}
