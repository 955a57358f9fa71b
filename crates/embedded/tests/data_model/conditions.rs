//! Writes that depend on stored data: IF of every kind, and list elements by index.

use crate::scenario::check;

const STATICS: (&str, &str) = (
    "CREATE TABLE t (k int, c int, s int static, z int static, v int, w int, PRIMARY KEY (k, c))",
    "CREATED t",
);

#[test]
fn failed_conditions_return_the_stored_values() {
    check(&[
        ("CREATE TABLE t (k int PRIMARY KEY, v int, w text)", "CREATED t"),
        ("INSERT INTO t (k, v) VALUES (1, 10) IF NOT EXISTS", "true"),
        ("INSERT INTO t (k, v) VALUES (1, 11) IF NOT EXISTS", "false,1,10,null"),
        ("UPDATE t SET v = 20 WHERE k = 1 IF v = 9", "false,10"),
        ("UPDATE t SET v = 20 WHERE k = 1 IF v = 10 AND w = null", "true"),
        ("UPDATE t SET w = 'x' WHERE k = 1 IF v > 5 AND v IN (19, 20)", "true"),
        ("UPDATE t SET w = 'y' WHERE k = 1 IF w != 'x' AND v = 1", "false,'x',20"),
        ("UPDATE t SET v = 1 WHERE k = 2 IF EXISTS", "false"),
        ("UPDATE t SET v = 1 WHERE k = 2 IF v = 3", "false"),
        ("UPDATE t SET v = 1 WHERE k = 2 IF v = null", "true"),
        ("SELECT * FROM t WHERE k IN (1, 2)", "1,20,'x' 2,1,null"),
        ("DELETE FROM t WHERE k = 1 IF v = 21", "false,20"),
        ("DELETE v FROM t WHERE k = 1 IF v = 20", "true"),
        ("DELETE FROM t WHERE k = 1 IF EXISTS", "true"),
        ("DELETE FROM t WHERE k = 1 IF EXISTS", "false"),
        ("UPDATE t SET v = 1 WHERE k = 2 IF v < null", "! Invalid comparison with null for operator \"<\""),
        ("UPDATE t SET v = 1 WHERE k = 2 IF k = 2", "! PRIMARY KEY column 'k' cannot have IF conditions"),
        (
            "UPDATE t USING TIMESTAMP 1 SET v = 1 WHERE k = 2 IF EXISTS",
            "! Cannot provide custom timestamp for conditional updates",
        ),
        (
            "UPDATE t SET v = 1 WHERE k IN (1, 2) IF EXISTS",
            "! IN on the partition key is not supported with conditional updates",
        ),
        ("INSERT INTO t (k, v) VALUES (3, 1) IF NOT EXISTS USING TTL 100", "true"),
        ("SELECT v FROM t WHERE k = 3", "1"),
    ]);
}

#[test]
fn conditions_test_collections_and_static_columns() {
    check(&[
        ("CREATE TYPE u (a int, b int)", "CREATED u"),
        (
            "CREATE TABLE t (k int, c int, s int static, m map<text, int>, l list<int>, f u, PRIMARY KEY (k, c))",
            "CREATED t",
        ),
        ("INSERT INTO t (k, c, m, l, f) VALUES (1, 1, {'a': 1}, [1, 2], {a: 5})", "void"),
        ("UPDATE t SET l = [9] WHERE k = 1 AND c = 1 IF m['a'] = 2", "false,{'a': 1}"),
        (
            "UPDATE t SET l = l + [3] WHERE k = 1 AND c = 1 IF m['a'] = 1 AND l[1] = 2 AND f.a = 5 AND m \
             CONTAINS KEY 'a' AND l CONTAINS 1",
            "true",
        ),
        ("SELECT l FROM t", "[1, 2, 3]"),
        ("UPDATE t SET m = {} WHERE k = 1 AND c = 1 IF l = [1, 2, 3]", "true"),
        ("UPDATE t SET m['x'] = 1 WHERE k = 1 AND c = 1 IF m = null", "true"),
        ("INSERT INTO t (k, s) VALUES (2, 1) IF NOT EXISTS", "true"),
        ("INSERT INTO t (k, s) VALUES (2, 2) IF NOT EXISTS", "false,2,null,1,null,null,null"),
        ("UPDATE t SET s = 3 WHERE k = 2 IF s = 1", "true"),
        ("UPDATE t SET f.b = 6 WHERE k = 1 AND c = 1 IF s = 3", "false,null"),
        ("UPDATE t SET f.b = 6 WHERE k = 1 AND c = 1 IF s = null", "true"),
        ("SELECT f, m FROM t WHERE k = 1", "{a: 5, b: 6},{'x': 1}"),
        (
            "DELETE FROM t WHERE k = 1 IF EXISTS",
            "! DELETE statements must restrict all PRIMARY KEY columns with equality relations in order to delete \
             non static columns",
        ),
    ]);
}

