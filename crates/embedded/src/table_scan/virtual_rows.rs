//! Scans of virtual tables. The rows are made on the fast lane, where they come from; their columns elsewhere.

use std::vec::IntoIter;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;
use engine::scan::arrow::ColumnBuilder;
use engine::scan::{BatchSource, NextBatch, TableScan};
use engine::{Error, VirtualRow, VirtualTable};
use schema::CqlType;

use super::{batch_rows, schema_of_scan};

struct VirtualBatches {
    schema: SchemaRef,
    /// The columns by their place in a row.
    columns: Vec<(usize, CqlType)>,
    rows: IntoIter<VirtualRow>,
    batch_rows: usize,
    total: usize,
}

/// A scan of what this core has of a virtual table. Of one that is alike on all cores, core 0 gives the rows.
pub(super) fn scan(table: &VirtualTable, scan: &TableScan) -> Result<impl BatchSource + use<>, Error> {
    let schema = schema_of_scan(&table.def, scan)?;
    let mut rows = match table.of_every_core || lanes::current_core() == 0 {
        true => (table.rows)(),
        false => Vec::new(),
    };
    rows.truncate(scan.limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX));
    let columns = scan.columns.iter().map(|at| (*at, table.def.columns[*at].ty.clone())).collect();
    let total = rows.len();
    Ok(VirtualBatches { schema, columns, rows: rows.into_iter(), batch_rows: batch_rows(scan), total })
}

impl VirtualBatches {
    async fn batch(&mut self) -> Result<Option<RecordBatch>, Error> {
        lanes::heavy_yield().await;
        let rows: Vec<VirtualRow> = self.rows.by_ref().take(self.batch_rows).collect();
        if rows.is_empty() {
            return Ok(None);
        }
        let column = |(at, ty): &(usize, CqlType)| {
            let mut column = ColumnBuilder::new(ty, rows.len());
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
        1.0 - self.rows.len() as f64 / self.total.max(1) as f64
    }
}
