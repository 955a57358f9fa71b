//! Tests of a whole shard, through flushes, compactions, restarts and crashes, against a model that
//! keeps every mutation and computes each row from all of them.

mod before;
mod cached_rows;
mod compare;
mod crashes;
mod damage;
mod dead;
mod dropped;
mod every_step;
mod faults;
mod file_kinds;
mod full_disk;
mod idle;
mod keeping;
mod large_rows;
mod log;
mod log_bound;
mod machine;
mod many;
mod model;
mod pieces;
mod reports;
mod reshard;
mod runs;
mod sharing;
mod turns;
mod wide;

use std::collections::BTreeMap;
use std::future::Future;
use std::ops::Bound;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Waker};

use bytes::Bytes;

use crate::model::reconcile::compare_cells;
use testkit::Random;

use crate::sim::{Sim, block_on, drop_tasks, step};
use crate::*;

const TABLES: u64 = 2;

/// A cell as returned to a reader: column, path, timestamp, value, expiry.
type SeenCell = (u32, Option<Vec<u8>>, i64, Vec<u8>, Option<Expiry>);

#[derive(Clone, PartialEq, Debug, Default)]
struct Seen {
    statics: Vec<SeenCell>,
    rows: Vec<(Bytes, Option<Liveness>, Vec<SeenCell>)>,
}

fn seen_cell(cell: CellRef<'_>) -> SeenCell {
    let value = cell.value().expect("a live cell").to_vec();
    (cell.column, cell.path.map(<[u8]>::to_vec), cell.timestamp, value, cell.expiry())
}

#[derive(Clone, Default)]
struct Model {
    /// Mutations by log record, from 1.
    records: Vec<Vec<Mutation>>,
    truncated: BTreeMap<TableId, usize>,
}

impl Model {
    fn changes(&self, table: TableId, key: &Bytes) -> Vec<Change> {
        let from = self.truncated.get(&table).copied().unwrap_or(0);
        let mutations = self.records.iter().skip(from).flatten();
        mutations.filter(|m| m.table == table && m.key == *key).flat_map(|m| m.changes.clone()).collect()
    }

    fn see(&self, table: TableId, key: &Bytes, now_s: u32) -> Seen {
        let changes = self.changes(table, key);
        let win = |cells: Vec<CellRef<'_>>, floor: Option<i64>| -> Vec<SeenCell> {
            let mut best: BTreeMap<_, CellRef<'_>> = BTreeMap::new();
            for cell in cells.iter().filter(|cell| floor.is_none_or(|floor| cell.timestamp > floor)) {
                let entry = best.entry((cell.column, cell.path)).or_insert(*cell);
                if compare_cells(entry, cell).is_lt() {
                    *entry = *cell;
                }
            }
            let dead = |column: u32| {
                let own =
                    cells.iter().filter(|c| c.column == column && c.path.is_none() && c.value().is_none());
                own.map(|cell| cell.timestamp).max()
            };
            let shown = |cell: &CellRef<'_>| {
                cell.is_live(now_s)
                    && (cell.path.is_none() || dead(cell.column).is_none_or(|at| cell.timestamp > at))
            };
            best.into_values().filter(shown).map(seen_cell).collect()
        };
        let partition = changes.iter().filter_map(|change| match change {
            Change::DeletePartition(deletion) => Some(deletion.timestamp),
            _ => None,
        });
        let partition = partition.max();
        let statics =
            changes.iter().filter_map(|c| if let Change::Static(row) = c { Some(row.cells()) } else { None });
        let statics = win(statics.flatten().collect(), partition);
        let mut by_row: BTreeMap<Bytes, Vec<&EncodedRow>> = BTreeMap::new();
        for change in &changes {
            if let Change::Row(row) = change {
                by_row.entry(Bytes::copy_from_slice(row.clustering())).or_default().push(row);
            }
        }
        let mut rows = Vec::new();
        for (at, versions) in by_row {
            let ranges = changes.iter().filter_map(|change| match change {
                Change::DeleteRange { start, end, deletion } => {
                    let inside = std::ops::RangeBounds::<Bytes>::contains(&(start.clone(), end.clone()), &at);
                    inside.then_some(deletion.timestamp)
                }
                _ => None,
            });
            let mut floor = partition.max(ranges.max());
            let mut cells = Vec::new();
            let mut markers = Vec::new();
            for version in versions {
                floor = floor.max(version.deletion().map(|d| d.timestamp));
                cells.extend(version.cells());
                markers.extend(version.marker());
            }
            let marker = markers.into_iter().filter(|l| floor.is_none_or(|floor| l.timestamp > floor));
            let marker = marker.max_by_key(|l| (l.timestamp, l.expiry.map(|e| (e.at_s, e.ttl_s))));
            let marker = marker.filter(|l| l.is_live(now_s));
            let cells = win(cells, floor);
            if marker.is_some() || !cells.is_empty() {
                rows.push((at.clone(), marker, cells));
            }
        }
        Seen { statics, rows }
    }
}

