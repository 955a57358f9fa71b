//! Saved graphs over restarts and crashes, and graphs at the limit of memory.
#![expect(clippy::disallowed_methods, reason = "tests read and damage saved graphs from outside the lanes")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use embedded::Embedded;
use engine::Value;
use lanes::Group;
use storage::{Event, EventSink};
use testkit::{Folder, KEYSPACE, Random, Setup, close_engines, engine};

use crate::nearest::{distance, graphs_are_made, metric, run, serialized};

const DIMENSION: usize = 8;

const INDEX: &str = "CREATE INDEX v ON t (v) USING 'sai' WITH OPTIONS = {'similarity_function': 'euclidean'}";

/// Versions of rows by their key.
type Rows = BTreeMap<i32, u64>;

/// Opens engines and does some work. Then closes them, or ends as in a crash.
fn session<T, F>(setup: Setup, closes: bool, work: impl FnOnce(Rc<Embedded>) -> F + Send + 'static) -> T
where
    T: Send + 'static,
    F: Future<Output = T> + 'static,
{
    let lanes = setup.start();
    let done = lanes.block_on(0, Group::CONTROL, move || work(engine()));
    if closes {
        close_engines(&lanes);
    }
    lanes.shutdown();
    done
}

fn setup(dir: &Path, cores: usize) -> Setup {
    Setup::new(cores).dir(Some(dir))
}

/// Creates a table with an index, and closes the folder.
fn fill(dir: &Path, cores: usize, rows: &Rows) {
    let rows = rows.clone();
    session(setup(dir, cores), true, move |engine| async move {
        run(&engine, KEYSPACE, &[]).await;
        let table = format!("CREATE TABLE t (k int PRIMARY KEY, v vector<float, {DIMENSION}>)");
        run(&engine, &table, &[]).await;
        run(&engine, INDEX, &[]).await;
        write(&engine, &rows).await;
        check(&engine, &rows).await;
    });
}

fn vector_of(key: i32, version: u64) -> Vec<f32> {
    let mut random = Random::new(version << 32 | key as u64);
    (0..DIMENSION).map(|_| (random.fraction() * 4.0 - 2.0) as f32).collect()
}

async fn write(engine: &Rc<Embedded>, rows: &Rows) {
    for (key, version) in rows {
        let (key, vector) = (key.to_be_bytes(), serialized(&vector_of(*key, *version)));
        run(engine, "INSERT INTO t (k, v) VALUES (?, ?)", &[Value::Bytes(&key), Value::Bytes(&vector)]).await;
    }
}

/// Checks answers of graphs that have all rows against exact ones.
async fn check(engine: &Rc<Embedded>, rows: &Rows) {
    graphs_are_made().await;
    let exact = metric("fairlane_vector_searches_exact_total").await;
    for seed in 0..8 {
        let query = vector_of(-1, seed);
        let mut expected: Vec<(f32, String)> = rows
            .iter()
            .map(|(key, version)| (distance(&vector_of(*key, *version), &query), key.to_string()))
            .collect();
        expected.sort_by(|a, b| a.0.total_cmp(&b.0));
        let expected: Vec<String> = expected.into_iter().take(10).map(|(_, key)| key).collect();
        let text = "SELECT k FROM t ORDER BY v ANN OF ? LIMIT 10";
        let found = run(engine, text, &[Value::Bytes(&serialized(&query))]).await;
        assert_eq!(found.concat(), expected);
    }
    assert_eq!(metric("fairlane_vector_searches_exact_total").await, exact, "graphs answer");
}

/// Work of a start on the graphs of all cores.
#[derive(PartialEq, Eq, Debug)]
struct Work {
    loaded: u64,
    ignored: u64,
    inserted: u64,
    removed: u64,
}

async fn work() -> Work {
    Work {
        loaded: metric("fairlane_vector_graphs_loaded_total").await,
        ignored: metric("fairlane_vector_graphs_ignored_total").await,
        inserted: metric("fairlane_vector_graph_insertions_total").await,
        removed: metric("fairlane_vector_graph_removals_total").await,
    }
}

/// Opens the folder, checks the rows, and ends. Returns the work on the graphs.
fn start(setup: Setup, closes: bool, rows: &Rows) -> Work {
    let rows = rows.clone();
    session(setup, closes, move |engine| async move {
        check(&engine, &rows).await;
        work().await
    })
}

/// Returns the saved graphs of all cores, and other files with such names.
fn graph_files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for shard in std::fs::read_dir(dir).expect("a folder").map(|entry| entry.expect("listed").path()) {
        let is_shard = shard.file_name().is_some_and(|name| name.to_string_lossy().starts_with("shard-"));
        for path in is_shard.then(|| std::fs::read_dir(&shard).expect("a folder")).into_iter().flatten() {
            let path = path.expect("listed").path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("graph-")) {
                files.insert(path.clone(), std::fs::read(&path).expect("read"));
            }
        }
    }
    files
}

fn rows(keys: std::ops::Range<i32>) -> Rows {
    keys.map(|key| (key, 0)).collect()
}

