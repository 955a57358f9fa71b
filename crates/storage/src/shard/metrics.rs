//! Metrics of a shard and its tables, and reports of its background work.

use std::sync::Arc;

use crate::event::Recovery;
use crate::jobs::tasks::{Compacted, Task};
use crate::log::Log;
use crate::model::TableId;
use crate::shard::Shard;
use crate::state::stats::Stats;
use crate::table::metrics::{self, LargePartition, TableStats};
use crate::table::size::TableSize;

impl Shard {
    /// Returns the metrics of the shard.
    pub fn stats(&self) -> Stats {
        let state = self.state.borrow();
        let cache = self.store.cache.borrow();
        let files = || state.tables.values().flat_map(|table| table.files.iter());
        let known = || files().filter_map(|file| file.statistics.as_ref());
        let log = self.log.as_deref();
        let (segments, free) = log.map_or((0, 0), Log::segments);
        let (scan_cache_hits, scan_cache_misses) = self.store.scan_cache.lookups();
        let mut stats = Stats {
            tables: state.tables.len() as u64,
            memtable_partitions: state.tables.values().map(|table| table.active.len() as u64).sum(),
            memtable_bytes: state.memory.bytes as u64,
            memtables_frozen: state.memory.frozen.len() as u64,
            files: state.tables.values().map(|table| table.files.len() as u64).sum(),
            files_damaged: state.tables.values().map(|table| table.files.damaged() as u64).sum(),
            file_bytes: files().map(|file| file.bytes).sum(),
            file_rows: known().map(|statistics| statistics.rows).sum(),
            file_cells: known().map(|statistics| statistics.cells).sum(),
            file_tombstones: known().map(|statistics| statistics.tombstones).sum(),
            log_records: log.map_or(0, Log::last_record),
            log_writes: log.map_or(0, Log::batches),
            log_live_bytes: log.map_or(0, |log| state.memory.live_log(log.length())),
            log_segments: segments as u64,
            log_segments_free: free as u64,
            cache_bytes: cache.bytes() as u64,
            cache_hits: cache.hits,
            cache_misses: cache.misses,
            row_cache_hits: cache.row_hits,
            row_cache_misses: cache.row_misses,
            scan_cache_bytes: self.store.scan_cache.bytes() as u64,
            scan_cache_hits,
            scan_cache_misses,
            writes_refused: log.is_some_and(|log| log.failure().is_some()),
            runs: state.tables.values().map(|table| table.files.runs().len() as u64).sum(),
            runs_max: state.tables.values().map(|table| table.files.runs().len() as u64).max().unwrap_or(0),
            compactions_running: self.background.compactor.running() as u64,
            index_bytes: state.index_bytes() as u64,
            runs_pressure_ppm: u64::from(self.jobs.pacing.runs_pressure_ppm.get()),
            obsolete_bytes: self.store.obsolete_bytes(),
            ..state.counts
        };
        self.jobs.pacing.add_stats(&state, self.background.compactor.load(&state), &mut stats);
        stats
    }

    /// Returns the metrics of a table. Costs a step for each file.
    pub fn table_stats(&self, id: TableId) -> TableStats {
        let state = self.state.borrow();
        let Some(table) = state.tables.get(&id) else { return TableStats::default() };
        let memory = TableSize::of_memtables(table.memtables());
        let choice = self.background.compactor.choice(&state, id, table);
        TableStats {
            backlog_runs: choice.waiting as u64,
            backlog_bytes: choice.backlog,
            ..TableStats::of(&table.files, memory, &table.searched, self.env.now_s())
        }
    }

    /// Returns the largest partitions of a table, at most `count`, largest first. Counts only
    /// partitions that span several blocks of some file, as the indexes of files show them. Ignores
    /// memtables.
    pub async fn largest_partitions(&self, id: TableId, count: usize) -> Vec<LargePartition> {
        let files = self.state.borrow().tables.get(&id).map(|table| table.files.clone());
        metrics::largest_partitions(&files.unwrap_or_default(), count, &*self.env).await
    }

    /// Returns the approximate size of a table, from the footers of its files and a sample of each
    /// memtable.
    pub fn table_size(&self, table: TableId) -> TableSize {
        let state = self.state.borrow();
        let Some(table) = state.tables.get(&table) else { return TableSize::default() };
        TableSize::of_files(&table.files).plus(TableSize::of_memtables(table.memtables()))
    }

    /// Names a table in reports: keyspace and table, with a dot in between.
    pub fn name(&self, table: TableId, name: Arc<str>) {
        self.state.borrow_mut().settings.name(table, name);
    }

    /// Returns the work of this shard's start.
    pub fn recovery(&self) -> Recovery {
        self.background.recovery.get()
    }

    /// Returns the background work in flight.
    pub fn running_tasks(&self) -> Vec<Task> {
        self.jobs.tasks.running()
    }

    /// Returns the last compactions, oldest first: at most [`crate::HISTORY_MAX`] over all shards.
    pub fn compaction_history(&self) -> Vec<Compacted> {
        self.jobs.tasks.history()
    }
}
