//! Tasks of a session that end with its connection: reads, work on files, long requests that are
//! being opened, and requests that wait for a slot.

use std::rc::Rc;
use std::sync::Arc;

use engine::Reads;
use workload::Effective;

use crate::statement::Statement;

/// A statement that runs or waits, as far as it is known.
pub(crate) struct Running {
    pub(crate) stream: i16,
    pub(crate) statement: Option<Rc<Statement>>,
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
        self.statement.is_none() && !self.waits
    }
}

/// Tasks by key.
#[derive(Default)]
pub(crate) struct CancellableTasks {
    tasks: Vec<Option<StoredTask>>,
    free: Vec<usize>,
    /// Number of the last task. Numbers are never reused.
    numbers: u64,
}

/// A task with its description.
struct StoredTask {
    task: lanes::Task<()>,
    running: Running,
    number: u64,
}

impl CancellableTasks {
    /// Reserves a key for a task.
    pub(crate) fn reserve(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.tasks.push(None);
            self.tasks.len() - 1
        })
    }

    /// Stores a task under its key. The task is cancelled when the connection ends and drops it.
    pub(crate) fn store(&mut self, key: usize, task: lanes::Task<()>, running: Running) {
        self.numbers += 1;
        self.tasks[key] = Some(StoredTask { task, running, number: self.numbers });
    }

    /// Notes that the statement of a task runs in another level now.
    pub(crate) fn move_to(&mut self, key: usize, effective: &Rc<Effective>) {
        if let Some(stored) = self.tasks.get_mut(key).and_then(Option::as_mut) {
            stored.running.effective = effective.clone();
        }
    }

    /// Returns the number of stored tasks.
    pub(crate) fn count(&self) -> usize {
        self.tasks.iter().flatten().count()
    }

    /// Returns the statements that run or wait, each with its number.
    pub(crate) fn running(&self) -> impl Iterator<Item = (u64, &Running)> {
        self.tasks.iter().flatten().map(|stored| (stored.number, &stored.running))
    }

    /// Removes the task with that number, so that the caller can end it.
    pub(crate) fn take(&mut self, number: u64) -> Option<(lanes::Task<()>, Running)> {
        let of_number =
            |stored: &Option<StoredTask>| stored.as_ref().is_some_and(|stored| stored.number == number);
        let key = self.tasks.iter().position(of_number)?;
        let StoredTask { task, running, .. } = self.tasks[key].take()?;
        self.free.push(key);
        Some((task, running))
    }

    /// Removes the tasks known to be reads or to wait for a slot.
    pub(crate) fn take_known(&mut self) -> Vec<lanes::Task<()>> {
        let mut known = Vec::new();
        for (key, entry) in self.tasks.iter_mut().enumerate() {
            if let Some(stored) = entry.take_if(|stored| !stored.running.is_being_opened()) {
                known.push(stored.task);
                self.free.push(key);
            }
        }
        known
    }

    /// Frees the key of a task that is about to end by itself.
    pub(crate) fn done(&mut self, key: usize) {
        // The list is empty if the connection has ended.
        if let Some(stored) = self.tasks.get_mut(key).and_then(Option::take) {
            stored.task.detach();
            self.free.push(key);
        }
    }
}
