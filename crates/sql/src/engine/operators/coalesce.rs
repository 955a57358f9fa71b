//! Puts the rows that a filter lets through together to full batches, as DataFusion's filter does
//! by itself. That one counts rows only: 8192 rows of a megabyte each would be one batch.

use std::collections::VecDeque;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::BatchCoalescer;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, SendableRecordBatchStream};
use futures::StreamExt;

use crate::engine::operators::pass_through::{PassThrough, PassThroughExec};
use crate::run::memory::Held;
use crate::run::query::QueryRun;
use crate::run::sizes::{BATCH_BYTES, batch_bytes};

/// See the head of this file.
#[derive(Debug)]
struct Coalesce;

/// Returns a filter that passes each batch on, under a node that puts them together.
///
/// # Errors
/// Errors of DataFusion.
pub(crate) fn filtered(filter: &FilterExec) -> Result<Arc<dyn ExecutionPlan>> {
    // DataFusion passes a batch on by itself if it has over half of the rows of a full one.
    Ok(PassThroughExec::<Coalesce>::over(Arc::new(filter.with_batch_size(1)?)))
}

impl PassThrough for Coalesce {
    const NAME: &'static str = "CoalesceExec";

    fn run(
        input: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let rows = context.session_config().batch_size();
        let held = Held::of(QueryRun::of(&context).map(|run| run.statement_memory()));
        let input = input.execute(partition, context)?;
        let schema = input.schema();
        let coalescer =
            BatchCoalescer::new(schema.clone(), rows).with_biggest_coalesce_batch_size(Some(rows / 2));
        let state = Coalescing { input, coalescer, held, ready: VecDeque::new(), has_ended: false };
        let batches = futures::stream::try_unfold(state, |mut state| async move {
            Ok(state.next().await?.map(|batch| (batch, state)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }
}

struct Coalescing {
    input: SendableRecordBatchStream,
    coalescer: BatchCoalescer,
    /// Rows in the coalescer.
    held: Held,
    ready: VecDeque<RecordBatch>,
    has_ended: bool,
}

impl Coalescing {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.ready.pop_front() {
                return Ok(Some(batch));
            }
            if self.has_ended {
                return Ok(None);
            }
            match self.input.next().await {
                Some(batch) => self.push(batch?)?,
                None => {
                    self.has_ended = true;
                    self.coalescer.finish_buffered_batch()?;
                    self.take();
                }
            }
        }
    }

    fn push(&mut self, batch: RecordBatch) -> Result<()> {
        let bytes = batch_bytes(&batch);
        // A batch that is large already is not copied.
        if bytes >= BATCH_BYTES {
            self.coalescer.finish_buffered_batch()?;
            self.take();
            self.ready.push_back(batch);
            return Ok(());
        }
        self.held.grow(bytes)?;
        self.coalescer.push_batch(batch)?;
        if self.held.bytes() >= BATCH_BYTES {
            self.coalescer.finish_buffered_batch()?;
        }
        self.take();
        Ok(())
    }

    fn take(&mut self) {
        while let Some(batch) = self.coalescer.next_completed_batch() {
            self.held.shrink(batch_bytes(&batch));
            self.ready.push_back(batch);
        }
        if self.coalescer.is_empty() {
            self.held.shrink(u64::MAX);
        }
    }
}
