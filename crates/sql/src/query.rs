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
/// sorting, which can spill.
struct Again {
    planned: Arc<Planned>,
    values: Option<ParamValues>,
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
    let physical = planned.physical(values.clone(), Joins::Hashed).await?;
    lanes::heavy_yield().await;
    let can_begin_again = run.can_spill() && has_hash_join(&physical.plan);
    let batches = run.execute(&physical)?;
    let again = can_begin_again.then_some(Again { planned, values });
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
        let again = self.again.take();
        let first = match (self.batches.next().await, again) {
            (Some(Err(error)), Some(again)) if is_out_of_memory(&error) && self.run.can_spill() => {
                // What the first attempt has is given back before the second begins.
                self.batches = Box::pin(EmptyRecordBatchStream::new(self.batches.schema()));
                let physical = again.planned.physical(again.values, Joins::Sorted).await?;
                self.batches = self.run.execute(&physical)?;
                self.batches.next().await
            }
            (next, _) => next,
        };
        let batch = first.transpose().map_err(|error| self.failure(error))?;
        batch.map(|batch| self.shape.rows(batch)).transpose()
    }
}

fn is_out_of_memory(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::ResourcesExhausted(_))
}
