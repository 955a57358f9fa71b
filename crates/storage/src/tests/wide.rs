//! Scans by columns of partitions that are larger than a batch, and of runs of many files.

use arrow_array::cast::AsArray;

use super::*;
use crate::{BatchRequest, ColumnType, ScanColumn};

const TABLE: TableId = TableId(0);
const BATCH_ROWS: usize = 100;

fn wide_options() -> StorageOptions {
    let table = TableOptions { block_bytes: 4 << 10, min_threshold: 64, ..TableOptions::default() };
    let (memtable_bytes_max, segment_bytes) = (64 << 20, 8 << 20);
    StorageOptions { memtable_bytes_max, segment_bytes, record_bytes_max: 1 << 20, table, ..options() }
}

fn write(shard: &Rc<Shard>, clustering: impl Iterator<Item = u32>, value: u8) {
    for at in clustering {
        let mut row = RowBuilder::new(&[], &at.to_be_bytes(), i64::from(value));
        row.push(CellRef::live(1, i64::from(value), &[value; 100]));
        let changes = vec![Change::Row(row.finish())];
        let mutation = Mutation { table: TABLE, token: 1, key: Bytes::from_static(b"key"), changes };
        drop(shard.apply(vec![mutation]).expect("applied"));
        step();
    }
}

fn write_statics(shard: &Rc<Shard>) {
    let mut statics = RowBuilder::new(&[], &[], 1);
    statics.push(CellRef::live(9, 1, b"static"));
    let changes = vec![Change::Static(statics.finish())];
    let mutation = Mutation { table: TABLE, token: 1, key: Bytes::from_static(b"key"), changes };
    drop(shard.apply(vec![mutation]).expect("applied"));
}

/// Returns the clustering and the first byte of the value of each row, and the greatest number of
/// rows held beside a batch.
fn scanned(shard: &Rc<Shard>) -> (Vec<(u32, u8)>, usize) {
    let columns = vec![
        ScanColumn::Clustering(ColumnType::Binary),
        ScanColumn::Cell(1, ColumnType::Binary),
        ScanColumn::Static(9, ColumnType::Binary),
    ];
    let mut scan = shard.batch_snapshot(TABLE, 0).scan(BatchRequest::all(columns, BATCH_ROWS));
    let (mut rows, mut held) = (Vec::new(), 0);
    while let Some(batch) = block_on(scan.next()).unwrap() {
        assert!((1..=BATCH_ROWS).contains(&batch.num_rows()), "{} rows", batch.num_rows());
        held = held.max(scan.rows_held());
        let of = |column: usize| batch.column(column).as_binary::<i32>();
        for at in 0..batch.num_rows() {
            let clustering = u32::from_be_bytes(of(0).value(at).try_into().expect("an int"));
            assert_eq!(of(2).value(at), b"static");
            rows.push((clustering, of(1).value(at)[0]));
        }
    }
    (rows, held)
}

/// A partition in several sources was once merged whole, and its rows were one batch.
#[test]
fn scan_by_columns_holds_a_stretch_of_a_wide_partition() {
    let sim = Arc::new(Sim::default());
    let shard = open(&sim, &wide_options()).unwrap();
    write_statics(&shard);
    write(&shard, 0..3000, 1);
    block_on(shard.flush_all()).unwrap();
    write(&shard, (0..3000).step_by(3), 2);
    block_on(shard.flush_all()).unwrap();
    write(&shard, (0..3000).step_by(5), 3);
    let (rows, held) = scanned(&shard);
    let value = |at: u32| match (at.is_multiple_of(5), at.is_multiple_of(3)) {
        (true, _) => 3,
        (false, true) => 2,
        (false, false) => 1,
    };
    assert_eq!(rows, (0..3000).map(|at| (at, value(at))).collect::<Vec<_>>());
    // A block of each file has some 35 rows.
    assert!(held <= 256, "{held} rows were held");
    block_on(shard.shutdown()).unwrap();
    drop_tasks();
}

#[test]
fn partition_in_memory_is_scanned_in_batches() {
    let sim = Arc::new(Sim::default());
    let shard = open(&sim, &wide_options()).unwrap();
    write_statics(&shard);
    write(&shard, 0..2500, 1);
    let (rows, _) = scanned(&shard);
    assert_eq!(rows, (0..2500).map(|at| (at, 1)).collect::<Vec<_>>());
    block_on(shard.shutdown()).unwrap();
    drop_tasks();
}

/// Each step of a scan once visited all files.
#[test]
fn scan_by_columns_has_one_source_for_a_run_of_many_files() {
    let sim = Arc::new(Sim::default());
    let table = TableOptions { fragment_bytes: 8 << 10, ..wide_options().table };
    let shard = open(&sim, &StorageOptions { table, ..wide_options() }).unwrap();
    for number in 0..2000i64 {
        let mut row = RowBuilder::new(&[], &[], 1);
        let mut random = Random::new(number as u64 + 1);
        let value: Vec<u8> = (0..64).map(|_| random.below(256) as u8).collect();
        row.push(CellRef::live(1, 1, &value));
        let key = number.to_be_bytes().to_vec().into();
        let changes = vec![Change::Row(row.finish())];
        drop(shard.apply(vec![Mutation { table: TABLE, token: number * 7, key, changes }]).expect("applied"));
        step();
    }
    block_on(shard.flush_all()).unwrap();
    block_on(shard.compact_all(TABLE)).unwrap();
    let files = shard.stats().files;
    assert!(files > 10, "{files} files");
    let request = BatchRequest::all(vec![ScanColumn::Token], BATCH_ROWS);
    let mut scan = shard.batch_snapshot(TABLE, 0).scan(request);
    let mut tokens = Vec::new();
    while let Some(batch) = block_on(scan.next()).unwrap() {
        assert!(scan.files.len() <= 1, "{} sources of {files} files", scan.files.len());
        tokens
            .extend(batch.column(0).as_primitive::<arrow_array::types::Int64Type>().values().iter().copied());
    }
    assert_eq!(tokens, (0..2000).map(|number| number * 7).collect::<Vec<_>>());
    block_on(shard.shutdown()).unwrap();
    drop_tasks();
}
