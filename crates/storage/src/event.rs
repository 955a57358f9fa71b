//! Events that a shard reports to the operator of the server. Storage writes no log of its own: a
//! callback receives the events.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use units::FieldValue;

use crate::error::StorageError;
use crate::jobs::tasks::{Tally, TaskKind};
use crate::model::TableId;

/// A table in a report: its name if known, else its id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Named {
    /// The id.
    pub id: TableId,
    /// Keyspace and table, separated by a dot.
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

/// The reason why memtables are flushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlushReason {
    /// Memtables have reached their limit of memory.
    MemtableFull,
    /// Their part of the log has reached its limit.
    LogLong,
    /// The tables are hardly written to any more.
    Idle,
    /// A statement, a snapshot or a compaction requires it.
    Asked,
    /// The log of the previous run was replayed.
    Recovery,
    /// The server stops.
    Shutdown,
}

impl FlushReason {
    /// The value of the log field `reason`.
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

/// The work of a start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Recovery {
    /// Table files opened.
    pub files: u64,
    /// Log segments read.
    pub segments: u64,
    /// Log records applied.
    pub records: u64,
    /// Bytes of the segments read.
    pub bytes: u64,
    /// Duration of the recovery.
    pub duration: Duration,
}

/// An event for the server's log.
#[derive(Clone, Debug)]
pub enum Event {
    /// A flush of memtables to table files failed.
    FlushFailed {
        /// The cause.
        error: StorageError,
        /// Delay until the retry.
        again: Duration,
    },
    /// A compaction of a table failed.
    CompactionFailed {
        /// The table.
        table: Named,
        /// The cause.
        error: StorageError,
        /// Delay until the retry. `None`: not before a restart, because a damaged file stays
        /// damaged.
        again: Option<Duration>,
    },
    /// Runs of a table have a row that is too large to be compacted. Compactions leave them out,
    /// unless they are requested.
    RunsLeftOut {
        /// The table.
        table: Named,
        /// The cause.
        error: StorageError,
    },
    /// A table file is damaged. Reads that need the damaged part fail, and compactions leave the
    /// file out.
    FileDamaged {
        /// The table.
        table: Named,
        /// The damage and the path of the file.
        error: StorageError,
    },
    /// A task that others depend on panicked and left its work half done. The process must end.
    Panicked {
        /// The task: log, flush, compaction or pacing of a shard, or a schema change of the engine.
        task: &'static str,
    },
    /// The wall clock is behind the write times of the server's last run. New write times continue
    /// after those, ahead of the clock.
    ClockBehind {
        /// Distance between the clock and the last write time.
        behind: Duration,
    },
    /// Removed data of tables that no schema contains, because a crash had interrupted their drop.
    LeftoversDropped {
        /// Number of tables.
        tables: usize,
    },
    /// The data folder was split for another number of shards.
    Resharded {
        /// Previous number of shards.
        from: u32,
        /// New number of shards.
        to: u32,
    },
    /// Memtables were written to table files.
    Flushed {
        /// Number of tables with data in the memtables.
        tables: usize,
        /// The table with the largest file.
        largest: Option<Named>,
        /// Bytes of the memtables.
        memory_bytes: u64,
        /// Bytes of the table files.
        file_bytes: u64,
        /// Duration of the flush.
        duration: Duration,
        /// The reason.
        reason: FlushReason,
        /// Earlier flushes without a log line, because of the limit on lines.
        left_out: u64,
    },
    /// A compaction ended.
    Compacted {
        /// The table.
        table: Named,
        /// The kind of compaction.
        kind: TaskKind,
        /// Input and output.
        tally: Tally,
        /// Duration of the compaction.
        duration: Duration,
        /// Earlier compactions without a log line, because of the limit on lines.
        left_out: u64,
    },
    /// A shard was opened.
    Recovered {
        /// The shard.
        shard: u32,
        /// The files and records that it read.
        recovery: Recovery,
    },
    /// All shards were opened.
    RecoveredAll {
        /// Number of shards.
        shards: u32,
        /// Totals of all shards, and the duration of the slowest.
        recovery: Recovery,
    },
    /// The last batch of the log is torn, because the server ended while writing it. It was not
    /// acknowledged.
    TornTail {
        /// Path of the segment.
        segment: PathBuf,
        /// Byte offset of the batch in the segment.
        offset: u64,
        /// Size of the batch in bytes.
        bytes: u64,
    },
    /// A start found a file that nothing names, and that cannot be proven to be superseded. It was
    /// moved to the folder `aside`.
    MovedAside {
        /// The former path.
        file: PathBuf,
        /// The present path.
        aside: PathBuf,
        /// The reason.
        because: String,
    },
    /// The mark of a shard is missing or damaged. It is written anew. A manifest or log that had
    /// lost its end before was not noticed.
    MarkLost {
        /// The damage, and the path of the mark.
        error: StorageError,
    },
    /// A damaged file was rewritten without the parts that cannot be read.
    FileScrubbed {
        /// The table.
        table: Named,
        /// The damaged file, which is kept under this name.
        aside: PathBuf,
        /// Number of rows saved.
        rows_saved: u64,
        /// Number of rows lost, as far as known.
        rows_lost: u64,
    },
    /// The graph of an index on vectors was freed: the graphs of a core have reached their limit of
    /// memory. Searches compare all rows until the graph is expected to fit.
    GraphFreed {
        /// The index.
        index: Named,
        /// Memory of the graph, bytes.
        bytes: u64,
        /// Limit of the memory of all graphs of the core, bytes.
        limit: u64,
    },
    /// The graph of an index on vectors could not be saved. Further failures are not reported until
    /// a save succeeds.
    GraphNotSaved {
        /// The index.
        index: Named,
        /// The cause.
        error: String,
    },
    /// Applied writes over several cores that a crash had interrupted.
    BatchesReplayed {
        /// Writes that are applied on all cores now.
        replayed: u64,
        /// Writes that are applied later, because a core refuses writes.
        left: u64,
    },
}

