//! Statistics of the statements on each table, on one core. `table_view` shows them.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use engine::{Latencies, Schema};
use schema::TableDef;
use uuid::Uuid;

/// Statistics of statements on a table, on one core.
#[derive(Debug, Default)]
pub(crate) struct Use {
    pub(crate) reads: Rc<Latencies>,
    pub(crate) writes: Rc<Latencies>,
    /// Dead rows and partitions that reads skipped: in total, and the maximum of one read.
    dead: Cell<u64>,
    dead_max: Cell<u64>,
}

impl Use {
    /// Counts `dead` more dead rows and partitions; `all` is the sum for the read so far.
    pub(crate) fn count_dead(&self, dead: u64, all: u64) {
        self.dead.set(self.dead.get() + dead);
        self.dead_max.set(self.dead_max.get().max(all));
    }

    /// Returns the dead rows and partitions that reads skipped: in total, and the maximum of one
    /// read.
    pub(crate) fn dead(&self) -> (u64, u64) {
        (self.dead.get(), self.dead_max.get())
    }
}

/// Table uses by the identity of the table, about 2 KiB each.
#[derive(Default)]
pub(crate) struct Uses {
    of: RefCell<HashMap<Uuid, Rc<Use>>>,
    /// Number of uses at which those of dropped tables are removed.
    cleanup_at: Cell<usize>,
}

/// Minimum number of uses before dropped tables are searched for.
const CLEANUP_MIN: usize = 256;

impl Uses {
    /// Returns the use of the table with this identity, if there is one.
    pub(crate) fn get(&self, id: Uuid) -> Option<Rc<Use>> {
        self.of.borrow().get(&id).cloned()
    }

    /// Returns the use of a table. `schema` returns the current schema.
    pub(crate) fn of(&self, def: &TableDef, schema: impl FnOnce() -> Arc<Schema>) -> Rc<Use> {
        if let Some(found) = self.of.borrow().get(&def.id) {
            return found.clone();
        }
        let uses = &mut *self.of.borrow_mut();
        if uses.len() >= self.cleanup_at.get().max(CLEANUP_MIN) {
            let schema = schema();
            let tables = schema.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
            let known: HashSet<Uuid> = tables.map(|def| def.id).collect();
            uses.retain(|id, _| known.contains(id));
            // Doubling the threshold makes the amortized cost of a new table constant.
            self.cleanup_at.set(2 * uses.len());
        }
        uses.entry(def.id).or_default().clone()
    }
}
