//! A running query: reads batches and encodes their rows in chunks, on heavy lanes.

use std::sync::Arc;

use bytes::BytesMut;
use datafusion::arrow::array::RecordBatch;
use datafusion::common::ParamValues;
use datafusion::error::DataFusionError;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::{EmptyRecordBatchStream, ExecutionPlan, SendableRecordBatchStream};
use futures::StreamExt;

use crate::engine::limits::batch_width::TooWide;
use crate::engine::limits::function_bounds::widest;
use crate::engine::plan::{Joins, Planned};
use crate::failure::{Failure, state};
use crate::postgres::output::{BatchRows, OUTPUT_BYTES, Shape};
use crate::run::memory::Held;
use crate::run::query::QueryRun;
use crate::run::sizes::batch_bytes;

/// Rows encoded between checks for a yield: some tens of microseconds.
const ROWS_PER_CHECK: u64 = 128;

/// Bytes of text for a byte of an array, at most: a number of 8 bytes has up to 20 digits.
const TEXT_BYTES_PER_BYTE: u64 = 3;
/// Copies of a row in encoding: the message, which has up to three while it grows, or two and the
/// output buffer.
const ROW_COPIES: u64 = 3;

/// A query that was started.
pub(crate) struct Running {
    batches: SendableRecordBatchStream,
    shape: Shape,
    /// Rows of the last batch that are not encoded yet.
    rows: Option<BatchRows>,
    /// Bytes of the longest of those rows, at most.
    row_bytes: usize,
    /// Memory of those rows, and of the copies that encoding one of them makes. Kept while the
    /// client does not ask for more.
    answer: Held,
    pub(crate) run: Arc<QueryRun>,
    restart: Option<Restart>,
}

/// State to restart a query that has returned no rows yet, for two failures. Hash joins keep one
/// side in memory: if it does not fit, the joins are sorted, which can spill. Values too wide for
/// the rows of a batch get batches of fewer rows.
struct Restart {
    planned: Arc<Planned>,
    values: Option<ParamValues>,
    joins: Joins,
    can_sort: bool,
    rows_max: usize,
}

impl Restart {
    /// Adjusts the plan to avoid the failure. Returns false if a restart would not help.
    fn after(&mut self, error: &DataFusionError, run: &QueryRun) -> bool {
        if let Some(rows) = TooWide::of(error).and_then(TooWide::fewer_rows) {
            self.rows_max = rows;
            return true;
        }
        let sorts = self.can_sort && is_out_of_memory(error) && run.can_spill();
        if sorts {
            (self.joins, self.can_sort) = (Joins::Sorted, false);
        }
        sorts
    }
}

/// State of a query after a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ChunkEnd {
    /// The chunk is full.
    More,
    /// The client has all rows it asked for, and there may be more.
    Suspended,
    Done,
}

/// Starts a planned query.
///
/// # Errors
/// It cannot be planned or started.
pub(crate) async fn start(
    planned: Arc<Planned>,
    values: Option<ParamValues>,
    shape: Shape,
    run: Arc<QueryRun>,
) -> Result<Running, Failure> {
    let (joins, rows_max) = (Joins::Hashed, usize::MAX);
    let physical = planned.physical(values.clone(), joins, rows_max).await?;
    lanes::heavy_yield().await;
    let can_sort = run.can_spill() && has_hash_join(&physical.plan);
    let batches = run.execute(&physical)?;
    let restart = Some(Restart { planned, values, joins, can_sort, rows_max });
    let answer = Held::of(Some(run.statement_memory()));
    Ok(Running { batches, shape, rows: None, row_bytes: 0, answer, run, restart })
}

fn has_hash_join(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<HashJoinExec>() || plan.children().into_iter().any(has_hash_join)
}

impl Running {
    /// Appends rows to `out` until it is full, has `rows_max` more rows, or the query ends.
    /// Returns the number of rows.
    ///
    /// # Errors
    /// The query failed. Rows appended before may still be sent.
    pub(crate) async fn chunk(
        &mut self,
        out: &mut BytesMut,
        rows_max: u64,
    ) -> Result<(u64, ChunkEnd), Failure> {
        let mut count = 0;
        loop {
            while let Some(rows) = &mut self.rows {
                if count == rows_max {
                    return Ok((count, ChunkEnd::Suspended));
                }
                if out.len() >= OUTPUT_BYTES {
                    return Ok((count, ChunkEnd::More));
                }
                if self.row_bytes > OUTPUT_BYTES {
                    // A buffer that grows by itself takes up to three times the row.
                    out.reserve(self.row_bytes);
                }
                if !rows.encode_next(out)? {
                    self.rows = None;
                    self.answer.shrink(u64::MAX);
                    break;
                }
                count += 1;
                if count % ROWS_PER_CHECK == 0 {
                    lanes::heavy_yield().await;
                }
            }
            match self.next().await? {
                Some(rows) => self.rows = Some(rows),
                None => return Ok((count, ChunkEnd::Done)),
            }
            self.run.follow().await;
            lanes::heavy_yield().await;
        }
    }

    /// Converts an error for the client. If an operator has no memory, reports why the level
    /// refused it.
    fn failure(&self, error: DataFusionError) -> Failure {
        let is_out = is_out_of_memory(&error) || TooWide::of(&error).is_some();
        match self.run.refusal().filter(|_| is_out) {
            Some(refusal) => Failure::new(state::MEMORY, refusal),
            None => error.into(),
        }
    }

    async fn next(&mut self) -> Result<Option<BatchRows>, Failure> {
        let mut next = self.batches.next().await;
        if let Some(mut restart) = self.restart.take() {
            // This ends: each restart has fewer rows in a batch, and joins become sorted once.
            while let Some(Err(error)) = &next
                && restart.after(error, &self.run)
            {
                // Free the memory of the failed attempt first.
                self.batches = Box::pin(EmptyRecordBatchStream::new(self.batches.schema()));
                let Restart { planned, values, joins, rows_max, .. } = &restart;
                let physical = planned.physical(values.clone(), *joins, *rows_max).await?;
                self.run.reset_counts();
                self.batches = self.run.execute(&physical)?;
                next = self.batches.next().await;
            }
        }
        self.run.give();
        let Some(batch) = next.transpose().map_err(|error| self.failure(error))? else { return Ok(None) };
        self.rows_of(batch).map(Some)
    }

    /// Prepares a batch for encoding, and charges it.
    fn rows_of(&mut self, batch: RecordBatch) -> Result<BatchRows, Failure> {
        let bytes = batch_bytes(&batch);
        // Converting makes texts of numbers and of lists.
        let texts = if self.shape.converts() { bytes.saturating_mul(TEXT_BYTES_PER_BYTE) } else { 0 };
        let charged = self.answer.resize(bytes.saturating_add(texts));
        charged.map_err(|error| self.failure(error))?;
        let batch = self.shape.convert(batch)?;
        let row_bytes = batch.columns().iter().fold(0_u64, |sum, column| sum.saturating_add(widest(column)));
        let one = row_bytes.saturating_mul(ROW_COPIES);
        let charged = self.answer.resize(batch_bytes(&batch).saturating_add(one));
        charged.map_err(|error| self.failure(error))?;
        self.row_bytes = usize::try_from(row_bytes).unwrap_or(usize::MAX);
        Ok(self.shape.rows(batch))
    }
}

fn is_out_of_memory(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::ResourcesExhausted(_))
}