impl Event {
    /// Returns true if the operator should check the event.
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

    /// Returns the text of the event, without the fields.
    pub fn phrase(&self) -> String {
        match self {
            Event::FlushFailed { error, again } => {
                format!("a flush failed and is retried in {again:?}: {error}")
            }
            Event::CompactionFailed { table, error, again: Some(again) } => {
                format!("a compaction of table {table} failed and is retried in {again:?}: {error}")
            }
            Event::CompactionFailed { table, error, again: None } => {
                format!("table {table} is not compacted before a restart: {error}")
            }
            Event::RunsLeftOut { table, error } => format!(
                "compactions leave out runs of table {table} until COMPACT is run after the cause is gone: {error}"
            ),
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
                "{left} writes over several cores stay incomplete until a core accepts writes again; \
                 {replayed} have been applied"
            ),
            Event::ClockBehind { behind } => {
                format!(
                    "the clock is {behind:?} behind the last write times; new write times continue after those, \
                     and expiry follows the clock: check the clock of this machine"
                )
            }
            Event::LeftoversDropped { tables } => {
                format!("removed leftover data of {tables} dropped tables")
            }
            Event::Resharded { from, to } => {
                format!("resharded the data folder from {from} to {to} cores")
            }
            Event::Flushed { .. } => "flush".to_owned(),
            Event::Compacted { kind, .. } => kind.name().to_owned(),
            Event::Recovered { .. } => "core recovered".to_owned(),
            Event::RecoveredAll { .. } => "recovery complete".to_owned(),
            Event::TornTail { .. } => {
                "torn tail of the log dropped; nothing in it was acknowledged".to_owned()
            }
            Event::MovedAside { because, .. } => format!(
                "a file that nothing names was moved aside: {because}; remove it, or restore a snapshot if data is \
                 missing"
            ),
            Event::MarkLost { error } => format!(
                "the mark of a core is written anew, so this start did not notice if its log or manifest had lost \
                 an end: {error}"
            ),
            Event::FileScrubbed { .. } => "damaged file written anew".to_owned(),
            Event::GraphFreed { .. } => "the graph of an index on vectors was freed, as the graphs of a core have \
                 reached their limit of memory, and searches compare all rows until it fits: raise --memory, or drop \
                 other indexes on vectors"
                .to_owned(),
            Event::GraphNotSaved { error, .. } => {
                format!("the graph of an index on vectors was not saved, and a start may build it anew: {error}")
            }
        }
    }

    /// Returns names and values of the event's fields. Empty if the text contains them.
    pub fn fields(&self) -> Vec<(&'static str, FieldValue)> {
        match self {
            Event::Flushed { tables, largest, memory_bytes, file_bytes, duration, reason, left_out } => {
                let table = largest.as_ref().map_or_else(|| "none".into(), FieldValue::text);
                let fields = vec![
                    ("table", table),
                    ("tables", (*tables).into()),
                    ("memory_bytes", (*memory_bytes).into()),
                    ("file_bytes", (*file_bytes).into()),
                    ("ms", (*duration).into()),
                    ("reason", reason.name().into()),
                ];
                with_left_out(fields, *left_out)
            }
            Event::Compacted { table, tally, duration, left_out, .. } => {
                let dropped = tally.tombstones_in.saturating_sub(tally.tombstones_out);
                let fields = vec![
                    ("table", FieldValue::text(table)),
                    ("runs", tally.runs.into()),
                    ("files_in", tally.files_in.into()),
                    ("files_out", tally.files_out.into()),
                    ("bytes_in", tally.bytes_in.into()),
                    ("bytes_out", tally.bytes_out.into()),
                    ("tombstones_dropped", dropped.into()),
                    ("ms", (*duration).into()),
                ];
                with_left_out(fields, *left_out)
            }
            Event::Recovered { shard, recovery } => recovery_fields("core", *shard, recovery),
            Event::RecoveredAll { shards, recovery } => recovery_fields("cores", *shards, recovery),
            Event::TornTail { segment, offset, bytes } => vec![
                ("segment", FieldValue::text(segment.display())),
                ("offset", (*offset).into()),
                ("bytes", (*bytes).into()),
            ],
            Event::MovedAside { file, aside, .. } => {
                vec![("file", FieldValue::text(file.display())), ("aside", FieldValue::text(aside.display()))]
            }
            Event::FileScrubbed { table, aside, rows_saved, rows_lost } => vec![
                ("table", FieldValue::text(table)),
                ("aside", FieldValue::text(aside.display())),
                ("rows_saved", (*rows_saved).into()),
                ("rows_lost", (*rows_lost).into()),
            ],
            Event::GraphFreed { index, bytes, limit } => vec![
                ("index", FieldValue::text(index)),
                ("bytes", (*bytes).into()),
                ("limit_bytes", (*limit).into()),
            ],
            Event::GraphNotSaved { index, .. } => vec![("index", FieldValue::text(index))],
            _ => Vec::new(),
        }
    }
}

