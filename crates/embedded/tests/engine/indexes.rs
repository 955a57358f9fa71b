//! Indexes over restarts, crashes, other numbers of cores, and time.

use std::path::Path;
use std::sync::Arc;

use engine::{Engine, ParsedTree, Request, StatementOutcome};
use lanes::Group;
use testkit::{Folder, KEYSPACE, Setup, close_engines, engine, texts};

/// Opens the folder on some cores and runs the statements. Returns the rows of the last one as
/// text. Without `closes` the server ends as in a crash.
pub(crate) fn session(dir: &Path, cores: usize, closes: bool, statements: &'static [&'static str]) -> String {
    session_at(dir, cores, closes, None, statements)
}

pub(crate) fn session_at(
    dir: &Path,
    cores: usize,
    closes: bool,
    now_s: Option<u32>,
    statements: &'static [&'static str],
) -> String {
    let lanes = Setup::new(cores).dir(Some(dir)).start();
    let answer = lanes.block_on(0, Group::CONTROL, move || async move {
        let engine = engine();
        let mut last = String::new();
        for text in statements {
            let statement = ParsedTree::parse(text).expect(text);
            let plan = engine.prepare(Arc::new(statement), Some("ks")).expect(text);
            let request = Request { now_s, ..Request::EMPTY };
            last = match engine.execute(&plan, &request).outcome(&*engine).await.expect(text) {
                StatementOutcome::Rows(rows) => {
                    texts(&rows).iter().map(|row| row.join(",")).collect::<Vec<_>>().join(" ")
                }
                _ => String::new(),
            };
        }
        last
    });
    if closes {
        close_engines(&lanes);
    }
    lanes.shutdown();
    answer
}

const ROWS: &[&str] = &[
    KEYSPACE,
    "CREATE TABLE t (k int, c int, v int, PRIMARY KEY (k, c))",
    "INSERT INTO t (k, c, v) VALUES (0, 0, 7)",
    "INSERT INTO t (k, c, v) VALUES (0, 1, 8)",
    "INSERT INTO t (k, c, v) VALUES (1, 0, 7)",
    "CREATE INDEX ON t (v)",
    "INSERT INTO t (k, c, v) VALUES (2, 0, 7)",
    "INSERT INTO t (k, c, v) VALUES (3, 0, 7)",
    "INSERT INTO t (k, c, v) VALUES (4, 0, 8)",
    "UPDATE t SET v = 9 WHERE k = 3 AND c = 0",
    "SELECT k, c FROM t WHERE v = 7",
];

#[test]
fn entries_survive_a_crash_with_their_rows() {
    let dir = Folder::new("index-crash");
    assert_eq!(session(&dir, 2, false, ROWS), "1,0 0,0 2,0");
    assert_eq!(session(&dir, 2, false, &["SELECT k, c FROM t WHERE v = 7"]), "1,0 0,0 2,0");
    let more = &["INSERT INTO t (k, c, v) VALUES (5, 5, 9)", "FLUSH t", "SELECT k, c FROM t WHERE v = 9"];
    assert_eq!(session(&dir, 2, false, more), "5,5 3,0");
    assert_eq!(session(&dir, 2, true, &["COMPACT t", "SELECT k, c FROM t WHERE v = 9"]), "5,5 3,0");
}

#[test]
fn another_number_of_cores_builds_indexes_anew() {
    let dir = Folder::new("index-reshard");
    session(&dir, 2, true, ROWS);
    let query = &["SELECT k, c FROM t WHERE v = 7 ALLOW FILTERING"];
    for (cores, closes) in [(3, true), (1, false), (2, true), (3, false)] {
        assert_eq!(session(&dir, cores, closes, query), "1,0 0,0 2,0", "{cores} cores");
        // By a second start the index is built.
        assert_eq!(session(&dir, cores, closes, query), "1,0 0,0 2,0", "{cores} cores");
    }
    let wait = &["CREATE INDEX j ON t (c)", "SELECT k, c FROM t WHERE v = 7"];
    assert_eq!(session(&dir, 3, true, wait), "1,0 0,0 2,0");
}

#[test]
fn later_write_with_a_shorter_life_hides_no_entry() {
    let dir = Folder::new("index-life");
    let now_s = (lanes::time::unix_micros() / 1_000_000) as u32;
    session(
        &dir,
        1,
        true,
        &[
            KEYSPACE,
            "CREATE TABLE t (k int PRIMARY KEY, v int)",
            "CREATE INDEX ON t (v)",
            "INSERT INTO t (k, v) VALUES (1, 7) USING TIMESTAMP 20",
            // It loses in the table, because its timestamp is lower.
            "INSERT INTO t (k, v) VALUES (1, 7) USING TIMESTAMP 10 AND TTL 5",
            "INSERT INTO t (k, v) VALUES (2, 7) USING TIMESTAMP 10 AND TTL 1000",
            "INSERT INTO t (k, v) VALUES (2, 7) USING TIMESTAMP 5 AND TTL 5",
            "INSERT INTO t (k, v) VALUES (3, 7) USING TTL 100",
        ],
    );
    let query = &["SELECT k FROM t WHERE v = 7"];
    assert_eq!(session_at(&dir, 1, true, Some(now_s + 500), query), "1 2");
    assert_eq!(session_at(&dir, 1, true, Some(now_s + 5000), query), "1");
    assert_eq!(session_at(&dir, 1, true, None, query), "1 2 3");
}
