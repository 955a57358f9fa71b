//! Seeded histories of a whole shard, on a machine that crashes at any step of its disk, against a
//! model. After each crash every acknowledged write is present, every write is applied completely
//! or not at all, and the history continues from there.
//!
//! `FAIRLANE_SEED=17` runs one history, `FAIRLANE_SEEDS=500` runs 500.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::Poll;
use std::time::Duration;

use super::compare::{KEYS, bound, compare};
use super::model::Store;
use super::*;
use crate::env::{Env, Work};
use crate::sim::run;

const TABLES: u64 = 3;

/// Default number of histories: a few seconds.
const SEEDS: u64 = 24;

/// Number of actions in a history, and maximum number of steps of the disk until the next crash.
const ACTIONS: u32 = 400;
const STEPS_MAX: u64 = 600;

fn row(random: &mut Random, table: u64, timestamp: i64, now_s: u32, ties: bool) -> EncodedRow {
    // The first table has single rows only.
    let at = if table == 0 { vec![] } else { vec![random.below(20) as u8] };
    let expiry = |random: &mut Random| Expiry { ttl_s: 5, at_s: now_s + random.below(12) as u32 };
    let mut row = RowBuilder::new(&[], &at, timestamp);
    let kind = random.below(12);
    if kind == 0 || (kind == 1 && ties) {
        row.deletion(Some(Deletion { timestamp, deleted_at_s: now_s }));
    }
    if kind == 0 {
        return row.finish();
    }
    if kind.is_multiple_of(2) {
        let expiry = random.one_in(4).then(|| expiry(random));
        row.marker(Some(Liveness { timestamp, expiry }));
    }
    cells(random, &mut row, timestamp, now_s, ties);
    row.finish()
}

/// Adds cells of three simple columns and one with elements.
fn cells(random: &mut Random, row: &mut RowBuilder, timestamp: i64, now_s: u32, ties: bool) {
    for (column, path) in [(0, None), (1, None), (2, None), (3, None), (3, Some("a")), (3, Some("b"))] {
        let timestamp = if ties && random.one_in(5) { random.below(12) as i64 } else { timestamp };
        let value = vec![random.below(256) as u8; random.below(50) as usize];
        let expiry = Expiry { ttl_s: 5, at_s: now_s + random.below(12) as u32 };
        let cell = match random.below(8) {
            0..=3 if column == 3 && path.is_none() => continue,
            0..=2 => CellRef::live(column, timestamp, &value),
            3 => CellRef::expiring(column, timestamp, &value, expiry),
            4 => CellRef::dead(column, timestamp, now_s),
            _ => continue,
        };
        row.push(CellRef { path: path.map(str::as_bytes), ..cell });
    }
}

pub(super) fn write(random: &mut Random, timestamp: i64, now_s: u32, ties: bool) -> Mutation {
    let ((token, key), table) = (key(random.below(KEYS)), random.below(TABLES));
    let deletion = Deletion { timestamp, deleted_at_s: now_s };
    let edge = |random: &mut Random| Bytes::from(vec![random.below(20) as u8]);
    let change = |random: &mut Random| match random.below(40) {
        0 => Change::DeletePartition(deletion),
        1..=3 if table > 0 => {
            Change::DeleteRange { start: bound(random, edge), end: bound(random, edge), deletion }
        }
        4..=6 if table > 0 => {
            let mut row = RowBuilder::new(&[], &[], timestamp);
            cells(random, &mut row, timestamp, now_s, ties);
            Change::Static(row.finish())
        }
        _ => Change::Row(row(random, table, timestamp, now_s, ties)),
    };
    // With increasing timestamps, a write must not contradict itself.
    let count = if ties { 1 + random.below(3) } else { 1 };
    let changes = (0..count).map(|_| change(random)).collect();
    Mutation { table: TableId(u128::from(table)), token, key, changes }
}

/// A shard with its model.
pub(super) struct Trial {
    pub(super) sim: Arc<Sim>,
    random: Random,
    pub(super) options: StorageOptions,
    /// If true, timestamps are random and often equal, and tombstones are kept. Otherwise
    /// timestamps increase, and tombstones are dropped at once.
    ties: bool,
    shard: Option<Rc<Shard>>,
    /// Writes in the order of their log records, from 1.
    records: Vec<Vec<Mutation>>,
    /// Truncations: the number of records before each, and the table.
    truncations: Vec<(usize, TableId)>,
    /// A truncation that a crash interrupted.
    truncating: Option<(usize, TableId)>,
    /// Expected state after all of the above.
    store: Store,
    acknowledged: usize,
    commits: Vec<(usize, Commit)>,
    /// The disk is full, or was since the shard was opened.
    tight: bool,
    crashes: u32,
}

