//! Seeded histories of a machine with several shards on one simulated disk, compared with a plain
//! model. Writes may span shards. The number of cores changes, clocks step back, the disk fills up,
//! files are damaged, descriptors run out, background tasks panic, tables are truncated and
//! dropped. The machine crashes at any step of its disk, also during a start. After each crash, all
//! acknowledged writes are present, every write is present as a whole or not at all, and reads
//! return what the model has.
//!
//! 1. Each record of a shard's log also writes a number into the shard's *mark* row. After a crash,
//!    the marks show which records survived: a prefix of those issued, with all acknowledged ones.
//! 2. A write over shards uses the batch log like `embedded`: entry, parts, deletion of the entry.
//!    A start applies the entries that it finds.
//! 3. Before a table is truncated, every shard gets a row for it, the *sentinel*. After a crash in
//!    between, sentinels show which shards had truncated the table.
//! 4. Each step has its own random numbers. A failing history is therefore shortened by leaving out
//!    steps. The rest is printed.
//!
//! `cargo xtask simulate --seeds 10000` runs many, `cargo xtask simulate --seed 17` repeats one.
//! They set the environment variables `FAIRLANE_SEED` (one seed), or `FAIRLANE_SEEDS` (number) and
//! `FAIRLANE_FROM` (first).

mod batches;
mod check;
mod damage;
mod ends;
mod replay;
mod steps;

use std::collections::BTreeSet;
use std::time::Duration;

use schema::Sharding;

use super::crashes::write;
use super::model::Store;
use super::*;
use crate::sim::run;
use crate::state::batches::BatchInFlight;
use batches::MachineBatch;

/// The system table, which is on shard 0; the table of the batch log, which every shard has; the
/// table of marks.
const SYSTEM: TableId = TableId(1);
const BATCHES: TableId = TableId(2);
const MARKS: TableId = TableId(3 << 64);

/// The most cores.
const SHARDS_MAX: u64 = 3;

/// The most steps of the disk until the next crash.
const STEPS_MAX: u64 = 1500;

/// One change of the machine's data, in the order in which readers see changes.
#[derive(Clone, Debug)]
enum Event {
    /// A record of a shard's log, with its mark.
    Record { shard: u32, mark: u64, mutations: Vec<Mutation> },
    /// All rows of a table are deleted.
    Truncated { table: TableId },
}

/// A truncation that may be incomplete, with the sentinel's key and the mark of each shard that has
/// one.
#[derive(Clone, Debug)]
struct Truncating {
    table: TableId,
    key: Bytes,
    marks: Vec<u64>,
}

/// Counters, printed after all histories.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct MachineCounts {
    crashes: u32,
    kills: u32,
    panics: u32,
    splits: u32,
    batches: u32,
    replayed: u32,
    full: u32,
    damages: u32,
    flushes: u64,
    compactions: u64,
}

impl MachineCounts {
    fn add(&mut self, other: MachineCounts) {
        self.crashes += other.crashes;
        self.kills += other.kills;
        self.panics += other.panics;
        self.splits += other.splits;
        self.batches += other.batches;
        self.replayed += other.replayed;
        self.full += other.full;
        self.damages += other.damages;
        self.flushes += other.flushes;
        self.compactions += other.compactions;
    }
}

/// The machine, and its expected contents.
struct Machine {
    sim: Arc<Sim>,
    seed: u64,
    random: Random,
    options: StorageOptions,
    /// If true, timestamps are random and often tie, and no tombstone is forgotten. Otherwise
    /// timestamps only rise, and all tombstones are forgotten at once.
    ties: bool,
    /// The newest timestamp, if timestamps only rise.
    newest: i64,
    /// The latest time of any clock, which readers use.
    latest_s: u32,
    shards: Vec<Rc<Shard>>,
    /// Starts since all shards flushed what they had recovered. Each adds a segment to their logs.
    starts: u64,
    /// The number of resets of the marks.
    epoch: u64,
    /// Tables of users, and the dropped columns of each.
    tables: Vec<(TableId, BTreeSet<u32>)>,
    tables_made: u64,
    /// The contents that are durable for sure, and the changes since.
    base: Store,
    events: Vec<Event>,
    /// The contents with all changes.
    store: Store,
    /// Records issued and acknowledged, by shard.
    issued: Vec<u64>,
    acknowledged: Vec<u64>,
    commits: Vec<(u32, u64, Commit)>,
    batches: Vec<MachineBatch>,
    batches_made: u64,
    /// Keeps all tombstones until a start has applied the entries that it found.
    replaying: Option<BatchInFlight>,
    truncating: Option<Truncating>,
    /// True if the disk is full, or descriptors have run out.
    tight: bool,
    /// Flipped bits.
    flips: Vec<(PathBuf, u64, u32)>,
    /// True if bits flipped since the last start: shards remember which files they could not read.
    was_damaged: bool,
    /// The lock of scrubs in the background.
    scrubbing: Rc<()>,
    counts: MachineCounts,
    trace: Vec<String>,
}

