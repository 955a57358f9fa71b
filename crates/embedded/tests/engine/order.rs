//! Rows of several partitions as one ordered result, and the partitions and rows that belong to it.

use crate::common::run;

const KEYSPACE: &str =
    "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";

/// Checks the results of the last statements of a script, on one core and on three.
fn check(page: Option<u32>, steps: &str, questions: &[(&str, &str)]) {
    let all = questions.iter().fold(format!("{KEYSPACE};\n{steps}"), |all, (text, _)| all + ";\n" + text);
    let script: &'static str = Box::leak(all.into_boxed_str());
    for cores in [1, 3] {
        let answers = run(cores, page, script);
        let answers = &answers[answers.len() - questions.len()..];
        for ((text, expected), answer) in questions.iter().zip(answers) {
            assert_eq!(answer, expected, "{text}, on {cores} cores, pages of {page:?}");
        }
    }
}

const CANNOT_PAGE: &str = "! Cannot page queries with both ORDER BY and a IN restriction on the partition \
key; you must \
                           either remove the ORDER BY or the IN and sort client side, or disable paging for this query";

/// Returns statements for ten partitions of ten rows each, whose rows interleave.
fn interleaved() -> String {
    let mut steps = String::from("CREATE TABLE t (k int, c int, d int, s int static, PRIMARY KEY (k, c, d))");
    for k in 0..10 {
        for n in 0..10 {
            steps += &format!(";\nINSERT INTO t (k, c, d) VALUES ({k}, {}, {k})", n * 10 + k);
        }
    }
    steps
}

#[test]
fn rows_of_several_partitions_come_in_one_order() {
    let every: Vec<String> = (0..100).map(|c: i32| c.to_string()).collect();
    let backwards: Vec<String> = every.iter().rev().cloned().collect();
    let all = "SELECT c FROM t WHERE k IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9) ORDER BY c";
    check(
        None,
        &interleaved(),
        &[
            (all, &every.join(" ")),
            (&format!("{all} DESC"), &backwards.join(" ")),
            (&format!("{all} LIMIT 7"), &every[..7].join(" ")),
            (&format!("{all} DESC, d DESC LIMIT 7"), &backwards[..7].join(" ")),
            ("SELECT c FROM t WHERE k IN (3, 1, 2) ORDER BY c DESC LIMIT 3", "93 92 91"),
            ("SELECT c FROM t WHERE k IN (1, 2) AND c > 50 ORDER BY c LIMIT 3", "51 52 61"),
            ("SELECT c FROM t WHERE k IN (1, 2) ORDER BY c PER PARTITION LIMIT 2", "1 2 11 12"),
            ("SELECT count(*) FROM t WHERE k IN (1, 2) ORDER BY c", "20"),
        ],
    );
}

#[test]
fn sorted_result_that_may_exceed_a_page_is_rejected() {
    check(
        Some(2),
        &interleaved(),
        &[
            ("SELECT c FROM t WHERE k IN (1, 2) ORDER BY c", CANNOT_PAGE),
            ("SELECT c FROM t WHERE k IN (1, 2) ORDER BY c LIMIT 3", CANNOT_PAGE),
            ("SELECT c FROM t WHERE k IN (1, 2) ORDER BY c DESC LIMIT 2", "92 91"),
            ("SELECT c FROM t WHERE k IN (1, 1) ORDER BY c LIMIT 3", "1 11 21"),
            ("SELECT count(*) FROM t WHERE k IN (1, 2) ORDER BY c", "20"),
        ],
    );
}

/// ORDER BY names a part of the clustering key, which is descending on disk, and rows are equal in
/// it.
#[test]
fn equal_rows_stay_in_the_order_of_their_partitions() {
    let steps = "CREATE TABLE t (k int, c int, d int, s int static, PRIMARY KEY (k, c, d)) WITH \
    CLUSTERING ORDER BY (c DESC, d ASC);
        INSERT INTO t (k, c, d) VALUES (1, 5, 9); INSERT INTO t (k, c, d) VALUES (1, 5, 10);
        INSERT INTO t (k, c, d) VALUES (2, 5, 1); INSERT INTO t (k, c, d) VALUES (2, 7, 1);
        INSERT INTO t (k, s) VALUES (3, 1)"
        .replace("; INSERT", ";\nINSERT");
    // In token order 3 is after 2, and 2 after 1.
    check(
        None,
        &steps,
        &[
            ("SELECT k FROM t WHERE k IN (1, 2, 3) AND c = 5 ORDER BY c DESC", "1 1 2"),
            ("SELECT k, c, d FROM t WHERE k IN (1, 2) ORDER BY c DESC", "2,7,1 1,5,9 1,5,10 2,5,1"),
            ("SELECT k, c, d FROM t WHERE k IN (1, 2) ORDER BY c ASC", "1,5,10 1,5,9 2,5,1 2,7,1"),
            ("SELECT k, c FROM t WHERE k IN (1, 2, 3) ORDER BY c DESC LIMIT 2", "3,null 2,7"),
            ("SELECT k, c FROM t WHERE k IN (2, 3) ORDER BY c ASC", "2,5 2,7 3,null"),
        ],
    );
}

