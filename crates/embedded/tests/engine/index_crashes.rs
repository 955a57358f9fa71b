//! Crashes under writes to a table with indexes: after each, the indexes name exactly the rows that
//! have the value.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use embedded::Embedded;
use engine::{Engine, StatementOutcome};
use lanes::Group;
use testkit::{Folder, KEYSPACE, Random, Setup, close_engines, engine, run, texts, until};

const CRASHES: u64 = 200;

/// Statements that run at the same time until the crash.
const WRITES: u64 = 60;

/// Values of the indexed columns.
const VALUES: u64 = 6;

const TABLES: &[&str] = &[
    KEYSPACE,
    "CREATE TABLE t (k int, c int, v int, w text, m map<int, int>, s int static, PRIMARY KEY (k, c))",
    "CREATE INDEX ON t (v) USING 'sai'",
    "CREATE INDEX ON t (w)",
    "CREATE INDEX ON t (entries(m))",
    "CREATE INDEX ON t (s) USING 'sai'",
    "CREATE INDEX ON t (c) USING 'sai'",
];

fn write(random: &mut Random) -> String {
    let (k, c, v) = (random.below(8), random.below(4), random.below(VALUES));
    let insert = |k: u64, v: u64| {
        format!("INSERT INTO t (k, c, v, w, m) VALUES ({k}, {c}, {v}, 'w{v}', {{{c}: {v}}})")
    };
    match random.below(20) {
        0..8 => insert(k, v),
        8..11 => format!("UPDATE t SET v = {v} WHERE k = {k} AND c = {c}"),
        11 => format!("UPDATE t SET m[{v}] = {c}, w = null WHERE k = {k} AND c = {c}"),
        12 => format!("UPDATE t SET s = {v} WHERE k = {k}"),
        13 => format!("DELETE FROM t WHERE k = {k} AND c = {c}"),
        14 => format!("DELETE v, m FROM t WHERE k = {k} AND c = {c}"),
        15 => format!("DELETE FROM t WHERE k = {k}"),
        16 => format!("UPDATE t SET v = {v} WHERE k = {k} AND c = {c} IF w = 'w{v}'"),
        17 => format!("{} USING TTL 100000", insert(k, v)),
        _ => format!("BEGIN BATCH {}; {}; APPLY BATCH", insert(k, v), insert(k + 1, v)),
    }
}

async fn rows(engine: &Embedded, text: &str) -> Vec<String> {
    match run(engine, text).await.expect(text) {
        StatementOutcome::Rows(rows) => texts(&rows).iter().map(|row| row.join(",")).collect(),
        other => panic!("{text}: {other:?}"),
    }
}

/// Checks queries by every value against a scan of the table.
async fn check(engine: &Embedded, seed: u64) {
    let all = rows(engine, "SELECT k, c, v, w, s, m FROM t").await;
    let mut by_test: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for row in &all {
        let mut cells = row.splitn(6, ',');
        let mut next = || cells.next().expect("six columns").to_owned();
        let (k, c, v, w, s, m) = (next(), next(), next(), next(), next(), next());
        let mut add = |test: String| by_test.entry(test).or_default().push(format!("{k},{c}"));
        for value in 0..VALUES {
            if v == value.to_string() {
                add(format!("v = {value}"));
            }
            if v.parse().is_ok_and(|v: u64| v > value) {
                add(format!("v > {value}"));
            }
            if w == format!("'w{value}'") {
                add(format!("w = 'w{value}'"));
            }
            if s == value.to_string() {
                add(format!("s = {value}"));
            }
            if c == value.to_string() {
                add(format!("c = {value}"));
                if v == value.to_string() {
                    add(format!("c = {value} AND v = {value}"));
                }
            }
            for key in 0..VALUES {
                if m.contains(&format!("{key}: {value}")) {
                    add(format!("m[{key}] = {value}"));
                }
            }
        }
    }
    for (test, expected) in &by_test {
        let found = rows(engine, &format!("SELECT k, c FROM t WHERE {test}")).await;
        assert_eq!(found, *expected, "{test}, seed {seed}, of {all:?}");
    }
    for value in 0..VALUES {
        for test in [format!("v = {value}"), format!("w = 'w{value}'"), format!("s = {value}")] {
            if !by_test.contains_key(&test) {
                let found = rows(engine, &format!("SELECT k, c FROM t WHERE {test}")).await;
                assert!(found.is_empty(), "{test}, seed {seed}: {found:?}");
            }
        }
    }
}

