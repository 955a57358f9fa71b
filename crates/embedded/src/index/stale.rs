//! Removal of entries whose rows do not have the value any more.
//!
//! A reader reports entries that gave it no row. They are checked once more, each against the whole
//! row and nothing else, because the row may have failed another condition of the query. An entry
//! is removed up to a timestamp from before the check (see the head of [`crate::index`]).

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use schema::TableDef;
use storage::{Change, Mutation, Pick, StorageError, TableId};

use crate::Embedded;
use crate::index::entry::{Entry, Place, removal};
use crate::index::maintain::{Entries, IndexedTable, RowFacts};

/// Entries that one read reports, at most. A later read reports the others.
pub(crate) const REPORTED_MAX: usize = 64;

/// Rows of a partition that are searched for one that is alive, at most. Dead ones count.
const ROWS_SEARCHED: usize = 16;

impl Embedded {
    /// Checks entries of an index in the background, and removes those that are stale.
    pub(crate) fn check_entries(self: &Rc<Self>, def: &Arc<TableDef>, index: TableId, entries: Vec<Entry>) {
        if entries.is_empty() || self.shard.refuses_writes() {
            return;
        }
        let (engine, def) = (self.clone(), def.clone());
        let work = async move {
            // An error leaves the entries to the next reader.
            drop(engine.remove_stale(&def, index, entries).await);
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

    /// Removes those of the entries that are stale. Returns their number.
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
        let timestamp = self.removal_timestamp();
        let now_s = self.timestamps.next().now_s;
        let mut removals = Removals::new();
        for entry in entries {
            if !self.counts(&table, index, &entry, now_s).await? {
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

    /// Returns true if the row of an entry has the value.
    async fn counts(
        &self,
        table: &IndexedTable,
        index: TableId,
        entry: &Entry,
        now_s: u32,
    ) -> Result<bool, StorageError> {
        let data = TableId(table.def.data_id().as_u128());
        let mut found = Entries::default();
        let (token, key) = (entry.token, &entry.key[..]);
        if let Some(row) = &entry.row {
            let read = self.shard.read_row(
                data,
                token,
                key,
                row,
                Pick { columns: None, bypass_cache: false },
                now_s,
            );
            if let Some(row) = read.wait().await? {
                let place = Place { token, key, row: Some(row.clustering()) };
                found.row(table, RowFacts { place, marker: row.liveness() }, row.cells());
            }
            return Ok(found.has(index, entry));
        }
        let slice = storage::Slice::all(ROWS_SEARCHED);
        let Some(sliced) = self.shard.read_slice(data, token, key, &slice, now_s).wait().await? else {
            return Ok(false);
        };
        let place = Place { token, key, row: None };
        found.row(table, RowFacts { place, marker: None }, sliced.view.static_cells());
        if let Some(row) = sliced.view.rows().next() {
            let place = Place { token, key, row: Some(row.clustering()) };
            found.row(table, RowFacts { place, marker: row.liveness() }, row.cells());
        }
        // A partition with more rows counts: one of them may be alive.
        let names_partition = table.is_of_partition_key();
        Ok(found.has(index, entry) || names_partition && sliced.next.is_some())
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
