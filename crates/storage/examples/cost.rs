//! Measures reads and writes on one core: `cargo run --release -p storage --example cost [ROWS]`.
//!
//! Prints the wall time per call in ns, of a task that does nothing else. The log is in a temporary
//! folder.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use lanes::Group;
use storage::{CellRef, Commit, CommitMode, Draft, Pick, Read, RowBuilder, Shard, StorageOptions, TableId};

const TABLE: TableId = TableId(7);

fn place(number: u64) -> (i64, Bytes) {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) as i64, Bytes::from(number.to_be_bytes().to_vec()))
}

fn write(key: &[u8], timestamp: i64) -> Draft {
    let mut row = RowBuilder::new(key, &[], timestamp);
    (0..5).for_each(|column| row.push(CellRef::live(column, timestamp, &[7; 34])));
    row.draft()
}

fn per(count: u64, since: u64) -> u64 {
    (lanes::time::monotonic_ns() - since) / count
}

async fn fill(shard: &Rc<Shard>, name: &str, rows: u64, timestamp: i64) {
    let (mut applying, mut commits) = (0, Vec::<Commit>::new());
    let start = lanes::time::monotonic_ns();
    for number in 0..rows {
        let (token, key) = place(number);
        let at = lanes::time::monotonic_ns();
        commits.push(shard.put(TABLE, token, &key, &write(&key, timestamp)).expect("applies"));
        applying += lanes::time::monotonic_ns() - at;
        if commits.len() == 256 {
            for commit in commits.drain(..) {
                commit.await.expect("is durable");
            }
            lanes::yield_now().await;
        }
    }
    println!("{name}: apply {} ns, with commits of 256 in flight {} ns", applying / rows, per(rows, start));
}

async fn read(shard: &Rc<Shard>, name: &str, rows: u64) {
    let reads = rows.min(1_000_000);
    let keys: Vec<_> = (0..reads).map(|i| place(i.wrapping_mul(7919) % rows)).collect();
    let start = lanes::time::monotonic_ns();
    let mut cells = 0;
    for (token, key) in &keys {
        let row = match shard.read_row(TABLE, *token, key, &[], Pick::columns(&[0, 1, 2, 3, 4]), 0) {
            Read::Ready(row) => row,
            pending => pending.wait().await.expect("reads"),
        };
        cells += row.expect("it was written").cells().count() as u64;
    }
    assert_eq!(cells, 5 * reads);
    println!("{name}: read_row {} ns", per(reads, start));
}

/// Reads of the states that a table is in: written, flushed once, and overwritten in part after
/// several flushes, as most tables are.
async fn states(folder: &Path, rows: u64) {
    let periodic = CommitMode::Periodic { every: Duration::from_millis(10) };
    let dir = folder.join("states");
    let shard = Shard::open(StorageOptions { commit: periodic, ..StorageOptions::in_dir(dir, 0, 1) })
        .await
        .expect("opens");
    fill(&shard, "states", rows, 1).await;
    read(&shard, "fresh memtable", rows).await;
    shard.flush_all().await.expect("flushes");
    for name in ["flushed once", "flushed once, again", "flushed once, third time"] {
        read(&shard, name, rows).await;
    }
    for round in 2..5 {
        fill(&shard, "overwritten", rows, round).await;
        shard.flush_all().await.expect("flushes");
    }
    fill(&shard, "half of it once more", rows / 2, 5).await;
    for name in ["steady", "steady, again", "steady, third time"] {
        read(&shard, name, rows).await;
    }
    println!("runs of a read, from 0: {:?}", &shard.table_stats(TABLE).searched[..8]);
    shard.shutdown().await.expect("shuts down");
}

fn main() {
    let rows = std::env::args().nth(1).map_or(100_000, |rows| rows.parse().expect("a number of rows"));
    let dir = std::env::temp_dir().join(format!("fairlane-storage-cost-{}", std::process::id()));
    let lanes = testkit::start_lanes(1);
    let folder = dir.clone();
    lanes.block_on(0, Group::CONTROL, move || async move {
        let memory = StorageOptions { memtable_bytes_max: 8 << 30, ..StorageOptions::in_memory() };
        let shard = Shard::open(memory).await.expect("opens");
        fill(&shard, "memory", rows, 1).await;
        fill(&shard, "memory, over older ones", rows, 2).await;
        read(&shard, "memory", rows).await;
        read(&shard, "memory again", rows).await;
        println!("bytes a row by our count: {}", shard.stats().memtable_bytes / rows);
        drop(shard);
        let periodic = CommitMode::Periodic { every: Duration::from_millis(10) };
        for (name, commit) in [("durable", CommitMode::Batch), ("periodic", periodic)] {
            let options = StorageOptions { commit, ..StorageOptions::in_dir(folder.join(name), 0, 1) };
            let shard = Shard::open(options).await.expect("opens");
            fill(&shard, name, rows.min(1_000_000), 1).await;
            let stats = shard.stats();
            println!(
                "{name}: {} records in {} disk writes, {} flushes",
                stats.log_records, stats.log_writes, stats.flushes
            );
            shard.shutdown().await.expect("shuts down");
        }
        states(&folder, rows.min(1_000_000)).await;
    });
    lanes.shutdown();
    std::fs::remove_dir_all(dir).expect("the folder is removed");
}
