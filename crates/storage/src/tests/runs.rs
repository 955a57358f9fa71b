//! Runs of fragments: a compaction of all files in small steps, its disk space, and crashes during
//! it.

use super::*;
use crate::env::{Env, Work};

const ROWS: u64 = 2000;
const TABLE: TableId = TableId(0);

fn fragmented() -> StorageOptions {
    let table = TableOptions { fragment_bytes: 8 << 10, min_threshold: 64, ..options().table };
    StorageOptions { table, memtable_bytes_max: 4 << 20, segment_bytes: 4 << 20, ..options() }
}

fn place(number: u64) -> (i64, Bytes) {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) as i64, Bytes::from(number.to_be_bytes().to_vec()))
}

/// Returns a value that does not compress.
fn value(number: u64, round: u64) -> Vec<u8> {
    let mut random = Random::new(number << 8 | round);
    (0..200).map(|_| random.below(256) as u8).collect()
}

/// Writes every row twice, in two runs.
fn fill(shard: &Rc<Shard>) {
    for round in 1..=2 {
        for number in 0..ROWS {
            let (token, key) = place(number);
            let mut row = RowBuilder::new(&key, &[], round as i64);
            let value = value(number, round);
            let value = CellValue::Live { value: &value, expiry: None };
            row.push(CellRef { column: 1, path: None, timestamp: round as i64, value });
            block_on(shard.put(TABLE, token, &key, &row.draft()).unwrap()).unwrap();
        }
        block_on(shard.flush_all()).unwrap();
    }
}

fn check_rows(shard: &Rc<Shard>, what: &str) {
    for number in 0..ROWS {
        let (token, key) = place(number);
        let row =
            block_on(shard.read_row(TABLE, token, &key, &[], Pick::ALL, 1000).wait()).unwrap().expect(what);
        let CellValue::Live { value: found, .. } = row.cell(1).expect(what).value else { panic!("{what}") };
        assert_eq!(found, value(number, 2), "{what}: row {number}");
    }
    let mut scan = shard.scan(TABLE, i64::MIN..=i64::MAX, None, 1000);
    let mut count = 0;
    while block_on(scan.next()).unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, ROWS, "{what}");
}

/// A compaction once held a wide partition in memory as a whole.
#[test]
fn wide_partition_is_compacted_by_stretches() {
    let sim = Arc::new(Sim::new(5));
    let shard = open(&sim, &fragmented()).unwrap();
    let (token, key) = place(1);
    let mut model = Model::default();
    for round in 1..=3u16 {
        for number in 0..600u16 {
            let mut row = RowBuilder::new(&[], &(number * round).to_be_bytes(), i64::from(round));
            row.push(CellRef::live(1, i64::from(round), &value(u64::from(number), 1)[..50]));
            let range = (Bound::Included(Bytes::from(number.to_be_bytes().to_vec())), Bound::Unbounded);
            let deletion = Deletion { timestamp: i64::from(round) - 1, deleted_at_s: 900 };
            let mut changes = vec![Change::Row(row.finish())];
            if number == 500 {
                changes.push(Change::DeleteRange { start: range.0, end: range.1, deletion });
            }
            let mutations = vec![Mutation { table: TABLE, token, key: key.clone(), changes }];
            block_on(shard.apply(mutations.clone()).unwrap()).unwrap();
            model.records.push(mutations);
        }
        block_on(shard.flush_all()).unwrap();
    }
    let files = shard.state.borrow().tables[&TABLE].files.clone();
    let from = crate::memtable::ScanFrom::Token(i64::MIN);
    let mut stream = crate::read::merge::MergeStream::new([], &files, from, i64::MAX);
    let (mut pieces, mut most) = (0, 0);
    while let Some(piece) = block_on(stream.next_piece()).unwrap() {
        pieces += 1;
        most = most.max(piece.partition.row_count());
    }
    // A block of 512 bytes has fewer than ten such rows, and there are three files.
    assert!(pieces > 100 && most < 30, "{pieces} pieces of up to {most} rows");
    drop((stream, files));
    block_on(shard.compact_all(TABLE)).unwrap();
    let view = block_on(shard.read_partition(TABLE, token, &key, 1000).wait()).unwrap().unwrap();
    assert_eq!(seen(&view), model.see(TABLE, &key, 1000));
    block_on(shard.shutdown()).unwrap();
}

