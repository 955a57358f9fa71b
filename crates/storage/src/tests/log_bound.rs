//! The log is bounded under any load, and a start reads only the records that are not flushed.

use std::task::Poll;

use testkit::sim::{Effect, Fault, FaultKind};

use super::*;
use crate::log::bound::LogBound;

const TABLE: TableId = TableId(7);

fn sizes() -> StorageOptions {
    StorageOptions { memtable_bytes_max: 128 << 10, segment_bytes: 16 << 10, ..options() }
}

fn log_files(sim: &Sim) -> Vec<PathBuf> {
    sim.disk.files().into_iter().filter(|path| path.extension().is_some_and(|end| end == "log")).collect()
}

fn log_bytes(sim: &Sim) -> u64 {
    log_files(sim).iter().map(|path| sim.disk.size(path)).sum()
}

/// Overwrites the row.
fn overwrite(shard: &Rc<Shard>, timestamp: i64) -> Result<Commit, StorageError> {
    let mut row = RowBuilder::new(b"key", &[], timestamp);
    row.push(CellRef::live(0, timestamp, &timestamp.to_be_bytes()));
    shard.put(TABLE, 5, b"key", &row.draft())
}

fn value(shard: &Rc<Shard>) -> Option<i64> {
    let row = block_on(shard.read_row(TABLE, 5, b"key", &[], Pick::ALL, 0).wait()).expect("read")?;
    let value = row.cell(0).and_then(|cell| cell.value().map(<[u8]>::to_vec))?;
    Some(i64::from_be_bytes(value.try_into().expect("eight bytes")))
}

#[test]
fn overwrites_keep_the_log_below_four_memtables() {
    let sim = Arc::new(Sim::new(1));
    let options = sizes();
    let shard = open(&sim, &options).unwrap();
    let mut longest = 0;
    for timestamp in 1..=3000 {
        block_on(overwrite(&shard, timestamp).expect("accepted")).expect("durable");
        longest = longest.max(log_bytes(&sim));
    }
    assert!(longest <= 4 * options.memtable_bytes_max as u64, "{longest} bytes of log");
    let stats = shard.stats();
    // 3000 blocks of 4096 bytes are 94 memtables.
    assert!((30..=140).contains(&stats.flushes), "{stats:?}");
    assert_eq!(value(&shard), Some(3000));
    block_on(shard.flush_all()).expect("flushed");
    (0..100).for_each(|_| step());
    let few = shard.stats();
    assert!(few.log_segments_free <= 3 && few.log_segments == 1, "{few:?}");
    sim.crash();
    let shard = open(&sim, &options).unwrap();
    assert_eq!(value(&shard), Some(3000));
    drop(shard);
    drop_tasks();
}

