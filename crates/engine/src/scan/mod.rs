//! Scans: the rows of one table on one core, by columns, as Arrow record batches.
//!
//! [`Engine::table_snapshot`](crate::Engine::table_snapshot) is called on a core's fast lane, and so is [`TableSnapshot::scan`]; neither reads anything
//! there. The scan may be sent anywhere; it is meant to be polled on a heavy lane of the same core, where it gives way to other work by
//! itself. A query over a table asks every core: each row is on one of them.

pub mod arrow;

use std::cmp::Ordering;
use std::fmt;
use std::future::Future;
use std::ops::{Bound, RangeInclusive};
use std::pin::Pin;
use std::sync::Arc;

use ::arrow_schema::{Field, Schema as ArrowSchema, SchemaRef};
use ::schema::{ColumnDef, CqlType, TableDef, value};
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
    /// Digits behind the point of its `decimal`s: one that has more is an error.
    pub decimals: i8,
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
    /// The only values within the bounds that it can be, where so much is known: those of an `IN`.
    pub values: Option<Vec<Bytes>>,
}

impl Filter {
    /// The column has this value.
    pub fn equal(column: usize, value: Bytes) -> Filter {
        let (from, to) = (Bound::Included(value.clone()), Bound::Included(value.clone()));
        Filter { column, from, to, values: Some(vec![value]) }
    }

    /// The column's value lies within these bounds.
    pub fn between(column: usize, from: Bound<Bytes>, to: Bound<Bytes>) -> Filter {
        Filter { column, from, to, values: None }
    }

    /// What holds for the rows for which this holds or that, if they are about the same column, of this type, and it bounds it at all.
    #[must_use]
    pub fn or(self, other: Filter, ty: &CqlType) -> Option<Filter> {
        let from = outer(ty, &self.from, &other.from, Ordering::Less);
        let to = outer(ty, &self.to, &other.to, Ordering::Greater);
        let values = self.values.zip(other.values).map(|(mut values, more)| {
            values.extend(more);
            values
        });
        let is_bounded = (&from, &to) != (&Bound::Unbounded, &Bound::Unbounded);
        (self.column == other.column && is_bounded).then_some(Filter {
            column: self.column,
            from,
            to,
            values,
        })
    }
}

/// Of two bounds the one that leaves more in, which lies there from the other.
fn outer(ty: &CqlType, one: &Bound<Bytes>, other: &Bound<Bytes>, there: Ordering) -> Bound<Bytes> {
    let (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) = (one, other)
    else {
        return Bound::Unbounded;
    };
    match value::compare(ty, a, b) {
        Ordering::Equal if matches!(one, Bound::Excluded(_)) => other.clone(),
        order if order == there || order == Ordering::Equal => one.clone(),
        _ => other.clone(),
    }
}

/// What a core had of a table when it was taken. It is to be scanned on that core's fast lane, any number of times; it may be dropped
/// anywhere. While it is kept, so is what it is made of.
pub trait TableSnapshot: Send {
    /// A scan of it.
    ///
    /// # Errors
    /// There is no such column, or a bound is no value of its column.
    fn scan(&self, scan: &TableScan) -> Result<Box<dyn BatchSource>, Error>;
}

impl fmt::Debug for dyn TableSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TableSnapshot")
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

/// The columns of a table as scans with so many [`TableScan::decimals`] give them, all of them. The metadata of a field says its CQL type under `cql_type`.
pub fn schema_of(def: &TableDef, decimals: i8) -> SchemaRef {
    let fields = columns_of(def).iter().map(|column| field_of(column, decimals));
    Arc::new(ArrowSchema::new(fields.collect::<Vec<_>>()))
}

/// A column as scans give it. Only the partition key is never null: a partition that has static columns alone shows as one row.
pub(crate) fn field_of(column: &ColumnDef, decimals: i8) -> Field {
    let key = matches!(column.kind, ::schema::ColumnKind::PartitionKey(_));
    let metadata = [("cql_type".to_owned(), column.ty.to_string())];
    Field::new(&column.name, arrow::arrow_type(&column.ty, decimals), !key).with_metadata(metadata.into())
}
