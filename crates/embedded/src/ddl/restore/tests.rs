//! Tests of table snapshots and of restoring them.

#![expect(clippy::disallowed_methods, reason = "tests make folders and look into them")]

use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use engine::StatementOutcome;

use super::*;
use crate::AutoSnapshot;
use crate::testing::{Folder, count, make_table, run, session};

async fn all(engine: &Rc<Embedded>, texts: &[&str]) {
    for text in texts {
        run(engine, text).await.expect(text);
    }
}

async fn insert(engine: &Rc<Embedded>, keys: std::ops::Range<i32>) {
    for key in keys {
        let text = format!("INSERT INTO t (k, v, l) VALUES ({key}, 0x0{}, [1, 2])", key % 10);
        run(engine, &text).await.expect("writes");
    }
}

/// Returns the rows of a table as key and value.
async fn rows(engine: &Rc<Embedded>, table: &str) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let Ok(StatementOutcome::Rows(rows)) = run(engine, &format!("SELECT k, v FROM {table}")).await else {
        panic!("reads");
    };
    let decoded = rows.decoded();
    let mut all: Vec<_> =
        decoded.iter().map(|row| (row[0].expect("a key").to_vec(), row[1].map(<[u8]>::to_vec))).collect();
    all.sort();
    all
}

fn snapshots(folder: &Folder) -> Vec<PathBuf> {
    let Ok(found) = std::fs::read_dir(folder.join("snapshots")) else { return Vec::new() };
    let mut all: Vec<PathBuf> = found.map(|entry| entry.expect("reads").path()).collect();
    all.sort();
    all
}

const KEEP_ALL: AutoSnapshot = AutoSnapshot { before_drop: true, before_truncate: true, keep: None };

/// Covers rows in files, rows in the log alone, deletions, and another number of cores.
#[test]
fn table_is_restored_on_any_number_of_cores() {
    for (from, to) in [(2, 2), (2, 3), (3, 1), (1, 2)] {
        let folder = Folder::new(&format!("restore-{from}-{to}"));
        let (taken, elsewhere) = (folder.join("taken"), folder.join("elsewhere"));
        let (before, _) = session(&folder.join("data"), from, {
            let taken = taken.clone();
            async move |engine| {
                make_table(engine).await;
                insert(engine, 0..40).await;
                for core in 0..lanes::cores() {
                    lanes::call(core, || async { Embedded::local().flush().await }).await.expect("flushes");
                }
                insert(engine, 30..60).await;
                all(engine, &["DELETE FROM t WHERE k = 3", "DELETE v FROM t WHERE k = 4"]).await;
                Embedded::snapshot(&taken).await.expect("made");
                rows(engine, "t").await
            }
        });
        assert_eq!(before.len(), 59);
        // Restore into the original server, and into another one that has neither the keyspace nor
        // the table.
        for (dir, cores) in [(folder.join("data"), to), (elsewhere, to)] {
            let taken = taken.clone();
            let (found, _) = session(&dir, cores, async move |engine| {
                if engine.current.schema().table("ks", "t").is_some() {
                    insert(engine, 100..110).await;
                    all(engine, &["DELETE FROM t WHERE k = 7"]).await;
                }
                Embedded::restore_table(&taken, "ks", "t").await.expect("restores");
                let found = rows(engine, "t").await;
                insert(engine, 200..201).await;
                found
            });
            assert_eq!(found, before, "{from} cores, {cores} cores");
            let (found, _) = session(&dir, from, async |engine| rows(engine, "t").await);
            assert_eq!(found.len(), before.len() + 1, "after a restart with another number");
        }
    }
}