/// The writer never waits for acknowledgements, and flushes are slow.
#[test]
fn bound_of_the_log_refuses_writers_that_never_wait() {
    let sim = Arc::new(Sim::new(2));
    let options = sizes();
    let shard = open(&sim, &options).unwrap();
    let tables = "/tables".to_owned();
    sim.disk.fault(Fault { path: tables, ..Fault::every(FaultKind::Write, Effect::Stalled(u64::MAX)) });
    let mut last = 0;
    let mut refused = 0;
    let mut commits = Vec::new();
    for timestamp in 1..5000 {
        match overwrite(&shard, timestamp) {
            Ok(commit) => {
                last = timestamp;
                commits.push(commit);
            }
            Err(StorageError::Overloaded { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
        (0..4).for_each(|_| step());
        let bytes = log_bytes(&sim);
        assert!(bytes <= 4 * options.memtable_bytes_max as u64, "{bytes} bytes of log");
    }
    assert!(refused > 0);
    sim.disk.heal();
    commits.into_iter().for_each(|commit| block_on(commit).expect("acknowledged once it is flushed"));
    assert_eq!(value(&shard), Some(last));
    block_on(overwrite(&shard, 9999).expect("the log has space again")).expect("durable");
    block_on(shard.shutdown()).expect("closed");
    drop_tasks();
}

/// A write that waits for its turn, with what it has returned.
type PendingWrite = Pin<Box<dyn Future<Output = Result<Commit, StorageError>>>>;

/// Overwrites the row once there is room.
async fn overwrite_in_turn(shard: Rc<Shard>, timestamp: i64) -> Result<Commit, StorageError> {
    let mut row = RowBuilder::new(b"key", &[], timestamp);
    row.push(CellRef::live(0, timestamp, &timestamp.to_be_bytes()));
    shard.put_in_turn(TABLE, 5, b"key", &row.draft()).await
}

fn waiting(shard: &Rc<Shard>, flow: lanes::Flow, timestamp: i64) -> PendingWrite {
    let mut write: PendingWrite = Box::pin(overwrite_in_turn(shard.clone(), timestamp));
    // The first poll takes its place in the queue.
    let first = flow.run(|| write.as_mut().poll(&mut Context::from_waker(Waker::noop())));
    assert!(first.is_pending(), "the log is full");
    write
}

/// Fills the log of a shard whose flushes stall, and returns the last timestamp.
fn fill(sim: &Sim, shard: &Rc<Shard>) -> i64 {
    let tables = "/tables".to_owned();
    sim.disk.fault(Fault { path: tables, ..Fault::every(FaultKind::Write, Effect::Stalled(u64::MAX)) });
    let mut timestamps = 1..;
    loop {
        let last = timestamps.next().expect("endless");
        match overwrite(shard, last) {
            Ok(commit) => drop(commit),
            Err(StorageError::Overloaded { .. }) => return last,
            Err(error) => panic!("{error}"),
        }
        (0..4).for_each(|_| step());
    }
}

/// Polls the writes until the last one is done. Returns how many of the others were done by then.
fn done_before_last(writes: &mut [PendingWrite]) -> usize {
    let mut done = vec![false; writes.len()];
    for _ in 0..100_000 {
        step();
        for (write, done) in writes.iter_mut().zip(&mut done).filter(|(_, done)| !**done) {
            *done = match write.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(result) => result.is_ok(),
                Poll::Pending => false,
            };
        }
        if done.last().expect("there are writes") == &true {
            return done.iter().filter(|done| **done).count() - 1;
        }
    }
    panic!("the last write waits forever");
}

#[test]
fn full_log_takes_writers_in_turn() {
    let sim = Arc::new(Sim::new(8));
    let shard = open(&sim, &sizes()).unwrap();
    let last = fill(&sim, &shard);
    let (pours, polite) = (lanes::Flow::new(), lanes::Flow::new());
    let mut writes: Vec<_> = (0..20_000).map(|n| waiting(&shard, pours, last + n)).collect();
    writes.push(waiting(&shard, polite, last + 20_000));
    assert!(
        matches!(overwrite(&shard, last), Err(StorageError::Overloaded { .. })),
        "a writer that has just come does not overtake those that wait"
    );
    // Writers that give up make room for others.
    writes.drain(..5_000).for_each(drop);
    sim.disk.heal();
    let before = done_before_last(&mut writes);
    assert!(before < 2_000, "{before} writes of the other flow came first");
    drop(writes);
    // The queue still has those that gave up.
    let commit = block_on(overwrite_in_turn(shard.clone(), last + 20_001)).expect("called");
    block_on(commit).expect("durable");
    block_on(shard.shutdown()).expect("closed");
    drop_tasks();
}

#[test]
fn writers_that_wait_learn_that_the_shard_closes() {
    let sim = Arc::new(Sim::new(9));
    let shard = open(&sim, &sizes()).unwrap();
    let last = fill(&sim, &shard);
    let writes: Vec<_> = (0..100).map(|n| waiting(&shard, lanes::Flow::NONE, last + n)).collect();
    sim.disk.heal();
    block_on(shard.shutdown()).expect("closed");
    for write in writes {
        let refused = matches!(block_on(write), Ok(_) | Err(StorageError::Closed));
        assert!(refused, "it is told so, or was written before");
    }
    drop_tasks();
}

#[test]
fn long_log_delays_acknowledgements() {
    let sim = Arc::new(Sim::new(4));
    let shard = open(&sim, &sizes()).unwrap();
    let tables = "/tables".to_owned();
    sim.disk.fault(Fault { path: tables, ..Fault::every(FaultKind::Write, Effect::Stalled(u64::MAX)) });
    let bound = LogBound::new(&sizes());
    for timestamp in 1.. {
        let mut commit = overwrite(&shard, timestamp).expect("accepted");
        let mut cx = Context::from_waker(Waker::noop());
        let is_acknowledged = (0..2000).any(|_| {
            step();
            Pin::new(&mut commit).poll(&mut cx).is_ready()
        });
        if !is_acknowledged {
            break;
        }
        assert!(shard.stats().log_live_bytes <= bound.wait_at() + 4096, "it goes on and on");
    }
    sim.disk.heal();
    block_on(shard.shutdown()).expect("closed");
    drop_tasks();
}

#[test]
fn start_after_an_orderly_shutdown_reads_no_log() {
    for seed in 0..4 {
        let sim = Arc::new(Sim::new(seed));
        let model = filled(&sim);
        let broken = || Fault { path: "/log/".into(), ..Fault::every(FaultKind::Read, Effect::Broken) };
        sim.disk.fault(broken());
        let shard = open(&sim, &options()).unwrap();
        assert_eq!((shard.stats().replayed, shard.stats().log_records), (0, 200));
        assert!(shard.stats().log_segments_free <= 3);
        check(&shard, &model, 1000, "after an orderly stop");
        block_on(shard.shutdown()).unwrap();
        drop_tasks();
        // The same after a shutdown without a write.
        let shard = open(&sim, &options()).unwrap();
        assert_eq!((shard.stats().replayed, shard.stats().log_records), (0, 200));
        drop(shard);
        drop_tasks();
    }
}

#[test]
fn start_ignores_bad_sectors_in_free_segments() {
    let sim = Arc::new(Sim::new(3));
    let options = sizes();
    let shard = open(&sim, &options).unwrap();
    for timestamp in 1..=200 {
        block_on(overwrite(&shard, timestamp).expect("accepted")).expect("durable");
    }
    block_on(shard.flush_all()).expect("flushed");
    block_on(overwrite(&shard, 201).expect("accepted")).expect("durable");
    (0..200).for_each(|_| step());
    let named = shard.store.manifest().log.clone();
    let (live, _) = shard.log.as_ref().expect("a log").live(shard.store.manifest().flushed);
    drop(shard);
    drop_tasks();
    let free = log_files(&sim).into_iter().filter(|path| {
        let name = path.file_stem().expect("a name").to_string_lossy();
        let segment = u64::from_str_radix(&name, 16).expect("a number");
        !live.contains(&segment) && !named.contains(&segment)
    });
    let free: Vec<_> = free.collect();
    assert!(!free.is_empty());
    for path in free {
        let path = path.to_str().expect("UTF-8").to_owned();
        sim.disk.fault(Fault { path, ..Fault::every(FaultKind::Read, Effect::Broken) });
    }
    let shard = open(&sim, &options).unwrap();
    assert_eq!(value(&shard), Some(201));
    drop(shard);
    drop_tasks();
}

/// Each start creates a segment, so a server that is killed repeatedly must flush too.
#[test]
fn repeated_starts_do_not_accumulate_segments() {
    let sim = Arc::new(Sim::new(5));
    let options = sizes();
    for timestamp in 1..=100 {
        let shard = open(&sim, &options).unwrap();
        assert_eq!(value(&shard), (timestamp > 1).then_some(timestamp - 1));
        block_on(overwrite(&shard, timestamp).expect("accepted")).expect("durable");
        (0..200).for_each(|_| step());
        drop(shard);
        sim.crash();
        let bytes = log_bytes(&sim);
        assert!(bytes <= 4 * options.memtable_bytes_max as u64, "{bytes} bytes after {timestamp} starts");
    }
}

/// Regression test: an empty segment named in the manifest was renamed before another edit was
/// durable.
#[test]
fn crash_at_any_step_of_a_start_leaves_a_valid_folder() {
    let mut steps = 0;
    for step in 1.. {
        let sim = Arc::new(Sim::new(step));
        drop(open(&sim, &sizes()).unwrap());
        drop_tasks();
        sim.disk.crash_at(sim.disk.steps() + step);
        let opened = crate::sim::run(&sim, Shard::open_in(sizes(), sim.clone()));
        let is_up = opened.is_some();
        drop(opened);
        sim.crash();
        let shard = open(&sim, &sizes()).unwrap_or_else(|error| panic!("step {step}: {error}"));
        block_on(overwrite(&shard, 1).expect("accepted")).expect("durable");
        drop(shard);
        drop_tasks();
        if is_up {
            break;
        }
        steps = step;
    }
    assert!(steps > 20, "{steps} steps");
}

/// Regression test: if a caller gave up half-way, its record and all later ones stayed in the log
/// forever.
#[test]
fn abandoned_record_is_applied_and_released() {
    let sim = Arc::new(Sim::new(6));
    let shard = open(&sim, &sizes()).unwrap();
    let mutation = |n: u32| {
        let mut row = RowBuilder::new(&[], &[], 1);
        row.push(CellRef::live(0, 1, &[7; 10]));
        let key = Bytes::copy_from_slice(&n.to_be_bytes());
        Mutation { table: TABLE, token: i64::from(n), key, changes: vec![Change::Row(row.finish())] }
    };
    {
        let mut batch = std::pin::pin!(shard.apply_yielding((0..300).map(mutation).collect()));
        while shard.stats().memtable_partitions < 50 {
            assert!(batch.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            step();
        }
    }
    (0..1000).for_each(|_| step());
    assert_eq!(shard.stats().memtable_partitions, 300);
    assert!(shard.state.borrow().memory.applying.is_empty());
    block_on(shard.flush_all()).expect("flushed");
    assert_eq!(shard.store.manifest().flushed, 1);
    block_on(shard.shutdown()).expect("closed");
    drop_tasks();
}

#[test]
fn record_larger_than_a_segment_gets_its_own() {
    let sim = Arc::new(Sim::new(7));
    let options = StorageOptions { record_bytes_max: 100 << 10, ..sizes() };
    let shard = open(&sim, &options).unwrap();
    for timestamp in 1..=5 {
        let mut row = RowBuilder::new(b"key", &[], timestamp);
        row.push(CellRef::live(0, timestamp, &timestamp.to_be_bytes()));
        row.push(CellRef::live(1, timestamp, &[3; 60 << 10]));
        block_on(shard.put(TABLE, 5, b"key", &row.draft()).expect("accepted")).expect("durable");
        block_on(overwrite(&shard, timestamp + 10).expect("accepted")).expect("durable");
    }
    sim.crash();
    let shard = open(&sim, &options).unwrap();
    assert_eq!((value(&shard), shard.stats().log_records), (Some(15), 10));
    block_on(shard.flush_all()).expect("flushed");
    (0..100).for_each(|_| step());
    assert!(log_files(&sim).iter().all(|path| sim.disk.size(path) == options.segment_bytes));
    block_on(shard.shutdown()).expect("closed");
    drop_tasks();
}

/// Regression test: a flipped bit in the last batch, or a lost last segment, counted as an
/// interrupted write.
#[test]
fn damage_to_the_log_is_reported() {
    let sim = Arc::new(Sim::default());
    let (shard, model) = filling(&sim);
    // Long enough for the mark to state that all records are durable.
    (0..200).for_each(|_| step());
    drop(shard);
    drop_tasks();
    let mut reported = 0;
    let whole = contents(&sim);
    for path in &log_files(&sim) {
        let blocks = (0..sim.disk.size(path)).step_by(4096);
        for at in blocks.flat_map(|block| [block + 9, block + 33, block + 50]) {
            sim.disk.flip(path, at, 5);
            match open(&sim, &options()) {
                Ok(shard) => assert_eq!(shard.stats().log_records, 200, "{path:?} at {at}"),
                Err(error) => {
                    assert!(matches!(error, StorageError::Corrupt { .. }), "{error}");
                    reported += 1;
                }
            }
            drop_tasks();
            restore(&sim, &whole);
        }
    }
    assert!(reported > 20, "only {reported} damages were reported");
    let shard = open(&sim, &options()).unwrap();
    check(&shard, &model, 1000, "undamaged again");
    drop(shard);
    drop_tasks();
    restore(&sim, &whole);
    let (manifest, replay) = block_on(async {
        let manifest =
            crate::recovery::shard_files::read_manifest(&*sim, &PathBuf::from("/data/shard-0000"), 0, 1)
                .await
                .unwrap();
        let dir = PathBuf::from("/data/shard-0000/log");
        let mut replay = crate::log::replay::Replay::open(&*sim, &dir, 0, &manifest).await.unwrap();
        replay.finish().await.unwrap();
        (manifest, replay.found)
    });
    let needed = replay.iter().filter(|found| found.last_record > manifest.flushed);
    for segment in needed.map(|found| found.header.segment) {
        let path = crate::log::segment_path(&PathBuf::from("/data/shard-0000/log"), segment);
        let aside = path.with_extension("aside");
        block_on(sim.disk.rename(&path, &aside)).unwrap();
        let error = open(&sim, &options()).unwrap_err().to_string();
        assert!(error.contains(path.to_str().expect("UTF-8")) && error.contains("missing"), "{error}");
        drop_tasks();
        restore(&sim, &whole);
    }
}

/// A full segment names the next one. The manifest does so only at the next flush.
#[test]
fn lost_segment_after_a_full_one_is_reported() {
    let sim = Arc::new(Sim::new(9));
    let options = StorageOptions { memtable_bytes_max: 1 << 20, ..sizes() };
    let shard = open(&sim, &options).unwrap();
    for timestamp in 1..=10 {
        block_on(overwrite(&shard, timestamp).expect("accepted")).expect("durable");
    }
    let named = shard.store.manifest().log.clone();
    let (live, _) = shard.log.as_ref().expect("a log").live(0);
    drop(shard);
    drop_tasks();
    assert!(live.len() > named.len(), "{live:?} {named:?}");
    let last = crate::log::segment_path(&PathBuf::from("/data/shard-0000/log"), live[live.len() - 1]);
    block_on(sim.disk.remove_file(&last)).unwrap();
    let error = open(&sim, &options).unwrap_err().to_string();
    assert!(error.contains(last.to_str().expect("UTF-8")) && error.contains("missing"), "{error}");
    drop_tasks();
}
