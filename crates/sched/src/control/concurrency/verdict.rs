//! Decision on a statement that arrives, by the limit of its level.

use super::super::{PPM, scale};
use super::limit::ConcurrencyLimit;

/// Work of a statement below which a level refuses only what has waited for
/// 1 ÷ `TARGET_OF_TIME_LIMIT` of its time limit, ns. To read, decode and refuse one takes 2.5 µs:
/// alongside reads from memory (3.5 µs) refusals would take most of the core, so that fewer are
/// answered than without a limit.
const REFUSABLE_WORK_NS: u64 = 10_000;

/// Part of the level's CPU time from which on refusals make statements late later, in millionths.
/// At [`REFUSALS_FILL_PPM`] they are late after 1 ÷ `TARGET_OF_TIME_LIMIT` of their time limit.
/// Sockets fill up then, so that clients are blocked and fewer statements are to be refused.
const REFUSALS_COSTLY_PPM: u64 = PPM / 3;
/// Part from which on refusals fill the core. At [`REFUSALS_MOST_PPM`] only what cannot end in time
/// is refused. If all that full sockets hold is late at first sight, a core does nothing but
/// refuse.
const REFUSALS_FILL_PPM: u64 = PPM / 3 * 2;
const REFUSALS_MOST_PPM: u64 = PPM / 6 * 5;

/// A pause after a refusal doubles if refusals cost one part in this many of the other work.
const REFUSALS_DOUBLE_AT: u64 = 16;

/// Overload behaviour of a level, from its `workload_type`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Overload {
    /// `interactive`: refuse early. A late answer is of no use.
    Refuse,
    /// `batch`: leave statements in their sockets.
    Hold,
    /// Any other level: use the bounded wait queue.
    Queue,
}

/// A statement before any work is done for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arriving {
    /// Time since it arrived, ns.
    pub age_ns: u64,
    /// Its own time limit, ns.
    pub time_limit_ns: u64,
    /// Statements of its level in flight on this core.
    pub level_in_flight: u32,
    /// True if the queue of its level on this core stands, from [`super::StandingQueue::stands`].
    pub queue_stands: bool,
    /// Behaviour of its level.
    pub overload: Overload,
    /// A random number. It spreads the return of clients that are refused together.
    pub random: u32,
}

/// Decision on a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Start it.
    Admit,
    /// Keep it in its socket, and read no more. Ask again when a statement ends, and after each
    /// decision.
    Hold,
    /// Put it into the wait queue of its level.
    Wait,
    /// Answer Overloaded, and do not read its connection for this time, ns.
    Refuse {
        /// Expected time until the level has its target of queue delay again, ns.
        retry_ns: u64,
    },
    /// Answer Overloaded as well: it could not end within its time limit.
    Expired {
        /// As in [`Verdict::Refuse`].
        retry_ns: u64,
    },
}

impl ConcurrencyLimit {
    /// Returns the age above which a statement is late, ns: twice the target, and longer for
    /// statements that cost little more than their refusal, or while refusals cost much. With a
    /// `latency_target` the cost of a statement alone makes none late later.
    #[must_use]
    pub fn late_ns(&self) -> u64 {
        let towards = |from_ns: u64, to_ns: u64, (from_ppm, to_ppm): (u64, u64)| {
            let costly_ppm = self.refusal_ppm.clamp(from_ppm, to_ppm) - from_ppm;
            from_ns + scale(to_ns.saturating_sub(from_ns), costly_ppm, to_ppm - from_ppm)
        };
        let late_ns = self.target_ns.saturating_mul(2);
        let longest_ns = self.longest_ns();
        let late_ns = match self.work_ns < REFUSABLE_WORK_NS && !self.has_target {
            true => late_ns.max(longest_ns),
            false => towards(late_ns, longest_ns, (REFUSALS_COSTLY_PPM, REFUSALS_FILL_PPM)),
        };
        towards(late_ns, self.time_limit_ns, (REFUSALS_FILL_PPM, REFUSALS_MOST_PPM))
    }

    /// Decides on a statement of the level. The server's own statements are always admitted, so
    /// their caller does not ask.
    #[must_use]
    pub fn admit(&self, arriving: Arriving) -> Verdict {
        let Arriving { age_ns, time_limit_ns, level_in_flight, queue_stands, overload, random } = arriving;
        let wait_ns = self.wait_ns(level_in_flight);
        if age_ns.saturating_add(wait_ns).saturating_add(self.device_ns) >= time_limit_ns {
            return Verdict::Expired {
                retry_ns: self.retry_ns(age_ns.max(wait_ns), self.longest_ns(), random),
            };
        }
        let late = overload == Overload::Refuse && queue_stands && age_ns > self.late_ns();
        let full = level_in_flight >= self.statements;
        match overload {
            _ if !(late || full) => Verdict::Admit,
            Overload::Hold => Verdict::Hold,
            Overload::Queue => Verdict::Wait,
            // A young statement may still begin in time. Refusing it now would leave a gap.
            Overload::Refuse if !late => Verdict::Hold,
            Overload::Refuse => {
                // Arrivals in the first half of a pause count from then. A longer pause would
                // make it late, and the next pause again: an overload that has ended would go on.
                let most_ns = self.late_ns().min(self.longest_ns());
                Verdict::Refuse { retry_ns: self.retry_ns(age_ns.max(wait_ns), most_ns, random) }
            }
        }
    }

    /// Returns the time after which a client may come back, ns: until the queue is at its target,
    /// and longer the more refusals cost, up to `most_ns`. Otherwise refusals alone can fill the
    /// core.
    pub(super) fn retry_ns(&self, delay_ns: u64, most_ns: u64, random: u32) -> u64 {
        let drained_ns = delay_ns.saturating_sub(self.target_ns).max(self.target_ns);
        let costs = scale(self.refusal_ppm, REFUSALS_DOUBLE_AT * 1000, PPM - self.refusal_ppm);
        let retry_ns = scale(drained_ns, costs.saturating_add(1000), 1000);
        let retry_ns = retry_ns.min(most_ns);
        // Between half and one and a half of it.
        retry_ns / 2 + scale(retry_ns, random.into(), u64::from(u32::MAX))
    }
}
