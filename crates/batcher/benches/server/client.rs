//! The client: commands over 64 partitions, the ways of running them, and the check of their
//! results.
//!
//! Commands of a partition are numbered from 1. A command reads its partition's row, writes its own
//! number, and returns the number that it found. A lost, repeated or reordered command would return
//! another number than that of the command before it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ScopedJoinHandle;
use std::time::{Instant, SystemTime};

use batcher::{Batcher, Command, CqlStore, Footprint, Limits, Reply, Store, Strategy, View};
use futures_util::future::join_all;
use hdrhistogram::Histogram;
use load::Latency;
use scylla::client::PoolSize;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::{LocalSet, spawn_local};

use crate::host::ADMIN;

/// Number of partitions. All of them have commands at any time.
pub(crate) const PARTITIONS: i32 = 64;

type Key = (i32,);
/// Number of the last command, 0 before the first.
type NumberRow = (i64,);
type Table = CqlStore<Key, NumberRow>;

/// Command of a partition with its number.
struct Numbered {
    key: Key,
    number: i64,
}

impl Command<Key, NumberRow> for Numbered {
    /// The number that it found.
    type Out = i64;

    fn footprint(&self, footprint: &mut Footprint<Key>) {
        footprint.reads.push(self.key);
        footprint.writes.push(self.key);
    }

    fn apply(self, view: &mut View<'_, Key, NumberRow>) -> i64 {
        let found = view.get(&self.key).copied().unwrap_or_default();
        view.set(&self.key, (self.number,));
        found.0
    }
}

/// Way of running commands.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    /// A blocking thread for each partition, one command after the other. One more thread runs the
    /// driver.
    Threads,
    /// The same code as a future for each of the first partitions, on one thread with the driver.
    Futures(i32),
    /// The library over one stream of commands that takes partitions in turn, and `commands_max`.
    Library(Strategy<Key>, usize),
}

/// The library's order for each partition, of as many commands at once as there are partitions.
pub(crate) const PER_PARTITION: Strategy<Key> = Strategy::PerPartition {
    threads: PARTITIONS as usize,
    partition: |key| u64::from(key.0.cast_unsigned()),
};

/// Commands that have ended, and the signal to stop.
pub(crate) struct ClientProgress {
    pub(crate) ended: AtomicU64,
    pub(crate) is_over: AtomicBool,
    /// Response times since [`ClientProgress::take_responses`], ns.
    responses: Mutex<Histogram<u64>>,
}

impl Default for ClientProgress {
    fn default() -> ClientProgress {
        let responses = Mutex::new(Histogram::new(3).expect("three digits are valid"));
        ClientProgress { ended: AtomicU64::new(0), is_over: AtomicBool::new(false), responses }
    }
}

impl ClientProgress {
    /// Counts a command that began at `began`, given its number and the number that it found.
    fn end(&self, number: i64, found: i64, began: Instant) {
        assert_eq!(found, number - 1, "a command finds the number of the one before it");
        let ns = began.elapsed().as_nanos() as u64;
        self.responses.lock().expect("no command has failed").record(ns).expect("the histogram grows");
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the response times of the commands that ended since the last call.
    pub(crate) fn take_responses(&self) -> Latency {
        let mut responses = self.responses.lock().expect("no command has failed");
        let found = Latency::of(&responses);
        responses.reset();
        found
    }
}

/// Runs commands over an empty table until `progress` stops them, and compares the table with the
/// result of running them in order.
pub(crate) fn run(way: Way, address: &str, table: &str, progress: &ClientProgress) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (session, store) = runtime.block_on(open(address, table));
    // The number of commands of each partition that ran.
    let numbers = match way {
        Way::Threads => threads(&runtime, &store, progress),
        Way::Futures(count) => {
            runtime.block_on(join_all((0..count).map(|key| partition(key, &store, progress))))
        }
        Way::Library(strategy, commands_max) => {
            let limits = Limits { commands_max, ..Limits::default() };
            LocalSet::new().block_on(&runtime, stream(strategy, limits, store, progress))
        }
    };
    assert_eq!(numbers.iter().sum::<i64>().cast_unsigned(), progress.ended.load(Ordering::Relaxed));
    let select = format!("SELECT id, number FROM bench.{table}");
    let found = runtime.block_on(session.query_unpaged(select, ())).expect("the table can be read");
    let found = found.into_rows_result().expect("rows");
    let found: Result<BTreeMap<i32, i64>, _> = found.rows().expect("an int and a bigint").collect();
    let expected = (0..).zip(numbers).collect();
    assert_eq!(found.expect("rows"), expected, "the table has the number of each partition's last command");
}