#[test]
fn dropped_and_truncated_tables_can_be_restored() {
    let folder = Folder::new("auto-snapshot");
    let (_, _) = session(&folder, 2, async |engine| {
        engine.set_auto_snapshot(KEEP_ALL);
        make_table(engine).await;
        all(
            engine,
            &[
                "CREATE TYPE inner (a int)",
                "CREATE TYPE u (a frozen<inner>)",
                "CREATE TABLE typed (k int PRIMARY KEY, v frozen<u>)",
                "CREATE TABLE empty (k int PRIMARY KEY)",
                "INSERT INTO typed (k, v) VALUES (1, {a: {a: 7}})",
                "CREATE TABLE not_kept (k int PRIMARY KEY) WITH allow_auto_snapshot = false",
                "INSERT INTO not_kept (k) VALUES (1)",
            ],
        )
        .await;
        insert(engine, 0..20).await;
        all(engine, &["TRUNCATE t", "DROP TABLE empty", "DROP TABLE not_kept", "DROP KEYSPACE ks"]).await;
    });
    let kept = snapshots(&folder);
    let names: Vec<&str> =
        kept.iter().map(|path| path.file_name().and_then(|name| name.to_str()).expect("text")).collect();
    let [dropped, truncated] = names[..] else { panic!("{names:?}") };
    assert!(dropped.starts_with("dropped-") && dropped.ends_with("-ks"), "{dropped}");
    assert!(truncated.starts_with("truncated-") && truncated.ends_with("-ks-t"), "{truncated}");
    let (found, _) = session(&folder, 3, async move |engine| {
        let [dropped, truncated] = &kept[..] else { unreachable!("checked") };
        let error = Embedded::restore_table(truncated, "ks", "x").await.expect_err("no table");
        assert!(error.to_string().contains("the snapshot has no table ks.x"), "{error}");
        Embedded::restore_table(truncated, "ks", "t").await.expect("restores");
        Embedded::restore_table(dropped, "ks", "typed").await.expect("restores");
        all(engine, &["INSERT INTO typed (k, v) VALUES (2, {a: {a: 8}})", "DROP TABLE typed"]).await;
        all(engine, &["DROP TYPE u", "DROP TYPE inner"]).await;
        Embedded::restore_table(dropped, "ks", "typed").await.expect("restores, with its types");
        all(engine, &["SELECT v.a.a FROM typed WHERE k = 1"]).await;
        (count(engine).await, rows(engine, "typed").await.len())
    });
    assert_eq!(found, (20, 1));
}

#[test]
fn snapshot_of_a_table_has_no_data_of_others() {
    let folder = Folder::new("only");
    session(&folder, 2, async |engine| {
        engine.set_auto_snapshot(KEEP_ALL);
        make_table(engine).await;
        all(engine, &["CREATE TABLE other (k int PRIMARY KEY, v blob)"]).await;
        insert(engine, 0..20).await;
        for key in 0..20 {
            run(engine, &format!("INSERT INTO other (k, v) VALUES ({key}, 0x01)")).await.expect("writes");
        }
        all(engine, &["DROP TABLE t"]).await;
    });
    let kept = snapshots(&folder);
    let copy = kept[0].clone();
    // The snapshot is a data folder. A server opens it with the schema of all tables, but with the
    // data of `t` alone.
    let (found, _) =
        session(&copy, 2, async |engine| (count(engine).await, rows(engine, "other").await.len()));
    assert_eq!(found, (20, 0));
}

#[test]
fn failed_snapshot_rejects_the_statement() {
    let folder = Folder::new("no-snapshot");
    let at = folder.to_path_buf();
    session(&folder, 2, async move |engine| {
        engine.set_auto_snapshot(KEEP_ALL);
        make_table(engine).await;
        insert(engine, 0..20).await;
        // No folder can be created at the path of a file.
        std::fs::write(at.join("snapshots"), "a file").expect("written");
        for text in ["DROP TABLE t", "TRUNCATE t", "DROP KEYSPACE ks"] {
            let error = run(engine, text).await.expect_err(text).to_string();
            assert!(error.contains("as the snapshot before it failed"), "{error}");
        }
        assert_eq!(count(engine).await, 20);
        all(engine, &["ALTER TABLE t WITH allow_auto_snapshot = false", "DROP TABLE t"]).await;
    });
}

