//! Writes over several shards that are in flight. Compactions and drops of expired files keep
//! tombstones that are newer than the oldest of them.
//!
//! Without that, a tombstone could be removed after its grace period, before a part of an earlier
//! batch reaches the shard. The part would then show data that the tombstone deletes. Cassandra
//! does not replay a batch that is older than the grace period, which loses writes instead.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Assumed maximum step back of a clock, in seconds. A tombstone gets the time of a clock that may
/// have stepped back since the batch began.
const CLOCK_STEP_S: u32 = 3600;

/// The writes over several shards in flight. All shards of a machine share one value.
#[derive(Debug, Default)]
pub struct BatchesInFlight {
    state: Mutex<BatchesState>,
}

#[derive(Debug, Default)]
struct BatchesState {
    /// Tombstones from this time on are kept, Unix seconds, with the number of the batch.
    kept_from: BTreeSet<(u32, u64)>,
    begun: u64,
}

/// Keeps tombstones until it is dropped.
#[derive(Debug)]
pub struct BatchInFlight {
    batches: Arc<BatchesInFlight>,
    key: (u32, u64),
}

impl BatchesInFlight {
    /// Registers a batch that begins at `now_s`, Unix seconds; 0 keeps all tombstones. Call it
    /// before the batch is logged, and drop the result once all parts are applied.
    pub fn begin(self: &Arc<Self>, now_s: u32) -> BatchInFlight {
        let mut state = self.lock();
        state.begun += 1;
        let key = (now_s.saturating_sub(CLOCK_STEP_S), state.begun);
        state.kept_from.insert(key);
        BatchInFlight { batches: self.clone(), key }
    }

    /// Returns the time from which on tombstones are kept, Unix seconds; `u32::MAX` if no batch is
    /// in flight.
    pub(crate) fn kept_from_s(&self) -> u32 {
        self.lock().kept_from.first().map_or(u32::MAX, |(kept_from_s, _)| *kept_from_s)
    }

    fn lock(&self) -> MutexGuard<'_, BatchesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BatchInFlight {
    /// Keeps tombstones until the process ends: a part of the batch could not be applied, and the
    /// next start replays it.
    pub fn leave_to_next_start(self) {
        std::mem::forget(self);
    }
}

impl Drop for BatchInFlight {
    fn drop(&mut self) {
        self.batches.lock().kept_from.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_batch_in_flight_decides_which_tombstones_stay() {
        let batches = Arc::new(BatchesInFlight::default());
        assert_eq!(batches.kept_from_s(), u32::MAX);
        let old = batches.begin(10_000);
        let same = batches.begin(10_000);
        let new = batches.begin(20_000);
        assert_eq!(batches.kept_from_s(), 10_000 - CLOCK_STEP_S);
        drop(old);
        assert_eq!(batches.kept_from_s(), 10_000 - CLOCK_STEP_S);
        drop(same);
        assert_eq!(batches.kept_from_s(), 20_000 - CLOCK_STEP_S);
        let all = batches.begin(0);
        assert_eq!(batches.kept_from_s(), 0);
        drop((all, new));
        assert_eq!(batches.kept_from_s(), u32::MAX);
    }
}
