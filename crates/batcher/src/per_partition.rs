//! [`crate::Strategy::PerPartition`]: each partition in order, several partitions at once.
//!
//! A command waits in the queue of each partition that it uses, and runs when it is the first of
//! all of them. So it observes the writes of all earlier commands that it shares a slot with.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::command::{Command, Current, Footprint, Overlay, View};
use crate::operations::{Fate, Operations};
use crate::phases::judge;
use crate::queue::{EntryOf, QueueEntry, QueueOf};
use crate::{Error, Store};

/// A command that has been taken from the queue.
struct WaitingCommand<S: Store, C: Command<S::Slot, S::Value>> {
    entry: EntryOf<S, C>,
    footprint: Footprint<S::Slot>,
    /// Partitions in which an earlier command has not ended.
    behind: usize,
}

/// A command that has run.
struct Ended<O, E> {
    sequence: u64,
    partitions: BTreeSet<u64>,
    reply: oneshot::Sender<Result<O, Error<E>>>,
    permit: OwnedSemaphorePermit,
    answer: Result<O, Error<E>>,
    failure: Option<Arc<E>>,
}

/// Commands taken from the queue that have not ended, in the order of each partition.
struct Orders<S: Store, C: Command<S::Slot, S::Value>> {
    partition: fn(&S::Slot) -> u64,
    waiting: HashMap<u64, WaitingCommand<S, C>>,
    /// Commands of each partition by their sequence numbers. The first may run.
    by_partition: HashMap<u64, VecDeque<u64>>,
    /// Commands that are the first of all their partitions.
    ready: VecDeque<u64>,
}

impl<S: Store, C: Command<S::Slot, S::Value>> Orders<S, C> {
    /// Adds a command behind all earlier ones.
    fn add(&mut self, entry: EntryOf<S, C>) {
        let sequence = entry.sequence;
        let footprint = Footprint::of(&entry.command);
        let mut behind = 0;
        for partition in partitions(&footprint, self.partition) {
            let order = self.by_partition.entry(partition).or_default();
            behind += usize::from(!order.is_empty());
            order.push_back(sequence);
        }
        if behind == 0 {
            self.ready.push_back(sequence);
        }
        self.waiting.insert(sequence, WaitingCommand { entry, footprint, behind });
    }

    /// Takes the next command that may run.
    fn next(&mut self) -> Option<WaitingCommand<S, C>> {
        self.ready.pop_front().and_then(|sequence| self.waiting.remove(&sequence))
    }

    /// Removes a command that ended from the front of its partitions.
    fn end(&mut self, partitions: &BTreeSet<u64>) {
        for partition in partitions {
            let order = self
                .by_partition
                .get_mut(partition)
                .expect("a running command is the first of its partitions");
            order.pop_front();
            match order.front() {
                None => drop(self.by_partition.remove(partition)),
                Some(next) => {
                    let waits = self.waiting.get_mut(next).expect("only the first of a partition runs");
                    waits.behind -= 1;
                    if waits.behind == 0 {
                        self.ready.push_back(*next);
                    }
                }
            }
        }
    }
}

/// Runs commands until there are no more, or an operation has failed for good.
pub(crate) async fn run<S, C>(
    operations: &Operations<S>,
    queue: &QueueOf<S, C>,
    threads: usize,
    partition: fn(&S::Slot) -> u64,
) -> Result<(), Arc<S::Error>>
where
    S: Store,
    C: Command<S::Slot, S::Value>,
{
    let mut orders = Orders::<S, C> {
        partition,
        waiting: HashMap::new(),
        by_partition: HashMap::new(),
        ready: VecDeque::new(),
    };
    let mut taken: VecDeque<EntryOf<S, C>> = VecDeque::new();
    let mut in_flight = FuturesUnordered::new();
    // Acknowledged commands: all before `acknowledged`, and those after it.
    let mut acknowledged = 0;
    let mut beyond = BTreeSet::new();
    let mut has_more = true;
    let mut failure = None;
    loop {
        taken.drain(..).for_each(|entry| orders.add(entry));
        while failure.is_none() && in_flight.len() < threads {
            let Some(next) = orders.next() else { break };
            in_flight.push(run_one(operations, next.entry, next.footprint, partition));
        }
        let ended = tokio::select! { biased;
            Some(ended) = in_flight.next(), if !in_flight.is_empty() => ended,
            more = queue.take(operations.limits.commands_max, &mut taken), if has_more && failure.is_none() => {
                has_more = more;
                continue;
            }
            else => break,
        };
        orders.end(&ended.partitions);
        if ended.answer.is_ok() {
            beyond.insert(ended.sequence);
            while beyond.remove(&acknowledged) {
                acknowledged += 1;
            }
            queue.acknowledge(acknowledged);
        }
        failure = failure.or(ended.failure);
        // The caller may have given up.
        let _ = ended.reply.send(ended.answer);
        drop(ended.permit);
    }
    let Some(reason) = failure else { return Ok(()) };
    // In order, so that simulations repeat themselves.
    for waits in BTreeMap::from_iter(orders.waiting).into_values() {
        let _ = waits.entry.reply.send(Err(Error::NotRun(reason.clone())));
    }
    Err(reason)
}

fn partitions<S>(footprint: &Footprint<S>, partition: fn(&S) -> u64) -> BTreeSet<u64> {
    footprint.reads.iter().chain(&footprint.writes).map(partition).collect()
}

async fn run_one<S, C>(
    operations: &Operations<S>,
    entry: EntryOf<S, C>,
    footprint: Footprint<S::Slot>,
    partition: fn(&S::Slot) -> u64,
) -> Ended<C::Out, S::Error>
where
    S: Store,
    C: Command<S::Slot, S::Value>,
{
    let QueueEntry { command, reply, sequence, permit } = entry;
    let partitions = partitions(&footprint, partition);
    let (answer, failure) = apply(operations, command, &footprint).await;
    Ended { sequence, partitions, reply, permit, answer, failure }
}

/// Reads, runs the command and writes. Returns its answer and the failure of an operation.
async fn apply<S, C>(
    operations: &Operations<S>,
    command: C,
    footprint: &Footprint<S::Slot>,
) -> (Result<C::Out, Error<S::Error>>, Option<Arc<S::Error>>)
where
    S: Store,
    C: Command<S::Slot, S::Value>,
{
    let mut overlay = Overlay::new();
    match operations.read_all(&footprint.reads).await {
        Err(reason) => return (Err(Error::NotRun(reason.clone())), Some(reason)),
        Ok(values) => {
            for (slot, value) in values {
                overlay.insert(slot.clone(), Current { value, is_written: false });
            }
        }
    }
    let out = command.apply(&mut View::new(&mut overlay, footprint));
    let fates: BTreeMap<&S::Slot, Fate> = operations.write_all(&overlay).await.into_iter().collect();
    // The failure may be that of another command.
    let failure = operations.failure();
    let error = failure.as_ref().and_then(|reason| judge(footprint, &fates, reason));
    (error.map_or(Ok(out), Err), failure)
}