fn seen(view: &PartitionView) -> Seen {
    let row = |row: RowView| {
        (Bytes::copy_from_slice(row.clustering()), row.liveness(), row.cells().map(seen_cell).collect())
    };
    Seen { statics: view.static_cells().map(seen_cell).collect(), rows: view.rows().map(row).collect() }
}

fn key(number: u64) -> (i64, Bytes) {
    // Tokens collide on purpose: two keys share each.
    ((number / 2) as i64 * 1000 - 3000, Bytes::from(format!("key{number}")))
}

fn mutation(random: &mut Random, timestamp: i64, now_s: u32) -> Mutation {
    let (token, key) = key(random.below(12));
    let clustering = |random: &mut Random| match random.below(4) {
        0 => Bytes::new(),
        _ => Bytes::from(vec![random.below(40) as u8]),
    };
    let cells = |random: &mut Random, row: &mut RowBuilder| {
        for (column, path) in [(0, None), (1, None), (2, None), (3, None), (3, Some("a")), (3, Some("b"))] {
            let value = vec![random.below(256) as u8; random.below(60) as usize];
            let expiry = Expiry { ttl_s: 5, at_s: now_s + random.below(10) as u32 };
            let mut cell = match random.below(6) {
                // A column with elements has no value of its own.
                0..=2 if column == 3 && path.is_none() => continue,
                0 | 1 => CellRef::live(column, timestamp, &value),
                2 => CellRef::expiring(column, timestamp, &value, expiry),
                3 => CellRef::dead(column, timestamp, now_s),
                _ => continue,
            };
            cell.path = path.map(str::as_bytes);
            row.push(cell);
        }
    };
    let deletion = Deletion { timestamp, deleted_at_s: now_s };
    let change = match random.below(30) {
        0 => Change::DeletePartition(deletion),
        1 | 2 => {
            let bound = |random: &mut Random| match random.below(5) {
                0 => Bound::Unbounded,
                1 | 2 => Bound::Included(clustering(random)),
                _ => Bound::Excluded(clustering(random)),
            };
            Change::DeleteRange { start: bound(random), end: bound(random), deletion }
        }
        3 | 4 => {
            let mut row = RowBuilder::new(&[], &[], timestamp);
            cells(random, &mut row);
            Change::Static(row.finish())
        }
        kind => {
            let mut row = RowBuilder::new(&[], &clustering(random), timestamp);
            row.deletion((kind == 5).then_some(deletion));
            row.marker((kind % 2 == 0).then_some(Liveness { timestamp, expiry: None }));
            if kind != 5 {
                cells(random, &mut row);
            }
            Change::Row(row.finish())
        }
    };
    Mutation { table: TableId(u128::from(random.below(TABLES))), token, key, changes: vec![change] }
}

