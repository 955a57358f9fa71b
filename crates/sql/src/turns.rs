//! Giving way within a plan. A heavy lane's turns end where tasks give way, and a query can be cancelled only there. Scans and exchanges
//! do, but a join makes many batches out of one without asking anybody: so above every join there is a node that changes nothing, and
//! gives way between batches when the turn is over, and follows its run to another group.

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

use crate::passage::{Passage, PassageExec};
use crate::run::Run;
use crate::wide;

/// See the head of this file.
#[derive(Debug)]
struct Turn;

/// The node, with what gives way above it if it makes much out of little, and what measures its inputs.
///
/// # Errors
/// Those of DataFusion.
pub(crate) fn giving_way(node: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let makes_many = node.is::<CrossJoinExec>()
        || node.is::<NestedLoopJoinExec>()
        || node.is::<HashJoinExec>()
        || node.is::<SortMergeJoinExec>()
        || node.is::<UnnestExec>();
    if !makes_many {
        return Ok(node);
    }
    let inputs = wide::measured(&node);
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
    Ok(PassageExec::<Turn>::over(node.replace_children(inputs, options)?))
}

impl Passage for Turn {
    const NAME: &'static str = "TurnExec";

    fn run(
        input: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let run = Run::of(&context);
        let input = input.execute(partition, context)?;
        let schema = input.schema();
        let turns = Turns { input, run, gave_way: false, moving: None };
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, turns)))
    }
}

struct Turns {
    input: SendableRecordBatchStream,
    run: Option<Arc<Run>>,
    gave_way: bool,
    /// On its way to another group.
    moving: Option<BoxFuture<'static, ()>>,
}

impl Stream for Turns {
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
        // Once is enough: if nobody else wants the lane, the next turn is this one's too.
        if lanes::slice_is_over() && !std::mem::replace(&mut self.gave_way, true) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.gave_way = false;
        self.input.as_mut().poll_next(cx)
    }
}
