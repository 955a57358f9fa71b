//! The tables of a shard: their memtables, files and settings.
//!
//! A read looks up one table and finds its memtables and files together. So all of it is one value,
//! which a reader borrows once.

pub(crate) mod batches;
pub(crate) mod dropped;
pub(crate) mod large_rows;
pub(crate) mod needs;
pub(crate) mod progress;
pub(crate) mod retry;
pub(crate) mod stats;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use rustc_hash::FxHashMap;

use crate::event::{FlushReason, Named};
use crate::memtable::Memtable;
use crate::model::layers::Placed;
use crate::model::row::Row;
use crate::model::settled::settled_below;
use crate::model::{Change, Mutation, TableId};
use crate::options::{Options, TableOptions};
use crate::state::batches::BatchesInFlight;
use crate::state::dropped::Dropped;
use crate::state::needs::Needs;
use crate::state::retry::Failures;
use crate::state::stats::Stats;
use crate::table::cache::Cache;
use crate::table::cached_row::{CachedRow, Place};
use crate::table::columnar::layout::ColumnLayout;
use crate::table::runs::Files;
use crate::table::stats::Searched;

/// Maximum number of memtables that are frozen: waiting for a flush, or in one. With the active one
/// this bounds memory to three memtables.
pub(crate) const FROZEN_MAX: usize = 2;

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) tables: FxHashMap<TableId, Table>,
    /// Options of tables that are not configured.
    pub(crate) options: TableOptions,
    /// Writes over several shards that are in flight.
    pub(crate) batches: Arc<BatchesInFlight>,
    /// Options of configured tables, with or without data.
    pub(crate) configured: FxHashMap<TableId, TableOptions>,
    /// Layouts of columns by table, in ascending order of columns.
    pub(crate) layouts: FxHashMap<TableId, Arc<[ColumnLayout]>>,
    /// Dropped columns by table, in ascending order.
    pub(crate) dropped_columns: FxHashMap<TableId, Arc<[u32]>>,
    /// Names of tables for reports.
    pub(crate) names: FxHashMap<TableId, Arc<str>>,
    /// Approximate size of the active memtables in bytes.
    pub(crate) bytes: usize,
    /// Fill of the active memtables in bytes: the larger of their size and what their part of the
    /// log counts for.
    pub(crate) filled: u64,
    /// Length of the log when the active memtables were created.
    pub(crate) log_from: u64,
    /// Frozen memtables, oldest first.
    pub(crate) frozen: VecDeque<Frozen>,
    /// Bytes of all memtables ever frozen.
    pub(crate) frozen_bytes: u64,
    pub(crate) next_generation: u64,
    /// Records of the log that are not completely applied yet, see
    /// [`crate::Shard::apply_yielding`].
    pub(crate) applying: Vec<u64>,
    /// Changes by other writes to partitions that are being changed in a copy.
    pub(crate) recorded: Vec<Recorded>,
    /// Memtables that are no longer live, until their last reader is done and they are freed.
    pub(crate) flushed: Vec<Memtable>,
    /// Tables that were dropped since the shard was opened.
    pub(crate) dropped: Dropped,
    pub(crate) closed: bool,
    pub(crate) counts: Stats,
}

/// Memtables and files of a table.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) active: Memtable,
    /// Frozen memtables with their generations, oldest first.
    pub(crate) frozen: Vec<(u64, Memtable)>,
    pub(crate) files: Files,
    pub(crate) failures: Failures,
    pub(crate) needs: Needs,
    pub(crate) searched: Searched,
}

/// Memtables of all tables that are flushed together.
#[derive(Clone, Debug)]
pub(crate) struct Frozen {
    pub(crate) generation: u64,
    /// The last log record in it.
    pub(crate) last_record: u64,
    pub(crate) tables: Vec<TableId>,
    /// Fill in bytes, see [`State::filled`].
    pub(crate) bytes: u64,
    /// Its part of the log, in bytes.
    pub(crate) log_bytes: u64,
    pub(crate) partitions: u64,
    /// It contains a part of a record.
    pub(crate) partial: bool,
    pub(crate) reason: FlushReason,
}

