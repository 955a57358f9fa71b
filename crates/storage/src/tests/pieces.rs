//! Scans take wide partitions one piece at a time, and skip the unwanted rest.

use super::*;

const TABLE: TableId = TableId(0);

fn row(clustering: u32, value: u8) -> Change {
    let mut row = RowBuilder::new(&[], &clustering.to_be_bytes(), i64::from(value));
    row.push(CellRef::live(1, i64::from(value), &[value; 100]));
    Change::Row(row.finish())
}

fn write(shard: &Rc<Shard>, token: i64, changes: Vec<Change>) {
    let mutation = Mutation { table: TABLE, token, key: Bytes::from_static(b"key"), changes };
    drop(shard.apply(vec![mutation]).expect("applied"));
}

/// Writes rows of 100 bytes. The caller flushes between calls to get several files.
fn write_wide(shard: &Rc<Shard>, token: i64, rows: u32, value: u8) {
    for first in (0..rows).step_by(50) {
        write(shard, token, (first..rows.min(first + 50)).map(|at| row(at, value)).collect());
        step();
    }
}

fn wide_options() -> StorageOptions {
    let table = TableOptions { block_bytes: 4 << 10, min_threshold: 64, ..TableOptions::default() };
    StorageOptions {
        memtable_bytes_max: 64 << 20,
        segment_bytes: 8 << 20,
        record_bytes_max: 1 << 20,
        table,
        ..options()
    }
}

/// Returns all pieces of a scan: token, clustering of the rows, first and last.
fn pieces(shard: &Rc<Shard>) -> Vec<(i64, Vec<u32>, bool, bool)> {
    let mut scan = shard.scan(TABLE, i64::MIN..=i64::MAX, None, 0);
    let mut all = Vec::new();
    while let Some(piece) = block_on(scan.next_piece()).unwrap() {
        let clustering = |row: RowView| u32::from_be_bytes(row.clustering().try_into().expect("an int"));
        all.push((piece.token, piece.view.rows().map(clustering).collect(), piece.first, piece.last));
    }
    all
}

fn check_pieces(shard: &Rc<Shard>, rows: u32, rows_max: usize, what: &str) {
    let all = pieces(shard);
    assert!(all.iter().all(|(_, rows, ..)| rows.len() <= rows_max), "{what}: a piece is too large");
    for token in [1, 2] {
        let own: Vec<_> = all.iter().filter(|piece| piece.0 == token).collect();
        assert_eq!(own.iter().filter(|piece| piece.2).count(), 1, "{what}: one is the first");
        assert!(
            own.first().is_some_and(|piece| piece.2) && own.last().is_some_and(|piece| piece.3),
            "{what}"
        );
        let seen: Vec<u32> = own.iter().flat_map(|piece| piece.1.clone()).collect();
        assert_eq!(seen, (0..rows).collect::<Vec<_>>(), "{what}: token {token}");
    }
}

#[test]
fn wide_partition_is_scanned_block_by_block() {
    let sim = Arc::new(Sim::default());
    let shard = open(&sim, &wide_options()).unwrap();
    for value in [1, 2] {
        (1..=2).for_each(|token| write_wide(&shard, token, 3_000, value));
        block_on(shard.flush_all()).unwrap();
    }
    // A block has some 35 of these rows.
    check_pieces(&shard, 3_000, 100, "files");
    // A newer version of some rows is in memory.
    write(&shard, 1, (0..3_000).step_by(7).map(|at| row(at, 3)).collect());
    check_pieces(&shard, 3_000, 100, "files and memory");
    let mut scan = shard.scan(TABLE, 1..=1, None, 0);
    let mut seen = 0;
    while let Some(piece) = block_on(scan.next_piece()).unwrap() {
        for row in piece.view.rows() {
            let expected = if seen % 7 == 0 { 3 } else { 2 };
            assert_eq!(row.cell(1).and_then(|cell| cell.value()), Some(&[expected; 100][..]), "row {seen}");
            seen += 1;
        }
    }
    assert_eq!(seen, 3_000);
    drop(scan);
    block_on(shard.shutdown()).unwrap();
    drop_tasks();
}

#[test]
fn memtables_with_one_wide_partition_are_merged_in_pieces() {
    let sim = Arc::new(Sim::default());
    let shard = open(&sim, &StorageOptions { memtable_bytes_max: 512 << 10, ..wide_options() }).unwrap();
    pause_background(&shard, true);
    for value in 1..=3 {
        (1..=2).for_each(|token| write_wide(&shard, token, 3_000, value));
    }
    assert!(shard.stats().memtables_frozen >= 2);
    check_pieces(&shard, 3_000, 256, "memtables");
    pause_background(&shard, false);
    block_on(shard.shutdown()).unwrap();
    drop_tasks();
}

