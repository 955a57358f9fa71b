//! Record batches have the rows that the scan by partitions yields, for all overlaps of files and
//! memtables.

use std::ops::{Bound, RangeInclusive};
use std::rc::Rc;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};
use bytes::Bytes;
use testkit::Random;

use crate::sim::{Sim, block_on};
use crate::*;

type Line = (i64, Bytes, Option<Vec<u8>>, Vec<Option<Vec<u8>>>);

fn request(columns: u32, rows: usize) -> BatchRequest {
    let mut wanted = vec![
        ScanColumn::Token,
        ScanColumn::Key(ColumnType::Binary),
        ScanColumn::Clustering(ColumnType::Binary),
    ];
    wanted.extend((0..columns).map(|column| ScanColumn::Cell(column, ColumnType::Binary)));
    wanted.extend((0..columns).map(|column| ScanColumn::Static(column, ColumnType::Binary)));
    wanted.extend((0..columns).map(ScanColumn::Elements));
    wanted.extend((0..columns).map(ScanColumn::StaticElements));
    BatchRequest::all(wanted, rows)
}

/// Encodes a path and a value unambiguously.
fn element(path: &[u8], value: &[u8]) -> Vec<u8> {
    format!("{path:?}={value:?};").into_bytes()
}

fn lines_of(batch: &RecordBatch) -> Vec<Line> {
    let binary = |column: usize, row: usize| {
        let array = batch.column(column);
        if let Some(list) = array.as_list_opt::<i32>() {
            let elements = list.value(row);
            let part = |part: usize, at: usize| {
                elements.as_struct().column(part).as_binary::<i32>().value(at).to_vec()
            };
            let all = (0..elements.len()).flat_map(|at| element(&part(0, at), &part(1, at)));
            return (!list.is_null(row)).then(|| all.collect());
        }
        (!array.is_null(row)).then(|| array.as_binary::<i32>().value(row).to_vec())
    };
    let line = |row: usize| {
        let token = batch.column(0).as_primitive::<Int64Type>().value(row);
        let cells = (3..batch.num_columns()).map(|column| binary(column, row)).collect();
        (token, Bytes::from(binary(1, row).expect("a key")), binary(2, row), cells)
    };
    (0..batch.num_rows()).map(line).collect()
}

fn lines_of_view(token: i64, key: &Bytes, view: &PartitionView, columns: u32) -> Vec<Line> {
    let owned = |cell: Option<CellRef<'_>>| cell.and_then(|cell| cell.value()).map(<[u8]>::to_vec);
    let one = |cell: CellRef<'_>| element(cell.path.unwrap_or_default(), cell.value().unwrap_or_default());
    let filled = |all: Vec<u8>| (!all.is_empty()).then_some(all);
    let statics = || (0..columns).map(|column| owned(view.static_cell(column)));
    let static_elements =
        || (0..columns).map(|column| filled(view.static_elements(column).flat_map(one).collect()));
    let line = |row: RowView| {
        let elements = (0..columns).map(|column| filled(row.elements(column).flat_map(one).collect()));
        let cells = (0..columns).map(|column| owned(row.cell(column))).chain(statics());
        let cells = cells.chain(elements).chain(static_elements()).collect();
        (token, key.clone(), Some(row.clustering().to_vec()), cells)
    };
    let mut lines: Vec<Line> = view.rows().map(line).collect();
    if lines.is_empty() && view.static_cells().next().is_some() {
        lines.push((token, key.clone(), None, {
            let none = || (0..columns).map(|_| None);
            none().chain(statics()).chain(none()).chain(static_elements()).collect()
        }));
    }
    lines
}

