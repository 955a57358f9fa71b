//! Sharing of one budget among cores: the disk itself, or the limit of a group. The budget is the
//! one `u64` of [`crate::gcra`]. Each core has a [`Claim`] on it.
//!
//! 1. While the budget is not exhausted, a core takes the cost of its request and no more. One core
//!    alone may use all of it.
//! 2. If it is exhausted, the core takes a *lease* in advance, and the time from which it may use
//!    it. The next core finds that lease taken and gets a later time. So cores wait in a queue, and
//!    each gets a lease in turn, however often it asks and however large its requests are.
//! 3. At its time the core sends requests worth the lease, best request first. The cost of
//!    the last request beyond the lease is debt. The core queues again until it is paid. So each
//!    waiting core gets the same time, however large its requests are.
//! 4. Once the core has nothing queued, it gives the rest of its lease back. A debt goes to the
//!    budget, so all cores pay it.
//!
//! ```text
//!   paid ──▶ time         │ core 0 │ core 1 │ core 2 │ core 0 │ …        a lease each
//!              now + burst ──┘
//! ```
//!
//! So over any interval `T` all cores together get at most `T + burst`, plus a lease and a request
//! for each core.

use crate::gcra;

/// State of a budget that all cores share.
pub trait Budget {
    /// Changes the state atomically and returns the old one. `change` may be called more than once.
    /// The last call is with the returned state.
    fn update(&self, change: impl Fn(u64) -> u64) -> u64;
}

/// Claim of one core on a budget.
#[derive(Debug, Default)]
pub struct Claim {
    /// Unused rest of the lease, ns; negative is debt.
    granted_ns: i64,
    /// Time from which it may be used, ns.
    from_ns: u64,
}

impl Claim {
    /// Returns a claim without a lease.
    #[must_use]
    pub const fn new() -> Claim {
        Claim { granted_ns: 0, from_ns: 0 }
    }

    /// Asks to send a request of `cost_ns` now. After `Ok`, call [`Claim::spend`], or keep the
    /// grant for the next request. `lease_ns` is taken at once while the budget is exhausted.
    /// Grants may run ahead of payment by `burst_ns`.
    ///
    /// # Errors
    /// Not yet: the time to ask again, ns, always later than `now_ns`.
    pub fn ask(
        &mut self,
        now_ns: u64,
        cost_ns: u64,
        lease_ns: u64,
        burst_ns: u64,
        budget: &impl Budget,
    ) -> Result<(), u64> {
        if self.from_ns <= now_ns && self.granted_ns <= 0 {
            let is_free = |paid_until_ns: u64| paid_until_ns <= now_ns.saturating_add(burst_ns);
            let wanted_ns = cost_ns.saturating_add(self.granted_ns.unsigned_abs());
            let takes_ns = |paid| if is_free(paid) { wanted_ns } else { lease_ns };
            let before = budget.update(|paid| gcra::debt(paid, now_ns, takes_ns(paid)));
            self.granted_ns = self.granted_ns.saturating_add_unsigned(takes_ns(before));
            self.from_ns = if is_free(before) { now_ns } else { before - burst_ns };
        }
        if self.from_ns <= now_ns { Ok(()) } else { Err(self.from_ns) }
    }

    /// Takes `cost_ns` as [`Claim::ask`] does, but always succeeds and forgives all debt of the
    /// budget.
    pub fn reset(&mut self, now_ns: u64, cost_ns: u64, budget: &impl Budget) {
        budget.update(|_| now_ns.saturating_add(cost_ns));
        *self = Claim { granted_ns: i64::try_from(cost_ns).unwrap_or(i64::MAX), from_ns: now_ns };
    }

    /// Charges a request that was sent.
    pub fn spend(&mut self, cost_ns: u64) {
        self.granted_ns = self.granted_ns.saturating_sub_unsigned(cost_ns);
    }

    /// Gives the rest of the lease back, or moves the debt to the budget. Call it when the core has
    /// nothing queued.
    pub fn release(&mut self, now_ns: u64, budget: &impl Budget) {
        let Claim { granted_ns, .. } = std::mem::take(self);
        match granted_ns {
            0 => 0,
            unused @ 1.. => budget.update(|paid| gcra::give_back(paid, unused.unsigned_abs())),
            debt => budget.update(|paid| gcra::debt(paid, now_ns, debt.unsigned_abs())),
        };
    }
}
