//! Counters of a shard as metrics. Each field of [`Stats`] appears once; a test checks it.

use engine::{Measure, Metric};
use storage::Stats;

/// Metric with a function that returns its value.
type StatsMetric = (Metric, fn(&Stats) -> u64);

const ROWS: &[StatsMetric] = &[
    (Metric::gauge("fairlane_storage_tables", "Tables with data."), |s| s.tables),
    (Metric::gauge("fairlane_memtable_partitions", "Partitions in the active memtables."), |s| {
        s.memtable_partitions
    }),
    (Metric::gauge("fairlane_memtable_bytes", "Bytes in the active memtables."), |s| s.memtable_bytes),
    (Metric::gauge("fairlane_memtables_frozen", "Memtables that wait to be flushed."), |s| {
        s.memtables_frozen
    }),
    (Metric::gauge("fairlane_table_files", "Table files."), |s| s.files),
    (Metric::gauge("fairlane_table_files_damaged", "Table files in which damage was found."), |s| {
        s.files_damaged
    }),
    (Metric::gauge("fairlane_table_file_bytes", "Bytes in table files."), |s| s.file_bytes),
    (
        Metric::gauge(
            "fairlane_table_file_rows",
            "Rows in table files. A row in several files counts in each.",
        ),
        |s| s.file_rows,
    ),
    (Metric::gauge("fairlane_table_file_cells", "Cells in table files, counted in each file."), |s| {
        s.file_cells
    }),
    (
        Metric::gauge("fairlane_table_file_tombstones", "Tombstones in table files, counted in each file."),
        |s| s.file_tombstones,
    ),
    (Metric::counter("fairlane_log_records_total", "Log records since the folder was created."), |s| {
        s.log_records
    }),
    (
        Metric::counter("fairlane_log_writes_total", "Disk writes of the log. Each has one or more records."),
        |s| s.log_writes,
    ),
    (Metric::gauge("fairlane_log_live_bytes", "Bytes of the log with unflushed records."), |s| {
        s.log_live_bytes
    }),
    (Metric::gauge("fairlane_log_segments", "Log segments with unflushed records."), |s| s.log_segments),
    (Metric::gauge("fairlane_log_segments_free", "Log segments free for reuse."), |s| s.log_segments_free),
    (Metric::gauge("fairlane_cache_bytes", "Bytes in the block cache."), |s| s.cache_bytes),
    (Metric::counter("fairlane_cache_hits_total", "Block lookups answered by the cache."), |s| s.cache_hits),
    (Metric::counter("fairlane_cache_misses_total", "Block lookups that read the disk."), |s| s.cache_misses),
    (Metric::counter("fairlane_row_cache_hits_total", "StatsMetric reads whose files were cached."), |s| {
        s.row_cache_hits
    }),
    (Metric::counter("fairlane_row_cache_misses_total", "StatsMetric reads that asked files."), |s| {
        s.row_cache_misses
    }),
    (Metric::gauge("fairlane_scan_cache_bytes", "Bytes in the cache of scans."), |s| s.scan_cache_bytes),
    (Metric::counter("fairlane_scan_cache_hits_total", "Reads of scans answered by their cache."), |s| {
        s.scan_cache_hits
    }),
    (Metric::counter("fairlane_scan_cache_misses_total", "Reads of scans that read the disk."), |s| {
        s.scan_cache_misses
    }),
    (Metric::counter("fairlane_flushes_total", "Memtables written to table files."), |s| s.flushes),
    (Metric::counter("fairlane_flushes_failed_total", "Failed flushes. They are retried."), |s| {
        s.flushes_failed
    }),
    (Metric::counter("fairlane_compactions_total", "Completed compactions."), |s| s.compactions),
    (Metric::counter("fairlane_compactions_failed_total", "Failed compactions."), |s| s.compactions_failed),
    (Metric::gauge("fairlane_log_records_replayed", "Log records replayed at the start."), |s| s.replayed),
    (Metric::gauge("fairlane_writes_refused", "1 while writes are refused after a failure, else 0."), |s| {
        u64::from(s.writes_refused)
    }),
    (Metric::gauge("fairlane_flush_bytes_per_second", "Rate of flushes, in bytes of memtables."), |s| {
        s.flush_rate
    }),
    (Metric::gauge("fairlane_flush_weight", "Shares of flushes. All levels together have 1000."), |s| {
        s.flush_weight
    }),
    (Metric::gauge("fairlane_flush_backlog_bytes", "Bytes of memtables that wait for a flush."), |s| {
        s.flush_backlog_bytes
    }),
    (Metric::gauge("fairlane_compaction_bytes_per_second", "Rate of compactions, in bytes of input."), |s| {
        s.compaction_rate
    }),
    (
        Metric::gauge("fairlane_compaction_weight", "Shares of compactions. All levels together have 1000."),
        |s| s.compaction_weight,
    ),
    (Metric::gauge("fairlane_compaction_backlog_bytes", "Bytes that wait for compaction."), |s| {
        s.compaction_backlog_bytes
    }),
    (Metric::counter("fairlane_flushed_bytes_total", "Bytes of table files written by flushes."), |s| {
        s.flushed_bytes
    }),
    (
        Metric::counter("fairlane_compacted_bytes_total", "Bytes of table files written by compactions."),
        |s| s.compacted_bytes,
    ),
    (
        Metric::gauge(
            "fairlane_table_runs",
            "Runs of table files. A read of a partition searches those of its table.",
        ),
        |s| s.runs,
    ),
    (Metric::gauge("fairlane_table_runs_max", "Runs of the table with the most."), |s| s.runs_max),
    (Metric::gauge("fairlane_compactions_running", "Running compactions."), |s| s.compactions_running),
    (
        Metric::counter(
            "fairlane_expired_files_total",
            "Table files dropped because all their data had expired or was deleted.",
        ),
        |s| s.expired_files,
    ),
    (
        Metric::counter(
            "fairlane_expired_bytes_total",
            "Bytes of table files dropped because all their data had expired or was deleted.",
        ),
        |s| s.expired_bytes,
    ),
    (
        Metric::gauge(
            "fairlane_index_bytes",
            "Memory of filters and indexes of table files. It reduces the caches.",
        ),
        |s| s.index_bytes,
    ),
    (
        Metric::gauge(
            "fairlane_runs_pressure_ppm",
            "Backpressure on writers because of many runs, in millionths of the maximum.",
        ),
        |s| s.runs_pressure_ppm,
    ),
    (
        Metric::gauge("fairlane_obsolete_bytes", "Bytes of obsolete table files that are not removed yet."),
        |s| s.obsolete_bytes,
    ),
    (
        Metric::gauge(
            "fairlane_memory_pressure_ppm",
            "Pressure of full memory for memtables, in millionths of the maximum.",
        ),
        |s| s.memory_pressure_ppm,
    ),
    (
        Metric::counter(
            "fairlane_throttle_delay_seconds_total",
            "Delay of acknowledgements because of full memory for memtables.",
        ),
        |s| s.throttle_delay_ns,
    ),
];

/// Returns the metrics of a shard with these counters.
pub(crate) fn of(stats: &Stats) -> Vec<Measure> {
    let measure = |(metric, value): &'static (Metric, fn(&Stats) -> u64)| {
        // Storage counts time in ns, and a metric has the base unit.
        let unit = if metric.name.ends_with("_seconds_total") { 1e9 } else { 1.0 };
        Measure { metric, value: value(stats) as f64 / unit }
    };
    ROWS.iter().map(measure).collect()
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
