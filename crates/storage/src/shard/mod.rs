//! One core's data: the door to this crate.

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
use crate::world::World;

/// Memtables that wait for, or are in, a flush. With the active one this bounds memory to three memtables, and to as many more as may be held
/// back on purpose.
pub(crate) const FROZEN_MAX: usize = 2;

/// Counts of one shard, all since it was opened unless they say otherwise.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Stats {
    /// Tables that hold anything now.
    pub tables: u64,
    /// Partitions in the active memtables now.
    pub memtable_partitions: u64,
    /// Bytes in the active memtables now.
    pub memtable_bytes: u64,
    /// Memtables that wait to be flushed now.
    pub memtables_frozen: u64,
    /// Table files now.
    pub files: u64,
    /// Table files now that compactions leave out because of damage.
    pub files_damaged: u64,
    /// Bytes in table files now.
    pub file_bytes: u64,
    /// Rows in table files now, a row that is in several counted several times; files of version 1 say nothing of theirs.
    pub file_rows: u64,
    /// Cells in table files now, likewise.
    pub file_cells: u64,
    /// Tombstones in table files now, likewise.
    pub file_tombstones: u64,
    /// Log records written or waiting to be, over the life of the folder.
    pub log_records: u64,
    /// Disk writes of the log; records ÷ writes is what group commit saves.
    pub log_writes: u64,
    /// Bytes of the log with records that are not flushed yet, now.
    pub log_live_bytes: u64,
    /// Log segments with records that are not flushed yet, now.
    pub log_segments: u64,
    /// Log segments ready to be used again, now.
    pub log_segments_free: u64,
    /// Bytes of decompressed blocks in the cache now.
    pub cache_bytes: u64,
    /// Block lookups the cache answered.
    pub cache_hits: u64,
    /// Block lookups that went to disk.
    pub cache_misses: u64,
    /// Bytes that scans read, kept for others, now.
    pub scan_cache_bytes: u64,
    /// Reads of scans by columns, of up to a megabyte each, that were there.
    pub scan_cache_hits: u64,
    /// Those that went to disk.
    pub scan_cache_misses: u64,
    /// Memtables written to files.
    pub flushes: u64,
    /// Flushes that failed, and are tried again.
    pub flushes_failed: u64,
    /// Merges of table files.
    pub compactions: u64,
    /// Merges that failed, and are tried again unless a file is damaged.
    pub compactions_failed: u64,
    /// Log records replayed when the shard was opened.
    pub replayed: u64,
    /// Whether writes are refused, since one failed or until there is space on the disk.
    pub writes_refused: bool,
    /// Bytes of memtables being flushed a second, now.
    pub flush_rate: u64,
    /// What flushes weigh beside all users together, who weigh 1000, now.
    pub flush_weight: u64,
    /// Bytes of memtables that wait to be flushed now.
    pub flush_backlog_bytes: u64,
    /// Bytes being merged a second, now.
    pub compaction_rate: u64,
    /// What merges weigh beside all users together, who weigh 1000, now.
    pub compaction_weight: u64,
    /// Bytes to be merged until every table is as its strategy wants it, now.
    pub compaction_backlog_bytes: u64,
    /// Bytes of table files that flushes wrote.
    pub flushed_bytes: u64,
    /// Bytes of table files that merges wrote; with those flushed, over those flushed, this is the write amplification.
    pub compacted_bytes: u64,
    /// Runs of table files now: what a read of a partition searches.
    pub runs: u64,
    /// Runs of the table that has most of them, now.
    pub runs_max: u64,
    /// Merges in flight now.
    pub compactions_running: u64,
    /// Table files that were dropped because all of them had expired or was deleted.
    pub expired_files: u64,
    /// Bytes of those files.
    pub expired_bytes: u64,
    /// Memory that filters and indexes of table files take, in bytes, now; the caches have so much less.
    pub index_bytes: u64,
    /// How far writers are slowed because runs pile up, in millionths, now.
    pub runs_pressure_ppm: u64,
    /// Bytes of files that are not alive any more and not removed yet, now.
    pub obsolete_bytes: u64,
    /// How far memory for memtables has run out, in millionths, now.
    pub memory_pressure_ppm: u64,
    /// Time by which acknowledgements were delayed because memory ran out, ns.
    pub throttle_delay_ns: u64,
}