#[test]
fn indexes_are_exact_after_each_of_200_crashes() {
    let dir = Folder::new("index-crashes");
    let mut random = Random::new(47);
    for crash in 0..CRASHES {
        let seed = random.next_u64();
        let setup = Setup::new(2).dir(Some(&dir)).options(|options| {
            // Each start prepares new segments, and memtables are flushed between the crashes.
            options.memtable_bytes_max = 64 << 10;
            options.segment_bytes = 64 << 10;
            options.record_bytes_max = 1 << 20;
        });
        let lanes = setup.start();
        lanes.block_on(0, Group::CONTROL, move || async move {
            let (engine, mut random) = (engine(), Random::new(seed));
            if crash == 0 {
                for text in TABLES {
                    run(&engine, text).await.expect(text);
                }
            }
            check(&engine, seed).await;
            if crash % 20 == 19 {
                engine.flush().await.expect("the flush succeeds");
            }
            let (sender, receiver) = lanes::sync::oneshot::channel();
            let ends_at = random.below(WRITES);
            let (done, sender) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(Some(sender))));
            for _ in 0..WRITES {
                let (engine, text) = (engine.clone(), write(&mut random));
                let (done, sender) = (done.clone(), sender.clone());
                let work = async move {
                    run(&engine, &text).await.expect(&text);
                    done.set(done.get() + 1);
                    if done.get() > ends_at
                        && let Some(sender) = sender.take()
                    {
                        let _ = sender.send(());
                    }
                };
                lanes::spawn(Group::DEFAULT, work).detach();
            }
            let _ = receiver.await;
        });
        // The others are in flight, and their tasks end here.
        lanes.shutdown();
    }
}

/// Returns the sum of a metric over the cores.
fn metric(lanes: &lanes::Lanes, name: &'static str) -> f64 {
    let of = |core| {
        lanes.block_on(core, Group::CONTROL, move || async move {
            let found = engine().metrics().into_iter().find(|measure| measure.metric.name == name);
            found.expect(name).value
        })
    };
    (0..lanes.cores()).map(of).sum()
}

#[test]
fn sweep_removes_stale_entries_that_no_query_asks_for() {
    let dir = Folder::new("index-sweep");
    let lanes = Setup::new(2).dir(Some(&dir)).start();
    lanes.block_on(0, Group::CONTROL, || async {
        let engine = engine();
        let tables = [
            KEYSPACE,
            "CREATE TABLE t (k int PRIMARY KEY, v int, w text)",
            "CREATE INDEX ON t (v) USING 'sai'",
            "CREATE INDEX ON t (w)",
        ];
        for text in tables {
            run(&engine, text).await.expect(text);
        }
        for first in (0..24_000).step_by(100) {
            let updates: Vec<String> = (first..first + 100)
                .map(|v| format!("UPDATE t SET v = {v}, w = 'w{v}' WHERE k = {}", v % 4))
                .collect();
            let text = format!("BEGIN UNLOGGED BATCH {}; APPLY BATCH", updates.join("; "));
            run(&engine, &text).await.expect("the batch succeeds");
        }
    });
    // Each core has a part of 24,000 entries of `w`, and twice as many of `v`.
    let removed = || metric(&lanes, "fairlane_index_entries_removed_total");
    until("stale entries are removed", || removed() > 20_000.0);
    until("the sweep ends", || {
        let before = removed();
        metric(&lanes, "fairlane_index_entries_checked_total") >= before && removed() == before
    });
    lanes.block_on(0, Group::CONTROL, || async {
        let engine = engine();
        for k in 0..4 {
            let v = 23_996 + k;
            let found = rows(&engine, &format!("SELECT k FROM t WHERE v = {v}")).await;
            assert_eq!(found, [(v % 4).to_string()]);
            let found = rows(&engine, &format!("SELECT k FROM t WHERE w = 'w{v}'")).await;
            assert_eq!(found, [(v % 4).to_string()]);
        }
        assert_eq!(rows(&engine, "SELECT k FROM t WHERE v >= 23996").await.len(), 4);
        assert!(rows(&engine, "SELECT k FROM t WHERE v < 23996").await.is_empty());
    });
    close_engines(&lanes);
    lanes.shutdown();
}