/// A condition on static columns alone shows the first row of the partition, as Cassandra does. A
/// column that is neither changed nor tested is not read for that, and shown as null.
#[test]
fn failed_conditions_on_static_columns_return_a_row() {
    check(&[
        STATICS,
        ("UPDATE t SET s = 1 WHERE k = 1 IF s = 5", "false"),
        ("UPDATE t SET s = 1 WHERE k = 1 IF EXISTS", "false"),
        ("DELETE s FROM t WHERE k = 1 IF EXISTS", "false"),
        ("UPDATE t SET v = 1, s = 1 WHERE k = 1 AND c = 1 IF s = 5 AND v = 5", "false"),
        // Static cells without rows.
        ("INSERT INTO t (k, s) VALUES (2, 20) IF NOT EXISTS", "true"),
        ("INSERT INTO t (k, z) VALUES (2, 21) IF NOT EXISTS", "false,2,null,20,null,null,null"),
        ("UPDATE t SET s = 1 WHERE k = 2 IF s = 5", "false,20"),
        ("UPDATE t SET s = 1 WHERE k = 2 IF z = 5", "false,null"),
        ("UPDATE t SET s = 1 WHERE k = 2 IF z = 5 AND s = 5", "false,null,20"),
        ("UPDATE t SET v = 1 WHERE k = 2 AND c = 1 IF s = 5", "false,20"),
        ("UPDATE t SET v = 1 WHERE k = 2 AND c = 1 IF z = 5", "false"),
        ("UPDATE t SET v = 1 WHERE k = 2 AND c = 1 IF v = 5", "false"),
        ("UPDATE t SET v = 1 WHERE k = 2 AND c = 1 IF s = 20 AND v = 5", "false,null,20"),
        ("UPDATE t SET v = 1 WHERE k = 2 AND c = 1 IF EXISTS", "false"),
        ("UPDATE t SET v = 1, s = 1 WHERE k = 2 AND c = 1 IF EXISTS", "false,2,null,20,null,null,null"),
        ("UPDATE t SET v = 1, s = 1 WHERE k = 2 AND c = 1 IF v = 5", "false,null"),
        ("DELETE FROM t WHERE k = 2 AND c = 1 IF EXISTS", "false"),
        ("DELETE FROM t WHERE k = 2 AND c = 1 IF s = 3", "false,20"),
        ("DELETE s, v FROM t WHERE k = 2 AND c = 1 IF EXISTS", "false,2,null,20,null,null,null"),
        ("UPDATE t SET z = 7 WHERE k = 2 IF EXISTS", "true"),
        ("DELETE z FROM t WHERE k = 2 IF z = 7", "true"),
        // Rows without static cells.
        ("INSERT INTO t (k, c, v) VALUES (3, 1, 1)", "void"),
        ("INSERT INTO t (k, c, v) VALUES (3, 2, 2)", "void"),
        ("UPDATE t SET s = 1 WHERE k = 3 IF s = 5", "false,null"),
        ("UPDATE t SET s = 1 WHERE k = 3 IF EXISTS", "false,3,1,null,null,null,null"),
        ("DELETE s FROM t WHERE k = 3 IF EXISTS", "false,3,1,null,null,null,null"),
        ("UPDATE t SET v = 9 WHERE k = 3 AND c = 7 IF s = 5", "false,null"),
        ("INSERT INTO t (k, s) VALUES (3, 30) IF NOT EXISTS", "true"),
        ("INSERT INTO t (k, z) VALUES (3, 31) IF NOT EXISTS", "false,3,1,30,null,null,null"),
        // Both.
        ("INSERT INTO t (k, c, v) VALUES (3, 1, 9) IF NOT EXISTS", "false,3,1,null,null,1,null"),
        ("INSERT INTO t (k, c, s) VALUES (3, 1, 9) IF NOT EXISTS", "false,3,1,30,null,1,null"),
        ("UPDATE t SET v = 9 WHERE k = 3 AND c = 2 IF s = 3", "false,30"),
        ("UPDATE t SET v = 9 WHERE k = 3 AND c = 2 IF s = 3 AND v = 3", "false,2,30"),
        ("UPDATE t SET v = 9 WHERE k = 3 AND c = 7 IF v = 3", "false"),
        ("UPDATE t SET v = 9, s = 9 WHERE k = 3 AND c = 7 IF v = 3", "false,null"),
        ("UPDATE t SET v = 9 WHERE k = 3 AND c = 7 IF s = 3", "false,30"),
        ("UPDATE t SET s = 31 WHERE k = 3 AND c = 2 IF v = 3", "false,2"),
        ("UPDATE t SET s = 31 WHERE k = 3 AND c = 2 IF v = 2", "true"),
        ("SELECT c, s, v FROM t WHERE k = 3", "1,31,1 2,31,2"),
        // A row that no INSERT made exists by the columns that are read.
        ("UPDATE t SET v = 1 WHERE k = 4 AND c = 1", "void"),
        ("UPDATE t SET s = 1 WHERE k = 4 IF s = 5", "false"),
        ("UPDATE t SET v = 2 WHERE k = 4 AND c = 2 IF s = 5", "false,null"),
        (
            "UPDATE t SET v = 2 WHERE k = 4 AND c = 1 IF z = 1 AND v = 5 AND s = 5 AND w = 7",
            "false,1,null,null,null",
        ),
        ("DELETE FROM t WHERE k = 4 AND c = 1 IF v = 1", "true"),
        ("UPDATE t SET v = 2 WHERE k = 4 AND c = 2 IF s = 5", "false"),
    ]);
}

