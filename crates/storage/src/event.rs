//! What a shard has to say to whoever runs the server. Storage has no log of its own, so a call-back carries it to one.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::StorageError;
use crate::model::TableId;

/// Something worth a line in the log.
#[derive(Clone, Debug)]
pub enum Event {
    /// Memtables could not be written to table files.
    FlushFailed {
        /// Why.
        error: StorageError,
        /// When it is tried again.
        again: Duration,
    },
    /// Files of a table could not be merged.
    CompactionFailed {
        /// The table.
        table: TableId,
        /// Why.
        error: StorageError,
        /// When it is tried again; `None`: after a restart, for what is damaged stays so.
        again: Option<Duration>,
    },
    /// A table file is damaged. Reads that need what cannot be read fail, and compactions leave it out.
    FileDamaged {
        /// The table.
        table: TableId,
        /// What is wrong, and with which file.
        error: StorageError,
    },
    /// A task that others depend on panicked, and its work stays half done: the process must end.
    Panicked {
        /// The task: log, flush, compaction or pacing of a shard, or the engine's change of the schema.
        task: &'static str,
    },
    /// The wall clock is behind the write times of the server's last run: new ones go on behind those,
    /// ahead of the clock.
    ClockBehind {
        /// By how much.
        behind: Duration,
    },
    /// Data of tables that no schema names was removed: a crash had interrupted their drop.
    LeftoversDropped {
        /// How many tables.
        tables: usize,
    },
    /// The folder was split anew for another number of shards.
    Resharded {
        /// So many shards there were.
        from: u32,
        /// So many there are.
        to: u32,
    },
    /// Writes over several cores that a crash interrupted were applied at the start.
    BatchesReplayed {
        /// Applied on all cores.
        replayed: u64,
        /// Left for the next start, as a core refuses writes.
        left: u64,
    },
}

impl Event {
    /// Whether somebody should look at it.
    pub fn is_bad(&self) -> bool {
        use Event as E;
        !matches!(self, E::Resharded { .. } | E::LeftoversDropped { .. } | E::BatchesReplayed { left: 0, .. })
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::FlushFailed { error, again } => {
                write!(f, "a flush failed and is tried again in {again:?}: {error}")
            }
            Event::CompactionFailed { table, error, again: Some(again) } => {
                write!(f, "a merge of table {:032x} failed and is tried again in {again:?}: {error}", table.0)
            }
            Event::CompactionFailed { table, error, again: None } => {
                write!(f, "table {:032x} is not merged any more before a restart: {error}", table.0)
            }
            Event::FileDamaged { table, error } => {
                write!(
                    f,
                    "a file of table {:032x} is damaged, and compactions leave it out: {error}",
                    table.0
                )
            }
            Event::Panicked { task } => {
                write!(f, "background task failed: {task}; the server stops, as its work stays half done")
            }
            Event::BatchesReplayed { replayed, left: 0 } => {
                write!(f, "{replayed} writes over several cores that were interrupted have been applied")
            }
            Event::BatchesReplayed { replayed, left } => write!(
                f,
                "{left} writes over several cores stay incomplete until the next start, as a core refuses \
                 writes; {replayed} have been applied"
            ),
            Event::ClockBehind { behind } => {
                write!(
                    f,
                    "the clock is {behind:?} behind the last write times; new write times go on from those, \
                     and expiry follows the clock: check the clock of this machine"
                )
            }
            Event::LeftoversDropped { tables } => {
                write!(f, "data of {tables} dropped tables was left over, and has been removed")
            }
            Event::Resharded { from, to } => {
                write!(f, "the data folder was split anew, for {to} cores instead of {from}")
            }
        }
    }
}

type Tell = dyn Fn(&Event) + Send + Sync;

/// Who is told.
#[derive(Clone, Default)]
pub struct Teller(Option<Arc<Tell>>);

impl Teller {
    /// Calls this with every event, on the lane it happens on: it must not wait.
    pub fn new(tell: impl Fn(&Event) + Send + Sync + 'static) -> Teller {
        Teller(Some(Arc::new(tell)))
    }

    /// Reports an event.
    pub fn tell(&self, event: &Event) {
        if let Some(tell) = &self.0 {
            tell(event);
        }
    }
}

impl fmt::Debug for Teller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Teller")
    }
}
