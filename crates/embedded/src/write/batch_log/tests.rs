//! Tests of writes over several cores that are interrupted at each step.

use std::rc::Rc;
use std::time::Duration;

use engine::StatementOutcome;
use lanes::Group;
use storage::{CellRef, Change, Liveness, RowBuilder};

use super::*;
use crate::testing::{Folder, count, keys, make_table, run, session};

fn batch(kind: &str, keys: &[i32]) -> String {
    let insert = |key: &i32| format!("INSERT INTO t (k, v) VALUES ({key}, 0x01);");
    format!("BEGIN {kind} BATCH {} APPLY BATCH", keys.iter().map(insert).collect::<String>())
}

/// Returns an entry that inserts `rows` rows with values of `bytes` bytes.
fn entry(engine: &Embedded, rows: i32, bytes: usize) -> Bytes {
    let def = engine.current.schema().table("ks", "t").expect("made").clone();
    let column = def.columns.iter().find(|column| column.name == "v").expect("made").id;
    let value = vec![7; bytes];
    let insert = |key: i32| {
        let key = Bytes::copy_from_slice(&key.to_be_bytes());
        let mut row = RowBuilder::new(&key, &[], 1);
        row.marker(Some(Liveness { timestamp: 1, expiry: None }));
        row.push(CellRef::live(column, 1, &value));
        let (table, token) = (TableId(def.data_id().as_u128()), schema::token::token(&key));
        Mutation { table, token, key, changes: vec![Change::Row(row.finish())] }
    };
    let all: Vec<Mutation> = (0..rows).map(insert).collect();
    entry_of(all.iter())
}

async fn entries(engine: &Rc<Embedded>) -> usize {
    let mut found = 0;
    for core in 0..lanes::cores() {
        found += lanes::call(core, || async {
            let engine = Embedded::local();
            let mut scan = engine.shard.scan(BATCH_TABLE, i64::MIN..=i64::MAX, None, 0);
            let mut found = 0;
            while scan.next().await.expect("reads").is_some() {
                found += 1;
            }
            found
        })
        .await;
    }
    let _ = engine;
    found
}

#[test]
fn next_start_completes_an_interrupted_write() {
    for (rows, bytes, cores) in [(20, 1, 2), (400, 4_000, 2), (20, 1, 3), (20, 1, 1)] {
        let folder = Folder::new(&format!("crash-{rows}-{cores}"));
        session(&folder, 2, async move |engine| {
            make_table(engine).await;
            let entry = entry(engine, rows, bytes);
            engine.write_entry(&engine.batch_log.key(0), &entry, None).await.expect("writes");
            assert_eq!(count(engine).await, 0, "the crash comes before any core applies its part");
        });
        let (found, reported) =
            session(&folder, cores, async |engine| (count(engine).await, entries(engine).await));
        assert_eq!(found, (rows as usize, 0), "{rows} rows, {cores} cores");
        let replayed = "1 writes over several cores that were interrupted have been applied";
        assert!(reported.iter().any(|event| event == replayed), "{reported:?}");
        let (found, reported) = session(&folder, cores, async |engine| count(engine).await);
        assert_eq!((found, &reported[..]), (rows as usize, &[][..]));
    }
}

#[test]
fn next_start_applies_the_part_of_a_failed_core() {
    let folder = Folder::new("core");
    let (keys, _) = session(&folder, 2, async |engine| {
        make_table(engine).await;
        let keys = keys(engine);
        lanes::call(1, || async { Embedded::local().shutdown().await }).await.expect("closes");
        let error = run(engine, &batch("", &keys)).await.expect_err("core 1 is closed");
        assert!(error.to_string().contains("it is in the batch log"), "{error}");
        // The next start must not apply core 0's part again: this deletion must survive.
        run(engine, &format!("DELETE FROM t USING TIMESTAMP 1 WHERE k = {}", keys[0])).await.expect("runs");
        run(engine, &format!("DELETE FROM t WHERE k = {}", keys[1])).await.expect("runs");
        keys
    });
    let (found, _) = session(&folder, 2, async move |engine| {
        let mut found = Vec::new();
        for key in keys {
            match run(engine, &format!("SELECT k FROM t WHERE k = {key}")).await.expect("reads") {
                StatementOutcome::Rows(rows) => found.push(rows.count),
                other => panic!("{other:?}"),
            }
        }
        (found, entries(engine).await)
    });
    assert_eq!(found, (vec![1, 0, 1, 1], 0));
}

