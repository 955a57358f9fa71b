//! A server on a full disk starts, serves reads, and frees space.

use testkit::sim::{Effect, Fault, FaultKind};

use super::*;

const TABLE: TableId = TableId(7);

fn tables_on_disk(sim: &Sim) -> usize {
    let is_table = |path: &PathBuf| path.extension().is_some_and(|end| end == "table");
    sim.disk.files().iter().filter(|path| is_table(path)).count()
}

fn put(shard: &Rc<Shard>, number: u64) -> Result<Commit, StorageError> {
    let key = number.to_be_bytes();
    let mut row = RowBuilder::new(&key, &[], 1);
    row.push(CellRef::live(0, 1, &[7; 1000]));
    shard.put(TABLE, number as i64, &key, &row.draft())
}

/// Regression test: a start rewrote the manifest before anything else.
#[test]
fn shard_on_a_full_disk_opens_and_serves_reads() {
    for seed in 0..8 {
        let sim = Arc::new(Sim::new(seed));
        let (shard, model) = filling(&sim);
        drop(shard);
        drop_tasks();
        let leftover = PathBuf::from("/data/shard-0000/tables/00000000000fffff.table");
        if seed % 2 == 1 {
            let options = testkit::sim::OpenOptions { write: true, create: true, ..Default::default() };
            block_on(async {
                let file = sim.disk.open(&leftover, options).await.expect("made");
                file.write_at(0, Bytes::from(vec![0; 5000])).await.expect("written");
            });
        }
        sim.disk.set_capacity(sim.disk.used());
        // Writes that need space fail. On copy-on-write file systems every write needs space.
        let everywhere = seed % 4 > 1;
        if everywhere {
            sim.disk.fault(Fault::every(FaultKind::Write, Effect::Full));
        }
        let shard = open(&sim, &options()).unwrap();
        check(&shard, &model, 1000, &format!("seed {seed}, on a full disk"));
        assert!(!sim.disk.files().contains(&leftover));
        if everywhere {
            sim.disk.heal();
        }
        sim.disk.set_capacity(u64::MAX);
        drop(shard);
        drop_tasks();
        let shard = open(&sim, &options()).unwrap();
        check(&shard, &model, 1000, &format!("seed {seed}, with space again"));
        block_on(shard.shutdown()).unwrap();
        drop_tasks();
    }
}

/// Regression test: a shard that nothing was written to was taken for a new one, and the server did
/// not start.
#[test]
fn shard_without_records_opens_on_a_full_disk() {
    let sim = Arc::new(Sim::new(1));
    block_on(open(&sim, &options()).unwrap().shutdown()).expect("closed");
    drop_tasks();
    let log = PathBuf::from("/data/shard-0000/log");
    let segments = sim.disk.files().into_iter().filter(|path| path.parent() == Some(&log));
    segments
        .collect::<Vec<_>>()
        .iter()
        .for_each(|path| block_on(sim.disk.remove_file(path)).expect("removed"));
    sim.disk.set_capacity(sim.disk.used());
    sim.disk.fault(Fault::every(FaultKind::Write, Effect::Full));
    let shard = open(&sim, &options()).unwrap();
    check(&shard, &Model::default(), 1000, "on a full disk");
    sim.disk.heal();
    drop(shard);
    drop_tasks();
}