fn options() -> StorageOptions {
    StorageOptions {
        memtable_bytes_max: 24 << 10,
        segment_bytes: 64 << 10,
        record_bytes_max: 32 << 10,
        reserve_bytes: 16 << 10,
        table: TableOptions { block_bytes: 512, fragment_bytes: 1500, ..TableOptions::default() },
        cache_bytes: 24 << 10,
        ..StorageOptions::in_dir("/data", 0, 1)
    }
}

/// Receives the events of shards that only crash: a start must not take that for damage.
fn no_complaint() -> EventSink {
    EventSink::new(|event| {
        let is_complaint = matches!(event, Event::MovedAside { .. } | Event::MarkLost { .. });
        assert!(!is_complaint, "after a crash: {event}");
    })
}

fn open(sim: &Arc<Sim>, options: &StorageOptions) -> Result<Rc<Shard>, StorageError> {
    block_on(Shard::open_in(options.clone(), sim.clone()))
}

/// Checks slices of a partition, forward and in reverse, a few rows at a time.
fn check_slices(
    shard: &Rc<Shard>,
    table: TableId,
    token: i64,
    key: &Bytes,
    wanted: &Seen,
    now_s: u32,
    what: &str,
) {
    let mut random = Random::new(token as u64 ^ wanted.rows.len() as u64);
    let bound = |random: &mut Random| match random.below(3) {
        0 => Bound::Unbounded,
        1 => Bound::Included(Bytes::from(vec![random.below(40) as u8])),
        _ => Bound::Excluded(Bytes::from(vec![random.below(40) as u8])),
    };
    for reversed in [false, true] {
        let (start, end) = (bound(&mut random), bound(&mut random));
        let rows = 1 + random.below(8) as usize;
        let bounds = (start.clone(), end.clone());
        let mut expected: Vec<_> = wanted
            .rows
            .iter()
            .filter(|(clustering, ..)| std::ops::RangeBounds::<Bytes>::contains(&bounds, clustering))
            .cloned()
            .collect();
        if reversed {
            expected.reverse();
        }
        let mut slice = Slice { start, end, reversed, rows, bypass_cache: random.one_in(2), statics: true };
        let mut got = Vec::new();
        while let Some(piece) = block_on(shard.read_slice(table, token, key, &slice, now_s).wait()).unwrap() {
            let mut seen = seen(&piece.view);
            let statics = if slice.statics { wanted.statics.clone() } else { Vec::new() };
            assert_eq!(seen.statics, statics, "{what}: static cells with {slice:?} of {key:?}");
            if reversed {
                seen.rows.reverse();
            }
            got.append(&mut seen.rows);
            let Some(next) = piece.next else { break };
            slice = slice.behind(next);
        }
        assert_eq!(got, expected, "{what}: {slice:?} of {key:?}");
    }
}

fn check(shard: &Rc<Shard>, model: &Model, now_s: u32, what: &str) {
    for table in (0..TABLES).map(|id| TableId(u128::from(id))) {
        let mut expected = Vec::new();
        for number in 0..12 {
            let (token, key) = key(number);
            let wanted = model.see(table, &key, now_s);
            let view = block_on(shard.read_partition(table, token, &key, now_s).wait()).unwrap();
            assert_eq!(view.map(|view| seen(&view)).unwrap_or_default(), wanted, "{what}: {table:?} {key:?}");
            for (clustering, _, cells) in &wanted.rows {
                let row = block_on(shard.read_row(table, token, &key, clustering, Pick::ALL, now_s).wait())
                    .unwrap();
                assert_eq!(
                    row.expect(what).cells().map(seen_cell).collect::<Vec<_>>(),
                    *cells,
                    "{what}: {key:?}"
                );
                // Read one column alone. The row is returned even if that column is null and
                // another keeps it alive.
                let row = block_on(
                    shard.read_row(table, token, &key, clustering, Pick::columns(&[2]), now_s).wait(),
                )
                .unwrap();
                let cell = row.as_ref().expect(what).cells().find(|cell| cell.column == 2).map(seen_cell);
                let wanted = cells.iter().find(|cell| cell.0 == 2).cloned();
                assert_eq!(cell, wanted, "{what}: column 2 of {key:?}");
            }
            check_slices(shard, table, token, &key, &wanted, now_s, what);
            let absent =
                block_on(shard.read_row(table, token, &key, b"absent", Pick::ALL, now_s).wait()).unwrap();
            assert!(absent.is_none());
            if wanted != Seen::default() {
                expected.push((token, key, wanted));
            }
        }
        expected.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        let mut scanned = Vec::new();
        let mut after = None;
        // Scan in two halves, the second starting after the end of the first.
        for limit in [3, usize::MAX] {
            let mut scan = shard.scan(table, i64::MIN..=i64::MAX, after.clone(), now_s);
            while scanned.len() < limit
                && let Some((token, key, view)) = block_on(scan.next()).unwrap()
            {
                scanned.push((token, key.clone(), seen(&view)));
                after = Some((token, key));
            }
        }
        assert_eq!(scanned, expected, "{what}: scan of {table:?}");
        crate::scan::batch_tests::check_batches(shard, table, i64::MIN..=i64::MAX, now_s, what);
    }
}

