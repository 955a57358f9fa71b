//! Record batches hold what the scan by partitions yields, whatever files and memtables overlap.

use std::ops::Bound;
use std::rc::Rc;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};
use bytes::Bytes;
use lanes::sim::Random;

use crate::sim::{Sim, block_on};
use crate::*;

type Line = (i64, Bytes, Option<Vec<u8>>, Vec<Option<Vec<u8>>>);

fn request(columns: u32, rows: usize) -> BatchRequest {
    let mut wanted = vec![ScanColumn::Token, ScanColumn::Key, ScanColumn::Clustering];
    wanted.extend((0..columns).map(|column| ScanColumn::Cell(column, ColumnType::Binary)));
    wanted.extend((0..columns).map(|column| ScanColumn::Static(column, ColumnType::Binary)));
    BatchRequest { columns: wanted, tokens: i64::MIN..=i64::MAX, conditions: Vec::new(), rows }
}

fn lines_of(batch: &RecordBatch) -> Vec<Line> {
    let binary = |column: usize, row: usize| {
        let array = batch.column(column).as_binary::<i32>();
        (!array.is_null(row)).then(|| array.value(row).to_vec())
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
    let statics = || (0..columns).map(|column| owned(view.static_cell(column)));
    let line = |row: RowView| {
        let cells = (0..columns).map(|column| owned(row.cell(column))).chain(statics()).collect();
        (token, key.clone(), Some(row.clustering().to_vec()), cells)
    };
    let mut lines: Vec<Line> = view.rows().map(line).collect();
    if lines.is_empty() && view.static_cells().next().is_some() {
        lines.push((token, key.clone(), None, (0..columns).map(|_| None).chain(statics()).collect()));
    }
    lines
}

/// All rows of a table, by batches and by partitions.
pub(crate) fn check_batches(shard: &Rc<Shard>, table: TableId, tokens: (i64, i64), now_s: u32, what: &str) {
    const COLUMNS: u32 = 4;
    let mut expected = Vec::new();
    let mut scan = shard.scan(table, tokens.0..=tokens.1, None, now_s);
    while let Some((token, key, view)) = block_on(scan.next()).expect(what) {
        expected.extend(lines_of_view(token, &key, &view, COLUMNS));
    }
    let request = BatchRequest { tokens: tokens.0..=tokens.1, ..request(COLUMNS, 7) };
    let mut scan = shard.scan_batches(table, request, now_s);
    let mut found = Vec::new();
    while let Some(batch) = block_on(scan.next()).expect(what) {
        assert!(batch.num_rows() > 0, "{what}: an empty batch");
        found.extend(lines_of(&batch));
    }
    assert_eq!(found, expected, "{what}: batches of {table:?} in {tokens:?}");
}

const TABLE: TableId = TableId(3);

fn options() -> Options {
    let table = TableOptions { block_bytes: 2048, ..TableOptions::default() };
    Options { table, ..Options::in_dir("/data", 0, 1) }
}

/// Partitions with a number, a short text and sometimes a third column; three rows of clustering each.
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
fn files_that_do_and_do_not_overlap_are_scanned_alike() {
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
            check_batches(&shard, TABLE, (i64::MIN, i64::MAX), now_s, "all");
            check_batches(&shard, TABLE, (-20, 137), now_s, "some");
            check_batches(&shard, TABLE, (200, 200), now_s, "one");
            check_batches(&shard, TABLE, (2000, i64::MAX), now_s, "none");
        }
    }
    block_on(shard.shutdown()).unwrap();
}

#[test]
fn blocks_that_cannot_match_are_passed_over() {
    let shard = open();
    write(&shard, 0..1000, &mut Random::new(2), 1);
    block_on(shard.flush_all()).unwrap();
    // In memory, and newer: 500 no longer matches.
    let mut row = RowBuilder::new(&[], &[0], 9);
    row.push(CellRef::live(0, 9, &7i64.to_be_bytes()));
    block_on(shard.put(TABLE, 500, &500i64.to_be_bytes(), &row.draft()).unwrap()).unwrap();
    let bound = |number: i64| Bound::Included(Bytes::copy_from_slice(&number.to_be_bytes()));
    let encoding = ColumnEncoding::Signed(8);
    let condition = ValueRange { column: 0, encoding, low: bound(4990), high: bound(5010) };
    let columns = vec![ScanColumn::Clustering, ScanColumn::Cell(0, ColumnType::Int64)];
    let request = BatchRequest { columns, conditions: vec![condition], ..request(0, 100) };
    let mut scan = shard.scan_batches(TABLE, request, 0);
    let (mut rows, mut matching) = (0, Vec::new());
    while let Some(batch) = block_on(scan.next()).unwrap() {
        rows += batch.num_rows();
        let numbers = batch.column(1).as_primitive::<Int64Type>();
        matching.extend(numbers.values().iter().copied().filter(|n| (4990..=5010).contains(n)));
    }
    assert_eq!(matching, [4990, 4990, 4990, 5000, 5000, 5010, 5010, 5010]);
    assert!(rows < 300, "{rows} of 3000 rows were looked at");
    block_on(shard.shutdown()).unwrap();
}