impl Trial {
    pub(super) fn new(sim: Arc<Sim>, seed: u64) -> Trial {
        let mut random = Random::new(seed ^ 0x5eed);
        sim.now_s.store(1000, Ordering::Relaxed);
        let ties = random.one_in(2);
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
            compression: [Compression::Lz4, Compression::Zstd][random.below(2) as usize],
            max_threshold: 4 + random.below(8) as u32,
            tombstone_threshold_ppm: 10_000 + random.below(500_000) as u32,
            tombstone_interval_s: 0,
            unchecked_tombstones: random.one_in(2),
            ..TableOptions::default()
        };
        let options = StorageOptions {
            commit: match random.below(4) {
                0 => CommitMode::Periodic { every: Duration::from_millis(10 * random.below(10)) },
                _ => CommitMode::Batch,
            },
            memtable_bytes_max: 2 << (10 + random.below(4)),
            segment_bytes: 32 << 10,
            table,
            event_sink: no_complaint(),
            ..super::options()
        };
        Trial {
            sim,
            random,
            options,
            ties,
            shard: None,
            records: Vec::new(),
            truncations: Vec::new(),
            truncating: None,
            store: Store::default(),
            acknowledged: 0,
            commits: Vec::new(),
            tight: false,
            crashes: 0,
        }
    }

    fn now_s(&self) -> u32 {
        self.sim.now_s.load(Ordering::Relaxed)
    }

    /// Returns the expected state after the first `records` records.
    fn store_of(&self, records: usize, truncating: Option<(usize, TableId)>) -> Store {
        let mut store = Store::default();
        let empty = |store: &mut Store, at: usize| {
            let here = self.truncations.iter().chain(&truncating).filter(|(own, _)| *own == at);
            here.for_each(|(_, table)| store.truncate(*table));
        };
        for (at, record) in self.records[..records].iter().enumerate() {
            empty(&mut store, at);
            store.apply(record);
        }
        empty(&mut store, records);
        store
    }

    fn compare(&mut self, store: &Store) -> Option<Result<(), String>> {
        let (shard, now_s) = (self.shard.clone().expect("open"), self.now_s());
        run(&self.sim, compare(&shard, store, TABLES, &mut self.random, now_s))
    }

    /// Checks that the shard matches the model, unless the machine crashes meanwhile.
    pub(super) fn check(&mut self, what: &str) {
        let store = std::mem::take(&mut self.store);
        let result = self.compare(&store);
        self.store = store;
        if let Some(Err(difference)) = result {
            panic!("{what}: {difference}");
        }
    }

    /// Opens the shard, after any number of crashes meanwhile. The disk has enough space.
    pub(super) fn open(&mut self) {
        self.commits.clear();
        self.shard = None;
        self.sim.disk.set_capacity(u64::MAX);
        self.tight = false;
        for _ in 0..100 {
            if let Some(opened) = run(&self.sim, Shard::open_in(self.options.clone(), self.sim.clone())) {
                self.shard = Some(opened.expect("opens"));
                return;
            }
            self.restart();
        }
        panic!("it never opens");
    }

    /// Crashes the machine, and schedules the next crash.
    fn restart(&mut self) {
        self.sim.crash();
        self.crashes += 1;
        if !self.crashes.is_multiple_of(8) {
            let steps = if self.random.one_in(3) { 40 } else { STEPS_MAX };
            self.sim.disk.crash_at(self.sim.disk.steps() + 1 + self.random.below(steps));
        }
    }

    /// Recovers after a crash: opens the shard, and compares it with the possible states.
    pub(super) fn recover(&mut self) {
        self.restart();
        self.go_on();
    }

    /// Kills the server while the machine stays up. Data that is read afterwards must be durable,
    /// even if it was never synced.
    fn kill(&mut self) {
        drop_tasks();
        self.go_on();
    }

    fn go_on(&mut self) {
        self.open();
        let survived = self.shard.as_ref().expect("open").stats().log_records as usize;
        let (acknowledged, issued) = (self.acknowledged, self.records.len());
        assert!(
            (acknowledged..=issued).contains(&survived),
            "{survived} of {acknowledged} to {issued} records"
        );
        let truncating = self.truncating.take().filter(|(at, _)| *at <= survived);
        let mut candidates = vec![None];
        candidates.extend(truncating.map(Some));
        let mut differences = Vec::new();
        for candidate in candidates {
            let store = self.store_of(survived, candidate);
            match self.compare(&store) {
                // Another crash: compare after the next start.
                None => {
                    self.truncating = truncating;
                    self.records.truncate(survived);
                    self.acknowledged = survived;
                    return;
                }
                Some(Ok(())) => {
                    self.records.truncate(survived);
                    self.truncations.retain(|(at, _)| *at <= survived);
                    self.truncations.extend(candidate);
                    (self.store, self.acknowledged) = (store, survived);
                    return;
                }
                Some(Err(difference)) => differences.push(difference),
            }
        }
        panic!("after crash {}, {survived} records: {}", self.crashes, differences.join("\nor "));
    }

    pub(super) fn apply(&mut self) {
        let (now_s, ties) = (self.now_s(), self.ties);
        let timestamp = if ties { self.random.below(12) as i64 } else { self.records.len() as i64 + 1 };
        let count = if ties { 1 + self.random.below(3) } else { 1 };
        let mutations: Vec<_> = (0..count).map(|_| write(&mut self.random, timestamp, now_s, ties)).collect();
        match self.shard.as_ref().expect("open").apply(mutations.clone()) {
            Ok(commit) => {
                self.store.apply(&mutations);
                self.records.push(mutations);
                self.commits.push((self.records.len(), commit));
            }
            Err(StorageError::WritesRefused { because }) if self.tight && because.is_full() => {}
            Err(StorageError::Overloaded { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// Checks which writes are acknowledged.
    pub(super) fn acknowledge(&mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        let durable = self.options.commit == CommitMode::Batch;
        let (acknowledged, tight) = (&mut self.acknowledged, self.tight);
        self.commits.retain_mut(|(record, commit)| match Pin::new(commit).poll(&mut cx) {
            Poll::Ready(Ok(())) if durable => {
                *acknowledged = (*acknowledged).max(*record);
                false
            }
            Poll::Ready(result) => {
                assert!(result.is_ok() || tight, "{result:?}");
                false
            }
            Poll::Pending => true,
        });
    }

    /// Returns the result of an operation that a full disk may refuse.
    fn unless_full<T>(&self, outcome: Option<Result<T, StorageError>>) -> Option<T> {
        match outcome? {
            Ok(answer) => Some(answer),
            Err(error) if self.tight && error.is_full() => None,
            Err(error) => panic!("{error}"),
        }
    }

    pub(super) fn flush(&mut self) {
        let shard = self.shard.clone().expect("open");
        let issued = self.records.len();
        let flushed = run(&self.sim, shard.flush_all());
        if self.unless_full(flushed).is_some() {
            self.acknowledged = issued;
        }
    }

    pub(super) fn reopen(&mut self) {
        let shard = self.shard.clone().expect("open");
        let issued = self.records.len();
        if run(&self.sim, shard.shutdown()).transpose().expect("shuts down").is_some() {
            self.acknowledged = issued;
            drop(shard);
            self.open();
        }
    }

    /// Requests a compaction, and cancels it in half of the cases.
    fn compact(&mut self) {
        let shard = self.shard.clone().expect("open");
        let progress = WorkProgress::default();
        let first = if self.random.one_in(2) { i64::MIN } else { self.random.next_u64() as i64 };
        let last = if self.random.one_in(2) { i64::MAX } else { first.saturating_add(i64::MAX / 4) };
        let table = TableId(u128::from(self.random.below(TABLES)));
        if self.random.one_in(2) {
            let (own, watched) = (shard.clone(), progress.clone());
            let steps = self.random.below(200) as u32;
            let cancel = async move {
                for _ in 0..steps {
                    own.env.heavy_yield().await;
                }
                watched.cancel();
            };
            self.sim.spawn(Work::Control, Box::pin(cancel));
        }
        let issued = self.records.len();
        let result = run(&self.sim, shard.compact(table, first..=last, lanes::Group::CONTROL, &progress));
        match result {
            Some(Err(StorageError::Cancelled)) => {}
            result => {
                if self.unless_full(result).is_some() {
                    self.acknowledged = issued;
                }
            }
        }
    }

    pub(super) fn truncate(&mut self, table: u64) {
        let shard = self.shard.clone().expect("open");
        let table = TableId(u128::from(table));
        self.truncating = Some((self.records.len(), table));
        if run(&self.sim, shard.truncate(table)).transpose().expect("truncates").is_some() {
            self.truncations.extend(self.truncating.take());
            self.store.truncate(table);
        }
    }

    fn act(&mut self, what: &str) {
        match self.random.below(200) {
            0..=3 => {
                // Sometimes advance the clock so far that windows expire and runs are old enough to
                // be compacted alone.
                let seconds = if self.random.one_in(6) { 100 } else { 5 };
                let now_s = self.now_s() + self.random.below(seconds) as u32;
                self.sim.now_s.store(now_s, Ordering::Relaxed);
            }
            4..=11 => self.flush(),
            12..=14 if !self.tight => self.reopen(),
            15..=17 if !self.tight => {
                let table = self.random.below(TABLES);
                self.truncate(table);
            }
            24 => self.kill(),
            25..=28 => self.compact(),
            18 if self.tight => self.sim.disk.set_capacity(u64::MAX),
            18 if self.random.one_in(2) => {
                self.tight = true;
                self.sim.disk.set_capacity(self.sim.disk.used() + self.random.below(8 << 10));
            }
            19..=23 => self.check(what),
            29..=80 => (0..self.random.below(6)).for_each(|_| step()),
            _ => self.apply(),
        }
    }

    fn history(&mut self) {
        self.restart();
        self.open();
        for action in 0..ACTIONS {
            self.act(&format!("action {action}"));
            while self.sim.disk.is_down() {
                self.recover();
            }
            self.acknowledge();
        }
        self.end();
    }

    /// Ends the history without further crashes.
    pub(super) fn end(&mut self) {
        self.sim.disk.crash_at(u64::MAX);
        self.sim.disk.set_capacity(u64::MAX);
        while self.shard.as_ref().expect("open").stats().writes_refused {
            step();
        }
        self.check("at the end");
        let shard = self.shard.take().expect("open");
        run(&self.sim, shard.shutdown()).expect("up").expect("shuts down");
        drop(shard);
        self.open();
        self.check("reopened at the end");
        drop_tasks();
    }
}

/// Runs a history. If it fails, prints the command that repeats it.
pub(super) fn replayable(seed: u64, test: &str, history: impl FnOnce(Arc<Sim>)) {
    drop_tasks();
    let sim = Arc::new(Sim::new(seed));
    let outcome = catch_unwind(AssertUnwindSafe(|| history(sim.clone())));
    if let Err(panic) = outcome {
        eprintln!(
            "{}\nto see it again: FAIRLANE_SEED={seed} cargo test --release -p storage {test}",
            sim.disk.record()
        );
        resume_unwind(panic);
    }
}

pub(super) fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}

#[test]
fn random_crashes_keep_acknowledged_writes_whole() {
    let seeds = match number("FAIRLANE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("FAIRLANE_SEEDS").unwrap_or(SEEDS),
    };
    let single = seeds.end - seeds.start == 1;
    let mut crashes = 0;
    let mut flushes = 0;
    let mut compactions = 0;
    for seed in seeds {
        replayable(seed, "random_crashes", |sim| {
            let mut trial = Trial::new(sim, seed);
            trial.history();
            let stats = trial.shard.as_ref().expect("open").stats();
            crashes += trial.crashes;
            flushes += stats.flushes;
            compactions += stats.compactions;
        });
    }
    assert!(single || crashes > 80, "too little went on: {crashes} crashes");
}

/// A record of several disk writes is present whole after a crash, or not at all. Records around it
/// stay acknowledged.
#[test]
fn long_record_survives_crashes_whole_or_not_at_all() {
    const LONG: usize = 3 << 20;
    let options = StorageOptions { segment_bytes: 8 << 20, record_bytes_max: 4 << 20, ..options() };
    let put = |shard: &Rc<Shard>, number: u64, bytes: usize| {
        let key = Bytes::from(number.to_be_bytes().to_vec());
        let mut row = RowBuilder::new(&key, &[], 1);
        row.push(CellRef::live(0, 1, &vec![number as u8; bytes]));
        let changes = vec![Change::Row(row.finish())];
        let mutations = vec![Mutation { table: TableId(1), token: number as i64, key, changes }];
        let shard = shard.clone();
        async move { shard.apply_yielding(mutations).await?.await }
    };
    let mut survived = [0; 2];
    for seed in 0..60 {
        let sim = Arc::new(Sim::new(seed));
        let shard = open(&sim, &options).expect("opens");
        block_on(put(&shard, 1, 10)).expect("durable");
        sim.disk.crash_at(sim.disk.steps() + 1 + seed);
        let acknowledged = run(&sim, put(&shard, 2, LONG)).is_some_and(|result| result.is_ok());
        drop(shard);
        drop_tasks();
        sim.disk.crash();
        let shard = open(&sim, &options).expect("opens again");
        let read = |number: u64| {
            let key = number.to_be_bytes();
            block_on(shard.read_partition(TableId(1), number as i64, &key, 0).wait()).expect("reads")
        };
        assert!(read(1).is_some(), "seed {seed}");
        let long = read(2);
        assert!(long.is_some() || !acknowledged, "seed {seed}");
        survived[usize::from(long.is_some())] += 1;
        block_on(shard.shutdown()).expect("closed");
        drop_tasks();
    }
    assert!(survived.iter().all(|count| *count > 3), "lost and found: {survived:?}");
}
