//! Locks of partitions, for statements that read before they write.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use crate::locks::keyed::{KeyGuard, KeyedLock};

/// Locks of this core's partitions, by token.
#[derive(Default)]
pub(crate) struct PartitionLocks {
    locks: KeyedLock<i64>,
    /// Guards held for statements of other cores, by number.
    held: RefCell<HashMap<u64, Vec<KeyGuard<i64>>>>,
    numbers: Cell<u64>,
}

impl PartitionLocks {
    /// Waits for the lock of a partition.
    pub(crate) async fn lock(&self, token: i64) -> KeyGuard<i64> {
        self.locks.lock(token).await
    }

    /// Holds guards for a statement of another core. Returns their number, to release them.
    pub(crate) fn hold(&self, guards: Vec<KeyGuard<i64>>) -> u64 {
        let number = self.numbers.replace(self.numbers.get() + 1);
        self.held.borrow_mut().insert(number, guards);
        number
    }

    /// Returns the number of statements of other cores that hold guards.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.held.borrow().len()
    }

    /// Releases the guards with this number.
    pub(crate) fn release(&self, number: u64) {
        // Taken out first: a guard wakes the next waiter when it is dropped.
        let guards = self.held.borrow_mut().remove(&number);
        drop(guards);
    }
}