fn spread(token: i64) -> i64 {
    token.wrapping_mul(0x1e37_79b9_7f4a_7c15)
}

impl Machine {
    fn new(sim: Arc<Sim>, seed: u64) -> Machine {
        let mut random = Random::new(seed ^ 0xac_1d);
        sim.now_s.store(1000, Ordering::Relaxed);
        let ties = random.one_in(2);
        let options = options_of(&mut random, ties);
        let tables = (1..3).map(|number| (TableId(number << 64), BTreeSet::new())).collect();
        Machine {
            sim,
            seed,
            random,
            options,
            ties,
            newest: 0,
            latest_s: 1000,
            shards: Vec::new(),
            starts: 0,
            epoch: 0,
            tables,
            tables_made: 10,
            base: Store::default(),
            events: Vec::new(),
            store: Store::default(),
            issued: Vec::new(),
            acknowledged: Vec::new(),
            commits: Vec::new(),
            batches: Vec::new(),
            batches_made: 0,
            replaying: None,
            truncating: None,
            tight: false,
            flips: Vec::new(),
            was_damaged: false,
            scrubbing: Rc::default(),
            counts: MachineCounts::default(),
            trace: Vec::new(),
        }
    }

    fn now_s(&self) -> u32 {
        self.sim.now_s.load(Ordering::Relaxed)
    }

    fn is_up(&self) -> bool {
        !self.sim.disk.is_down() && !crate::sim::has_panicked()
    }

    fn note(&mut self, what: String) {
        self.trace.push(what);
    }

    /// Returns the shard that owns a partition.
    fn home(&self, table: TableId, token: i64) -> u32 {
        home(table, token, self.issued.len() as u32)
    }

    /// Returns a token of users' tables that a shard owns.
    fn token_of(&self, shard: u32) -> i64 {
        (0..)
            .map(spread)
            .find(|token| self.home(MARKS, *token) == shard)
            .expect("it has a part of all tokens")
    }

    fn mark_key(&self, shard: u32) -> Bytes {
        Bytes::from(format!("mark-{}-{shard}", self.epoch))
    }

    fn timestamp(&mut self) -> i64 {
        self.newest += 1;
        if self.ties { self.random.below(12) as i64 } else { self.newest }
    }

    /// Returns a write of one random partition.
    fn mutation(&mut self, timestamp: i64) -> Mutation {
        loop {
            let mutation = self.any_mutation(timestamp);
            if !mutation.changes.is_empty() {
                return mutation;
            }
        }
    }

    fn any_mutation(&mut self, timestamp: i64) -> Mutation {
        let now_s = self.now_s();
        let made = write(&mut self.random, timestamp, now_s, self.ties);
        let table = match made.table.0 {
            0 => SYSTEM,
            number => self.tables[number as usize - 1].0,
        };
        let dropped = self.tables.iter().find(|own| own.0 == table).map(|own| &own.1);
        let change = |change| match dropped {
            Some(dropped) if !dropped.is_empty() => without(change, dropped),
            _ => Some(change),
        };
        let changes = made.changes.into_iter().filter_map(change).collect();
        Mutation { table, token: spread(made.token), changes, ..made }
    }

    /// Writes a record to a shard, at once or in several task polls. Returns its mark, or `None` if
    /// it was refused.
    fn record(&mut self, shard: u32, mut mutations: Vec<Mutation>) -> Option<u64> {
        let mark = self.issued[shard as usize] + 1;
        let (token, key) = (self.token_of(shard), self.mark_key(shard));
        let timestamp = (self.epoch << 32 | mark) as i64;
        let mut row = RowBuilder::new(&[], &[], timestamp);
        row.push(CellRef::live(0, timestamp, &mark.to_be_bytes()));
        mutations.push(Mutation { table: MARKS, token, key, changes: vec![Change::Row(row.finish())] });
        let own = self.shards[shard as usize].clone();
        let event = Event::Record { shard, mark, mutations: mutations.clone() };
        // A record applied in several polls is in the log first: a crash may come in between.
        let applied = match self.random.one_in(3) {
            false => Some(own.apply(mutations.clone())),
            true => run(&self.sim, own.apply_yielding(mutations.clone())),
        };
        match applied {
            Some(Ok(commit)) => self.commits.push((shard, mark, commit)),
            None => {}
            Some(Err(StorageError::Overloaded { .. })) => return None,
            Some(Err(StorageError::WritesRefused { .. })) if self.tight => return None,
            Some(Err(error)) => panic!("{error}"),
        }
        self.issued[shard as usize] = mark;
        self.store.apply(&mutations);
        self.events.push(event);
        Some(mark)
    }