#[test]
fn full_disk_accepts_deletions_and_truncations() {
    // A seed with which the flush finds the disk full before the log does.
    let sim = Arc::new(Sim::new(4));
    let shard = open(&sim, &options()).unwrap();
    assert!(sim.disk.files().iter().any(|path| path.ends_with("reserve")), "space is kept");
    for number in 0..100 {
        block_on(put(&shard, number).expect("accepted")).expect("durable");
    }
    block_on(shard.flush_all()).expect("flushed");
    sim.disk.set_capacity(sim.disk.used());
    let refused = (100..10_000).find_map(|number| {
        (0..4).for_each(|_| step());
        put(&shard, number).err().filter(|error| !matches!(error, StorageError::Overloaded { .. }))
    });
    let refused = refused.expect("the disk is full");
    assert!(matches!(&refused, StorageError::WritesRefused { because } if because.is_full()), "{refused}");
    let deletion = Deletion { timestamp: 2, deleted_at_s: 1000 };
    let change = |change| {
        let key = Bytes::from(1_u64.to_be_bytes().to_vec());
        vec![Mutation { table: TABLE, token: 1, key, changes: vec![change] }]
    };
    let commit = shard.apply(change(Change::DeletePartition(deletion))).expect("it makes space");
    block_on(commit).expect("durable");
    let mut row = RowBuilder::new(&[], &[1], 3);
    row.push(CellRef::live(0, 3, b"schema"));
    let row = Change::Row(row.finish());
    shard.apply(change(row.clone())).expect_err("it takes space");
    let commit = block_on(shard.apply_vital(change(row))).expect("its owner calls it vital");
    block_on(commit).expect("durable");
    block_on(shard.truncate(TABLE)).expect("the reserve has space for the edit");
    let taken = (0..1000).find_map(|_| {
        step();
        put(&shard, 5).ok()
    });
    block_on(taken.expect("there is space again")).expect("durable");
    block_on(shard.flush_all()).expect("flushed");
    assert!(sim.disk.files().iter().any(|path| path.ends_with("reserve")), "space is kept again");
    block_on(shard.shutdown()).expect("closed");
    drop_tasks();
}

/// Regression test: writes accepted before the disk was found full waited until their clients gave
/// up.
#[test]
fn write_that_waits_for_space_gets_an_error() {
    let sim = Arc::new(Sim::new(1));
    let shard = open(&sim, &options()).unwrap();
    block_on(put(&shard, 0).expect("accepted")).expect("durable");
    sim.disk.set_capacity(sim.disk.used());
    sim.disk.fault(Fault::every(FaultKind::Write, Effect::Full));
    let waiting = put(&shard, 1).expect("no write has failed yet");
    let vital = shard.apply_few_vital(&[]).expect("accepted");
    let error = block_on(waiting).expect_err("the disk is full");
    assert!(matches!(error, StorageError::LogFull { .. }), "{error}");
    assert!(error.to_string().contains("a full disk, and may be applied later"), "{error}");
    let mut vital = std::pin::pin!(vital);
    let mut cx = Context::from_waker(Waker::noop());
    assert!(vital.as_mut().poll(&mut cx).is_pending(), "a write that frees space waits for it");
    sim.disk.heal();
    sim.disk.set_capacity(u64::MAX);
    block_on(vital).expect("durable");
    let (token, key) = (1, 1_u64.to_be_bytes());
    assert!(block_on(shard.read_partition(TABLE, token, &key, 0).wait()).expect("reads").is_some());
    block_on(put(&shard, 2).expect("writes are taken again")).expect("durable");
    block_on(shard.shutdown()).expect("closed");
    drop_tasks();
}

/// Regression test: the end of one reason was taken for the end of the other.
#[test]
fn writes_are_refused_until_both_reasons_end() {
    let sim = Arc::new(Sim::new(2));
    let shard = open(&sim, &options()).unwrap();
    let log = shard.log.as_ref().expect("it has one");
    let because = || Some(Arc::new(StorageError::Closed));
    let (flush, truncation) = (log.refusal(), log.refusal());
    flush.set(because());
    truncation.set(because());
    truncation.set(None);
    assert!(shard.refuses_writes(), "the flush has no space yet");
    drop(flush);
    assert!(!shard.refuses_writes());
    drop(truncation);
    block_on(shard.shutdown()).expect("closed");
    drop_tasks();
}

/// Regression test: such outputs occupied space until the next start.
#[test]
fn outputs_of_a_failed_compaction_are_removed() {
    let sim = Arc::new(Sim::new(2));
    let shard = open(&sim, &options()).unwrap();
    for round in 0..2 {
        for number in 0..10 {
            block_on(put(&shard, round * 100 + number).expect("accepted")).expect("durable");
        }
        block_on(shard.flush_all()).expect("flushed");
    }
    let path = "/manifest".to_owned();
    sim.disk.fault(Fault { path, ..Fault::every(FaultKind::Write, Effect::Broken) });
    block_on(shard.compact_all(TABLE)).expect_err("it cannot be named");
    sim.disk.heal();
    block_on(put(&shard, 500).expect("accepted")).expect("durable");
    block_on(shard.flush_all()).expect("flushed");
    (0..300).for_each(|_| step());
    assert_eq!(tables_on_disk(&sim), shard.store.manifest().files().count());
    block_on(shard.shutdown()).expect("closed");
    drop_tasks();
}
