//! Statements that the front prepares at a node that comes up: it may be new, or may have forgotten
//! them. Otherwise each of them costs a client an answer UNPREPARED and the wait for a PREPARE.
//!
//! 1. Core 0 sees that the node comes up, and counts it (`windows.rs`). Its window stays at the
//!    least until all cores are done, at most for [`PREPARED_WITHIN`].
//! 2. Each core sees the new count at its next division, and takes over those of its most used
//!    statements that no other core has taken over: [`PREPARED_MAX`] over all cores.
//! 3. It prepares them (`preparation.rs`).
//!
//! A node that goes down ends that. Statements that could not be prepared, or that are not among
//! the most used ones, are prepared when the node answers UNPREPARED (`again.rs`).

use std::time::Duration;

use rustc_hash::FxHashSet;

use crate::prepared::UsedPlan;

/// Statements that are prepared at a node that comes up, at most, over all cores.
pub(crate) const PREPARED_MAX: usize = 1000;

/// Time after which the rest is left to requests.
pub(crate) const PREPARED_WITHIN: Duration = Duration::from_secs(10);

/// State of a node that has come up, which all cores share.
#[derive(Default)]
pub(crate) struct ComingUp {
    /// Times that the node has come up since the front started.
    count: u64,
    /// Cores that still prepare. 0: the window may grow.
    cores_left: usize,
    /// End of [`PREPARED_WITHIN`], ns of the monotonic clock.
    until_ns: u64,
    /// Numbers of the statements that cores have taken over.
    taken: FxHashSet<u32>,
}

impl ComingUp {
    /// Counts that the node comes up. Each of `cores` has to prepare.
    pub(crate) fn begin(&mut self, cores: usize, now_ns: u64) {
        let until_ns = now_ns.saturating_add(PREPARED_WITHIN.as_nanos() as u64);
        *self = ComingUp { count: self.count + 1, cores_left: cores, until_ns, taken: FxHashSet::default() };
    }

    /// Ends the preparations.
    pub(crate) fn end(&mut self) {
        (self.cores_left, self.taken) = (0, FxHashSet::default());
    }

    /// Returns the number of times that the node has come up.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Returns true until all cores have prepared.
    pub(crate) fn is_preparing(&self, now_ns: u64) -> bool {
        self.cores_left > 0 && now_ns < self.until_ns
    }

    /// Takes over at most `max` statements of a core that no core has taken over. None are left if
    /// the preparations of `count` are over.
    pub(crate) fn take<'a>(
        &mut self,
        count: u64,
        own: &mut impl Iterator<Item = &'a UsedPlan>,
        max: usize,
        now_ns: u64,
    ) -> Vec<&'a UsedPlan> {
        if self.count != count || !self.is_preparing(now_ns) {
            return Vec::new();
        }
        let left = PREPARED_MAX.saturating_sub(self.taken.len());
        own.filter(|used| self.taken.insert(used.plan.number)).take(max.min(left)).collect()
    }

    /// Counts a core as done with the preparations of `count`.
    pub(crate) fn core_done(&mut self, count: u64) {
        if self.count == count {
            self.cores_left = self.cores_left.saturating_sub(1);
        }
        if self.cores_left == 0 {
            self.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::{Rc, Weak};

    use wire::Version;

    use super::*;
    use crate::prepared::tests::plan;

    fn used(numbers: std::ops::Range<u32>) -> Vec<UsedPlan> {
        let used = |number| {
            let plan = Rc::new(crate::RemotePlan { number, ..plan(0, 1) });
            UsedPlan { plan, role: Weak::new(), version: Version::V5 }
        };
        numbers.map(used).collect()
    }

    #[test]
    fn cores_take_over_each_statement_once_and_no_more_than_the_most() {
        let (one, other) = (used(0..800), used(400..1600));
        let (mut of_one, mut of_other) = (one.iter(), other.iter());
        let mut coming_up = ComingUp::default();
        assert!(coming_up.take(0, &mut of_one, 16, 0).is_empty(), "it has not come up");
        coming_up.begin(2, 0);
        let mut taken = FxHashSet::default();
        loop {
            let of_one = coming_up.take(1, &mut of_one, 16, 0);
            let of_other = coming_up.take(1, &mut of_other, 16, 0);
            assert!(of_one.len() <= 16 && of_other.len() <= 16);
            if of_one.is_empty() && of_other.is_empty() {
                break;
            }
            for used in of_one.into_iter().chain(of_other) {
                assert!(taken.insert(used.plan.number), "{} twice", used.plan.number);
            }
        }
        assert_eq!(taken.len(), PREPARED_MAX);
    }

    #[test]
    fn preparations_end_with_the_last_core_their_time_or_the_node() {
        let own = used(0..10);
        let takes = |coming_up: &mut ComingUp, count, now_ns| {
            !coming_up.take(count, &mut own.iter(), 1, now_ns).is_empty()
        };
        let mut coming_up = ComingUp::default();
        coming_up.begin(2, 0);
        coming_up.core_done(1);
        assert!(coming_up.is_preparing(0) && takes(&mut coming_up, 1, 0));
        coming_up.core_done(1);
        assert!(!coming_up.is_preparing(0) && !takes(&mut coming_up, 1, 0));
        coming_up.begin(2, 0);
        assert!(!takes(&mut coming_up, 1, 0) && takes(&mut coming_up, 2, 0), "only for this time");
        coming_up.core_done(1);
        coming_up.core_done(1);
        assert!(coming_up.is_preparing(0), "they prepared for another time");
        let late_ns = PREPARED_WITHIN.as_nanos() as u64;
        assert!(!coming_up.is_preparing(late_ns) && !takes(&mut coming_up, 2, late_ns));
        coming_up.end();
        assert!(!takes(&mut coming_up, 2, 0));
    }
}