#[test]
fn conditions_of_static_columns_need_no_clustering_key() {
    let misplaced = "! Invalid restrictions on clustering columns since the UPDATE statement modifies only \
                     static columns";
    check(&[
        STATICS,
        ("UPDATE t SET s = 1 WHERE k = 1 IF v = 5", "! Some clustering keys are missing: c"),
        ("UPDATE t SET s = 1 WHERE k = 1 AND c = 1 IF s = 5", misplaced),
        ("UPDATE t SET s = 1 WHERE k = 1 AND c = 1 IF EXISTS", misplaced),
        ("UPDATE t SET s = 1 WHERE k = 1 AND c = 1", misplaced),
        (
            "DELETE s FROM t WHERE k = 1 AND c = 1 IF s = 1",
            "! Invalid restrictions on clustering columns since the DELETE statement modifies only static columns",
        ),
        (
            "DELETE s FROM t WHERE k = 1 IF v = 1 AND s = 1",
            "! DELETE statements must restrict all PRIMARY KEY columns with equality relations in order to use IF \
             condition on non static columns",
        ),
        (
            "DELETE v FROM t WHERE k = 1 IF s = 1",
            "! DELETE statements must restrict all PRIMARY KEY columns with equality relations in order to delete \
             non static columns",
        ),
        ("DELETE s FROM t WHERE k = 1 AND c = 1 IF v = 1", "false"),
    ]);
}

