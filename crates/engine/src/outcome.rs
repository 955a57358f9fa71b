//! Results of statements.

use std::sync::Arc;

use ::schema::CqlType;
use uuid::Uuid;

use crate::Cells;

/// Column of a result, or bind marker.
#[derive(Clone, PartialEq, Debug)]
pub struct ColumnSpec {
    /// The keyspace.
    pub keyspace: Arc<str>,
    /// The table.
    pub table: Arc<str>,
    /// Name that the client sees.
    pub name: String,
    /// The type.
    pub ty: CqlType,
}

/// Columns, shared between a plan and its results.
pub type Columns = Arc<[ColumnSpec]>;

/// Rows, encoded for the RESULT message of CQL.
#[derive(Clone, PartialEq, Debug)]
pub struct ResultRows {
    /// The columns.
    pub columns: Columns,
    /// Number of rows.
    pub count: u32,
    /// Cells, row by row.
    pub cells: Cells,
    /// Start of the next page, if there are more rows.
    pub paging_state: Option<Vec<u8>>,
}

impl ResultRows {
    /// Creates a result without rows.
    pub fn new(columns: Columns) -> ResultRows {
        ResultRows { columns, count: 0, cells: Cells::default(), paging_state: None }
    }

    /// Appends a cell. The caller updates `count`.
    #[inline]
    pub fn push(&mut self, cell: Option<&[u8]>) {
        self.cells.push(cell);
    }

    /// Returns the rows as cells, for callers inside the server.
    pub fn decoded(&self) -> Vec<Vec<Option<&[u8]>>> {
        let mut cells = self.cells.iter();
        (0..self.count).map(|_| cells.by_ref().take(self.columns.len()).collect()).collect()
    }
}

/// Change by a schema statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SchemaChange {
    /// `CREATED`, `UPDATED` or `DROPPED`.
    pub change: &'static str,
    /// Kind of the changed object.
    pub target: SchemaTarget,
    /// Keyspace of the object.
    pub keyspace: String,
    /// Name of the object. Empty for a keyspace.
    pub name: String,
    /// Identity of a table that was created or dropped. A later table of the same name has another
    /// one.
    pub table_id: Option<Uuid>,
}

/// Kind of an object in the schema.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the variants are the protocol's own")]
pub enum SchemaTarget {
    Keyspace,
    Table,
    Type,
}

/// Outcome of a statement.
#[derive(Clone, PartialEq, Debug)]
pub enum StatementOutcome {
    /// Success without a result.
    Void,
    /// A result.
    Rows(ResultRows),
    /// The schema changed.
    SchemaChange(SchemaChange),
}
