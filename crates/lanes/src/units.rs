//! Work units: a count of work that needs no clock. Code with loops whose length a client decides
//! calls [`crate::spend`], and yields when it returns true. The most units of one fast-lane task
//! poll are kept for each core ([`crate::Lanes::most_units`]). So a test or a fuzzer can assert a
//! bound on the length of a poll, with the same answer on every machine.
//!
//! One unit stands for about 100 ns: a row, a list element, a term, or 64 bytes of text. Counting
//! costs about 1 ns and is always on.

use std::cell::Cell;

/// Units after which a fast-lane task poll should yield: 50 µs of work at 100 ns a unit.
pub const UNITS_PER_POLL: u32 = 500;

/// Bound on the units of one fast-lane task poll that tests assert. A poll spends
/// [`UNITS_PER_POLL`], and at most one chunk of work that cannot be divided, such as the parsing of
/// a statement on the fast lane.
pub const UNITS_MAX: u32 = 4 * UNITS_PER_POLL;

thread_local! {
    /// Units spent by the running task poll, and those of them that its code could not divide
    /// ([`crate::count`]).
    static SPENT: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
}

/// Begins the count of a task poll.
pub(crate) fn begin_poll() {
    SPENT.set((0, 0));
}

/// Adds units to the running task poll. Returns its units before and after.
pub(crate) fn add(units: u32) -> (u32, u32) {
    let (before, undivided) = SPENT.get();
    let after = before.saturating_add(units);
    SPENT.set((after, undivided));
    (before, after)
}

/// Adds units that the code of the running task poll cannot divide.
#[inline]
pub(crate) fn add_undivided(units: u32) {
    let (spent, undivided) = SPENT.get();
    SPENT.set((spent.saturating_add(units), undivided.saturating_add(units)));
}

/// Returns the units of the task poll that runs or has just ended, and those of them that its code
/// could not divide.
pub(crate) fn of_poll() -> (u32, u32) {
    SPENT.get()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Group, Lanes, spend, spend_bytes};

    #[test]
    fn loop_that_spends_and_yields_stays_within_the_bound() {
        let lanes =
            Lanes::start(Config { cores: vec![0], pin: false, ..Config::detect() }).expect("lanes start");
        let yielding = || async {
            for _ in 0..100_000 {
                if spend(1) {
                    crate::yield_now().await;
                }
            }
        };
        lanes.block_on(0, Group::CONTROL, yielding);
        assert!(lanes.most_units(0) <= UNITS_PER_POLL, "{}", lanes.most_units(0));
        let greedy = || async {
            let _ = spend_bytes(1 << 20);
        };
        lanes.block_on(0, Group::CONTROL, greedy);
        lanes.block_on(0, Group::CONTROL, || async {});
        assert_eq!(lanes.most_units(0), (1 << 20) / 64);
        lanes.shutdown();
    }
}
