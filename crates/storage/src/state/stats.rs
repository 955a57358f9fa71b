//! Metrics of a shard.

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
    /// Table files in which damage was found, now.
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
    /// Reads of a row that found what files had of it in the cache.
    pub row_cache_hits: u64,
    /// Reads of a row that had to ask files.
    pub row_cache_misses: u64,
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
