//! A shard: the data of one core, and the interface of this crate.

pub(crate) mod apply;
pub(crate) mod dropped;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt::Debug;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use rustc_hash::FxHashMap;

use crate::background::pacing::Pacing;
use crate::background::reports::Reports;
use crate::background::retry::Failures;
use crate::compaction::needs::{InFlight, Needs};
use crate::compaction::tasks::Tasks;
use crate::env::Env;
use crate::error::StorageError;
use crate::event::FlushReason;
use crate::log::Log;
use crate::log::bound::LogBound;
use crate::log::commit::{Acks, Commit};
use crate::log::reserve::Reserve;
use crate::manifest::Manifest;
use crate::manifest::versions::Versions;
use crate::memtable::{Memtable, ScanFrom};
use crate::model::codec::{put_mutations, put_one_row, put_row_of};
use crate::model::row::Draft;
use crate::model::{Change, Mutation, TableId};
use crate::options::{Options, TableOptions};
use crate::read::merge::MergeStream;
use crate::scan::Scan;
use crate::shard::dropped::Dropped;
use crate::signal::Signal;
use crate::table::cache::Cache;
use crate::table::columnar::layout::ColumnLayout;
use crate::table::file::TableFile;
use crate::table::runs::Files;
use crate::table::scan_cache::ScanCache;
use crate::table::stats::Searched;

/// Maximum number of memtables that are frozen: waiting for a flush, or in one. With the active one
/// this bounds memory to three memtables.
pub(crate) const FROZEN_MAX: usize = 2;

/// Metrics of a shard. Counters start when it is opened, except where stated.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Stats {
    /// Tables with data, now.
    pub tables: u64,
    /// Partitions in the active memtables now.
    pub memtable_partitions: u64,
    /// Bytes in the active memtables now.
    pub memtable_bytes: u64,
    /// Memtables that wait to be flushed now.
    pub memtables_frozen: u64,
    /// Table files now.
    pub files: u64,
    /// Damaged table files that compactions leave out, now.
    pub files_damaged: u64,
    /// Bytes in table files now.
    pub file_bytes: u64,
    /// Rows in table files, now. A row in several files counts once for each.
    pub file_rows: u64,
    /// Cells in table files, now, counted in the same way.
    pub file_cells: u64,
    /// Tombstones in table files, now, counted in the same way.
    pub file_tombstones: u64,
    /// Log records appended over the life of the folder, including pending ones.
    pub log_records: u64,
    /// Disk writes of the log. Records divided by writes is the mean size of a group commit.
    pub log_writes: u64,
    /// Bytes of the log with records that are not flushed, now.
    pub log_live_bytes: u64,
    /// Log segments with records that are not flushed, now.
    pub log_segments: u64,
    /// Free log segments, now.
    pub log_segments_free: u64,
    /// Bytes of decompressed blocks in the cache now.
    pub cache_bytes: u64,
    /// Block lookups that the cache answered.
    pub cache_hits: u64,
    /// Block lookups that read from disk.
    pub cache_misses: u64,
    /// Bytes of stored columns that scans read and the cache keeps, now.
    pub scan_cache_bytes: u64,
    /// Reads of scans by columns, of up to a megabyte each, that the cache answered.
    pub scan_cache_hits: u64,
    /// Reads of scans by columns that read from disk.
    pub scan_cache_misses: u64,
    /// Flushes of memtables.
    pub flushes: u64,
    /// Failed flushes. They are retried.
    pub flushes_failed: u64,
    /// Compactions.
    pub compactions: u64,
    /// Failed compactions. They are retried unless a file is damaged.
    pub compactions_failed: u64,
    /// Log records replayed when the shard was opened.
    pub replayed: u64,
    /// Writes are refused, because one failed or the disk is full.
    pub writes_refused: bool,
    /// Rate of flushes in memtable bytes per second, now.
    pub flush_rate: u64,
    /// Weight of flushes, where all users together weigh 1000, now.
    pub flush_weight: u64,
    /// Bytes of memtables that wait to be flushed, now.
    pub flush_backlog_bytes: u64,
    /// Rate of compactions in bytes per second, now.
    pub compaction_rate: u64,
    /// Weight of compactions, where all users together weigh 1000, now.
    pub compaction_weight: u64,
    /// Bytes to compact until every table satisfies its strategy, now.
    pub compaction_backlog_bytes: u64,
    /// Bytes of table files that flushes wrote.
    pub flushed_bytes: u64,
    /// Bytes of table files that compactions wrote. Write amplification is (flushed + compacted) /
    /// flushed.
    pub compacted_bytes: u64,
    /// Runs of table files, now. A read of a partition searches the runs of its table.
    pub runs: u64,
    /// Runs of the table with the most runs, now.
    pub runs_max: u64,
    /// Compactions in flight, now.
    pub compactions_running: u64,
    /// Table files dropped because everything in them had expired or was deleted.
    pub expired_files: u64,
    /// Bytes of those files.
    pub expired_bytes: u64,
    /// Memory of filters and indexes of table files in bytes, now. The caches are smaller by this.
    pub index_bytes: u64,
    /// Slowdown of writers because of too many runs, in millionths, now.
    pub runs_pressure_ppm: u64,
    /// Bytes of files that are no longer live and not yet removed, now.
    pub obsolete_bytes: u64,
    /// Shortage of memory for memtables, in millionths, now.
    pub memory_pressure_ppm: u64,
    /// Total delay of acknowledgements because of that shortage, in ns.
    pub throttle_delay_ns: u64,
}

