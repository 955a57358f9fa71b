//! Damage to a table file affects the contents of that file only.

use std::sync::Mutex;

use super::*;
use crate::shard::repair::repair_in;

const TABLES: [TableId; 2] = [TableId(1 << 64), TableId(2 << 64)];
const ROWS: i64 = 60;

fn put(shard: &Rc<Shard>, table: TableId, number: i64, timestamp: i64) {
    let key = number.to_be_bytes();
    let mut row = RowBuilder::new(&key, &[], timestamp);
    row.push(CellRef::live(0, timestamp, &[number as u8; 100]));
    block_on(shard.put(table, number, &key, &row.draft()).expect("accepted")).expect("durable");
}

fn get(shard: &Rc<Shard>, table: TableId, number: i64) -> Result<bool, StorageError> {
    let row = shard.read_row(table, number, &number.to_be_bytes(), &[], Pick::ALL, 0);
    block_on(row.wait()).map(|row| row.is_some())
}

fn scan(shard: &Rc<Shard>, table: TableId) -> Result<i64, StorageError> {
    let mut scan = shard.scan(table, i64::MIN..=i64::MAX, None, 0);
    let mut count = 0;
    while block_on(scan.next())?.is_some() {
        count += 1;
    }
    Ok(count)
}

fn sizes() -> StorageOptions {
    let table = TableOptions { block_bytes: 512, fragment_bytes: 1 << 20, ..TableOptions::default() };
    StorageOptions { table, ..options() }
}

/// Creates two tables with a file each. Returns the path of the first one's file.
fn two_tables(sim: &Arc<Sim>) -> PathBuf {
    let shard = open(sim, &sizes()).unwrap();
    let mut path = None;
    for table in TABLES {
        (0..ROWS).for_each(|number| put(&shard, table, number, 1));
        block_on(shard.flush_all()).expect("flushed");
        block_on(shard.compact_all(table)).expect("merged");
        path = path
            .or(Some(shard.state.borrow().tables[&table].files.iter().next().expect("flushed").path.clone()));
    }
    block_on(shard.shutdown()).expect("closed");
    drop_tasks();
    path.expect("a file")
}

fn scrub(shard: &Rc<Shard>) -> Scrubbed {
    let progress = WorkProgress::default();
    let bytes = shard.state.borrow().tables[&TABLES[0]].files.iter().map(|file| file.bytes).sum::<u64>();
    let scrubbed = block_on(shard.scrub(TABLES[0], lanes::Group::DEFAULT, &progress)).expect("scrubbed");
    assert_eq!((progress.bytes_total(), progress.bytes_done()), (bytes, bytes));
    scrubbed
}