#[test]
fn old_snapshots_of_the_server_are_removed() {
    let folder = Folder::new("old-snapshots");
    let at = folder.join("snapshots");
    let (left, _) = session(&folder, 1, async move |engine| {
        let now_ms = lanes::time::unix_micros() / 1000;
        let days = |days: i64| now_ms - days * 24 * 3600 * 1000;
        let names = [
            format!("dropped-{}-ks-t", days(8)),
            format!("truncated-{}-ks-t", days(6)),
            format!("dropped-{}-ks-u.making", days(1)),
            format!("dropped-{now_ms}-ks-v.making"),
            "dropped-by-hand".to_owned(),
            "weekly".to_owned(),
        ];
        for name in &names {
            let tables = at.join(name).join("shard-0000/tables");
            std::fs::create_dir_all(&tables).expect("made");
            std::fs::write(tables.join("0000000000000001.table"), "data").expect("written");
        }
        engine
            .snapshots
            .auto
            .set(AutoSnapshot { keep: Some(Duration::from_secs(7 * 24 * 3600)), ..KEEP_ALL });
        engine.remove_old_snapshots().await.expect("removed");
        let left: Vec<bool> = names.iter().map(|name| at.join(name).exists()).collect();
        engine.snapshots.auto.set(KEEP_ALL);
        left
    });
    assert_eq!(left, [false, true, false, true, true, true]);
}

#[test]
fn table_with_incompatible_columns_is_not_restored() {
    let folder = Folder::new("other-columns");
    let taken = folder.join("taken");
    session(&folder.join("data"), 2, async move |engine| {
        make_table(engine).await;
        insert(engine, 0..20).await;
        Embedded::snapshot(&taken).await.expect("made");
        let restore = async || Embedded::restore_table(&taken, "ks", "t").await;
        all(engine, &["ALTER TABLE t ADD w int", "INSERT INTO t (k, w) VALUES (50, 5)"]).await;
        restore().await.expect("a table with an added column can be restored");
        all(engine, &["ALTER TABLE t DROP l"]).await;
        restore().await.expect("a table without one of the columns can be restored");
        assert_eq!(count(engine).await, 20);
        for (texts, why) in [
            (&["ALTER TABLE t ADD l list<int>"][..], "column l was dropped and added again"),
            (
                &["DROP TABLE t", "CREATE TABLE t (k int PRIMARY KEY, v text, l list<int>)"],
                "expected column v of type blob, got text",
            ),
            (
                &["DROP TABLE t", "CREATE TABLE t (k int PRIMARY KEY, v blob)"],
                "column l of the snapshot is missing",
            ),
        ] {
            all(engine, texts).await;
            let error = restore().await.expect_err(why).to_string();
            assert!(error.contains(why), "{error}");
        }
        all(engine, &["DROP TABLE t"]).await;
        restore().await.expect("the original columns");
        assert_eq!(count(engine).await, 20);
        let error = Embedded::restore_table(&taken.join("nowhere"), "ks", "t").await.expect_err("no folder");
        assert!(error.to_string().contains("nowhere"), "{error}");
        let left = engine.shard.tables().len();
        assert!(left <= 5, "failed restores left data: {left} tables");
    });
}

#[test]
fn writes_go_on_while_a_drop_waits_for_a_snapshot() {
    let folder = Folder::new("two-snapshots");
    let other = folder.join("other");
    session(&folder.join("data"), 2, async move |engine| {
        engine.set_auto_snapshot(KEEP_ALL);
        make_table(engine).await;
        insert(engine, 0..20).await;
        all(engine, &["CREATE TABLE other (k int PRIMARY KEY)", "INSERT INTO other (k) VALUES (1)"]).await;
        for core in 0..lanes::cores() {
            lanes::call(core, || async { Embedded::local().flush().await }).await.expect("flushes");
        }
        // A snapshot whose files are being written.
        let guard = engine.snapshots.lock.lock(()).await;
        let cut = crate::ddl::snapshot::cut_all(None).await;
        let dropped = lanes::spawn(lanes::current_group(), {
            let engine = engine.clone();
            async move { run(&engine, "DROP TABLE other").await }
        });
        lanes::time::sleep(Duration::from_millis(50)).await;
        let writes = lanes::time::timeout(Duration::from_secs(5), insert(engine, 20..40)).await;
        writes.expect("no write waits for the snapshots");
        crate::ddl::snapshot::write_all(cut, &other).await.expect("written");
        drop(guard);
        dropped.await.expect("dropped");
        assert_eq!(count(engine).await, 40);
    });
    let (found, _) = session(&folder.join("other"), 2, async |engine| count(engine).await);
    assert_eq!(found, 20);
}
