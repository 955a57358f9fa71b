//! [`crate::Strategy::Pipelined`]: commands wait for their own slots only.
//!
//! A phase of a batch takes as long as the slowest of its operations. Here no command waits for
//! operations of slots that it does not use:
//!
//! 1. Admit commands in order, at most `commands_max` at once. A command takes its place in the
//!    queue of each slot that it uses.
//! 2. A command has its turn in a slot when no command before it there may still write, and, if it
//!    writes, none may still read. The first one that needs the value has it read from the store.
//! 3. A command with its turn in all of its slots runs, in memory. It leaves the queues.
//! 4. A slot that was written is sent. Commands that run meanwhile change the value in memory, and
//!    the next write sends the last of their values: one write of a slot is in flight at a time.
//! 5. A command ends when each slot that it used is durable in the version that it left or found.
//!    A slot that no command uses any more is forgotten.
//!
//! Commands that share a slot run in order, and others commute. So outputs and state equal those of
//! running all commands in order.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};

use crate::command::{Command, Current, Footprint, Overlay, View};
use crate::operations::{Fate, Operations};
use crate::queue::{EntryOf, QueueEntry, QueueOf};
use crate::{Error, Store};

/// Use of a slot by a command.
#[derive(Clone, Copy, Debug)]
struct Usage {
    reads: bool,
    writes: bool,
}

/// A command that has run and waits until a slot is durable.
#[derive(Clone, Copy, Debug)]
struct Unsettled {
    version: u64,
    sequence: u64,
    /// True if the command wrote the slot.
    is_written: bool,
}

/// State of a slot that commands use.
#[derive(Debug, Default)]
struct SlotState {
    /// Number of commands that use it and have not ended.
    users: usize,
    /// Commands without their turn, in order.
    waiting: VecDeque<(u64, Usage)>,
    /// Number of commands that have their turn and have not run: readers, or one writer.
    in_turn: usize,
    has_writer: bool,
    /// Commands in turn that need the value, which is being read.
    for_value: Vec<u64>,
    /// Number of writes in memory, and those contained in the last write sent, in the last write
    /// that may have been applied, and in the last durable one.
    version: u64,
    sent: u64,
    attempted: u64,
    durable: u64,
    /// True if a write is in flight, or waits to be sent.
    is_sending: bool,
    /// By version.
    unsettled: VecDeque<Unsettled>,
}

impl SlotState {
    /// Gives their turn to the first commands that may have it. Adds those that do not need to
    /// wait for the value to `released`. Returns true if the value must be read from the store.
    fn advance(&mut self, is_known: bool, released: &mut Vec<u64>) -> bool {
        let mut must_read = false;
        while let Some((sequence, usage)) = self.waiting.front().copied() {
            if self.has_writer || usage.writes && self.in_turn > 0 {
                break;
            }
            self.waiting.pop_front();
            self.in_turn += 1;
            self.has_writer = usage.writes;
            if usage.reads && !is_known {
                must_read |= self.for_value.is_empty();
                self.for_value.push(sequence);
            } else {
                released.push(sequence);
            }
        }
        must_read
    }
}

/// A command that was admitted.
struct Running<S: Store, C: Command<S::Slot, S::Value>> {
    entry: QueueEntry<Option<C>, C::Out, S::Error>,
    footprint: Footprint<S::Slot>,
    /// Slots in which it has no turn, or whose value it needs and is not known.
    behind: usize,
    /// Its output, once it has run.
    out: Option<C::Out>,
    /// Slots that are not durable in its version.
    unsettled: usize,
    /// True if a value that it wrote, or a later one of the same slot, may have been applied.
    is_sent: bool,
}

/// Operation to send.
#[derive(Debug)]
enum Operation<V> {
    Read,
    Write(Option<V>),
}

/// Operation that has ended.
enum Ended<S: Store> {
    Read(S::Slot, Option<Option<S::Value>>),
    Written(S::Slot, Fate),
}

/// The commands that were admitted and have not ended, and their slots.
struct Window<'a, S: Store, C: Command<S::Slot, S::Value>> {
    queue: &'a QueueOf<S, C>,
    running: HashMap<u64, Running<S, C>>,
    slots: BTreeMap<S::Slot, SlotState>,
    /// Known values. `is_written` is set while a command runs.
    overlay: Overlay<S::Slot, S::Value>,
    /// Commands that can run.
    ready: VecDeque<u64>,
    /// Slots to read, or to write if true.
    to_send: VecDeque<(S::Slot, bool)>,
    /// Slots of all footprints.
    iops: usize,
    /// Acknowledged commands: all before `acknowledged`, and those in `beyond`.
    acknowledged: u64,
    beyond: BTreeSet<u64>,
}

