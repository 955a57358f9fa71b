//! Scans: the rows of one table on one core, by columns, as Arrow record batches.
//!
//! [`Engine::scan`](crate::Engine::scan) is called on a core's fast lane and takes a snapshot there, no more. What it returns may be sent
//! anywhere; it is meant to be polled on a heavy lane of the same core, where it gives way to other work by itself. A query over a
//! table asks every core: each row is on one of them.

pub mod arrow;

use std::fmt;
use std::future::Future;
use std::ops::{Bound, RangeInclusive};
use std::pin::Pin;
use std::sync::Arc;

use ::arrow_schema::{Field, Schema as ArrowSchema, SchemaRef};
use ::schema::{ColumnDef, TableDef};
use arrow_array::RecordBatch;
use bytes::Bytes;

use crate::Error;

/// A scan of one table on one core, by columns.
#[derive(Clone, PartialEq, Debug)]
pub struct TableScan {
    /// The keyspace.
    pub keyspace: String,
    /// The table; a virtual one too.
    pub table: String,
    /// The columns of the batches, in this order: places in what [`columns_of`] gives. None at all still gives counted rows.
    pub columns: Vec<usize>,
    /// Only partitions with these tokens. A virtual table has no tokens; this is not asked there.
    pub tokens: RangeInclusive<i64>,
    /// Conditions of which all hold for the rows wanted. Rows that cannot meet them *may* be left out: the caller asks again.
    pub filters: Vec<Filter>,
    /// So many rows are enough; not to be set by a caller that leaves rows out itself.
    pub limit: Option<u64>,
    /// About how many rows a batch has.
    pub batch_rows: usize,
    /// What earlier scans read of files is not looked for, and nothing is kept for later ones.
    pub bypass_cache: bool,
}

/// A condition on a column: its value is there and lies between these bounds. Equality is the same value included twice. Bounds are
/// serialized CQL values in the order of CQL (`schema::value::compare`), which for some types is not Arrow's: see
/// [`arrow::keeps_order`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Filter {
    /// The column, by its place in what [`columns_of`] gives. It need not be among those of the batches.
    pub column: usize,
    /// The lower bound.
    pub from: Bound<Bytes>,
    /// The upper bound.
    pub to: Bound<Bytes>,
}

impl Filter {
    /// The column has this value.
    pub fn equal(column: usize, value: Bytes) -> Filter {
        Filter { column, from: Bound::Included(value.clone()), to: Bound::Included(value) }
    }

    /// The value it must be, if only one is possible.
    pub fn value(&self) -> Option<&Bytes> {
        match (&self.from, &self.to) {
            (Bound::Included(from), Bound::Included(to)) if from == to => Some(from),
            _ => None,
        }
    }
}

/// What [`BatchSource::next`] returns.
pub type NextBatch<'a> = Pin<Box<dyn Future<Output = Result<Option<RecordBatch>, Error>> + Send + 'a>>;

/// A scan in progress. The snapshot was taken on the core's fast lane; batches are made wherever [`BatchSource::next`] is polled, which
/// should be a heavy lane of that core. Dropping it ends it.
pub trait BatchSource: Send {
    /// The columns asked for, in that order, named and typed as [`schema_of`] has them.
    fn schema(&self) -> SchemaRef;

    /// The next batch, never an empty one; `None` at the end.
    fn next(&mut self) -> NextBatch<'_>;

    /// From now on, rows that do not meet all of these *may* be left out too; instead of what was said here before, beside the filters of
    /// the scan. Rows of batches that are being made may still come. By itself a source makes no use of it.
    ///
    /// # Errors
    /// A bound is no value of its column.
    fn narrow(&mut self, _filters: &[Filter]) -> Result<(), Error> {
        Ok(())
    }

    /// How much is done, from 0 to 1; an estimate.
    fn progress(&self) -> f64;
}

impl fmt::Debug for dyn BatchSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchSource").field("progress", &self.progress()).finish_non_exhaustive()
    }
}

/// What is roughly in a table on one core, from the footers of its files and its memtables: rows that several of them have count
/// several times, and so do deleted ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableStatistics {
    /// Rows.
    pub rows: u64,
    /// Bytes, as they are kept: compressed in files, as they lie in memory.
    pub bytes: u64,
}

/// The columns of a table as scans number them: partition key, clustering columns, static ones, regular ones (of a virtual table, as
/// they were declared).
pub fn columns_of(def: &TableDef) -> &[ColumnDef] {
    &def.columns
}

/// The columns of a table as scans give them, all of them. The metadata of a field says its CQL type under `cql_type`.
pub fn schema_of(def: &TableDef) -> SchemaRef {
    Arc::new(ArrowSchema::new(columns_of(def).iter().map(field_of).collect::<Vec<_>>()))
}

/// A column as scans give it. Only the partition key is never null: a partition that has static columns alone shows as one row.
pub(crate) fn field_of(column: &ColumnDef) -> Field {
    let key = matches!(column.kind, ::schema::ColumnKind::PartitionKey(_));
    let metadata = [("cql_type".to_owned(), column.ty.to_string())];
    Field::new(&column.name, arrow::arrow_type(&column.ty), !key).with_metadata(metadata.into())
}
