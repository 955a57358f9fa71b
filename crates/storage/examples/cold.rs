//! Measures the CPU time of point reads that mostly miss the cache: `cargo run --release -p
//! storage --example cold [random|text|wide|skewed] [ROWS] [BLOCK_BYTES] [FILE_BYTES]`.
//!
//! Writes rows of five values to a temporary folder and compacts them. Values are random bytes, or
//! text that compresses to about half. With `wide`, partitions have 1,000 rows. The cache is a
//! quarter of the files' size. 64 readers read whole rows with uniformly distributed keys. With
//! `skewed`, the cache is a tenth, and keys follow Zipf's law with exponent 0.99. Prints the mean
//! cost of a read: CPU time of all threads, its kernel part, bytes read from disk, and the hit
//! rates of the caches of rows and blocks.
#![expect(clippy::disallowed_methods, reason = "reads the kernel's counts of CPU time, outside the lanes")]

use std::cell::Cell;
use std::rc::Rc;

use lanes::Group;
use storage::{CellRef, Liveness, Pick, RowBuilder, Shard, StorageOptions, TableId, TableOptions};
use testkit::Random;

const TABLE: TableId = TableId(7);
const READERS: u64 = 64;
const READS: u64 = 200_000;
const COLUMNS: u32 = 5;
const VALUE: usize = 34;
const WIDE_ROWS: u64 = 1_000;

/// The same allocator as the server.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Clone, Copy, PartialEq)]
enum Data {
    Random,
    Text,
    Wide,
    Skewed,
}

impl Data {
    /// Returns token, key and clustering.
    fn place(self, number: u64) -> (i64, [u8; 8], Vec<u8>) {
        let (partition, row) = match self {
            Data::Wide => (number / WIDE_ROWS, (number % WIDE_ROWS).to_be_bytes().to_vec()),
            _ => (number, Vec::new()),
        };
        (partition.wrapping_mul(0x9e37_79b9_7f4a_7c15) as i64, partition.to_be_bytes(), row)
    }

    /// Returns the number of the row to read.
    fn draw(self, rows: u64, random: &mut Random) -> u64 {
        if self == Data::Skewed { random.skewed(rows, 0.99) } else { random.below(rows) }
    }

    fn value(self, random: &mut Random) -> Vec<u8> {
        const WORDS: [&str; 16] = [
            "order",
            "customer",
            "green",
            "delivered",
            "pending",
            "street",
            "invoice",
            "apple",
            "north",
            "blue",
            "express",
            "return",
            "card",
            "monday",
            "summer",
            "paid",
        ];
        let mut value = Vec::new();
        while value.len() < VALUE {
            let word = random.next_u64();
            match self {
                Data::Text if !word.is_multiple_of(4) => {
                    value.extend_from_slice(WORDS[(word >> 8) as usize % WORDS.len()].as_bytes());
                    value.push(b' ');
                }
                Data::Text => value.extend_from_slice(format!("{} ", word >> 44).as_bytes()),
                Data::Random | Data::Wide | Data::Skewed => value.extend_from_slice(&word.to_le_bytes()),
            }
        }
        value.truncate(VALUE);
        value
    }
}

async fn fill(shard: &Rc<Shard>, data: Data, rows: u64) {
    let (mut commits, mut random) = (Vec::new(), Random::new(1));
    for number in 0..rows {
        let timestamp = 1_700_000_000_000_000 + random.below(1 << 32) as i64;
        let (token, key, clustering) = data.place(number);
        let mut row = RowBuilder::new(&key, &clustering, timestamp);
        row.marker(Some(Liveness { timestamp, expiry: None }));
        (0..COLUMNS).for_each(|column| row.push(CellRef::live(column, timestamp, &data.value(&mut random))));
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
    shard.compact_all(TABLE).await.expect("merges");
}

/// Returns the CPU time of all threads of this process, in ns.
fn cpu_ns() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("the kernel tells");
    let of_task = |task: std::path::PathBuf| {
        let stat = std::fs::read_to_string(task.join("schedstat")).unwrap_or_default();
        stat.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or_default()
    };
    tasks.map(|task| of_task(task.expect("the kernel tells").path())).sum()
}

/// Returns the kernel part of the CPU time in ns, at the resolution of the kernel.
fn kernel_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("the kernel tells");
    let fields = stat.rsplit(')').next().expect("the name is in parentheses");
    let ticks = fields.split_whitespace().nth(12).and_then(|ticks| ticks.parse::<u64>().ok());
    ticks.expect("a number of ticks") * 10_000_000
}

