//! Aggregates and GROUP BY: over all rows, over partitions and prefixes of the clustering key, with
//! limits, orders, static columns, and in pages of groups.

use crate::scenario::check;

const ROWS: &[(&str, &str)] = &[
    ("CREATE TABLE t (a int, b int, c int, s int static, e int, PRIMARY KEY (a, b, c))", "CREATED t"),
    ("INSERT INTO t (a, b, c, s, e) VALUES (1, 2, 1, 7, 6)", "void"),
    ("INSERT INTO t (a, b, c, e) VALUES (1, 2, 2, 12)", "void"),
    ("INSERT INTO t (a, b, c, e) VALUES (1, 3, 2, 9)", "void"),
    ("INSERT INTO t (a, b, c, e) VALUES (1, 4, 2, 24)", "void"),
    ("INSERT INTO t (a, b, c, e) VALUES (1, 4, 3, null)", "void"),
    ("INSERT INTO t (a, b, c, e) VALUES (2, 2, 3, 6)", "void"),
    ("INSERT INTO t (a, b, c, e) VALUES (2, 4, 3, 12)", "void"),
    ("UPDATE t SET s = 5 WHERE a = 4", "void"),
    ("DELETE FROM t WHERE a = 1 AND b = 3 AND c = 2", "void"),
];

/// Runs statements over the rows above.
fn check_rows(steps: &[(&str, &str)]) {
    check(&[ROWS, steps].concat());
}

#[test]
fn aggregates_stand_beside_values_of_the_first_row() {
    check_rows(&[
        ("SELECT count(*) FROM t", "7"),
        ("SELECT a, b, count(*), count(b), count(e), max(e), min(e), sum(e) FROM t", "1,2,7,6,5,24,6,60"),
        ("SELECT a, b, count(b), count(s) FROM t WHERE a = 4", "4,null,0,1"),
        ("SELECT a, count(*), max(e) FROM t WHERE a = 9", "null,0,null"),
        ("SELECT a, count(*) FROM t WHERE a IN (2, 1)", "1,6"),
        ("SELECT a, b, count(*) FROM t WHERE a = 1 ORDER BY b DESC, c DESC", "1,4,4"),
        ("SELECT a, count(*) FROM t LIMIT 1", "1,7"),
        ("SELECT DISTINCT a, s, count(a), count(s) FROM t", "1,7,3,2"),
        (
            "SELECT count(*) FROM t PER PARTITION LIMIT 1",
            "! PER PARTITION LIMIT is not allowed with aggregate queries.",
        ),
        (
            "SELECT max(count(e)) FROM t",
            "! aggregate functions cannot be used as arguments of aggregate functions",
        ),
    ]);
}

#[test]
fn groups_are_prefixes_of_the_primary_key() {
    check_rows(&[
        ("SELECT a, b, e, count(b), max(e) FROM t GROUP BY a", "1,2,6,4,24 2,2,6,2,12 4,null,null,0,null"),
        ("SELECT a, b, count(*) FROM t GROUP BY a, b", "1,2,2 1,4,2 2,2,1 2,4,1 4,null,1"),
        (
            "SELECT a, b, c, count(*) FROM t GROUP BY a, b, c",
            "1,2,1,1 1,2,2,1 1,4,2,1 1,4,3,1 2,2,3,1 2,4,3,1 4,null,null,1",
        ),
        ("SELECT a, b, c, e FROM t GROUP BY a, b", "1,2,1,6 1,4,2,24 2,2,3,6 2,4,3,12 4,null,null,null"),
        ("SELECT b, count(*) FROM t WHERE a = 1 GROUP BY b", "2,2 4,2"),
        ("SELECT c, max(e) FROM t WHERE a = 1 AND b = 2 GROUP BY c", "1,6 2,12"),
        ("SELECT DISTINCT a, s, count(a) FROM t GROUP BY a", "1,7,1 2,null,1 4,5,1"),
        ("SELECT a, count(*) FROM t WHERE a IN (4, 2, 1) GROUP BY a", "1,4 2,2 4,1"),
        ("SELECT a, b, count(*) FROM t WHERE b = 2 GROUP BY a, b ALLOW FILTERING", "1,2,2 2,2,1"),
        ("SELECT * FROM t WHERE a = 1 GROUP BY b", "1,2,1,7,6 1,4,2,7,24"),
        ("SELECT a FROM t WHERE a = 9 GROUP BY a", ""),
    ]);
}

