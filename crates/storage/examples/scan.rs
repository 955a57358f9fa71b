//! Measures scans of a compacted table on one core: `cargo run --release -p storage --example scan
//! [ROWS] [BLOCK_BYTES]`.
//!
//! Writes rows of eight columns (five numbers, two short texts, a longer one) to a temporary
//! folder, flushes and compacts them, and scans them into record batches. Prints the decoded bytes
//! per second of one core's time: the memory of the arrays, with a warm page cache.

use std::rc::Rc;

use lanes::Group;
use storage::{
    BatchRequest, CellRef, ColumnEncoding, ColumnLayout, ColumnType, Liveness, RowBuilder, ScanColumn, Shard,
    StorageOptions, TableId, TableOptions,
};

const TABLE: TableId = TableId(7);

fn place(number: u64) -> (i64, [u8; 8]) {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) as i64, number.to_be_bytes())
}

async fn fill(shard: &Rc<Shard>, rows: u64) {
    let layout = |column, encoding| ColumnLayout { column, encoding };
    let number = ColumnEncoding::Signed(8);
    let numbers =
        (0..5).map(|column| layout(column, if column == 4 { ColumnEncoding::Float(8) } else { number }));
    shard.describe(TABLE, numbers.collect());
    let mut commits = Vec::new();
    for number in 0..rows {
        let (token, key) = place(number);
        let mut row = RowBuilder::new(&key, &[], 1_700_000_000_000_000 + number as i64);
        row.marker(Some(Liveness { timestamp: 1_700_000_000_000_000 + number as i64, expiry: None }));
        let timestamp = 1_700_000_000_000_000 + number as i64;
        let numbers = [number, number % 1000, number.wrapping_mul(0x2545_f491_4f6c_dd1d), number / 7];
        for (column, value) in (0u32..).zip(numbers) {
            row.push(CellRef::live(column, timestamp, &value.to_be_bytes()));
        }
        row.push(CellRef::live(4, timestamp, &(number as f64 / 3.0).to_be_bytes()));
        row.push(CellRef::live(5, timestamp, ["green", "blue", "red"][number as usize % 3].as_bytes()));
        row.push(CellRef::live(6, timestamp, format!("user{}", number % 50_000).as_bytes()));
        let text = format!("order {number} of customer {} is on its way to {}", number % 977, number % 4211);
        row.push(CellRef::live(7, timestamp, text.as_bytes()));
        commits.push(shard.put(TABLE, token, &key, &row.draft()).expect("applies"));
        if commits.len() == 1024 {
            for commit in commits.drain(..) {
                commit.await.expect("is durable");
            }
        }
    }
    shard.flush_all().await.expect("flushes");
}

async fn scan(shard: &Rc<Shard>, name: &str, columns: Vec<ScanColumn>, rows: u64) {
    let request = BatchRequest::all(columns, 8192);
    for _ in 0..3 {
        let mut scan = shard.batch_snapshot(TABLE, 0).scan(request.clone());
        let (found, bytes, ns) = lanes::heavy(Group::DEFAULT, async move {
            let start = lanes::time::monotonic_ns();
            let (mut found, mut bytes) = (0, 0);
            while let Some(batch) = scan.next().await.expect("scans") {
                found += batch.num_rows() as u64;
                bytes += batch
                    .columns()
                    .iter()
                    .map(|array| array.to_data().get_slice_memory_size().expect("a size"))
                    .sum::<usize>();
            }
            (found, bytes, lanes::time::monotonic_ns() - start)
        })
        .await;
        assert_eq!(found, rows);
        let (mb, ms) = (bytes / 1_000_000, ns / 1_000_000);
        println!(
            "{name}: {mb} MB of columns in {ms} ms: {:.2} GB/s, {} ns a row",
            bytes as f64 / ns as f64,
            ns / rows
        );
    }
}

fn main() {
    let rows = std::env::args().nth(1).map_or(1_000_000, |rows| rows.parse().expect("a number of rows"));
    let block_bytes = std::env::args().nth(2).map(|bytes| bytes.parse().expect("a number of bytes"));
    let dir = std::env::temp_dir().join(format!("fairlane-storage-scan-{}", std::process::id()));
    let lanes = testkit::start_lanes(1);
    let folder = dir.clone();
    lanes.block_on(0, Group::CONTROL, move || async move {
        let table = TableOptions::default();
        let table = TableOptions { block_bytes: block_bytes.unwrap_or(table.block_bytes), ..table };
        let options =
            StorageOptions { memtable_bytes_max: 1 << 30, table, ..StorageOptions::in_dir(folder, 0, 1) };
        let shard = Shard::open(options).await.expect("opens");
        fill(&shard, rows).await;
        let stats = shard.stats();
        println!("{rows} rows in {} files, {} MB", stats.files, stats.file_bytes / 1_000_000);
        let numbers: Vec<_> = (0..4)
            .map(|column| ScanColumn::Cell(column, ColumnType::Int64))
            .chain([ScanColumn::Cell(4, ColumnType::Float64)])
            .collect();
        let texts = (5..8).map(|column| ScanColumn::Cell(column, ColumnType::Utf8));
        let all =
            [ScanColumn::Key(ColumnType::Binary)].into_iter().chain(numbers.clone()).chain(texts).collect();
        scan(&shard, "one number", vec![ScanColumn::Cell(1, ColumnType::Int64)], rows).await;
        scan(&shard, "five numbers", numbers, rows).await;
        scan(&shard, "everything", all, rows).await;
        shard.shutdown().await.expect("shuts down");
    });
    lanes.shutdown();
    std::fs::remove_dir_all(dir).expect("the folder is removed");
}