fn with_left_out(
    mut fields: Vec<(&'static str, FieldValue)>,
    left_out: u64,
) -> Vec<(&'static str, FieldValue)> {
    if left_out > 0 {
        fields.push(("left_out", left_out.into()));
    }
    fields
}

fn recovery_fields(name: &'static str, value: u32, recovery: &Recovery) -> Vec<(&'static str, FieldValue)> {
    vec![
        (name, value.into()),
        ("files", recovery.files.into()),
        ("segments", recovery.segments.into()),
        ("records", recovery.records.into()),
        ("bytes", recovery.bytes.into()),
        ("seconds", FieldValue::Decimal(recovery.duration.as_secs_f64())),
    ]
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.phrase())?;
        self.fields().iter().try_for_each(|(name, value)| write!(f, " {name}={value}"))
    }
}

type Sink = dyn Fn(&Event) + Send + Sync;

/// Destination of events. The default drops them.
#[derive(Clone, Default)]
pub struct EventSink(Option<Arc<Sink>>);

impl EventSink {
    /// Calls `sink` for every event, on the lane where the event happens. It must not block.
    pub fn new(sink: impl Fn(&Event) + Send + Sync + 'static) -> EventSink {
        EventSink(Some(Arc::new(sink)))
    }

    /// Reports an event.
    pub fn send(&self, event: &Event) {
        if let Some(sink) = &self.0 {
            sink(event);
        }
    }
}

impl fmt::Debug for EventSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventSink")
    }
}
