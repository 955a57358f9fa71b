//! Yields within a plan. A heavy lane's time slice ends where tasks yield, and a query can be
//! canceled or suspended only there. Scans and exchanges yield, but other nodes make many batches
//! without awaiting anything: joins, sorts, aggregations and windows out of what they hold, table
//! functions out of nothing. A node above each of these therefore passes batches on, yields between
//! them when the time slice is over, waits while its run is suspended, and switches to its group.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use datafusion::arrow::array::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::{ExecutionPlan, SendableRecordBatchStream};
use futures::Stream;
use futures::future::BoxFuture;

use crate::engine::operators::charges::charged;
use crate::engine::operators::pass_through::{PassThrough, PassThroughExec};
use crate::engine::operators::wide_batches;
use crate::run::query::QueryRun;
use crate::run::tasks;

/// Yields between batches of its input.
#[derive(Debug)]
struct Yielding;

/// Puts a node that yields above one that may make many batches at once. Under joins and UNNEST it
/// puts nodes that measure, around other nodes those that charge (`charges`). `is_narrowed`:
/// batches have few rows, so larger ones are split, under the node that yields.
///
/// # Errors
/// Errors of DataFusion.
pub(crate) fn yielding(node: Arc<dyn ExecutionPlan>, is_narrowed: bool) -> Result<Arc<dyn ExecutionPlan>> {
    let multiplies = node.is::<CrossJoinExec>()
        || node.is::<NestedLoopJoinExec>()
        || node.is::<HashJoinExec>()
        || node.is::<SortMergeJoinExec>()
        || node.is::<UnnestExec>();
    if multiplies {
        let inputs = wide_batches::measured(&node);
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
        return Ok(PassThroughExec::<Yielding>::over(charged(node.replace_children(inputs, options)?)?));
    }
    let makes_many = makes_many(&node);
    let splits = is_narrowed && wide_batches::makes_any_size(&node);
    let node = charged(node)?;
    let node = if splits { wide_batches::split(node) } else { node };
    Ok(if makes_many { PassThroughExec::<Yielding>::over(node) } else { node })
}

/// Returns true for nodes that hold rows before they return any, and for sources of rows other than
/// scans: a table function may be endless, and a recursive query reads its work table again and
/// again.
fn makes_many(node: &Arc<dyn ExecutionPlan>) -> bool {
    let is_single = node.is::<PlaceholderRowExec>() || node.is::<EmptyExec>();
    node.is::<SortExec>() || node.is::<AggregateExec>() || (wide_batches::makes_any_size(node) && !is_single)
}

impl PassThrough for Yielding {
    const NAME: &'static str = "YieldExec";

    fn run(
        input: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let run = QueryRun::of(&context);
        let input = input.execute(partition, context)?;
        let schema = input.schema();
        let yielding = YieldingStream { input, run, has_yielded: false, following: None };
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, yielding)))
    }
}

struct YieldingStream {
    input: SendableRecordBatchStream,
    run: Option<Arc<QueryRun>>,
    has_yielded: bool,
    /// A wait or a switch to another group, in progress.
    following: Option<BoxFuture<'static, ()>>,
}

impl Stream for YieldingStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.following.is_none()
            && let Some(run) = self.run.as_ref().filter(|run| run.must_follow()).cloned()
        {
            self.following = Some(Box::pin(async move { run.follow().await }));
        }
        if let Some(following) = &mut self.following {
            ready!(following.as_mut().poll(cx));
            self.following = None;
        }
        // Yield once only: if no other task wants the lane, the next time slice is this one's
        // again.
        if (lanes::slice_is_over() || tasks::has_made_much())
            && !std::mem::replace(&mut self.has_yielded, true)
        {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.has_yielded = false;
        self.input.as_mut().poll_next(cx)
    }
}
