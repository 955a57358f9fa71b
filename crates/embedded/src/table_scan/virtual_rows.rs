//! Scans of virtual tables. Rows are built on the fast lane of their core, the columns elsewhere.
//! Rows that are built in chunks are built for the first batch, once for all scans of a snapshot.
//! Rows that are streamed are built batch by batch, for each scan.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;
use engine::scan::arrow::ColumnBuilder;
use engine::scan::{BatchSource, NextBatch, TableScan, TableSnapshot};
use engine::{Error, RowChunks, StreamedRows, Subject, Viewer, VirtualRow, VirtualTable};
use lanes::sync::cross;
use schema::{CqlType, TableDef};

use super::batch_rows;
use crate::Embedded;

struct VirtualBatches {
    schema: SchemaRef,
    /// Columns by their index in a row.
    columns: Vec<(usize, CqlType)>,
    scale: i8,
    rows: Arc<SnapshotRows>,
    /// Streamed rows, and those of the last chunk that are still to return.
    stream: Option<(RowChunks, Vec<VirtualRow>)>,
    /// Rows to return, at most.
    limit: usize,
    /// Range of rows still to return; `None` until the rows are built. Of streamed rows it is known
    /// at their end only.
    left: Option<Range<usize>>,
    batch_rows: usize,
}

/// Snapshot of a virtual table on this core.
pub(super) struct VirtualSnapshot {
    rows: Arc<SnapshotRows>,
}

/// Rows of a snapshot, shared by its scans.
struct SnapshotRows {
    def: Arc<TableDef>,
    core: usize,
    viewer: Option<Arc<dyn Viewer>>,
    /// Rows; empty until they are built, if they are built in chunks.
    made: OnceLock<Vec<VirtualRow>>,
    /// Streamed rows, which are never `made`.
    streamed: Option<StreamedRows>,
    subject: Subject,
}

impl SnapshotRows {
    /// Returns the rows. The first caller makes the snapshot's core build them.
    ///
    /// # Errors
    /// Returns an error if the core has stopped.
    async fn get(&self) -> Result<&[VirtualRow], Error> {
        if let Some(rows) = self.made.get() {
            return Ok(rows);
        }
        let (def, viewer) = (self.def.clone(), self.viewer.clone());
        let (sender, receiver) = cross::oneshot();
        let make = async move |sender: cross::Sender<Vec<VirtualRow>>| {
            let Some(table) = Embedded::local().registry.get(&def.keyspace, &def.name) else { return };
            let mut rows = table.rows(viewer.clone()).await;
            table.show(viewer.as_deref(), &mut rows);
            sender.send(rows);
        };
        // Send a message instead of a call: the builder of the rows stays on that lane, but this
        // future may move between threads.
        let group = lanes::current_group();
        lanes::handle().run_on_core(self.core, group, move || {
            lanes::spawn(group, async move { make(sender).await }).detach()
        });
        let rows = receiver
            .await
            .map_err(|_| Error::Server("the rows of a virtual table were not made".to_owned()))?;
        // Another scan may have been faster. All scans then share its rows.
        Ok(self.made.get_or_init(|| rows))
    }
}

impl VirtualSnapshot {
    /// Takes a snapshot. Core 0 has the rows of a table that is the same on all cores.
    pub(super) fn of(table: &VirtualTable, viewer: Option<&Arc<dyn Viewer>>) -> VirtualSnapshot {
        let core = lanes::current_core();
        let rows = match table.of_every_core || core == 0 {
            true => table.rows_at_once(),
            false => Some(Vec::new()),
        };
        let made = OnceLock::new();
        let streamed = rows.is_none().then(|| table.stream()).flatten();
        if let Some(mut rows) = rows {
            table.show(viewer.map(|viewer| &**viewer), &mut rows);
            made.get_or_init(|| rows);
        }
        let (def, viewer, subject) = (table.def.clone(), viewer.cloned(), table.subject);
        let rows = SnapshotRows { def, core, viewer, made, streamed, subject };
        VirtualSnapshot { rows: Arc::new(rows) }
    }
}

impl TableSnapshot for VirtualSnapshot {
    fn scan(&self, scan: &TableScan) -> Result<Box<dyn BatchSource>, Error> {
        let def = &self.rows.def;
        let schema = scan.schema(&def.clone().into())?;
        let limit = scan.limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
        let columns = scan.columns.iter().map(|at| (*at, def.columns[*at].ty.clone())).collect();
        let (rows, batch_rows) = (self.rows.clone(), batch_rows(scan));
        let scale = scan.scale;
        let stream = rows.streamed.as_ref().map(|rows| (rows(), Vec::new()));
        Ok(Box::new(VirtualBatches { schema, columns, scale, rows, stream, limit, left: None, batch_rows }))
    }
}

impl VirtualBatches {
    async fn batch(&mut self) -> Result<Option<RecordBatch>, Error> {
        lanes::heavy_yield().await;
        if self.stream.is_some() {
            let rows = self.streamed_rows().await;
            if rows.is_empty() {
                self.left = Some(0..0);
            }
            return self.batch_of(&rows);
        }
        let all = self.rows.get().await?;
        let left = self.left.get_or_insert(0..all.len().min(self.limit));
        let end = left.end.min(left.start.saturating_add(self.batch_rows));
        let rows = &all[left.start..end];
        left.start = end;
        self.batch_of(rows)
    }

    /// Takes the rows of the next batch from the stream.
    async fn streamed_rows(&mut self) -> Vec<VirtualRow> {
        let Some((chunks, ahead)) = &mut self.stream else { return Vec::new() };
        let wanted = self.batch_rows.min(self.limit);
        while ahead.len() < wanted {
            let Some(mut chunk) = chunks.next() else { break };
            self.rows.subject.show(self.rows.viewer.as_deref(), &mut chunk);
            ahead.extend(chunk);
            lanes::heavy_yield().await;
        }
        let rest = ahead.split_off(wanted.min(ahead.len()));
        let rows = std::mem::replace(ahead, rest);
        self.limit -= rows.len();
        rows
    }

    fn batch_of(&self, rows: &[VirtualRow]) -> Result<Option<RecordBatch>, Error> {
        if rows.is_empty() {
            return Ok(None);
        }
        let column = |(at, ty): &(usize, CqlType)| {
            let mut column = ColumnBuilder::new(ty, self.scale, rows.len());
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
        match &self.left {
            Some(left) if left.is_empty() => 1.0,
            Some(left) => left.start as f64 / left.end as f64,
            None => 0.0,
        }
    }
}