#[test]
fn rest_of_a_partition_is_not_read() {
    let sim = Arc::new(Sim::default());
    let shard = open(&sim, &wide_options()).unwrap();
    for value in [1, 2] {
        write_wide(&shard, 1, 30_000, value);
        write_wide(&shard, 2, 1, value);
        block_on(shard.flush_all()).unwrap();
    }
    write(&shard, 1, (0..1_000).map(|at| row(at, 3)).collect());
    // The log writes as well.
    (0..100).for_each(|_| step());
    let steps_of = |skip: bool| {
        let before = sim.disk.steps();
        let mut scan = shard.scan(TABLE, i64::MIN..=i64::MAX, None, 0);
        let first = block_on(scan.next_piece()).unwrap().expect("a piece");
        assert!(first.first && !first.last && first.token == 1);
        if skip {
            scan.skip_rest();
        }
        let mut next = block_on(scan.next_piece()).unwrap().expect("a piece");
        while next.token == 1 {
            assert!(!skip && !next.first);
            next = block_on(scan.next_piece()).unwrap().expect("a piece");
        }
        assert!(next.first && next.last && next.view.rows().count() == 1);
        assert!(block_on(scan.next_piece()).unwrap().is_none());
        sim.disk.steps() - before
    };
    let (whole, skipped) = (steps_of(false), steps_of(true));
    // The first blocks of each file, and those at the end of the partition.
    assert!(skipped <= 4 && whole > skipped, "{skipped} reads, {whole} of all");
    // A scan that starts behind a partition does not read it either.
    let before = sim.disk.steps();
    let mut scan = shard.scan(TABLE, i64::MIN..=i64::MAX, Some((1, Bytes::from_static(b"key"))), 0);
    assert_eq!(block_on(scan.next_piece()).unwrap().expect("a piece").token, 2);
    assert_eq!(sim.disk.steps() - before, 2);
    drop(scan);
    block_on(shard.shutdown()).unwrap();
    drop_tasks();
}

/// All sources together have as many range deletions as rows. A read looks up those of its row.
#[test]
fn reads_look_up_range_deletions() {
    let sim = Arc::new(Sim::default());
    let shard = open(&sim, &wide_options()).unwrap();
    let range = |at: u32, timestamp: i64| {
        let start = Bound::Included(Bytes::from(at.to_be_bytes().to_vec()));
        let end = Bound::Excluded(Bytes::from((at + 1).to_be_bytes().to_vec()));
        Change::DeleteRange { start, end, deletion: Deletion { timestamp, deleted_at_s: 0 } }
    };
    for round in 0..3 {
        for first in (0..600).step_by(50) {
            write(&shard, 1, (first..first + 50).map(|at| row(at, 5)).collect());
            // Each round deletes other rows, every third one late enough.
            let deleted = (first..first + 50).filter(|at| at % 3 == round);
            write(&shard, 1, deleted.map(|at| range(at, if at % 9 == 0 { 6 } else { 4 })).collect());
            step();
        }
        if round < 2 {
            block_on(shard.flush_all()).unwrap();
        }
    }
    let ranges_of = |request: crate::table::part::PartRequest| {
        let key = Bytes::from_static(b"key");
        let target = crate::read::ReadTarget { table: TABLE, token: 1, key, now_s: 0 };
        let (mut gather, missing) = shard.gather(&target, request).unwrap();
        missing
            .into_iter()
            .for_each(|missing| block_on(gather.finish(&*shard.env, &shard.store.cache, missing)).unwrap());
        match gather.found.expect("found") {
            crate::model::partition::Partition::Full(full) => full.ranges.len(),
            crate::model::partition::Partition::Single(_) => 0,
        }
    };
    for at in 0..600u32 {
        let clustering = Bytes::from(at.to_be_bytes().to_vec());
        let read = shard.read_row(TABLE, 1, b"key", &clustering, Pick::ALL, 0).wait();
        assert_eq!(block_on(read).unwrap().is_some(), at % 9 != 0, "row {at}");
        if at % 50 == 0 {
            let request = crate::table::part::PartRequest::Row {
                clustering: clustering.clone(),
                columns: None,
                bypass_cache: false,
            };
            assert_eq!(ranges_of(request), 0);
            let end = Bound::Included(Bytes::from((at + 9).to_be_bytes().to_vec()));
            let slice = Slice { start: Bound::Included(clustering), end, ..Slice::all(100) };
            let steps = ranges_of(crate::table::part::PartRequest::Slice(slice.into()));
            assert!((1..=22).contains(&steps), "{steps} steps of ranges");
        }
    }
    block_on(shard.shutdown()).unwrap();
    drop_tasks();
}

/// A read of many large rows would otherwise take hundreds of times their bytes at once.
#[test]
fn slices_of_large_rows_end_early() {
    const ROW_BYTES: usize = 200 << 10;
    let sim = Arc::new(Sim::default());
    let shard = open(&sim, &wide_options()).unwrap();
    for (value, every) in [(1, 1), (2, 3), (3, 4)] {
        for at in (0..60u32).step_by(every) {
            let mut row = RowBuilder::new(&[], &at.to_be_bytes(), i64::from(value));
            row.push(CellRef::live(1, i64::from(value), &vec![value; ROW_BYTES]));
            write(&shard, 1, vec![Change::Row(row.finish())]);
            step();
        }
        if value < 3 {
            block_on(shard.flush_all()).unwrap();
        }
    }
    for reversed in [false, true] {
        let mut slice = Slice { reversed, ..Slice::all(256) };
        let mut seen = Vec::new();
        loop {
            let read = shard.read_slice(TABLE, 1, b"key", &slice, 0).wait();
            let sliced = block_on(read).unwrap().expect("a partition");
            let rows = sliced.view.range(Bound::Unbounded, Bound::Unbounded, reversed).count();
            assert!(rows <= 3 * 6, "{rows} rows at once");
            for row in sliced.view.range(Bound::Unbounded, Bound::Unbounded, reversed) {
                let at = u32::from_be_bytes(row.clustering().try_into().expect("an int"));
                let value = if at % 4 == 0 {
                    3
                } else if at % 3 == 0 {
                    2
                } else {
                    1
                };
                let cell = row.cell(1).expect("a cell");
                assert_eq!(cell.value().map(|bytes| bytes[0]), Some(value), "row {at}");
                seen.push(at);
            }
            let Some(next) = sliced.next else { break };
            slice = slice.behind(next);
        }
        if reversed {
            seen.reverse();
        }
        assert_eq!(seen, (0..60).collect::<Vec<_>>());
    }
    block_on(shard.shutdown()).unwrap();
    drop_tasks();
}