/// Runs commands until there are no more, or an operation has failed for good.
pub(crate) async fn run<S, C>(operations: &Operations<S>, queue: &QueueOf<S, C>) -> Result<(), Arc<S::Error>>
where
    S: Store,
    C: Command<S::Slot, S::Value>,
{
    let limits = operations.limits;
    let mut window = Window::new(queue);
    let mut taken: VecDeque<EntryOf<S, C>> = VecDeque::new();
    // Footprint of the first taken command, if it was not admitted.
    let mut left = None;
    let mut in_flight = FuturesUnordered::new();
    let mut has_more = true;
    loop {
        let is_well = operations.failure().is_none();
        if is_well {
            let free = limits.commands_max.saturating_sub(window.running.len() + taken.len());
            queue.take_now(free, &mut taken);
            while window.running.len() < limits.commands_max
                && let Some(entry) = taken.front()
            {
                let footprint = left.take().unwrap_or_else(|| Footprint::of(&entry.command));
                let iops = window.iops.saturating_add(footprint.slots());
                if iops > limits.iops_max && !window.running.is_empty() {
                    left = Some(footprint);
                    break;
                }
                window.admit(taken.pop_front().expect("it is the first"), footprint);
            }
            window.run_ready();
            while in_flight.len() < operations.in_flight_max()
                && let Some((slot, operation)) = window.next_operation()
            {
                in_flight.push(perform(operations, slot, operation));
            }
        }
        let is_idle = window.running.is_empty();
        if is_well && is_idle && !taken.is_empty() {
            // The admitted commands had no operations.
            continue;
        }
        tokio::select! { biased;
            Some(ended) = in_flight.next(), if !in_flight.is_empty() => {
                window.ended(ended);
                // All answers that have arrived, so that a slot is written once for all of them.
                while let Some(Some(ended)) = in_flight.next().now_or_never() {
                    window.ended(ended);
                }
            }
            more = queue.take(limits.commands_max, &mut taken),
                if has_more && is_well && taken.is_empty() && window.running.len() < limits.commands_max =>
            {
                has_more = more;
            }
            else => {
                assert!(is_idle || !is_well, "a command waits for a slot that no command uses");
                break;
            }
        }
    }
    let Some(reason) = operations.failure() else { return Ok(()) };
    window.fail(&reason);
    for entry in taken {
        // The caller may have given up, here and below.
        let _ = entry.reply.send(Err(Error::NotRun(reason.clone())));
    }
    Err(reason)
}

async fn perform<S: Store>(
    operations: &Operations<S>,
    slot: S::Slot,
    operation: Operation<S::Value>,
) -> Ended<S> {
    match operation {
        Operation::Read => {
            let value = operations.read(&slot).await.ok();
            Ended::Read(slot, value)
        }
        Operation::Write(value) => {
            let fate = operations.write(&slot, &value, operations.stamp()).await;
            Ended::Written(slot, fate)
        }
    }
}