/// Applies mutations by the fastest method for them.
fn write(shard: &Rc<Shard>, mutations: &[Mutation]) -> Result<Commit, StorageError> {
    if let [Mutation { table, token, key, changes }] = mutations
        && let [Change::Row(row)] = &changes[..]
    {
        let row = if row.clustering().is_empty() && token % 3 != 0 { row.with_key(key) } else { row.clone() };
        return shard.put(*table, *token, key, &row.draft());
    }
    shard.apply(mutations)
}

/// Runs one seeded history. With `forget`, timestamps increase and tombstones are dropped at once.
/// Otherwise timestamps are random and often equal.
fn history(seed: u64, forget: bool) -> Stats {
    let mut random = Random::new(seed);
    let sim = Arc::new(Sim::new(seed));
    sim.now_s.store(1000, Ordering::Relaxed);
    let gc_grace_s = if forget { 0 } else { 1 << 20 };
    let strategies = [
        Strategy::Incremental,
        Strategy::SizeTiered,
        Strategy::Leveled,
        Strategy::TimeWindow { window_s: 1 },
    ];
    let strategy = strategies[seed as usize % strategies.len()];
    let compression = [Compression::Lz4, Compression::Zstd, Compression::None][seed as usize % 3];
    let table = TableOptions { gc_grace_s, strategy, compression, ..options().table };
    let options = StorageOptions { table, event_sink: no_complaint(), ..options() };
    let mut shard = open(&sim, &options).unwrap();
    let mut model = Model::default();
    let mut acknowledged = 0;
    let mut commits: Vec<(usize, Commit)> = Vec::new();
    let mut replayed = 0;
    for action in 0..500 {
        let what = format!("history({seed}, {forget}) action {action}");
        let now_s = sim.now_s.load(Ordering::Relaxed);
        match random.below(200) {
            0..=3 => sim.now_s.store(now_s + 3, Ordering::Relaxed),
            4..=9 => block_on(shard.flush_all()).expect(&what),
            10..=13 => {
                block_on(shard.shutdown()).expect(&what);
                acknowledged = model.records.len();
                commits.clear();
                shard = open(&sim, &options).expect(&what);
            }
            14..=19 => {
                commits.clear();
                drop(shard);
                sim.crash();
                shard = open(&sim, &options).expect(&what);
                replayed += shard.stats().replayed;
                let survived = shard.stats().log_records as usize;
                assert!(
                    (acknowledged..=model.records.len()).contains(&survived),
                    "{what}: {survived} records"
                );
                model.records.truncate(survived);
                acknowledged = survived;
                check(&shard, &model, now_s, &what);
            }
            20 => {
                let table = TableId(u128::from(random.below(TABLES)));
                block_on(shard.truncate(table)).expect(&what);
                model.truncated.insert(table, model.records.len());
            }
            21..=30 => check(&shard, &model, now_s, &what),
            31..=60 => (0..random.below(6)).for_each(|_| step()),
            _ => {
                let timestamp = if forget { model.records.len() as i64 + 1 } else { random.below(12) as i64 };
                let count = 1 + random.below(3);
                let mutations: Vec<_> = (0..count).map(|_| mutation(&mut random, timestamp, now_s)).collect();
                commits.push((model.records.len() + 1, write(&shard, &mutations).expect(&what)));
                model.records.push(mutations);
            }
        }
        let mut cx = Context::from_waker(Waker::noop());
        commits.retain_mut(|(record, commit)| match Pin::new(commit).poll(&mut cx) {
            std::task::Poll::Ready(result) => {
                result.expect(&what);
                acknowledged = acknowledged.max(*record);
                false
            }
            std::task::Poll::Pending => true,
        });
    }
    check(&shard, &model, sim.now_s.load(Ordering::Relaxed), "at the end");
    block_on(shard.shutdown()).unwrap();
    Stats { replayed, ..shard.stats() }
}

