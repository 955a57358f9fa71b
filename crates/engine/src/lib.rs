//! Interface between the listeners and the engine that stores the data: prepare, execute, scan,
//! schema and virtual tables.
//!
//! There is one engine object per core. Only the fast lane of that core uses it, so nothing here is
//! `Send`, except for the scans ([`scan`]) that heavy lanes run.
//!
//! 1. A statement that needs only memory of this core is answered at once, without a future
//!    ([`Execution::Ready`]).
//! 2. A write to this core is applied at once. Then it waits with other writes for the log
//!    ([`Execution::Written`]).
//! 3. A statement that needs the disk, another core or a cluster is answered later
//!    ([`Execution::Pending`]).

mod cells;
mod client_session;
mod error;
mod guardrails;
mod latency;
mod memory_table;
mod metric;
mod outcome;
mod parsed;
mod running;
pub mod scan;
mod schema;
mod trace;
mod viewer;
mod virtual_table;
mod warnings;

use std::any::Any;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};

pub use cells::Cells;
pub use client_session::{
    ClientSession, ClientSoftware, SessionEncryption, SessionRequests, SessionStage, SessionStanding,
    session_rows, shortened,
};
pub use error::Error;
pub use guardrails::{GUARDRAILS, Guardrail, GuardrailSpec, Guardrails, Passed};
pub use latency::{Latencies, LatencySummary};
pub use memory_table::MemoryUsage;
pub use metric::{Measure, Metric, MetricKind, TableMeasures};
pub use outcome::{ColumnSpec, Columns, ResultRows, SchemaChange, SchemaTarget, StatementOutcome};
pub use parsed::ParsedTree;
pub use running::{QueryProgress, RunningStatement, StatementState};
pub use schema::{Keyspace, Relation, Schema};
pub use trace::{TraceNote, collect_notes, note};
pub use viewer::{About, Subject, Viewer};
pub use virtual_table::{
    ChunkedSource, LaterMeasures, LaterRows, Registry, RowChunks, RowSource, StreamedRows, VIRTUAL_KEYSPACES,
    VirtualRow, VirtualSource, VirtualTable, is_of_server,
};
pub use warnings::{Collect, Note, Warnings, Within};

/// Bound value of a request, as sent by the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value<'a> {
    /// CQL null.
    Null,
    /// Unset: the column keeps its value.
    Unset,
    /// The serialized value.
    Bytes(&'a [u8]),
}

/// Datacenter of an engine that runs on one machine: that of a Cassandra node by default.
pub const DATACENTER: &str = "datacenter1";

/// Most bytes of a page, unless the caller requests fewer.
pub const PAGE_BYTES_MAX: usize = 1 << 20;

/// Most bytes of cells that one row has in an answer. Storage reads no larger rows. A statement
/// that selects a column many times could return more.
pub const ROW_BYTES_MAX: usize = 64 << 20;

/// Most bytes of cells in one answer without pages, with or without guardrails. The protocol has
/// 256 MiB for an answer with its columns.
pub const ANSWER_BYTES_MAX: usize = 240 << 20;

/// Most bytes of names and types of the bind markers and of the result columns of one statement. A
/// short text can name a large type thousands of times.
pub const METADATA_BYTES_MAX: usize = 4 << 20;

/// Source of memory for answers.
pub trait AnswerMemory {
    /// Opens the memory of one answer. Called only for reads that may return many rows, so that
    /// short reads cost nothing.
    fn open(&self) -> Arc<dyn AnswerGrant>;
}

impl AnswerMemory for Arc<dyn AnswerGrant> {
    fn open(&self) -> Arc<dyn AnswerGrant> {
        self.clone()
    }
}

/// Memory of one answer, granted as the answer grows.
pub trait AnswerGrant: std::fmt::Debug + Send + Sync {
    /// Grants memory for an answer of `bytes` in total.
    ///
    /// # Errors
    /// [`Error::Overloaded`] if that much memory is not available, [`Error::Invalid`] if it never
    /// is.
    fn grow(&self, bytes: u64) -> Result<(), Error>;
}

/// Parameters of a statement.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// Values of the bind markers in order. The caller resolves named values.
    pub values: &'a [Value<'a>],
    /// Memory in which large values are, so that an engine can keep them without a copy. `None`:
    /// they are copied.
    pub body: Option<&'a bytes::Bytes>,
    /// Rows per page, at least 1. `None`: all rows, without pages.
    pub page_size: Option<u32>,
    /// A page ends after this many bytes of cells, but has at least one row. No effect without
    /// pages.
    pub page_bytes_max: usize,
    /// Memory for an answer. `None`: unlimited.
    pub room: Option<&'a dyn AnswerMemory>,
    /// End of the last page, from [`ResultRows::paging_state`].
    pub paging_state: Option<&'a [u8]>,
    /// Write time in microseconds since 1970. `USING TIMESTAMP` in the statement has precedence.
    pub timestamp_us: Option<i64>,
    /// Current time for TTLs in seconds since 1970, if the client specifies it (protocol v5).
    pub now_s: Option<u32>,
    /// True for a read at SERIAL or LOCAL_SERIAL. It returns durable data only, so that no crash
    /// takes back what it returned.
    pub serial: bool,
    /// Consistency level, by its name in CQL. There is one copy of the data: it changes the answers
    /// of `serial` requests alone.
    pub consistency: &'static str,
    /// Rights of the role that reads virtual tables. `None` returns all rows and is for the server
    /// itself.
    pub viewer: Option<&'a Arc<dyn Viewer>>,
}

