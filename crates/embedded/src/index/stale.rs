//! Removal of entries whose rows do not have the value any more.
//!
//! A reader reports entries that gave it no row. They are checked once more, each against the whole
//! row and nothing else, because the row may have failed another condition of the query. An entry
//! is removed up to a timestamp from before the check (see the head of [`crate::index`]).

use std::cell::Cell;
use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use schema::TableDef;
use storage::{Change, Mutation, Pick, StorageError, TableId};

use crate::Embedded;
use crate::index::entry::{Entry, Place, removal};
use crate::index::maintain::{IndexedTable, RowFacts};

/// Entries that one read reports, at most. A later read reports the others.
pub(crate) const REPORTED_MAX: usize = 64;

/// Checks of reported entries at a time, at most. Further reports are left to later readers.
const CHECKS_MAX: usize = 32;

/// Rows of a partition that are searched for one that is alive, at most. Dead ones count.
const ROWS_SEARCHED: usize = 16;

/// Check in flight.
struct RunningCheck(Rc<Cell<usize>>);

impl Drop for RunningCheck {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Embedded {
    /// Checks entries of an index in the background, and removes those that are stale.
    pub(crate) fn check_entries(self: &Rc<Self>, def: &Arc<TableDef>, index: TableId, entries: Vec<Entry>) {
        let (engine, def) = (self.clone(), def.clone());
        self.check_later(entries.is_empty(), async move { engine.remove_stale(&def, index, entries).await });
    }

    /// Runs a check in the background, unless there is nothing to check or too much is checked.
    pub(super) fn check_later(
        &self,
        is_empty: bool,
        check: impl Future<Output = Result<usize, StorageError>> + 'static,
    ) {
        let running = &self.indexes.checks;
        if is_empty || self.shard.refuses_writes() || running.get() >= CHECKS_MAX {
            return;
        }
        running.set(running.get() + 1);
        let running = RunningCheck(running.clone());
        let work = async move {
            // An error leaves the entries to the next reader.
            drop(check.await);
            drop(running);
        };
        lanes::spawn(lanes::current_group(), work).detach();
    }

    /// Applies removals of entries, by the partition of the index or view that they are in.
    pub(super) fn apply_removals(&self, data: TableId, removals: Removals) -> Result<(), StorageError> {
        if removals.is_empty() {
            return Ok(());
        }
        let removals = removals.into_iter().map(|(key, changes)| Mutation {
            table: data,
            token: schema::token::token(&key),
            key,
            changes,
        });
        self.timestamps.keep_floor(&self.shard)?;
        // Readers do not wait for the log: an entry that is back after a crash is stale again.
        drop(self.shard.apply(removals.collect::<Vec<_>>())?);
        Ok(())
    }

    /// Removes those of the entries that are stale. Returns their number. Reads each row once.
    pub(crate) async fn remove_stale(
        &self,
        def: &Arc<TableDef>,
        index: TableId,
        entries: Vec<Entry>,
    ) -> Result<usize, StorageError> {
        let Some(found) = def.indexes.iter().find(|own| TableId(own.data.as_u128()) == index) else {
            return Ok(0);
        };
        let table = IndexedTable::with_only(def, found.data);
        let finds_ranges = table.finds_ranges(index);
        let timestamp = self.removal_timestamp();
        let now_s = self.timestamps.next().now_s;
        let mut by_place: BTreeMap<Bytes, Vec<Entry>> = BTreeMap::new();
        for entry in entries {
            by_place.entry(entry.place.clone()).or_default().push(entry);
        }
        let mut removals = Removals::new();
        for entries in by_place.into_values() {
            let mut stale = entries.iter().map(|entry| entry.value(finds_ranges).to_vec()).collect();
            self.remove_live(&table, &entries[0], now_s, &mut stale).await?;
            for entry in entries.into_iter().filter(|entry| stale.contains(entry.value(finds_ranges))) {
                let removal = removal(&entry.clustering, timestamp, now_s);
                removals.entry(entry.partition).or_default().push(removal);
            }
            if lanes::spend(ENTRY_UNITS) {
                lanes::yield_now().await;
            }
        }
        let removed = removals.values().map(Vec::len).sum();
        self.apply_removals(index, removals)?;
        Ok(removed)
    }

    /// Removes the values that the row of an entry has from `values`.
    async fn remove_live(
        &self,
        table: &IndexedTable,
        entry: &Entry,
        now_s: u32,
        values: &mut HashSet<Vec<u8>>,
    ) -> Result<(), StorageError> {
        let data = TableId(table.def.data_id().as_u128());
        let (token, key) = (entry.token, &entry.key[..]);
        if let Some(row) = &entry.row {
            let pick = Pick { columns: None, bypass_cache: false };
            let read = self.shard.read_row(data, token, key, row, pick, now_s);
            if let Some(row) = read.wait().await? {
                let place = Place { token, key, row: Some(row.clustering()) };
                let facts = RowFacts { place, marker: row.liveness() };
                table.remove_values(facts, row.cells(), values).await;
            }
            return Ok(());
        }
        let slice = storage::Slice::all(ROWS_SEARCHED);
        let Some(sliced) = self.shard.read_slice(data, token, key, &slice, now_s).wait().await? else {
            return Ok(());
        };
        let statics = RowFacts { place: Place { token, key, row: None }, marker: None };
        table.remove_values(statics, sliced.view.static_cells(), values).await;
        if let Some(row) = sliced.view.rows().next() {
            let place = Place { token, key, row: Some(row.clustering()) };
            let facts = RowFacts { place, marker: row.liveness() };
            table.remove_values(facts, row.cells(), values).await;
        }
        // A partition with more rows counts: one of them may be alive.
        if table.is_of_partition_key() && sliced.next.is_some() {
            values.clear();
        }
        Ok(())
    }
}

/// Work units of checking an entry: a point read.
pub(super) const ENTRY_UNITS: u32 = 5;

/// Changes that remove entries, by their partition.
pub(super) type Removals = BTreeMap<Bytes, Vec<Change>>;

/// Entries to report, of those that gave a reader no row.
#[derive(Default)]
pub(crate) struct Reported(Vec<Entry>);

impl Reported {
    pub(crate) fn add(&mut self, entry: &Entry) {
        if self.0.len() < REPORTED_MAX {
            self.0.push(entry.clone());
        }
    }

    pub(crate) fn take(self) -> Vec<Entry> {
        self.0
    }
}
