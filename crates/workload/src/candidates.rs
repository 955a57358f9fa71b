//! Statements whose level has actions for an overloaded server (`query_limit` with `'overload'`).
//! Each reports its use from time to time, and is asked for its next action when it is the heaviest
//! one.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A statement that may be asked for an action.
#[derive(Debug)]
pub(crate) struct Candidate {
    /// Number of its level, as in [`crate::Level::id`].
    level: AtomicU64,
    /// Number of its actions.
    actions: u32,
    asked: AtomicU32,
    is_suspended: AtomicBool,
    memory: AtomicU64,
    read: AtomicU64,
    why: Mutex<Arc<str>>,
}

/// All candidates of this process. A statement with such actions takes the lock when it begins, and
/// core 0 once a second.
#[derive(Debug, Default)]
pub(crate) struct Candidates(Mutex<Vec<Weak<Candidate>>>);

impl Candidates {
    /// Adds a statement of a level, with a number of actions. Dropping the result removes it.
    pub(crate) fn add(&self, level: u64, actions: usize) -> Arc<Candidate> {
        let candidate = Arc::new(Candidate {
            level: AtomicU64::new(level),
            actions: u32::try_from(actions).unwrap_or(u32::MAX),
            asked: AtomicU32::new(0),
            is_suspended: AtomicBool::new(false),
            memory: AtomicU64::new(0),
            read: AtomicU64::new(0),
            why: Mutex::new("".into()),
        });
        let mut all = self.lock();
        // Amortized: the list grows to twice the number of live ones at most.
        if all.len() == all.capacity() {
            all.retain(|one| one.strong_count() > 0);
        }
        all.push(Arc::downgrade(&candidate));
        candidate
    }

    /// Returns the statements that still run.
    pub(crate) fn running(&self) -> Vec<Arc<Candidate>> {
        let mut all = self.lock();
        all.retain(|one| one.strong_count() > 0);
        all.iter().filter_map(Weak::upgrade).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Candidate>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Candidate {
    /// Returns the number of its level.
    pub(crate) fn level(&self) -> u64 {
        self.level.load(Relaxed)
    }

    /// Moves the statement to another level. It keeps the actions that it has left.
    pub(crate) fn move_to(&self, level: u64) {
        self.level.store(level, Relaxed);
    }

    /// Reports the memory of the statement and the bytes that it has read.
    pub(crate) fn report(&self, memory: u64, read: u64) {
        self.memory.store(memory, Relaxed);
        self.read.store(read, Relaxed);
    }

    /// Returns the memory of the statement, bytes.
    pub(crate) fn memory(&self) -> u64 {
        self.memory.load(Relaxed)
    }

    /// Returns the bytes that the statement has read.
    pub(crate) fn read(&self) -> u64 {
        self.read.load(Relaxed)
    }

    /// Returns true if it has an action left.
    pub(crate) fn can_be_asked(&self) -> bool {
        self.asked.load(Relaxed) < self.actions
    }

    /// Asks for the next action, with the reason for the client.
    pub(crate) fn ask(&self, why: &str) {
        *self.why.lock().unwrap_or_else(PoisonError::into_inner) = why.into();
        self.asked.fetch_add(1, Relaxed);
    }

    /// Returns the number of actions asked for, and the last reason.
    pub(crate) fn asked(&self) -> (u32, Arc<str>) {
        (self.asked.load(Relaxed), self.why.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    pub(crate) fn set_suspended(&self, is_suspended: bool) {
        self.is_suspended.store(is_suspended, Relaxed);
    }

    pub(crate) fn is_suspended(&self) -> bool {
        self.is_suspended.load(Relaxed)
    }
}
