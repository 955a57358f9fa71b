//! Hard limit on the CPU time of a group, which holds on an idle machine too. One budget serves all
//! cores: the one `u64` of [`crate::gcra`], paid at `limit_ppm` millionths of `cores` CPUs. Each
//! core takes a lease from it ([`LEASE_NS`], [`long_lease_ns`]), runs the group until the lease is
//! used, and takes the next. So with a limit of 50 % of two cores, a group on one core can use all
//! of that core.
//!
//! ```text
//!   budget (one u64) ──1 ms──▶ core 0: Cap ──charge──▶ exhausted: take again, or throttle the group
//!                    ──1 ms──▶ core 1: Cap
//! ```
//!
//! Over any interval `T` a group uses at most `rate × (T + BURST_NS)` and one lease for each of its
//! cores. It repays what exceeds `rate × T` before the next grant. For one core and [`PERIOD_NS`]
//! at 50 % that is 50 ms plus at most 2 + 1 ms, or 2 + 4 ms of heavy work. Over ten seconds it is
//! 0.03 % or 0.06 %. An overrun is debt: first of the core's lease, then of the budget.
//!
//! The burst does not exist to allow bursts. It lets a core that comes late for its next lease (a
//! timer, a slice of another group) lose nothing, for lateness up to [`BURST_NS`].

use crate::gcra;

/// Period over which the limit is specified, ns: "50 %" means 50 ms in any 100 ms, within a burst
/// and a lease.
pub const PERIOD_NS: u64 = 100_000_000;
/// CPU time of a lease of the fast lane, ns. It is two slices, so that taking one (an atomic
/// operation on a cache line that all cores share) is rare, and 1 % of a period.
pub const LEASE_NS: u64 = 1_000_000;
/// Longest lease, ns.
pub const LONG_LEASE_NS: u64 = 4_000_000;
/// Wall time of a core that pays for a long lease, ns.
const LONG_LEASE_WALL_NS: u64 = 8_000_000;
/// Wall time by which grants may run ahead of payment, ns.
pub const BURST_NS: u64 = 4_000_000;
const _: () = assert!(BURST_NS * 20 <= PERIOD_NS, "a burst stays within 5 % of a period");

/// Millionths in a whole.
const PPM: u64 = 1_000_000;

/// Returns the length of a lease of heavy work, ns of CPU. It is longer than [`LEASE_NS`], as the
/// end of each lease costs two lane switches. At most 8 ms of a core's wall time pay for it, so
/// that a low limit is kept evenly. It is never below [`LEASE_NS`].
#[must_use]
pub fn long_lease_ns(limit_ppm: u32) -> u64 {
    (LONG_LEASE_WALL_NS * u64::from(limit_ppm) / PPM).clamp(LEASE_NS, LONG_LEASE_NS)
}

/// Takes `cost_ns` of CPU time from a budget with the state `paid_until_ns` (0 for a new one).
/// Returns the new state. A new limit needs no new state: earlier grants stay paid at the old rate.
///
/// `limit_ppm` is the limit in millionths of all `cores`; 0 counts as 1.
///
/// # Errors
/// The budget is exhausted: the time to ask again, ns.
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

/// Adds CPU time that was used beyond the lease. Returns the new state.
#[must_use]
pub fn overrun(paid_until_ns: u64, now_ns: u64, over_ns: u64, limit_ppm: u32, cores: u32) -> u64 {
    gcra::debt(paid_until_ns, now_ns, wall_ns(over_ns, limit_ppm, cores))
}

/// Gives back CPU time that was taken and not used. Returns the new state.
#[must_use]
pub fn give_back(paid_until_ns: u64, unused_ns: u64, limit_ppm: u32, cores: u32) -> u64 {
    // One less than the rounded-up cost: giving back never returns more than was taken.
    gcra::give_back(paid_until_ns, wall_ns(unused_ns, limit_ppm, cores).saturating_sub(1))
}

/// Returns the wall time that pays for `cpu_ns`, rounded up.
#[must_use]
pub fn wall_ns(cpu_ns: u64, limit_ppm: u32, cores: u32) -> u64 {
    let rate = u64::from(limit_ppm.max(1)) * u64::from(cores.max(1));
    match cpu_ns.checked_mul(PPM) {
        Some(scaled) => scaled.div_ceil(rate),
        None => u64::try_from((u128::from(cpu_ns) * u128::from(PPM)).div_ceil(u128::from(rate)))
            .unwrap_or(u64::MAX),
    }
}

/// Lease of one core from the budget of a group. Negative when a slice overran it: the next lease
/// pays the debt.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cap {
    remaining_ns: i64,
}

impl Cap {
    /// Returns an empty lease.
    #[must_use]
    pub const fn new() -> Cap {
        Cap { remaining_ns: 0 }
    }

    /// Returns the CPU time left, ns. Negative is debt.
    #[must_use]
    pub const fn remaining_ns(self) -> i64 {
        self.remaining_ns
    }

    /// Returns true if the group needs a new lease before it may run on this core.
    #[must_use]
    pub const fn exhausted(self) -> bool {
        self.remaining_ns <= 0
    }

    /// Returns the CPU time to take from the budget, ns: a lease and the debt, so that an overrun
    /// is paid in full at once.
    #[must_use]
    pub fn want_ns(self, lease_ns: u64) -> u64 {
        lease_ns.saturating_add_signed(self.remaining_ns.min(0).saturating_neg())
    }

    /// Adds CPU time that the budget granted, ns.
    pub fn grant(&mut self, granted_ns: u64) {
        self.remaining_ns = self.remaining_ns.saturating_add_unsigned(granted_ns);
    }

    /// Subtracts the CPU time that a slice used, ns.
    pub fn charge(&mut self, ran_ns: u64) {
        self.remaining_ns = self.remaining_ns.saturating_sub_unsigned(ran_ns);
    }

    /// Empties the lease when the group goes idle on this core. Returns the unused CPU time, ns, to
    /// give back to the budget.
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
        assert_eq!(wall_ns(LEASE_NS, 500_000, 2), LEASE_NS);
        assert_eq!(wall_ns(LEASE_NS, 500_000, 1), 2 * LEASE_NS);
        assert_eq!(wall_ns(LEASE_NS, 10_000, 1), 100 * LEASE_NS);
        assert_eq!(wall_ns(1, 999_999, 1), 2, "rounded up: never above the limit");
        assert_eq!(wall_ns(u64::MAX, 1, 1), u64::MAX);
        assert_eq!(wall_ns(1 << 50, 500_000, 4), 1 << 49, "the product has more than 64 bits");
        assert_eq!(wall_ns(LEASE_NS, 0, 0), LEASE_NS * PPM, "zero counts as the least");
    }

    #[test]
    fn high_limits_get_long_leases() {
        let leases = [1_000_000, 500_000, 250_000, 125_000, 10_000, 0].map(long_lease_ns);
        assert_eq!(leases, [4 * LEASE_NS, 4 * LEASE_NS, 2 * LEASE_NS, LEASE_NS, LEASE_NS, LEASE_NS]);
    }

    #[test]
    fn next_lease_repays_an_overrun() {
        let mut cap = Cap::new();
        assert!(cap.exhausted());
        cap.grant(LEASE_NS);
        cap.charge(LEASE_NS + 300_000);
        assert!(cap.exhausted());
        assert_eq!(cap.want_ns(LEASE_NS), LEASE_NS + 300_000);
        cap.grant(cap.want_ns(LEASE_NS));
        assert_eq!(cap.remaining_ns(), LEASE_NS as i64);
        assert_eq!(cap.release(), LEASE_NS);
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
