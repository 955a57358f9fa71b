//! Columns of a scan: its text, the check that a node's rows have these columns, and the conversion of
//! a page to a batch.

use std::fmt::Write;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{Schema as ArrowSchema, SchemaRef};
use bytes::Bytes;
use columns::ColumnBuilder;
use engine::Error;
use engine::scan::{TableScan, schema_of};
use schema::CqlType;
use wire::{ColumnsRef, ReceivedRows};

use crate::catalog::ClusterTable;
use crate::scan::pushed::{Condition, Pushed};

/// Rows between two yields.
const ROWS_PER_YIELD: usize = 64;

/// Columns of a scan. The head of this file describes it.
#[derive(Debug)]
pub(crate) struct Shape {
    table: ClusterTable,
    /// Columns that nodes return: those of the batches, or else one of the key, to count rows.
    selected: Vec<usize>,
    /// Columns of the batches.
    pub(crate) schema: SchemaRef,
    scale: i8,
}

/// Statement of a scan.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ScanText {
    pub(crate) text: String,
    /// Types of its markers.
    pub(crate) markers: Vec<CqlType>,
    /// Values of the markers behind those of the partition key.
    pub(crate) conditions: Vec<Bytes>,
}

impl Shape {
    /// Creates the columns of a scan.
    ///
    /// # Errors
    /// A column does not exist.
    pub(crate) fn new(table: ClusterTable, scan: &TableScan) -> Result<Shape, Error> {
        let def = &table.def;
        let count = def.columns.len();
        let asked = scan.columns.iter().chain(scan.filters.iter().map(|filter| &filter.column));
        if let Some(column) = asked.copied().find(|column| *column >= count) {
            return Err(Error::Invalid(format!(
                "{}.{} has no column {column}: it has {count}",
                def.keyspace, def.name
            )));
        }
        let all = schema_of(def, scan.scale);
        let fields: Vec<_> = scan.columns.iter().map(|column| all.fields()[*column].clone()).collect();
        let selected = if scan.columns.is_empty() { vec![0] } else { scan.columns.clone() };
        Ok(Shape { schema: Arc::new(ArrowSchema::new(fields)), selected, scale: scan.scale, table })
    }

    /// Returns the name of the table, for messages.
    pub(crate) fn name(&self) -> String {
        format!("{}.{}", self.table.def.keyspace, self.table.def.name)
    }

    pub(crate) fn keyspace(&self) -> &str {
        &self.table.def.keyspace
    }

    /// Returns the statement of the scan: of one partition key if those are known, else of a range of
    /// tokens.
    pub(crate) fn text(&self, pushed: &Pushed) -> ScanText {
        let def = &self.table.def;
        let name = |column: &usize| quoted(&def.columns[*column].name);
        let list = |columns: &[usize]| columns.iter().map(name).collect::<Vec<_>>().join(", ");
        let key: Vec<usize> = (0..def.partition_key().count()).collect();
        let from = format!("{}.{}", quoted(&def.keyspace), quoted(&def.name));
        let mut text = format!("SELECT {} FROM {from} WHERE ", list(&self.selected));
        let mut markers: Vec<CqlType> = Vec::new();
        if pushed.keys.is_some() {
            let equal = |column: &usize| format!("{} = ?", name(column));
            text += &key.iter().map(equal).collect::<Vec<_>>().join(" AND ");
            markers.extend(key.iter().map(|column| def.columns[*column].ty.clone()));
        } else {
            let key = list(&key);
            let _ = write!(text, "token({key}) > ? AND token({key}) <= ?");
            markers.extend([CqlType::BigInt, CqlType::BigInt]);
        }
        for Condition { column, operator, .. } in &pushed.clustering {
            let _ = write!(text, " AND {} {operator} ?", name(column));
            markers.push(def.columns[*column].ty.clone());
        }
        if pushed.keys.is_none() && !pushed.clustering.is_empty() {
            // Nodes read the rows of each partition by their order all the same.
            text += " ALLOW FILTERING";
        }
        let conditions = pushed.clustering.iter().map(|condition| condition.value.clone()).collect();
        ScanText { text, markers, conditions }
    }

