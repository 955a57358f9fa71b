//! How cores share one budget: the disk itself, or what a group may move. The budget is the one
//! `u64` of [`crate::gcra`]; each core has a [`Claim`] on it.
//!
//! 1. While the budget has room, a core takes what its request costs, and no more: one core alone
//!    may use all of it.
//! 2. If it has none, the core takes a *piece* all the same, in advance, and is told from when on
//!    it may use it. Whoever comes next finds that piece taken and is told a later time: the cores
//!    stand in line, and each gets a piece in turn, however often it asks and however large its
//!    requests are.
//! 3. When its time has come the core sends what is worth the piece, the then best request first.
//!    What its last request costs beyond the piece is its debt: it stands in line again, and again,
//!    until that is paid. So however large a core's requests are, each core in line gets the same.
//! 4. Once nothing is queued any more, what is left is given back, and a debt becomes everybody's.
//!
//! ```text
//!   paid ──▶ time         │ core 0 │ core 1 │ core 2 │ core 0 │ …        a piece each
//!              now + burst ──┘
//! ```
//!
//! So over any interval `T` all cores together get at most `T + burst`, a piece and a request each.

use crate::gcra;

/// The state of a budget, shared by all cores.
pub trait Budget {
    /// Changes the state in one step, whoever else does so at the same time, and gives what it was.
    /// `change` may be called more than once, the last time with what is given.
    fn update(&self, change: impl Fn(u64) -> u64) -> u64;
}

/// One core's claim on a budget.
#[derive(Debug, Default)]
pub struct Claim {
    /// Negative is debt.
    granted_ns: i64,
    /// When that may be used.
    from_ns: u64,
}

impl Claim {
    /// No claim yet.
    #[must_use]
    pub const fn new() -> Claim {
        Claim { granted_ns: 0, from_ns: 0 }
    }

    /// Whether a request of `cost_ns` may be sent now. If so, [`Claim::spend`] follows, or the
    /// claim stays for the next one. `piece_ns` is what is taken at once while the budget is
    /// exhausted, `burst_ns` how far it may be used ahead of time.
    ///
    /// # Errors
    /// Not yet: when to ask again, ns, always later than `now_ns`.
    pub fn ask(
        &mut self,
        now_ns: u64,
        cost_ns: u64,
        piece_ns: u64,
        burst_ns: u64,
        budget: &impl Budget,
    ) -> Result<(), u64> {
        if self.from_ns <= now_ns && self.granted_ns <= 0 {
            let has_room = |paid_until_ns: u64| paid_until_ns <= now_ns.saturating_add(burst_ns);
            let wanted_ns = cost_ns.saturating_add(self.granted_ns.unsigned_abs());
            let takes_ns = |paid| if has_room(paid) { wanted_ns } else { piece_ns };
            let before = budget.update(|paid| gcra::debt(paid, now_ns, takes_ns(paid)));
            self.granted_ns = self.granted_ns.saturating_add_unsigned(takes_ns(before));
            self.from_ns = if has_room(before) { now_ns } else { before - burst_ns };
        }
        if self.from_ns <= now_ns { Ok(()) } else { Err(self.from_ns) }
    }

    /// As [`Claim::ask`] where the answer is always yes, and what is owed is forgotten, by all.
    pub fn start_afresh(&mut self, now_ns: u64, cost_ns: u64, budget: &impl Budget) {
        budget.update(|_| now_ns.saturating_add(cost_ns));
        *self = Claim { granted_ns: i64::try_from(cost_ns).unwrap_or(i64::MAX), from_ns: now_ns };
    }

    /// A request was sent.
    pub fn spend(&mut self, cost_ns: u64) {
        self.granted_ns = self.granted_ns.saturating_sub_unsigned(cost_ns);
    }

    /// Nothing is queued any more.
    pub fn release(&mut self, now_ns: u64, budget: &impl Budget) {
        let Claim { granted_ns, .. } = std::mem::take(self);
        match granted_ns {
            0 => 0,
            unused @ 1.. => budget.update(|paid| gcra::give_back(paid, unused.unsigned_abs())),
            debt => budget.update(|paid| gcra::debt(paid, now_ns, debt.unsigned_abs())),
        };
    }
}
