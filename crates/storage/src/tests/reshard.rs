//! One folder is opened with different numbers of shards, after orderly stops and crashes.

use schema::Sharding;

use super::*;

/// The tables of `mutation`: the first is split by token, the second is a system table on shard 0.
const USERS: TableId = TableId(1 << 64);
const SYSTEM: TableId = TableId(1);

fn spread(token: i64) -> i64 {
    token.wrapping_mul(0x1e37_79b9_7f4a_7c15)
}

pub(super) fn spread_mutation(random: &mut Random, timestamp: i64, now_s: u32) -> Mutation {
    let made = mutation(random, timestamp, now_s);
    let table = if made.table == TableId(0) { USERS } else { SYSTEM };
    Mutation { table, token: spread(made.token), ..made }
}

fn home(table: TableId, token: i64, shards: u32) -> usize {
    let sharding = Sharding { shards, ignore_msb: IGNORE_MSB };
    if table == SYSTEM { 0 } else { sharding.shard_of(token) as usize }
}

/// Opens every shard; `None` if the machine crashes meanwhile.
fn try_open(sim: &Arc<Sim>, options: &StorageOptions, shards: u32) -> Option<Vec<Rc<Shard>>> {
    let open = async {
        let mut open = Vec::new();
        for shard in 0..shards {
            let options = StorageOptions { shard, shards, ..options.clone() };
            open.push(Shard::open_in(options, sim.clone()).await.expect("it opens"));
        }
        open
    };
    crate::sim::run(sim, open)
}

pub(super) fn open_all(sim: &Arc<Sim>, options: &StorageOptions, shards: u32) -> Vec<Rc<Shard>> {
    try_open(sim, options, shards).expect("the machine stays up")
}

pub(super) fn write_all(shards: &[Rc<Shard>], mutations: &[Mutation]) {
    for (shard, own) in shards.iter().enumerate() {
        let is_home = |m: &&Mutation| home(m.table, m.token, shards.len() as u32) == shard;
        let mutations: Vec<_> = mutations.iter().filter(is_home).cloned().collect();
        if !mutations.is_empty() {
            block_on(own.apply(mutations).expect("applied")).expect("durable");
        }
    }
}

pub(super) fn check_all(shards: &[Rc<Shard>], model: &Model, now_s: u32, what: &str) {
    for table in [USERS, SYSTEM] {
        let mut expected = Vec::new();
        for number in 0..12 {
            let (token, key) = key(number);
            let token = spread(token);
            let wanted = model.see(table, &key, now_s);
            let shard = &shards[home(table, token, shards.len() as u32)];
            let view = block_on(shard.read_partition(table, token, &key, now_s).wait()).unwrap();
            assert_eq!(view.map(|view| seen(&view)).unwrap_or_default(), wanted, "{what}: {table:?} {key:?}");
            if wanted != Seen::default() {
                expected.push((token, key, wanted));
            }
        }
        expected.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        let mut scanned = Vec::new();
        for (number, shard) in shards.iter().enumerate() {
            let mut scan = shard.scan(table, i64::MIN..=i64::MAX, None, now_s);
            while let Some((token, key, view)) = block_on(scan.next()).unwrap() {
                assert_eq!(home(table, token, shards.len() as u32), number, "{what}: {table:?} {key:?}");
                scanned.push((token, key.clone(), seen(&view)));
            }
            crate::scan::batch_tests::check_batches(shard, table, i64::MIN..=i64::MAX, now_s, what);
        }
        scanned.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        assert_eq!(scanned, expected, "{what}: scan of {table:?}");
    }
}

