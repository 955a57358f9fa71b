//! What a statement gives back.

use std::sync::Arc;

use ::schema::CqlType;
use uuid::Uuid;

/// A column of a result or a bind marker.
#[derive(Clone, PartialEq, Debug)]
pub struct ColumnSpec {
    /// The keyspace.
    pub keyspace: Arc<str>,
    /// The table.
    pub table: Arc<str>,
    /// The name the client sees.
    pub name: String,
    /// The type.
    pub ty: CqlType,
}

/// Columns, shared between a plan and its results.
pub type Columns = Arc<[ColumnSpec]>;

/// Rows, encoded as CQL's RESULT message wants them.
#[derive(Clone, PartialEq, Debug)]
pub struct Rows {
    /// The columns.
    pub columns: Columns,
    /// How many rows.
    pub count: u32,
    /// The cells, row by row, each as `[bytes]`: a big-endian `i32` length (-1 for null), then the value.
    pub cells: Vec<u8>,
    /// Where to go on, if there is more.
    pub paging_state: Option<Vec<u8>>,
}

impl Rows {
    /// No rows yet.
    pub fn new(columns: Columns) -> Rows {
        Rows { columns, count: 0, cells: Vec::new(), paging_state: None }
    }

    /// Appends a cell; the caller counts rows.
    pub fn push(&mut self, cell: Option<&[u8]>) {
        match cell {
            Some(value) => {
                let len = i32::try_from(value.len()).expect("a value is bounded by the frame it came in");
                self.cells.extend_from_slice(&len.to_be_bytes());
                self.cells.extend_from_slice(value);
            }
            None => self.cells.extend_from_slice(&(-1i32).to_be_bytes()),
        }
    }

    /// The rows as cells, for callers inside the server.
    pub fn decoded(&self) -> Vec<Vec<Option<&[u8]>>> {
        let mut at = 0;
        let mut rows = Vec::with_capacity(self.count as usize);
        for _ in 0..self.count {
            let mut row = Vec::with_capacity(self.columns.len());
            for _ in 0..self.columns.len() {
                let len = i32::from_be_bytes(self.cells[at..at + 4].try_into().expect("four bytes"));
                at += 4;
                row.push(match usize::try_from(len) {
                    Ok(len) => {
                        at += len;
                        Some(&self.cells[at - len..at])
                    }
                    Err(_) => None,
                });
            }
            rows.push(row);
        }
        rows
    }
}

/// What a schema statement changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SchemaChange {
    /// `CREATED`, `UPDATED` or `DROPPED`.
    pub change: &'static str,
    /// What kind of thing.
    pub target: SchemaTarget,
    /// Its keyspace.
    pub keyspace: String,
    /// Its name; empty for a keyspace.
    pub name: String,
    /// The identity of a table that was created or dropped: a later table of that name has another.
    pub table_id: Option<Uuid>,
}

/// The kinds of things in a schema.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the variants are the protocol's own")]
pub enum SchemaTarget {
    Keyspace,
    Table,
    Type,
}

/// The outcome of a statement.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// Done.
    Void,
    /// Rows.
    Rows(Rows),
    /// The schema changed.
    SchemaChange(SchemaChange),
}
