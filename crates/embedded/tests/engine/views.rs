//! Materialized views over restarts, crashes, other numbers of cores, and time.

use testkit::{Folder, KEYSPACE};

use crate::indexes::{session, session_at};

const VIEW: &str = "CREATE MATERIALIZED VIEW m AS SELECT * FROM t WHERE v IS NOT NULL AND k IS NOT NULL AND \
                    c IS NOT NULL PRIMARY KEY (v, k, c)";

const ROWS: &[&str] = &[
    KEYSPACE,
    "CREATE TABLE t (k int, c int, v int, PRIMARY KEY (k, c))",
    "INSERT INTO t (k, c, v) VALUES (0, 0, 7)",
    "INSERT INTO t (k, c, v) VALUES (0, 1, 8)",
    "INSERT INTO t (k, c, v) VALUES (1, 0, 7)",
    VIEW,
    "INSERT INTO t (k, c, v) VALUES (2, 0, 7)",
    "INSERT INTO t (k, c, v) VALUES (3, 0, 7)",
    "INSERT INTO t (k, c, v) VALUES (4, 0, 8)",
    "UPDATE t SET v = 9 WHERE k = 3 AND c = 0",
    "SELECT v, k, c FROM m",
];

const FOUND: &str = "8,0,1 8,4,0 7,0,0 7,1,0 7,2,0 9,3,0";

#[test]
fn rows_of_a_view_survive_a_crash_with_those_of_the_table() {
    let dir = Folder::new("view-crash");
    assert_eq!(session(&dir, 2, false, ROWS), FOUND);
    assert_eq!(session(&dir, 2, false, &["SELECT v, k, c FROM m"]), FOUND);
    let more = &["INSERT INTO t (k, c, v) VALUES (5, 5, 9)", "FLUSH t", "SELECT k, c FROM m WHERE v = 9"];
    assert_eq!(session(&dir, 2, false, more), "3,0 5,5");
    assert_eq!(session(&dir, 2, true, &["COMPACT t", "SELECT k, c FROM m WHERE v = 9"]), "3,0 5,5");
}

#[test]
fn another_number_of_cores_builds_views_anew() {
    let dir = Folder::new("view-reshard");
    session(&dir, 2, true, ROWS);
    for (cores, closes) in [(3, true), (1, false), (2, true), (3, false)] {
        // The definition waits for the builds of the table.
        let wait = &["CREATE INDEX IF NOT EXISTS j ON t (c)", "SELECT v, k, c FROM m"];
        let again = &["DROP INDEX j", "SELECT v, k, c FROM m"];
        assert_eq!(session(&dir, cores, closes, wait), FOUND, "{cores} cores");
        assert_eq!(session(&dir, cores, closes, again), FOUND, "{cores} cores");
    }
}

#[test]
fn view_row_expires_with_its_key_and_no_sooner() {
    let dir = Folder::new("view-life");
    let now_s = (lanes::time::unix_micros() / 1_000_000) as u32;
    session(
        &dir,
        2,
        true,
        &[
            KEYSPACE,
            "CREATE TABLE t (k int, c int, v int, w int, PRIMARY KEY (k, c))",
            VIEW,
            "CREATE MATERIALIZED VIEW n AS SELECT * FROM t WHERE k IS NOT NULL AND c IS NOT NULL \
             PRIMARY KEY (c, k)",
            "INSERT INTO t (k, c, v) VALUES (1, 0, 7) USING TTL 100",
            "INSERT INTO t (k, c, v) VALUES (2, 0, 7)",
            "UPDATE t USING TTL 5 SET w = 1 WHERE k = 2 AND c = 0",
            "INSERT INTO t (k, c, v) VALUES (3, 0, 7) USING TIMESTAMP 20",
            "INSERT INTO t (k, c, v) VALUES (3, 0, 7) USING TIMESTAMP 10 AND TTL 5",
        ],
    );
    for (query, all) in [
        ("SELECT k, w FROM m WHERE v = 7", "1,null 2,1 3,null"),
        ("SELECT k, w FROM n WHERE c = 0", "1,null 2,1 3,null"),
    ] {
        let query: &'static [&'static str] = vec![query].leak();
        assert_eq!(session_at(&dir, 2, true, None, query), all);
        assert_eq!(session_at(&dir, 2, true, Some(now_s + 50), query), "1,null 2,null 3,null");
        assert_eq!(session_at(&dir, 2, true, Some(now_s + 500), query), "2,null 3,null");
    }
}
