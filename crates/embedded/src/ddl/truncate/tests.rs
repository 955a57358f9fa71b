//! Tests of interrupted truncations, and of concurrent writes.

use std::cell::Cell;
use std::rc::Rc;

use lanes::Group;
use storage::TableId;

use super::*;
use crate::testing::{Folder, count, keys, make_table, run, session};

async fn insert_all(engine: &Rc<Embedded>) {
    for key in 0..20 {
        run(engine, &format!("INSERT INTO t (k, v) VALUES ({key}, 0x01)")).await.expect("writes");
    }
}

fn table(engine: &Embedded) -> Arc<TableDef> {
    engine.current.schema().table("ks", "t").expect("made").clone()
}

fn data_of(def: &TableDef) -> TableId {
    TableId(def.data_id().as_u128())
}

#[test]
fn next_start_completes_an_interrupted_truncation() {
    let folder = Folder::new("truncate-crash");
    session(&folder, 2, async |engine| {
        make_table(engine).await;
        insert_all(engine).await;
        let (now, def) = (engine.current.schema(), table(engine));
        let mut made = emptied(&now, &def, term::random_uuid()).expect("the table exists");
        engine.write_change(&mut made).await.expect("writes");
        // The crash comes before any core adopts the change.
        assert_eq!(count(engine).await, 20);
    });
    let (found, _) = session(&folder, 3, async |engine| {
        let found = count(engine).await;
        insert_all(engine).await;
        found
    });
    assert_eq!(found, 0);
    let (found, _) = session(&folder, 2, async |engine| count(engine).await);
    assert_eq!(found, 20, "rows written after the TRUNCATE");
}

#[test]
fn truncation_that_is_not_durable_has_not_happened() {
    let folder = Folder::new("truncate-nowhere");
    session(&folder, 2, async |engine| {
        make_table(engine).await;
        insert_all(engine).await;
        engine.shutdown().await.expect("closes");
        run(engine, "TRUNCATE t").await.expect_err("core 0 is closed");
    });
    let (found, _) = session(&folder, 2, async |engine| count(engine).await);
    assert_eq!(found, 20);
}

#[test]
fn truncated_table_keeps_its_identity_and_schema_version() {
    let folder = Folder::new("truncate-identity");
    session(&folder, 2, async |engine| {
        make_table(engine).await;
        insert_all(engine).await;
        let (before, version) = (table(engine), engine.current.schema().version);
        run(engine, "TRUNCATE t").await.expect("truncates");
        let after = table(engine);
        assert_eq!((before.id, version), (after.id, engine.current.schema().version));
        assert_ne!(before.data_id(), after.data_id());
        assert_eq!(count(engine).await, 0);
        let gone = data_of(&before);
        for core in 0..2 {
            let left =
                lanes::call(core, move || async move { Embedded::local().shard.tables().contains(&gone) });
            assert!(!left.await, "core {core}");
        }
        let stale = Embedded::truncate(Arc::new(TableDef { id: Uuid::from_u128(7), ..(*after).clone() }));
        assert!(matches!(stale.await, Err(Error::Stale)));
    });
}

/// Their rows identify the table by its data.
#[test]
fn virtual_tables_find_the_name_of_a_truncated_table() {
    let folder = Folder::new("truncate-named");
    session(&folder, 1, async |engine| {
        make_table(engine).await;
        run(engine, "TRUNCATE t").await.expect("truncates");
        insert_all(engine).await;
        let names = crate::system::task_tables::VisibleTables::of(&engine.current.schema(), None).await;
        assert_eq!(names.name(Some(data_of(&table(engine)).0)), Some(("ks", "t")));
    });
}

/// Writers on both cores never get an error, and writes sent after the result of the TRUNCATE stay.
#[test]
fn writes_during_truncations_are_acknowledged() {
    let folder = Folder::new("truncate-beside");
    let (kept, _) = session(&folder, 2, async |engine| {
        make_table(engine).await;
        let [a, b, c, d] = keys(engine);
        let ends = Rc::new(Cell::new(false));
        let mut writers = Vec::new();
        for text in [
            format!("INSERT INTO t (k, v) VALUES ({a}, 0x01)"),
            format!("INSERT INTO t (k, v) VALUES ({c}, 0x01)"),
            format!("UPDATE t SET v = 0x02 WHERE k IN ({b}, {d})"),
            format!("UPDATE t SET v = 0x02 WHERE k = {a} IF v = 0x01"),
        ] {
            let (engine, ends) = (engine.clone(), ends.clone());
            writers.push(lanes::spawn(Group::DEFAULT, async move {
                let mut written = 0;
                while !ends.get() {
                    // Like the server: a stale statement is bound again, once.
                    let mut outcome = run(&engine, &text).await;
                    if matches!(outcome, Err(Error::Stale)) {
                        outcome = run(&engine, &text).await;
                    }
                    outcome.expect(&text);
                    written += 1;
                }
                written
            }));
        }
        for _ in 0..30 {
            run(engine, "TRUNCATE t").await.expect("truncates");
            lanes::yield_now().await;
        }
        ends.set(true);
        let mut written = 0;
        for writer in writers {
            written += writer.await;
        }
        assert!(written >= 4);
        run(engine, "TRUNCATE t").await.expect("truncates");
        assert_eq!(count(engine).await, 0, "all writes were sent before the TRUNCATE");
        insert_all(engine).await;
        count(engine).await
    });
    let (found, _) = session(&folder, 2, async |engine| count(engine).await);
    assert_eq!((kept, found), (20, 20));
}
