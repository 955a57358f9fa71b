//! Mutations that are applied in several task polls are atomic for readers of a partition, and
//! after a crash.

use std::task::Poll;

use super::*;

const TABLE: TableId = TableId(0);

fn row(at: u32) -> Change {
    let mut row = RowBuilder::new(&[], &at.to_be_bytes(), 1);
    row.push(CellRef::live(0, 1, &[7; 10]));
    Change::Row(row.finish())
}

/// Returns a batch of `count` partitions of one row.
fn partitions(count: u32) -> Vec<Mutation> {
    let mutation = |n: u32| Mutation {
        table: TABLE,
        token: i64::from(n),
        key: Bytes::copy_from_slice(&n.to_be_bytes()),
        changes: vec![row(0)],
    };
    (0..count).map(mutation).collect()
}

fn rows(shard: &Rc<Shard>, token: i64, key: &[u8]) -> usize {
    let view = block_on(shard.read_partition(TABLE, token, key, 0).wait()).expect("read");
    view.map_or(0, |view| view.rows().count())
}

fn there(shard: &Rc<Shard>, count: u32) -> usize {
    (0..count).map(|n| rows(shard, i64::from(n), &n.to_be_bytes())).sum()
}

/// Polls a future `polls` times, running all tasks in between. Returns its result, if it ended.
fn polled<T>(future: impl Future<Output = T>, polls: usize, mut between: impl FnMut()) -> Option<T> {
    let mut future = std::pin::pin!(future);
    for _ in 0..polls {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return Some(done);
        }
        between();
    }
    None
}

#[test]
fn readers_see_all_changes_of_a_partition_or_none() {
    let sim = Arc::new(Sim::default());
    let shard =
        open(&sim, &StorageOptions { segment_bytes: 1 << 20, record_bytes_max: 512 << 10, ..options() })
            .unwrap();
    let key = Bytes::from("wide");
    let changes: Vec<Change> = (0..1_000).map(row).collect();
    let wide = Mutation { table: TABLE, token: 5, key: key.clone(), changes };
    let (mut seen, mut turn) = (Vec::new(), 0);
    let between = || {
        seen.push(rows(&shard, 5, &key));
        // Other writers change the partition meanwhile. Their writes stay.
        turn += 1;
        if turn % 15 == 0 && turn < 40 {
            let changes = vec![row(5_000 + turn)];
            drop(shard.apply(vec![Mutation { table: TABLE, token: 5, key: key.clone(), changes }]).unwrap());
        }
    };
    let commit = polled(shard.apply_yielding(vec![wide]), 10_000, between).expect("applied").unwrap();
    block_on(commit).unwrap();
    assert!(seen.len() > 10, "{} yields", seen.len());
    assert!(seen.iter().all(|rows| *rows < 10), "a part of it was seen: {seen:?}");
    assert_eq!(rows(&shard, 5, &key), 1_002);
    block_on(shard.shutdown()).unwrap();
    drop_tasks();
}

/// Memtables are frozen and flushed while the record is applied. The machine crashes at every
/// yield.
#[test]
fn crash_leaves_a_record_whole_or_not_at_all() {
    const COUNT: u32 = 300;
    let options = StorageOptions { memtable_bytes_max: 2 << 10, ..options() };
    let mut none = 0;
    let mut all = 0;
    let mut flushed = 0;
    for polls in (1..700).step_by(7) {
        let sim = Arc::new(Sim::new(polls as u64));
        let shard = open(&sim, &options).unwrap();
        let done = polled(shard.apply_yielding(partitions(COUNT)), polls, crate::sim::step);
        flushed += shard.stats().flushes;
        drop(shard);
        sim.crash();
        let shard = open(&sim, &options).unwrap();
        match there(&shard, COUNT) {
            0 => none += 1,
            300 => all += 1,
            some => panic!("{some} of {COUNT} partitions after {polls} polls"),
        }
        block_on(shard.shutdown()).unwrap();
        drop_tasks();
        if done.is_some() {
            break;
        }
    }
    assert!(none > 0 && all > 10 && flushed > 10, "{none} {all} {flushed}");
}

#[test]
fn truncation_deletes_a_whole_record() {
    let sim = Arc::new(Sim::default());
    let shard = open(&sim, &options()).unwrap();
    let apply = async { shard.apply_yielding(partitions(100)).await.unwrap().await.unwrap() };
    let truncate = async {
        while there_now(&shard) == 0 {
            sim_turn().await;
        }
        shard.truncate(TABLE).await.unwrap();
    };
    block_on(both(apply, truncate));
    assert_eq!(there(&shard, 100), 0);
    block_on(shard.shutdown()).unwrap();
    drop_tasks();
}

fn there_now(shard: &Rc<Shard>) -> u64 {
    shard.stats().memtable_partitions
}

async fn sim_turn() {
    let mut waited = false;
    std::future::poll_fn(|_| match std::mem::replace(&mut waited, true) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}

async fn both(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    let (mut one, mut other) = (std::pin::pin!(one), std::pin::pin!(other));
    let (mut first, mut second) = (false, false);
    std::future::poll_fn(move |cx| {
        first = first || one.as_mut().poll(cx).is_ready();
        second = second || other.as_mut().poll(cx).is_ready();
        if first && second { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
