//! Indexes and views under large keys, many elements, several lives, and changes of the schema in
//! the middle.

use std::sync::Arc;

use embedded::Embedded;
use engine::{Engine, Error, ParsedTree, Request, StatementOutcome};
use lanes::{Group, Lanes};
use testkit::{Folder, KEYSPACE, Random, Setup, close_engines, engine, run, texts, until};

async fn rows(engine: &Embedded, text: &str) -> Vec<String> {
    match run(engine, text).await.unwrap_or_else(|error| panic!("{text:.200}: {error}")) {
        StatementOutcome::Rows(rows) => texts(&rows).iter().map(|row| row.join(",")).collect(),
        other => panic!("{text:.200}: {other:?}"),
    }
}

async fn all(engine: &Embedded, statements: &[&str]) {
    for text in statements {
        run(engine, text).await.unwrap_or_else(|error| panic!("{text:.200}: {error}"));
    }
}

/// Runs statements as batches of at most 100.
async fn batches(engine: &Embedded, statements: &[String]) {
    for some in statements.chunks(100) {
        let text = format!("BEGIN UNLOGGED BATCH {}; APPLY BATCH", some.join("; "));
        all(engine, &[&text]).await;
    }
}

/// Returns the sum of a metric over the cores.
fn metric(lanes: &Lanes, name: &'static str) -> f64 {
    let of = |core| {
        lanes.block_on(core, Group::CONTROL, move || async move {
            let found = engine().metrics().into_iter().find(|measure| measure.metric.name == name);
            found.expect(name).value
        })
    };
    (0..lanes.cores()).map(of).sum()
}

#[test]
fn row_with_entries_of_several_lives_is_counted_once() {
    let lanes = Setup::new(1).start();
    lanes.block_on(0, Group::CONTROL, || async {
        let engine = engine();
        let tables = [
            KEYSPACE,
            "CREATE TABLE t (k int, c int, v int, PRIMARY KEY (k, c))",
            "CREATE INDEX ON t (v)",
            "CREATE INDEX ON t (c) USING 'sai'",
        ];
        all(&engine, &tables).await;
        let insert = |c: u32| format!("INSERT INTO t (k, c, v) VALUES (1, {c}, 7)");
        batches(&engine, &(0..600).map(insert).collect::<Vec<_>>()).await;
        // Entries are read 256 at a time: the two of these rows are in different reads.
        for c in [255, 510] {
            for ttl in [1_000, 100_000] {
                all(&engine, &[&format!("{} USING TTL {ttl}", insert(c))]).await;
            }
            all(&engine, &[&insert(c)]).await;
        }
        for of in ["k = 1 AND v = 7", "v = 7", "v = 7 AND c >= 0"] {
            let found = rows(&engine, &format!("SELECT count(*) FROM t WHERE {of} ALLOW FILTERING")).await;
            assert_eq!(found, ["600"], "{of}");
        }
        let found = rows(&engine, "SELECT c FROM t WHERE k = 1 AND v = 7").await;
        assert_eq!(found, (0..600).map(|c| c.to_string()).collect::<Vec<_>>());
    });
    lanes.shutdown();
}

#[test]
fn entries_of_one_write_may_exceed_a_record() {
    let dir = Folder::new("index-large-write");
    let lanes = Setup::new(2).dir(Some(&dir)).start();
    lanes.block_on(0, Group::CONTROL, || async {
        let engine = engine();
        let tables = [
            KEYSPACE,
            "CREATE TABLE t (k text PRIMARY KEY, s set<int>, n int)",
            "CREATE INDEX i ON t (s)",
            "CREATE INDEX ON t (n) USING 'sai'",
        ];
        all(&engine, &tables).await;
        let key = |letter: &str| letter.repeat(40_000);
        let set = (0..1000).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
        let insert =
            |letter: &str| format!("INSERT INTO t (k, s, n) VALUES ('{}', {{{set}}}, 5)", key(letter));
        // 40 MB of entries, in a statement of 44 KB, and in a batch over both cores.
        all(&engine, &[&insert("a")]).await;
        all(&engine, &[&format!("BEGIN BATCH {}; {}; APPLY BATCH", insert("b"), insert("c"))]).await;
        for element in [0, 999] {
            let found = rows(&engine, &format!("SELECT n FROM t WHERE s CONTAINS {element}")).await;
            assert_eq!(found, ["5"; 3]);
        }
        // Built from the rows.
        all(&engine, &["DROP INDEX i", "CREATE INDEX j ON t (s)"]).await;
        assert_eq!(rows(&engine, "SELECT n FROM t WHERE s CONTAINS 500").await, ["5"; 3]);
        all(&engine, &[&format!("UPDATE t SET s = {{7}} WHERE k = '{}'", key("a"))]).await;
        assert_eq!(rows(&engine, "SELECT n FROM t WHERE s CONTAINS 500").await, ["5"; 2]);
    });
    lanes.shutdown();
    let lanes = Setup::new(2).dir(Some(&dir)).start();
    lanes.block_on(0, Group::CONTROL, || async {
        let engine = engine();
        assert_eq!(rows(&engine, "SELECT n FROM t WHERE s CONTAINS 999").await, ["5"; 2]);
        assert_eq!(rows(&engine, "SELECT n FROM t WHERE s CONTAINS 7").await, ["5"; 3]);
    });
    close_engines(&lanes);
    lanes.shutdown();
}