/// Compares all rows of a table by batches with those by partitions.
pub(crate) fn check_batches(
    shard: &Rc<Shard>,
    table: TableId,
    tokens: RangeInclusive<i64>,
    now_s: u32,
    what: &str,
) {
    const COLUMNS: u32 = 4;
    let mut expected = Vec::new();
    let mut scan = shard.scan(table, tokens.clone(), None, now_s);
    while let Some((token, key, view)) = block_on(scan.next()).expect(what) {
        expected.extend(lines_of_view(token, &key, &view, COLUMNS));
    }
    let snapshot = shard.batch_snapshot(table, now_s);
    let check = |tokens: Vec<RangeInclusive<i64>>, in_order: bool, expected: &[Line]| {
        let request = BatchRequest { tokens: tokens.clone(), in_order, ..request(COLUMNS, 7) };
        let mut scan = snapshot.scan(request);
        let (mut found, mut progress) = (Vec::new(), 0.0);
        while let Some(batch) = block_on(scan.next()).expect(what) {
            assert!(batch.num_rows() > 0, "{what}: an empty batch");
            assert!(scan.progress() >= progress, "{what}: progress fell from {progress}");
            progress = scan.progress();
            found.extend(lines_of(&batch));
        }
        assert_eq!(
            (scan.progress(), block_on(scan.next()).expect(what)),
            (1.0, None),
            "{what}: the scan ended"
        );
        // Otherwise partitions arrive in no particular order, the rows of a partition in theirs.
        if !in_order {
            found.sort_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
        }
        assert_eq!(found, expected, "{what}: batches of {table:?} in {tokens:?}, in order: {in_order}");
        let Visited { rows, dead, .. } = scan.take_visited();
        let live = found.iter().filter(|line| line.2.is_some()).count() as u64;
        assert_eq!(rows - dead, live, "{what}: {dead} dead rows of {rows} in {table:?}");
    };
    let check = |tokens: Vec<RangeInclusive<i64>>, expected: &[Line]| {
        [false, true].into_iter().for_each(|in_order| check(tokens.clone(), in_order, expected));
    };
    check(vec![tokens.clone()], &expected);
    // Token ranges of the same snapshot: single tokens and longer ranges, others left out.
    let mut present: Vec<i64> = expected.iter().map(|line| line.0).collect();
    present.dedup();
    let ranges = present.chunks(3).enumerate().map(|(place, some)| match place % 3 {
        0 => some[0]..=some[0],
        1 => some[0]..=some[some.len() - 1],
        _ => some[0].saturating_add(1)..=some[0],
    });
    let ranges: Vec<_> = ranges.collect();
    expected.retain(|line| ranges.iter().any(|range| range.contains(&line.0)));
    check(ranges, &expected);
    check(vec![], &[]);
}

/// Compares the rows with numbers in a range, with and without a scan that is narrowed to the range
/// halfway.
fn check_narrowed(shard: &Rc<Shard>, random: &mut Random, what: &str) {
    let low = random.below(900) as i64 - 300;
    let range = low..=low + random.below(200) as i64;
    let bound = |number: &i64| Bound::Included(Bytes::copy_from_slice(&number.to_be_bytes()));
    let (low, high) = (bound(range.start()), bound(range.end()));
    let condition = ValueRange { column: 0, encoding: ColumnEncoding::Signed(8), low, high };
    let lines = |narrowed_after: Option<u64>| {
        let mut scan = shard.batch_snapshot(TABLE, 0).scan(request(2, 20));
        let (mut lines, mut batches) = (Vec::new(), 0);
        loop {
            if narrowed_after == Some(batches) {
                scan.narrow(vec![condition.clone()], (Bound::Unbounded, Bound::Unbounded));
            }
            let Some(batch) = block_on(scan.next()).expect(what) else { break };
            lines.extend(lines_of(&batch));
            batches += 1;
        }
        let number = |line: &Line| Some(i64::from_be_bytes(line.3[0].as_ref()?[..].try_into().ok()?));
        lines.retain(|line| number(line).is_some_and(|number| range.contains(&number)));
        lines.sort();
        lines
    };
    assert_eq!(lines(Some(random.below(4))), lines(None), "{what}: numbers in {range:?}");
}

const TABLE: TableId = TableId(3);

fn options() -> StorageOptions {
    let table = TableOptions { block_bytes: 2048, ..TableOptions::default() };
    StorageOptions { table, ..StorageOptions::in_dir("/data", 0, 1) }
}

/// Writes partitions of three rows with a number, a short text and sometimes a third column.
fn write(shard: &Rc<Shard>, numbers: impl Iterator<Item = i64>, random: &mut Random, timestamp: i64) {
    for number in numbers {
        let key = number.to_be_bytes();
        for clustering in 0..3u8 {
            let mut row = RowBuilder::new(&[], &[clustering], timestamp);
            if random.below(3) > 0 {
                row.marker(Some(Liveness { timestamp, expiry: None }));
            }
            row.push(CellRef::live(0, timestamp, &(number * 10).to_be_bytes()));
            row.push(CellRef::live(1, timestamp, format!("n{number}").as_bytes()));
            match random.below(4) {
                0 => row.push(CellRef::live(2, timestamp, b"third")),
                1 => row.push(CellRef::dead(2, timestamp, 1)),
                2 => row.push(CellRef::expiring(2, timestamp, b"brief", Expiry { ttl_s: 5, at_s: 1005 })),
                _ => {}
            }
            block_on(shard.put(TABLE, number, &key, &row.draft()).unwrap()).unwrap();
        }
    }
}

