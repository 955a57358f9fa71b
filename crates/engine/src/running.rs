//! `system.running_statements`: statements of all listeners that wait for a slot, or take longer
//! than one task poll. Statements that are answered at once are never listed, nor are writes that
//! only wait for the log. A role sees its own statements. A role that may DESCRIBE ALL ROLES sees
//! all. The table shows a CQL statement as text, with `?` for values, and an SQL query as its
//! tables.

use bytes::Bytes;
use schema::CqlType;

use crate::{Subject, VirtualTable};

/// State of a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum StatementState {
    /// Waiting for a slot of its level.
    Queued,
    /// Running.
    #[default]
    Running,
    /// Waiting for its client to request more rows, or for the end of an overload of the server.
    Suspended,
}

/// A running or waiting statement.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RunningStatement {
    /// Level whose shares it uses.
    pub service_level: String,
    /// Identifier, unique in the server while the statement runs.
    pub id: String,
    /// Core of its session.
    pub core: u32,
    /// Role of the session.
    pub role: String,
    /// Address of the client.
    pub client: String,
    /// State.
    pub state: StatementState,
    /// Time since it was read from its connection, microseconds.
    pub elapsed_us: u64,
    /// Text of the statement without its values, or its kind and tables.
    pub statement: String,
    /// Rows that it has read so far. `None`: statements of this kind do not report it.
    pub rows_read: Option<u64>,
    /// Progress of a query. `None`: statements of this kind do not report it.
    pub progress: Option<QueryProgress>,
}

/// Progress of a query.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueryProgress {
    /// Query memory in use, bytes.
    pub memory_bytes: u64,
    /// Bytes spilled to disk so far.
    pub spilled_bytes: u64,
    /// Estimate of the rows that its scans return in total.
    pub rows_expected: u64,
}

fn text(text: &str) -> Option<Bytes> {
    Some(Bytes::copy_from_slice(text.as_bytes()))
}

fn number(number: u64) -> Option<Bytes> {
    Some(Bytes::copy_from_slice(&i64::try_from(number).unwrap_or(i64::MAX).to_be_bytes()))
}

impl RunningStatement {
    /// Creates the table for the registry of a core, which concatenates the rows of several
    /// listeners.
    pub fn table(statements: impl Fn() -> Vec<RunningStatement> + 'static) -> VirtualTable {
        use CqlType::{BigInt, Int, Text};
        let columns = [
            ("service_level", Text),
            ("id", Text),
            ("core", Int),
            ("role", Text),
            ("client", Text),
            ("state", Text),
            ("elapsed_us", BigInt),
            ("statement", Text),
            ("memory_bytes", BigInt),
            ("spilled_bytes", BigInt),
            ("rows_read", BigInt),
            ("rows_expected", BigInt),
        ];
        let rows = move || statements().iter().map(RunningStatement::row).collect();
        VirtualTable::new("system", "running_statements", 1, 1, &columns, rows)
            .of_every_core()
            .about(Subject::Role(3))
    }

    fn row(&self) -> Vec<Option<Bytes>> {
        let progress =
            |field: fn(&QueryProgress) -> u64| self.progress.as_ref().and_then(|it| number(field(it)));
        vec![
            text(&self.service_level),
            text(&self.id),
            Some(Bytes::copy_from_slice(&self.core.to_be_bytes())),
            text(&self.role),
            text(&self.client),
            text(match self.state {
                StatementState::Queued => "queued",
                StatementState::Running => "running",
                StatementState::Suspended => "suspended",
            }),
            number(self.elapsed_us),
            text(&self.statement),
            progress(|it| it.memory_bytes),
            progress(|it| it.spilled_bytes),
            self.rows_read.and_then(number),
            progress(|it| it.rows_expected),
        ]
    }
}