/// Changes by other writes of a partition, while a copy of it is changed.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) number: u64,
    pub(crate) table: TableId,
    pub(crate) token: i64,
    pub(crate) key: Bytes,
    pub(crate) changes: Vec<Change>,
}

impl Recorded {
    fn is_of(&self, mutation: &Mutation) -> bool {
        self.token == mutation.token && self.table == mutation.table && self.key == mutation.key
    }
}

impl Table {
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
        place: Place<'_>,
        picked: Option<&[u32]>,
        now_s: u32,
    ) -> Option<Row> {
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

impl State {
    pub(crate) fn new(options: &Options) -> State {
        State { options: options.table, batches: options.batches.clone(), ..State::default() }
    }

    /// Records a write for those who change a copy of its partition.
    #[inline]
    pub(crate) fn record(&mut self, mutation: &Mutation) {
        for recorded in self.recorded.iter_mut().filter(|recorded| recorded.is_of(mutation)) {
            recorded.changes.extend_from_slice(&mutation.changes);
        }
    }

    /// Returns true if a copy of the partition is being changed.
    pub(crate) fn is_recorded(&self, mutation: &Mutation) -> bool {
        self.recorded.iter().any(|recorded| recorded.is_of(mutation))
    }

    /// Returns the options of a table: its own, or the shard's.
    pub(crate) fn table_options(&self, id: TableId) -> TableOptions {
        self.configured.get(&id).copied().unwrap_or(self.options)
    }

    /// Returns the time before which tombstones may be removed, Unix seconds: they are older than
    /// the grace period and than every batch in flight.
    pub(crate) fn forget_before_s(&self, options: &TableOptions, now_s: u32) -> u32 {
        now_s.saturating_sub(options.gc_grace_s).min(self.batches.kept_from_s())
    }

    /// Returns a table's name for a report.
    pub(crate) fn named(&self, id: TableId) -> Named {
        Named { id, name: self.names.get(&id).cloned() }
    }

    /// Returns the memory of filters and indexes of files.
    pub(crate) fn index_bytes(&self) -> usize {
        let runs = self.tables.values().flat_map(|table| table.files.runs());
        runs.map(|run| run.resident_bytes).sum()
    }

    /// Returns the log bytes with records in memtables, at this length of the log.
    pub(crate) fn live_log(&self, log_length: u64) -> u64 {
        let frozen: u64 = self.frozen.iter().map(|frozen| frozen.log_bytes).sum();
        frozen + (log_length - self.log_from)
    }

    /// Freezes the active memtables and queues them for a flush. `log_length` is the length of the
    /// log at `last_record`.
    pub(crate) fn freeze(&mut self, last_record: u64, log_length: u64, reason: FlushReason) {
        // A record that is being applied may be in two memtables. It is replayed until the later
        // one is flushed. Replaying what a file already contains has no effect.
        let applying = self.applying.iter().map(|record| record - 1).min();
        let last_record = last_record.min(applying.unwrap_or(u64::MAX));
        let generation = self.next_generation;
        self.next_generation += 1;
        let bytes = std::mem::take(&mut self.filled).max(std::mem::take(&mut self.bytes) as u64);
        let log_bytes = log_length - std::mem::replace(&mut self.log_from, log_length);
        self.frozen_bytes += bytes;
        let (mut tables, mut partitions) = (Vec::new(), 0);
        for (id, table) in &mut self.tables {
            if table.active.len() > 0 {
                table.frozen.push((generation, std::mem::take(&mut table.active)));
                tables.push(*id);
                partitions += table.frozen.last().map_or(0, |(_, memtable)| memtable.len() as u64);
            }
        }
        let partial = applying.is_some();
        self.frozen.push_back(Frozen {
            generation,
            last_record,
            tables,
            bytes,
            log_bytes,
            partitions,
            partial,
            reason,
        });
    }
}
