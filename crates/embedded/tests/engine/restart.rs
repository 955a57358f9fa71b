//! Acknowledged writes after a restart: schema and rows are there, deleted data is not.

use std::path::Path;

use engine::StatementOutcome;
use lanes::Group;
use testkit::{Folder, KEYSPACE, Setup, close_engines, run};

/// Opens the folder on one core, runs the statements, and closes it. Returns the rows of the last
/// one.
fn session(dir: &Path, statements: &'static [&'static str]) -> Vec<Vec<Option<Vec<u8>>>> {
    let lanes = Setup::new(1).dir(Some(dir)).start();
    let rows = lanes.block_on(0, Group::CONTROL, move || async move {
        let mut last = Vec::new();
        for text in statements {
            let owned =
                |row: Vec<Option<&[u8]>>| row.into_iter().map(|cell| cell.map(<[u8]>::to_vec)).collect();
            last = match run(&testkit::engine(), text).await.expect(text) {
                StatementOutcome::Rows(rows) => rows.decoded().into_iter().map(owned).collect(),
                _ => Vec::new(),
            };
        }
        last
    });
    close_engines(&lanes);
    lanes.shutdown();
    rows
}

#[test]
fn schema_and_rows_survive_a_restart() {
    let dir = Folder::new("restart");
    session(
        &dir,
        &[
            KEYSPACE,
            "CREATE TABLE t (k int PRIMARY KEY, v text)",
            "INSERT INTO t (k, v) VALUES (1, 'one')",
            "INSERT INTO t (k, v) VALUES (2, 'two')",
            "DELETE FROM t WHERE k = 2",
        ],
    );
    let rows = session(&dir, &["INSERT INTO t (k, v) VALUES (3, 'three')", "SELECT v FROM t WHERE k = 1"]);
    assert_eq!(rows, [[Some(b"one".to_vec())]]);
    let rows = session(&dir, &["ALTER TABLE t ADD w int", "SELECT count(*) FROM t"]);
    assert_eq!(rows, [[Some(2i64.to_be_bytes().to_vec())]], "two rows, without the deleted one");
}

/// The log records a counter's total, so that a replay counts nothing twice.
#[test]
fn replay_restores_counters_and_elements() {
    let dir = Folder::new("replay");
    session(
        &dir,
        &[
            KEYSPACE,
            "CREATE TABLE n (k int PRIMARY KEY, n counter)",
            "CREATE TABLE l (k int PRIMARY KEY, l list<int>)",
            "UPDATE n SET n = n + 40 WHERE k = 1",
            "UPDATE n SET n = n + 2 WHERE k = 1",
            "INSERT INTO l (k, l) VALUES (1, [7])",
        ],
    );
    let rows = session(&dir, &["UPDATE n SET n = n + 1 WHERE k = 1", "SELECT n FROM n"]);
    assert_eq!(rows, [[Some(43i64.to_be_bytes().to_vec())]]);
    let rows = session(&dir, &["UPDATE l SET l = l + [8] WHERE k = 1", "SELECT l FROM l"]);
    let list = [7i32.to_be_bytes(), 8i32.to_be_bytes()];
    let list = schema::value::encode_list(list.iter().map(|element| &element[..]));
    assert_eq!(rows, [[Some(list)]]);
}

/// Keys from before `ALTER TYPE ... ADD` in files and in the log are the keys of later writes.
#[test]
fn keys_of_an_altered_type_survive_flush_and_restart() {
    let dir = Folder::new("altered-type");
    session(
        &dir,
        &[
            KEYSPACE,
            "CREATE TYPE u (a int)",
            "CREATE TABLE t (k int, c frozen<u>, s set<frozen<u>>, PRIMARY KEY (k, c))",
            "INSERT INTO t (k, c, s) VALUES (1, {a: 1}, {{a: 5}})",
            "FLUSH t",
            "INSERT INTO t (k, c, s) VALUES (1, {a: 2}, {{a: 6}})",
        ],
    );
    session(&dir, &["ALTER TYPE u ADD b int", "UPDATE t SET s = s + {{a: 5}} WHERE k = 1 AND c = {a: 1}"]);
    let int = |n: i32| n.to_be_bytes();
    let value = |a: i32, b: Option<i32>| {
        let (a, b) = (int(a), b.map(int));
        schema::value::encode_tuple([Some(&a[..]), b.as_ref().map(|b| &b[..])].into_iter())
    };
    let set = |of: &[Vec<u8>]| schema::value::encode_list(of.iter().map(Vec::as_slice));
    let update = "UPDATE t SET s = s + {{a: 6, b: 1}} WHERE k = 1 AND c = {a: 2}";
    for last in [&["SELECT c, s FROM t"][..], &["COMPACT TABLE t", "SELECT c, s FROM t"]] {
        let rows = session(&dir, Box::leak([&[update], last].concat().into_boxed_slice()));
        let expected = [
            [Some(value(1, None)), Some(set(&[value(5, None)]))],
            [Some(value(2, None)), Some(set(&[value(6, None), value(6, Some(1))]))],
        ];
        assert_eq!(rows, expected);
    }
}
