//! Removal of dead data: files without live data, runs that are mostly dead, dropped columns.

use super::*;
use crate::env::Env;

const TABLE: TableId = TableId(0);
const NOW_S: u32 = 1_000_000;

fn at(now_s: u32) -> Arc<Sim> {
    let sim = Arc::new(Sim::new(1));
    sim.now_s.store(now_s, Ordering::Relaxed);
    sim
}

fn of(table: TableOptions) -> StorageOptions {
    // Only the test causes flushes: a log of many records, a block each, stays below the limit.
    StorageOptions { table: TableOptions { gc_grace_s: 0, ..table }, segment_bytes: 1 << 20, ..options() }
}

fn windows() -> StorageOptions {
    of(TableOptions { strategy: Strategy::TimeWindow { window_s: 60 }, ..options().table })
}

fn place(number: u64) -> (i64, Bytes) {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) as i64, Bytes::from(number.to_be_bytes().to_vec()))
}

fn micros(seconds: u32) -> i64 {
    i64::from(seconds) * 1_000_000
}

/// Writes a cell, with an expiry if `expires_s` is set.
fn put(shard: &Rc<Shard>, number: u64, column: u32, timestamp: i64, expires_s: Option<u32>) {
    let (token, key) = place(number);
    let mut row = RowBuilder::new(&key, &[], timestamp);
    row.push(match expires_s {
        Some(at_s) => CellRef::expiring(column, timestamp, &[7; 40], Expiry { ttl_s: 10, at_s }),
        None => CellRef::live(column, timestamp, &[7; 40]),
    });
    block_on(shard.put(TABLE, token, &key, &row.finish().draft()).unwrap()).unwrap();
}

fn delete(shard: &Rc<Shard>, number: u64, timestamp: i64, deleted_at_s: u32) {
    let (token, key) = place(number);
    let changes = vec![Change::DeletePartition(Deletion { timestamp, deleted_at_s })];
    block_on(shard.apply(vec![Mutation { table: TABLE, token, key, changes }]).unwrap()).unwrap();
}

fn flush(shard: &Rc<Shard>) {
    block_on(shard.flush_all()).unwrap();
}

fn is_there(shard: &Rc<Shard>, number: u64) -> bool {
    let (token, key) = place(number);
    let now_s = shard.env.now_s();
    block_on(shard.read_row(TABLE, token, &key, &[], Pick::ALL, now_s).wait()).unwrap().is_some()
}

/// Sets the clock, and lets background work run.
fn pass(sim: &Sim, now_s: u32) {
    sim.now_s.store(now_s, Ordering::Relaxed);
    (0..3000).for_each(|_| step());
}

fn files_on_disk(sim: &Sim, shard: &Shard) -> usize {
    block_on(sim.list(&shard.store.dir.join("tables"))).unwrap().len()
}

/// Regression test: the single run of a window was never dropped.
#[test]
fn expired_windows_are_dropped_without_a_write() {
    let sim = at(NOW_S);
    let shard = open(&sim, &windows()).unwrap();
    for window in 0..4 {
        let written_s = NOW_S + window * 60;
        sim.now_s.store(written_s, Ordering::Relaxed);
        (0..50).for_each(|n| {
            put(&shard, n + 100 * u64::from(window), 1, micros(written_s), Some(written_s + 300))
        });
        flush(&shard);
    }
    let before = shard.stats();
    assert!(before.runs == 4 && before.expired_files == 0, "{before:?}");
    // The first two windows have expired, the others have not.
    pass(&sim, NOW_S + 365);
    let stats = shard.stats();
    assert_eq!((stats.runs, stats.expired_files > 0), (2, true), "{stats:?}");
    assert!(!is_there(&shard, 1) && is_there(&shard, 201));
    pass(&sim, NOW_S + 900);
    let stats = shard.stats();
    assert_eq!((stats.files, stats.expired_files, stats.compactions), (0, before.files, 0), "{stats:?}");
    assert_eq!(files_on_disk(&sim, &shard), 0);
    block_on(shard.shutdown()).unwrap();
    let shard = open(&sim, &windows()).unwrap();
    assert_eq!(shard.stats().files, 0, "the manifest names none of them");
    block_on(shard.shutdown()).unwrap();
}

/// After a damaged block its table is not compacted before a restart.
#[test]
fn table_without_compaction_drops_expired_files() {
    let sim = at(NOW_S);
    let shard = open(&sim, &windows()).unwrap();
    put(&shard, 1, 1, micros(NOW_S), Some(NOW_S + 10));
    flush(&shard);
    shard.state.borrow_mut().tables.get_mut(&TABLE).expect("written").failures.waits = true;
    pass(&sim, NOW_S + 20);
    assert_eq!(shard.stats().files, 0);
    block_on(shard.shutdown()).unwrap();
}

