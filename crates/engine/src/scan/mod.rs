//! Columnar scans: the rows of one table on one core, as Arrow record batches.
//!
//! [`Engine::table_snapshot`](crate::Engine::table_snapshot) and [`TableSnapshot::scan`] are called
//! on a core's fast lane, where they read nothing. The scan may be sent anywhere, but a heavy lane
//! of the same core should poll it. It yields to other work by itself. A query of a table scans all
//! cores: each row is on one of them.

pub mod arrow;

use std::cmp::Ordering;
use std::fmt;
use std::future::Future;
use std::ops::{Bound, RangeInclusive};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use ::arrow_schema::{Field, Schema as ArrowSchema, SchemaRef};
use ::schema::{ColumnDef, CqlType, TableDef, value};
use arrow_array::RecordBatch;
use bytes::Bytes;

use crate::{Error, Relation};

/// A columnar scan of one table on one core.
#[derive(Clone, PartialEq, Debug)]
pub struct TableScan {
    /// The keyspace.
    pub keyspace: String,
    /// The table, which may be virtual, or the materialized view.
    pub table: String,
    /// Columns of the batches, in this order, as indexes into [`columns_of`]. If empty, the batches
    /// still count rows.
    pub columns: Vec<usize>,
    /// Restricts the scan to partitions with these tokens: of a view, to rows of those partitions
    /// of its table. Ignored for virtual tables, which have no tokens.
    pub tokens: RangeInclusive<i64>,
    /// Conditions that all hold for the wanted rows. The scan *may* omit rows that violate them.
    /// The caller checks them again.
    pub filters: Vec<Filter>,
    /// Number of rows after which the scan may end. A caller that filters rows must not set it.
    pub limit: Option<u64>,
    /// Approximate number of rows per batch.
    pub batch_rows: usize,
    /// Scale of `decimal` values. A value that needs a larger scale is an error.
    pub scale: i8,
    /// True if the scan neither uses nor fills the scan cache of data from files.
    pub bypass_cache: bool,
    /// Estimated contents of the table on all cores. The scans of all cores have the same estimate,
    /// so that an engine may decide by it which core reads a table. `None`: unknown.
    pub expected: Option<TableStatistics>,
}

impl TableScan {
    /// Returns the Arrow schema of the batches.
    ///
    /// # Errors
    /// A column of the scan does not exist.
    pub fn schema(&self, relation: &Relation) -> Result<SchemaRef, Error> {
        let (def, all) = (&relation.def, schema_of_relation(relation, self.scale));
        let count = all.fields().len();
        let asked = self.columns.iter().chain(self.filters.iter().map(|filter| &filter.column));
        if let Some(column) = asked.copied().find(|column| *column >= count) {
            return Err(Error::Invalid(format!(
                "{}.{} has no column {column}: it has {count}",
                def.keyspace, def.name
            )));
        }
        let fields: Vec<_> = self.columns.iter().map(|column| all.fields()[*column].clone()).collect();
        Ok(Arc::new(ArrowSchema::new(fields)))
    }
}

/// Condition on a column: its value is not null and lies within these bounds. Equality has the same
/// value as both included bounds. Bounds are serialized CQL values in the order of CQL
/// (`schema::value::compare`). For some types it differs from Arrow's: see [`arrow::keeps_order`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Filter {
    /// Column, as index into [`columns_of`]. It need not be a column of the batches.
    pub column: usize,
    /// Lower bound.
    pub from: Bound<Bytes>,
    /// Upper bound.
    pub to: Bound<Bytes>,
    /// Only possible values within the bounds, if known: those of an `IN`.
    pub values: Option<Vec<Bytes>>,
}

impl Filter {
    /// Creates the condition that the column has this value.
    pub fn equal(column: usize, value: Bytes) -> Filter {
        let from = Bound::Included(value.clone());
        let to = Bound::Included(value.clone());
        Filter { column, from, to, values: Some(vec![value]) }
    }

    /// Creates the condition that the column's value lies within these bounds.
    pub fn between(column: usize, from: Bound<Bytes>, to: Bound<Bytes>) -> Filter {
        Filter { column, from, to, values: None }
    }