/// Runs histories and checks that they had enough flushes, compactions, replays and cache hits.
/// Counters except `replayed` start at the last restart. Eight seeds cover every strategy and
/// compression; `FAIRLANE_SEEDS` sets another number.
fn histories(first: u64, forget: bool) {
    let seeds = first..first + crashes::number("FAIRLANE_SEEDS").unwrap_or(8);
    let stats: Vec<Stats> = seeds.map(|seed| history(seed, forget)).collect();
    let sum = |count: fn(&Stats) -> u64| stats.iter().map(count).sum::<u64>();
    assert!(
        sum(|s| s.flushes) > 2 && sum(|s| s.compactions) > 1,
        "too little flushed or compacted: {stats:?}"
    );
    assert!(
        sum(|s| s.replayed) > 50 && sum(|s| s.cache_hits) > 1000,
        "too little replayed or cached: {stats:?}"
    );
}

/// Pauses or resumes flushes and compactions.
fn pause_background(shard: &Rc<Shard>, paused: bool) {
    shard.jobs.pacing.paused.set(paused);
    shard.background.decide();
    shard.jobs.work.wake();
}

#[test]
fn histories_with_random_timestamps_agree_with_the_model() {
    histories(0, false);
}

#[test]
fn histories_that_forget_tombstones_agree_with_the_model() {
    histories(100, true);
}

fn filled(sim: &Arc<Sim>) -> Model {
    let (shard, model) = filling(sim);
    block_on(shard.shutdown()).unwrap();
    model
}

/// Returns a shard with table files, and with records that are only in the log.
fn filling(sim: &Arc<Sim>) -> (Rc<Shard>, Model) {
    let mut random = Random::new(5);
    let shard = open(sim, &options()).unwrap();
    let mut model = Model::default();
    for number in 0..200 {
        let mutations = vec![mutation(&mut random, number, 1000)];
        block_on(shard.apply(mutations.clone()).unwrap()).unwrap();
        model.records.push(mutations);
        if number == 60 || number == 120 {
            block_on(shard.flush_all()).unwrap();
        }
    }
    assert!(shard.stats().files >= 2);
    (shard, model)
}

/// Returns the contents of all files, for `restore`.
fn contents(sim: &Sim) -> Vec<(PathBuf, Bytes)> {
    let read = async |path: PathBuf| {
        let file = sim.disk.open(&path, Default::default()).await.expect("opens");
        let bytes = file.read_at(0, sim.disk.size(&path) as usize).await.expect("reads");
        (path, bytes)
    };
    sim.disk.files().into_iter().map(|path| block_on(read(path))).collect()
}

