//! Work units: a count of work that needs no clock. Code with loops whose length a client decides
//! calls [`spend`], and yields when it returns true. The most units of one fast-lane task poll are
//! kept for each core ([`crate::Lanes::most_units`]). So a test or a fuzzer can assert a bound on
//! the length of a poll, with the same answer on every machine.
//!
//! One unit stands for about 100 ns: a row, a list element, a term, or 64 bytes of text. Counting
//! costs about 1 ns and is always on.

use std::cell::Cell;

use crate::context;

/// Units after which a fast-lane task poll should yield: 50 µs of work at 100 ns a unit.
pub const UNITS_PER_POLL: u32 = 500;

/// Bound on the units of one fast-lane task poll that tests assert. A poll spends
/// [`UNITS_PER_POLL`], and at most one chunk of work that cannot be divided, such as the parsing of
/// a statement on the fast lane.
pub const UNITS_MAX: u32 = 4 * UNITS_PER_POLL;

/// Units between two readings of the clock, each of which takes about 25 ns.
const UNITS_PER_CLOCK: u32 = 16;

/// Bytes of text or of values that count as one unit.
const BYTES_PER_UNIT: usize = 64;

thread_local! {
    /// Units spent by the running task poll.
    static SPENT: Cell<u32> = const { Cell::new(0) };
}

/// Counts `units` of work for the running task poll. Returns true when the task should
/// [`crate::yield_now`]: on a fast lane after [`UNITS_PER_POLL`] or 50 µs, on a heavy lane when
/// [`crate::turn_is_over`].
pub fn spend(units: u32) -> bool {
    let before = SPENT.get();
    let spent = before.saturating_add(units);
    SPENT.set(spent);
    if spent >= UNITS_PER_POLL && context::on_fast_lane() {
        return true;
    }
    spent / UNITS_PER_CLOCK != before / UNITS_PER_CLOCK && context::turn_is_over()
}

/// Counts the work of processing `bytes` bytes, as [`spend`] does: one unit for each 64 of them.
pub fn spend_bytes(bytes: usize) -> bool {
    spend(u32::try_from(bytes.div_ceil(BYTES_PER_UNIT)).unwrap_or(u32::MAX))
}

/// Begins the count of the next task poll; returns that of the poll that ended.
pub(crate) fn take() -> u32 {
    SPENT.replace(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Group, Lanes};

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