    /// Returns a condition that holds if one of two conditions on a column of type `ty` holds.
    /// `None`: the columns differ, or no bound remains.
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

/// Returns the wider of two bounds. `there` is the order of the wider bound relative to the other.
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

/// Snapshot of a core's part of a table, from which the table and its materialized views are read.
/// It is scanned on that core's fast lane, any number of times, and may be dropped anywhere. It
/// keeps its memory and files alive.
pub trait TableSnapshot: Send {
    /// Starts a scan of the snapshot.
    ///
    /// # Errors
    /// Returned if a column does not exist, a bound is not a value of its column, or the viewer of
    /// the snapshot may not see values of a column.
    fn scan(&self, scan: &TableScan) -> Result<Box<dyn BatchSource>, Error>;
}

impl fmt::Debug for dyn TableSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TableSnapshot")
    }
}

/// Future of [`BatchSource::next`].
pub type NextBatch<'a> = Pin<Box<dyn Future<Output = Result<Option<RecordBatch>, Error>> + Send + 'a>>;

/// A running scan. The snapshot was taken on the core's fast lane. Batches are created where
/// [`BatchSource::next`] is polled, which should be a heavy lane of that core. Dropping it ends the
/// scan.
pub trait BatchSource: Send {
    /// Returns the requested columns in order, with the names and types of [`schema_of`].
    fn schema(&self) -> SchemaRef;

    /// Returns the next batch, which is never empty. `None`: the scan has ended.
    fn next(&mut self) -> NextBatch<'_>;

    /// Pushes down dynamic filters. From now on the scan *may* also omit rows that violate one of
    /// these. They replace earlier dynamic filters, and the filters of the scan stay. Batches being
    /// created may still contain such rows. The default implementation ignores them.
    ///
    /// # Errors
    /// Returned if a bound is not a value of its column.
    fn push_down(&mut self, _filters: &[Filter]) -> Result<(), Error> {
        Ok(())
    }

    /// Returns the bytes of the batch that [`BatchSource::next`] is making, which it updates while
    /// it runs. 0 between batches. `None`: batches are small.
    fn in_making(&self) -> Option<Arc<AtomicU64>> {
        None
    }

    /// Returns the estimated progress, from 0 to 1.
    fn progress(&self) -> f64;
}

impl fmt::Debug for dyn BatchSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchSource").field("progress", &self.progress()).finish_non_exhaustive()
    }
}

/// Estimated contents of a table on one core, from its memtables and the footers of its files. Rows
/// in several of them count several times, and deleted rows count too.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableStatistics {
    /// Number of rows.
    pub rows: u64,
    /// Bytes: compressed size in files, size in memory of memtables.
    pub bytes: u64,
}

/// Returns the columns of a table in the numbering of scans: partition key, clustering, static,
/// then regular columns. Those of a virtual table are in the order of their declaration.
pub fn columns_of(def: &TableDef) -> &[ColumnDef] {
    &def.columns
}

/// Returns all columns of a table as scans with this scale ([`TableScan::scale`]) return them.
/// The field metadata `cql_type` is the CQL type.
pub fn schema_of(def: &TableDef, scale: i8) -> SchemaRef {
    let fields = columns_of(def).iter().map(|column| field_of(def, column, scale));
    Arc::new(ArrowSchema::new(fields.collect::<Vec<_>>()))
}

/// Returns all columns of a table or view as scans return them. Every column of a view may be null:
/// an empty number, which is null in SQL, may be all of its partition key.
pub fn schema_of_relation(relation: &Relation, scale: i8) -> SchemaRef {
    let schema = schema_of(&relation.def, scale);
    if relation.base.is_none() {
        return schema;
    }
    let nullable = |field: &Arc<Field>| field.as_ref().clone().with_nullable(true);
    Arc::new(ArrowSchema::new(schema.fields().iter().map(nullable).collect::<Vec<_>>()))
}

/// Returns a column as scans return it. Only partition key columns are never null: a partition with
/// static columns only is one row. A part of a composite key may be an empty value, which is null
/// in SQL. The only part of a key has at least one byte.
fn field_of(def: &TableDef, column: &ColumnDef, scale: i8) -> Field {
    let is_key = matches!(column.kind, ::schema::ColumnKind::PartitionKey(_));
    let may_be_null = !is_key || def.partition_key().count() > 1 && value::is_empty(&column.ty, &[]);
    let metadata = [("cql_type".to_owned(), column.ty.to_string())];
    Field::new(&column.name, arrow::arrow_type(&column.ty, scale), may_be_null).with_metadata(metadata.into())
}