/// One core's data. Lives on that core's fast lane; every call is made there.
#[derive(Debug)]
pub struct Shard {
    pub(crate) world: Arc<dyn World>,
    pub(crate) options: Options,
    /// The shard's own folder.
    pub(crate) dir: PathBuf,
    pub(crate) state: RefCell<State>,
    pub(crate) cache: RefCell<Cache>,
    /// Has what room the other leaves.
    pub(crate) scan_cache: Arc<ScanCache>,
    /// `None`: nothing is durable.
    pub(crate) log: Option<Rc<Log>>,
    pub(crate) manifest: RefCell<Manifest>,
    pub(crate) manifest_busy: Cell<bool>,
    /// No write is acknowledged for now.
    pub(crate) acks_held: Cell<bool>,
    /// They may be acknowledged again.
    pub(crate) acks_free: Signal,
    /// The manifest's file; `None` while it is written, and after that has failed.
    pub(crate) versions: RefCell<Option<Versions>>,
    /// Something to flush or compact, or the end.
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
    /// Of tables that were configured, whether they hold anything or not.
    pub(crate) configured: FxHashMap<TableId, TableOptions>,
    /// What is known of the columns of tables, ascending by column.
    pub(crate) layouts: FxHashMap<TableId, Arc<[ColumnLayout]>>,
    /// Columns that tables had once, ascending.
    pub(crate) dropped_columns: FxHashMap<TableId, Arc<[u32]>>,
    /// Names of tables for reports.
    pub(crate) names: FxHashMap<TableId, Arc<str>>,
    /// About how many bytes the active memtables take.
    pub(crate) bytes: usize,
    /// How full the active memtables are, in bytes: as many as they take, or as their part of the log counts for.
    pub(crate) filled: u64,
    /// The length of the log when they were begun.
    pub(crate) log_from: u64,
    /// Oldest first.
    pub(crate) frozen: VecDeque<Frozen>,
    /// Bytes of all memtables ever frozen.
    pub(crate) frozen_bytes: u64,
    /// What all flushes had done when the one under way began.
    pub(crate) flush_began: u64,
    /// Merges in flight, and how many there ever were.
    pub(crate) merges: Vec<InFlight>,
    pub(crate) merges_begun: u64,
    pub(crate) next_generation: u64,
    /// Tables that are empty already in memory, and not yet in the manifest.
    pub(crate) truncating: u32,
    /// Files no longer alive, until their last reader is gone.
    pub(crate) obsolete: Vec<Arc<TableFile>>,
    /// Files that an edit of the manifest was to name which failed: nothing tells them from those that are alive until
    /// another edit succeeds.
    pub(crate) doubtful: Vec<Arc<TableFile>>,
    /// Records in the log of which memtables do not have all yet: see [`Shard::apply_in_turns`].
    pub(crate) applying: Vec<u64>,
    /// Memtables no longer alive, until their last reader is gone and they are freed.
    pub(crate) flushed: Vec<Memtable>,
    pub(crate) busy: u32,
    /// Tables that were dropped since the shard was opened.
    pub(crate) dropped: Dropped,
    pub(crate) closed: bool,
    pub(crate) failed: Option<Arc<StorageError>>,
    pub(crate) counts: Stats,
}

/// What of one table is where.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) active: Memtable,
    /// With their generations, oldest first.
    pub(crate) frozen: Vec<(u64, Memtable)>,
    pub(crate) files: Files,
    pub(crate) failures: Failures,
    pub(crate) needs: Needs,
    pub(crate) searched: Searched,
}

/// A set of memtables to be flushed together.
#[derive(Clone, Debug)]
pub(crate) struct Frozen {
    pub(crate) generation: u64,
    /// The last log record in it.
    pub(crate) last_record: u64,
    pub(crate) tables: Vec<TableId>,
    /// How full its memtables are, in bytes; see [`State::filled`].
    pub(crate) bytes: u64,
    /// Its part of the log, in bytes.
    pub(crate) log_bytes: u64,
    pub(crate) partitions: u64,
    /// It has a part of a record.
    pub(crate) partial: bool,
    pub(crate) reason: FlushReason,
}

impl Table {
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Memtable> {
        self.frozen.iter().map(|(_, memtable)| memtable).chain([&self.active])
    }

    /// A snapshot of everything in memory: O(1).
    pub(crate) fn snapshot(&self) -> Vec<Memtable> {
        self.memtables().filter(|memtable| memtable.len() > 0).cloned().collect()
    }
}

impl State {
    /// Memory that filters and indexes of files take.
    pub(crate) fn index_bytes(&self) -> usize {
        let runs = self.tables.values().flat_map(|table| table.files.runs());
        runs.map(|run| run.resident_bytes).sum()
    }

    /// Bytes of log with records of memtables, at this length of the log.
    pub(crate) fn live_log(&self, log_length: u64) -> u64 {
        let frozen: u64 = self.frozen.iter().map(|frozen| frozen.log_bytes).sum();
        frozen + (log_length - self.log_from)
    }