    /// Checks which writes were acknowledged.
    fn acknowledge(&mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        let is_durable = self.options.commit == CommitMode::Batch;
        let tight = self.tight || !self.is_up();
        let acknowledged = &mut self.acknowledged;
        self.commits.retain_mut(|(shard, mark, commit)| match Pin::new(commit).poll(&mut cx) {
            std::task::Poll::Ready(Ok(())) => {
                let own = &mut acknowledged[*shard as usize];
                *own = if is_durable { (*own).max(*mark) } else { *own };
                false
            }
            std::task::Poll::Ready(Err(error)) => {
                assert!(tight, "not acknowledged: {error}");
                false
            }
            std::task::Poll::Pending => true,
        });
        self.end_batches();
    }

    /// Marks everything up to a record of a shard as durable.
    fn durable(&mut self, shard: u32, mark: u64) {
        let own = &mut self.acknowledged[shard as usize];
        *own = (*own).max(mark);
    }

    /// Returns the value of a result that may fail for lack of space or descriptors. `None` if the
    /// machine crashed.
    fn unless_tight<T>(&self, outcome: Option<Result<T, StorageError>>) -> Option<T> {
        match outcome? {
            Ok(answer) => Some(answer),
            Err(error) if self.tight && is_tight(&error) => None,
            Err(StorageError::Corrupt { .. }) if self.was_damaged => None,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Returns true if an error is about a resource that the machine lacks.
fn is_tight(error: &StorageError) -> bool {
    match error {
        StorageError::WritesRefused { because } | StorageError::LogFull { because } => is_tight(because),
        StorageError::TooManyFiles { .. } => true,
        StorageError::Io { error: io, .. } => error.is_full() || io.raw_os_error() == Some(24),
        _ => false,
    }
}

fn home(table: TableId, token: i64, shards: u32) -> u32 {
    let sharding = Sharding { shards, ignore_msb: IGNORE_MSB };
    if table == SYSTEM { 0 } else { sharding.shard_of(token) }
}

/// Returns a change without cells of dropped columns; `None` if that is empty.
fn without(change: Change, dropped: &BTreeSet<u32>) -> Option<Change> {
    let row_of = |row: &EncodedRow| {
        let mut left =
            RowBuilder::new(&[], row.clustering(), row.cells().next().map_or(0, |cell| cell.timestamp));
        left.deletion(row.deletion());
        left.marker(row.marker());
        row.cells().filter(|cell| !dropped.contains(&cell.column)).for_each(|cell| left.push(cell));
        left.finish()
    };
    let row = match &change {
        Change::Row(row) | Change::Static(row) => row_of(row),
        _ => return Some(change),
    };
    let is_empty = row.marker().is_none() && row.deletion().is_none() && row.cells().next().is_none();
    let whole = if let Change::Row(_) = change { Change::Row(row) } else { Change::Static(row) };
    (!is_empty).then_some(whole)
}

fn options_of(random: &mut Random, ties: bool) -> StorageOptions {
    let strategies = [
        Strategy::Incremental,
        Strategy::SizeTiered,
        Strategy::Leveled,
        Strategy::TimeWindow { window_s: 5 },
    ];
    let table = TableOptions {
        gc_grace_s: if ties { 1 << 20 } else { 0 },
        strategy: strategies[random.below(4) as usize],
        fragment_bytes: 4 << 10,
        min_threshold: 2 + random.below(3) as u32,
        block_bytes: 256 << random.below(4),
        compression: [Compression::Lz4, Compression::Zstd, Compression::None][random.below(3) as usize],
        max_threshold: 4 + random.below(8) as u32,
        tombstone_threshold_ppm: 10_000 + random.below(500_000) as u32,
        tombstone_interval_s: 0,
        unchecked_tombstones: random.one_in(2),
        ..TableOptions::default()
    };
    let commit = match random.below(6) {
        0 => CommitMode::Periodic { every: Duration::from_millis(10 * random.below(10)) },
        _ => CommitMode::Batch,
    };
    StorageOptions {
        commit,
        memtable_bytes_max: 2 << (10 + random.below(4)),
        segment_bytes: 32 << 10,
        cache_bytes: [0, 1 << 10, 24 << 10][random.below(3) as usize],
        table,
        ..super::options()
    }
}
