//! Query memory of a statement, as DataFusion's operators reserve it. Every byte is charged to the
//! account of the statement's level, which grants or refuses it (`workload::Memory`). A refused
//! operator spills, if it can and the level permits it.
//!
//! Memory cannot be taken back from an operator. Operators therefore share it by these rules:
//!
//! 1. Up to half of the statement's part, the first operator that requests memory gets it.
//! 2. Above that, spillable operators share the rest of the memory equally. The rest is what
//!    operators that cannot spill have left.
//! 3. Below [`FLOOR_BYTES`], an operator gets memory even if its level refuses: without memory it
//!    would have nothing to spill either. All operators of a statement together get at most
//!    [`OVERDRAFT_BYTES_MAX`] in this way, and so do all statements together.
//!
//! Memory that no operator of DataFusion reserves is charged as [`Held`]. `charges` lists both.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use workload::{Account, Refusal};

/// Memory that every operator may have, bytes: a few batches, to sort or to merge.
const FLOOR_BYTES: u64 = 4 << 20;
/// Maximum memory of a statement beyond its level's limits, bytes: the floors of 32 operators.
const OVERDRAFT_BYTES_MAX: u64 = 32 * FLOOR_BYTES;

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct StatementMemory {
    account: Arc<Account>,
    /// The level currently permits spilling.
    spills: AtomicBool,
    /// Number of operators that are able to spill.
    spillable: AtomicUsize,
    /// Memory of the other operators, bytes.
    unspillable_bytes: AtomicU64,
    /// Memory of the statement beyond its level's limits, bytes.
    overdraft_bytes: AtomicU64,
    /// Message of the level's last refusal. Refusals by rule 2 are not stored.
    refusal: Mutex<Option<String>>,
}

impl StatementMemory {
    /// Creates the memory of a statement, without spilling.
    pub(crate) fn new(account: Arc<Account>) -> StatementMemory {
        StatementMemory {
            account,
            spills: AtomicBool::new(false),
            spillable: AtomicUsize::new(0),
            unspillable_bytes: AtomicU64::new(0),
            overdraft_bytes: AtomicU64::new(0),
            refusal: Mutex::new(None),
        }
    }

    /// True if the level permits spilling.
    pub(crate) fn spills(&self) -> bool {
        self.spills.load(Relaxed)
    }

    /// Permits or forbids spilling.
    pub(crate) fn let_spill(&self, is_permitted: bool) {
        self.spills.store(is_permitted, Relaxed);
    }

    /// Checks rules 1 and 2 for a spillable operator that would have `after` bytes with `more`.
    /// Returns true if it would exceed its part.
    fn is_greedy(&self, after: u64, more: u64) -> bool {
        let part = self.account.entitlement();
        if self.account.used() + more <= part / 2 {
            return false;
        }
        after > part.saturating_sub(self.unspillable_bytes.load(Relaxed)) / self.operators()
    }

    /// Returns the number of spillable operators, at least 1.
    fn operators(&self) -> u64 {
        self.spillable.load(Relaxed).max(1) as u64
    }

    /// Returns the error of an operator that needs to spill without permission. Its message is the
    /// level's last refusal.
    pub(crate) fn may_not_spill(&self) -> DataFusionError {
        let text = self.refusal().unwrap_or_else(|| "its service level does not let it spill".to_owned());
        DataFusionError::ResourcesExhausted(text)
    }

