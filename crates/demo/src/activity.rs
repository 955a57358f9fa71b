//! Activity of storage, from a page of the server's metrics: bytes that flushes, compactions and
//! the log write, bytes that wait for them, and the weights that the controllers chose.

use server_process::metrics::series;

use crate::results::StoragePoint;

/// Metrics, each with a text that its labels must contain. Values of all cores are summed.
const WATCHED: [(&str, &str); COUNTS] = [
    ("fairlane_disk_bytes_total", "group=\"flush\",direction=\"write\""),
    ("fairlane_disk_bytes_total", "group=\"compaction\",direction=\"write\""),
    ("fairlane_disk_bytes_total", "group=\"log\",direction=\"write\""),
    ("fairlane_flushes_total", ""),
    ("fairlane_compactions_total", ""),
    ("fairlane_memtable_bytes", ""),
    ("fairlane_flush_backlog_bytes", ""),
    ("fairlane_table_files", ""),
    ("fairlane_table_file_bytes", ""),
    ("fairlane_flush_weight", ""),
    ("fairlane_compaction_weight", ""),
    ("fairlane_compaction_backlog_bytes", ""),
];
const COUNTS: usize = 12;

/// Values of [`WATCHED`] at one moment.
pub(crate) type StorageCounts = [f64; COUNTS];

/// Reads the values from a page. A missing metric is 0.
pub(crate) fn counts(page: &str) -> StorageCounts {
    let mut out = [0.0; COUNTS];
    for found in series(page) {
        for ((metric, labels), sum) in WATCHED.iter().zip(&mut out) {
            if *metric == found.metric && found.labels.contains(labels) {
                *sum += found.value;
            }
        }
    }
    out
}

/// Returns the activity in the second between `a` and `b`.
pub(crate) fn point(at_s: f64, a: &StorageCounts, b: &StorageCounts) -> StoragePoint {
    let increase = |place: usize| (b[place] - a[place]).max(0.0);
    StoragePoint {
        at_s,
        flush_bytes_per_s: increase(0),
        compaction_bytes_per_s: increase(1),
        log_bytes_per_s: increase(2),
        flushes: increase(3),
        compactions: increase(4),
        memtable_bytes: b[5] + b[6],
        files: b[7],
        file_bytes: b[8],
        flush_weight: b[9],
        compaction_weight: b[10],
        backlog_bytes: b[11],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_summed_and_labels_are_checked() {
        let page = "# HELP fairlane_flushes_total x\nfairlane_flushes_total{core=\"0\"} 2\n\
                    fairlane_flushes_total{core=\"1\"} 3\nfairlane_flushes_totals 9\n\
                    fairlane_disk_bytes_total{level=\"flush\",direction=\"write\"} 7\n\
                    fairlane_disk_bytes_total{group=\"flush\",direction=\"read\"} 8\n\
                    fairlane_disk_bytes_total{group=\"flush\",direction=\"write\"} 100\n\
                    fairlane_table_files{core=\"0\"} many\n";
        let first = counts(page);
        assert_eq!((first[0], first[3], first[7]), (100.0, 5.0, 0.0));
        let later = point(1.0, &first, &counts("fairlane_flushes_total 6\nfairlane_table_files 4\n"));
        assert_eq!((later.flushes, later.files, later.flush_bytes_per_s), (1.0, 4.0, 0.0));
    }
}
