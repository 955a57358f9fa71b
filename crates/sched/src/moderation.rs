//! How often a core that is handed over looks for events. Each look takes the core from the heavy lane and gives it back, two
//! switches that cost as much as several requests; at thousands of events a second, each looked at as it comes, they would
//! take a third of the core. As network cards do with interrupts: a few events in a row are seen at once, and of a steady stream
//! as many together as it takes to keep the cost of looking at one part in [`PART`]; or in [`PART_OWED`] for a level that has CPU to catch up
//! on beside the one that has the core, and may spend it on this.
//!
//! ```text
//!   events      x   x    xx  x    x  x xx   x xx   x  xx
//!   looks       │   │    ││  │         │        │        │     the first few at once, then each after PART times its cost
//! ```
//!
//! The state is the time up to which looks are paid, as in [`crate::gcra`].

use crate::gcra;

/// Of a core that is handed over all the time, looking for events may take one part in so many.
pub const PART: u64 = 10;
/// The same for events of a level that is owed CPU beside the level that has the core. At 17 µs a look this is one every 68 µs, a wait of
/// 34 µs more on average: about what it costs to wake a core that sleeps.
pub const PART_OWED: u64 = 4;
/// Looks of this much pay, after a while without any, are free, ns: five or more in a row.
pub const BURST_NS: u64 = 1_000_000;
/// No event waits longer than this to be looked at, ns, whatever looks cost.
pub const LOOK_EVERY_NS: u64 = 200_000;

/// One core's looks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moderation {
    paid_until_ns: u64,
}

impl Moderation {
    /// A core that was handed over was taken back, which cost so much, ns, and there was something to do on the fast lane, for a group that
    /// is `owed` CPU beside the one that had the core, or not. A look that finds
    /// only heavy work (a turn has ended, another group has some now) was no event's, and costs no event its turn.
    pub fn found(&mut self, now_ns: u64, cost_ns: u64, owed: bool) {
        let part = if owed { PART_OWED } else { PART };
        let most_ns = now_ns.saturating_add(BURST_NS + LOOK_EVERY_NS);
        let paid_until_ns = gcra::debt(self.paid_until_ns, now_ns, cost_ns.saturating_mul(part));
        self.paid_until_ns = paid_until_ns.min(most_ns);
    }

    /// Until when a core that is handed over now need not look, ns; none if it is to look at each event. At most
    /// [`LOOK_EVERY_NS`] from now.
    #[must_use]
    pub fn not_before_ns(&self, now_ns: u64) -> Option<u64> {
        let at_ns = self.paid_until_ns.saturating_sub(BURST_NS).min(now_ns.saturating_add(LOOK_EVERY_NS));
        (at_ns > now_ns).then_some(at_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;

    /// Looks at events that come every so many ns for a second, each for `cost_ns`: looks, and the longest wait.
    fn second_of(event_every_ns: u64, cost_ns: u64, owed: bool) -> (u64, u64) {
        let (mut moderation, mut looks, mut longest_ns) = (Moderation::default(), 0, 0);
        let (mut now_ns, mut event_ns) = (5_000_000_000, 5_000_000_000);
        while now_ns < 6_000_000_000 {
            let at_ns = moderation.not_before_ns(now_ns).unwrap_or(0).max(event_ns).max(now_ns);
            longest_ns = longest_ns.max(at_ns - event_ns);
            now_ns = at_ns + cost_ns;
            moderation.found(now_ns, cost_ns, owed);
            looks += 1;
            while event_ns <= at_ns {
                event_ns += event_every_ns;
            }
        }
        (looks, longest_ns)
    }

    #[test]
    fn a_steady_stream_is_looked_at_for_a_tenth_of_the_core() {
        let (looks, longest_ns) = second_of(25 * US, 17 * US, false);
        assert!((5_800..5_950).contains(&looks), "{looks} looks");
        assert!(longest_ns <= 170 * US, "{longest_ns} ns");
    }

    #[test]
    fn and_for_a_quarter_if_it_is_owed() {
        let (looks, longest_ns) = second_of(25 * US, 17 * US, true);
        assert!((14_500..14_800).contains(&looks), "{looks} looks");
        assert!(longest_ns <= 68 * US, "{longest_ns} ns");
    }

    #[test]
    fn a_stream_that_costs_less_is_seen_as_it_comes() {
        for (event_every_ns, cost_ns) in [(200 * US, 17 * US), (25 * US, 2 * US)] {
            let (looks, longest_ns) = second_of(event_every_ns, cost_ns, false);
            assert!((1_000_000_000 / event_every_ns).abs_diff(looks) <= 1, "{looks} looks");
            assert!(longest_ns <= cost_ns, "{longest_ns} ns");
        }
    }

    #[test]
    fn a_few_events_in_a_row_are_seen_at_once() {
        let mut moderation = Moderation::default();
        let mut now_ns = 5_000_000_000;
        let at_once = std::iter::from_fn(|| {
            now_ns += 20 * US;
            moderation.found(now_ns, 17 * US, false);
            moderation.not_before_ns(now_ns).is_none().then_some(())
        });
        assert_eq!(at_once.count(), 6);
        assert_eq!(moderation.not_before_ns(now_ns + 1_000_000), None, "after a while it is so again");
    }

    #[test]
    fn however_dear_looks_are_nobody_waits_longer_than_promised() {
        let mut moderation = Moderation::default();
        for cost_ns in [1, 17 * US, 1_000 * US, u64::MAX] {
            moderation.found(7, cost_ns, false);
            assert!(moderation.not_before_ns(7).unwrap_or(0) <= 7 + LOOK_EVERY_NS);
        }
        moderation.found(u64::MAX, u64::MAX, true);
        assert_eq!(moderation.not_before_ns(u64::MAX), None);
    }
}
