//! Virtual tables about work on files.

use testkit::Folder;

use crate::common::run;

#[test]
fn compaction_history_shows_compactions_of_a_table() {
    let dir = Folder::new("seen");
    let script = "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1};
         CREATE TABLE t (k int PRIMARY KEY, v int);
         INSERT INTO t (k, v) VALUES (1, 1);
         FLUSH t;
         INSERT INTO t (k, v) VALUES (1, 2);
         INSERT INTO t (k, v) VALUES (2, 2);
         COMPACT t;
         SELECT keyspace_name, columnfamily_name, rows_merged, compaction_properties FROM system.compaction_history
             WHERE columnfamily_name = 't' ALLOW FILTERING;
         SELECT count(*) FROM system_views.sstable_tasks";
    let answers = crate::common::run_in(Some(&dir), 1, None, script);
    let merged = "'ks','t',{1: 1, 2: 1},{'compaction_type': 'compaction'}";
    assert_eq!(answers[7..], [merged, "0"]);
    // An engine in memory has no files, and no compactions.
    assert_eq!(run(2, None, "SELECT id FROM system.compaction_history"), [""]);
}

/// One core has nothing to do, and finishes first.
#[test]
fn work_of_one_core_continues_when_another_has_none() {
    let dir = Folder::new("seen-cores");
    let script = "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1};
         CREATE TABLE t (k int PRIMARY KEY, v int);
         INSERT INTO t (k, v) VALUES (1, 1);
         FLUSH t;
         INSERT INTO t (k, v) VALUES (1, 2);
         COMPACT t;
         SCRUB t;
         SELECT rows_merged FROM system.compaction_history WHERE columnfamily_name = 't' ALLOW FILTERING";
    let answers = crate::common::run_in(Some(&dir), 2, None, script);
    assert_eq!(answers[5], "void");
    let mut scrubbed: Vec<&str> = answers[6].split(' ').collect();
    scrubbed.sort_unstable_by_key(|row| row.split(',').nth(1));
    assert!(scrubbed[1].contains(",1,0,0,0,0,0,0,[]"), "{scrubbed:?}");
    assert_eq!(answers[7], "{2: 1}");
}

#[test]
fn table_stats_show_files_and_the_largest_partitions() {
    let dir = Folder::new("seen-stats");
    let mut script = String::from(
        "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1};
         CREATE TABLE t (p int, c int, v text, PRIMARY KEY (p, c)) WITH compression = {'enabled': false};
         TRUNCATE t;
         INSERT INTO t (p, c, v) VALUES (1, 1, 'small');\n",
    );
    let wide = "x".repeat(2000);
    (0..100).for_each(|c| script += &format!("INSERT INTO t (p, c, v) VALUES (2, {c}, '{wide}');\n"));
    script += "FLUSH t;
         SELECT v FROM t WHERE p = 1 AND c = 1;
         SELECT files, runs, rows, runs_per_read_max, reads, backlog_bytes FROM system.table_stats
             WHERE keyspace_name = 'ks' AND table_name = 't';
         SELECT rank, partition, files FROM system.largest_partitions WHERE keyspace_name = 'ks'";
    let answers = crate::common::run_in(Some(&dir), 1, None, script.leak());
    let seen = &answers[answers.len() - 3..];
    assert_eq!(seen, ["'small'", "1,1,101,1,0,0", "1,'2',1"]);
}
