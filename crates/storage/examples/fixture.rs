//! Writes a data folder for `tests/fixtures`:
//! `cargo run -p storage --example fixture DIR lz4|zstd`.
//!
//! Table 1 has 40 partitions of one row. Table 2 has three partitions of 60 rows with static cells,
//! collection elements, an expired and a dead cell each, and a deleted range. Most of both is in
//! table files. The rest is in the log only, because the process exits without a shutdown.

use std::ops::Bound;
use std::rc::Rc;

use lanes::Group;
use storage::{
    CellRef, Change, ColumnEncoding, ColumnLayout, Compression, Deletion, Expiry, Liveness, Mutation,
    RowBuilder, Shard, StorageOptions, TableId, TableOptions,
};

const SIMPLE: TableId = TableId(1);
const WIDE: TableId = TableId(2);

fn place(number: u64) -> (i64, Vec<u8>) {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) as i64, number.to_be_bytes().to_vec())
}

fn mutation(table: TableId, number: u64, change: Change) -> Mutation {
    let (token, key) = place(number);
    Mutation { table, token, key: key.into(), changes: vec![change] }
}

fn simple(number: u64) -> Mutation {
    let mut row = RowBuilder::new(&[], &[], 10);
    row.marker(Some(Liveness { timestamp: 10, expiry: None }));
    row.push(CellRef::live(1, 10, &(number * 1000).to_be_bytes()));
    row.push(CellRef::live(2, 10, format!("this is what row {number} says, again and again").as_bytes()));
    mutation(SIMPLE, number, Change::Row(row.finish()))
}

fn wide(number: u64, row: u8) -> Mutation {
    let clustering = [row];
    let mut cells = RowBuilder::new(&[], &clustering, 20);
    cells.push(CellRef::live(3, 20, format!("value {number} {row}").as_bytes()));
    cells.push(CellRef::expiring(4, 20, b"gone", Expiry { ttl_s: 5, at_s: 100 }));
    cells.push(CellRef::dead(5, 20, 90));
    for path in [b"a", b"b"] {
        cells.push(CellRef::live(6, 20, &[row]).at(path));
    }
    mutation(WIDE, number, Change::Row(cells.finish()))
}

fn statics(number: u64) -> Mutation {
    let mut statics = RowBuilder::new(&[], &[], 20);
    statics.push(CellRef::live(7, 20, format!("static {number}").as_bytes()));
    mutation(WIDE, number, Change::Static(statics.finish()))
}

fn range(number: u64) -> Mutation {
    let start = Bound::Included(vec![5].into());
    let end = Bound::Included(vec![9].into());
    let deletion = Deletion { timestamp: 30, deleted_at_s: 4_000_000_000 };
    mutation(WIDE, number, Change::DeleteRange { start, end, deletion })
}

async fn fill(shard: &Rc<Shard>) {
    shard.describe(SIMPLE, vec![ColumnLayout { column: 1, encoding: ColumnEncoding::Signed(8) }]);
    let rows = |number| (0..50).map(move |row| wide(number, row));
    let first = (0..30).map(simple).chain((0..3).map(statics)).chain((0..3).flat_map(rows));
    shard.apply(first.collect::<Vec<_>>()).expect("applies").await.expect("is durable");
    shard.flush_all().await.expect("flushes");
    let rows = |number| (50..60).map(move |row| wide(number, row));
    let second = (30..40).map(simple).chain((0..3).map(range)).chain((0..3).flat_map(rows));
    shard.apply(second.collect::<Vec<_>>()).expect("applies").await.expect("is durable");
}

fn main() {
    let dir = std::env::args().nth(1).expect("a folder");
    let compression = match std::env::args().nth(2).as_deref() {
        Some("zstd") => Compression::Zstd,
        _ => Compression::Lz4,
    };
    let lanes = testkit::start_lanes(1);
    lanes.block_on(0, Group::CONTROL, move || async move {
        let table = TableOptions { compression, block_bytes: 2048, ..TableOptions::default() };
        let options = StorageOptions { table, segment_bytes: 256 << 10, ..StorageOptions::in_dir(dir, 0, 1) };
        let shard = Shard::open(options).await.expect("opens");
        fill(&shard).await;
        std::process::exit(0);
    });
}
