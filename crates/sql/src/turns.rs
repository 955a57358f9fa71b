//! Giving way within a plan. A heavy lane's turns end where tasks give way, and a query can be cancelled only there. Scans and exchanges
//! do, but a join makes many batches out of one without asking anybody: so above every join there is a node that changes nothing, and
//! gives way between batches when the turn is over, and follows its run to another group.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use datafusion::arrow::array::RecordBatch;
use datafusion::common::internal_err;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, SendableRecordBatchStream,
};
use futures::Stream;
use futures::future::BoxFuture;

use crate::run::Run;

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct TurnExec {
    input: Arc<dyn ExecutionPlan>,
}

/// The node, with what gives way above it if it makes much out of little.
pub(crate) fn giving_way(node: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    let makes_many = node.is::<CrossJoinExec>()
        || node.is::<NestedLoopJoinExec>()
        || node.is::<HashJoinExec>()
        || node.is::<SortMergeJoinExec>()
        || node.is::<UnnestExec>();
    if makes_many { Arc::new(TurnExec { input: node }) } else { node }
}

impl DisplayAs for TurnExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TurnExec")
    }
}

impl ExecutionPlan for TurnExec {
    fn name(&self) -> &'static str {
        "TurnExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.pop()) {
            (Some(input), None) => Ok(Arc::new(TurnExec { input })),
            _ => internal_err!("what gives way has one input"),
        }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let run = Run::of(&context);
        let input = self.input.execute(partition, context)?;
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
        if lanes::turn_is_over() && !std::mem::replace(&mut self.gave_way, true) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.gave_way = false;
        self.input.as_mut().poll_next(cx)
    }
}
