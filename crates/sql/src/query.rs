//! A query that runs: batches as they come, encoded a chunk at a time. All of it on heavy lanes.

use bytes::BytesMut;
use datafusion::common::ParamValues;
use datafusion::physical_plan::SendableRecordBatchStream;
use futures::StreamExt;

use crate::connection::OUTPUT_BYTES;
use crate::failure::Failure;
use crate::output::{Rows, Shape};
use crate::plan::Planned;

/// Rows encoded between looks at the scheduler; some tens of microseconds.
const ROWS_A_PIECE: u64 = 128;

/// See the head of this file.
pub(crate) struct Running {
    batches: SendableRecordBatchStream,
    shape: Shape,
    /// What is left of the last batch.
    rows: Option<Rows>,
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
    planned: &Planned,
    values: Option<ParamValues>,
    shape: Shape,
) -> Result<Running, Failure> {
    let (physical, state) = planned.physical(values).await?;
    lanes::heavy_yield().await;
    let batches = physical.execute(0, state.task_ctx())?;
    Ok(Running { batches, shape, rows: None })
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
            match self.batches.next().await {
                Some(batch) => self.rows = Some(self.shape.rows(batch?)?),
                None => return Ok((count, Progress::Done)),
            }
            lanes::heavy_yield().await;
        }
    }
}
