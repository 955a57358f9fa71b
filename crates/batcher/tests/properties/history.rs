//! Random commands, their sequential execution, and runs of them in a batcher.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use batcher::{Batcher, BatcherClock, Command, Error, Footprint, Handle, Limits, Strategy, View};

use crate::executor::{self, Executor};
use crate::store::{Fault, Sim};
use testkit::Random;

/// Content of a slot: the number of the command that wrote it, and a hash of all that it read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Value {
    pub(crate) by: usize,
    hash: u64,
}

/// A command whose output and writes depend on each value that it reads.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    number: usize,
    pub(crate) reads: Vec<u32>,
    pub(crate) writes: Vec<u32>,
    kind: HistoryKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HistoryKind {
    /// Writes each slot that it declares, and deletes none.
    Plain,
    /// Leaves slots out and deletes some, depending on what it reads.
    Fickle,
    /// Does nothing if its slot has been written by it or by a later command.
    Once,
    Panics,
}

impl Change {
    pub(crate) fn new(number: usize, reads: &[u32], writes: &[u32]) -> Change {
        let reads = reads.to_vec();
        let writes = writes.to_vec();
        Change { number, reads, writes, kind: HistoryKind::Plain }
    }

    /// Creates a command that changes a slot and may be run again after a restart.
    pub(crate) fn once(number: usize, slot: u32) -> Change {
        Change { kind: HistoryKind::Once, ..Change::new(number, &[slot], &[slot]) }
    }

    /// Makes the command panic when it runs.
    pub(crate) fn panicking(self) -> Change {
        Change { kind: HistoryKind::Panics, ..self }
    }

    /// Returns the output and the writes, given the values of `reads`.
    pub(crate) fn run(
        &self,
        values: impl Iterator<Item = Option<Value>>,
    ) -> (u64, Vec<(u32, Option<Value>)>) {
        let mut values = values.peekable();
        if self.kind == HistoryKind::Once
            && values.peek().is_some_and(|value| value.is_some_and(|it| it.by >= self.number))
        {
            return (0, Vec::new());
        }
        let hashes = values.map(|value| value.map_or(1, |value| value.hash));
        let out =
            hashes.fold(self.number as u64, |hash, next| Random::new(hash ^ next.rotate_left(17)).next_u64());
        let mut writes = Vec::new();
        let is_fickle = self.kind == HistoryKind::Fickle;
        for (index, slot) in self.writes.iter().enumerate() {
            let hash = Random::new(out.wrapping_add(index as u64)).next_u64();
            match hash % 6 {
                0 if is_fickle => {}
                1 if is_fickle => writes.push((*slot, None)),
                _ => writes.push((*slot, Some(Value { by: self.number, hash }))),
            }
        }
        (out, writes)
    }
}

impl Command<u32, Value> for Change {
    type Out = u64;

    fn footprint(&self, footprint: &mut Footprint<u32>) {
        footprint.reads.extend(&self.reads);
        footprint.writes.extend(&self.writes);
    }

    fn apply(self, view: &mut View<'_, u32, Value>) -> u64 {
        assert!(self.kind != HistoryKind::Panics, "this command panics");
        let (out, writes) = self.run(self.reads.iter().map(|slot| view.get(slot).copied()));
        for (slot, value) in writes {
            match value {
                Some(value) => view.set(&slot, value),
                None => view.delete(&slot),
            }
        }
        out
    }
}

/// Creates `count` random commands over few slots. Some read nothing, some write nothing.
pub(crate) fn random_changes(random: &mut Random, count: usize, is_fickle: bool) -> Vec<Change> {
    let slots = 1 + random.below(9);
    let kind = if is_fickle { HistoryKind::Fickle } else { HistoryKind::Plain };
    let mut change = |number| {
        let mut some = || {
            let used = random.below(4);
            (0..used).map(|_| random.below(slots) as u32).collect::<Vec<u32>>()
        };
        let reads = some();
        let writes = some();
        Change { number, reads, writes, kind }
    };
    (0..count).map(&mut change).collect()
}