fn open() -> Rc<Shard> {
    let shard = block_on(Shard::open_in(options(), Arc::new(Sim::default()))).unwrap();
    let layout = ColumnLayout { column: 0, encoding: ColumnEncoding::Signed(8) };
    shard.describe(TABLE, vec![layout]);
    shard
}

#[test]
fn overlapping_and_disjoint_files_yield_the_same_rows() {
    let shard = open();
    let mut random = Random::new(1);
    write(&shard, -500..0, &mut random, 1);
    block_on(shard.flush_all()).unwrap();
    write(&shard, 100..400, &mut random, 1);
    block_on(shard.flush_all()).unwrap();
    write(&shard, (-20..450).step_by(37), &mut random, 2);
    let deletion = Deletion { timestamp: 3, deleted_at_s: 1000 };
    let key = Bytes::copy_from_slice(&200i64.to_be_bytes());
    let changes = vec![Change::DeletePartition(deletion)];
    block_on(shard.apply(vec![Mutation { table: TABLE, token: 200, key, changes }]).unwrap()).unwrap();
    for flushed in [false, true] {
        if flushed {
            block_on(shard.flush_all()).unwrap();
        }
        for now_s in [1000, 2000] {
            check_batches(&shard, TABLE, i64::MIN..=i64::MAX, now_s, "all");
            check_batches(&shard, TABLE, -20..=137, now_s, "some");
            check_batches(&shard, TABLE, 200..=200, now_s, "one");
            check_batches(&shard, TABLE, 2000..=i64::MAX, now_s, "none");
        }
    }
    block_on(shard.shutdown()).unwrap();
}

/// Sources that overlap in every way: tokens that several keys share, within and across sources and
/// at both ends of the range; partitions of more than a block; deleted partitions and rows; static
/// cells; fragments of any length.
#[test]
fn overlapping_sources_neither_lose_nor_repeat_rows() {
    for seed in 0..12 {
        let shard = open();
        let mut random = Random::new(seed);
        let pick = [i64::MIN, i64::MIN + 1, -7, 0, 5, 6, 1000, i64::MAX - 1, i64::MAX];
        for round in 0..6 {
            let timestamp = 10 + round;
            for _ in 0..random.below(120) {
                let token = match random.below(3) {
                    0 => pick[random.below(pick.len() as u64) as usize],
                    _ => random.below(400) as i64 - 200,
                };
                // Two keys for each token.
                let key =
                    Bytes::from(vec![random.below(5).min(1) as u8; 1 + token.unsigned_abs() as usize % 3]);
                let rows = if random.below(30) == 0 { 150 } else { 1 + random.below(3) };
                let mut changes = Vec::new();
                for at in 0..rows {
                    let clustering = (at as u16).to_be_bytes();
                    let mut row = RowBuilder::new(&[], &clustering, timestamp);
                    let number = token.wrapping_add(100 * round);
                    row.push(CellRef::live(0, timestamp, &number.to_be_bytes()));
                    row.push(CellRef::live(1, timestamp, &[b'x'; 40][..random.below(40) as usize]));
                    changes.push(Change::Row(row.finish()));
                }
                let deletion = Deletion { timestamp: timestamp - 1, deleted_at_s: 1000 };
                match random.below(40) {
                    0 => changes.push(Change::DeletePartition(deletion)),
                    1 => {
                        let mut row = RowBuilder::new(&[], &[0, 1], timestamp);
                        row.deletion(Some(deletion));
                        changes.push(Change::Row(row.finish()));
                    }
                    2 => {
                        let mut row = RowBuilder::new(&[], &[], timestamp);
                        row.push(CellRef::live(3, timestamp, b"static"));
                        changes.push(Change::Static(row.finish()));
                    }
                    _ => {}
                }
                block_on(shard.apply(vec![Mutation { table: TABLE, token, key, changes }]).unwrap()).unwrap();
            }
            if random.below(4) > 0 {
                block_on(shard.flush_all()).unwrap();
            }
            for tokens in [i64::MIN..=i64::MAX, -100..=1000, 0..=0, 5..=i64::MAX - 1] {
                check_batches(&shard, TABLE, tokens, 0, &format!("seed {seed}, round {round}"));
            }
            check_narrowed(&shard, &mut random, &format!("seed {seed}, round {round}"));
        }
        block_on(shard.shutdown()).unwrap();
    }
}

