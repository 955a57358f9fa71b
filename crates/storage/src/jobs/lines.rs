//! Log lines about flushes and compactions, within a budget.
//!
//! A storm of small flushes would flood the log and displace more important lines. Flushes and
//! compactions each have a budget of lines. Events beyond it are counted, and the next line has
//! their number.

use std::cell::Cell;

/// Lines of one kind that a shard may write in a burst.
const BURST: u32 = 20;

/// Interval after which the budget grows by a line, ns.
const LINE_EVERY_NS: u64 = 3_000_000_000;

/// A budget of lines.
#[derive(Debug)]
pub(crate) struct Lines {
    left: Cell<u32>,
    /// The time when the budget last grew.
    since_ns: Cell<u64>,
    left_out: Cell<u64>,
}

impl Default for Lines {
    fn default() -> Lines {
        Lines { left: Cell::new(BURST), since_ns: Cell::new(0), left_out: Cell::new(0) }
    }
}

impl Lines {
    /// Takes a line from the budget. Returns the number of events without a line since the last
    /// one. `None`: no line is left.
    pub(crate) fn take(&self, now_ns: u64) -> Option<u64> {
        let more = now_ns.saturating_sub(self.since_ns.get()) / LINE_EVERY_NS;
        if more > 0 {
            self.left.set(self.left.get().saturating_add(more.min(u64::from(BURST)) as u32).min(BURST));
            self.since_ns.set(now_ns);
        }
        match self.left.get() {
            0 => {
                self.left_out.set(self.left_out.get() + 1);
                None
            }
            left => {
                self.left.set(left - 1);
                Some(self.left_out.take())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storm_of_events_logs_a_bounded_number_of_lines() {
        let lines = Lines::default();
        let burst = (0..1000).filter(|event| lines.take(*event).is_some()).count();
        assert_eq!(burst, BURST as usize);
        // A line every three seconds, with the number of events that had none.
        assert_eq!(lines.take(LINE_EVERY_NS + 1), Some(980));
        assert_eq!(lines.take(LINE_EVERY_NS + 2), None);
        assert_eq!(lines.take(2 * LINE_EVERY_NS + 2), Some(1));
        let long_after = (0..100).filter_map(|event| lines.take(1000 * LINE_EVERY_NS + event)).count();
        assert_eq!(long_after, BURST as usize);
    }
}