#[test]
fn limits_count_groups() {
    check_rows(&[
        ("SELECT a, b, count(*) FROM t GROUP BY a, b LIMIT 3", "1,2,2 1,4,2 2,2,1"),
        ("SELECT a, b, count(*) FROM t GROUP BY a, b PER PARTITION LIMIT 1", "1,2,2 2,2,1 4,null,1"),
        ("SELECT a, b, count(*) FROM t GROUP BY a, b PER PARTITION LIMIT 1 LIMIT 2", "1,2,2 2,2,1"),
        ("SELECT a, count(*) FROM t GROUP BY a LIMIT 2", "1,4 2,2"),
        ("SELECT b, count(*) FROM t WHERE a = 1 GROUP BY b LIMIT 1", "2,2"),
        ("SELECT b, count(*) FROM t WHERE a IN (1, 2) GROUP BY a, b LIMIT 3", "2,2 4,2 2,1"),
        (
            "SELECT a, b, c, max(e) FROM t WHERE a = 1 GROUP BY a, b ORDER BY b DESC, c DESC LIMIT 1",
            "1,4,3,24",
        ),
    ]);
}

#[test]
fn groups_of_several_partitions_follow_the_order() {
    let rows: Vec<&str> = ROWS.iter().map(|(text, _)| *text).collect();
    let script = [testkit::KEYSPACE].into_iter().chain(rows).chain([
        "SELECT a, b, c, count(b) FROM t WHERE a IN (1, 2, 4) GROUP BY a, b ORDER BY b DESC, c DESC",
        "SELECT a, b, count(b) FROM t WHERE a IN (1, 2) GROUP BY a, b ORDER BY b DESC, c DESC LIMIT 2",
        "SELECT a, b, count(b) FROM t WHERE a IN (1, 2) ORDER BY b DESC, c DESC",
    ]);
    let script: &'static str = Box::leak(script.collect::<Vec<_>>().join(";\n").into_boxed_str());
    for cores in [1, 3] {
        let answers = crate::common::run(cores, None, script);
        let answers = &answers[ROWS.len() + 1..];
        assert_eq!(answers[1], "1,4,2 2,4,1", "{cores} cores");
        assert_eq!(answers[2], "1,4,6", "{cores} cores");
        assert!(answers[0].contains("1,4,3,2 2,4,3,1"), "{}", answers[0]);
    }
}

#[test]
fn groups_of_other_columns_are_refused() {
    let order = "! Group by currently only support groups of columns following their declared order in the PRIMARY KEY";
    check_rows(&[
        (
            "SELECT max(e) FROM t WHERE a = 1 GROUP BY a, e",
            "! Group by is currently only supported on the columns of the PRIMARY KEY, got e",
        ),
        ("SELECT max(e) FROM t WHERE a = 1 GROUP BY c", order),
        ("SELECT max(e) FROM t WHERE a = 1 GROUP BY a, c, b", order),
        ("SELECT max(e) FROM t GROUP BY a, a", order),
        ("SELECT max(e) FROM t GROUP BY b", order),
        (
            "SELECT DISTINCT a, count(a) FROM t GROUP BY a, b",
            "! Grouping on clustering columns is not allowed for SELECT DISTINCT queries",
        ),
        ("CREATE TABLE p (a int, b int, c int, PRIMARY KEY ((a, b)))", "CREATED p"),
        (
            "SELECT max(c) FROM p GROUP BY a",
            "! Group by is not supported on only a part of the partition key",
        ),
        ("SELECT max(c) FROM p GROUP BY a, b", ""),
        ("SELECT a FROM t GROUP BY z", "! Undefined column name z in table ks.t"),
    ]);
}
