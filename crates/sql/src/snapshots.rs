//! Of tables that a query reads more than once, what each core had of them when it was first asked: all its scans of such a table see one
//! moment. Of other tables nothing is kept, so that what was written over meanwhile can go as soon as it is read.
//!
//! Found in a task's context, and dropped with it, on heavy lanes.

use std::collections::HashSet;
use std::collections::hash_map::{Entry, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::execution::TaskContext;
use engine::scan::{BatchSource, TableScan, TableSnapshot};
use engine::{Engine, Error, Viewer};
use uuid::Uuid;

/// What was taken on a core, which alone looks here until all is dropped.
type Taken = Mutex<HashMap<Uuid, Box<dyn TableSnapshot>>>;

/// See the head of this file.
pub(crate) struct Snapshots {
    /// The tables that are read more than once, by their ids.
    repeated: Arc<HashSet<Uuid>>,
    /// By core.
    taken: Box<[Taken]>,
}

impl Snapshots {
    /// To be made on a lane.
    pub(crate) fn new(repeated: Arc<HashSet<Uuid>>) -> Snapshots {
        let cores = if repeated.is_empty() { 0 } else { lanes::cores() };
        Snapshots { repeated, taken: (0..cores).map(|_| Taken::default()).collect() }
    }

    /// Those of the query that a part of a plan belongs to.
    pub(crate) fn of(context: &TaskContext) -> Option<Arc<Snapshots>> {
        context.session_config().get_extension()
    }

    /// A scan of the table with this id on this core, on its fast lane, of the rows that `viewer` is shown.
    ///
    /// # Errors
    /// As the engine says.
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