/// Writes until every shard has table files, and records that are only in its log.
pub(super) fn fill(shards: &[Rc<Shard>], random: &mut Random) -> Model {
    let mut model = Model::default();
    for turn in 0..150 {
        let mutations: Vec<_> = (0..2).map(|_| spread_mutation(random, turn, 1000)).collect();
        write_all(shards, &mutations);
        model.records.push(mutations);
        if turn % 50 == 40 {
            shards.iter().for_each(|shard| block_on(shard.flush_all()).expect("flushed"));
        }
        if turn == 60 || turn == 130 {
            let table = if turn == 60 { USERS } else { SYSTEM };
            shards.iter().for_each(|shard| block_on(shard.truncate(table)).expect("truncated"));
            model.truncated.insert(table, model.records.len());
        }
    }
    model
}

/// Runs one seeded history with changing numbers of shards. With `forget`, timestamps only rise and
/// tombstones are forgotten at once.
fn resharded(seed: u64, forget: bool) -> (u64, u64) {
    let mut random = Random::new(seed);
    let sim = Arc::new(Sim::new(seed));
    sim.now_s.store(1000, Ordering::Relaxed);
    let gc_grace_s = if forget { 0 } else { 1 << 20 };
    let table = TableOptions { gc_grace_s, ..options().table };
    let options = StorageOptions { table, event_sink: no_complaint(), ..options() };
    let mut shards = open_all(&sim, &options, 2);
    let mut model = Model::default();
    let (mut splits, mut compactions) = (0, 0);
    for turn in 0..400 {
        let what = format!("resharded({seed}, {forget}) turn {turn}");
        let now_s = sim.now_s.load(Ordering::Relaxed);
        match random.below(200) {
            0..=3 => sim.now_s.store(now_s + 3, Ordering::Relaxed),
            4..=19 => {
                let shard = random.below(shards.len() as u64) as usize;
                block_on(shards[shard].flush_all()).expect(&what);
            }
            20 => {
                let table = if random.below(2) == 0 { USERS } else { SYSTEM };
                shards.iter().for_each(|shard| block_on(shard.truncate(table)).expect(&what));
                model.truncated.insert(table, model.records.len());
            }
            21..=32 => {
                compactions += shards.iter().map(|shard| shard.stats().compactions).sum::<u64>();
                if random.below(2) == 0 {
                    shards.iter().for_each(|shard| block_on(shard.shutdown()).expect(&what));
                    shards.clear();
                    drop_tasks();
                } else {
                    shards.clear();
                    sim.crash();
                }
                let count = 1 + random.below(3) as u32;
                shards = open_all(&sim, &options, count);
                splits += 1;
                check_all(&shards, &model, now_s, &what);
            }
            33..=40 => check_all(&shards, &model, now_s, &what),
            41..=70 => (0..random.below(20)).for_each(|_| step()),
            _ => {
                let timestamp = if forget { model.records.len() as i64 + 1 } else { random.below(12) as i64 };
                let count = 1 + random.below(3);
                let mutations: Vec<_> =
                    (0..count).map(|_| spread_mutation(&mut random, timestamp, now_s)).collect();
                write_all(&shards, &mutations);
                model.records.push(mutations);
            }
        }
    }
    check_all(&shards, &model, sim.now_s.load(Ordering::Relaxed), "at the end");
    shards.iter().for_each(|shard| block_on(shard.shutdown()).expect("closed"));
    drop_tasks();
    (splits, compactions)
}

#[test]
fn any_number_of_shards_opens_a_folder() {
    for forget in [false, true] {
        let counts: Vec<_> = (0..6).map(|seed| resharded(seed, forget)).collect();
        let (splits, compactions) = counts.iter().fold((0, 0), |(a, b), (c, d)| (a + c, b + d));
        assert!(splits > 60 && compactions > 12, "too little happened: {counts:?}");
    }
}