#[test]
fn grace_period_keeps_expired_files() {
    let sim = at(NOW_S);
    let graceful = TableOptions { gc_grace_s: 1000, ..windows().table };
    let shard = open(&sim, &StorageOptions { table: graceful, ..windows() }).unwrap();
    put(&shard, 1, 1, micros(NOW_S), Some(NOW_S + 10));
    flush(&shard);
    pass(&sim, NOW_S + 1000);
    assert_eq!(shard.stats().files, 1);
    pass(&sim, NOW_S + 1011);
    assert_eq!(shard.stats().files, 0);
    block_on(shard.shutdown()).unwrap();
}

#[test]
fn dead_file_that_shadows_older_data_stays() {
    for older_in_memory in [false, true] {
        let sim = at(NOW_S);
        let shard = open(&sim, &windows()).unwrap();
        let older = || put(&shard, 1, 1, micros(NOW_S - 500), None);
        if !older_in_memory {
            older();
            flush(&shard);
        }
        delete(&shard, 1, micros(NOW_S), NOW_S);
        flush(&shard);
        if older_in_memory {
            older();
        }
        pass(&sim, NOW_S + 3000);
        assert!(!is_there(&shard, 1), "older in memory: {older_in_memory}");
        assert_eq!(shard.stats().expired_files, 0);
        block_on(shard.shutdown()).unwrap();
        let shard = open(&sim, &windows()).unwrap();
        assert!(!is_there(&shard, 1), "opened again, older in memory: {older_in_memory}");
        block_on(shard.compact_all(TABLE)).unwrap();
        pass(&sim, NOW_S + 6000);
        assert!(!is_there(&shard, 1));
        assert_eq!(shard.stats().files, 0, "merged with what it shadowed it is not needed");
        block_on(shard.shutdown()).unwrap();
    }
}

/// Writes runs in which half of the cells expire. Returns the cells left later and the compactions,
/// for a threshold in millionths.
fn left_of_a_run(threshold_ppm: u32, strategy: Strategy) -> (u64, u64) {
    let sim = at(NOW_S);
    let table = TableOptions {
        strategy,
        tombstone_threshold_ppm: threshold_ppm,
        tombstone_interval_s: 100,
        ..options().table
    };
    let shard = open(&sim, &StorageOptions { memtable_bytes_max: 1 << 20, ..of(table) }).unwrap();
    for number in 0..200 {
        put(&shard, number, 1, micros(NOW_S), (number % 2 == 0).then_some(NOW_S + 10));
    }
    flush(&shard);
    pass(&sim, NOW_S + 90);
    assert_eq!(shard.stats().compactions, 0, "it was written within the interval");
    pass(&sim, NOW_S + 300);
    let stats = shard.stats();
    (0..200).for_each(|number| assert_eq!(is_there(&shard, number), number % 2 == 1));
    block_on(shard.shutdown()).unwrap();
    (stats.file_cells, stats.compactions)
}

#[test]
fn run_with_much_dead_data_is_compacted_alone() {
    for strategy in [Strategy::Incremental, Strategy::Leveled, Strategy::TimeWindow { window_s: 60 }] {
        assert_eq!(left_of_a_run(200_000, strategy), (100, 1), "{strategy:?}");
        assert_eq!(left_of_a_run(900_000, strategy), (200, 0), "{strategy:?}");
    }
}

#[test]
fn compaction_omits_dropped_columns() {
    let sim = at(NOW_S);
    let shard = open(&sim, &of(options().table)).unwrap();
    for number in 0..50 {
        put(&shard, number, 1, 5, None);
        put(&shard, number, 2, 5, None);
    }
    put(&shard, 99, 2, 5, None);
    flush(&shard);
    assert_eq!(shard.stats().file_cells, 101);
    shard.forget_columns(TABLE, vec![DroppedCells::all(2), DroppedCells::all(0)]);
    block_on(shard.compact_all(TABLE)).unwrap();
    assert_eq!(shard.stats().file_cells, 50);
    assert!(is_there(&shard, 7) && !is_there(&shard, 99));
    block_on(shard.shutdown()).unwrap();
}

#[test]
fn compaction_keeps_later_cells_of_a_dropped_column() {
    let sim = at(NOW_S);
    let shard = open(&sim, &of(options().table)).unwrap();
    for timestamp in 1..=9 {
        put(&shard, timestamp as u64, 2, timestamp, None);
    }
    flush(&shard);
    shard.forget_columns(TABLE, vec![DroppedCells { column: 2, up_to_us: 5 }]);
    block_on(shard.compact_all(TABLE)).unwrap();
    let left: Vec<u64> = (1..=9).filter(|number| is_there(&shard, *number)).collect();
    assert_eq!(left, [6, 7, 8, 9]);
    block_on(shard.shutdown()).unwrap();
}

/// Regression test: the window of a run follows from its write time. A cell with a timestamp in the
/// future put the run into a window of its own.
#[test]
fn cell_from_the_future_does_not_move_its_run() {
    let sim = at(NOW_S);
    let shard = open(&sim, &windows()).unwrap();
    put(&shard, 1, 1, micros(NOW_S - 5), None);
    put(&shard, 2, 1, micros(NOW_S) * 10, None);
    flush(&shard);
    let newest = shard.state.borrow().tables[&TABLE].files.runs()[0].known.newest;
    assert_eq!(newest, micros(NOW_S - 5));
    block_on(shard.shutdown()).unwrap();
}