#[test]
fn scan_skips_blocks_that_cannot_match() {
    let shard = open();
    write(&shard, 0..1000, &mut Random::new(2), 1);
    block_on(shard.flush_all()).unwrap();
    // The newer version in the memtable does not match any more.
    let mut row = RowBuilder::new(&[], &[0], 9);
    row.push(CellRef::live(0, 9, &7i64.to_be_bytes()));
    block_on(shard.put(TABLE, 500, &500i64.to_be_bytes(), &row.draft()).unwrap()).unwrap();
    let bound = |number: i64| Bound::Included(Bytes::copy_from_slice(&number.to_be_bytes()));
    let encoding = ColumnEncoding::Signed(8);
    let condition = ValueRange { column: 0, encoding, low: bound(4990), high: bound(5010) };
    let columns = vec![ScanColumn::Clustering(ColumnType::Binary), ScanColumn::Cell(0, ColumnType::Int64)];
    let request = BatchRequest { columns, conditions: vec![condition], ..request(0, 100) };
    let mut scan = shard.batch_snapshot(TABLE, 0).scan(request);
    let (mut rows, mut matching) = (0, Vec::new());
    while let Some(batch) = block_on(scan.next()).unwrap() {
        rows += batch.num_rows();
        let numbers = batch.column(1).as_primitive::<Int64Type>();
        matching.extend(numbers.values().iter().copied().filter(|n| (4990..=5010).contains(n)));
    }
    assert_eq!(matching, [4990, 4990, 4990, 5000, 5000, 5010, 5010, 5010]);
    assert!(rows < 300, "{rows} of 3000 rows were visited");
    block_on(shard.shutdown()).unwrap();
}

#[test]
fn scan_finds_cached_chunks_until_the_file_is_deleted() {
    let shard = open();
    write(&shard, 0..1000, &mut Random::new(2), 1);
    block_on(shard.flush_all()).unwrap();
    let rows = |bypass_cache: bool, tokens: RangeInclusive<i64>| {
        let mut scan = shard.batch_snapshot(TABLE, 0).scan(BatchRequest {
            bypass_cache,
            tokens: vec![tokens],
            ..request(3, 100)
        });
        let mut rows = 0;
        while let Some(batch) = block_on(scan.next()).unwrap() {
            rows += batch.num_rows();
        }
        rows
    };
    let looked = || {
        let stats = shard.stats();
        (stats.scan_cache_hits, stats.scan_cache_misses)
    };
    let all = i64::MIN..=i64::MAX;
    let (first, read) = (rows(false, all.clone()), looked().1);
    assert!(read > 0 && looked().0 == 0 && shard.stats().scan_cache_bytes > 10_000, "{:?}", shard.stats());
    assert_eq!((rows(true, all.clone()), looked()), (first, (0, read)), "bypassed");
    assert_eq!((rows(false, all.clone()), looked()), (first, (read, read)));
    // Another range of the same file, from within a cached chunk.
    assert_eq!((rows(false, 600..=610), looked().1), (rows(true, 600..=610), read));
    block_on(shard.compact_all(TABLE)).unwrap();
    block_on(shard.store.sweep());
    assert_eq!(shard.stats().scan_cache_bytes, 0, "the file is deleted");
    assert_eq!(rows(false, all), first);
    block_on(shard.shutdown()).unwrap();
}