/// Connects, and creates the table.
async fn open(address: &str, table: &str) -> (Arc<Session>, Table) {
    let builder = SessionBuilder::new().known_node(address).user(ADMIN[0], ADMIN[1]);
    let builder = builder.pool_size(PoolSize::PerHost(std::num::NonZeroUsize::MIN));
    let session = Arc::new(builder.disallow_shard_aware_port(true).build().await.expect("a session"));
    let replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
    let keyspace = format!("CREATE KEYSPACE IF NOT EXISTS bench WITH replication = {replication}");
    session.query_unpaged(keyspace, ()).await.expect("a keyspace");
    let create = format!("CREATE TABLE bench.{table} (id int PRIMARY KEY, number bigint)");
    session.query_unpaged(create, ()).await.expect("a table");
    let store = CqlStore::new(session.clone(), "bench", table, &["number"]).await;
    (session, store.expect("the table is one of the store"))
}

/// Runs the commands of a partition, one after the other. Returns their number.
async fn partition(key: i32, store: &Table, progress: &ClientProgress) -> i64 {
    let mut number = 0;
    let mut stamp_us = 0;
    while !progress.is_over.load(Ordering::Relaxed) {
        number += 1;
        let began = Instant::now();
        let found = store.read(&(key,)).await.expect("the row can be read").unwrap_or_default();
        let since = SystemTime::UNIX_EPOCH.elapsed().expect("a time after 1970").as_micros();
        stamp_us = (stamp_us + 1).max(since as u64);
        store.write(&(key,), Some((number,)), stamp_us).await.expect("the row can be written");
        progress.end(number, found.0, began);
    }
    number
}

/// [`Way::Threads`]. Each operation blocks its thread until it has ended.
fn threads(runtime: &Runtime, store: &Table, progress: &ClientProgress) -> Vec<i64> {
    let (end, ended) = oneshot::channel::<()>();
    std::thread::scope(|scope| {
        let of = |key| scope.spawn(move || runtime.handle().block_on(partition(key, store, progress)));
        let threads: Vec<_> = (0..PARTITIONS).map(of).collect();
        scope.spawn(move || runtime.block_on(ended));
        // The driver runs until all threads have ended, even after a failure.
        let ended: Vec<_> = threads.into_iter().map(ScopedJoinHandle::join).collect();
        drop(end);
        ended.into_iter().map(|number| number.expect("a partition in order")).collect()
    })
}

/// [`Way::Library`].
async fn stream(
    strategy: Strategy<Key>,
    limits: Limits,
    store: Table,
    progress: &ClientProgress,
) -> Vec<i64> {
    let (handle, drive) = Batcher::new(store, limits).with_strategy(strategy).start();
    let driven = spawn_local(drive);
    let mut numbers = vec![0; PARTITIONS as usize];
    let mut replies: VecDeque<(i64, Instant, Reply<_, _>)> = VecDeque::new();
    for key in (0..PARTITIONS).cycle() {
        let is_over = progress.is_over.load(Ordering::Relaxed);
        // The library holds no more commands. Replies are in the order of the stream.
        if is_over || replies.len() == 2 * limits.commands_max {
            let Some((number, began, reply)) = replies.pop_front() else { break };
            let found = reply.await.expect("an output");
            progress.end(number, found, began);
        }
        if !is_over {
            let number = &mut numbers[key as usize];
            *number += 1;
            let command = Numbered { key: (key,), number: *number };
            let began = Instant::now();
            replies.push_back((*number, began, handle.push(command).await.expect("the batcher runs")));
        }
    }
    drop(handle);
    driven.await.expect("the batcher ends").expect("no operation fails");
    numbers
}
