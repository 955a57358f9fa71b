//! Counts the runs that point reads ask in a table that is read and written alike: `cargo run
//! --release -p storage --example steady [ROWS] [SECONDS] [RATE] [COLUMNS]`.
//!
//! For each compaction strategy, with uniform keys and with keys by Zipf's law with exponent 0.99:
//! writes `ROWS` rows of five values of 34 bytes and compacts them, then reads a row and writes
//! `COLUMNS` of the columns of another one `RATE / 2` times a second. Memtables have 16 MiB, so
//! that the table is flushed every few seconds. Prints the runs of the table, the runs that a read
//! asked (0: memory or the cache of rows had the answer), and the bytes that compactions wrote for
//! each byte that flushes wrote.

use std::rc::Rc;
use std::time::Duration;

use lanes::Group;
use storage::{
    CellRef, CommitMode, Draft, Pick, RowBuilder, Shard, Stats, StorageOptions, Strategy, TableId,
    TableOptions,
};
use testkit::Random;

const TABLE: TableId = TableId(7);
const TASKS: u64 = 32;
const COLUMNS: u32 = 5;

fn place(number: u64) -> (i64, [u8; 8]) {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) as i64, number.to_be_bytes())
}

/// Writes `count` columns, from a random one on.
fn row(key: &[u8], timestamp: i64, count: u32, random: &mut Random) -> Draft {
    let mut row = RowBuilder::new(key, &[], timestamp);
    let first = random.below(u64::from(COLUMNS - count) + 1) as u32;
    for column in first..first + count {
        let words = [(); 5].map(|()| random.next_u64().to_le_bytes());
        row.push(CellRef::live(column, timestamp, &words.as_flattened()[..34]));
    }
    row.draft()
}

async fn fill(shard: &Rc<Shard>, rows: u64) {
    let mut random = Random::new(1);
    for number in 0..rows {
        let (token, key) = place(number);
        let draft = row(&key, number as i64, COLUMNS, &mut random);
        let commit = shard.put_in_turn(TABLE, token, &key, &draft).await.expect("applies");
        if number % 256 == 0 {
            commit.await.expect("commits");
            lanes::yield_now().await;
        }
    }
    shard.flush_all().await.expect("flushes");
    shard.compact_all(TABLE).await.expect("compacts");
}

/// Reads and writes of a measurement.
#[derive(Clone, Copy)]
struct Mix {
    rows: u64,
    /// The exponent of Zipf's law; `None`: uniform keys.
    theta: Option<f64>,
    seconds: u64,
    rate: u64,
    columns: u32,
}

impl Mix {
    fn draw(self, random: &mut Random) -> (i64, [u8; 8]) {
        let number = self.theta.map(|theta| random.skewed(self.rows, theta));
        place(number.unwrap_or_else(|| random.below(self.rows)))
    }

    /// Reads and writes as one of [`TASKS`].
    async fn run(self, shard: Rc<Shard>, task: u64) {
        let mut random = Random::new(2 + task);
        let start = lanes::time::monotonic_ns();
        let mut ops = 0;
        loop {
            let elapsed_ns = lanes::time::monotonic_ns() - start;
            if elapsed_ns > self.seconds * 1_000_000_000 {
                return;
            }
            if ops * TASKS * 2_000_000 >= elapsed_ns / 1000 * self.rate {
                lanes::time::sleep(Duration::from_millis(1)).await;
                continue;
            }
            ops += 1;
            let (token, key) = self.draw(&mut random);
            let draft = row(&key, (self.rows + elapsed_ns) as i64, self.columns, &mut random);
            let commit = shard.put_in_turn(TABLE, token, &key, &draft).await.expect("applies");
            commit.await.expect("commits");
            let (token, key) = self.draw(&mut random);
            let pick = Pick::columns(&[0, 1, 2, 3, 4]);
            let found = shard.read_row(TABLE, token, &key, &[], pick, 0).wait().await;
            assert!(found.expect("reads").is_some(), "all rows are there");
            lanes::yield_now().await;
        }
    }
}

/// Runs the tasks. Returns the mean number of runs of the table.
async fn run(shard: &Rc<Shard>, mix: Mix) -> f64 {
    let task = |task| lanes::spawn(Group::DEFAULT, mix.run(shard.clone(), task));
    let tasks: Vec<_> = (0..TASKS).map(task).collect();
    let mut runs = 0;
    for _ in 0..10 * mix.seconds {
        runs += shard.stats().runs;
        lanes::time::sleep(Duration::from_millis(100)).await;
    }
    for task in tasks {
        task.await;
    }
    runs as f64 / (10 * mix.seconds) as f64
}

fn main() {
    let number = |at| std::env::args().nth(at).map(|text| text.parse::<u64>().expect("a number"));
    let (rows, seconds) = (number(1).unwrap_or(100_000), number(2).unwrap_or(60));
    let rate = number(3).unwrap_or(20_000);
    let columns = number(4).map_or(COLUMNS, |columns| (columns as u32).clamp(1, COLUMNS));
    let lanes = testkit::start_lanes(1);
    for theta in [None, Some(0.99)] {
        for strategy in [Strategy::Incremental, Strategy::SizeTiered, Strategy::Leveled] {
            let dir = std::env::temp_dir().join(format!("fairlane-storage-steady-{}", std::process::id()));
            let folder = dir.clone();
            lanes.block_on(0, Group::CONTROL, move || async move {
                let commit = CommitMode::Periodic { every: Duration::from_millis(10) };
                let table = TableOptions { strategy, ..TableOptions::default() };
                let cache_bytes = (rows as usize * 220 / 10).max(8 << 20);
                let sizes = StorageOptions {
                    memtable_bytes_max: 16 << 20,
                    cache_bytes,
                    ..StorageOptions::in_dir(folder, 0, 1)
                };
                let shard = Shard::open(StorageOptions { commit, table, ..sizes }).await.expect("opens");
                fill(&shard, rows).await;
                let before = shard.stats();
                let asked = shard.table_stats(TABLE).searched;
                let runs = run(&shard, Mix { rows, theta, seconds, rate, columns }).await;
                let asked: Vec<u64> = shard
                    .table_stats(TABLE)
                    .searched
                    .iter()
                    .zip(asked)
                    .map(|(now, then)| now - then)
                    .collect();
                let reads: u64 = asked.iter().sum();
                let sum: u64 = (0..).zip(&asked).map(|(runs, reads)| runs * reads).sum();
                let after = shard.stats();
                let growth = |of: fn(&Stats) -> u64| of(&after) - of(&before);
                let percent = |part: u64| (1000 * part / reads) as f64 / 10.0;
                let written = growth(|stats| stats.flushed_bytes).max(1) as f64;
                println!(
                    "{rows} rows, {columns} columns written, {}, {strategy:?}: {reads} reads asked \
                     {:.3} of {runs:.1} runs; none, one, two, more: {:?} %; {} flushes, compactions \
                     wrote {:.1} times what they wrote",
                    theta.map_or("uniform", |_| "zipfian"),
                    sum as f64 / reads as f64,
                    [asked[0], asked[1], asked[2], asked[3..].iter().sum()].map(percent),
                    growth(|stats| stats.flushes),
                    growth(|stats| stats.compacted_bytes) as f64 / written,
                );
                shard.shutdown().await.expect("shuts down");
            });
            std::fs::remove_dir_all(dir).expect("the folder is removed");
        }
    }
    lanes.shutdown();
}