#[test]
fn unreadable_file_affects_only_its_table() {
    // Damage the footer, its version or the filter, or remove the file. The footer starts with the
    // offset of the filter.
    for case in ["footer", "version", "filter", "gone"] {
        let sim = Arc::new(Sim::new(1));
        let path = two_tables(&sim);
        let size = sim.disk.size(&path);
        let footer = block_on(async {
            let file = sim.disk.open(&path, Default::default()).await.expect("opens");
            file.read_at(size - 336, 8).await.expect("reads")
        });
        match case {
            "footer" => sim.disk.flip(&path, size - 100, 3),
            "version" => sim.disk.flip(&path, size - 16, 1),
            "filter" => sim.disk.flip(&path, u64::from_le_bytes(footer[..].try_into().unwrap()), 3),
            _ => block_on(sim.disk.remove_file(&path)).expect("removed"),
        }
        let events: Arc<Mutex<Vec<String>>> = Arc::default();
        let sink = events.clone();
        let event_sink = EventSink::new(move |event| sink.lock().unwrap().push(event.to_string()));
        let shard = open(&sim, &StorageOptions { event_sink, ..sizes() }).unwrap();
        let name = path.to_str().expect("UTF-8");
        assert!(events.lock().unwrap().iter().any(|line| line.contains(name)), "{events:?}");
        assert_eq!(shard.stats().files_damaged, 1);
        assert!((0..ROWS).all(|number| get(&shard, TABLES[1], number).expect("read")));
        assert_eq!(scan(&shard, TABLES[1]).expect("scanned"), ROWS);
        for error in [get(&shard, TABLES[0], 5).unwrap_err(), scan(&shard, TABLES[0]).unwrap_err()] {
            assert!(error.to_string().contains(name), "{error}");
        }
        crate::scan::batch_tests::check_batches(&shard, TABLES[1], i64::MIN..=i64::MAX, 0, case);
        // Further writes to the table are compacted without the damaged file.
        for round in 2..8 {
            (0..4).for_each(|number| put(&shard, TABLES[0], number, round));
            block_on(shard.flush_all()).expect("flushed");
        }
        block_on(shard.compact_all(TABLES[0])).expect("merged");
        assert_eq!(shard.state.borrow().tables[&TABLES[0]].files.len(), 2);
        let scrubbed = scrub(&shard);
        assert_eq!((scrubbed.damaged.len(), scrubbed.files_lost), (1, u64::from(case != "filter")), "{case}");
        let left = if case == "filter" { ROWS } else { 4 };
        assert_eq!((scan(&shard, TABLES[0]).expect("scanned"), shard.stats().files_damaged), (left, 0));
        block_on(shard.shutdown()).expect("closed");
        drop_tasks();
        let shard = open(&sim, &sizes()).unwrap();
        assert_eq!(scan(&shard, TABLES[0]).expect("scanned"), left);
        let aside = sim.disk.files().contains(&path.with_extension("table.damaged"));
        assert_eq!(aside, case != "gone");
        drop(shard);
        drop_tasks();
    }
}

/// Regression test: only compactions counted the file.
#[test]
fn read_that_finds_damage_counts_its_file() {
    let sim = Arc::new(Sim::new(2));
    let path = two_tables(&sim);
    sim.disk.flip(&path, 40, 3);
    let shard = open(&sim, &sizes()).unwrap();
    assert!((0..ROWS).any(|number| get(&shard, TABLES[0], number).is_err()));
    let of_table = |at: usize| shard.table_stats(TABLES[at]).files_damaged;
    assert_eq!((shard.stats().files_damaged, of_table(0), of_table(1)), (1, 1, 0));
    drop(shard);
    drop_tasks();
}

#[test]
fn scrub_of_a_damaged_block_loses_only_its_rows() {
    let sim = Arc::new(Sim::new(2));
    let path = two_tables(&sim);
    sim.disk.flip(&path, 40, 3);
    let shard = open(&sim, &sizes()).unwrap();
    assert_eq!(shard.stats().files_damaged, 0, "only blocks that are read are checked");
    (ROWS..ROWS + 4).for_each(|number| put(&shard, TABLES[0], number, 1));
    let error = block_on(shard.compact_all(TABLES[0])).unwrap_err();
    assert!(error.to_string().contains(path.to_str().expect("UTF-8")), "{error}");
    assert_eq!(shard.stats().files_damaged, 1);
    block_on(shard.compact_all(TABLES[0])).expect("merged around it");
    let damaged = (0..ROWS).filter(|number| get(&shard, TABLES[0], *number).is_err()).count() as i64;
    assert!((1..ROWS / 2).contains(&damaged), "{damaged} rows of a block");
    let scrubbed = scrub(&shard);
    assert_eq!((scrubbed.blocks_lost, scrubbed.partitions_saved), (1, (ROWS - damaged) as u64));
    assert_eq!((scrubbed.rows_lost, scrubbed.rows_saved), (damaged as u64, (ROWS - damaged) as u64));
    assert_eq!(scan(&shard, TABLES[0]).expect("scanned"), ROWS + 4 - damaged);
    assert_eq!(scrub(&shard).damaged.len(), 0);
    block_on(shard.compact_all(TABLES[0])).expect("merged");
    block_on(shard.shutdown()).expect("closed");
    drop_tasks();
}

