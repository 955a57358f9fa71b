//! Indexes that one core maintains, and the timestamps of entries that it is writing.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use engine::Schema;
use schema::TableDef;
use storage::{Mutation, Named, TableId};

use crate::index::due::Sweeps;
use crate::index::graph::VectorGraph;
use crate::index::graph_counts::GraphCounts;
use crate::index::maintain::IndexedTable;
use crate::index::metrics::Searches;
use crate::index::vectors::VectorColumn;
use crate::locks::keyed::KeyedLock;

/// The indexed tables of one core.
#[derive(Default)]
pub(crate) struct Indexes {
    tables: RefCell<HashMap<TableId, Rc<IndexedTable>>>,
    /// True without any. Every write checks this.
    is_empty: Cell<bool>,
    /// Timestamps of entries that are being written, with the number of writes.
    in_flight: Rc<RefCell<BTreeMap<i64, u32>>>,
    /// Sweeps of the indexes and views.
    pub(crate) sweeps: Sweeps,
    /// Number of tasks that check entries which readers reported.
    pub(super) checks: Rc<Cell<usize>>,
    /// Graphs of vectors, by the data of their indexes. True: it has background work.
    graphs: RefCell<HashMap<TableId, (Rc<VectorGraph>, bool)>>,
    /// Memory that the graphs hold and may hold, in bytes.
    pub(super) graph_bytes: Rc<Cell<usize>>,
    pub(crate) graph_bytes_max: Cell<usize>,
    pub(crate) searches: Searches,
    pub(super) graph_counts: Rc<GraphCounts>,
    pub(super) saves: Saves,
}

/// Reading and writing of saved graphs on this core.
#[derive(Default)]
pub(super) struct Saves {
    /// Serializes them, so that there is one copy of a graph at a time.
    pub(super) lock: KeyedLock<()>,
    /// True once the engine stops: the folder may belong to another server soon.
    pub(super) have_ended: Cell<bool>,
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
        let wanted: Vec<&VectorColumn> = tables.values().flat_map(|table| &table.vectors).collect();
        let mut graphs = self.graphs.borrow_mut();
        graphs.retain(|data, (graph, _)| {
            let stays = wanted.iter().any(|column| column.data == *data);
            if !stays {
                graph.close();
            }
            stays
        });
        for column in wanted {
            let (bytes, counts) = (&self.graph_bytes, &self.graph_counts);
            let new = || (Rc::new(VectorGraph::new(column.clone(), bytes.clone(), counts.clone())), false);
            graphs.entry(column.data).or_insert_with(new);
        }
    }

    /// Returns the data of all indexes and views.
    pub(super) fn all(&self) -> Vec<TableId> {
        let tables = self.tables.borrow();
        let builds = tables.values().flat_map(|table| table.def.builds());
        builds.map(|(data, _)| TableId(data.as_u128())).collect()
    }

    /// Returns the table of an index or a view by the identity of its data.
    pub(super) fn table_of(&self, index: TableId) -> Option<Rc<IndexedTable>> {
        self.tables.borrow().values().find(|table| table.has(index)).cloned()
    }

    /// Returns the graphs without background work, which the caller starts.
    pub(crate) fn new_graphs(&self) -> Vec<Rc<VectorGraph>> {
        let mut graphs = self.graphs.borrow_mut();
        let new = graphs.values_mut().filter(|(_, is_running)| !is_running);
        new.map(|(graph, is_running)| {
            *is_running = true;
            graph.clone()
        })
        .collect()
    }

    /// Returns the number of graphs, of those that answer searches, of those without memory, and of
    /// vectors that wait for them.
    pub(super) fn graph_numbers(&self) -> [u64; 4] {
        let graphs = self.graphs.borrow();
        let ready = graphs.values().filter(|(graph, _)| graph.is_ready()).count();
        let full = graphs.values().filter(|(graph, _)| graph.is_full()).count();
        let queued: usize = graphs.values().map(|(graph, _)| graph.queued()).sum();
        [graphs.len() as u64, ready as u64, full as u64, queued as u64]
    }

    /// Returns all graphs.
    pub(super) fn all_graphs(&self) -> Vec<Rc<VectorGraph>> {
        self.graphs.borrow().values().map(|(graph, _)| graph.clone()).collect()
    }

    /// Returns an index by the identity of its data, with its name for reports.
    pub(super) fn named(&self, id: TableId) -> Named {
        let tables = self.tables.borrow();
        let mut indexes =
            tables.values().flat_map(|table| table.def.indexes.iter().map(move |own| (table, own)));
        let found = indexes.find(|(_, index)| index.data.as_u128() == id.0);
        let name = found.map(|(table, index)| format!("{}.{}", table.def.keyspace, index.name).into());
        Named { id, name }
    }

    /// Returns the graph of an index by the identity of its data.
    pub(crate) fn graph(&self, data: TableId) -> Option<Rc<VectorGraph>> {
        self.graphs.borrow().get(&data).map(|(graph, _)| graph.clone())
    }

    /// Returns true for an indexed table.
    #[inline(always)]
    pub(crate) fn has(&self, table: TableId) -> bool {
        !self.is_empty.get() && self.of(table).is_some()
    }

    /// Returns an indexed table by the identity of its data.
    pub(crate) fn of(&self, table: TableId) -> Option<Rc<IndexedTable>> {
        if self.is_empty.get() {
            return None;
        }
        self.tables.borrow().get(&table).cloned()
    }

    /// Returns true if this core maintains an index or a view of a table, by their data.
    pub(crate) fn maintains(&self, table: TableId, data: TableId) -> bool {
        self.of(table).is_some_and(|table| table.has(data))
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
