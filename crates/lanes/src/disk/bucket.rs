//! What all cores know of the disk together: its token bucket, what is under way, and which cores wait for that to end. All of it
//! is atomics: nobody waits for anybody.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

use sched::Budget;

/// A budget's state. It guards nothing but itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedBudget(Arc<AtomicU64>);

impl Budget for SharedBudget {
    fn update(&self, change: impl Fn(u64) -> u64) -> u64 {
        self.0
            .fetch_update(Relaxed, Relaxed, |state| Some(change(state)))
            .expect("there always is a new state")
    }
}

/// See the head of this file.
pub(crate) struct Bucket {
    budget: SharedBudget,
    /// What requests under way cost, ns of disk. Each costs something, so that it is zero only if there are none.
    under_way_ns: AtomicU64,
    /// By core: it has requests that the bucket holds back.
    held_back: Box<[AtomicBool]>,
}

impl Bucket {
    pub(crate) fn new(cores: usize) -> Bucket {
        let held_back = (0..cores).map(|_| AtomicBool::new(false)).collect();
        Bucket { budget: SharedBudget::default(), under_way_ns: AtomicU64::new(0), held_back }
    }

    pub(super) fn budget(&self) -> SharedBudget {
        self.budget.clone()
    }

    /// Cores that use the disk.
    pub(super) fn cores(&self) -> usize {
        self.held_back.len()
    }

    /// What the disk is working on, ns of disk.
    pub(super) fn under_way_ns(&self) -> u64 {
        self.under_way_ns.load(SeqCst)
    }

    pub(super) fn sent(&self, cost_ns: u64) {
        self.under_way_ns.fetch_add(cost_ns, SeqCst);
    }

    /// Whether the disk has nothing to do now, although somebody is held back.
    pub(super) fn done(&self, cost_ns: u64) -> bool {
        self.under_way_ns.fetch_sub(cost_ns, SeqCst) == cost_ns
            && self.held_back.iter().any(|core| core.load(SeqCst))
    }

    /// A core is held back. False if the disk has nothing to do by now: it is to ask again instead, for nobody may tell it.
    ///
    /// No end is missed: a core says that it is held back and then looks for requests under way, and the last of those ends
    /// and then looks for cores held back; in the one order of sequentially consistent operations one of them sees the other.
    pub(super) fn hold_back(&self, core: usize) -> bool {
        self.held_back[core].store(true, SeqCst);
        self.under_way_ns() > 0
    }

    /// Cores held back, each given to one caller only.
    pub(super) fn take_held_back(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.held_back.len()).filter(|&core| self.held_back[core].swap(false, SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_request_to_end_tells_of_each_core_once() {
        let bucket = Bucket::new(3);
        [7, 5].into_iter().for_each(|cost_ns| bucket.sent(cost_ns));
        assert!(bucket.hold_back(2) && bucket.hold_back(0));
        assert!(!bucket.done(5), "one is under way");
        assert!(bucket.done(7));
        assert_eq!(bucket.take_held_back().collect::<Vec<_>>(), [0, 2]);
        assert_eq!(bucket.take_held_back().count(), 0);
        assert!(!bucket.hold_back(1), "nothing is under way: to be asked again");
    }
}