/// The data of one core. All calls are made on the fast lane of that core.
#[derive(Debug)]
pub struct Shard {
    pub(crate) env: Arc<dyn Env>,
    pub(crate) options: Options,
    /// The folder of the shard.
    pub(crate) dir: PathBuf,
    pub(crate) state: RefCell<State>,
    pub(crate) cache: RefCell<Cache>,
    /// Uses the part of `cache_bytes` that the block cache leaves free.
    pub(crate) scan_cache: Arc<ScanCache>,
    /// `None`: the shard is in memory, and nothing is durable.
    pub(crate) log: Option<Rc<Log>>,
    pub(crate) manifest: RefCell<Manifest>,
    pub(crate) manifest_busy: Cell<bool>,
    /// Acknowledgements wait, see [`Shard::hold_acks`].
    pub(crate) acks_held: Cell<bool>,
    /// Signals the end of `acks_held`.
    pub(crate) acks_free: Signal,
    /// The file of the manifest. `None` during a write, and after a failed one.
    pub(crate) versions: RefCell<Option<Versions>>,
    /// Wakes background work: something to flush or compact, or shutdown.
    pub(crate) work: Signal,
    /// A flush, compaction or manifest edit has ended.
    pub(crate) progress: Signal,
    pub(crate) lock: RefCell<Option<Box<dyn Debug>>>,
    pub(crate) pacing: Pacing,
    pub(crate) log_bound: LogBound,
    pub(crate) reserve: Rc<Reserve>,
    pub(crate) tasks: Rc<Tasks>,
    pub(crate) reports: Reports,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) tables: FxHashMap<TableId, Table>,
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
    /// Progress of all flushes when the one in flight started.
    pub(crate) flush_began: u64,
    /// Compactions in flight, and the number started so far.
    pub(crate) merges: Vec<InFlight>,
    pub(crate) merges_begun: u64,
    pub(crate) next_generation: u64,
    /// Truncations that are done in memory but not yet in the manifest.
    pub(crate) truncating: u32,
    /// Files that are no longer live, kept until their last reader is done.
    pub(crate) obsolete: Vec<Arc<TableFile>>,
    /// Files of a failed edit of the manifest. The manifest on disk may name them until another
    /// edit succeeds.
    pub(crate) unconfirmed: Vec<Arc<TableFile>>,
    /// Records of the log that are not completely applied yet: see [`Shard::apply_in_turns`].
    pub(crate) applying: Vec<u64>,
    /// Memtables that are no longer live, until their last reader is done and they are freed.
    pub(crate) flushed: Vec<Memtable>,
    pub(crate) busy: u32,
    /// Tables that were dropped since the shard was opened.
    pub(crate) dropped: Dropped,
    pub(crate) closed: bool,
    pub(crate) failed: Option<Arc<StorageError>>,
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

impl Table {
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Memtable> {
        self.frozen.iter().map(|(_, memtable)| memtable).chain([&self.active])
    }

    /// Returns a snapshot of the memtables, in O(1).
    pub(crate) fn snapshot(&self) -> Vec<Memtable> {
        self.memtables().filter(|memtable| memtable.len() > 0).cloned().collect()
    }
}

impl State {
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

impl Shard {
    /// Applies mutations together: readers see all of them at once, and after a crash either all
    /// are present or none. They are visible when this returns, and durable when the [`Commit`]
    /// resolves.
    ///
    /// # Errors
    /// [`StorageError::TooLarge`]: a record above [`Options::record_bytes_max`].
    /// [`StorageError::Overloaded`]: the bytes that wait for the disk exceed a segment or the
    /// largest record, or the log has reached its bound. [`StorageError::WritesRefused`]: an
    /// earlier write failed. [`StorageError::Closed`]: after shutdown. Nothing has been applied
    /// then.
    pub fn apply(self: &Rc<Self>, mutations: Vec<Mutation>) -> Result<Commit, StorageError> {
        self.apply_as(mutations, false)
    }