    /// Returns the message of the level's last refusal.
    pub(crate) fn refusal(&self) -> Option<String> {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn refused(&self, why: Box<Refusal>) -> DataFusionError {
        let text = why.to_string();
        *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(text.clone());
        DataFusionError::ResourcesExhausted(text)
    }

    /// Takes `more` bytes beyond the level's limits. `None` if that exceeds
    /// [`OVERDRAFT_BYTES_MAX`], for this statement or for all of them.
    fn overdraw(&self, more: u64) -> Option<()> {
        let after = |overdraft: u64| Some(overdraft + more).filter(|after| *after <= OVERDRAFT_BYTES_MAX);
        self.overdraft_bytes.fetch_update(Relaxed, Relaxed, after).ok()?;
        if self.account.overdraw(more, OVERDRAFT_BYTES_MAX) {
            return Some(());
        }
        self.repay(more);
        None
    }

    /// Reduces the overdraft by freed memory.
    fn repay(&self, bytes: u64) {
        let less = |overdraft: u64| Some(overdraft.saturating_sub(bytes));
        let _ = self.overdraft_bytes.fetch_update(Relaxed, Relaxed, less);
    }

    /// Takes `more` bytes for a holder that has `after` bytes then, and cannot spill.
    fn take(&self, after: u64, more: u64) -> Result<()> {
        if let Err(why) = self.account.try_grow_unspillable(more)
            && (after > FLOOR_BYTES || self.overdraw(more).is_none())
        {
            return Err(self.refused(why));
        }
        self.unspillable_bytes.fetch_add(more, Relaxed);
        Ok(())
    }

    fn give(&self, bytes: u64) {
        self.account.shrink(bytes);
        self.repay(bytes);
        self.unspillable_bytes.fetch_sub(bytes, Relaxed);
    }

    fn count(&self, reservation: &MemoryReservation, more: u64) {
        if !reservation.consumer().can_spill() {
            self.unspillable_bytes.fetch_add(more, Relaxed);
        }
    }
}

impl MemoryPool for StatementMemory {
    fn name(&self) -> &'static str {
        "service level"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        if consumer.can_spill() {
            self.spillable.fetch_add(1, Relaxed);
        }
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        if consumer.can_spill() {
            self.spillable.fetch_sub(1, Relaxed);
        }
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.account.grow(additional as u64);
        self.count(reservation, additional as u64);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.account.shrink(shrink as u64);
        // Freed memory reduces the overdraft first.
        self.repay(shrink as u64);
        if !reservation.consumer().can_spill() {
            self.unspillable_bytes.fetch_sub(shrink as u64, Relaxed);
        }
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let more = additional as u64;
        let after = reservation.size() as u64 + more;
        if after <= FLOOR_BYTES {
            if let Err(why) = self.account.try_grow(more) {
                self.overdraw(more).ok_or_else(|| self.refused(why))?;
            }
        } else if self.spills() && reservation.consumer().can_spill() {
            if self.is_greedy(after, more) {
                let refusal = self.account.beyond_part(more, self.operators());
                return Err(DataFusionError::ResourcesExhausted(refusal.to_string()));
            }
            self.account.try_grow(more).map_err(|why| self.refused(why))?;
        } else {
            self.account.try_grow_unspillable(more).map_err(|why| self.refused(why))?;
        }
        self.count(reservation, more);
        Ok(())
    }

    fn reserved(&self) -> usize {
        usize::try_from(self.account.used()).unwrap_or(usize::MAX)
    }
}

/// Memory of a statement that no operator of DataFusion reserves. Cannot spill. Dropping it
/// releases the memory.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// `None` outside of statements, and while a statement is planned: nothing is charged.
    memory: Option<Arc<StatementMemory>>,
    bytes: u64,
}

impl Held {
    /// Holds nothing yet, of a statement's memory.
    pub(crate) fn of(memory: Option<Arc<StatementMemory>>) -> Held {
        Held { memory, bytes: 0 }
    }

    /// Returns the bytes held.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Holds `more` bytes in addition.
    ///
    /// # Errors
    /// The level refuses them. The bytes held before stay.
    pub(crate) fn grow(&mut self, more: u64) -> Result<()> {
        let after = self.bytes.saturating_add(more);
        if more > 0
            && let Some(memory) = &self.memory
        {
            memory.take(after, more)?;
        }
        self.bytes = after;
        Ok(())
    }

    /// Releases up to `bytes`.
    pub(crate) fn shrink(&mut self, bytes: u64) {
        let less = bytes.min(self.bytes);
        self.bytes -= less;
        if less > 0
            && let Some(memory) = &self.memory
        {
            memory.give(less);
        }
    }

    /// Holds `bytes` in all.
    ///
    /// # Errors
    /// The level refuses them. The bytes held before stay.
    pub(crate) fn resize(&mut self, bytes: u64) -> Result<()> {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.grow(more),
            None => {
                self.shrink(self.bytes - bytes);
                Ok(())
            }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shrink(self.bytes);
    }
}

impl fmt::Display for StatementMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "memory of a service level, {} bytes used", self.account.used())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use workload::{Memory, MemoryLimits};

    #[test]
    fn overdraft_of_many_operators_is_bounded() {
        let memory = Memory::new(16 * FLOOR_BYTES);
        let level = memory.add(&"level".into(), 100, &MemoryLimits::NONE);
        let pool: Arc<dyn MemoryPool> = Arc::new(StatementMemory::new(Arc::new(memory.account(&level))));
        let sorts: Vec<MemoryReservation> = (0..1_000)
            .map(|n| MemoryConsumer::new(format!("sort {n}")).with_can_spill(true).register(&pool))
            .collect();
        let granted = |sorts: &[MemoryReservation]| {
            sorts.iter().filter(|sort| sort.try_grow(FLOOR_BYTES as usize).is_ok()).count()
        };
        let first = granted(&sorts);
        assert!((32..=48).contains(&first), "{first} of 1000 operators have their first memory");
        assert!(level.used() <= 16 * FLOOR_BYTES + OVERDRAFT_BYTES_MAX);
        // Freed memory is available to other operators.
        sorts.iter().for_each(|sort| _ = sort.free());
        assert_eq!((level.used(), granted(&sorts)), (0, first));
    }
}