#[test]
fn token_bounds_apply_in_addition_to_the_key() {
    let steps =
        "CREATE TABLE t (k int PRIMARY KEY, v int);\nCREATE TABLE w (k int, c int, PRIMARY KEY (k, c));
        INSERT INTO t (k, v) VALUES (1, 10);\nINSERT INTO w (k, c) VALUES (1, 10);
        INSERT INTO t (k, v) VALUES (2, 20)";
    for page in [None, Some(1)] {
        check(
            page,
            &steps.replace(";\n        ", ";\n"),
            &[
                ("SELECT v FROM t WHERE k = 1 AND token(k) > 9223372036854775806", ""),
                ("SELECT v FROM t WHERE k = 1 AND token(k) > -9223372036854775808", "10"),
                ("SELECT c FROM w WHERE k = 1 AND c = 10 AND token(k) > 9223372036854775806", ""),
                // Their tokens are -4069959284402364209 and -3248873570005575792.
                ("SELECT v FROM t WHERE k IN (1, 2) AND token(k) <= -4000000000000000000", "10"),
                ("SELECT v FROM t WHERE k IN (1, 2) AND token(k) = -3248873570005575792", "20"),
                ("SELECT count(*) FROM t WHERE k IN (1, 2) AND token(k) = -3248873570005575792", "1"),
            ],
        );
    }
}

#[test]
fn cells_of_dropped_static_columns_do_not_count() {
    let steps = "CREATE TABLE t (k int, c int, v int, s int static, z int static, PRIMARY KEY (k, c));
        INSERT INTO t (k, s) VALUES (1, 1);
        INSERT INTO t (k, c, v) VALUES (2, 1, 1);
        INSERT INTO t (k, z) VALUES (3, 1);
        UPDATE t SET s = 1, v = 2 WHERE k = 4 AND c = 1;
        UPDATE t SET z = 1 WHERE k = 4;
        ALTER TABLE t DROP s;
        ALTER TABLE t DROP v"
        .replace(";\n        ", ";\n");
    check(
        None,
        &steps,
        &[
            ("SELECT * FROM t WHERE k = 1", ""),
            ("SELECT DISTINCT k FROM t WHERE k = 1", ""),
            ("SELECT k, c FROM t WHERE k = 2", "2,1"),
            // Row and static cells: the row had only cells of dropped columns.
            ("SELECT * FROM t WHERE k = 4", "4,null,1"),
            ("SELECT k FROM t WHERE k IN (1, 3)", "3"),
            ("SELECT count(*) FROM t", "3"),
            ("UPDATE t SET z = 1 WHERE k = 1 IF EXISTS", "false"),
            ("INSERT INTO t (k, z) VALUES (1, 5) IF NOT EXISTS", "true"),
            ("INSERT INTO t (k, z) VALUES (1, 5) IF NOT EXISTS", "false,1,null,5"),
        ],
    );
}

/// The order was that of the tokens.
#[test]
fn partitions_of_an_in_come_in_the_order_of_their_keys() {
    let rows = |table: &str, columns: &str, rows: &[&str]| {
        let insert = |row: &&str| format!(";\nINSERT INTO {table} ({columns}) VALUES ({row})");
        rows.iter().map(insert).collect::<String>()
    };
    let steps = [
        "CREATE TABLE i (k int, c int, s int static, PRIMARY KEY (k, c))".to_owned(),
        rows("i", "k, c", &["1, 1", "1, 2", "2, 1", "-3, 1", "40, 0", "300, 3"]),
        ";\nINSERT INTO i (k, s) VALUES (7, 1)".to_owned(),
        ";\nCREATE TABLE x (k text, l int, PRIMARY KEY ((k, l)))".to_owned(),
        rows("x", "k, l", &["'b', 1", "'b', -1", "'aa', 1", "'aa', 200", "'aa', 7"]),
        ";\nCREATE TABLE d (k decimal PRIMARY KEY)".to_owned(),
        rows("d", "k", &["1E+1", "9", "-0.5", "0"]),
    ]
    .concat();
    let keys = "k IN (300, 7, 1, -3, 2, 40, 1, 5)";
    for page in [None, Some(1), Some(2), Some(3)] {
        check(
            page,
            &steps,
            &[
                (&format!("SELECT k, c FROM i WHERE {keys}"), "-3,1 1,1 1,2 2,1 7,null 40,0 300,3"),
                (&format!("SELECT DISTINCT k FROM i WHERE {keys}"), "-3 1 2 7 40 300"),
                (&format!("SELECT k, c FROM i WHERE {keys} LIMIT 3"), "-3,1 1,1 1,2"),
                (
                    &format!("SELECT k, c FROM i WHERE {keys} PER PARTITION LIMIT 1"),
                    "-3,1 1,1 2,1 7,null 40,0 300,3",
                ),
                (&format!("SELECT k, c FROM i WHERE {keys} AND c IN (2, 1)"), "-3,1 1,1 1,2 2,1"),
                (
                    "SELECT k, l FROM x WHERE k IN ('b', 'aa') AND l IN (1, 200, -1, 7)",
                    "'aa',1 'aa',7 'aa',200 'b',-1 'b',1",
                ),
                ("SELECT l FROM x WHERE k = 'aa' AND l IN (200, 7, 1)", "1 7 200"),
                ("SELECT k FROM d WHERE k IN (9, 1E+1, 0, -0.5)", "-0.5 0 9 1E+1"),
            ],
        );
    }
    check(
        None,
        &steps,
        &[(&format!("SELECT k, c FROM i WHERE {keys} ORDER BY c"), "7,null 40,0 -3,1 1,1 2,1 1,2 300,3")],
    );
}