#[test]
fn elements_with_too_many_copies_of_a_key_are_refused() {
    let lanes = Setup::new(1).start();
    lanes.block_on(0, Group::CONTROL, || async {
        let engine = engine();
        let tables = [
            KEYSPACE,
            "CREATE TABLE t (k text PRIMARY KEY, s set<int>, u set<int>)",
            "CREATE INDEX ON t (s)",
        ];
        all(&engine, &tables).await;
        let (key, set) = ("k".repeat(60_000), (0..2_000).map(|n| n.to_string()).collect::<Vec<_>>());
        let set = set.join(", ");
        let insert = |column: &str| format!("INSERT INTO t (k, {column}) VALUES ('{key}', {{{set}}})");
        let refused = run(&engine, &insert("s")).await;
        let text = refused.expect_err("120 MB of entries").to_string();
        assert!(text.contains("got 120000000: write fewer elements"), "{text}");
        all(&engine, &[&insert("u")]).await;
    });
    lanes.shutdown();
}

#[test]
fn range_over_large_keys_returns_each_row_once() {
    let lanes = Setup::new(1).start();
    lanes.block_on(0, Group::CONTROL, || async {
        let engine = engine();
        let tables = [
            KEYSPACE,
            "CREATE TABLE t (k int, c text, v int, PRIMARY KEY (k, c))",
            "CREATE INDEX ON t (v) USING 'sai'",
        ];
        all(&engine, &tables).await;
        for v in 0..150 {
            let c = format!("{v:03}{}", "x".repeat(50_000));
            all(&engine, &[&format!("INSERT INTO t (k, c, v) VALUES (1, '{c}', {v})")]).await;
        }
        for first in [0, 100, 149] {
            let found = rows(&engine, &format!("SELECT v FROM t WHERE v >= {first}")).await;
            assert_eq!(found, (first..150).map(|v| v.to_string()).collect::<Vec<_>>());
        }
    });
    lanes.shutdown();
}

#[test]
fn sweep_reads_a_row_of_many_elements_once_for_many_entries() {
    let dir = Folder::new("index-wide-sweep");
    let lanes = Setup::new(1).dir(Some(&dir)).start();
    lanes.block_on(0, Group::CONTROL, || async {
        let engine = engine();
        all(&engine, &[KEYSPACE, "CREATE TABLE t (k int PRIMARY KEY, s set<int>)", "CREATE INDEX ON t (s)"])
            .await;
        for first in [0, 20_000, 40_000] {
            let set = (first..first + 9_000).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
            all(&engine, &[&format!("INSERT INTO t (k, s) VALUES (1, {{{set}}})")]).await;
        }
    });
    // The sweep begins with the third write. 27,000 checks of 9,000 elements would take minutes.
    let removed = || metric(&lanes, "fairlane_index_entries_removed_total");
    until("stale entries are removed", || removed() >= 9_000.0);
    lanes.block_on(0, Group::CONTROL, || async {
        let engine = engine();
        assert_eq!(rows(&engine, "SELECT k FROM t WHERE s CONTAINS 40000").await, ["1"]);
        assert!(rows(&engine, "SELECT k FROM t WHERE s CONTAINS 8999").await.is_empty());
    });
    close_engines(&lanes);
    lanes.shutdown();
}

#[test]
fn sweep_removes_stale_entries_of_views() {
    let dir = Folder::new("view-sweep");
    let lanes = Setup::new(2).dir(Some(&dir)).start();
    lanes.block_on(0, Group::CONTROL, || async {
        let engine = engine();
        let tables = [
            KEYSPACE,
            "CREATE TABLE t (k int PRIMARY KEY, v int)",
            "CREATE MATERIALIZED VIEW m AS SELECT * FROM t WHERE v IS NOT NULL AND k IS NOT NULL \
             PRIMARY KEY (v, k)",
        ];
        all(&engine, &tables).await;
        let update = |v: u32| format!("UPDATE t SET v = {v} WHERE k = {}", v % 4);
        batches(&engine, &(0..60_000).map(update).collect::<Vec<_>>()).await;
    });
    let removed = || metric(&lanes, "fairlane_index_entries_removed_total");
    until("stale entries are removed", || removed() > 15_000.0);
    lanes.block_on(0, Group::CONTROL, || async {
        let engine = engine();
        let mut found = rows(&engine, "SELECT v, k FROM m").await;
        found.sort_unstable();
        assert_eq!(found, ["59996,0", "59997,1", "59998,2", "59999,3"]);
    });
    close_engines(&lanes);
    lanes.shutdown();
}