    /// Starts new memtables and queues the full ones for the flush. `log_length` is that of the log with `last_record`.
    pub(crate) fn freeze(&mut self, last_record: u64, log_length: u64, reason: FlushReason) {
        // A record that is being applied may be in two memtables. It is replayed until the later
        // one is flushed: replaying what a file has as well changes nothing.
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
    /// Applies mutations together: readers see all of them at once, and after a crash all are there or none.
    /// They are visible when this returns, and durable when the [`Commit`] resolves.
    ///
    /// # Errors
    /// [`StorageError::TooLarge`] above [`Options::record_bytes_max`], [`StorageError::Overloaded`] when a segment, or the largest record's
    /// worth, waits for the disk or the log has reached its bound, [`StorageError::WritesRefused`] after a write has failed,
    /// [`StorageError::Closed`] after shutdown. Nothing has been applied then.
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
        // Counted here, where nothing can yield: large batches have a way of their own.
        drop(self.world.spend(mutations.len() as u32));
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
        Ok(Commit::new(self.clone(), record).patient(is_vital))
    }

    /// Has the processor fetch what [`Shard::put`] will look at first. Worth it where there is something to do in between: memory that is
    /// far takes as long as a hundred instructions or more.
    #[inline]
    pub fn prefetch(&self, table: TableId, token: i64) {
        if let Some(table) = self.state.borrow().tables.get(&table) {
            table.active.prefetch(token);
        }
    }

    /// Writes one row: [`Shard::apply`] without its allocations. A row without clustering carries its partition's key, others do
    /// not.
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

    /// Adds a record to the log; 0 where there is none.
    pub(crate) fn append(&self, put: impl FnOnce(&mut Vec<u8>)) -> Result<u64, StorageError> {
        if self.state.borrow().closed {
            return Err(StorageError::Closed);
        }
        self.log.as_ref().map_or(Ok(0), |log| log.append(put))
    }

    /// Adds a record although writes are refused for want of space, if it makes space.
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

    /// Sets where the log ends for now: a bounded length behind the oldest record that is not flushed.
    pub(crate) fn bound_log(&self, state: &State) {
        if let Some(log) = &self.log {
            let length = log.length();
            log.set_limit(length - state.live_log(length) + self.log_bound.refuse_at());
        }
    }

    /// For a writer that has many writes in flight: how far they have come.
    pub fn acks(self: &Rc<Self>) -> Acks {
        Acks::new(self.clone())
    }

    /// The partitions of a token range in (token, key) order, from just after `start_after` if given.
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

    /// The shard's counts.
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
            files_damaged: state.tables.values().map(|table| table.files.aside() as u64).sum(),
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

    /// Sets a table's options, for what is written from now on; flushes and merges under way go on under the old ones.
    /// They are not kept on disk: whoever owns the table says them again after opening. Values out of bounds are moved to the nearer end.
    pub fn configure(&self, table: TableId, options: TableOptions) {
        let options = options.in_bounds();
        let state = &mut *self.state.borrow_mut();
        state.configured.insert(table, options);
        state.tables.get(&table).into_iter().for_each(|table| table.needs.touch());
        self.work.wake();
    }

    /// Says what is known of a table's columns, for what is written from now on; columns not named hold bytes. Like options it is
    /// not kept on disk: files record how each of their columns lies.
    pub fn describe(&self, table: TableId, mut columns: Vec<ColumnLayout>) {
        columns.sort_by_key(|layout| layout.column);
        self.state.borrow_mut().layouts.insert(table, columns.into());
    }

    /// Names the columns that a table had once and has no more: merges leave out their cells. Numbers of columns are not used
    /// again.
    pub fn forget_columns(&self, table: TableId, mut columns: Vec<u32>) {
        columns.sort_unstable();
        self.state.borrow_mut().dropped_columns.insert(table, columns.into());
    }

    /// The options a table was configured with, or the shard's for all others.
    pub fn table_options(&self, table: TableId) -> TableOptions {
        self.state.borrow().configured.get(&table).copied().unwrap_or(self.options.table)
    }

    /// Frozen memtables, and the bytes of the active ones.
    pub(crate) fn pressure(&self) -> (usize, usize) {
        let state = self.state.borrow();
        (state.frozen.len(), state.bytes)
    }

    /// Returns true if writes are refused, since one failed or until there is space on the disk.
    pub fn refuses_writes(&self) -> bool {
        self.log.as_ref().is_some_and(|log| log.failure().is_some())
    }
}