#[test]
fn folder_that_no_server_has_open_is_repaired() {
    let sim = Arc::new(Sim::new(6));
    let path = two_tables(&sim);
    sim.disk.flip(&path, 40, 3);
    let root = sizes().dir.expect("a folder");
    let repair = || {
        let mut seen = Vec::new();
        let show = |shard, table| seen.push((shard, table));
        let repaired = block_on(repair_in(sim.clone(), &root, &sizes(), show)).expect("repaired");
        seen.sort();
        assert_eq!(seen, TABLES.map(|table| (0, table)));
        drop_tasks();
        repaired
    };
    let repaired = repair();
    assert_eq!((repaired.files, repaired.damaged.len(), repaired.blocks_lost), (2, 1, 1));
    assert_eq!(repair().damaged.len(), 0);
    let shard = open(&sim, &sizes()).unwrap();
    assert_eq!(scan(&shard, TABLES[0]).expect("scanned"), repaired.rows_saved as i64);
    assert_eq!(scan(&shard, TABLES[1]).expect("scanned"), ROWS);
    assert!(block_on(repair_in(sim.clone(), &root, &sizes(), |_, _| ())).is_err(), "the folder is in use");
    block_on(shard.shutdown()).expect("closed");
    drop_tasks();
}

#[test]
fn cancelled_scrub_changes_nothing() {
    let sim = Arc::new(Sim::new(3));
    let path = two_tables(&sim);
    sim.disk.flip(&path, 40, 3);
    let shard = open(&sim, &sizes()).unwrap();
    let progress = WorkProgress::default();
    progress.cancel();
    let ended = block_on(shard.scrub(TABLES[0], lanes::Group::DEFAULT, &progress));
    assert!(matches!(ended, Err(StorageError::Cancelled)), "{ended:?}");
    assert!(sim.disk.files().contains(&path));
    block_on(shard.shutdown()).expect("closed");
    drop_tasks();
}

/// A later program may change the table files that it writes, and not the manifest. Scrubbing such
/// a file would lose its rows.
#[test]
fn file_of_another_version_is_refused_and_not_damage() {
    use crate::env::{Env, Mode};
    use crate::manifest::Identity;
    use crate::table::file::{TableFile, seal_in};

    let sim = Arc::new(Sim::new(1));
    let path = two_tables(&sim);
    let size = sim.disk.size(&path);
    let shard = open(&sim, &sizes()).unwrap();
    let mut entry =
        shard.state.borrow().tables[&TABLES[0]].files.iter().next().expect("flushed").entry.clone();
    block_on(shard.shutdown()).expect("closed");
    drop_tasks();
    let env: &dyn Env = &*sim;
    let footer = block_on(async {
        let file = env.open(&path, Mode::Update).await.expect("opens");
        let mut footer = file.read(size - 336, 336).await.expect("reads").to_vec();
        footer[320..324].copy_from_slice(&5_u32.to_le_bytes());
        let sum = crc32c::crc32c(&footer[..324]);
        footer[324..328].copy_from_slice(&sum.to_le_bytes());
        file.write(size - 336, footer.into()).await.expect("written");
        sum
    });
    let is_other =
        |error: &StorageError| matches!(error, StorageError::UnknownFormat { found: 5, known: 4, .. });
    // Another file than the manifest names is damage.
    let error = block_on(TableFile::open(env, path.clone(), entry.clone())).expect_err("refused");
    assert!(matches!(error, StorageError::Corrupt { .. }), "{error}");
    entry.identity = Some(Identity { bytes: size, footer });
    let error = block_on(TableFile::open(env, path.clone(), entry)).expect_err("refused");
    assert!(is_other(&error), "{error}");
    // A file that nothing names is not removed as one that was never completed.
    let error = block_on(seal_in(env, &path)).expect_err("refused");
    assert!(is_other(&error), "{error}");
}
