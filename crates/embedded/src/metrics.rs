//! Counters of a shard as metrics. Each field of [`Stats`] appears once; a test checks it.

use engine::{Measure, Metric};
use storage::Stats;

/// Metric with a function that returns its value.
type Row = (Metric, fn(&Stats) -> u64);

const ROWS: &[Row] = &[
    (Metric::gauge("fairlane_storage_tables", "Tables that hold anything."), |s| s.tables),
    (Metric::gauge("fairlane_memtable_partitions", "Partitions in the active memtables."), |s| {
        s.memtable_partitions
    }),
    (Metric::gauge("fairlane_memtable_bytes", "Bytes in the active memtables."), |s| s.memtable_bytes),
    (Metric::gauge("fairlane_memtables_frozen", "Memtables that wait to be flushed."), |s| {
        s.memtables_frozen
    }),
    (Metric::gauge("fairlane_table_files", "Table files."), |s| s.files),
    (
        Metric::gauge(
            "fairlane_table_files_damaged",
            "Table files with damage, which compactions leave out.",
        ),
        |s| s.files_damaged,
    ),
    (Metric::gauge("fairlane_table_file_bytes", "Bytes in table files."), |s| s.file_bytes),
    (
        Metric::gauge(
            "fairlane_table_file_rows",
            "Rows in table files, one in several files counted as often.",
        ),
        |s| s.file_rows,
    ),
    (Metric::gauge("fairlane_table_file_cells", "Cells in table files, likewise."), |s| s.file_cells),
    (Metric::gauge("fairlane_table_file_tombstones", "Tombstones in table files, likewise."), |s| {
        s.file_tombstones
    }),
    (Metric::counter("fairlane_log_records_total", "Log records over the life of the folder."), |s| {
        s.log_records
    }),
    (
        Metric::counter("fairlane_log_writes_total", "Disk writes of the log, each of one record or more."),
        |s| s.log_writes,
    ),
    (
        Metric::gauge("fairlane_log_live_bytes", "Bytes of the log with records that are not flushed yet."),
        |s| s.log_live_bytes,
    ),
    (Metric::gauge("fairlane_log_segments", "Log segments with records that are not flushed yet."), |s| {
        s.log_segments
    }),
    (Metric::gauge("fairlane_log_segments_free", "Log segments ready to be used again."), |s| {
        s.log_segments_free
    }),
    (Metric::gauge("fairlane_cache_bytes", "Bytes in the cache of blocks."), |s| s.cache_bytes),
    (Metric::counter("fairlane_cache_hits_total", "Block lookups that the cache answered."), |s| {
        s.cache_hits
    }),
    (Metric::counter("fairlane_cache_misses_total", "Block lookups that went to disk."), |s| s.cache_misses),
    (Metric::gauge("fairlane_scan_cache_bytes", "Bytes that scans read, kept for others."), |s| {
        s.scan_cache_bytes
    }),
    (Metric::counter("fairlane_scan_cache_hits_total", "Reads of scans that were kept."), |s| {
        s.scan_cache_hits
    }),
    (Metric::counter("fairlane_scan_cache_misses_total", "Reads of scans that went to disk."), |s| {
        s.scan_cache_misses
    }),
    (Metric::counter("fairlane_flushes_total", "Memtables written to table files."), |s| s.flushes),
    (Metric::counter("fairlane_flushes_failed_total", "Flushes that failed, to be tried again."), |s| {
        s.flushes_failed
    }),
    (Metric::counter("fairlane_compactions_total", "Merges of table files."), |s| s.compactions),
    (Metric::counter("fairlane_compactions_failed_total", "Merges of table files that failed."), |s| {
        s.compactions_failed
    }),
    (Metric::gauge("fairlane_log_records_replayed", "Log records replayed at start."), |s| s.replayed),
    (Metric::gauge("fairlane_writes_refused", "1 when writes are refused since one failed, else 0."), |s| {
        u64::from(s.writes_refused)
    }),
    (Metric::gauge("fairlane_flush_bytes_per_second", "Bytes of memtables being flushed a second."), |s| {
        s.flush_rate
    }),
    (Metric::gauge("fairlane_flush_weight", "What flushes weigh beside all users, who weigh 1000."), |s| {
        s.flush_weight
    }),
    (Metric::gauge("fairlane_flush_backlog_bytes", "Bytes of memtables that wait to be flushed."), |s| {
        s.flush_backlog_bytes
    }),
    (Metric::gauge("fairlane_compaction_bytes_per_second", "Bytes being merged a second."), |s| {
        s.compaction_rate
    }),
    (
        Metric::gauge("fairlane_compaction_weight", "What merges weigh beside all users, who weigh 1000."),
        |s| s.compaction_weight,
    ),
    (Metric::gauge("fairlane_compaction_backlog_bytes", "Bytes still to be merged."), |s| {
        s.compaction_backlog_bytes
    }),
    (Metric::counter("fairlane_flushed_bytes_total", "Bytes of table files that flushes wrote."), |s| {
        s.flushed_bytes
    }),
    (Metric::counter("fairlane_compacted_bytes_total", "Bytes of table files that merges wrote."), |s| {
        s.compacted_bytes
    }),
    (Metric::gauge("fairlane_table_runs", "Runs of table files: what reads of a partition search."), |s| {
        s.runs
    }),
    (Metric::gauge("fairlane_table_runs_max", "Runs of the table that has most of them."), |s| s.runs_max),
    (Metric::gauge("fairlane_compactions_running", "Merges of table files in flight."), |s| {
        s.compactions_running
    }),
    (
        Metric::counter(
            "fairlane_expired_files_total",
            "Table files dropped because all in them had expired or was deleted.",
        ),
        |s| s.expired_files,
    ),
    (Metric::counter("fairlane_expired_bytes_total", "Bytes of those files."), |s| s.expired_bytes),
    (
        Metric::gauge(
            "fairlane_index_bytes",
            "Memory of filters and indexes of table files; the caches have so much less.",
        ),
        |s| s.index_bytes,
    ),
    (
        Metric::gauge(
            "fairlane_runs_pressure_ppm",
            "How far writers are slowed because runs pile up, in millionths.",
        ),
        |s| s.runs_pressure_ppm,
    ),
    (Metric::gauge("fairlane_obsolete_bytes", "Bytes of dead table files that are not removed yet."), |s| {
        s.obsolete_bytes
    }),
    (
        Metric::gauge(
            "fairlane_memory_pressure_ppm",
            "How far memory for memtables has run out, in millionths.",
        ),
        |s| s.memory_pressure_ppm,
    ),
    (
        Metric::counter(
            "fairlane_throttle_delay_nanoseconds_total",
            "Time by which acknowledgements were delayed because memory ran out.",
        ),
        |s| s.throttle_delay_ns,
    ),
];

/// Returns the metrics of a shard with these counters.
pub(crate) fn of(stats: &Stats) -> Vec<Measure> {
    ROWS.iter().map(|(metric, value)| Measure { metric, value: value(stats) as f64 }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every field of [`Stats`] is exported; a new field needs a new row.
    #[test]
    fn every_count_has_a_metric() {
        let text = format!("{:?}", Stats::default());
        let fields = text.matches(": ").count();
        assert_eq!(ROWS.len(), fields, "{text}");
    }

    #[test]
    fn each_counter_is_exported_as_its_metric() {
        let stats = Stats { flushes: 3, cache_hits: 5, writes_refused: true, ..Stats::default() };
        let measures = of(&stats);
        let found: Vec<(&str, f64)> =
            measures.iter().filter(|m| m.value > 0.0).map(|m| (m.metric.name, m.value)).collect();
        let expected = [
            ("fairlane_cache_hits_total", 5.0),
            ("fairlane_flushes_total", 3.0),
            ("fairlane_writes_refused", 1.0),
        ];
        assert_eq!(found, expected);
    }
}
