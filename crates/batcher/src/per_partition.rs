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
use crate::queue::{Entry, EntryOf, QueueOf};
use crate::{Error, Store};

/// A command that has been taken from the queue.
struct Waiting<S: Store, C: Command<S::Slot, S::Value>> {
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
    let mut waiting: HashMap<u64, Waiting<S, C>> = HashMap::new();
    let mut orders: HashMap<u64, VecDeque<u64>> = HashMap::new();
    let mut taken: VecDeque<EntryOf<S, C>> = VecDeque::new();
    let mut ready = VecDeque::new();
    let mut in_flight = FuturesUnordered::new();
    // Acknowledged commands: all before `acknowledged`, and those after it.
    let (mut acknowledged, mut beyond) = (0, BTreeSet::new());
    let (mut has_more, mut failure) = (true, None);
    loop {
        for entry in taken.drain(..) {
            let (sequence, footprint) = (entry.sequence, Footprint::of(&entry.command));
            let mut behind = 0;
            for partition in partitions(&footprint, partition) {
                let order = orders.entry(partition).or_default();
                behind += usize::from(!order.is_empty());
                order.push_back(sequence);
            }
            if behind == 0 {
                ready.push_back(sequence);
            }
            waiting.insert(sequence, Waiting { entry, footprint, behind });
        }
        while failure.is_none() && in_flight.len() < threads {
            let Some(next) = ready.pop_front().and_then(|sequence| waiting.remove(&sequence)) else { break };
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
        for partition in &ended.partitions {
            let order = orders.get_mut(partition).expect("a running command is the first of its partitions");
            order.pop_front();
            match order.front() {
                None => drop(orders.remove(partition)),
                Some(next) => {
                    let waits = waiting.get_mut(next).expect("only the first of a partition runs");
                    waits.behind -= 1;
                    if waits.behind == 0 {
                        ready.push_back(*next);
                    }
                }
            }
        }
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
    for waits in BTreeMap::from_iter(waiting).into_values() {
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
    let Entry { command, reply, sequence, permit } = entry;
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