/// Returns the bytes of table files on the disk, including obsolete ones.
fn space(shard: &Shard) -> u64 {
    let stats = shard.stats();
    stats.file_bytes + stats.obsolete_bytes
}

/// Compacts everything step by step. Returns the greatest space used, in per mille of the space
/// before.
fn most_space(shard: &Rc<Shard>, sim: &Arc<Sim>) -> u64 {
    let before = space(shard);
    let done = Rc::new(std::cell::Cell::new(false));
    let (own, ended) = (shard.clone(), done.clone());
    let all = async move {
        own.compact_all(TABLE).await.expect("compacts");
        ended.set(true);
    };
    sim.spawn(Work::Control, Box::pin(all));
    let mut most = 0;
    for _ in 0..1_000_000 {
        if done.get() {
            return most * 1000 / before;
        }
        most = most.max(space(shard));
        step();
    }
    panic!("the compaction does not end");
}

#[test]
fn full_compaction_needs_the_space_of_a_few_fragments() {
    let sim = Arc::new(Sim::new(1));
    let shard = open(&sim, &fragmented()).unwrap();
    fill(&shard);
    assert!(shard.stats().files > 50, "{:?}", shard.stats());
    let most = most_space(&shard, &sim);
    assert!(most <= 1100, "{most} per mille of the table");
    let stats = shard.stats();
    assert!(stats.files > 25 && stats.obsolete_bytes == 0, "{stats:?}");
    check_rows(&shard, "compacted");
    block_on(shard.shutdown()).unwrap();
    let shard = open(&sim, &fragmented()).unwrap();
    check_rows(&shard, "opened again");
}

#[test]
fn crash_during_a_compaction_loses_and_leaks_nothing() {
    for seed in 0..6 {
        let sim = Arc::new(Sim::new(seed));
        let shard = open(&sim, &fragmented()).unwrap();
        fill(&shard);
        let own = shard.clone();
        sim.spawn(Work::Control, Box::pin(async move { drop(own.compact_all(TABLE).await) }));
        let mut random = Random::new(seed);
        (0..200 + random.below(2000)).for_each(|_| step());
        drop_tasks();
        drop(shard);
        sim.crash();
        let shard = open(&sim, &fragmented()).unwrap();
        check_rows(&shard, &format!("after the crash, seed {seed}"));
        block_on(shard.compact_all(TABLE)).unwrap();
        check_rows(&shard, &format!("compacted after the crash, seed {seed}"));
        let stats = shard.stats();
        let names = block_on(sim.list(&shard.store.dir.join("tables"))).unwrap();
        assert_eq!((names.len() as u64, stats.obsolete_bytes), (stats.files, 0), "seed {seed}: {stats:?}");
    }
}

/// A row once existed because of a cell in memory of an unrequested column, whose tombstone was in
/// a file.
#[test]
fn stale_cell_of_a_column_left_out_makes_no_row() {
    let sim = Arc::new(Sim::new(6));
    let shard = open(&sim, &options()).unwrap();
    let (token, key) = place(1);
    let write = |cell: CellRef<'_>| {
        let mut row = RowBuilder::new(&key, &[], cell.timestamp);
        row.push(cell);
        block_on(shard.put(TABLE, token, &key, &row.draft()).unwrap()).unwrap();
    };
    let read = |pick| block_on(shard.read_row(TABLE, token, &key, &[], pick, 1000).wait()).unwrap();
    write(CellRef::dead(3, 10, 900));
    block_on(shard.flush_all()).unwrap();
    write(CellRef::live(3, 5, b"stale"));
    for pick in [Pick::columns(&[]), Pick::columns(&[0]), Pick::columns(&[3]), Pick::ALL] {
        assert!(read(pick).is_none(), "{pick:?}");
    }
    write(CellRef::live(3, 11, b"new"));
    for pick in [Pick::columns(&[]), Pick::columns(&[0]), Pick::columns(&[3]), Pick::ALL] {
        assert!(read(pick).is_some(), "{pick:?}");
    }
    block_on(shard.shutdown()).unwrap();
}