    /// Checks that columns of a node are those of the scan.
    ///
    /// # Errors
    /// They are not: the table was altered.
    pub(crate) fn check(&self, theirs: &ColumnsRef<'_>) -> Result<(), Error> {
        let def = &self.table.def;
        let is_own = |(column, (name, ty)): (&usize, &(&str, Option<CqlType>))| {
            let own = &def.columns[*column];
            let is_same = |ty: &CqlType| is_same(&own.ty, ty);
            own.name == *name && (self.table.is_opaque(*column) || ty.as_ref().is_some_and(is_same))
        };
        let theirs = theirs.decode_known().map_err(|error| self.unreadable(&error))?;
        match theirs.len() == self.selected.len() && self.selected.iter().zip(&theirs).all(is_own) {
            true => Ok(()),
            false => Err(self.altered()),
        }
    }

    pub(crate) fn altered(&self) -> Error {
        Error::Invalid(format!("the columns of {} have changed: run the query again", self.name()))
    }

    pub(crate) fn unreadable(&self, error: &wire::Error) -> Error {
        Error::Server(format!("a node's answer about {} cannot be read: {error}", self.name()))
    }

    /// Converts rows to a batch, on a heavy lane.
    ///
    /// # Errors
    /// A value does not fit its column: see `columns`.
    pub(crate) async fn batch(&self, rows: &ReceivedRows<'_>) -> Result<RecordBatch, Error> {
        let count = rows.len();
        let shown = self.schema.fields().len();
        let def = &self.table.def;
        let builder = |column: &usize| ColumnBuilder::new(&def.columns[*column].ty, self.scale, count);
        let mut builders: Vec<ColumnBuilder> = self.selected.iter().take(shown).map(builder).collect();
        let mut cells = rows.cells();
        if shown > 0 {
            for row in 0..count {
                for (builder, column) in builders.iter_mut().zip(&self.selected) {
                    let cell = cells.next().flatten();
                    builder.push(cell).map_err(|error| self.unfit(*column, error.into()))?;
                }
                if row % ROWS_PER_YIELD == 0 {
                    lanes::heavy_yield().await;
                }
            }
        }
        let arrays: Vec<ArrayRef> = builders.iter_mut().map(ColumnBuilder::finish).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)
            .map_err(|error| Error::Server(format!("a row of {} is damaged: {error}", self.name())))
    }

    /// Returns the error with the name of the column.
    fn unfit(&self, column: usize, error: Error) -> Error {
        let name = &self.table.def.columns[column].name;
        let with_name = |message: String| format!("column {name} of {}: {message}", self.name());
        match error {
            Error::Invalid(message) => Error::Invalid(with_name(message)),
            other => Error::Server(with_name(other.to_string())),
        }
    }
}

/// Returns a name in quotes: it may be a reserved word.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Returns true if types are the same to the protocol, which does not show `frozen`.
pub(crate) fn is_same(own: &CqlType, theirs: &CqlType) -> bool {
    let (own, theirs) = (own.thawed(), theirs.thawed());
    let has_same_names = match (own, theirs) {
        (CqlType::Udt(own), CqlType::Udt(theirs)) => {
            let names = |(own, theirs): (&(String, CqlType), &(String, CqlType))| own.0 == theirs.0;
            own.name == theirs.name && own.fields.iter().zip(&theirs.fields).all(names)
        }
        _ => own.kind_name() == theirs.kind_name(),
    };
    let (inner, of_theirs) = (own.inner(), theirs.inner());
    has_same_names
        && inner.len() == of_theirs.len()
        && inner.iter().zip(of_theirs).all(|(own, theirs)| is_same(own, theirs))
}
