//! Yields within a plan. A heavy lane's time slice ends where tasks yield, and a query can be
//! canceled only there. Scans and exchanges yield, but a join makes many batches out of one
//! without awaiting anything. A node above every join therefore passes batches on, yields between
//! them when the time slice is over, and switches to its run's group.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use datafusion::arrow::array::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::{ExecutionPlan, SendableRecordBatchStream};
use futures::Stream;
use futures::future::BoxFuture;

use crate::engine::measure;
use crate::engine::passage::{Passage, PassageExec};
use crate::engine::run::Run;

/// Yields between batches of its input.
#[derive(Debug)]
struct Yielding;

/// Puts a node that yields above a join or UNNEST, and nodes that measure under it.
///
/// # Errors
/// Errors of DataFusion.
pub(crate) fn yielding(node: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let makes_many = node.is::<CrossJoinExec>()
        || node.is::<NestedLoopJoinExec>()
        || node.is::<HashJoinExec>()
        || node.is::<SortMergeJoinExec>()
        || node.is::<UnnestExec>();
    if !makes_many {
        return Ok(node);
    }
    let inputs = measure::measured(&node);
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
    Ok(PassageExec::<Yielding>::over(node.replace_children(inputs, options)?))
}

impl Passage for Yielding {
    const NAME: &'static str = "YieldExec";

    fn run(
        input: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let run = Run::of(&context);
        let input = input.execute(partition, context)?;
        let schema = input.schema();
        let yielding = YieldingStream { input, run, has_yielded: false, moving: None };
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, yielding)))
    }
}

struct YieldingStream {
    input: SendableRecordBatchStream,
    run: Option<Arc<Run>>,
    has_yielded: bool,
    /// Switch to another group, in progress.
    moving: Option<BoxFuture<'static, ()>>,
}

impl Stream for YieldingStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(moving) = &mut self.moving {
            ready!(moving.as_mut().poll(cx));
            self.moving = None;
        } else if let Some(group) = self.run.as_ref().and_then(|run| run.elsewhere()) {
            let mut moving: BoxFuture<'static, ()> = Box::pin(lanes::switch_group(group));
            if moving.as_mut().poll(cx).is_pending() {
                self.moving = Some(moving);
                return Poll::Pending;
            }
        }
        // Yield once only: if no other task wants the lane, the next time slice is this one's
        // again.
        if lanes::slice_is_over() && !std::mem::replace(&mut self.has_yielded, true) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.has_yielded = false;
        self.input.as_mut().poll_next(cx)
    }
}
