//! The contract between the front doors and whatever holds the data: prepare, execute, scan, schema, virtual tables.
//!
//! There is one engine object a core; it is used from that core's fast lane only, so nothing here is `Send` but the
//! scans ([`scan`]) that it hands out for heavy lanes.
//! What can be answered from memory on this core is answered at once, without a future. A write to this core is done at once too,
//! and waits with others for the log ([`Execution::Written`]). An engine that needs another core or a cluster asks by message,
//! and says so with [`Execution::Pending`].

mod client_session;
mod error;
mod guardrails;
mod latency;
mod memory_table;
mod metric;
mod outcome;
mod running;
pub mod scan;
mod schema;
pub mod system_schema;
mod viewer;
mod virtual_table;
mod warnings;

use std::any::Any;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

pub use client_session::{ClientSession, SessionStage, session_rows, shortened};
pub use error::Error;
pub use guardrails::{GUARDRAILS, Guardrail, GuardrailSpec, Guardrails, Passed};
pub use latency::{Latencies, LatencySummary};
pub use memory_table::HeldMemory;
pub use metric::{Measure, Metric, MetricKind, TableMeasures};
pub use outcome::{ColumnSpec, Columns, Outcome, Rows, SchemaChange, SchemaTarget};
pub use running::{Progress, RunningStatement, StatementState};
pub use schema::{Keyspace, Schema};
pub use viewer::{About, Subject, Viewer};
pub use virtual_table::{
    ChunkedSource, LaterMeasures, LaterRows, Registry, RowSource, Source, VirtualRow, VirtualTable,
};
pub use warnings::{Collect, Warnings, Within};

/// A bound value of a request, as the client sent it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value<'a> {
    /// CQL's null.
    Null,
    /// Not set: the column stays as it is.
    Unset,
    /// The serialized value.
    Bytes(&'a [u8]),
}

/// The most bytes of a page, where the caller does not want fewer.
pub const PAGE_BYTES_MAX: usize = 1 << 20;

/// Gives memory to answers without pages.
pub trait AnswerMemory {
    /// Memory for one answer. Called for reads that may have many rows only, so that short ones cost nothing.
    fn open(&self) -> Arc<dyn AnswerRoom>;
}

impl AnswerMemory for Arc<dyn AnswerRoom> {
    fn open(&self) -> Arc<dyn AnswerRoom> {
        self.clone()
    }
}

/// Memory for one answer, granted as the answer grows.
pub trait AnswerRoom: std::fmt::Debug + Send + Sync {
    /// Grants that the answer has `bytes` bytes in all.
    ///
    /// # Errors
    /// [`Error::Overloaded`]: there is no room for so many.
    fn grow(&self, bytes: u64) -> Result<(), Error>;
}

/// What comes with a statement beside its text.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The values of the bind markers, in their order. Named values are put into order by the caller.
    pub values: &'a [Value<'a>],
    /// Rows a page, at least 1; `None` is all.
    pub page_size: Option<u32>,
    /// Bytes of cells after which a page ends, however many rows it has; a page has one row at least. Not for answers without pages.
    pub page_bytes_max: usize,
    /// Memory for an answer without pages; `None` grants it all.
    pub room: Option<&'a dyn AnswerMemory>,
    /// Where the last page ended: what [`Rows::paging_state`] gave.
    pub paging_state: Option<&'a [u8]>,
    /// The write time, microseconds since 1970, unless the statement says `USING TIMESTAMP`.
    pub timestamp_us: Option<i64>,
    /// "Now" for expiry, seconds since 1970, where the client says so (protocol v5).
    pub now_s: Option<u32>,
    /// A read at SERIAL or LOCAL_SERIAL: it shows what is durable, so that no crash takes it back.
    pub serial: bool,
    /// Decides which rows of virtual tables are returned; `None`, for the server itself, is all.
    pub viewer: Option<&'a Arc<dyn Viewer>>,
}

impl Request<'_> {
    /// No values, one page.
    pub const EMPTY: Request<'static> = Request {
        values: &[],
        page_size: None,
        page_bytes_max: PAGE_BYTES_MAX,
        room: None,
        paging_state: None,
        timestamp_us: None,
        now_s: None,
        serial: false,
        viewer: None,
    };
}

/// What a statement touches, so that the caller can check rights and route.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// The keyspace.
    pub keyspace: String,
    /// The table; `None` for a statement about a keyspace.
    pub table: Option<String>,
    /// What the statement does there.
    pub action: Action,
}

/// The rights a statement needs on its target, by Cassandra's names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the variants are CQL's permissions")]
pub enum Action {
    Select,
    Modify,
    Create,
    Alter,
    Drop,
}

/// A statement bound to a schema. It holds the engine's own plan inside.
pub trait Plan {
    /// The bind markers: name and type of each.
    fn binds(&self) -> &Columns;
    /// For each partition-key column in order, the bind marker that gives it; empty where not all are given by markers.
    fn partition_key_binds(&self) -> &[u16];
    /// The result's columns, where the statement returns rows.
    fn result(&self) -> Option<&Columns>;
    /// What the statement touches.
    fn targets(&self) -> &[Target];
    /// Whether the definitions it was bound to still stand.
    fn is_current(&self) -> bool;
    /// Returns false if what it shows is the same for every [`Viewer`], so that none has to be looked up.
    fn needs_viewer(&self) -> bool {
        true
    }
    /// The latencies of its table and kind on this core, where it is about one table.
    fn latencies(&self) -> Option<&Rc<Latencies>> {
        None
    }
    /// For the engine that made it.
    fn as_any(&self) -> &dyn Any;
}

