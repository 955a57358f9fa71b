//! A statement's memory, as DataFusion's operators ask for it: every byte is charged to the account of its level, which decides
//! (`workload::Memory`). An operator that is refused spills, if it can and the level lets it.
//!
//! Operators ask when they want more, and nobody takes anything back, so they must leave room for each other:
//!
//! 1. up to half of what the statement may count on, whoever asks first gets it;
//! 2. beyond that an operator that can spill has one part among all that can, of what those that cannot have left;
//! 3. below [`FLOOR_BYTES`] an operator gets what its level refuses, since one that has nothing has nothing to spill either; but all
//!    operators of a statement get at most [`OVERDRAFT_BYTES_MAX`] in this way, however many a client asks for.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use workload::{Account, Refusal};

/// What every operator may have, bytes: some batches, to sort or to merge.
const FLOOR_BYTES: u64 = 4 << 20;
/// Most that a statement has of what its level refused, bytes: the floors of 32 operators.
const OVERDRAFT_BYTES_MAX: u64 = 32 * FLOOR_BYTES;

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct StatementMemory {
    account: Arc<Account>,
    /// Whether the level lets its queries spill, now.
    spills: AtomicBool,
    /// Operators that can spill, if they are let.
    spillable: AtomicUsize,
    /// What the others have, bytes.
    unspillable_bytes: AtomicU64,
    /// What the statement has beyond its level's limits, bytes.
    overdraft_bytes: AtomicU64,
    /// Why an operator was refused last, and not by this room's own rules.
    refusal: Mutex<Option<String>>,
}

impl StatementMemory {
    /// Memory of which nothing spills yet.
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

    /// Whether its operators may spill.
    pub(crate) fn spills(&self) -> bool {
        self.spills.load(Relaxed)
    }

    /// Whether they may from now on.
    pub(crate) fn let_spill(&self, may: bool) {
        self.spills.store(may, Relaxed);
    }

    /// Whether an operator that has so much, and can spill, would leave too little for the others.
    fn is_greedy(&self, after: u64, more: u64) -> bool {
        let part = self.account.entitlement();
        if self.account.used() + more <= part / 2 {
            return false;
        }
        after > part.saturating_sub(self.unspillable_bytes.load(Relaxed)) / self.operators()
    }

    /// Those that can spill.
    fn operators(&self) -> u64 {
        self.spillable.load(Relaxed).max(1) as u64
    }

    /// What an operator is told that would spill and may not: why there is no more memory for it.
    pub(crate) fn may_not_spill(&self) -> DataFusionError {
        let text = self.refusal().unwrap_or_else(|| "its service level does not let it spill".to_owned());
        DataFusionError::ResourcesExhausted(text)
    }

    /// Why the level has no more memory for the statement, if that was ever said.
    pub(crate) fn refusal(&self) -> Option<String> {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn refused(&self, why: Box<Refusal>) -> DataFusionError {
        let text = why.to_string();
        *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(text.clone());
        DataFusionError::ResourcesExhausted(text)
    }

    /// Takes `more` bytes beyond the level's limits; `None` if the statement has too many already.
    fn overdraw(&self, more: u64) -> Option<()> {
        let after = |overdraft: u64| Some(overdraft + more).filter(|after| *after <= OVERDRAFT_BYTES_MAX);
        self.overdraft_bytes.fetch_update(Relaxed, Relaxed, after).ok()?;
        self.account.grow(more);
        Some(())
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
        // What was given beyond the limits is repaid first.
        let less = |overdraft: u64| Some(overdraft.saturating_sub(shrink as u64));
        let _ = self.overdraft_bytes.fetch_update(Relaxed, Relaxed, less);
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
    fn first_memory_of_many_operators_comes_from_the_level() {
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
        // What they give back others have.
        sorts.iter().for_each(|sort| _ = sort.free());
        assert_eq!((level.used(), granted(&sorts)), (0, first));
    }
}