#[test]
fn start_loads_saved_graphs_and_inserts_nothing() {
    let dir = Folder::new("graphs-load");
    let rows = rows(0..300);
    fill(&dir, 2, &rows);
    let saved = graph_files(&dir);
    assert_eq!(saved.len(), 2, "{:?}", saved.keys());
    let nothing = Work { loaded: 2, ignored: 0, inserted: 0, removed: 0 };
    for closes in [true, false, true] {
        assert_eq!(start(setup(&dir, 2), closes, &rows), nothing);
    }
    assert!(graph_files(&dir) == saved, "graphs without changes are not saved again");
}

#[test]
fn rows_changed_since_the_save_are_right_after_a_crash() {
    let dir = Folder::new("graphs-crash");
    let mut all = rows(0..300);
    fill(&dir, 2, &all);
    let mut changed: Rows = (20..50).map(|key| (key, 1)).collect();
    changed.extend(rows(300..330));
    let written = changed.clone();
    session(setup(&dir, 2), false, move |engine| async move {
        for key in 0..20i32 {
            run(&engine, "DELETE FROM t WHERE k = ?", &[Value::Bytes(&key.to_be_bytes())]).await;
        }
        write(&engine, &written).await;
    });
    all.retain(|key, _| *key >= 20);
    all.extend(changed);
    let expected = Work { loaded: 2, ignored: 0, inserted: 60, removed: 20 };
    assert_eq!(start(setup(&dir, 2), true, &all), expected);
    let nothing = Work { loaded: 2, ignored: 0, inserted: 0, removed: 0 };
    assert_eq!(start(setup(&dir, 2), true, &all), nothing);
}

#[test]
fn damaged_graph_is_ignored_and_made_anew() {
    let dir = Folder::new("graphs-damage");
    let rows = rows(0..200);
    fill(&dir, 1, &rows);
    let anew = Work { loaded: 0, ignored: 1, inserted: 200, removed: 0 };
    for part in 0..8 {
        let (path, mut bytes) = graph_files(&dir).pop_first().expect("it is saved");
        // Behind the magic number: without it the file is not one of ours.
        let at = 8 + part * (bytes.len() - 9) / 7;
        bytes[at] ^= 0x40;
        if part == 4 {
            bytes.truncate(at);
        }
        std::fs::write(&path, bytes).expect("written");
        // A crash: the file is gone, and none is saved.
        assert_eq!(start(setup(&dir, 1), false, &rows), anew, "byte {at}");
        assert!(graph_files(&dir).is_empty());
        let saved = Work { ignored: 0, ..start(setup(&dir, 1), true, &rows) };
        assert_eq!(saved, Work { loaded: 0, ignored: 0, inserted: 200, removed: 0 });
    }
}

#[test]
fn files_that_are_no_saved_graphs_are_not_touched() {
    let dir = Folder::new("graphs-foreign");
    let rows = rows(0..100);
    fill(&dir, 1, &rows);
    let (path, saved) = graph_files(&dir).pop_first().expect("it is saved");
    let beside = |name: &str| path.with_file_name(name);
    let gone = [beside(&format!("graph-{:032x}", 7)), path.with_extension("new")];
    for path in &gone {
        std::fs::write(path, &saved[..saved.len() / 2]).expect("written");
    }
    let kept = [path.clone(), beside("graph-notes"), beside(&format!("graph-{:032x}", 8))];
    for path in &kept {
        std::fs::write(path, b"a text about graphs").expect("written");
    }
    let lines = Arc::new(Mutex::new(Vec::new()));
    let sink = lines.clone();
    let sink = EventSink::new(move |event: &Event| sink.lock().expect("no panic").push(event.to_string()));
    let reporting = setup(&dir, 1).options(|options| options.event_sink = sink);
    assert_eq!(start(reporting, true, &rows), Work { loaded: 0, ignored: 1, inserted: 100, removed: 0 });
    let left = graph_files(&dir);
    assert_eq!(left.keys().collect::<Vec<_>>(), {
        let mut kept: Vec<_> = kept.iter().collect();
        kept.sort();
        kept
    });
    assert!(left.values().all(|text| text == b"a text about graphs"));
    let lines = lines.lock().expect("no panic");
    let about: Vec<_> = lines.iter().filter(|line| line.contains("was not saved")).collect();
    assert!(
        matches!(&about[..], [line] if line.contains("index=ks.v") && line.contains("move it away")),
        "{about:?}"
    );
}

#[test]
fn another_number_of_cores_makes_graphs_anew() {
    let dir = Folder::new("graphs-cores");
    let rows = rows(0..200);
    fill(&dir, 2, &rows);
    for cores in [3, 2, 1] {
        let anew = Work { loaded: 0, ignored: 0, inserted: 200, removed: 0 };
        assert_eq!(start(setup(&dir, cores), true, &rows), anew, "{cores} cores");
        assert_eq!(graph_files(&dir).len(), cores);
        let nothing = Work { loaded: cores as u64, ignored: 0, inserted: 0, removed: 0 };
        assert_eq!(start(setup(&dir, cores), true, &rows), nothing, "{cores} cores");
    }
}