impl Request<'_> {
    /// A request without values and pages.
    pub const EMPTY: Request<'static> = Request {
        values: &[],
        body: None,
        page_size: None,
        page_bytes_max: PAGE_BYTES_MAX,
        room: None,
        paging_state: None,
        timestamp_us: None,
        now_s: None,
        serial: false,
        consistency: "ONE",
        viewer: None,
    };
}

/// Object of a statement, for the check of permissions and for routing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StatementTarget {
    /// The keyspace.
    pub keyspace: String,
    /// Table. `None`: the statement refers to the keyspace.
    pub table: Option<String>,
    /// Permission that the statement needs on it.
    pub action: Action,
}

/// Permission needed on a target, by Cassandra's names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(missing_docs, reason = "the variants are CQL's permissions")]
pub enum Action {
    Select,
    Modify,
    Create,
    Alter,
    Drop,
}

/// A statement bound to a schema, with the engine's plan inside.
pub trait Plan {
    /// Returns the bind markers: name and type of each.
    fn binds(&self) -> &Columns;
    /// Returns the bind marker of each partition key column in order. Empty if markers do not
    /// supply all of them.
    fn partition_key_binds(&self) -> &[u16];
    /// Returns the columns of the result, if the statement returns rows.
    fn result(&self) -> Option<&Columns>;
    /// Returns the objects of the statement.
    fn targets(&self) -> &[StatementTarget];
    /// Returns true while the definitions that it was bound to are current.
    fn is_current(&self) -> bool;
    /// Returns false if its result is the same for every [`Viewer`], so that the caller need not
    /// look one up.
    fn needs_viewer(&self) -> bool {
        true
    }
    /// Returns true if the statement can answer with rows, so that it needs [`Request::room`].
    fn shows_rows(&self) -> bool {
        true
    }
    /// Returns the bytes of names and types of bind markers and result columns, at most
    /// [`METADATA_BYTES_MAX`].
    fn metadata_bytes(&self) -> usize {
        0
    }
    /// Returns the latencies of its table and kind on this core, if it is about one table.
    fn latencies(&self) -> Option<&Rc<Latencies>> {
        None
    }
    /// Returns itself, for the engine that prepared it.
    fn as_any(&self) -> &dyn Any;
}

/// Answer of [`Engine::execute`].
pub enum Execution {
    /// Result from the memory of this core.
    Ready(Result<StatementOutcome, Error>),
    /// A write that was applied on this core. It gives [`StatementOutcome::Void`] once it is
    /// acknowledged. The field is its number for [`Engine::acks`]. Numbers of later writes on the
    /// core are not lower.
    Written(u64),
    /// Result that needs the disk, another core, or several task polls. Dropping it abandons the
    /// wait. A write that was applied stays applied.
    Pending(Later),
    /// As [`Execution::Pending`], for a read of several rows. Does nothing before its first poll.
    /// From then on it holds up to `bytes` of rows in addition to those that its answer's grant
    /// counts. The caller bounds the sum.
    Reading {
        /// The result.
        later: Later,
        /// Most bytes of rows in hand.
        bytes: usize,
        /// Rows that it has read so far.
        reads: Arc<Reads>,
    },
}

/// Rows that a statement has read so far on all cores, whether they are part of its answer or not.
/// The pages of a statement are counted together.
#[derive(Debug, Default)]
pub struct Reads {
    rows: AtomicU64,
    bytes: AtomicU64,
}

impl Reads {
    /// Creates the count of a statement whose earlier pages have read these rows and bytes.
    #[must_use]
    pub fn after(rows: u64, bytes: u64) -> Reads {
        Reads { rows: AtomicU64::new(rows), bytes: AtomicU64::new(bytes) }
    }

