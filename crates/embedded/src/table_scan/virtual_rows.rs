//! Scans of virtual tables. The rows are made on the fast lane, where they come from; their columns elsewhere.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;
use engine::scan::arrow::ColumnBuilder;
use engine::scan::{BatchSource, NextBatch, TableScan, TableSnapshot};
use engine::{Error, Viewer, VirtualRow, VirtualTable};
use schema::{CqlType, TableDef};

use super::{batch_rows, schema_of_scan};

struct VirtualBatches {
    schema: SchemaRef,
    /// The columns by their place in a row.
    columns: Vec<(usize, CqlType)>,
    decimals: i8,
    rows: Arc<[VirtualRow]>,
    /// The places of those that are still to be given.
    left: Range<usize>,
    batch_rows: usize,
}

/// What this core had of a virtual table.
pub(super) struct VirtualSnapshot {
    def: Arc<TableDef>,
    rows: Arc<[VirtualRow]>,
}

impl VirtualSnapshot {
    /// Of a table that is alike on all cores, core 0 has the rows.
    pub(super) fn of(table: &VirtualTable, viewer: Option<&dyn Viewer>) -> VirtualSnapshot {
        let mut rows = match table.of_every_core || lanes::current_core() == 0 {
            true => (table.rows)(),
            false => Vec::new(),
        };
        table.show(viewer, &mut rows);
        VirtualSnapshot { def: table.def.clone(), rows: rows.into() }
    }
}

impl TableSnapshot for VirtualSnapshot {
    fn scan(&self, scan: &TableScan) -> Result<Box<dyn BatchSource>, Error> {
        let schema = schema_of_scan(&self.def, scan)?;
        let limit = scan.limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
        let columns = scan.columns.iter().map(|at| (*at, self.def.columns[*at].ty.clone())).collect();
        let left = 0..self.rows.len().min(limit);
        let (rows, batch_rows) = (self.rows.clone(), batch_rows(scan));
        Ok(Box::new(VirtualBatches { schema, columns, decimals: scan.decimals, rows, left, batch_rows }))
    }
}

impl VirtualBatches {
    async fn batch(&mut self) -> Result<Option<RecordBatch>, Error> {
        lanes::heavy_yield().await;
        let end = self.left.end.min(self.left.start.saturating_add(self.batch_rows));
        let rows = &self.rows[self.left.start..end];
        self.left.start = end;
        if rows.is_empty() {
            return Ok(None);
        }
        let column = |(at, ty): &(usize, CqlType)| {
            let mut column = ColumnBuilder::new(ty, self.decimals, rows.len());
            rows.iter().try_for_each(|row| column.push(row[*at].as_deref()))?;
            Ok(column.finish())
        };
        let arrays: Vec<ArrayRef> = self.columns.iter().map(column).collect::<Result<_, Error>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options);
        batch.map(Some).map_err(|error| Error::Server(format!("a row of a virtual table is wrong: {error}")))
    }
}

impl BatchSource for VirtualBatches {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn next(&mut self) -> NextBatch<'_> {
        Box::pin(self.batch())
    }

    fn progress(&self) -> f64 {
        if self.left.is_empty() { 1.0 } else { self.left.start as f64 / self.left.end as f64 }
    }
}
