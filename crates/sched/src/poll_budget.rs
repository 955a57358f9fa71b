//! Poll coalescing: limits how often a core polls the network while heavy work has it. Each such
//! poll takes the core from the heavy lane and gives it back: two lane switches, which cost as much
//! as several requests. With a poll for each of thousands of events a second, polls would take a
//! third of the core.
//!
//! The solution is that of network cards for interrupts: a few events in a row are seen at once,
//! and a steady stream is polled rarely. Polls then cost one part in [`POLL_PART`], or one in
//! [`POLL_PART_LAGGING`] for a level that lags behind the level that has the core.
//!
//! ```text
//!   events      x   x    xx  x    x  x xx   x xx   x  xx
//!   polls       │   │    ││  │         │        │        │     a few at once, then each after 10 × its cost
//! ```
//!
//! The state is the time up to which polls are paid, as in [`crate::gcra`].

use crate::gcra;

/// Longest time that an event waits for a poll, ns, whatever the cost of polls.
pub const POLL_EVERY_NS: u64 = 200_000;

/// Polls take at most one part in this many of the core while heavy work has it.
const POLL_PART: u64 = 10;
/// The same for events of a level that lags behind the level that has the core. At 17 µs a poll
/// this is one every 68 µs, a mean wait of 34 µs more: about the cost of waking a core that sleeps.
const POLL_PART_LAGGING: u64 = 4;
/// Cost of polls that is free after a while without any, ns: five polls or more in a row.
const POLL_FREE_NS: u64 = 1_000_000;

/// Poll budget of one core.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PollBudget {
    paid_until_ns: u64,
}

impl PollBudget {
    /// Charges a poll that took the core from heavy work, cost `cost_ns`, and found work on the
    /// fast lane. `lagging`: the group of that work lags behind the group that had the core. Polls
    /// that find only heavy work are not charged: no event caused them, and they must not delay
    /// one.
    pub(crate) fn polled(&mut self, now_ns: u64, cost_ns: u64, lagging: bool) {
        let part = if lagging { POLL_PART_LAGGING } else { POLL_PART };
        let latest_ns = now_ns.saturating_add(POLL_FREE_NS + POLL_EVERY_NS);
        let paid_until_ns = gcra::debt(self.paid_until_ns, now_ns, cost_ns.saturating_mul(part));
        self.paid_until_ns = paid_until_ns.min(latest_ns);
    }

    /// Returns the time until which the network need not be polled, ns: at most [`POLL_EVERY_NS`]
    /// from now. `None`: poll at each event.
    pub(crate) fn not_before_ns(&self, now_ns: u64) -> Option<u64> {
        let at_ns = self.paid_until_ns.saturating_sub(POLL_FREE_NS);
        let at_ns = at_ns.min(now_ns.saturating_add(POLL_EVERY_NS));
        (at_ns > now_ns).then_some(at_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;

    /// Polls for an event every `event_every_ns` for a second, each for `cost_ns`. Returns the
    /// number of polls and the longest wait.
    fn second_of(event_every_ns: u64, cost_ns: u64, lagging: bool) -> (u64, u64) {
        let mut budget = PollBudget::default();
        let mut polls = 0;
        let mut longest_ns = 0;
        let (mut now_ns, mut event_ns) = (5_000_000_000, 5_000_000_000);
        while now_ns < 6_000_000_000 {
            let at_ns = budget.not_before_ns(now_ns).unwrap_or(0).max(event_ns).max(now_ns);
            longest_ns = longest_ns.max(at_ns - event_ns);
            now_ns = at_ns + cost_ns;
            budget.polled(now_ns, cost_ns, lagging);
            polls += 1;
            while event_ns <= at_ns {
                event_ns += event_every_ns;
            }
        }
        (polls, longest_ns)
    }

    #[test]
    fn polls_for_a_steady_stream_take_a_tenth_of_the_core() {
        let (polls, longest_ns) = second_of(25 * US, 17 * US, false);
        assert!((5_800..5_950).contains(&polls), "{polls} polls");
        assert!(longest_ns <= 170 * US, "{longest_ns} ns");
    }

    #[test]
    fn polls_for_a_lagging_level_take_a_quarter() {
        let (polls, longest_ns) = second_of(25 * US, 17 * US, true);
        assert!((14_500..14_800).contains(&polls), "{polls} polls");
        assert!(longest_ns <= 68 * US, "{longest_ns} ns");
    }

    #[test]
    fn cheap_stream_is_polled_event_by_event() {
        for (event_every_ns, cost_ns) in [(200 * US, 17 * US), (25 * US, 2 * US)] {
            let (polls, longest_ns) = second_of(event_every_ns, cost_ns, false);
            assert!((1_000_000_000 / event_every_ns).abs_diff(polls) <= 1, "{polls} polls");
            assert!(longest_ns <= cost_ns, "{longest_ns} ns");
        }
    }

    #[test]
    fn few_events_in_a_row_are_polled_at_once() {
        let mut budget = PollBudget::default();
        let mut now_ns = 5_000_000_000;
        let at_once = std::iter::from_fn(|| {
            now_ns += 20 * US;
            budget.polled(now_ns, 17 * US, false);
            budget.not_before_ns(now_ns).is_none().then_some(())
        });
        assert_eq!(at_once.count(), 6);
        assert_eq!(budget.not_before_ns(now_ns + 1_000_000), None, "after a while polls are free again");
    }

    #[test]
    fn no_event_waits_longer_than_the_bound() {
        let mut budget = PollBudget::default();
        for cost_ns in [1, 17 * US, 1_000 * US, u64::MAX] {
            budget.polled(7, cost_ns, false);
            assert!(budget.not_before_ns(7).unwrap_or(0) <= 7 + POLL_EVERY_NS);
        }
        budget.polled(u64::MAX, u64::MAX, true);
        assert_eq!(budget.not_before_ns(u64::MAX), None);
    }
}