#[test]
fn failed_batches_return_the_rows_of_their_conditions() {
    check(&[
        STATICS,
        ("INSERT INTO t (k, c, v) VALUES (5, 1, 1)", "void"),
        ("INSERT INTO t (k, c, v) VALUES (5, 2, 2)", "void"),
        (
            "BEGIN BATCH UPDATE t SET s = 1 WHERE k = 5 IF s = 5; INSERT INTO t (k, c, v) VALUES (5, 3, 3); \
             APPLY BATCH",
            "false,5,1,null",
        ),
        (
            "BEGIN BATCH UPDATE t SET s = 1 WHERE k = 5 IF s = 5; UPDATE t SET v = 3 WHERE k = 5 AND c = 2 IF v = 7; \
             APPLY BATCH",
            "false,5,2,null,2",
        ),
        (
            "BEGIN BATCH UPDATE t SET s = 1 WHERE k = 5 IF s = 5; UPDATE t SET v = 3 WHERE k = 5 AND c = 9 IF v = 7; \
             APPLY BATCH",
            "false",
        ),
        (
            "BEGIN BATCH UPDATE t SET s = 1 WHERE k = 6 IF EXISTS; INSERT INTO t (k, c, v) VALUES (6, 3, 3); \
             APPLY BATCH",
            "false",
        ),
        (
            "BEGIN BATCH INSERT INTO t (k, s) VALUES (5, 3) IF NOT EXISTS; INSERT INTO t (k, c, v) VALUES (5, 1, 3) IF \
             NOT EXISTS; APPLY BATCH",
            "false,5,1,null,null,1,null",
        ),
        (
            "BEGIN BATCH INSERT INTO t (k, s) VALUES (5, 3) IF NOT EXISTS; UPDATE t SET w = 1 WHERE k = 5 AND c = 1 IF \
             v = 1; APPLY BATCH",
            "true",
        ),
        (
            "BEGIN BATCH INSERT INTO t (k, s) VALUES (5, 3) IF NOT EXISTS; INSERT INTO t (k, c, v) VALUES (5, 4, 3) IF \
             NOT EXISTS; APPLY BATCH",
            "false,5,null,3,null,null,null",
        ),
        (
            "BEGIN BATCH INSERT INTO t (k, s) VALUES (5, 3) IF NOT EXISTS; INSERT INTO t (k, c, v) VALUES (5, 4, 3); \
             APPLY BATCH",
            "false,5,1,3,null,1,1",
        ),
        (
            "BEGIN BATCH UPDATE t SET s = 9 WHERE k = 5 IF s = 8; UPDATE t SET z = 9 WHERE k = 5 IF z = 8; APPLY BATCH",
            "false,5,1,3,null",
        ),
        (
            "BEGIN BATCH UPDATE t SET v = 9 WHERE k = 5 AND c = 8 IF s = 8; UPDATE t SET v = 9 WHERE k = 5 AND \
             c = 2 IF \
             v = 8; APPLY BATCH",
            "false,5,2,3,2",
        ),
        (
            "BEGIN BATCH UPDATE t SET v = 9 WHERE k = 5 AND c = 8 IF s = 8; UPDATE t SET v = 9 WHERE k = 5 AND \
             c = 9 IF \
             v = 8; APPLY BATCH",
            "false,5,null,3,null",
        ),
        (
            "BEGIN BATCH UPDATE t SET v = 9 WHERE k = 5 AND c = 2 IF v = 8; UPDATE t SET v = 9 WHERE k = 5 AND \
             c = 1 IF \
             w = 8; APPLY BATCH",
            "false,5,1,1,1 false,5,2,2,null",
        ),
        (
            "BEGIN BATCH UPDATE t SET s = 9 WHERE k = 5 IF EXISTS; UPDATE t SET v = 9 WHERE k = 5 AND c = 1 IF EXISTS; \
             UPDATE t SET v = 9 WHERE k = 5 AND c = 8 IF EXISTS; APPLY BATCH",
            "false,5,1,3,null,1,1",
        ),
        ("SELECT s, v FROM t WHERE k = 5", "3,1 3,2"),
    ]);
}

#[test]
fn conditions_on_one_row_must_agree() {
    let batch = |one: &str, other: &str| format!("BEGIN BATCH {one}; {other}; APPLY BATCH");
    let (exists, test) =
        ("UPDATE t SET s = 9 WHERE k = 5 IF EXISTS", "UPDATE t SET s = 9 WHERE k = 5 IF s = 9");
    let insert = "INSERT INTO t (k, s) VALUES (5, 9) IF NOT EXISTS";
    let row = "INSERT INTO t (k, c, v) VALUES (5, 1, 9) IF NOT EXISTS";
    let mixed = "! Cannot mix IF conditions and IF NOT EXISTS for the same row";
    check(&[
        STATICS,
        (&batch(test, exists), "! Cannot mix IF conditions and IF EXISTS for the same row"),
        (&batch(test, insert), mixed),
        (&batch(exists, test), mixed),
        (&batch(exists, insert), "! Cannot mix IF EXISTS and IF NOT EXISTS conditions for the same row"),
        (&batch(row, "UPDATE t SET v = 1 WHERE k = 5 AND c = 1 IF v = 1"), mixed),
        (&batch(row, "UPDATE t SET v = 1 WHERE k = 5 AND c = 1 IF s = null"), "true"),
        (&batch(insert, insert), "true"),
    ]);
}