#[test]
fn requested_compaction_reports_progress_and_cancels() {
    let sim = at(NOW_S);
    let table = TableOptions { fragment_bytes: 4 << 10, min_threshold: 64, ..options().table };
    let shard =
        open(&sim, &StorageOptions { memtable_bytes_max: 1 << 20, segment_bytes: 1 << 20, ..of(table) })
            .unwrap();
    for timestamp in 1..=2 {
        (0..500).for_each(|number| put(&shard, number, 1, timestamp, None));
        flush(&shard);
    }
    let group = lanes::Group::CONTROL;
    let progress = WorkProgress::default();
    let (own, watched) = (shard.clone(), progress.clone());
    let cancelled = Rc::new(std::cell::Cell::new(false));
    let is_cancelled = cancelled.clone();
    let task = async move {
        let result = own.compact(TABLE, i64::MIN..=i64::MAX, group, &watched).await;
        is_cancelled.set(matches!(result, Err(StorageError::Cancelled)));
    };
    sim.spawn(crate::env::Work::Control, Box::pin(task));
    let mut seen = 0;
    for _ in 0..100_000 {
        step();
        seen = progress.bytes_done();
        if progress.bytes_total() > 0 && seen * 3 > progress.bytes_total() {
            break;
        }
    }
    assert!(seen > 0 && seen < progress.bytes_total(), "{seen} of {}", progress.bytes_total());
    progress.cancel();
    (0..1000).for_each(|_| step());
    assert!(cancelled.get(), "its caller gets the error");
    assert_eq!((shard.stats().compactions_running, shard.stats().compactions), (0, 0));
    (0..500).for_each(|number| assert!(is_there(&shard, number)));
    // A range compacts the fragments with tokens in it, and no others.
    let before: Vec<u64> = shard.state.borrow().tables[&TABLE].files.iter().map(|file| file.id).collect();
    let part = WorkProgress::default();
    block_on(shard.compact(TABLE, 0..=i64::MAX / 8, group, &part)).unwrap();
    let after: Vec<u64> = shard.state.borrow().tables[&TABLE].files.iter().map(|file| file.id).collect();
    let stayed = before.iter().filter(|id| after.contains(id)).count();
    assert!(stayed > before.len() / 2 && stayed < before.len(), "{stayed} of {} files", before.len());
    assert_eq!(part.bytes_done(), part.bytes_total());
    let all = WorkProgress::default();
    block_on(shard.compact(TABLE, i64::MIN..=i64::MAX, group, &all)).unwrap();
    assert_eq!((all.bytes_done(), shard.stats().runs, shard.stats().file_cells), (all.bytes_total(), 1, 500));
    (0..500).for_each(|number| assert!(is_there(&shard, number)));
    block_on(shard.shutdown()).unwrap();
}

/// Regression test: shards share the progress of a statement. The first shard to finish cancelled
/// the others.
#[test]
fn finished_shard_does_not_cancel_other_shards() {
    let sim = at(NOW_S);
    let shard = open(&sim, &of(options().table)).unwrap();
    let (group, progress) = (lanes::Group::CONTROL, WorkProgress::default());
    for written in [false, true] {
        if written {
            put(&shard, 1, 0, 1, None);
        }
        block_on(shard.compact(TABLE, i64::MIN..=i64::MAX, group, &progress)).unwrap();
        block_on(shard.scrub(TABLE, group, &progress)).unwrap();
        assert!(!progress.is_cancelled(), "a table with rows: {written}");
    }
    block_on(shard.shutdown()).unwrap();
    drop_tasks();
}

/// A tombstone was removed while an older batch was in flight. The batch's part, applied
/// afterwards, showed what the tombstone deletes.
#[test]
fn tombstones_stay_while_an_older_batch_is_in_flight() {
    let sim = at(NOW_S);
    let options = of(options().table);
    let shard = open(&sim, &options).unwrap();
    let in_flight = options.batches.begin(NOW_S);
    delete(&shard, 1, micros(NOW_S) + 1, NOW_S);
    put(&shard, 2, 1, micros(NOW_S), None);
    flush(&shard);
    sim.now_s.store(NOW_S + 100, Ordering::Relaxed);
    let compact = || {
        let all = i64::MIN..=i64::MAX;
        block_on(shard.compact(TABLE, all, lanes::Group::CONTROL, &WorkProgress::default())).unwrap();
        shard.stats().file_tombstones
    };
    assert_eq!(compact(), 1);
    put(&shard, 1, 1, micros(NOW_S), None);
    assert!(!is_there(&shard, 1), "the tombstone is newer");
    flush(&shard);
    drop(in_flight);
    assert_eq!(compact(), 0);
    assert!(!is_there(&shard, 1));
    block_on(shard.shutdown()).unwrap();
}
