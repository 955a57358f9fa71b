//! Indexes that one core maintains, and the timestamps of entries that it is writing.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use engine::Schema;
use schema::TableDef;
use storage::{Mutation, TableId};

use crate::index::due::Sweeps;
use crate::index::maintain::IndexedTable;

/// The indexed tables of one core.
#[derive(Default)]
pub(crate) struct Indexes {
    tables: RefCell<HashMap<TableId, Rc<IndexedTable>>>,
    /// True without any. Every write checks this.
    is_empty: Cell<bool>,
    /// Timestamps of entries that are being written, with the number of writes.
    in_flight: Rc<RefCell<BTreeMap<i64, u32>>>,
    /// Sweeps of the indexes.
    pub(crate) sweeps: Sweeps,
}

/// Marks the timestamp of entries as in flight until it is dropped.
pub(crate) struct InFlight {
    all: Rc<RefCell<BTreeMap<i64, u32>>>,
    timestamp: i64,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut all = self.all.borrow_mut();
        if let Some(count) = all.get_mut(&self.timestamp) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.timestamp);
            }
        }
    }
}

impl Indexes {
    /// Adopts the definitions of changed tables, and forgets those that the schema does not have.
    pub(crate) fn adopt(&self, schema: &Schema, changed: &[Arc<TableDef>]) {
        let tables = &mut *self.tables.borrow_mut();
        let is_current = |table: &IndexedTable| {
            let def = schema.table(&table.def.keyspace, &table.def.name);
            def.is_some_and(|def| def.data_id() == table.def.data_id() && def.has_entries())
        };
        tables.retain(|_, table| is_current(table));
        for def in changed.iter().filter(|def| def.has_entries()) {
            tables.insert(TableId(def.data_id().as_u128()), Rc::new(IndexedTable::of(def.clone())));
        }
        self.is_empty.set(tables.is_empty());
        self.sweeps.retain(|index| tables.values().any(|table| table.has(index)));
    }

    /// Returns the data of all indexes.
    pub(super) fn all(&self) -> Vec<TableId> {
        let tables = self.tables.borrow();
        let indexes = tables.values().flat_map(|table| &table.def.indexes);
        indexes.map(|index| TableId(index.data.as_u128())).collect()
    }

    /// Returns the table of an index by the identity of the index's data.
    pub(super) fn table_of(&self, index: TableId) -> Option<Rc<IndexedTable>> {
        self.tables.borrow().values().find(|table| table.has(index)).cloned()
    }

    /// Returns an indexed table by the identity of its data.
    #[inline]
    pub(crate) fn of(&self, table: TableId) -> Option<Rc<IndexedTable>> {
        if self.is_empty.get() {
            return None;
        }
        self.tables.borrow().get(&table).cloned()
    }

    /// Returns true if some mutation is of an indexed table.
    pub(super) fn concern(&self, mutations: &[Mutation]) -> bool {
        !self.is_empty.get() && mutations.iter().any(|mutation| self.of(mutation.table).is_some())
    }

    /// Returns the least timestamp of the entries that are being written.
    pub(super) fn oldest_in_flight(&self) -> Option<i64> {
        self.in_flight.borrow().keys().next().copied()
    }

    /// Marks a timestamp as in flight.
    pub(crate) fn begin(&self, timestamp: i64) -> InFlight {
        *self.in_flight.borrow_mut().entry(timestamp).or_default() += 1;
        InFlight { all: self.in_flight.clone(), timestamp }
    }
}
