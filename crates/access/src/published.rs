//! Roles as the tables contain them, published by core 0 to all cores.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwap, Guard};

use crate::roles::Roles;

/// Roles in the tables at one time.
pub(crate) struct Snapshot {
    pub(crate) roles: Roles,
}

/// The current roles. All cores read them without a lock.
pub(crate) struct Published {
    current: ArcSwap<Snapshot>,
    /// Increments after every change. Cores then drop their cached views.
    version: AtomicU64,
}

impl Published {
    /// Creates a value without roles.
    pub(crate) fn new() -> Published {
        let current = ArcSwap::from_pointee(Snapshot { roles: Roles::default() });
        Published { current, version: AtomicU64::new(1) }
    }

    /// Returns the current roles for a short use.
    pub(crate) fn load(&self) -> Guard<Arc<Snapshot>> {
        self.current.load()
    }

    /// Returns the current roles.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    /// Returns the version of roles, grants and levels. Costs one atomic load.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Replaces the roles.
    pub(crate) fn publish(&self, roles: Roles) {
        self.current.store(Arc::new(Snapshot { roles }));
        self.version.fetch_add(1, Ordering::Release);
    }
}
