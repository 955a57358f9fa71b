//! Snapshots of the tables that a query reads more than once, taken on each core by the first scan
//! there. All scans of such a table, and of its materialized views, see the same data. Other tables
//! have none here, so that overwritten data is freed as soon as it is read.
//!
//! Stored in a task's context and dropped with it, on heavy lanes.

use std::collections::HashSet;
use std::collections::hash_map::{Entry, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::execution::TaskContext;
use engine::scan::{BatchSource, TableScan, TableSnapshot};
use engine::{Engine, Error, Viewer};
use uuid::Uuid;

/// Snapshots of one core. Only that core accesses them, until all are dropped.
type Taken = Mutex<HashMap<Uuid, Box<dyn TableSnapshot>>>;

/// Snapshots of one query.
pub(crate) struct Snapshots {
    /// Ids of the tables that are read more than once.
    repeated: Arc<HashSet<Uuid>>,
    /// By core.
    taken: Box<[Taken]>,
}

impl Snapshots {
    /// Creates an empty set. Must be called on a lane.
    pub(crate) fn new(repeated: Arc<HashSet<Uuid>>) -> Snapshots {
        let cores = if repeated.is_empty() { 0 } else { lanes::cores() };
        Snapshots { repeated, taken: (0..cores).map(|_| Taken::default()).collect() }
    }

    /// Returns the snapshots of the query that an operator belongs to.
    pub(crate) fn of(context: &TaskContext) -> Option<Arc<Snapshots>> {
        context.session_config().get_extension()
    }

    /// Returns a scan of a table on this core, on its fast lane, of the rows that `viewer` may
    /// see.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn scan(
        &self,
        engine: &dyn Engine,
        table: Uuid,
        scan: &TableScan,
        viewer: &Arc<dyn Viewer>,
    ) -> Result<Box<dyn BatchSource>, Error> {
        let snapshot = || engine.table_snapshot_for(&scan.keyspace, &scan.table, Some(viewer));
        if !self.repeated.contains(&table) {
            return snapshot()?.scan(scan);
        }
        let taken = &self.taken[lanes::current_core()];
        match taken.lock().unwrap_or_else(PoisonError::into_inner).entry(table) {
            Entry::Occupied(taken) => taken.get().scan(scan),
            Entry::Vacant(place) => place.insert(snapshot()?).scan(scan),
        }
    }
}

impl fmt::Debug for Snapshots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshots").field("repeated", &self.repeated).finish_non_exhaustive()
    }
}