#[test]
fn dropped_and_truncated_indexes_leave_no_file() {
    let dir = Folder::new("graphs-drop");
    let all = rows(0..50);
    fill(&dir, 2, &all);
    let old = graph_files(&dir);
    let path = dir.path().to_owned();
    let is_gone = move |names: BTreeMap<PathBuf, Vec<u8>>| {
        let path = path.clone();
        async move {
            while graph_files(&path).keys().any(|name| names.contains_key(name)) {
                lanes::time::sleep(Duration::from_millis(1)).await;
            }
        }
    };
    let (waits, names) = (is_gone.clone(), old.clone());
    session(setup(&dir, 2), true, move |engine| async move {
        graphs_are_made().await;
        run(&engine, "TRUNCATE t", &[]).await;
        waits(names).await;
        write(&engine, &rows(100..150)).await;
        check(&engine, &rows(100..150)).await;
    });
    let new = graph_files(&dir);
    assert!(new.len() == 2 && new.keys().all(|name| !old.contains_key(name)));
    session(setup(&dir, 2), false, move |engine| async move {
        graphs_are_made().await;
        run(&engine, "DROP INDEX v", &[]).await;
        is_gone(new).await;
        run(&engine, INDEX, &[]).await;
        check(&engine, &rows(100..150)).await;
    });
    assert!(graph_files(&dir).is_empty());
}

#[test]
fn graph_is_saved_while_it_grows() {
    let dir = Folder::new("graphs-grow");
    fill(&dir, 1, &Rows::new());
    let all = rows(0..4000);
    let written = all.clone();
    let saves = session(setup(&dir, 1), false, move |engine| async move {
        write(&engine, &written).await;
        graphs_are_made().await;
        // The last one may still run.
        while metric("fairlane_vector_graph_saves_total").await < 3 {
            lanes::time::sleep(Duration::from_millis(1)).await;
        }
        metric("fairlane_vector_graph_saves_total").await
    });
    // From 1024 on, after each third more.
    assert!(saves <= 6, "{saves}");
    let Work { loaded, ignored, inserted, removed } = start(setup(&dir, 1), true, &all);
    assert_eq!((loaded, ignored, removed), (1, 0, 0));
    assert!(inserted < 4000 - 1024, "{inserted}");
}

#[test]
fn full_graph_returns_when_its_rows_fit_again() {
    const WIDE: usize = 256;
    let lines = Arc::new(Mutex::new(Vec::new()));
    let sink = lines.clone();
    let sink = EventSink::new(move |event: &Event| sink.lock().expect("no panic").push(event.to_string()));
    let setup = Setup::new(1).options(|options| {
        options.cache_bytes = 1 << 20;
        options.event_sink = sink;
    });
    session(setup, false, |engine| async move {
        run(&engine, KEYSPACE, &[]).await;
        for table in ["t", "u"] {
            let create = format!("CREATE TABLE {table} (k int PRIMARY KEY, v vector<float, {WIDE}>)");
            run(&engine, &create, &[]).await;
            run(&engine, &format!("CREATE INDEX {table}_v ON {table} (v) USING 'sai'"), &[]).await;
        }
        let mut random = Random::new(5);
        let mut fill = async |table: &str, is_full: u64| {
            let mut rows = 0;
            while metric("fairlane_vector_graphs_full").await < is_full {
                for _ in 0..20 {
                    let vector: Vec<f32> = (0..WIDE).map(|_| random.fraction() as f32).collect();
                    let (key, vector) = (i32::to_be_bytes(rows), serialized(&vector));
                    let values = [Value::Bytes(&key), Value::Bytes(&vector)];
                    run(&engine, &format!("INSERT INTO {table} (k, v) VALUES (?, ?)"), &values).await;
                    rows += 1;
                }
                while metric("fairlane_vector_queue_rows").await > 0 {
                    lanes::time::sleep(Duration::from_millis(1)).await;
                }
            }
            rows
        };
        let is_ready = async || {
            while metric("fairlane_vector_graphs_ready").await < metric("fairlane_vector_graphs").await {
                lanes::time::sleep(Duration::from_millis(1)).await;
            }
        };
        // Partitions go: half of them fit.
        let rows = fill("t", 1).await;
        for key in (0..rows).filter(|key| key % 2 == 0) {
            run(&engine, "DELETE FROM t WHERE k = ?", &[Value::Bytes(&key.to_be_bytes())]).await;
        }
        is_ready().await;
        let bytes = metric("fairlane_vector_graph_bytes").await;
        assert!(bytes > 0 && bytes <= 1 << 20, "{bytes}");
        // Another index goes.
        fill("u", 1).await;
        run(&engine, "DROP INDEX t_v", &[]).await;
        is_ready().await;
        assert_eq!(metric("fairlane_vector_graphs_ready").await, 1);
        assert!(metric("fairlane_vector_graphs_freed_total").await >= 2);
    });
    let lines = lines.lock().expect("no panic");
    let freed = |index: &str| lines.iter().find(|line| line.contains(&format!("index=ks.{index} "))).cloned();
    for index in ["t_v", "u_v"] {
        let line = freed(index).expect("it is reported");
        assert!(line.contains("--memory") && line.contains("limit_bytes=1048576"), "{line}");
    }
}
