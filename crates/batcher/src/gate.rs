//! The gate before the store: bounds the operations in flight, by a fixed or an adaptive limit.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Semaphore;

use crate::concurrency::Concurrency;
use crate::{BatcherClock, Limits};

#[derive(Debug)]
pub(crate) struct Gate {
    /// Operations that may still begin. Waiters are served in order.
    free: Semaphore,
    state: Mutex<GateState>,
    steady_us: fn() -> u64,
}

#[derive(Debug)]
struct GateState {
    limit: usize,
    in_flight: usize,
    /// Permits beyond the limit, after it was lowered. They are not given out again.
    excess: usize,
    /// Number of changes of the limit.
    changes: u64,
    /// `None`: the limit is fixed.
    concurrency: Option<Concurrency>,
}

/// Permission for one operation. Dropping it makes place for the next one.
#[derive(Debug)]
pub(crate) struct Permit<'a> {
    gate: &'a Gate,
    began_us: u64,
    /// The number of changes of the limit, if the operation began while the limit was reached.
    changes: Option<u64>,
}

impl Gate {
    pub(crate) fn new(limits: Limits, clock: BatcherClock) -> Gate {
        let max = limits.iops_in_flight.min(Semaphore::MAX_PERMITS);
        let concurrency = limits.is_adaptive.then(|| Concurrency::new(max));
        let limit = concurrency.as_ref().map_or(max, Concurrency::limit);
        let state = GateState { limit, in_flight: 0, excess: 0, changes: 0, concurrency };
        Gate { free: Semaphore::new(limit), state: Mutex::new(state), steady_us: clock.steady_us }
    }

    /// Returns the number of operations that may be in flight now.
    pub(crate) fn limit(&self) -> usize {
        self.lock().limit
    }

    /// Waits until an operation may begin.
    pub(crate) async fn enter(&self) -> Permit<'_> {
        let free = self.free.acquire().await.expect("the semaphore is never closed");
        free.forget();
        let mut state = self.lock();
        state.in_flight += 1;
        let is_measured = state.concurrency.is_some();
        let changes = (is_measured && state.in_flight >= state.limit).then_some(state.changes);
        drop(state);
        Permit { gate: self, began_us: if is_measured { (self.steady_us)() } else { 0 }, changes }
    }

    /// Locks the state. No foreign code runs under the lock.
    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permit<'_> {
    /// Ends the operation, and counts it for the adaptive limit.
    pub(crate) fn end(self, is_ok: bool) {
        let Some(changes) = self.changes else { return };
        let response_us = (self.gate.steady_us)().saturating_sub(self.began_us);
        let mut state = self.gate.lock();
        if changes != state.changes {
            return;
        }
        let Some(concurrency) = &mut state.concurrency else { return };
        concurrency.ended(response_us, is_ok);
        let limit = concurrency.limit();
        if limit != state.limit {
            let more = limit.saturating_sub(state.limit);
            let repaid = more.min(state.excess);
            self.gate.free.add_permits(more - repaid);
            let less = state.limit.saturating_sub(limit);
            let taken = self.gate.free.forget_permits(less);
            state.excess = state.excess - repaid + less - taken;
            state.limit = limit;
            state.changes += 1;
        }
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut state = self.gate.lock();
        state.in_flight -= 1;
        match state.excess {
            0 => self.gate.free.add_permits(1),
            _ => state.excess -= 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    /// Enters as often as the gate allows now.
    fn enter_all(gate: &Gate) -> Vec<Permit<'_>> {
        std::iter::from_fn(|| gate.enter().now_or_never()).collect()
    }

    #[test]
    fn gate_admits_the_limit_after_each_change() {
        let limits = Limits { iops_in_flight: 64, is_adaptive: true, ..Limits::default() };
        // Each look at the clock takes longer than the one before it, and then is quick again.
        let steady_us = || {
            static POLLS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
            let polls = POLLS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            polls * (1000 + polls % 100_000)
        };
        let gate = Gate::new(limits, BatcherClock { steady_us, ..BatcherClock::SYSTEM });
        let mut limits_seen = std::collections::BTreeSet::new();
        let mut permits = enter_all(&gate);
        for round in 0..100_000 {
            limits_seen.insert(gate.limit());
            permits.swap_remove(round % permits.len()).end(true);
            permits.extend(enter_all(&gate));
            if round % 100 == 0 {
                permits.clear();
                permits = enter_all(&gate);
                assert_eq!(permits.len(), gate.limit());
            }
        }
        assert!(limits_seen.len() > 4, "the limits were {limits_seen:?}");
    }

    #[test]
    fn fixed_limit_stays() {
        let gate = Gate::new(Limits { iops_in_flight: 5, ..Limits::default() }, BatcherClock::SYSTEM);
        for _ in 0..3 {
            let permits = enter_all(&gate);
            assert_eq!((permits.len(), gate.limit()), (5, 5));
            permits.into_iter().for_each(|permit| permit.end(false));
        }
    }
}
