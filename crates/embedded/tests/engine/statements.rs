//! Statements on the engine in memory, on one core and on three, with their results row by row.

use crate::common::run;

/// Checks that the results are the same on one core and on three, unpaged and in pages of two.
fn check(script: &'static str, expected: &[&str]) {
    for cores in [1, 3] {
        for page in [None, Some(2)] {
            assert_eq!(run(cores, page, script), expected, "on {cores} cores, pages of {page:?}");
        }
    }
}

#[test]
fn rows_of_a_partition_are_read_in_order_and_by_slices() {
    check(
        "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1};
         CREATE TABLE t (p int, c int, d text, v int, s int static, PRIMARY KEY (p, c, d)) WITH \
         CLUSTERING ORDER BY (c DESC, d ASC);
         INSERT INTO t (p, c, d, v) VALUES (1, 1, 'a', 11);
         INSERT INTO t (p, c, d, v) VALUES (1, 2, 'a', 12);
         INSERT INTO t (p, c, d, v) VALUES (1, 2, 'b', 13);
         INSERT INTO t (p, c, d, v) VALUES (1, 3, '', 14);
         UPDATE t SET s = 7 WHERE p = 1;
         SELECT c, d, v, s FROM t WHERE p = 1;
         SELECT v FROM t WHERE p = 1 ORDER BY c ASC;
         SELECT v FROM t WHERE p = 1 AND c >= 2;
         SELECT v FROM t WHERE p = 1 AND c < 3 AND c > 1;
         SELECT v FROM t WHERE p = 1 AND c = 2 AND d > 'a';
         SELECT v FROM t WHERE p = 1 AND c IN (3, 1);
         SELECT v FROM t WHERE p = 1 LIMIT 3;
         SELECT count(*) FROM t WHERE p = 1;
         DELETE FROM t WHERE p = 1 AND c = 2;
         SELECT v FROM t WHERE p = 1;
         DELETE v FROM t WHERE p = 1 AND c = 1 AND d = 'a';
         SELECT c, v FROM t WHERE p = 1;
         DELETE FROM t WHERE p = 1;
         SELECT v FROM t WHERE p = 1",
        &[
            "CREATED ",
            "CREATED t",
            "void",
            "void",
            "void",
            "void",
            "void",
            "3,'',14,7 2,'a',12,7 2,'b',13,7 1,'a',11,7",
            "11 13 12 14",
            "14 12 13",
            "12 13",
            "13",
            "14 11",
            "14 12 13",
            "4",
            "void",
            "14 11",
            "void",
            "3,14 1,null",
            "void",
            "",
        ],
    );
}

/// Runs on every core. A missing table is an error, and rows stay unchanged.
#[test]
fn compact_and_flush_are_statements() {
    check(
        "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1};
         CREATE TABLE t (k int PRIMARY KEY, v int);
         INSERT INTO t (k, v) VALUES (1, 2);
         FLUSH t;
         COMPACT TABLE t;
         SELECT v FROM t;
         COMPACT nowhere;
         SCRUB nowhere",
        &[
            "CREATED ",
            "CREATED t",
            "void",
            "void",
            "void",
            "2",
            "! table nowhere does not exist",
            "! table nowhere does not exist",
        ],
    );
}

/// The result has a row per core.
#[test]
fn scrub_returns_saved_and_lost_data_of_each_core() {
    let script = "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1};
         CREATE TABLE t (k int PRIMARY KEY, v int);
         SCRUB TABLE t";
    let expected = "0,0,0,0,0,0,0,0,[] 1,0,0,0,0,0,0,0,[]";
    assert_eq!(run(2, None, script), ["CREATED ", "CREATED t", expected]);
}

#[test]
fn partitions_are_read_by_key_by_token_and_all() {
    check(
        "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1};
         CREATE TABLE t (a int, b text, v int, PRIMARY KEY ((a, b)));
         BEGIN BATCH INSERT INTO t (a, b, v) VALUES (1, 'x', 1); INSERT INTO t (a, b, v) VALUES (2, 'y', 2) APPLY BATCH;
         INSERT INTO t (a, b, v) VALUES (1, 'z', 3);
         SELECT count(*) FROM t;
         SELECT count(v) FROM t WHERE v > 1 ALLOW FILTERING;
         SELECT v FROM t WHERE a = 1 AND b = 'x';
         SELECT v FROM t WHERE a = 2 AND b IN ('x', 'y');
         SELECT v FROM t WHERE a = 1;
         SELECT v FROM t WHERE v = 3 ALLOW FILTERING;
         SELECT count(*) FROM t WHERE token(a, b) > -9223372036854775808;
         SELECT v FROM t WHERE a = 9 AND b = 'x';
         TRUNCATE t;
         SELECT * FROM t",
        &[
            "CREATED ", "CREATED t", "void", "void", "3", "2", "1", "2",
            "! Cannot execute this query as it might involve data filtering and thus may have unpredictable \
             performance. If you want to execute this query despite the performance unpredictability, use \
             ALLOW FILTERING",
            "3", "3", "", "void", "",
        ],
    );
}