    /// Adds rows that were read.
    pub fn add(&self, rows: u64, bytes: u64) {
        self.rows.fetch_add(rows, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// Returns the rows and bytes so far, and counts from zero again.
    #[must_use]
    pub fn take(&self) -> (u64, u64) {
        (self.rows.swap(0, Relaxed), self.bytes.swap(0, Relaxed))
    }

    /// Returns the number of rows.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows.load(Relaxed)
    }

    /// Returns the bytes of the rows.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }
}

/// Result of an [`Execution`] that comes later.
pub type Later = Pin<Box<dyn Future<Output = Result<StatementOutcome, Error>>>>;

impl Execution {
    /// Waits for the outcome. `engine` must be the engine that executed the statement.
    pub async fn outcome(self, engine: &dyn Engine) -> Result<StatementOutcome, Error> {
        match self {
            Execution::Ready(result) => result,
            Execution::Written(write) => {
                let mut acks = engine.acks();
                poll_fn(|cx| acks.poll_acked(write, cx)).await?;
                Ok(StatementOutcome::Void)
            }
            Execution::Pending(later) | Execution::Reading { later, .. } => later.await,
        }
    }
}

/// Acknowledgements of the writes of one writer, for instance a session.
pub trait Acks {
    /// Returns ready once the write with this number is acknowledged. A writer polls its oldest
    /// write, and is woken when that is done. Mostly several later writes are then done too, and
    /// polling them is cheap.
    ///
    /// # Errors
    /// Returned if this write may be lost. Other writes may still succeed.
    fn poll_acked(&mut self, write: u64, cx: &mut Context<'_>) -> Poll<Result<(), Error>>;
}

/// Kind of a BATCH.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the variants are CQL's own")]
pub enum BatchKind {
    Logged,
    Unlogged,
    Counter,
}

/// Called after a change of the schema. The statement is answered when the future is done.
pub type SchemaListener = Rc<dyn Fn(&SchemaChange) -> Pin<Box<dyn Future<Output = ()>>>>;

/// Future of a plan.
pub type Prepared = Pin<Box<dyn Future<Output = Result<Rc<dyn Plan>, Error>>>>;

/// Engine of one core. Work runs in the group of the calling task.
pub trait Engine {
    /// Binds a statement to the schema. `keyspace` is that of the session, for names without one.
    /// Supports SELECT, INSERT, UPDATE, DELETE, BATCH, TRUNCATE, and definitions of keyspaces,
    /// tables and types. Any other statement is [`Error::Invalid`].
    fn prepare(&self, statement: Arc<ParsedTree>, keyspace: Option<&str>) -> Result<Rc<dyn Plan>, Error>;

    /// Does the same as [`Engine::prepare`] for a long statement, which would block the fast lane
    /// for too long.
    fn prepare_long(&self, statement: Arc<ParsedTree>, keyspace: Option<&str>) -> Prepared {
        Box::pin(std::future::ready(self.prepare(statement, keyspace)))
    }

    /// Executes a plan of this engine.
    fn execute(&self, plan: &Rc<dyn Plan>, request: &Request<'_>) -> Execution;

    /// Executes several writes as one batch (BATCH message of the protocol).
    fn execute_batch(
        &self,
        kind: BatchKind,
        parts: &[(Rc<dyn Plan>, &[Value<'_>])],
        request: &Request<'_>,
    ) -> Execution;

    /// Creates the acknowledgements of a writer on this core ([`Execution::Written`]).
    fn acks(&self) -> Box<dyn Acks>;

    /// Returns the current schema of this core.
    fn schema(&self) -> Arc<Schema>;

    /// Registers a listener, called on this core after each change of the schema on any core.
    fn on_schema_change(&self, listener: SchemaListener);

    /// Returns the virtual tables of this core. Other crates add theirs.
    fn registry(&self) -> &Registry;

    /// Returns the virtual tables that scans of this engine read: by default all of the registry.
    fn scanned_virtual_tables(&self) -> Vec<Arc<::schema::TableDef>> {
        self.registry().all().into_iter().map(|table| table.def).collect()
    }

    /// Takes a snapshot of this core's part of a table, or of the table of a materialized view. It
    /// does not contain later writes. Taking it is cheap.
    ///
    /// # Errors
    /// Returned if the table or view does not exist, or the engine has no scans.
    fn table_snapshot(&self, keyspace: &str, table: &str) -> Result<Box<dyn scan::TableSnapshot>, Error> {
        self.table_snapshot_for(keyspace, table, None)
    }

    /// Does the same for a role. The snapshot of a virtual table has only rows that are visible to
    /// it.
    ///
    /// # Errors
    /// Those of [`Engine::table_snapshot`].
    fn table_snapshot_for(
        &self,
        keyspace: &str,
        table: &str,
        viewer: Option<&Arc<dyn Viewer>>,
    ) -> Result<Box<dyn scan::TableSnapshot>, Error> {
        let _ = viewer;
        Err(Error::Invalid(format!("This engine does not scan {keyspace}.{table} by columns")))
    }

    /// Scans a new snapshot of this core's part of a table by columns.
    ///
    /// # Errors
    /// Those of [`Engine::table_snapshot`] and [`scan::TableSnapshot::scan`].
    fn scan(&self, scan: &scan::TableScan) -> Result<Box<dyn scan::BatchSource>, Error> {
        self.table_snapshot(&scan.keyspace, &scan.table)?.scan(scan)
    }

    /// Returns estimates of the contents of a table on this core. `None`: the table does not exist,
    /// or no estimates are available.
    fn statistics(&self, _keyspace: &str, _table: &str) -> Option<scan::TableStatistics> {
        None
    }

    /// Returns true if this core refuses all writes, because one failed or the disk is full.
    fn refuses_writes(&self) -> bool {
        false
    }

    /// Returns the metrics of this core's part of the engine, always the same ones in the same
    /// order. Empty for an engine without metrics.
    fn metrics(&self) -> Vec<Measure> {
        Vec::new()
    }
}
