//! Distinguishes a queue that stands, which is an overload, from a burst.

/// Time without an empty queue from which on it stands, and without late statements until it no
/// longer does, ns. The interval of CoDel (RFC 8289), which absorbs a burst or a stall of the core.
const STANDS_NS: u64 = 100_000_000;
/// Binary logarithm of the time constant of the mean age, ns: 0.13 s, about [`STANDS_NS`].
const MEAN_OVER_BITS: u32 = 27;
/// Highest age in the mean, ns: 69 s. Its product with the time constant has 63 bits.
const MEAN_AGE_NS_MAX: u64 = 1 << 36;

/// Detects a queue that stands, for a level on a core. A queue that drains in time is a burst, or
/// the end of a stall. A refusal would only lose its statements.
///
/// 1. A statement that arrived after the one before was checked found the queue empty. The queue
///    stands when no statement has found it empty for [`STANDS_NS`], and the mean age over about
///    that time is half of what is late. A busy core is rarely empty, and a stall of the log
///    makes a burst: neither is an overload.
/// 2. It stands until no statement has been late for [`STANDS_NS`]. Clients that pause after a
///    refusal empty the queue for a moment, and the overload goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StandingQueue {
    /// Time of the last statement.
    checked_ns: u64,
    /// Time of the last statement that found the queue empty.
    empty_ns: u64,
    stands_until_ns: u64,
    /// Mean age, weighted by time, ns.
    mean_ns: u64,
}

impl StandingQueue {
    /// Returns the state as words, to be stored with other counters.
    #[must_use]
    pub fn to_words(self) -> [u64; 4] {
        [self.checked_ns, self.empty_ns, self.stands_until_ns, self.mean_ns]
    }

    /// Returns the state from [`StandingQueue::to_words`].
    #[must_use]
    pub fn from_words([checked_ns, empty_ns, stands_until_ns, mean_ns]: [u64; 4]) -> StandingQueue {
        StandingQueue { checked_ns, empty_ns, stands_until_ns, mean_ns }
    }

    /// Returns true if the queue stands. Asked for each statement of the level before
    /// [`super::ConcurrencyLimit::admit`], with the age of the statement and the age from which on
    /// it is late ([`super::ConcurrencyLimit::late_ns`]).
    pub fn stands(&mut self, now_ns: u64, age_ns: u64, late_ns: u64) -> bool {
        if now_ns.saturating_sub(age_ns) >= self.checked_ns {
            self.empty_ns = now_ns;
        }
        let passed_ns = now_ns.saturating_sub(std::mem::replace(&mut self.checked_ns, now_ns));
        let passed_ns = passed_ns.min(1 << MEAN_OVER_BITS);
        let sum_ns = age_ns.min(MEAN_AGE_NS_MAX) * passed_ns;
        self.mean_ns = (sum_ns + self.mean_ns * ((1 << MEAN_OVER_BITS) - passed_ns)) >> MEAN_OVER_BITS;
        let is_full = now_ns.saturating_sub(self.empty_ns) > STANDS_NS && self.mean_ns > late_ns / 2;
        let stands = now_ns < self.stands_until_ns || is_full;
        if stands && age_ns > late_ns {
            self.stands_until_ns = now_ns.saturating_add(STANDS_NS);
        }
        stands
    }
}
