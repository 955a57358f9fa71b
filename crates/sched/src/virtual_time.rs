//! Virtual time is CPU time divided by shares. The clock of a group runs slower the more shares it
//! has, and the group with the least clock runs. So each group gets CPU in proportion to its
//! shares. This file is the arithmetic of one clock: a charge, a wake-up, a change of shares.
//!
//! One unit is 1/1024 ns of CPU at one share. Shares are at most 1000, so a nanosecond moves every
//! clock by at least one unit. The remainder of a division is kept and added to the next charge, so
//! clocks are exact for charges of any size. (A precomputed reciprocal, as in Linux, saves the
//! division, about 5 ns, and drifts.)
//!
//! Overflow: the clocks of a core move by at most 1024 units for each nanosecond charged. In 100
//! years (2^61.5 ns) that is less than 2^72. The largest product below multiplies it by 1000: less
//! than 2^82, and clocks have 128 bits.

/// Slice while no latency-class group waits, ns. A lane switch costs about 17 µs: 3.4 %.
pub const SLICE_NS: u64 = 500_000;
/// Slice while a latency-class group is waiting, and the time between polls while one may wake, ns.
/// It bounds a task poll of the fast lane.
pub const LATENCY_SLICE_NS: u64 = 50_000;

/// Smallest number of shares.
pub const SHARES_MIN: u32 = 1;
/// Largest number of shares.
pub const SHARES_MAX: u32 = 1000;

/// Minimum charge of a slice, ns. It is about the cost of picking a group, reading the CPU clock
/// twice and switching to the group, and 2 % of the shortest slice. Without it a group that yields
/// after a few nanoseconds would cost almost nothing, and the others would pay for its switches.
pub const CHARGE_MIN_NS: u64 = 1_000;

/// Most lag that a group repays after it slept, ns. A query of 20 to 50 ms leaves a core for 2 to 5
/// ms at a time, while its answer is on the way or another core works for it. Its level lags by
/// that time, multiplied by its shares over those of the others: 20 ms at 4:1. A group that slept
/// overnight has at most twice its shares for 40 ms of CPU.
pub const LAG_NS_MAX: u32 = 20_000_000;

/// Units of virtual time in one nanosecond of CPU at one share, as a power of two.
pub(crate) const UNITS_LOG2: u32 = 10;
const _: () = assert!(1 << UNITS_LOG2 >= SHARES_MAX, "one nanosecond must move every clock");

/// Purpose of a group. It decides how soon the group runs after waking, and what it may save up
/// while asleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Class {
    /// Answers people. Slices are short while it is ready. It earns wake-up credit and repays lag.
    Latency,
    /// Works through a backlog. It earns no wake-up credit and has no lag.
    Batch,
    /// The default. It earns wake-up credit, repays lag, is polled for soon, and does not shorten
    /// slices.
    #[default]
    Normal,
}

impl Class {
    /// Returns the CPU time that a waking leaf of this class may have saved up, ns: a slice.
    #[must_use]
    pub const fn credit_ns(self) -> u64 {
        match self {
            Class::Latency | Class::Normal => SLICE_NS,
            Class::Batch => 0,
        }
    }

    /// Returns the most lag beyond the credit that a leaf of this class repays at half price after
    /// it slept, ns.
    #[must_use]
    pub const fn lag_max_ns(self) -> u32 {
        match self {
            Class::Latency | Class::Normal => LAG_NS_MAX,
            Class::Batch => 0,
        }
    }
}

/// Clock of one group: `time + remainder / shares` units, where `remainder < shares`. (For a
/// minimum, shares are millionths of the parent's CPU.) Packed to 24 bytes rather than 32, so that
/// a node of the tree is one cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(Rust, packed(8))]
pub(crate) struct Clock {
    pub(crate) time: u128,
    remainder: u32,
    /// Entitlement while asleep beyond the credit, repaid at half price, ns. At most
    /// [`LAG_NS_MAX`].
    pub(crate) lag_ns: u32,
}

impl Clock {
    pub(crate) fn at(time: u128) -> Clock {
        Clock { time, remainder: 0, lag_ns: 0 }
    }

    /// Charges `ns` of CPU at `shares`. Lag pays for half of it while there is any.
    pub(crate) fn advance(&mut self, ns: u64, shares: u32) {
        let repaid_ns = (ns / 2).min(self.lag_ns.into());
        self.lag_ns -= repaid_ns as u32; // at most lag_ns
        let ns = ns - repaid_ns;
        let over = u64::from(self.remainder);
        // The first arm holds for charges below 208 days, and is a single hardware division.
        let (whole, rest) = match ns.checked_mul(1 << UNITS_LOG2).and_then(|units| units.checked_add(over)) {
            Some(units) => (u128::from(units / u64::from(shares)), units % u64::from(shares)),
            None => {
                let units = (u128::from(ns) << UNITS_LOG2) + u128::from(over);
                (units / u128::from(shares), (units % u128::from(shares)) as u64)
            }
        };
        self.time += whole;
        self.remainder = rest as u32; // < shares
    }