/// A chunk with a failed check is not kept: the next scan reads the disk again.
#[test]
fn damaged_chunk_fails_one_scan_only() {
    let sim = Arc::new(Sim::default());
    let shard = block_on(Shard::open_in(options(), sim.clone())).unwrap();
    write(&shard, 0..1000, &mut Random::new(2), 1);
    block_on(shard.flush_all()).unwrap();
    let scan = || {
        let mut scan = shard.batch_snapshot(TABLE, 0).scan(request(3, 100));
        let mut rows = 0;
        while let Some(batch) = block_on(scan.next())? {
            rows += batch.num_rows();
        }
        Ok::<usize, StorageError>(rows)
    };
    let path = shard.state.borrow().tables[&TABLE].files.iter().next().expect("a file").path.clone();
    sim.disk.flip(&path, 20_000, 3);
    assert!(matches!(scan(), Err(StorageError::Corrupt { .. })));
    sim.disk.flip(&path, 20_000, 3);
    let rows = scan().unwrap();
    assert!(rows > 1000 && shard.stats().scan_cache_hits == 0);
    assert_eq!((scan().unwrap(), shard.stats().scan_cache_hits > 0), (rows, true));
    block_on(shard.shutdown()).unwrap();
}

#[test]
fn narrowed_scan_skips_blocks_that_cannot_match() {
    let shard = open();
    write(&shard, 0..1000, &mut Random::new(2), 1);
    block_on(shard.flush_all()).unwrap();
    let high = Bound::Included(Bytes::copy_from_slice(&5010_i64.to_be_bytes()));
    let encoding = ColumnEncoding::Signed(8);
    let condition = ValueRange { column: 0, encoding, low: Bound::Unbounded, high };
    let scan = |narrowed: bool| {
        let columns = vec![ScanColumn::Cell(0, ColumnType::Int64)];
        let mut scan = shard.batch_snapshot(TABLE, 0).scan(BatchRequest { columns, ..request(0, 100) });
        let (mut rows, mut matching) = (0, Vec::new());
        while let Some(batch) = block_on(scan.next()).unwrap() {
            if narrowed {
                scan.narrow(vec![condition.clone()], (Bound::Unbounded, Bound::Unbounded));
            }
            rows += batch.num_rows();
            let numbers = batch.column(0).as_primitive::<Int64Type>();
            matching.extend(numbers.values().iter().copied().filter(|number| *number <= 5010));
        }
        (rows, matching)
    };
    let (all, some) = (scan(false), scan(true));
    assert_eq!(some.1, all.1);
    assert!(some.0 < all.0 * 2 / 3, "{} of {} rows were visited", some.0, all.0);
    block_on(shard.shutdown()).unwrap();
}

#[test]
fn rows_of_dropped_columns_do_not_exist() {
    let shard = open();
    write(&shard, 0..50, &mut Random::new(3), 1);
    for flushed in [false, true] {
        if flushed {
            block_on(shard.flush_all()).unwrap();
        }
        let rows = |known: Option<&[u32]>| {
            let request = BatchRequest { known: known.map(Arc::from), ..request(3, 100) };
            let mut scan = shard.batch_snapshot(TABLE, 0).scan(request);
            let mut rows = 0;
            while let Some(batch) = block_on(scan.next()).unwrap() {
                rows += batch.num_rows();
            }
            assert!(scan.progress() == 1.0, "the scan ended");
            rows
        };
        assert_eq!(rows(None), 150);
        assert_eq!(rows(Some(&[0, 1])), 150);
        let marked = rows(Some(&[]));
        assert!((80..120).contains(&marked), "two thirds have a marker: {marked}");
    }
    block_on(shard.shutdown()).unwrap();
}

#[test]
fn clustering_bounds_keep_all_rows_within() {
    let shard = open();
    write(&shard, 0..300, &mut Random::new(4), 1);
    block_on(shard.flush_all()).unwrap();
    write(&shard, 290..310, &mut Random::new(5), 2);
    let bound = |clustering: u8| Bound::Included(Bytes::copy_from_slice(&[clustering]));
    for clustering in [(bound(1), bound(1)), (bound(2), Bound::Unbounded), (bound(7), Bound::Unbounded)] {
        let lines = |request| {
            let mut scan = shard.batch_snapshot(TABLE, 0).scan(request);
            let mut lines = Vec::new();
            while let Some(batch) = block_on(scan.next()).unwrap() {
                lines.extend(lines_of(&batch));
            }
            use std::ops::RangeBounds;
            lines.retain(|line| {
                line.2.as_ref().is_some_and(|row| clustering.contains(&Bytes::from(row.clone())))
            });
            lines
        };
        let expected = lines(request(3, 100));
        assert_eq!(lines(BatchRequest { clustering: clustering.clone(), ..request(3, 100) }), expected);
    }
    block_on(shard.shutdown()).unwrap();
}

