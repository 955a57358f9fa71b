//! Reads that decide conditional writes: they return all data and tombstones that cover a row, and
//! wait until a crash cannot revert what they saw.

use std::task::Poll;

use testkit::sim::{Effect, Fault, FaultKind};

use super::*;

const TABLE: TableId = TableId(0);
const KEY: (i64, &[u8]) = (7, b"key");

fn write(shard: &Rc<Shard>, changes: Vec<Change>) -> Commit {
    let (token, key) = (KEY.0, Bytes::from_static(KEY.1));
    shard.apply(vec![Mutation { table: TABLE, token, key, changes }]).expect("applied")
}

fn row(clustering: u32, timestamp: i64, bytes: usize) -> Change {
    let mut row = RowBuilder::new(&[], &clustering.to_be_bytes(), timestamp);
    row.push(CellRef::live(1, timestamp, &vec![7; bytes]));
    Change::Row(row.finish())
}

fn statics(timestamp: i64) -> Change {
    let mut row = RowBuilder::new(&[], &[], timestamp);
    row.push(CellRef::live(2, timestamp, b"s"));
    Change::Static(row.finish())
}

fn before(shard: &Rc<Shard>, clustering: u32) -> RowBefore {
    let row = shard.read_row_before(TABLE, KEY.0, KEY.1, &clustering.to_be_bytes(), 0);
    block_on(row.wait()).expect("read")
}

fn statics_before(shard: &Rc<Shard>) -> StaticsBefore {
    block_on(shard.read_statics_before(TABLE, KEY.0, KEY.1, 0).wait()).expect("read")
}

#[test]
fn crash_never_reverts_a_settled_read() {
    let (mut settled, mut lost) = (0, 0);
    for polls in 0..40 {
        let sim = Arc::new(Sim::new(polls));
        let shard = open(&sim, &options()).unwrap();
        drop(write(&shard, vec![row(1, 1, 10)]));
        assert!(before(&shard, 1).row.is_some(), "it is seen before it is durable");
        let done = {
            let mut wait = std::pin::pin!(shard.settled());
            let mut cx = Context::from_waker(Waker::noop());
            (0..polls).any(|_| {
                step();
                matches!(wait.as_mut().poll(&mut cx), Poll::Ready(Ok(())))
            })
        };
        drop(shard);
        sim.crash();
        let shard = open(&sim, &options()).unwrap();
        let kept = before(&shard, 1).row.is_some();
        assert!(kept || !done, "what was settled after {polls} polls is gone");
        settled += u32::from(done);
        lost += u32::from(!kept);
        block_on(shard.shutdown()).unwrap();
        drop_tasks();
    }
    assert!(settled > 10 && lost > 0, "{settled} settled, {lost} lost");
}

#[test]
fn failed_log_fails_reads_that_wait_for_it() {
    let sim = Arc::new(Sim::default());
    let shard = open(&sim, &options()).unwrap();
    block_on(shard.settled()).expect("nothing waits");
    sim.disk.fault(Fault::every(FaultKind::Write, Effect::Broken));
    drop(write(&shard, vec![row(1, 1, 10)]));
    assert!(before(&shard, 1).row.is_some());
    assert!(block_on(shard.settled()).is_err());
    drop(shard);
    drop_tasks();
}

#[test]
fn newest_timestamp_includes_tombstones() {
    let sim = Arc::new(Sim::default());
    let shard = open(&sim, &options()).unwrap();
    let dead = |timestamp| Deletion { timestamp, deleted_at_s: 0 };
    let mut deleted = RowBuilder::new(&[], &3u32.to_be_bytes(), 30);
    deleted.deletion(Some(dead(30)));
    let start = Bound::Included(4u32.to_be_bytes());
    let end = Bound::Included(5u32.to_be_bytes());
    let start = start.map(|key| key.to_vec().into());
    let end = end.map(|key| key.to_vec().into());
    let changes = vec![
        row(1, 10, 10),
        row(3, 5, 10),
        Change::Row(deleted.finish()),
        row(4, 6, 10),
        Change::DeleteRange { start, end, deletion: dead(40) },
        Change::DeletePartition(dead(7)),
        statics(20),
    ];
    block_on(write(&shard, changes)).unwrap();
    for is_flushed in [false, true] {
        let found = |clustering| {
            let before = before(&shard, clustering);
            (before.row.is_some(), before.newest)
        };
        assert_eq!(found(1), (true, 10), "flushed: {is_flushed}");
        assert_eq!(found(2), (false, 7), "flushed: {is_flushed}");
        assert_eq!(found(3), (false, 30), "flushed: {is_flushed}");
        assert_eq!(found(4), (false, 40), "flushed: {is_flushed}");
        assert_eq!(found(5), (false, 40), "flushed: {is_flushed}");
        let statics = statics_before(&shard);
        assert!(statics.view.is_some_and(|view| view.static_cell(2).is_some()));
        assert_eq!(statics.newest, 20);
        assert_eq!(block_on(shard.newest_timestamp(TABLE)).unwrap(), 40);
        block_on(shard.flush_all()).unwrap();
    }
    block_on(shard.shutdown()).unwrap();
    drop_tasks();
}

#[test]
fn static_cells_of_a_wide_partition_are_in_one_block() {
    let sim = Arc::new(Sim::default());
    // Limits that allow one flush: the log of all rows, a block each, counts for less than a
    // memtable.
    let options = StorageOptions { memtable_bytes_max: 1 << 20, segment_bytes: 16 << 20, ..options() };
    let shard = open(&sim, &options).unwrap();
    block_on(write(&shard, vec![statics(1)])).unwrap();
    // Write few records, so that the length of the log does not cause a second file.
    for first in (0..2_000).step_by(100) {
        block_on(write(&shard, (first..first + 100).map(|at| row(at, 1, 20)).collect())).unwrap();
    }
    block_on(shard.flush_all()).unwrap();
    let misses = shard.stats().cache_misses;
    let found = statics_before(&shard);
    assert!(found.view.is_some_and(|view| view.static_cell(2).is_some() && view.stored() == 0));
    assert_eq!(shard.stats().cache_misses - misses, 1);
    block_on(shard.shutdown()).unwrap();
    drop_tasks();
}

/// A snapshot delays acknowledgements while it takes its cut, and so answers that show the writes.
#[test]
fn reads_settle_after_the_cut_of_a_snapshot() {
    let sim = Arc::new(Sim::default());
    let shard = open(&sim, &options()).unwrap();
    block_on(write(&shard, vec![row(1, 1, 10)])).unwrap();
    shard.hold_acks(true);
    {
        let mut wait = std::pin::pin!(shard.settled());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(wait.as_mut().poll(&mut cx).is_pending());
        shard.hold_acks(false);
        assert!(wait.as_mut().poll(&mut cx).is_ready());
    }
    block_on(shard.shutdown()).unwrap();
    drop_tasks();
}
