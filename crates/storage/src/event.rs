//! What a shard has to say to whoever runs the server. Storage has no log of its own, so a call-back carries it to one.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::background::reports::Recovery;
use crate::compaction::tasks::{Tally, TaskKind};
use crate::error::StorageError;
use crate::model::TableId;

/// A table in a report: by its name where that is known, else by its number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Named {
    /// The number.
    pub id: TableId,
    /// Keyspace and table, with a dot in between.
    pub name: Option<Arc<str>>,
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => f.write_str(name),
            None => write!(f, "{:032x}", self.id.0),
        }
    }
}

/// The reason for which memtables are flushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlushReason {
    /// They take as much memory as they may.
    MemtableFull,
    /// Their part of the log is as long as it may be.
    LogLong,
    /// Next to nothing is written any more.
    Idle,
    /// A statement, a snapshot or a compaction needs it.
    Asked,
    /// The log of the last run was replayed.
    Recovery,
    /// The server stops.
    Shutdown,
}

impl FlushReason {
    /// The reason in the log.
    pub fn name(self) -> &'static str {
        match self {
            FlushReason::MemtableFull => "memtable-full",
            FlushReason::LogLong => "log-long",
            FlushReason::Idle => "idle",
            FlushReason::Asked => "asked",
            FlushReason::Recovery => "recovery",
            FlushReason::Shutdown => "shutdown",
        }
    }
}

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
        table: Named,
        /// Why.
        error: StorageError,
        /// When it is tried again; `None`: after a restart, for what is damaged stays so.
        again: Option<Duration>,
    },
    /// A table file is damaged. Reads that need what cannot be read fail, and compactions leave it out.
    FileDamaged {
        /// The table.
        table: Named,
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
    /// Memtables were written to table files.
    Flushed {
        /// How many tables had something in them.
        tables: usize,
        /// The table with the largest file.
        largest: Option<Named>,
        /// Bytes of memtables.
        memory_bytes: u64,
        /// Bytes of table files.
        file_bytes: u64,
        /// How long it took.
        duration: Duration,
        /// Why.
        reason: FlushReason,
        /// Flushes before it that have no line, because there were too many.
        left_out: u64,
    },
    /// Files were merged.
    Compacted {
        /// The table.
        table: Named,
        /// The kind of merge.
        kind: TaskKind,
        /// What went in and came out.
        tally: Tally,
        /// How long it took.
        duration: Duration,
        /// Merges before it that have no line, because there were too many.
        left_out: u64,
    },
    /// A shard was opened.
    Recovered {
        /// The shard.
        shard: u32,
        /// What it read.
        recovery: Recovery,
    },
    /// All shards were opened.
    RecoveredAll {
        /// How many.
        shards: u32,
        /// What they read together, and how long the slowest took.
        recovery: Recovery,
    },
    /// The last batch of the log was written in part when the server ended. It was not acknowledged.
    TornTail {
        /// The file of the segment.
        segment: PathBuf,
        /// Its place there.
        offset: u64,
        /// Its bytes.
        bytes: u64,
    },
    /// A damaged file was written anew, without what cannot be read.
    FileScrubbed {
        /// The table.
        table: Named,
        /// The damaged file, which stays under this name.
        aside: PathBuf,
        /// Rows that were saved.
        rows_saved: u64,
        /// Rows that are lost, as far as it is known.
        rows_lost: u64,
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
        !matches!(
            self,
            E::Resharded { .. }
                | E::LeftoversDropped { .. }
                | E::BatchesReplayed { left: 0, .. }
                | E::Flushed { .. }
                | E::Compacted { .. }
                | E::Recovered { .. }
                | E::RecoveredAll { .. }
        )
    }

    /// The event in words, without the fields.
    pub fn phrase(&self) -> String {
        match self {
            Event::FlushFailed { error, again } => {
                format!("a flush failed and is tried again in {again:?}: {error}")
            }
            Event::CompactionFailed { table, error, again: Some(again) } => {
                format!("a merge of table {table} failed and is tried again in {again:?}: {error}")
            }
            Event::CompactionFailed { table, error, again: None } => {
                format!("table {table} is not merged any more before a restart: {error}")
            }
            Event::FileDamaged { table, error } => {
                format!("a file of table {table} is damaged, and compactions leave it out: {error}")
            }
            Event::Panicked { task } => {
                format!("background task failed: {task}; the server stops, as its work stays half done")
            }
            Event::BatchesReplayed { replayed, left: 0 } => {
                format!("{replayed} writes over several cores that were interrupted have been applied")
            }
            Event::BatchesReplayed { replayed, left } => format!(
                "{left} writes over several cores stay incomplete until the next start, as a core refuses \
                 writes; {replayed} have been applied"
            ),
            Event::ClockBehind { behind } => {
                format!(
                    "the clock is {behind:?} behind the last write times; new write times go on from those, \
                     and expiry follows the clock: check the clock of this machine"
                )
            }
            Event::LeftoversDropped { tables } => {
                format!("data of {tables} dropped tables was left over, and has been removed")
            }
            Event::Resharded { from, to } => {
                format!("the data folder was split anew, for {to} cores instead of {from}")
            }
            Event::Flushed { .. } => "flush".to_owned(),
            Event::Compacted { kind, .. } => kind.name().to_owned(),
            Event::Recovered { .. } => "core recovered".to_owned(),
            Event::RecoveredAll { .. } => "recovery complete".to_owned(),
            Event::TornTail { .. } => {
                "torn tail of the log dropped; nothing in it was acknowledged".to_owned()
            }
            Event::FileScrubbed { .. } => "damaged file written anew".to_owned(),
        }
    }

    /// Names and values of the event's fields; none where the words have them.
    pub fn fields(&self) -> Vec<(&'static str, String)> {
        match self {
            Event::Flushed { tables, largest, memory_bytes, file_bytes, duration, reason, left_out } => {
                let table = largest.as_ref().map_or_else(|| "none".to_owned(), Named::to_string);
                let fields = vec![
                    ("table", table),
                    ("tables", tables.to_string()),
                    ("memory_bytes", memory_bytes.to_string()),
                    ("file_bytes", file_bytes.to_string()),
                    ("ms", duration.as_millis().to_string()),
                    ("reason", reason.name().to_owned()),
                ];
                with_left_out(fields, *left_out)
            }
            Event::Compacted { table, tally, duration, left_out, .. } => {
                let dropped = tally.tombstones_in.saturating_sub(tally.tombstones_out);
                let fields = vec![
                    ("table", table.to_string()),
                    ("runs", tally.runs.to_string()),
                    ("files_in", tally.files_in.to_string()),
                    ("files_out", tally.files_out.to_string()),
                    ("bytes_in", tally.bytes_in.to_string()),
                    ("bytes_out", tally.bytes_out.to_string()),
                    ("tombstones_dropped", dropped.to_string()),
                    ("ms", duration.as_millis().to_string()),
                ];
                with_left_out(fields, *left_out)
            }
            Event::Recovered { shard, recovery } => recovery_fields(("core", *shard), recovery),
            Event::RecoveredAll { shards, recovery } => recovery_fields(("cores", *shards), recovery),
            Event::TornTail { segment, offset, bytes } => vec![
                ("segment", segment.display().to_string()),
                ("offset", offset.to_string()),
                ("bytes", bytes.to_string()),
            ],
            Event::FileScrubbed { table, aside, rows_saved, rows_lost } => vec![
                ("table", table.to_string()),
                ("aside", aside.display().to_string()),
                ("rows_saved", rows_saved.to_string()),
                ("rows_lost", rows_lost.to_string()),
            ],
            _ => Vec::new(),
        }
    }
}

fn with_left_out(mut fields: Vec<(&'static str, String)>, left_out: u64) -> Vec<(&'static str, String)> {
    if left_out > 0 {
        fields.push(("left_out", left_out.to_string()));
    }
    fields
}

fn recovery_fields((name, value): (&'static str, u32), recovery: &Recovery) -> Vec<(&'static str, String)> {
    vec![
        (name, value.to_string()),
        ("files", recovery.files.to_string()),
        ("segments", recovery.segments.to_string()),
        ("records", recovery.records.to_string()),
        ("bytes", recovery.bytes.to_string()),
        ("seconds", format!("{:.3}", recovery.duration.as_secs_f64())),
    ]
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.phrase())?;
        self.fields().iter().try_for_each(|(name, value)| write!(f, " {name}={value}"))
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
