//! Scans by columns: what a [`TableScan`] asks for, put into terms of storage, and what storage gives, put into columns of CQL's types.
//!
//! 1. On the fast lane: conditions become a range of tokens, bounds over clustering keys and ranges of values (`bounds`), columns become
//!    columns of storage (`columns`), and storage takes its snapshot. No more happens there.
//! 2. Wherever the scan is polled: storage makes batches and gives way by itself. Columns of a fixed width and texts are Arrow's already,
//!    or are with a bit turned; the others (parts of keys, collections, numbers of any size) are built value by value.

pub(crate) mod bounds;
mod columns;
mod virtual_rows;

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{Schema as ArrowSchema, SchemaRef};
use engine::scan::{BatchSource, Filter, NextBatch, TableScan, TableStatistics, columns_of, schema_of};
use engine::{Engine, Error};
use schema::{ColumnKind, TableDef};
use storage::{BatchRequest, BatchScan, TableId};

use crate::table_scan::bounds::Reach;
use crate::table_scan::columns::Shown;
use crate::{Embedded, storage_error};

/// The most rows of a batch, whatever is asked for: more makes nothing quicker, and memory is not counted here.
const BATCH_ROWS_MAX: usize = 1 << 16;

/// A scan of this core's shard.
struct ShardBatches {
    scan: BatchScan,
    shown: Vec<Shown>,
    def: Arc<TableDef>,
    schema: SchemaRef,
    filters: Vec<Filter>,
    /// Rows that may still be given.
    left: u64,
}

impl Embedded {
    /// See [`Engine::scan`].
    pub(crate) fn scan_by_columns(&self, scan: &TableScan) -> Result<Box<dyn BatchSource>, Error> {
        let TableScan { keyspace, table, .. } = scan;
        let stored = self.schema().table(keyspace, table).cloned();
        let source = match (stored, self.registry().get(keyspace, table)) {
            (Some(def), _) => Box::new(self.scan_of_shard(def, scan)?) as Box<dyn BatchSource>,
            (None, Some(table)) => Box::new(virtual_rows::scan(&table, scan)?),
            (None, None) => return Err(Error::Invalid(format!("table {keyspace}.{table} does not exist"))),
        };
        Ok(source)
    }

    fn scan_of_shard(&self, def: Arc<TableDef>, scan: &TableScan) -> Result<ShardBatches, Error> {
        let schema = schema_of_scan(&def, scan)?;
        let (columns, shown) = columns::of_storage(&def, &scan.columns);
        let Reach { tokens, clustering, conditions } =
            bounds::reach(&def, scan.tokens.clone(), &scan.filters)?;
        let left = scan.limit.unwrap_or(u64::MAX);
        let request = BatchRequest {
            columns,
            tokens,
            conditions,
            clustering,
            known: known(&def),
            rows: batch_rows(scan),
            bypass_cache: scan.bypass_cache,
        };
        let now_s = u32::try_from(lanes::time::unix_micros() / 1_000_000).unwrap_or(u32::MAX);
        let filters = scan.filters.clone();
        let scan = self.shard.scan_batches(TableId(def.id.as_u128()), request, now_s);
        Ok(ShardBatches { scan, shown, def, schema, filters, left })
    }

    /// See [`Engine::statistics`].
    pub(crate) fn size_of(&self, keyspace: &str, table: &str) -> Option<TableStatistics> {
        let def = self.schema().table(keyspace, table).cloned()?;
        let size = self.shard.table_size(TableId(def.id.as_u128()));
        Some(TableStatistics { rows: size.rows, bytes: size.bytes })
    }
}

/// The columns asked for.
fn schema_of_scan(def: &TableDef, scan: &TableScan) -> Result<SchemaRef, Error> {
    let count = columns_of(def).len();
    let asked = scan.columns.iter().chain(scan.filters.iter().map(|filter| &filter.column));
    if let Some(column) = asked.copied().find(|column| *column >= count) {
        return Err(Error::Invalid(format!(
            "{}.{} has no column {column}: it has {count}",
            def.keyspace, def.name
        )));
    }
    let all = schema_of(def);
    let fields: Vec<_> = scan.columns.iter().map(|column| all.fields()[*column].clone()).collect();
    Ok(Arc::new(ArrowSchema::new(fields)))
}

fn batch_rows(scan: &TableScan) -> usize {
    let limit = scan.limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    scan.batch_rows.min(limit).clamp(1, BATCH_ROWS_MAX)
}

/// The columns that cells may be of, where some were dropped: a row of nothing but those is not there.
fn known(def: &TableDef) -> Option<Arc<[u32]>> {
    let cells = def.columns.iter().filter(|c| matches!(c.kind, ColumnKind::Static | ColumnKind::Regular));
    let mut known: Vec<u32> = cells.map(|column| column.id).collect();
    known.sort_unstable();
    (def.next_column_id as usize != def.columns.len()).then(|| known.into())
}

impl ShardBatches {
    async fn batch(&mut self) -> Result<Option<RecordBatch>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        let Some(batch) = self.scan.next().await.map_err(storage_error)? else { return Ok(None) };
        let rows = usize::try_from(self.left).map_or(batch.num_rows(), |left| left.min(batch.num_rows()));
        self.left -= rows as u64;
        let batch = batch.slice(0, rows);
        let arrays = columns::made(&self.def, &self.shown, &batch).await?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let made = RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options);
        made.map(Some).map_err(|error| Error::Server(format!("a stored row is damaged: {error}")))
    }
}

impl BatchSource for ShardBatches {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn next(&mut self) -> NextBatch<'_> {
        Box::pin(self.batch())
    }

    fn narrow(&mut self, filters: &[Filter]) -> Result<(), Error> {
        let all = [&self.filters[..], filters].concat();
        // Which partitions it looks at stays as it was.
        let Reach { clustering, conditions, .. } = bounds::reach(&self.def, i64::MIN..=i64::MAX, &all)?;
        self.scan.narrow(conditions, clustering);
        Ok(())
    }

    fn progress(&self) -> f64 {
        if self.left == 0 { 1.0 } else { self.scan.progress() }
    }
}