/// The result of running commands one after the other.
#[derive(Debug, Default)]
pub(crate) struct Sequential {
    pub(crate) outs: Vec<u64>,
    pub(crate) state: BTreeMap<u32, Value>,
    /// Writes of each slot in order, with the number of the command.
    pub(crate) writes: BTreeMap<u32, Vec<(usize, Option<Value>)>>,
}

impl Sequential {
    pub(crate) fn of(changes: &[Change]) -> Sequential {
        let mut done = Sequential::default();
        for (number, change) in changes.iter().enumerate() {
            let (out, writes) = change.run(change.reads.iter().map(|slot| done.state.get(slot).copied()));
            done.outs.push(out);
            for (slot, value) in writes {
                done.writes.entry(slot).or_default().push((number, value));
                match value {
                    Some(value) => drop(done.state.insert(slot, value)),
                    None => drop(done.state.remove(&slot)),
                }
            }
        }
        done
    }
}

/// Answers of commands by number.
pub(crate) type Answers = BTreeMap<usize, Result<u64, Error<Fault>>>;

/// A run of commands in a batcher.
pub(crate) struct HistoryRun<const STAMPS: bool> {
    pub(crate) executor: Executor,
    pub(crate) answers: Rc<RefCell<Answers>>,
    /// Number of commands that the batcher has accepted.
    pub(crate) pushed: Rc<Cell<usize>>,
    pub(crate) handle: Handle<Sim<STAMPS>, Change>,
    /// Task of the batcher.
    pub(crate) drive: usize,
}

/// The clocks of virtual time.
pub(crate) const CLOCK: BatcherClock =
    BatcherClock { wall_us: executor::now_us, steady_us: executor::now_us };

impl<const STAMPS: bool> HistoryRun<STAMPS> {
    /// Prepares a run. One task pushes the commands, with random pauses below `pause_us`.
    pub(crate) fn new(
        store: &Sim<STAMPS>,
        limits: Limits,
        strategy: Strategy<u32>,
        changes: Vec<Change>,
        pause_us: u64,
    ) -> HistoryRun<STAMPS> {
        HistoryRun::on(Executor::new(), store, limits, strategy, changes, pause_us)
    }

    /// Prepares a run after others, on the same executor.
    pub(crate) fn on(
        mut executor: Executor,
        store: &Sim<STAMPS>,
        limits: Limits,
        strategy: Strategy<u32>,
        changes: Vec<Change>,
        pause_us: u64,
    ) -> HistoryRun<STAMPS> {
        let batcher = Batcher::new(store.clone(), limits).with_strategy(strategy).with_clock(CLOCK);
        let (handle, drive) = batcher.start();
        let answers = Rc::new(RefCell::new(Answers::new()));
        let pushed = Rc::new(Cell::new(0));
        let all = answers.clone();
        let count = pushed.clone();
        let pushing = handle.clone();
        executor.spawn(async move {
            let mut random = Random::new(changes.len() as u64);
            for (number, change) in changes.into_iter().enumerate() {
                if pause_us > 0 && random.below(100) < 30 {
                    executor::sleep_us(random.below(pause_us)).await;
                }
                match pushing.push(change).await {
                    Ok(reply) => {
                        assert_eq!(reply.sequence(), number as u64);
                        count.set(number + 1);
                        let all = all.clone();
                        executor::spawn(async move {
                            let answer = reply.await;
                            all.borrow_mut().insert(number, answer);
                        });
                    }
                    Err(error) => drop(all.borrow_mut().insert(number, Err(error))),
                }
            }
        });
        let drive = executor.spawn(async move { drop(drive.await) });
        HistoryRun { executor, answers, pushed, handle, drive }
    }

    /// Runs until nothing can run. Returns the answers, of which there is one for each command, and
    /// the number of acknowledged commands at the start of the order.
    pub(crate) fn finish(mut self, count: usize) -> (Answers, usize) {
        self.executor.run(|| false);
        let acknowledged = self.handle.acknowledged_up_to() as usize;
        drop(self.handle);
        self.executor.run(|| false);
        assert!(self.executor.has_ended(self.drive), "the batcher ends after its last handle");
        let answers = self.answers.take();
        assert_eq!(answers.len(), count, "every command ends");
        (answers, acknowledged)
    }
}