#[test]
fn batches_of_many_columns_have_bounded_bytes() {
    const MAX: usize = 40 << 20;
    let shard = open();
    let value = vec![b'v'; 50_000];
    for number in 0..64i64 {
        let mut row = RowBuilder::new(&[], &[0], 1);
        (0..40).for_each(|column| row.push(CellRef::live(column, 1, &value)));
        block_on(shard.put(TABLE, number, &number.to_be_bytes(), &row.draft()).unwrap()).unwrap();
    }
    let cells = |columns: std::ops::Range<u32>, kind| -> Vec<ScanColumn> {
        columns.map(|column| ScanColumn::Cell(column, kind)).collect()
    };
    for flushed in [false, true] {
        if flushed {
            block_on(shard.flush_all()).unwrap();
        }
        for columns in [cells(0..40, ColumnType::Binary), cells(40..3040, ColumnType::Int64)] {
            let mut scan = shard.batch_snapshot(TABLE, 0).scan(BatchRequest::all(columns, 8192));
            let mut rows = 0;
            while let Some(batch) = block_on(scan.next()).unwrap() {
                let bytes = batch.get_array_memory_size();
                assert!(bytes <= MAX, "{bytes} bytes of {} rows", batch.num_rows());
                rows += batch.num_rows();
            }
            assert_eq!(rows, 64);
        }
    }
    block_on(shard.shutdown()).unwrap();
}

#[test]
fn scan_reports_the_bytes_that_it_is_making() {
    let shard = open();
    write(&shard, 0..2000, &mut Random::new(6), 1);
    block_on(shard.flush_all()).unwrap();
    let mut scan = shard.batch_snapshot(TABLE, 0).scan(request(3, 5000));
    let in_making = scan.in_making();
    let mut most = 0;
    let mut next = Box::pin(scan.next());
    let batch = block_on(std::future::poll_fn(|cx| {
        most = most.max(in_making.load(std::sync::atomic::Ordering::Relaxed));
        next.as_mut().poll(cx)
    }));
    drop(next);
    assert!(batch.unwrap().is_some_and(|batch| batch.num_rows() >= 5000));
    assert!(most > 50_000, "{most} bytes");
    assert_eq!(scan.in_making().load(std::sync::atomic::Ordering::Relaxed), 0);
    block_on(shard.shutdown()).unwrap();
}

#[test]
fn table_size_is_approximate() {
    let shard = open();
    assert_eq!(shard.table_size(TABLE), TableSize::default());
    write(&shard, 0..400, &mut Random::new(6), 1);
    let memory = shard.table_size(TABLE);
    assert!((1000..1500).contains(&memory.rows) && memory.bytes > 1200 * 30, "{memory:?}");
    block_on(shard.flush_all()).unwrap();
    let file = shard.table_size(TABLE);
    assert!(file.rows == 1200 && file.bytes > 1000, "{file:?}");
    block_on(shard.shutdown()).unwrap();
}

#[test]
fn numbers_without_bytes_are_reported() {
    let shard = open();
    let put = |number: i64, timestamp: i64, value: &[u8]| {
        let mut row = RowBuilder::new(&[], &[0], timestamp);
        row.push(CellRef::live(0, timestamp, value));
        block_on(shard.put(TABLE, number, &number.to_be_bytes(), &row.draft()).unwrap()).unwrap();
    };
    let visited = || {
        let columns = vec![ScanColumn::Cell(0, ColumnType::Int32), ScanColumn::Cell(1, ColumnType::Int32)];
        let mut scan = shard.batch_snapshot(TABLE, 0).scan(BatchRequest::all(columns, 100));
        while block_on(scan.next()).unwrap().is_some() {}
        scan.take_visited()
    };
    for flushed in [false, true] {
        (0..10).for_each(|number| put(number, 1, &[0; 4]));
        if flushed {
            block_on(shard.flush_all()).unwrap();
        }
        assert_eq!(
            visited(),
            Visited { rows: 10, dead: 0, bytes: 80, has_empty: false },
            "in a file: {flushed}"
        );
    }
    for flushed in [false, true] {
        put(4, 2, &[]);
        if flushed {
            block_on(shard.flush_all()).unwrap();
        }
        assert!(visited().has_empty, "in a file: {flushed}");
    }
    block_on(shard.shutdown()).unwrap();
}