async fn read(shard: &Rc<Shard>, data: Data, rows: u64, name: &str) {
    let reads = if data == Data::Skewed { 10 * READS } else { READS };
    let left = Rc::new(Cell::new(reads));
    let handle = lanes::handle();
    let before = (handle.usage(Group::DEFAULT), kernel_ns(), shard.stats(), cpu_ns());
    let readers: Vec<_> = (0..READERS)
        .map(|reader| {
            let (shard, left) = (shard.clone(), left.clone());
            lanes::spawn(Group::DEFAULT, async move {
                let mut random = Random::new(reader << 32 | left.get());
                while left.get() > 0 {
                    left.set(left.get() - 1);
                    let (token, key, clustering) = data.place(data.draw(rows, &mut random));
                    let row = shard.read_row(TABLE, token, &key, &clustering, Pick::ALL, 0).wait().await;
                    assert_eq!(row.expect("reads").expect("is there").cells().count(), COLUMNS as usize);
                    lanes::yield_now().await;
                }
            })
        })
        .collect();
    for reader in readers {
        reader.await;
    }
    let usage = handle.usage(Group::DEFAULT);
    let kernel = kernel_ns();
    let stats = shard.stats();
    let cpu = cpu_ns();
    let hits = stats.cache_hits - before.2.cache_hits;
    let lookups = hits + stats.cache_misses - before.2.cache_misses;
    let row_hits = stats.row_cache_hits - before.2.row_cache_hits;
    println!(
        "{name}: {:.2} µs of CPU a read (kernel about {:.1}), {:.1} KiB in {:.2} disk reads, \
         {:.1} % of rows and {:.1} % of blocks in the cache, which has {} MB",
        (cpu - before.3) as f64 / reads as f64 / 1e3,
        (kernel - before.1) as f64 / reads as f64 / 1e3,
        (usage.disk_read_bytes - before.0.disk_read_bytes) as f64 / reads as f64 / 1024.0,
        (usage.disk_read_ops - before.0.disk_read_ops) as f64 / reads as f64,
        100.0 * row_hits as f64 / reads as f64,
        100.0 * hits as f64 / lookups.max(1) as f64,
        stats.cache_bytes / 1_000_000,
    );
}

fn main() {
    lanes::keep_freed_memory();
    let data = match std::env::args().nth(1).as_deref() {
        Some("text") => Data::Text,
        Some("wide") => Data::Wide,
        Some("skewed") => Data::Skewed,
        _ => Data::Random,
    };
    let rows = std::env::args().nth(2).map_or(1_500_000, |rows| rows.parse().expect("a number of rows"));
    let number = |at| std::env::args().nth(at).map(|text| text.parse::<u64>().expect("a number of bytes"));
    let (block_bytes, file_bytes) = (number(3), number(4));
    let dir = std::env::temp_dir().join(format!("fairlane-storage-cold-{}", std::process::id()));
    let lanes = testkit::start_lanes(1);
    let folder = dir.clone();
    lanes.block_on(0, Group::CONTROL, move || async move {
        let mut table = TableOptions::default();
        table.block_bytes = block_bytes.map_or(table.block_bytes, |bytes| bytes as usize);
        table.fragment_bytes = file_bytes.unwrap_or(table.fragment_bytes);
        let options = |cache_bytes| StorageOptions {
            table,
            cache_bytes,
            ..StorageOptions::in_dir(folder.clone(), 0, 1)
        };
        let shard = Shard::open(options(16 << 20)).await.expect("opens");
        fill(&shard, data, rows).await;
        let bytes = shard.stats().file_bytes;
        let part = if data == Data::Skewed { 10 } else { 4 };
        println!("{rows} rows in {} files, {} MB", shard.stats().files, bytes / 1_000_000);
        shard.shutdown().await.expect("shuts down");
        drop(shard);
        for (name, cache_bytes) in [("cold", bytes as usize / part), ("in the cache", bytes as usize * 4)] {
            let shard = Shard::open(options(cache_bytes)).await.expect("opens");
            read(&shard, data, rows, "warming up").await;
            read(&shard, data, rows, name).await;
            shard.shutdown().await.expect("shuts down");
        }
    });
    lanes.shutdown();
    std::fs::remove_dir_all(dir).expect("the folder is removed");
}