/// A file shared by two shards belongs to one shard again. It must not read the other shard's part:
/// a row there was deleted, and the deletion forgotten.
#[test]
fn rows_that_a_file_does_not_own_are_in_no_batch() {
    let sim = Arc::new(Sim::new(1));
    let options = StorageOptions { table: TableOptions { gc_grace_s: 0, ..options().table }, ..options() };
    let end = |shards: Vec<Rc<Shard>>| {
        shards.iter().for_each(|shard| block_on(shard.shutdown()).expect("closed"));
        drop(shards);
        drop_tasks();
    };
    // Adjacent tokens: shard 0 owns the first one, shard 1 the second one.
    let mut tokens: Vec<i64> = (0..50).map(spread).collect();
    tokens.sort_unstable();
    let homes = |tokens: &&[i64]| (home(USERS, tokens[0], 2), home(USERS, tokens[1], 2)) == (0, 1);
    let pair = tokens.windows(2).find(homes).expect("neighbours").to_vec();
    let row = |token: i64, clustering: u8, timestamp: i64, deletion: Option<Deletion>| {
        let mut row = RowBuilder::new(&[], &[clustering], timestamp);
        row.deletion(deletion);
        if deletion.is_none() {
            row.push(CellRef::live(0, timestamp, b"value"));
        }
        let changes = vec![Change::Row(row.finish())];
        Mutation { table: USERS, token, key: Bytes::from_static(b"key"), changes }
    };
    let shards = open_all(&sim, &options, 1);
    write_all(
        &shards,
        &pair.iter().flat_map(|token| [1, 2].map(|at| row(*token, at, 1, None))).collect::<Vec<_>>(),
    );
    block_on(shards[0].flush_all()).expect("flushed");
    end(shards);
    let shards = open_all(&sim, &options, 2);
    let now_s = sim.now_s.load(Ordering::Relaxed);
    write_all(&shards, &[row(pair[1], 1, 2, Some(Deletion { timestamp: 2, deleted_at_s: now_s }))]);
    sim.now_s.store(now_s + 10, Ordering::Relaxed);
    block_on(shards[1].flush_all()).expect("flushed");
    block_on(shards[1].compact_all(USERS)).expect("compacted");
    end(shards);
    let shards = open_all(&sim, &options, 1);
    write_all(&shards, &[row(pair[1], 3, 3, None)]);
    crate::scan::batch_tests::check_batches(
        &shards[0],
        USERS,
        i64::MIN..=i64::MAX,
        now_s + 10,
        "in one shard again",
    );
    end(shards);
}

/// Crashes at a step of splitting `from` shards into `to`, and opens with one of these numbers.
/// Returns true if the step was reached.
fn crash_while_splitting(from: u32, to: u32, step: u64) -> bool {
    let what = format!("crash_while_splitting({from}, {to}, {step})");
    let sim = Arc::new(Sim::new(step));
    let mut random = Random::new(9);
    let shards = open_all(&sim, &options(), from);
    let model = fill(&shards, &mut random);
    assert!(shards.iter().all(|shard| shard.stats().files > 0), "{what}: nothing to split");
    // Ends like a killed process, with records in the log.
    drop(shards);
    drop_tasks();
    sim.disk.crash_at(sim.disk.steps() + step);
    let survived = try_open(&sim, &options(), to);
    let reached = survived.is_none();
    drop(survived);
    sim.crash();
    let count = if step.is_multiple_of(2) { from } else { to };
    let shards = open_all(&sim, &options(), count);
    check_all(&shards, &model, 1000, &what);
    let folders = sim.disk.files().into_iter().filter_map(|path| {
        let folder = path.parent()?.parent()?.to_str()?.to_owned();
        path.extension().is_some_and(|extension| extension == "table" || extension == "log").then_some(folder)
    });
    let folders: std::collections::BTreeSet<_> = folders.collect();
    assert!(folders.len() <= count as usize, "{what}: leftovers in {folders:?}");
    drop(shards);
    drop_tasks();
    reached
}