#[test]
fn timestamps_and_expiry_decide_which_cells_live() {
    check(
        "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1};
         CREATE TABLE t (k int PRIMARY KEY, v text, w text);
         INSERT INTO t (k, v) VALUES (1, 'new') USING TIMESTAMP 20;
         INSERT INTO t (k, v, w) VALUES (1, 'old', 'w') USING TIMESTAMP 10;
         SELECT v, w, writetime(v), writetime(w), ttl(v) FROM t WHERE k = 1;
         DELETE FROM t USING TIMESTAMP 15 WHERE k = 1;
         SELECT v, w FROM t WHERE k = 1;
         INSERT INTO t (k, v) VALUES (2, 'x') USING TTL 630720001;
         UPDATE t USING TTL 100 SET v = 'y' WHERE k = 2;
         SELECT k, v FROM t WHERE k = 2;
         UPDATE t SET v = null WHERE k = 2;
         SELECT k, v FROM t WHERE k = 2",
        &[
            "CREATED ",
            "CREATED t",
            "void",
            "void",
            "'new','w',20,10,null",
            "void",
            "'new',null",
            "! ttl is too large. requested (630720001) maximum (630720000)",
            "void",
            "2,'y'",
            "void",
            "",
        ],
    );
}

#[test]
fn invalid_statements_are_rejected_with_a_reason() {
    check(
        "CREATE TABLE ks.t (k int PRIMARY KEY);
         CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1};
         CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1};
         CREATE KEYSPACE IF NOT EXISTS ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1};
         CREATE TABLE t (k counter, v int, PRIMARY KEY (k));
         CREATE TABLE t (k int, v int, PRIMARY KEY (k));
         INSERT INTO t (k, v) VALUES ('a', 1);
         INSERT INTO t (v) VALUES (1);
         INSERT INTO t (k, v) VALUES (1, 1) IF NOT EXISTS USING TIMESTAMP 1;
         UPDATE t SET v = v + 1 WHERE k = 1;
         SELECT nope FROM t;
         SELECT * FROM nope;
         ALTER TABLE t ADD w text;
         ALTER TABLE t DROP v;
         SELECT * FROM t;
         DROP TABLE t;
         DROP TABLE IF EXISTS t;
         DROP KEYSPACE ks;
         SELECT * FROM t",
        &[
            "! Keyspace 'ks' doesn't exist", "CREATED ", "! Cannot add existing keyspace \"ks\"", "void",
            "! counter type is not supported for PRIMARY KEY column 'k'", "CREATED t",
            "! Invalid STRING constant (a) for \"k\" of type int", "! Some partition key parts are missing: k",
            "! Cannot provide custom timestamp for conditional updates",
            "! Invalid operation (v = v + 1) for non counter column v",
            "! Undefined column name nope in table ks.t", "! table nope does not exist",
            "UPDATED t", "UPDATED t", "", "DROPPED t", "void", "DROPPED ", "! keyspace ks does not exist",
        ],
    );
}

#[test]
fn batch_or_each_of_its_statements_has_a_timestamp() {
    check(
        "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1};
         CREATE TABLE t (k int PRIMARY KEY, v int);
         BEGIN BATCH USING TIMESTAMP 10 INSERT INTO t (k, v) VALUES (1, 1); INSERT INTO t (k, v) VALUES \
         (2, 2) APPLY BATCH;
         BEGIN BATCH USING TIMESTAMP 9 INSERT INTO t (k, v) VALUES (1, 3); DELETE FROM t WHERE k = 2 APPLY BATCH;
         SELECT k, v, writetime(v) FROM t WHERE k IN (1, 2);
         BEGIN BATCH USING TIMESTAMP 9 INSERT INTO t (k, v) VALUES (1, 3) USING TIMESTAMP 8 APPLY BATCH;
         BEGIN BATCH INSERT INTO t (k, v) VALUES (1, 4) USING TIMESTAMP 11; UPDATE t USING TIMESTAMP 12 \
         SET v = 5 WHERE k = 2 APPLY BATCH;
         SELECT k, v, writetime(v) FROM t WHERE k IN (1, 2)",
        &[
            "CREATED ", "CREATED t", "void", "void", "1,1,10 2,2,10",
            "! Timestamp must be set either on BATCH or individual statements",
            "void", "1,4,11 2,5,12",
        ],
    );
}
