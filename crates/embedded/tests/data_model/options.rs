//! Options of tables and of SELECT that affect storage.

use crate::scenario::check;

#[test]
fn options_are_checked_stored_and_shown() {
    check(&[
        (
            "CREATE TABLE t (k int PRIMARY KEY, v int) WITH compaction = {'class': \
             'LeveledCompactionStrategy', 'sstable_size_in_mb': '16'} \
             AND compression = {'class': 'ZstdCompressor', 'chunk_length_in_kb': 32} AND gc_grace_seconds = 60",
            "CREATED t",
        ),
        (
            "SELECT compression, gc_grace_seconds FROM system_schema.tables WHERE keyspace_name = 'ks' \
             AND table_name = 't'",
            "{'chunk_length_in_kb': '32', 'class': 'org.apache.cassandra.io.compress.ZstdCompressor'},60",
        ),
        (
            "ALTER TABLE t WITH compaction = {'class': 'Nope'}",
            "! Unable to find compaction strategy class 'org.apache.cassandra.db.compaction.Nope'",
        ),
        (
            "ALTER TABLE t WITH compaction = 'Nope'",
            "! Invalid value for property 'compaction'. It should be a map.",
        ),
        ("ALTER TABLE t WITH compression = {'enabled': 'false'}", "UPDATED t"),
        ("INSERT INTO t (k, v) VALUES (1, 1)", "void"),
        ("SELECT v FROM t WHERE k = 1 LIMIT 3", "1"),
        ("SELECT v FROM t WHERE k = 1 LIMIT 0", "! LIMIT must be strictly positive"),
        ("SELECT v FROM t WHERE k = 1 BYPASS CACHE", "1"),
        ("SELECT v FROM t BYPASS CACHE", "1"),
    ]);
}

/// Uses more rows than storage returns at a time.
#[test]
fn wide_partitions_are_read_fully_in_both_orders() {
    let mut steps = vec![(
        "CREATE TABLE t (k int, c int, s int static, PRIMARY KEY (k, c))".to_owned(),
        "CREATED t".to_owned(),
    )];
    steps.push(("INSERT INTO t (k, s) VALUES (1, 7)".into(), "void".into()));
    steps.push(("SELECT s, c FROM t WHERE k = 1".into(), "7,null".into()));
    for chunk in 0..12 {
        let rows: Vec<String> =
            (0..100).map(|row| format!("INSERT INTO t (k, c) VALUES (1, {})", chunk * 100 + row)).collect();
        steps.push((format!("BEGIN UNLOGGED BATCH {} APPLY BATCH", rows.join("; ")), "void".into()));
    }
    let all: Vec<String> = (0..1200).map(|row| row.to_string()).collect();
    let back: Vec<String> = all.iter().rev().cloned().collect();
    steps.push(("SELECT c FROM t WHERE k = 1".into(), all.join(" ")));
    steps.push(("SELECT c FROM t WHERE k = 1 ORDER BY c DESC".into(), back.join(" ")));
    steps.push((
        "SELECT c FROM t WHERE k = 1 AND c >= 100 AND c < 900 LIMIT 700".into(),
        all[100..800].join(" "),
    ));
    steps.push(("SELECT count(*) FROM t WHERE k = 1".into(), "1200".into()));
    let steps: Vec<(&str, &str)> = steps.iter().map(|(text, answer)| (&text[..], &answer[..])).collect();
    check(&steps);
}
