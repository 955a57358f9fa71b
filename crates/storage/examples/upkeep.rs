//! Measures the CPU time of flushing and compacting a row on one core: `cargo run --release -p
//! storage --example upkeep [ROWS]`.
//!
//! Writes `ROWS` rows of five incompressible values of 34 bytes to a temporary folder and flushes
//! them, repeats that with the same keys, and compacts the two files. Prints the CPU time of each
//! step per input row. The result is the minimum of several runs, because other processes only add
//! time.

use std::rc::Rc;

use lanes::{Group, Lanes};
use storage::{CellRef, RowBuilder, Shard, StorageOptions, TableId};
use testkit::Random;

const TABLE: TableId = TableId(7);
const RUNS: u32 = 3;
const COLUMNS: usize = 5;
const VALUE: usize = 34;

async fn fill(shard: &Rc<Shard>, rows: u64, timestamp: i64) {
    let mut commits = Vec::new();
    let mut random = Random::new(timestamp as u64);
    for number in 0..rows {
        let key = number.to_be_bytes();
        let mut row = RowBuilder::new(&key, &[], timestamp);
        for column in 0..COLUMNS {
            let words = [(); VALUE.div_ceil(8)].map(|()| random.next_u64().to_le_bytes());
            row.push(CellRef::live(column as u32, timestamp, &words.as_flattened()[..VALUE]));
        }
        let token = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) as i64;
        commits.push(shard.put(TABLE, token, &key, &row.draft()).expect("applies"));
        if commits.len() == 1024 {
            for commit in commits.drain(..) {
                commit.await.expect("is durable");
            }
        }
    }
    for commit in commits {
        commit.await.expect("is durable");
    }
}

/// Returns the CPU time of a group so far, in ns.
fn used_ns(lanes: &Lanes, group: Group) -> u64 {
    let usage = lanes.usage(group);
    usage.cpu_fast_ns + usage.cpu_heavy_ns
}

fn main() {
    let rows = std::env::args().nth(1).map_or(500_000, |rows| rows.parse().expect("a number of rows"));
    let lanes = testkit::start_lanes(1);
    let (mut flush_ns, mut merge_ns) = (u64::MAX, u64::MAX);
    for run in 0..RUNS {
        let dir = std::env::temp_dir().join(format!("fairlane-storage-upkeep-{}-{run}", std::process::id()));
        let (folder, counted) = (dir.clone(), lanes.clone());
        let (flushed_ns, merged_ns) = lanes.block_on(0, Group::CONTROL, move || async move {
            let options =
                StorageOptions { memtable_bytes_max: 1 << 30, ..StorageOptions::in_dir(folder, 0, 1) };
            let shard = Shard::open(options).await.expect("opens");
            let before_ns = used_ns(&counted, Group::FLUSH);
            for timestamp in 1..=2 {
                fill(&shard, rows, timestamp).await;
                shard.flush_all().await.expect("flushes");
            }
            let flushed_ns = used_ns(&counted, Group::FLUSH) - before_ns;
            let before_ns = used_ns(&counted, Group::COMPACTION);
            shard.compact_all(TABLE).await.expect("merges");
            let merged_ns = used_ns(&counted, Group::COMPACTION) - before_ns;
            shard.shutdown().await.expect("shuts down");
            (flushed_ns, merged_ns)
        });
        std::fs::remove_dir_all(dir).expect("the folder is removed");
        let rows_in = 2 * rows;
        println!("flush {} ns a row, merge {} ns a row", flushed_ns / rows_in, merged_ns / rows_in);
        (flush_ns, merge_ns) = (flush_ns.min(flushed_ns / rows_in), merge_ns.min(merged_ns / rows_in));
    }
    lanes.shutdown();
    println!("least: flush {flush_ns} ns, merge {merge_ns} ns a row");
}
