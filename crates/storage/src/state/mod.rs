//! The tables of a shard: their memtables, files and settings.
//!
//! A read looks up one table and finds its memtables and files together. So all of it is one value,
//! which a reader borrows once. What concerns all tables is in parts with methods of their own.

pub(crate) mod batches;
pub(crate) mod dropped;
pub(crate) mod large_rows;
pub(crate) mod memory;
pub(crate) mod needs;
pub(crate) mod progress;
pub(crate) mod recordings;
pub(crate) mod retry;
pub(crate) mod settings;
pub(crate) mod stats;

use std::cell::RefCell;

use rustc_hash::FxHashMap;

use crate::event::FlushReason;
use crate::memtable::Memtable;
use crate::model::TableId;
use crate::model::layers::Placed;
use crate::model::row::EncodedRow;
use crate::model::settled::settled_below;
use crate::options::StorageOptions;
use crate::state::dropped::Dropped;
use crate::state::memory::MemtableMemory;
use crate::state::needs::Needs;
use crate::state::recordings::Recordings;
use crate::state::retry::Failures;
use crate::state::settings::TableSettings;
use crate::state::stats::Stats;
use crate::table::cache::Cache;
use crate::table::cached_row::{CachedRow, RowPlace};
use crate::table::metrics::Searched;
use crate::table::runs::Files;

/// The tables of a shard, and what they share.
#[derive(Debug, Default)]
pub(crate) struct ShardState {
    pub(crate) tables: FxHashMap<TableId, ShardTable>,
    pub(crate) settings: TableSettings,
    pub(crate) memory: MemtableMemory,
    pub(crate) recordings: Recordings,
    /// Memtables that are no longer live, until their last reader is done and they are freed.
    pub(crate) flushed: Vec<Memtable>,
    /// Tables that were dropped since the shard was opened.
    pub(crate) dropped: Dropped,
    pub(crate) closed: bool,
    pub(crate) counts: Stats,
}

/// Memtables and files of a table.
#[derive(Debug, Default)]
pub(crate) struct ShardTable {
    pub(crate) active: Memtable,
    /// Frozen memtables with their generations, oldest first.
    pub(crate) frozen: Vec<(u64, Memtable)>,
    pub(crate) files: Files,
    pub(crate) failures: Failures,
    pub(crate) needs: Needs,
    pub(crate) searched: Searched,
}

impl ShardTable {
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Memtable> {
        self.frozen.iter().map(|(_, memtable)| memtable).chain([&self.active])
    }

    pub(crate) fn memtables_newest_first(&self) -> impl Iterator<Item = &Memtable> {
        std::iter::once(&self.active).chain(self.frozen.iter().rev().map(|(_, memtable)| memtable))
    }

    /// Returns true if a reader of one row needs nothing but what the active memtable has of it:
    /// the others and the files have nothing newer, or nothing at all. `row`: the row there, with
    /// the timestamp up to which deletions shadow it.
    #[inline]
    pub(crate) fn has_only(
        &self,
        token: i64,
        row: Option<&(Placed, i64)>,
        picked: Option<&[u32]>,
        now_s: u32,
    ) -> bool {
        if self.frozen.is_empty() && self.files.is_empty() {
            return true;
        }
        let frozen = self.frozen.iter().map(|(_, memtable)| memtable.newest());
        let newest = frozen.fold(self.files.greatest_timestamp(), i64::max);
        let is_settled = |(placed, floor): &(Placed, i64)| {
            placed.opens_at_once() && settled_below(Some(placed.row()), *floor, picked, now_s) > newest
        };
        row.is_some_and(is_settled) || self.frozen.is_empty() && self.files.holding(token).next().is_none()
    }

    /// Returns the cached row if nothing else has any data of it: the fast path of rows that are
    /// only in files. The row has no deletions.
    #[inline]
    pub(crate) fn cached_row(
        &self,
        cache: &RefCell<Cache>,
        place: RowPlace<'_>,
        picked: Option<&[u32]>,
        now_s: u32,
    ) -> Option<EncodedRow> {
        if self.memtables().any(|memtable| memtable.may_have(place.token)) {
            return None;
        }
        let is_all = |cached: &CachedRow| {
            let settled = settled_below(cached.partition.row(place.clustering), i64::MIN, picked, now_s);
            // Columns that were not decoded may decide whether an unsettled row exists.
            let is_known = settled > i64::MIN || cached.columns.is_none();
            cached.is_for(place, picked, now_s)
                && is_known
                && !cached.leaves_open(settled)
                && self.files.are_covered(cached.sequence, place.token, settled)
        };
        let mut cache = cache.borrow_mut();
        let cached = cache.row(place, is_all)?;
        cache.count_row(true);
        cached.partition.row(place.clustering).cloned()
    }

    /// Returns a snapshot of the memtables, in O(1).
    pub(crate) fn snapshot(&self) -> Vec<Memtable> {
        self.memtables().filter(|memtable| memtable.len() > 0).cloned().collect()
    }
}

impl ShardState {
    pub(crate) fn new(options: &StorageOptions) -> ShardState {
        ShardState { settings: TableSettings::new(options), ..ShardState::default() }
    }

    /// Returns the memory of filters and indexes of files.
    pub(crate) fn index_bytes(&self) -> usize {
        let runs = self.tables.values().flat_map(|table| table.files.runs());
        runs.map(|run| run.resident_bytes).sum()
    }

    /// Freezes the active memtables and queues them for a flush. `log_length` is the length of the
    /// log at `last_record`.
    pub(crate) fn freeze(&mut self, last_record: u64, log_length: u64, reason: FlushReason) {
        self.memory.freeze(&mut self.tables, last_record, log_length, reason);
    }
}
