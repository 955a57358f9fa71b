//! Acknowledged writes after a restart: schema and rows are there, deleted data is not.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use embedded::Embedded;
use engine::{Engine, Outcome, Request};
use lanes::{Config, Group, Lanes};

/// Opens the folder on one core, runs the statements, and closes it. Returns the rows of the last
/// one.
fn session(dir: &Path, statements: &'static [&'static str]) -> Vec<Vec<Option<Vec<u8>>>> {
    let lanes = Lanes::start(Config { cores: vec![0], pin: false, ..Config::detect() }).expect("lanes start");
    let dir = dir.to_owned();
    let rows = lanes.block_on(0, Group::CONTROL, move || async move {
        let engine = Embedded::open(storage::Options::in_dir(dir, 0, 1)).await.expect("opens");
        let mut last = Vec::new();
        for text in statements {
            last = run(&engine, text).await;
        }
        engine.shutdown().await.expect("closes");
        last
    });
    lanes.shutdown();
    rows
}

async fn run(engine: &Rc<Embedded>, text: &str) -> Vec<Vec<Option<Vec<u8>>>> {
    let statement = Rc::new(cql::parse(text).expect("parses"));
    let plan = engine.prepare(statement, Some("ks")).expect("prepares");
    match engine.execute(&plan, &Request::EMPTY).outcome(&**engine).await.expect("runs") {
        Outcome::Rows(rows) => {
            let owned =
                |row: Vec<Option<&[u8]>>| row.into_iter().map(|cell| cell.map(<[u8]>::to_vec)).collect();
            rows.decoded().into_iter().map(owned).collect()
        }
        _ => Vec::new(),
    }
}

fn folder(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("fairlane-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    dir
}

#[test]
fn schema_and_rows_survive_a_restart() {
    let dir = folder("restart");
    session(
        &dir,
        &[
            "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
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
    std::fs::remove_dir_all(&dir).expect("removed");
}

/// The log records a counter's total, so that a replay counts nothing twice.
#[test]
fn replay_restores_counters_and_elements() {
    let dir = folder("replay");
    session(
        &dir,
        &[
            "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
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
    std::fs::remove_dir_all(&dir).expect("removed");
}
