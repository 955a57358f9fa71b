//! Tasks of a session's requests. Some end with the connection: reads, work on files, long requests
//! that are being opened, and requests that wait for a slot. Others run to their end.

use std::rc::Rc;
use std::sync::Arc;

use cluster::RemotePlan;
use engine::Reads;
use workload::Effective;

use crate::statement::Statement;

/// Text of a statement for a node, which this server does not decode.
pub(crate) enum RelayedText {
    /// A client has prepared it.
    Prepared(Rc<RemotePlan>),
    /// The beginning of a text that a client sent.
    Sent(Box<str>),
}

/// A statement that runs or waits, as far as it is known.
pub(crate) struct Running {
    pub(crate) stream: i16,
    pub(crate) statement: Option<Rc<Statement>>,
    /// Text of a statement for a node.
    pub(crate) relayed: Option<RelayedText>,
    pub(crate) effective: Rc<Effective>,
    pub(crate) since_ns: u64,
    /// True if the statement waits for a slot.
    pub(crate) waits: bool,
    /// Count of the rows that it reads.
    pub(crate) reads: Option<Arc<Reads>>,
}

impl Running {
    /// Returns true for a long request whose kind is not known yet.
    fn is_being_opened(&self) -> bool {
        self.statement.is_none() && self.relayed.is_none() && !self.waits
    }
}

/// Tasks by key.
#[derive(Default)]
pub(crate) struct Tasks {
    tasks: Vec<Option<StoredTask>>,
    free: Vec<usize>,
    /// Number of the last task. Numbers are never reused.
    numbers: u64,
}

/// A task with its description.
struct StoredTask {
    task: lanes::Task<()>,
    /// `None` for a task that runs to its end.
    running: Option<Running>,
    number: u64,
}

impl Tasks {
    /// Reserves a key for a task.
    pub(crate) fn reserve(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.tasks.push(None);
            self.tasks.len() - 1
        })
    }

    /// Stores a task under its key. If it is `running`, the end of the connection cancels it.
    pub(crate) fn store(&mut self, key: usize, task: lanes::Task<()>, running: Option<Running>) {
        self.numbers += 1;
        self.tasks[key] = Some(StoredTask { task, running, number: self.numbers });
    }

    /// Changes what a task does.
    pub(crate) fn set(&mut self, key: usize, running: Option<Running>) {
        // The list is empty if the connection has ended.
        if let Some(stored) = self.tasks.get_mut(key).and_then(Option::as_mut) {
            stored.running = running;
        }
    }

    /// Notes that the statement of a task runs in another level now.
    pub(crate) fn move_to(&mut self, key: usize, effective: &Rc<Effective>) {
        let stored = self.tasks.get_mut(key).and_then(Option::as_mut);
        if let Some(running) = stored.and_then(|stored| stored.running.as_mut()) {
            running.effective = effective.clone();
        }
    }

    /// Returns the statements that run or wait, each with its number.
    pub(crate) fn running(&self) -> impl Iterator<Item = (u64, &Running)> {
        self.tasks.iter().flatten().filter_map(|stored| Some((stored.number, stored.running.as_ref()?)))
    }

    /// Removes the task with that number, so that the caller can end it.
    pub(crate) fn take(&mut self, number: u64) -> Option<(lanes::Task<()>, Running)> {
        let is_it = |stored: &StoredTask| stored.number == number && stored.running.is_some();
        let key = self.tasks.iter().position(|stored| stored.as_ref().is_some_and(is_it))?;
        let StoredTask { task, running, .. } = self.tasks[key].take()?;
        self.free.push(key);
        Some((task, running?))
    }

    /// Removes the tasks that end with the connection, and with `keep_opening` not those that are
    /// being opened.
    pub(crate) fn take_running(&mut self, keep_opening: bool) -> Vec<lanes::Task<()>> {
        let is_taken = |stored: &mut StoredTask| {
            stored.running.as_ref().is_some_and(|running| !(keep_opening && running.is_being_opened()))
        };
        let mut taken = Vec::new();
        for (key, entry) in self.tasks.iter_mut().enumerate() {
            if let Some(stored) = entry.take_if(is_taken) {
                taken.push(stored.task);
                self.free.push(key);
            }
        }
        taken
    }

    /// Frees the key of a task that is about to end by itself.
    pub(crate) fn done(&mut self, key: usize) {
        if let Some(stored) = self.tasks.get_mut(key).and_then(Option::take) {
            stored.task.detach();
            self.free.push(key);
        }
    }
}