/// Writes `each` rows from each of some tasks on both cores.
async fn write_at_once(writers: u64, each: u64, from: u64) {
    let mut tasks = Vec::new();
    for writer in 0..writers {
        let core = (writer % 2) as usize;
        let work = move || async move {
            let engine = engine();
            for n in 0..each {
                let k = from + writer * each + n;
                let text = format!("INSERT INTO t (k, v) VALUES ({k}, {})", k % 5);
                // A TRUNCATE has it bound again.
                while let Err(error) = run(&engine, &text).await {
                    assert!(matches!(error, Error::Stale), "{error}");
                }
                lanes::yield_now().await;
            }
        };
        tasks.push(lanes::spawn(Group::DEFAULT, lanes::call(core, work)));
    }
    for task in tasks {
        task.await;
    }
}

#[test]
fn index_created_under_writes_misses_no_row() {
    let dir = Folder::new("index-created-under-writes");
    let setup = Setup::new(2).dir(Some(&dir)).options(|options| {
        // The log is often full.
        options.memtable_bytes_max = 64 << 10;
        options.segment_bytes = 64 << 10;
        options.record_bytes_max = 1 << 20;
    });
    let lanes = setup.start();
    lanes.block_on(0, Group::CONTROL, || async {
        let engine = engine();
        all(&engine, &[KEYSPACE, "CREATE TABLE t (k int PRIMARY KEY, v int)"]).await;
        let mut random = Random::new(11);
        for round in 0..12 {
            let writes = lanes::spawn(Group::DEFAULT, write_at_once(16, 60, round * 960));
            for _ in 0..random.below(40) {
                lanes::yield_now().await;
            }
            let create = [
                "CREATE INDEX i ON t (v)",
                "CREATE MATERIALIZED VIEW m AS SELECT * FROM t WHERE v IS NOT NULL AND k IS NOT NULL \
                 PRIMARY KEY (v, k)",
                "TRUNCATE t",
            ];
            all(&engine, &create[..if random.one_in(3) { 3 } else { 2 }]).await;
            writes.await;
            let mut scanned = rows(&engine, "SELECT k FROM t WHERE v = 3 ALLOW FILTERING").await;
            // TRUNCATE builds anew.
            let found = loop {
                match run(&engine, "SELECT k FROM t WHERE v = 3").await {
                    Ok(StatementOutcome::Rows(rows)) => break texts(&rows).concat(),
                    Ok(other) => panic!("{other:?}"),
                    Err(_) => lanes::yield_now().await,
                }
            };
            assert_eq!(found, scanned, "round {round}");
            let mut viewed = loop {
                match run(&engine, "SELECT k FROM m WHERE v = 3").await {
                    Ok(StatementOutcome::Rows(rows)) => break texts(&rows).concat(),
                    Ok(other) => panic!("{other:?}"),
                    Err(_) => lanes::yield_now().await,
                }
            };
            viewed.sort_unstable();
            scanned.sort_unstable();
            assert_eq!(viewed, scanned, "round {round}");
            all(&engine, &["DROP MATERIALIZED VIEW m", "DROP INDEX i"]).await;
        }
    });
    close_engines(&lanes);
    lanes.shutdown();
}

#[test]
fn index_dropped_under_a_query_shortens_no_answer() {
    let lanes = Setup::new(2).start();
    lanes.block_on(0, Group::CONTROL, || async {
        let engine = engine();
        all(&engine, &[KEYSPACE, "CREATE TABLE t (k int PRIMARY KEY, v int)"]).await;
        let insert = |k: u32| format!("INSERT INTO t (k, v) VALUES ({k}, 7)");
        batches(&engine, &(0..12_000).map(insert).collect::<Vec<_>>()).await;
        for round in 0..30 {
            all(&engine, &["CREATE INDEX i ON t (v)"]).await;
            let statement = ParsedTree::parse("SELECT k FROM t WHERE v = 7").expect("it is CQL");
            let plan = engine.prepare(Arc::new(statement), Some("ks")).expect("the index exists");
            let reader = engine.clone();
            let query = lanes::spawn(Group::DEFAULT, async move {
                reader.execute(&plan, &Request::EMPTY).outcome(&*reader).await
            });
            for _ in 0..round * 20 {
                lanes::yield_now().await;
            }
            all(&engine, &["DROP INDEX i"]).await;
            match query.await {
                Ok(StatementOutcome::Rows(rows)) => assert_eq!(rows.count, 12_000, "round {round}"),
                Ok(other) => panic!("{other:?}"),
                Err(Error::Stale) => {}
                Err(error) => panic!("{error}"),
            }
        }
    });
    lanes.shutdown();
}
