//! A hard limit on the CPU time of a group, which holds on an idle machine too. One budget serves
//! all cores: it is the one `u64` of [`crate::gcra`], paid at `limit_ppm` millionths of `cores`
//! CPUs. Each core takes a small piece of it ([`PIECE_NS`], [`long_piece_ns`]), runs the group
//! until the piece is used, and takes the next; so a limit of 50 % of two cores lets a group on one
//! core use all of that core.
//!
//! ```text
//!   budget (one u64) ──1 ms──▶ core 0: Cap ──charge──▶ exhausted: take again, or throttle the group
//!                    ──1 ms──▶ core 1: Cap
//! ```
//!
//! Over any interval `T` a group uses at most `rate × (T + BURST_NS)` and one piece for each core
//! it runs on, and whatever exceeds `rate × T` is repaid before the next grant. For one core and
//! [`PERIOD_NS`] at 50 % that is 50 ms plus at most 2 + 1 ms, or 2 + 4 ms of heavy work; over ten
//! seconds, 0.03 % or 0.06 %. An overrun is debt: first on the core's piece, then in the budget.
//!
//! The burst is not there to allow bursts, but so that a core that comes late to take its next
//! piece (a timer, a slice of someone else) loses nothing: lateness up to `BURST_NS` is made up
//! for.

use crate::gcra;

/// The period over which the limit is stated, ns: what "50 %" means is 50 ms in any 100, give or
/// take a burst and a piece.
pub const PERIOD_NS: u64 = 100_000_000;
/// CPU time a core takes from the budget at once, ns: two slices, so that taking (one atomic
/// operation on a line shared by all cores) is rare, and 1 % of a period.
pub const PIECE_NS: u64 = 1_000_000;
/// The longest piece, ns.
pub const LONG_PIECE_NS: u64 = 4_000_000;
/// Wall time of a core that pays for a long piece, ns.
const LONG_PIECE_WALL_NS: u64 = 8_000_000;
/// Wall time by which grants may run ahead of payment, ns.
pub const BURST_NS: u64 = 4_000_000;
const _: () = assert!(BURST_NS * 20 <= PERIOD_NS, "a burst stays within 5 % of a period");

/// Millionths in a whole.
const PPM: u64 = 1_000_000;

/// CPU time that a core takes at once for work that need not go on within a millisecond, ns: each
/// piece costs the core two changes from one lane to the other. What pays for it is 8 ms of the
/// core's wall time at most, so that a low limit is kept as evenly, but 1 ms is the least
/// ([`PIECE_NS`]).
#[must_use]
pub fn long_piece_ns(limit_ppm: u32) -> u64 {
    (LONG_PIECE_WALL_NS * u64::from(limit_ppm) / PPM).clamp(PIECE_NS, LONG_PIECE_NS)
}

/// Takes `cost_ns` of CPU time from a budget whose state is `paid_until_ns` (0 for a new one): the
/// new state. A new limit needs no new state: what was granted before stays paid for at the old
/// rate.
///
/// `limit_ppm` is the limit in millionths of all `cores`; 0 counts as 1.
///
/// # Errors
/// Exhausted: when to ask again, ns.
pub fn take(
    paid_until_ns: u64,
    now_ns: u64,
    cost_ns: u64,
    limit_ppm: u32,
    cores: u32,
    burst_ns: u64,
) -> Result<u64, u64> {
    gcra::take(paid_until_ns, now_ns, wall_ns(cost_ns, limit_ppm, cores), burst_ns)
}

/// Adds CPU time that was used beyond what was taken.
#[must_use]
pub fn overrun(paid_until_ns: u64, now_ns: u64, over_ns: u64, limit_ppm: u32, cores: u32) -> u64 {
    gcra::debt(paid_until_ns, now_ns, wall_ns(over_ns, limit_ppm, cores))
}

/// Gives back CPU time that was taken and not used.
#[must_use]
pub fn give_back(paid_until_ns: u64, unused_ns: u64, limit_ppm: u32, cores: u32) -> u64 {
    // One less than the rounded-up cost: giving back never returns more than was taken.
    gcra::give_back(paid_until_ns, wall_ns(unused_ns, limit_ppm, cores).saturating_sub(1))
}