    /// As [`Shard::apply_vital`], for few mutations.
    ///
    /// # Errors
    /// As [`Shard::apply`].
    pub fn apply_few_vital(self: &Rc<Self>, mutations: Vec<Mutation>) -> Result<Commit, StorageError> {
        self.apply_as(mutations, true)
    }

    pub(crate) fn apply_as(
        self: &Rc<Self>,
        mutations: Vec<Mutation>,
        is_vital: bool,
    ) -> Result<Commit, StorageError> {
        // Only counts: this cannot yield. Large batches use `apply_in_turns`.
        drop(self.env.spend(mutations.len() as u32));
        self.state.borrow().check_tables(mutations.iter().map(|mutation| mutation.table))?;
        let put = |out: &mut Vec<u8>| put_mutations(out, &mutations);
        let record =
            self.append(put).or_else(|refused| self.append_vital(refused, (&mutations, is_vital), put))?;
        let state = &mut *self.state.borrow_mut();
        for mutation in &mutations {
            let table = state.tables.entry(mutation.table).or_default();
            state.bytes += table.active.apply(mutation.token, &mutation.key, &mutation.changes);
        }
        self.applied(state, record);
        Ok(Commit::new(self.clone(), record).wait_while_full(is_vital))
    }

    /// Prefetches what [`Shard::put`] reads first. Call it before other work: a cache miss takes as
    /// long as a hundred instructions or more.
    #[inline]
    pub fn prefetch(&self, table: TableId, token: i64) {
        if let Some(table) = self.state.borrow().tables.get(&table) {
            table.active.prefetch(token);
        }
    }

    /// Writes a row: [`Shard::apply`] without its allocations. A row without clustering contains
    /// the key of its partition, others do not.
    ///
    /// # Errors
    /// As [`Shard::apply`].
    pub fn put(
        self: &Rc<Self>,
        table: TableId,
        token: i64,
        key: &[u8],
        row: &Draft,
    ) -> Result<Commit, StorageError> {
        {
            let state = self.state.borrow();
            state.check_tables(std::iter::once(table))?;
            if let Some(table) = state.tables.get(&table) {
                table.active.prefetch_row(token);
            }
        }
        let record = self.append(|out| match row.key() == key {
            true => put_one_row(out, table, token, row),
            false => put_row_of(out, table, token, key, row),
        })?;
        let state = &mut *self.state.borrow_mut();
        state.bytes += state.tables.entry(table).or_default().active.put(token, key, row);
        self.applied(state, record);
        Ok(Commit::new(self.clone(), record))
    }

    /// Appends a record to the log and returns its number; 0 without a log.
    pub(crate) fn append(&self, put: impl FnOnce(&mut Vec<u8>)) -> Result<u64, StorageError> {
        if self.state.borrow().closed {
            return Err(StorageError::Closed);
        }
        self.log.as_ref().map_or(Ok(0), |log| log.append(put))
    }

    /// Appends a record that was refused for lack of disk space, if it frees space.
    pub(crate) fn append_vital(
        &self,
        refused: StorageError,
        (mutations, is_vital): (&[Mutation], bool),
        put: impl FnOnce(&mut Vec<u8>),
    ) -> Result<u64, StorageError> {
        let deletes = |m: &Mutation| m.changes.iter().all(Change::is_deletion);
        match (&refused, &self.log) {
            (StorageError::WritesRefused { because }, Some(log))
                if because.is_full() && (is_vital || mutations.iter().all(deletes)) =>
            {
                log.append_vital(put)
            }
            _ => Err(refused),
        }
    }

    pub(crate) fn applied(&self, state: &mut State, record: u64) {
        let Some(log) = &self.log else { return };
        let length = log.length();
        let filled = (state.bytes as u64).max(self.log_bound.fill(length - state.log_from));
        let more = filled.saturating_sub(std::mem::replace(&mut state.filled, filled));
        if !state.frozen.is_empty() || self.pacing.runs_pressure_ppm.get() > 0 {
            self.charge_write(state, more);
        }
        if filled >= self.options.memtable_bytes_max as u64 && state.frozen.len() < FROZEN_MAX {
            let is_large = state.bytes >= self.options.memtable_bytes_max;
            let reason = if is_large { FlushReason::MemtableFull } else { FlushReason::LogLong };
            state.freeze(record, length, reason);
            self.bound_log(state);
            self.work.wake();
        }
    }

    /// Limits the log to a bounded length after the oldest record that is not flushed.
    pub(crate) fn bound_log(&self, state: &State) {
        if let Some(log) = &self.log {
            let length = log.length();
            log.set_limit(length - state.live_log(length) + self.log_bound.refuse_at());
        }
    }

    /// Returns acknowledgements for a writer with many writes in flight.
    pub fn acks(self: &Rc<Self>) -> Acks {
        Acks::new(self.clone())
    }