fn restore(sim: &Sim, contents: &[(PathBuf, Bytes)]) {
    let options =
        testkit::sim::OpenOptions { write: true, create: true, truncate: true, ..Default::default() };
    let folder = |path: &PathBuf| path.parent().expect("in a folder").to_owned();
    let mut folders: Vec<_> = sim.disk.files().iter().map(folder).collect();
    block_on(async {
        for path in sim.disk.files() {
            if !contents.iter().any(|(own, _)| *own == path) {
                sim.disk.remove_file(&path).await.expect("removed");
            }
        }
        for (path, bytes) in contents {
            folders.push(folder(path));
            let file = sim.disk.open(path, options).await.expect("opens");
            file.write_at(0, bytes.clone()).await.expect("written");
            file.sync_all().await.expect("synced");
        }
        folders.sort();
        folders.dedup();
        for folder in folders {
            sim.disk.sync_dir(&folder).await.expect("synced");
        }
    });
}

#[test]
fn damage_to_any_file_never_gives_a_wrong_answer() {
    let sim = Arc::new(Sim::default());
    let model = filled(&sim);
    let mut reported = 0;
    let whole = contents(&sim);
    for path in sim.disk.files().into_iter().filter(|path| !path.ends_with("LOCK")) {
        let size = sim.disk.size(&path);
        for at in (0..size).step_by((size as usize / 150).max(1)) {
            sim.disk.flip(&path, at, 5);
            let read_all = || -> Result<(), StorageError> {
                let shard = open(&sim, &options())?;
                for number in 0..12 * TABLES {
                    let ((token, key), table) = (key(number / TABLES), TableId(u128::from(number % TABLES)));
                    let view = block_on(shard.read_partition(table, token, &key, 1000).wait())?;
                    let wanted = model.see(table, &key, 1000);
                    assert_eq!(view.map(|view| seen(&view)).unwrap_or_default(), wanted, "{path:?} at {at}");
                }
                Ok(())
            };
            // Either the damage is reported, or the byte has no meaning: padding, or the log, which
            // is not needed after an orderly shutdown.
            let is_log = path.extension().is_some_and(|extension| extension == "log");
            match read_all() {
                Ok(()) => {}
                Err(error) if is_log => panic!("{error}"),
                Err(_) => reported += 1,
            }
            drop_tasks();
            restore(&sim, &whole);
        }
    }
    assert!(reported > 300, "only {reported} damaged bytes were reported");
    let shard = open(&sim, &options()).unwrap();
    check(&shard, &model, 1000, "undamaged again");
}

#[test]
fn too_large_mutation_is_refused_without_effect() {
    let sim = Arc::new(Sim::default());
    let shard = open(&sim, &options()).unwrap();
    let (token, key) = key(1);
    let mut row = RowBuilder::new(&key, &[], 1);
    row.push(CellRef::live(0, 1, &[1; 40 << 10]));
    let row = row.finish();
    let refused = shard.put(TableId(0), token, &key, &row.draft()).unwrap_err();
    assert!(matches!(refused, StorageError::TooLarge { limit: 32768, .. }), "{refused}");
    let changes = vec![Change::Row(row)];
    let refused =
        shard.apply(vec![Mutation { table: TableId(0), token, key: key.clone(), changes }]).unwrap_err();
    assert!(matches!(refused, StorageError::TooLarge { limit: 32768, .. }), "{refused}");
    assert!(block_on(shard.read_partition(TableId(0), token, &key, 0).wait()).unwrap().is_none());
    block_on(shard.shutdown()).unwrap();
}

#[test]
fn shard_in_memory_agrees_with_the_model() {
    let shard = block_on(Shard::open_in(StorageOptions::in_memory(), Arc::new(Sim::default()))).unwrap();
    let mut random = Random::new(11);
    let mut model = Model::default();
    for timestamp in 0..300 {
        let mutations = vec![mutation(&mut random, timestamp, 1000)];
        block_on(shard.apply(mutations.clone()).unwrap()).unwrap();
        model.records.push(mutations);
    }
    check(&shard, &model, 1000, "in memory");
    assert_eq!(options().dir, Some(PathBuf::from("/data")));
}
