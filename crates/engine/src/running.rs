//! `system.running_statements`: what waits for a slot, or takes longer than a piece of work, on
//! whatever front door. What is answered at once is never here, nor is a write that only waits for
//! the log. A role is shown its own statements; roles that may DESCRIBE ALL ROLES see all, so the
//! table names what a statement touches and does, and not its text, which may hold values.

use bytes::Bytes;
use schema::CqlType;

use crate::{Subject, VirtualTable};

/// What a statement is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum StatementState {
    /// It waits for a slot of its level.
    Queued,
    /// It runs.
    #[default]
    Running,
    /// It waits for its client to ask for more rows.
    Suspended,
}

/// A statement that runs or waits.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RunningStatement {
    /// The level whose shares it has.
    pub service_level: String,
    /// Its name as long as it runs: no other of the server has it.
    pub id: String,
    /// The core of its session.
    pub core: u32,
    /// Who asked.
    pub role: String,
    /// From where.
    pub client: String,
    /// What it is about.
    pub state: StatementState,
    /// Since it was read from its connection, microseconds.
    pub elapsed_us: u64,
    /// What it does, and to which tables.
    pub statement: String,
    /// How far it has come; none for statements that are not followed.
    pub progress: Option<Progress>,
}

/// How far a query has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Query memory it has, bytes.
    pub memory_bytes: u64,
    /// What it has put aside on disk so far, bytes.
    pub spilled_bytes: u64,
    /// Rows that its scans have given.
    pub rows_read: u64,
    /// Rows that they will have given when they end, roughly.
    pub rows_expected: u64,
}

fn text(text: &str) -> Option<Bytes> {
    Some(Bytes::copy_from_slice(text.as_bytes()))
}

fn number(number: u64) -> Option<Bytes> {
    Some(Bytes::copy_from_slice(&i64::try_from(number).unwrap_or(i64::MAX).to_be_bytes()))
}

impl RunningStatement {
    /// The table, for a core's registry, which adds up those of several front doors.
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
        let progress = |of: fn(&Progress) -> u64| self.progress.as_ref().and_then(|is| number(of(is)));
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
            progress(|is| is.memory_bytes),
            progress(|is| is.spilled_bytes),
            progress(|is| is.rows_read),
            progress(|is| is.rows_expected),
        ]
    }
}
