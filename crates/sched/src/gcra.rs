//! Rate limit whose whole state is one `u64`, so that it fits an `AtomicU64` that all cores share:
//! the generic cell rate algorithm (GCRA) in its virtual-scheduling form. The state is the time up
//! to which all grants so far are *paid*, if payment flows at the allowed rate and starts with the
//! first grant:
//!
//! ```text
//!   now      paid          now + burst
//! ───┼─────────┼───────────────┼──────▶ time        paid ≤ now + burst: granted, paid += cost
//!    │░░░░░░░░░│                                    paid > now + burst: ask again at paid − burst
//!      not yet paid
//! ```
//!
//! - Idle time is not saved: a grant counts from max(paid, now). After any idle time, at most
//!   `burst` plus one lease is granted at once.
//! - A lease is granted whole as soon as the earlier ones are paid to within `burst`, however large
//!   it is. So a large lease waits no longer than a small one. It is repaid afterwards.
//! - Over any interval `T`, leases of a total cost below `T + burst + the last lease` are granted.
//!   Proof: just before the last grant of the interval `paid ≤ now + burst`. `paid` was at least
//!   `start` after the first grant counted, and each grant moved it by its cost.
//!
//! Times and costs are nanoseconds. A cost is the time that it takes to pay (`cap` and `disk`
//! convert). Sums saturate.
//!
//! On an `AtomicU64` this is `fetch_update(Relaxed, Relaxed, |paid| take(paid, now, cost,
//! burst).ok())`. Relaxed suffices, as the state guards no other data.

/// Grants `cost_ns` at `now_ns`. Returns the new state.
///
/// # Errors
/// Earlier grants are not yet paid to within `burst_ns`: the time to ask again, ns, always later
/// than `now_ns`.
pub fn take(paid_until_ns: u64, now_ns: u64, cost_ns: u64, burst_ns: u64) -> Result<u64, u64> {
    if paid_until_ns > now_ns.saturating_add(burst_ns) {
        return Err(paid_until_ns - burst_ns);
    }
    Ok(debt(paid_until_ns, now_ns, cost_ns))
}

/// Adds a cost that was used without a grant. It is repaid before the next grant. Returns the new
/// state.
#[must_use]
pub fn debt(paid_until_ns: u64, now_ns: u64, cost_ns: u64) -> u64 {
    paid_until_ns.max(now_ns).saturating_add(cost_ns)
}

/// Gives back the unused part of a grant. Returns the new state.
#[must_use]
pub fn give_back(paid_until_ns: u64, cost_ns: u64) -> u64 {
    paid_until_ns.saturating_sub(cost_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_the_burst_and_one_lease_then_the_rate() {
        let mut paid = 0;
        let mut granted = 0;
        while let Ok(next) = take(paid, 1_000, 100, 250) {
            paid = next;
            granted += 100;
        }
        assert_eq!(granted, 300, "the burst of 250 is exceeded by less than one lease");
        assert_eq!(take(paid, 1_000, 100, 250), Err(1_050));
        assert_eq!(take(paid, 1_049, 100, 250), Err(1_050));
        assert_eq!(take(paid, 1_050, 100, 250), Ok(1_400));
    }

    #[test]
    fn idle_time_is_not_saved() {
        assert_eq!(take(5, 1_000_000, 10, 0), Ok(1_000_010));
    }

    #[test]
    fn returned_time_can_be_granted_again() {
        let paid = take(0, 100, 50, 0).unwrap();
        assert_eq!(take(paid, 100, 50, 0), Err(150));
        assert_eq!(take(give_back(paid, 50), 100, 50, 0), Ok(150));
    }

    #[test]
    fn sums_saturate() {
        assert_eq!(take(u64::MAX, u64::MAX, 7, 7), Ok(u64::MAX));
        assert_eq!(debt(3, u64::MAX, u64::MAX), u64::MAX);
        assert_eq!(give_back(3, 4), 0);
    }
}