#[test]
fn a_batch_applies_whole_or_not_at_all() {
    check(&[
        ("CREATE TABLE t (k int, c int, v int, PRIMARY KEY (k, c))", "CREATED t"),
        ("CREATE TABLE o (k int PRIMARY KEY, v int)", "CREATED o"),
        (
            "BEGIN BATCH INSERT INTO t (k, c, v) VALUES (1, 1, 1) IF NOT EXISTS; INSERT INTO t (k, c, v) \
             VALUES (1, 2, 2) APPLY BATCH",
            "true",
        ),
        (
            "BEGIN BATCH UPDATE t SET v = 9 WHERE k = 1 AND c = 1 IF v = 1; UPDATE t SET v = 9 WHERE k = \
             1 AND c = 2 IF v = 3 APPLY BATCH",
            "false,1,1,1 false,1,2,2",
        ),
        ("SELECT v FROM t", "1 2"),
        (
            "BEGIN BATCH UPDATE t SET v = 9 WHERE k = 1 AND c = 1 IF v = 1; DELETE FROM t WHERE k = 1 AND \
             c = 2 APPLY BATCH",
            "true",
        ),
        ("SELECT c, v FROM t", "1,9"),
        (
            "BEGIN BATCH UPDATE t SET v = 9 WHERE k = 1 AND c = 1 IF v = 1; INSERT INTO t (k, c) VALUES \
             (2, 2) APPLY BATCH",
            "! Batch with conditions cannot span multiple partitions",
        ),
        (
            "BEGIN BATCH UPDATE t SET v = 9 WHERE k = 1 AND c = 1 IF v = 1; INSERT INTO o (k) VALUES (1) APPLY BATCH",
            "! Batch with conditions cannot span multiple tables",
        ),
        (
            "BEGIN BATCH USING TIMESTAMP 5 UPDATE t SET v = 9 WHERE k = 1 AND c = 1 IF v = 1 APPLY BATCH",
            "! Cannot provide custom timestamp for conditional BATCH",
        ),
        // All of a batch has the time of its conditions.
        (
            "BEGIN BATCH INSERT INTO t (k, c, v) VALUES (3, 1, 1) IF NOT EXISTS; INSERT INTO t (k, c, v) \
             VALUES (3, 2, 2) USING TIMESTAMP 5 APPLY BATCH",
            "true",
        ),
        ("DELETE FROM t USING TIMESTAMP 6 WHERE k = 3", "void"),
        ("SELECT c FROM t WHERE k = 3", "1 2"),
    ]);
}

#[test]
fn lists_are_changed_by_index_and_by_value() {
    check(&[
        ("CREATE TABLE t (k int, c int, l list<text>, s list<int> static, PRIMARY KEY (k, c))", "CREATED t"),
        ("INSERT INTO t (k, c, l, s) VALUES (1, 1, ['a', 'b', 'a', 'c'], [1, 2])", "void"),
        ("UPDATE t SET l[1] = 'B', s[0] = 9 WHERE k = 1 AND c = 1", "void"),
        ("SELECT l, s FROM t", "['a', 'B', 'a', 'c'],[9, 2]"),
        ("UPDATE t SET l = l - ['a', 'z'] WHERE k = 1 AND c = 1", "void"),
        ("SELECT l FROM t", "['B', 'c']"),
        ("DELETE l[0], s[1] FROM t WHERE k = 1 AND c = 1", "void"),
        ("SELECT l, s FROM t", "['c'],[9]"),
        ("UPDATE t SET l[0] = null WHERE k = 1 AND c = 1", "void"),
        ("SELECT l FROM t", "null"),
        (
            "UPDATE t SET l[0] = 'x' WHERE k = 1 AND c = 1",
            "! Attempted to set an element on a list which is null",
        ),
        (
            "DELETE l[0] FROM t WHERE k = 1 AND c = 1",
            "! Attempted to delete an element from a list which is null",
        ),
        ("UPDATE t SET l = ['p'] WHERE k = 1 AND c = 1", "void"),
        ("UPDATE t SET l[1] = 'x' WHERE k = 1 AND c = 1", "! List index 1 out of bound, list has size 1"),
        ("UPDATE t SET l[-1] = 'x' WHERE k = 1 AND c = 1", "! List index -1 out of bound, list has size 1"),
        ("UPDATE t SET l = l - ['nothing'] WHERE k = 7 AND c = 7", "void"),
        ("SELECT k FROM t WHERE k = 7", ""),
    ]);
}
