//! [`crate::Strategy::Phases`]: batches of two phases.
//!
//! A phase ends with the slowest of its operations, so that response times must be about equal.
//!
//! A read never observes a later write, because all reads of a batch end before its writes begin,
//! and a batch begins when the one before it is durable.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::command::{Command, Current, Footprint, Overlay, View};
use crate::operations::{Fate, Operations};
use crate::queue::{EntryOf, QueueEntry, QueueOf};
use crate::{Error, Store};

/// Commands that run together, with their footprints.
struct CommandBatch<S: Store, C: Command<S::Slot, S::Value>> {
    entries: VecDeque<EntryOf<S, C>>,
    footprints: Vec<Footprint<S::Slot>>,
}

/// Runs batches until there are no more commands, or an operation has failed for good.
pub(crate) async fn run<S, C>(operations: &Operations<S>, queue: &QueueOf<S, C>) -> Result<(), Arc<S::Error>>
where
    S: Store,
    C: Command<S::Slot, S::Value>,
{
    let mut waiting = VecDeque::new();
    // Footprint of the first waiting command, if it did not fit into the batch before.
    let mut left = None;
    loop {
        let commands_max = operations.limits.commands_max;
        if waiting.is_empty() {
            if !queue.take(commands_max, &mut waiting).await {
                return Ok(());
            }
        } else {
            queue.take_now(commands_max.saturating_sub(waiting.len()), &mut waiting);
        }
        let batch = cut::<S, C>(&mut waiting, &mut left, operations.limits.iops_max);
        if let Err(reason) = run_batch(operations, queue, batch).await {
            for entry in waiting {
                let _ = entry.reply.send(Err(Error::NotRun(reason.clone())));
            }
            return Err(reason);
        }
    }
}

/// Takes the next batch: at most `iops_max` slots, and at least one command.
fn cut<S, C>(
    waiting: &mut VecDeque<EntryOf<S, C>>,
    left: &mut Option<Footprint<S::Slot>>,
    iops_max: usize,
) -> CommandBatch<S, C>
where
    S: Store,
    C: Command<S::Slot, S::Value>,
{
    let mut entries = VecDeque::new();
    let mut footprints = Vec::new();
    let mut iops = 0_usize;
    while let Some(entry) = waiting.front() {
        let footprint = left.take().unwrap_or_else(|| Footprint::of(&entry.command));
        iops = iops.saturating_add(footprint.slots());
        if iops > iops_max && !entries.is_empty() {
            *left = Some(footprint);
            break;
        }
        entries.extend(waiting.pop_front());
        footprints.push(footprint);
    }
    CommandBatch { entries, footprints }
}

/// Returns the slots whose first use is a read. Only they are read from the store: the others have
/// their values from earlier commands of the batch.
fn first_reads<S: Ord>(footprints: &[Footprint<S>]) -> BTreeSet<&S> {
    let mut used = BTreeSet::new();
    let mut reads = BTreeSet::new();
    for footprint in footprints {
        for slot in &footprint.reads {
            if used.insert(slot) {
                reads.insert(slot);
            }
        }
        used.extend(&footprint.writes);
    }
    reads
}

async fn run_batch<S, C>(
    operations: &Operations<S>,
    queue: &QueueOf<S, C>,
    batch: CommandBatch<S, C>,
) -> Result<(), Arc<S::Error>>
where
    S: Store,
    C: Command<S::Slot, S::Value>,
{
    let CommandBatch { mut entries, footprints } = batch;
    let mut overlay = Overlay::new();
    let mut ended = Vec::with_capacity(entries.len());
    let mut failure = read(operations, first_reads(&footprints), &mut overlay).await.err();
    for (index, footprint) in footprints.iter().enumerate() {
        // A command need not write each slot that it declares. Later commands that read such a slot
        // need its value from the store: a third phase, once, for all of them.
        if failure.is_none() && footprint.reads.iter().any(|slot| !overlay.contains_key(slot)) {
            let used = footprints[index..].iter().flat_map(|footprint| &footprint.reads);
            let missing: BTreeSet<&S::Slot> = used.filter(|slot| !overlay.contains_key(*slot)).collect();
            failure = read(operations, missing, &mut overlay).await.err();
        }
        if failure.is_some() {
            break;
        }
        let Some(QueueEntry { command, reply, sequence, permit }) = entries.pop_front() else { break };
        let out = command.apply(&mut View::new(&mut overlay, footprint));
        ended.push((out, reply, sequence, permit));
    }
    if let Some(reason) = failure {
        // Nothing was written yet.
        let replies = ended.into_iter().map(|(_, reply, ..)| reply);
        for reply in replies.chain(entries.into_iter().map(|entry| entry.reply)) {
            let _ = reply.send(Err(Error::NotRun(reason.clone())));
        }
        return Err(reason);
    }
    let fates: BTreeMap<&S::Slot, Fate> = operations.write_all(&overlay).await.into_iter().collect();
    let failure = operations.failure();
    let mut is_prefix = true;
    for ((out, reply, sequence, _permit), footprint) in ended.into_iter().zip(&footprints) {
        let answer = match &failure {
            None => Ok(out),
            Some(reason) => judge(footprint, &fates, reason).map_or(Ok(out), Err),
        };
        is_prefix &= answer.is_ok();
        if is_prefix {
            queue.acknowledge(sequence + 1);
        }
        // The caller may have given up.
        let _ = reply.send(answer);
    }
    failure.map_or(Ok(()), Err)
}

/// Reads slots into the overlay.
async fn read<S: Store>(
    operations: &Operations<S>,
    slots: BTreeSet<&S::Slot>,
    overlay: &mut Overlay<S::Slot, S::Value>,
) -> Result<(), Arc<S::Error>> {
    for (slot, value) in operations.read_all(slots).await? {
        overlay.insert(slot.clone(), Current { value, is_written: false });
    }
    Ok(())
}

/// Returns the error of a command after a write of its batch has failed, or `None` if everything
/// that it wrote, or read from commands before it, is durable.
pub(crate) fn judge<S: Ord, E>(
    footprint: &Footprint<S>,
    fates: &BTreeMap<&S, Fate>,
    reason: &Arc<E>,
) -> Option<Error<E>> {
    let mut used = footprint.reads.iter().chain(&footprint.writes);
    if used.all(|slot| fates.get(slot).is_none_or(|fate| *fate == Fate::Durable)) {
        return None;
    }
    let is_sent = |slot: &S| fates.get(slot).is_some_and(|fate| *fate != Fate::NotSent);
    let error = match footprint.writes.iter().any(is_sent) {
        true => Error::Unknown,
        false => Error::NotRun,
    };
    Some(error(reason.clone()))
}
