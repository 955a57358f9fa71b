//! State of the disk that all cores share: its token bucket, the requests in flight, and the cores
//! that wait for them to end. All of it is atomic: no core blocks another.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

use sched::Budget;

/// State of a budget. It guards no other data.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedBudget(Arc<AtomicU64>);

impl SharedBudget {
    /// Returns true if both are one budget.
    pub(crate) fn is_same(&self, other: &SharedBudget) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Budget for SharedBudget {
    fn update(&self, change: impl Fn(u64) -> u64) -> u64 {
        self.0
            .fetch_update(Relaxed, Relaxed, |state| Some(change(state)))
            .expect("an update always has a new state")
    }
}

/// Shared state of the disk. The head of this file describes it.
pub(crate) struct Bucket {
    budget: SharedBudget,
    /// Cost of requests in flight, ns of disk time. Each costs at least 1 ns, so it is zero only if
    /// none are in flight.
    in_flight_ns: AtomicU64,
    /// True for each core whose requests wait for the bucket.
    waiting: Box<[AtomicBool]>,
}

impl Bucket {
    pub(crate) fn new(cores: usize) -> Bucket {
        let waiting = (0..cores).map(|_| AtomicBool::new(false)).collect();
        Bucket { budget: SharedBudget::default(), in_flight_ns: AtomicU64::new(0), waiting }
    }

    pub(crate) fn budget(&self) -> SharedBudget {
        self.budget.clone()
    }

    /// Returns the number of cores that use the disk.
    pub(crate) fn cores(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the cost of requests in flight, ns of disk time.
    pub(crate) fn in_flight_ns(&self) -> u64 {
        self.in_flight_ns.load(SeqCst)
    }

    pub(crate) fn sent(&self, cost_ns: u64) {
        self.in_flight_ns.fetch_add(cost_ns, SeqCst);
    }

    /// Records the end of a request. Returns true if the disk is idle now and a core waits.
    pub(crate) fn done(&self, cost_ns: u64) -> bool {
        self.in_flight_ns.fetch_sub(cost_ns, SeqCst) == cost_ns
            && self.waiting.iter().any(|core| core.load(SeqCst))
    }

    /// Records that a core waits. Returns false if the disk is idle by now: the core must then ask
    /// again, for no completion may wake it.
    ///
    /// No wake-up is lost. A core records that it waits and then checks for requests in flight. The
    /// last of those ends and then checks for waiting cores. Both are sequentially consistent, so
    /// one of them sees the other.
    pub(crate) fn wait_for_idle(&self, core: usize) -> bool {
        self.waiting[core].store(true, SeqCst);
        self.in_flight_ns() > 0
    }

    /// Takes the waiting cores, each for one caller only.
    pub(crate) fn take_waiting(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.waiting.len()).filter(|&core| self.waiting[core].swap(false, SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_completion_returns_each_waiting_core_once() {
        let bucket = Bucket::new(3);
        [7, 5].into_iter().for_each(|cost_ns| bucket.sent(cost_ns));
        assert!(bucket.wait_for_idle(2) && bucket.wait_for_idle(0));
        assert!(!bucket.done(5), "one is in flight");
        assert!(bucket.done(7));
        assert_eq!(bucket.take_waiting().collect::<Vec<_>>(), [0, 2]);
        assert_eq!(bucket.take_waiting().count(), 0);
        assert!(!bucket.wait_for_idle(1), "nothing is in flight: the core must ask again");
    }
}