#[test]
fn crash_during_a_split_leaves_the_old_or_the_new_shards() {
    // Every third step, odd and even ones; every step with `FAIRLANE_SEEDS`.
    let stride = if super::crashes::number("FAIRLANE_SEEDS").is_some() { 1 } else { 3 };
    for (from, to) in [(1, 2), (2, 1)] {
        let all = (1..2000).step_by(stride);
        let steps = all.take_while(|step| crash_while_splitting(from, to, *step)).count() * stride;
        assert!((60..1900).contains(&steps), "{from} to {to} took {steps} steps");
    }
}

#[test]
fn only_shard_0_opens_a_folder_with_other_shards() {
    let sim = Arc::new(Sim::default());
    filled(&sim);
    let error = open(&sim, &StorageOptions { shard: 1, shards: 3, ..options() }).unwrap_err().to_string();
    assert!(error.contains("1 cores") && error.contains("3"), "{error}");
    let first = open(&sim, &StorageOptions { shards: 3, ..options() }).unwrap();
    let second = open(&sim, &StorageOptions { shards: 2, ..options() }).unwrap_err();
    assert!(matches!(second, StorageError::Locked { .. }), "{second}");
    block_on(first.shutdown()).unwrap();
    drop_tasks();
}

#[test]
fn folder_without_its_list_of_shards_is_refused() {
    let sim = Arc::new(Sim::default());
    filled(&sim);
    block_on(sim.disk.remove_file(&PathBuf::from("/data/shards"))).unwrap();
    let error = open(&sim, &options()).unwrap_err().to_string();
    assert!(error.contains("shards") && error.contains("missing"), "{error}");
}

/// Regression test: the end of a reshard removed everything in the folders of the old shards.
#[test]
fn files_kept_for_the_operator_survive_a_reshard() {
    let sim = Arc::new(Sim::new(3));
    block_on(open(&sim, &options()).unwrap().shutdown()).expect("closed");
    drop_tasks();
    let kept = PathBuf::from("/data/shard-0000/tables/0000000000000001.table.damaged");
    let create = testkit::sim::OpenOptions { write: true, create: true, ..Default::default() };
    block_on(async {
        let file = sim.disk.open(&kept, create).await.expect("made");
        file.write_at(0, Bytes::from_static(b"rows")).await.expect("written");
    });
    drop(open_all(&sim, &options(), 2));
    drop_tasks();
    let aside = PathBuf::from("/data/aside/shard-0000-tables-0000000000000001.table.damaged");
    let left = contents(&sim);
    assert!(left.contains(&(aside, Bytes::from_static(b"rows"))), "{:?}", sim.disk.files());
    assert!(!sim.disk.files().contains(&kept));
}

/// Regression test: an older copy of `shards` made a start remove the present shards.
#[test]
fn older_copy_of_the_list_of_shards_removes_nothing() {
    let sim = Arc::new(Sim::new(4));
    let first = open(&sim, &options()).unwrap();
    block_on(first.shutdown()).expect("closed");
    drop_tasks();
    let list = PathBuf::from("/data/shards");
    let older = contents(&sim).into_iter().find(|(path, _)| *path == list).expect("there").1;
    let shards = open_all(&sim, &options(), 2);
    let model = fill(&shards, &mut Random::new(4));
    drop(shards);
    drop_tasks();
    let mut files = contents(&sim);
    files.iter_mut().filter(|(path, _)| *path == list).for_each(|(_, bytes)| *bytes = older.clone());
    let whole = contents(&sim);
    for count in 1..4 {
        restore(&sim, &files);
        let error = open(&sim, &StorageOptions { shards: count, ..options() }).unwrap_err().to_string();
        assert!(error.contains("names generation 0") && error.contains("older copy"), "{error}");
        drop_tasks();
        assert!(files.iter().all(|file| contents(&sim).contains(file)), "nothing is removed");
    }
    restore(&sim, &whole);
    let shards = open_all(&sim, &options(), 2);
    check_all(&shards, &model, 1000, "with the present list");
    drop(shards);
    drop_tasks();
}