/// Wall time that pays for `cpu_ns`, rounded up.
#[must_use]
pub fn wall_ns(cpu_ns: u64, limit_ppm: u32, cores: u32) -> u64 {
    let rate = u64::from(limit_ppm.max(1)) * u64::from(cores.max(1));
    match cpu_ns.checked_mul(PPM) {
        Some(scaled) => scaled.div_ceil(rate),
        None => u64::try_from((u128::from(cpu_ns) * u128::from(PPM)).div_ceil(u128::from(rate)))
            .unwrap_or(u64::MAX),
    }
}

/// One core's piece of a group's budget. Negative when a slice overran it: the debt comes off the
/// next piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cap {
    remaining_ns: i64,
}

impl Cap {
    /// An empty piece.
    #[must_use]
    pub const fn new() -> Cap {
        Cap { remaining_ns: 0 }
    }

    /// CPU time left, ns; negative is debt.
    #[must_use]
    pub const fn remaining_ns(self) -> i64 {
        self.remaining_ns
    }

    /// Returns whether the group has to take again before it may run on this core.
    #[must_use]
    pub const fn exhausted(self) -> bool {
        self.remaining_ns <= 0
    }

    /// Returns the CPU time to take from the budget, ns: a piece and the debt, so that an overrun
    /// is paid for in full at once.
    #[must_use]
    pub fn want_ns(self, piece_ns: u64) -> u64 {
        piece_ns.saturating_add_signed(self.remaining_ns.min(0).saturating_neg())
    }

    /// Adds what the budget granted, ns.
    pub fn grant(&mut self, granted_ns: u64) {
        self.remaining_ns = self.remaining_ns.saturating_add_unsigned(granted_ns);
    }

    /// Takes off what a slice used, ns.
    pub fn charge(&mut self, ran_ns: u64) {
        self.remaining_ns = self.remaining_ns.saturating_sub_unsigned(ran_ns);
    }

    /// Empties the piece, when the group goes idle on this core: what it did not use, ns, to give
    /// back to the budget.
    pub fn release(&mut self) -> u64 {
        let unused = self.remaining_ns.max(0);
        self.remaining_ns -= unused;
        unused.unsigned_abs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_two_cores_is_all_of_one() {
        assert_eq!(wall_ns(PIECE_NS, 500_000, 2), PIECE_NS);
        assert_eq!(wall_ns(PIECE_NS, 500_000, 1), 2 * PIECE_NS);
        assert_eq!(wall_ns(PIECE_NS, 10_000, 1), 100 * PIECE_NS);
        assert_eq!(wall_ns(1, 999_999, 1), 2, "rounded up: never above the limit");
        assert_eq!(wall_ns(u64::MAX, 1, 1), u64::MAX);
        assert_eq!(wall_ns(PIECE_NS, 0, 0), PIECE_NS * PPM, "zero counts as the least");
    }

    #[test]
    fn long_pieces_are_those_of_high_limits() {
        let pieces = [1_000_000, 500_000, 250_000, 125_000, 10_000, 0].map(long_piece_ns);
        assert_eq!(pieces, [4 * PIECE_NS, 4 * PIECE_NS, 2 * PIECE_NS, PIECE_NS, PIECE_NS, PIECE_NS]);
    }

    #[test]
    fn an_overrun_is_repaid_with_the_next_piece() {
        let mut cap = Cap::new();
        assert!(cap.exhausted());
        cap.grant(PIECE_NS);
        cap.charge(PIECE_NS + 300_000);
        assert!(cap.exhausted());
        assert_eq!(cap.want_ns(PIECE_NS), PIECE_NS + 300_000);
        cap.grant(cap.want_ns(PIECE_NS));
        assert_eq!(cap.remaining_ns(), PIECE_NS as i64);
        assert_eq!(cap.release(), PIECE_NS);
        assert_eq!(cap.release(), 0);
    }

    #[test]
    fn giving_back_never_returns_more_than_was_taken() {
        for limit_ppm in [1, 3, 333_333, 500_000, 999_999, 1_000_000] {
            let taken = take(0, 1_000, 777, limit_ppm, 3, 0).unwrap();
            let back = (0..777).fold(taken, |paid, _| give_back(paid, 1, limit_ppm, 3));
            assert!(back >= 1_000, "limit {limit_ppm}: {back}");
        }
    }
}
