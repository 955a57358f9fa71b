//! A query that runs: batches as they come, encoded a chunk at a time. All of it on heavy lanes.

use std::sync::Arc;

use bytes::BytesMut;
use datafusion::common::ParamValues;
use datafusion::error::DataFusionError;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::{EmptyRecordBatchStream, ExecutionPlan, SendableRecordBatchStream};
use futures::StreamExt;

use crate::connection::OUTPUT_BYTES;
use crate::failure::{Failure, state};
use crate::output::{Rows, Shape};
use crate::plan::{Joins, Planned};
use crate::run::Run;
use crate::wide::TooWide;

/// Rows encoded between looks at the scheduler; some tens of microseconds.
const ROWS_A_PIECE: u64 = 128;

/// See the head of this file.
pub(crate) struct Running {
    batches: SendableRecordBatchStream,
    shape: Shape,
    /// What is left of the last batch.
    rows: Option<Rows>,
    pub(crate) run: Arc<Run>,
    again: Option<Again>,
}

/// How a query is begun again that has given nothing yet: hash joins keep one side in memory, and what does not fit there is joined by
/// sorting, which can spill; and values that are too wide for the rows of a batch get batches of fewer rows.
struct Again {
    planned: Arc<Planned>,
    values: Option<ParamValues>,
    joins: Joins,
    can_sort: bool,
    rows_max: usize,
}

impl Again {
    /// Whether it can be begun again otherwise, so that it does not fail as it did.
    fn after(&mut self, error: &DataFusionError, run: &Run) -> bool {
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

/// How far a query has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// A chunk is full.
    More,
    /// So many rows were asked for, and there may be more.
    Suspended,
    Done,
}

/// Starts a planned query.
///
/// # Errors
/// It cannot run.
pub(crate) async fn start(
    planned: Arc<Planned>,
    values: Option<ParamValues>,
    shape: Shape,
    run: Arc<Run>,
) -> Result<Running, Failure> {
    let (joins, rows_max) = (Joins::Hashed, usize::MAX);
    let physical = planned.physical(values.clone(), joins, rows_max).await?;
    lanes::heavy_yield().await;
    let can_sort = run.can_spill() && has_hash_join(&physical.plan);
    let batches = run.execute(&physical)?;
    let again = Some(Again { planned, values, joins, can_sort, rows_max });
    Ok(Running { batches, shape, rows: None, run, again })
}

fn has_hash_join(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<HashJoinExec>() || plan.children().into_iter().any(has_hash_join)
}

impl Running {
    /// Appends rows to `out` until it is full, `rows_max` are there, or there are no more: how many.
    ///
    /// # Errors
    /// The query failed. What was appended may be sent nevertheless.
    pub(crate) async fn chunk(
        &mut self,
        out: &mut BytesMut,
        rows_max: u64,
    ) -> Result<(u64, Progress), Failure> {
        let mut count = 0;
        loop {
            while let Some(rows) = &mut self.rows {
                if count == rows_max {
                    return Ok((count, Progress::Suspended));
                }
                if out.len() >= OUTPUT_BYTES {
                    return Ok((count, Progress::More));
                }
                if !rows.encode_next(out)? {
                    self.rows = None;
                    break;
                }
                count += 1;
                if count % ROWS_A_PIECE == 0 {
                    lanes::heavy_yield().await;
                }
            }
            match self.next().await? {
                Some(rows) => self.rows = Some(rows),
                None => return Ok((count, Progress::Done)),
            }
            self.run.follow().await;
            lanes::heavy_yield().await;
        }
    }

    /// What the client is told: of memory, why its level had no more, where an operator says only that it is full.
    fn failure(&self, error: DataFusionError) -> Failure {
        match self.run.refusal().filter(|_| is_out_of_memory(&error)) {
            Some(refusal) => Failure::new(state::MEMORY, refusal),
            None => error.into(),
        }
    }

    async fn next(&mut self) -> Result<Option<Rows>, Failure> {
        let mut next = self.batches.next().await;
        if let Some(mut again) = self.again.take() {
            // Rows of a batch become fewer each time, and joins are sorted once.
            while let Some(Err(error)) = &next
                && again.after(error, &self.run)
            {
                // What the attempt before has is given back before the next begins.
                self.batches = Box::pin(EmptyRecordBatchStream::new(self.batches.schema()));
                let Again { planned, values, joins, rows_max, .. } = &again;
                let physical = planned.physical(values.clone(), *joins, *rows_max).await?;
                self.run.begin_again();
                self.batches = self.run.execute(&physical)?;
                next = self.batches.next().await;
            }
        }
        self.run.give();
        let batch = next.transpose().map_err(|error| self.failure(error))?;
        batch.map(|batch| self.shape.rows(batch)).transpose()
    }
}

fn is_out_of_memory(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::ResourcesExhausted(_))
}
