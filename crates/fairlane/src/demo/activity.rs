//! What storage does, out of a page of the server's metrics: what flushes, compactions and the log write, what waits
//! for them, and what controllers make of it.

use super::figures::StoragePoint;

/// The metrics looked at: name and labels that have to be there (or nothing).
/// Values of all cores are summed.
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

/// The watched metrics at one moment.
pub(super) type Counts = [f64; COUNTS];

/// Reads them from a page; what is not there is 0.
pub(super) fn counts(page: &str) -> Counts {
    let mut out = [0.0; COUNTS];
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let Some((series, value)) = line.rsplit_once(' ') else { continue };
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let Ok(value) = value.parse::<f64>() else { continue };
        for ((watched, label), sum) in WATCHED.iter().zip(&mut out) {
            if *watched == name && labels.contains(label) {
                *sum += value;
            }
        }
    }
    out
}

/// The second that begins with `a` and ends with `b`.
pub(super) fn point(at_s: f64, a: &Counts, b: &Counts) -> StoragePoint {
    let grown = |place: usize| (b[place] - a[place]).max(0.0);
    StoragePoint {
        at_s,
        flush_bytes_per_s: grown(0),
        compaction_bytes_per_s: grown(1),
        log_bytes_per_s: grown(2),
        flushes: grown(3),
        compactions: grown(4),
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
    fn cores_are_summed_and_labels_heeded() {
        let page = "# HELP fairlane_flushes_total x\nfairlane_flushes_total{core=\"0\"} 2\n\
                    fairlane_flushes_total{core=\"1\"} 3\nfairlane_flushes_totals 9\n\
                    fairlane_disk_bytes_total{level=\"flush\",direction=\"write\"} 7\n\
                    fairlane_disk_bytes_total{group=\"flush\",direction=\"read\"} 8\n\
                    fairlane_disk_bytes_total{group=\"flush\",direction=\"write\"} 100\n\
                    fairlane_table_files{core=\"0\"} many\n";
        let found = counts(page);
        assert_eq!((found[0], found[3], found[7]), (100.0, 5.0, 0.0));
        let later = point(1.0, &found, &counts("fairlane_flushes_total 6\nfairlane_table_files 4\n"));
        assert_eq!((later.flushes, later.files, later.flush_bytes_per_s), (1.0, 4.0, 0.0));
    }
}