impl<'a, S: Store, C: Command<S::Slot, S::Value>> Window<'a, S, C> {
    fn new(queue: &'a QueueOf<S, C>) -> Window<'a, S, C> {
        Window {
            queue,
            running: HashMap::new(),
            slots: BTreeMap::new(),
            overlay: Overlay::new(),
            ready: VecDeque::new(),
            to_send: VecDeque::new(),
            iops: 0,
            acknowledged: 0,
            beyond: BTreeSet::new(),
        }
    }

    /// Adds a command behind all earlier ones.
    fn admit(&mut self, entry: EntryOf<S, C>, footprint: Footprint<S::Slot>) {
        let QueueEntry { command, reply, sequence, permit } = entry;
        let mut released = Vec::new();
        let mut behind = 0;
        for (slot, usage) in uses(&footprint) {
            behind += 1;
            if !self.slots.contains_key(slot) {
                self.slots.insert(slot.clone(), SlotState::default());
            }
            let state = self.slots.get_mut(slot).expect("it was added");
            state.users += 1;
            state.waiting.push_back((sequence, usage));
            if state.advance(self.overlay.contains_key(slot), &mut released) {
                self.to_send.push_back((slot.clone(), false));
            }
        }
        self.iops += footprint.slots();
        if behind == 0 {
            self.ready.push_back(sequence);
        }
        let entry = QueueEntry { command: Some(command), reply, sequence, permit };
        let running = Running { entry, footprint, behind, out: None, unsettled: 0, is_sent: false };
        self.running.insert(sequence, running);
        self.release(released);
    }

    /// Counts a slot in which each of these commands need not wait any more.
    fn release(&mut self, commands: Vec<u64>) {
        for sequence in commands {
            let running = self.running.get_mut(&sequence).expect("it waits for its turn");
            running.behind -= 1;
            if running.behind == 0 {
                self.ready.push_back(sequence);
            }
        }
    }

    /// Runs all commands that can run.
    fn run_ready(&mut self) {
        while let Some(sequence) = self.ready.pop_front() {
            let running = self.running.get_mut(&sequence).expect("it can run");
            let command = running.entry.command.take().expect("a command runs once");
            running.out = Some(command.apply(&mut View::new(&mut self.overlay, &running.footprint)));
            let mut released = Vec::new();
            for (slot, usage) in uses(&running.footprint) {
                let state = self.slots.get_mut(slot).expect("the command uses it");
                let current = self.overlay.get_mut(slot);
                let is_known = current.is_some();
                let is_written =
                    usage.writes && current.is_some_and(|current| std::mem::take(&mut current.is_written));
                state.version += u64::from(is_written);
                if is_written && !state.is_sending {
                    state.is_sending = true;
                    self.to_send.push_back((slot.clone(), true));
                }
                if state.version > state.durable {
                    running.unsettled += 1;
                    state.unsettled.push_back(Unsettled { version: state.version, sequence, is_written });
                }
                state.in_turn -= 1;
                state.has_writer = false;
                if state.advance(is_known, &mut released) {
                    self.to_send.push_back((slot.clone(), false));
                }
            }
            if running.unsettled == 0 {
                self.end(sequence);
            }
            self.release(released);
        }
    }

    fn next_operation(&mut self) -> Option<(S::Slot, Operation<S::Value>)> {
        let (slot, is_write) = self.to_send.pop_front()?;
        if !is_write {
            return Some((slot, Operation::Read));
        }
        let state = self.slots.get_mut(&slot).expect("its last write is not durable");
        state.sent = state.version;
        let value = self.overlay.get(&slot).expect("it was written").value.clone();
        Some((slot, Operation::Write(value)))
    }

    fn ended(&mut self, ended: Ended<S>) {
        match ended {
            Ended::Read(_, None) => {}
            Ended::Read(slot, Some(value)) => {
                let state = self.slots.get_mut(&slot).expect("commands wait for the value");
                let released = std::mem::take(&mut state.for_value);
                self.overlay.insert(slot, Current { value, is_written: false });
                self.release(released);
            }
            Ended::Written(slot, fate) => {
                let state = self.slots.get_mut(&slot).expect("commands wait for the write");
                if fate != Fate::NotSent {
                    state.attempted = state.sent;
                }
                if fate != Fate::Durable {
                    return;
                }
                state.durable = state.sent;
                state.is_sending = state.version > state.sent;
                if state.is_sending {
                    self.to_send.push_back((slot, true));
                }
                let settled = state.unsettled.partition_point(|it| it.version <= state.durable);
                let settled: Vec<Unsettled> = state.unsettled.drain(..settled).collect();
                for Unsettled { sequence, is_written, .. } in settled {
                    let running = self.running.get_mut(&sequence).expect("it waits for the write");
                    running.unsettled -= 1;
                    running.is_sent |= is_written;
                    if running.unsettled == 0 {
                        self.end(sequence);
                    }
                }
            }
        }
    }

    /// Ends a command whose slots are durable.
    fn end(&mut self, sequence: u64) {
        let running = self.running.remove(&sequence).expect("it has not ended");
        for (slot, _) in uses(&running.footprint) {
            let state = self.slots.get_mut(slot).expect("the command uses it");
            state.users -= 1;
            if state.users == 0 {
                self.slots.remove(slot);
                self.overlay.remove(slot);
            }
        }
        self.iops -= running.footprint.slots();
        self.beyond.insert(sequence);
        while self.beyond.remove(&self.acknowledged) {
            self.acknowledged += 1;
        }
        self.queue.acknowledge(self.acknowledged);
        let _ = running.entry.reply.send(Ok(running.out.expect("it has run")));
    }

    /// Ends all commands after a failure, when nothing is in flight.
    fn fail(mut self, reason: &Arc<S::Error>) {
        for state in self.slots.values() {
            for it in state.unsettled.iter().filter(|it| it.is_written && it.version <= state.attempted) {
                self.running.get_mut(&it.sequence).expect("it waits for the write").is_sent = true;
            }
        }
        // In order, so that simulations repeat themselves.
        for running in BTreeMap::from_iter(self.running).into_values() {
            let error = if running.is_sent { Error::Unknown } else { Error::NotRun };
            let _ = running.entry.reply.send(Err(error(reason.clone())));
        }
    }
}

/// Returns each slot of a footprint once.
fn uses<S: Ord>(footprint: &Footprint<S>) -> impl Iterator<Item = (&S, Usage)> {
    let is_written = |slot: &S| footprint.writes.binary_search(slot).is_ok();
    let reads =
        footprint.reads.iter().map(move |slot| (slot, Usage { reads: true, writes: is_written(slot) }));
    let only_written = footprint.writes.iter().filter(|slot| footprint.reads.binary_search(slot).is_err());
    reads.chain(only_written.map(|slot| (slot, Usage { reads: false, writes: true })))
}