#[test]
fn build_continues_after_a_restart_in_its_middle() {
    let dir = Folder::new("index-resume");
    let lanes = Setup::new(2).dir(Some(&dir)).start();
    lanes.block_on(0, Group::CONTROL, || async {
        let engine = engine();
        for text in [KEYSPACE, "CREATE TABLE t (k int PRIMARY KEY, v int)"] {
            run(&engine, text).await.expect(text);
        }
        for first in (0..90_000).step_by(250) {
            let inserts: Vec<String> = (first..first + 250)
                .map(|k| format!("INSERT INTO t (k, v) VALUES ({k}, {})", k % 3000))
                .collect();
            let text = format!("BEGIN UNLOGGED BATCH {}; APPLY BATCH", inserts.join("; "));
            run(&engine, &text).await.expect("the batch succeeds");
        }
        // The statement waits for the build, and its task ends at the crash.
        let create = async { drop(run(&self::engine(), "CREATE INDEX ON t (v) USING 'sai'").await) };
        lanes::spawn(Group::DEFAULT, create).detach();
        // Ends the wait as soon as some entries are written.
        while rows(&engine, "SELECT progress FROM system_views.sstable_tasks")
            .await
            .iter()
            .all(|done| done == "0")
        {
            lanes::yield_now().await;
        }
    });
    lanes.shutdown();
    let lanes = Setup::new(2).dir(Some(&dir)).start();
    until("the index is built", || {
        lanes.block_on(0, Group::CONTROL, || async {
            run(&engine(), "SELECT k FROM t WHERE v = 17").await.is_ok()
        })
    });
    lanes.block_on(0, Group::CONTROL, || async {
        let engine = engine();
        for v in [0, 17, 2999] {
            assert_eq!(rows(&engine, &format!("SELECT k FROM t WHERE v = {v}")).await.len(), 30, "{v}");
        }
        assert_eq!(rows(&engine, "SELECT k FROM t WHERE v >= 2990").await.len(), 300);
    });
    close_engines(&lanes);
    lanes.shutdown();
}

#[test]
fn wide_ranges_of_one_partition_are_sorted_in_parts_or_scanned() {
    let lanes = Setup::new(1).start();
    lanes.block_on(0, Group::CONTROL, || async {
        let engine = engine();
        let tables = [
            KEYSPACE,
            "CREATE TABLE t (k int, c int, v int, PRIMARY KEY (k, c))",
            "CREATE INDEX ON t (v) USING 'sai'",
        ];
        for text in tables {
            run(&engine, text).await.expect(text);
        }
        for first in (0..20_000).step_by(200) {
            let inserts: Vec<String> = (first..first + 200)
                .map(|c| format!("INSERT INTO t (k, c, v) VALUES ({}, {c}, {})", c % 2, c % 100))
                .collect();
            let text = format!("BEGIN UNLOGGED BATCH {}; APPLY BATCH", inserts.join("; "));
            run(&engine, &text).await.expect("the batch succeeds");
        }
        // A bucket has 200, 12,000 (three parts) or 20,000 entries (a scan) of the range.
        for (bound, each) in [(1, 1), (60, 60), (100, 100)] {
            let found = rows(&engine, &format!("SELECT c FROM t WHERE v < {bound}")).await;
            let number = |text: &String| text.parse::<u32>().expect("a number");
            let found: Vec<u32> = found.iter().map(number).collect();
            assert_eq!(found.len(), 200 * each, "{bound}");
            assert!(found.iter().all(|c| c % 100 < bound));
            assert!(found.chunk_by(|a, b| a < b).count() <= 2, "each partition is in order");
        }
        assert_eq!(rows(&engine, "SELECT count(*) FROM t WHERE v >= 0").await, ["20000"]);
        assert_eq!(rows(&engine, "SELECT c FROM t WHERE v >= 0 LIMIT 7").await.len(), 7);
    });
    lanes.shutdown();
}