    /// Applies the wake-up rule: max(own, `now` − credit). Time before that becomes lag, up to
    /// `lag_max_ns`. Time asleep beyond both is forfeited. Debt is kept.
    pub(crate) fn wake(&mut self, now: u128, credit_ns: u64, lag_max_ns: u32, shares: u32) {
        let floor = now.saturating_sub(units(credit_ns, shares));
        if self.time < floor {
            let asleep_ns = ((floor - self.time) * u128::from(shares)) >> UNITS_LOG2;
            let lag_ns = (asleep_ns + u128::from(self.lag_ns)).min(lag_max_ns.into()) as u32;
            *self = Clock { lag_ns, ..Clock::at(floor) };
        }
    }

    /// Changes shares and keeps the distance to `now` in CPU time, not in virtual time: a debt of 1
    /// ms stays 1 ms, and so does a credit. Otherwise a group raised from 1 share to 1000 would
    /// repay a thousand times its debt.
    pub(crate) fn reshare(&mut self, now: u128, from: u32, to: u32) {
        let scale = |distance: u128| distance * u128::from(from) / u128::from(to);
        let time = if self.time >= now {
            now + scale(self.time - now)
        } else {
            now.saturating_sub(scale(now - self.time))
        };
        *self = Clock { lag_ns: self.lag_ns, ..Clock::at(time) };
    }
}

/// Returns `ns` of CPU at `shares` in units, rounded down.
pub(crate) fn units(ns: u64, shares: u32) -> u128 {
    (u128::from(ns) << UNITS_LOG2) / u128::from(shares)
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Clock {
        fn parts(self) -> (u128, u32) {
            (self.time, self.remainder)
        }
    }

    #[test]
    fn a_thousand_small_charges_equal_one_large_one() {
        for shares in [1, 3, 7, 333, 997, 1000] {
            let (mut small, mut large) = (Clock::default(), Clock::default());
            (0..1000).for_each(|_| small.advance(1, shares));
            large.advance(1000, shares);
            assert_eq!(small.parts(), large.parts(), "shares {shares}");
        }
    }

    #[test]
    fn a_thousand_shares_against_one_are_exact() {
        let (mut heavy, mut light) = (Clock::default(), Clock::default());
        (0..1_000_000).for_each(|_| heavy.advance(1_001, 1000));
        light.advance(1_001_000, 1);
        assert_eq!(heavy.parts(), light.parts());
    }

    #[test]
    fn clock_holds_a_century_in_one_charge() {
        let mut clock = Clock::default();
        let century_ns = 100 * 365 * 86_400 * 1_000_000_000_u64;
        clock.advance(century_ns, 1);
        assert_eq!(clock.parts(), (u128::from(century_ns) * 1024, 0));
        clock.reshare(0, 1000, 1);
        assert_eq!(clock.parts(), (u128::from(century_ns) * 1024 * 1000, 0));
    }

    #[test]
    fn change_of_shares_keeps_debt_and_credit_in_cpu_time() {
        let now = units(1_000_000, 1);
        let mut debtor = Clock::at(now + units(9_000, 10));
        debtor.reshare(now, 10, 900);
        assert_eq!(debtor.parts(), (now + units(9_000, 900), 0));
        let mut creditor = Clock::at(now - units(9_000, 10));
        creditor.reshare(now, 10, 900);
        assert_eq!(creditor.parts(), (now - units(9_000, 900), 0));
    }

    #[test]
    fn lag_pays_for_half_of_a_charge() {
        let (now, shares) = (units(1_000_000, 1), 4);
        // Wakes the clock when virtual time is `slept_ns` of its entitlement after `now`. The most
        // lag is 5 µs.
        let wake = |clock: &mut Clock, slept_ns| clock.wake(now + units(slept_ns, 8), 1_000, 5_000, 8);
        let state = |clock: Clock| (clock.time as i128 - now as i128, { clock.lag_ns });
        let entitled = |ns| units(ns, 8) as i128;
        let mut clock = Clock::at(now - units(9_000, shares));
        clock.wake(now, 1_000, 5_000, shares);
        clock.reshare(now, shares, 8);
        assert_eq!(state(clock), (-entitled(1_000), 5_000), "the credit, and at most 5 of the other 8 µs");
        clock.advance(8_000, 8);
        assert_eq!(state(clock), (entitled(3_000), 1_000));
        wake(&mut clock, 6_000);
        assert_eq!(state(clock), (entitled(5_000), 3_000), "2 µs more");
        clock.advance(8_000, 8);
        assert_eq!(state(clock), (entitled(10_000), 0));
        wake(&mut clock, 6_000);
        assert_eq!(state(clock), (entitled(10_000), 0), "a clock that is ahead has no lag");
    }
}