/// The answer of [`Engine::execute`]: at once, or later.
pub enum Execution {
    /// Answered from memory on this core.
    Ready(Result<Outcome, Error>),
    /// A write that was applied on this core and gives [`Outcome::Void`] once it counts; its number, to be asked for with
    /// [`Engine::acks`]. Later writes of a core have no lower ones.
    Written(u64),
    /// Needs the disk, another core, or more than one piece of work. Dropping it abandons the wait;
    /// a write that was applied stays applied.
    Pending(Pin<Box<dyn Future<Output = Result<Outcome, Error>>>>),
}

impl Execution {
    /// Waits for the outcome. `engine` is the one that gave it.
    pub async fn outcome(self, engine: &dyn Engine) -> Result<Outcome, Error> {
        match self {
            Execution::Ready(result) => result,
            Execution::Written(write) => {
                let mut acks = engine.acks();
                poll_fn(|cx| acks.poll_acked(write, cx)).await?;
                Ok(Outcome::Void)
            }
            Execution::Pending(future) => future.await,
        }
    }
}

/// How far the writes of one writer (a session, say) have come.
pub trait Acks {
    /// Whether the write with this number counts. A writer asks for its oldest, and is woken when that one is done, which most
    /// often means that many are: asking for those then costs little.
    ///
    /// # Errors
    /// This write may be lost. Others may still succeed.
    fn poll_acked(&mut self, write: u64, cx: &mut Context<'_>) -> Poll<Result<(), Error>>;
}

/// The kind of a BATCH.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the variants are CQL's own")]
pub enum BatchKind {
    Logged,
    Unlogged,
    Counter,
}

/// Hears of a change of the schema. The change's statement is answered when the future is done.
pub type SchemaListener = Rc<dyn Fn(&SchemaChange) -> Pin<Box<dyn Future<Output = ()>>>>;

/// A statement that is being bound, with its plan.
pub type Prepared = Pin<Box<dyn Future<Output = (Rc<cql::Statement>, Result<Rc<dyn Plan>, Error>)>>>;

/// An engine, on one core. Work is done in the group of the calling task.
pub trait Engine {
    /// Binds a statement to the schema. `keyspace` is the session's, for names without one.
    /// Handles SELECT, INSERT, UPDATE, DELETE, BATCH, TRUNCATE, and the definition of keyspaces, tables and types;
    /// anything else is [`Error::Invalid`].
    fn prepare(&self, statement: Rc<cql::Statement>, keyspace: Option<&str>) -> Result<Rc<dyn Plan>, Error>;

    /// As [`Engine::prepare`], for a statement so long that binding it would hold up the fast lane. Gives the statement back too.
    fn prepare_long(&self, statement: cql::Statement, keyspace: Option<&str>) -> Prepared {
        let statement = Rc::new(statement);
        let plan = self.prepare(statement.clone(), keyspace);
        Box::pin(std::future::ready((statement, plan)))
    }

    /// Runs a plan that this engine made.
    fn execute(&self, plan: &Rc<dyn Plan>, request: &Request<'_>) -> Execution;

    /// Runs several writes as one batch (the protocol's BATCH message).
    fn execute_batch(
        &self,
        kind: BatchKind,
        parts: &[(Rc<dyn Plan>, &[Value<'_>])],
        request: &Request<'_>,
    ) -> Execution;

    /// For one who has writes in flight on this core ([`Execution::Written`]).
    fn acks(&self) -> Box<dyn Acks>;

    /// The schema as it stands on this core.
    fn schema(&self) -> Arc<Schema>;

    /// Called on this core after each change of the schema, with what changed, wherever it was made.
    fn on_schema_change(&self, listener: SchemaListener);

    /// The virtual tables of this core, to which the rooms above add theirs.
    fn registry(&self) -> &Registry;

    /// What this core has of a table, now: what is written later does not show. Taking it is quick.
    ///
    /// # Errors
    /// There is no such table, or the engine has no scans.
    fn table_snapshot(&self, keyspace: &str, table: &str) -> Result<Box<dyn scan::TableSnapshot>, Error> {
        self.table_snapshot_for(keyspace, table, None)
    }

    /// The same, for a role: of a virtual table, only the rows that it is shown.
    ///
    /// # Errors
    /// As those of [`Engine::table_snapshot`].
    fn table_snapshot_for(
        &self,
        keyspace: &str,
        table: &str,
        viewer: Option<&Arc<dyn Viewer>>,
    ) -> Result<Box<dyn scan::TableSnapshot>, Error> {
        let _ = viewer;
        Err(Error::Invalid(format!("This engine does not scan {keyspace}.{table} by columns")))
    }

    /// A scan by columns of what this core has of a table, now.
    ///
    /// # Errors
    /// As those of [`Engine::table_snapshot`] and [`scan::TableSnapshot::scan`].
    fn scan(&self, scan: &scan::TableScan) -> Result<Box<dyn scan::BatchSource>, Error> {
        self.table_snapshot(&scan.keyspace, &scan.table)?.scan(scan)
    }

    /// What is roughly in a table on this core; `None` where there is no such table or nobody knows.
    fn statistics(&self, _keyspace: &str, _table: &str) -> Option<scan::TableStatistics> {
        None
    }

    /// Returns true if this core refuses all writes, since one failed or until there is space on the disk.
    fn refuses_writes(&self) -> bool {
        false
    }

    /// What this core's part of the engine counts about itself, always the same metrics in the same order. An engine that
    /// counts nothing says nothing.
    fn metrics(&self) -> Vec<Measure> {
        Vec::new()
    }
}