#[test]
fn part_of_a_core_that_refused_it_is_applied_in_the_background() {
    let folder = Folder::new("later");
    let (_, reported) = session(&folder, 2, async |engine| {
        make_table(engine).await;
        let entry = entry(engine, 20, 1);
        let numbers = [0, 1].map(|_| engine.batch_log.acquire());
        for number in numbers {
            let key = engine.batch_log.key(number);
            engine.write_entry(&key, &entry, None).await.expect("writes");
            engine.finish_later(key, Some(number), engine.batch_log.in_flight.begin(0));
        }
        for _ in 0..500 {
            // The deletion of an entry is visible before it is durable and the key is free.
            if entries(engine).await == 0 && engine.batch_log.unfinished.borrow().is_empty() {
                break;
            }
            lanes::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!((count(engine).await, entries(engine).await), (20, 0));
        assert_eq!(numbers.map(|_| engine.batch_log.acquire()).iter().sum::<u32>(), 1, "the keys are free");
    });
    assert_eq!(reported, ["2 writes over several cores that were interrupted have been applied"]);
}

#[test]
fn write_without_a_durable_entry_is_applied_nowhere() {
    let folder = Folder::new("nowhere");
    session(&folder, 2, async |engine| {
        make_table(engine).await;
        let keys = keys(engine);
        engine.shutdown().await.expect("closes");
        run(engine, &batch("", &keys)).await.expect_err("core 0 is closed");
        let on_one = lanes::call(1, move || async move {
            match run(&Embedded::local(), &format!("SELECT k FROM t WHERE k = {}", keys[2])).await {
                Ok(StatementOutcome::Rows(rows)) => rows.count,
                other => panic!("{other:?}"),
            }
        });
        assert_eq!(on_one.await, 0);
    });
}

#[test]
fn only_logged_writes_over_several_cores_have_an_entry() {
    let folder = Folder::new("kinds");
    session(&folder, 2, async |engine| {
        make_table(engine).await;
        let keys = keys(engine);
        for text in [
            batch("UNLOGGED", &keys),
            batch("", &keys[..2]),
            format!("UPDATE t SET v = 0x02 WHERE k IN ({}, {})", keys[0], keys[1]),
        ] {
            run(engine, &text).await.expect("runs");
        }
        assert_eq!(engine.batch_log.next.get(), 0);
        for _ in 0..10 {
            run(engine, &batch("", &keys)).await.expect("runs");
            let update = format!("UPDATE t SET v = 0x02 WHERE k IN ({}, {})", keys[0], keys[2]);
            run(engine, &update).await.expect("runs");
        }
        assert_eq!(engine.batch_log.next.get(), 1, "the key is reused");
        assert_eq!((count(engine).await, entries(engine).await), (4, 0));
    });
}

#[test]
fn batches_with_statements_that_read_are_atomic() {
    let folder = Folder::new("lists");
    session(&folder, 2, async |engine| {
        make_table(engine).await;
        let [here, also_here, there, _] = keys(engine);
        for key in [here, there] {
            run(engine, &format!("INSERT INTO t (k, l) VALUES ({key}, [1, 2])")).await.expect("runs");
        }
        let of = |first: i32, second: i32| {
            format!(
                "BEGIN BATCH INSERT INTO t (k, v) VALUES ({also_here}, 0x01); \
                 UPDATE t SET l[0] = 8 WHERE k = {here}; UPDATE t SET l[{first}] = 9 WHERE k = {second}; \
                 APPLY BATCH"
            )
        };
        run(engine, &of(7, there)).await.expect_err("the list has no eighth element");
        assert_eq!(count(engine).await, 2, "the batch was not applied");
        run(engine, &of(1, there)).await.expect("runs");
        assert_eq!(count(engine).await, 3);
        run(engine, &of(1, here)).await.expect("runs, with both statements on one partition");
        for (key, wanted) in [(here, [8, 9]), (there, [1, 9])] {
            let Ok(StatementOutcome::Rows(rows)) =
                run(engine, &format!("SELECT l FROM t WHERE k = {key}")).await
            else {
                panic!("reads");
            };
            let decoded = rows.decoded();
            let list = decoded[0][0].expect("there");
            let elements: Vec<i32> = schema::value::elements(list)
                .map(|element| element.expect("well formed").try_into().expect("an int"))
                .map(i32::from_be_bytes)
                .collect();
            assert_eq!(elements, wanted, "{key}");
        }
        assert_eq!(entries(engine).await, 0);
        let held = lanes::call(1, || async { Embedded::local().locks.partitions.held() }).await;
        assert_eq!((held, engine.locks.partitions.held()), (0, 0), "the guards are released");
    });
}

/// One client writes to core 0, then after the acknowledgement to core 1. Another client writes a
/// batch to both.
#[test]
fn snapshot_is_one_moment_of_all_cores() {
    const SNAPSHOTS: usize = 12;
    let folder = Folder::new("snapshots");
    let copies = folder.join("copies");
    let (keys, _) = session(&folder.join("data"), 2, {
        let copies = copies.clone();
        async move |engine| {
            make_table(engine).await;
            let [a, b, c, d] = keys(engine);
            let ends = Rc::new(std::cell::Cell::new(false));
            let mut writers = Vec::new();
            for keys in [(a, c), (b, d)] {
                let (engine, ends) = (engine.clone(), ends.clone());
                writers.push(lanes::spawn(Group::DEFAULT, async move {
                    for n in 1.. {
                        let l = format!("INSERT INTO t (k, l) VALUES ({}, [{n}])", keys.0);
                        let r = format!("INSERT INTO t (k, l) VALUES ({}, [{n}])", keys.1);
                        let texts = match keys.0 == a {
                            true => vec![l, r],
                            false => vec![format!("BEGIN BATCH {l}; {r}; APPLY BATCH")],
                        };
                        for text in &texts {
                            run(&engine, text).await.expect("writes");
                        }
                        if ends.get() {
                            return;
                        }
                    }
                }));
            }
            for number in 0..SNAPSHOTS {
                Embedded::snapshot(&copies.join(number.to_string())).await.expect("made");
            }
            ends.set(true);
            for writer in writers {
                writer.await;
            }
            [a, b, c, d]
        }
    });
    for number in 0..SNAPSHOTS {
        let (found, _) = session(&copies.join(number.to_string()), 2, async move |engine| {
            let mut found = Vec::new();
            for key in keys {
                let rows = match run(engine, &format!("SELECT l FROM t WHERE k = {key}")).await {
                    Ok(StatementOutcome::Rows(rows)) => rows,
                    other => panic!("{other:?}"),
                };
                let decoded = rows.decoded();
                let last = decoded.first().and_then(|row| schema::value::elements(row[0]?).last());
                let last: Option<[u8; 4]> =
                    last.map(|last| last.expect("formed").try_into().expect("an int"));
                found.push(last.map_or(0, i32::from_be_bytes));
            }
            found
        });
        let [a, b, c, d] = found[..] else { panic!("four keys") };
        assert!(c == a || c == a - 1, "snapshot {number}: {a} on core 0, then {c} on core 1");
        assert_eq!(b, d, "snapshot {number}: a batch is whole");
    }
}