    /// Scans the partitions of a token range in (token, key) order, starting after `start_after` if
    /// given.
    pub fn scan(
        self: &Rc<Self>,
        table: TableId,
        tokens: RangeInclusive<i64>,
        start_after: Option<(i64, Bytes)>,
        now_s: u32,
    ) -> Scan {
        let from = match start_after {
            Some((token, key)) if token >= *tokens.start() => ScanFrom::After(token, key),
            _ => ScanFrom::Token(*tokens.start()),
        };
        let state = self.state.borrow();
        let stream = match state.tables.get(&table) {
            Some(table) => MergeStream::new(table.snapshot(), &table.files, from, *tokens.end()),
            None => MergeStream::new([], &Files::default(), from, *tokens.end()),
        };
        Scan::new(stream, now_s)
    }

    /// Returns the metrics of the shard.
    pub fn stats(&self) -> Stats {
        let state = self.state.borrow();
        let cache = self.cache.borrow();
        let files = || state.tables.values().flat_map(|table| table.files.iter());
        let known = || files().filter_map(|file| file.statistics.as_ref());
        let log = self.log.as_deref();
        let (segments, free) = log.map_or((0, 0), Log::segments);
        let (scan_cache_hits, scan_cache_misses) = self.scan_cache.lookups();
        let mut stats = Stats {
            tables: state.tables.len() as u64,
            memtable_partitions: state.tables.values().map(|table| table.active.len() as u64).sum(),
            memtable_bytes: state.bytes as u64,
            memtables_frozen: state.frozen.len() as u64,
            files: state.tables.values().map(|table| table.files.len() as u64).sum(),
            files_damaged: state.tables.values().map(|table| table.files.excluded() as u64).sum(),
            file_bytes: files().map(|file| file.bytes).sum(),
            file_rows: known().map(|statistics| statistics.rows).sum(),
            file_cells: known().map(|statistics| statistics.cells).sum(),
            file_tombstones: known().map(|statistics| statistics.tombstones).sum(),
            log_records: log.map_or(0, Log::last_record),
            log_writes: log.map_or(0, Log::batches),
            log_live_bytes: log.map_or(0, |log| state.live_log(log.length())),
            log_segments: segments as u64,
            log_segments_free: free as u64,
            cache_bytes: cache.bytes() as u64,
            cache_hits: cache.hits,
            cache_misses: cache.misses,
            scan_cache_bytes: self.scan_cache.bytes() as u64,
            scan_cache_hits,
            scan_cache_misses,
            writes_refused: log.is_some_and(|log| log.failure().is_some()),
            runs: state.tables.values().map(|table| table.files.runs().len() as u64).sum(),
            runs_max: state.tables.values().map(|table| table.files.runs().len() as u64).max().unwrap_or(0),
            compactions_running: state.merges.len() as u64,
            index_bytes: state.index_bytes() as u64,
            runs_pressure_ppm: u64::from(self.pacing.runs_pressure_ppm.get()),
            obsolete_bytes: state.obsolete.iter().map(|file| file.bytes).sum(),
            ..state.counts
        };
        self.pacing_stats(&mut stats);
        stats
    }

    /// Sets the options of a table for future writes. Running flushes and compactions keep the
    /// previous ones. Options are not stored: the owner of the table sets them again after opening.
    /// Values out of bounds are clamped.
    pub fn configure(&self, table: TableId, options: TableOptions) {
        let options = options.in_bounds();
        let state = &mut *self.state.borrow_mut();
        state.configured.insert(table, options);
        state.tables.get(&table).into_iter().for_each(|table| table.needs.touch());
        self.work.wake();
    }

    /// Sets the layouts of columns for future files. Other columns contain bytes. Layouts are not
    /// stored, like options: files record the layouts of their own columns.
    pub fn describe(&self, table: TableId, mut columns: Vec<ColumnLayout>) {
        columns.sort_by_key(|layout| layout.column);
        self.state.borrow_mut().layouts.insert(table, columns.into());
    }

    /// Sets the dropped columns of a table: compactions omit their cells. Column numbers are never
    /// reused.
    pub fn forget_columns(&self, table: TableId, mut columns: Vec<u32>) {
        columns.sort_unstable();
        self.state.borrow_mut().dropped_columns.insert(table, columns.into());
    }

    /// Returns the options of a table: its own, or the shard's.
    pub fn table_options(&self, table: TableId) -> TableOptions {
        self.state.borrow().configured.get(&table).copied().unwrap_or(self.options.table)
    }

    /// Returns the number of frozen memtables, and the bytes of the active ones.
    pub(crate) fn pressure(&self) -> (usize, usize) {
        let state = self.state.borrow();
        (state.frozen.len(), state.bytes)
    }

    /// Returns true if writes are refused, because one failed or the disk is full.
    pub fn refuses_writes(&self) -> bool {
        self.log.as_ref().is_some_and(|log| log.failure().is_some())
    }
}
