//! The lane exchange: a plan node that runs partition i of its input on the heavy lane of core i.
//! It passes the batches unchanged through a bounded channel to the consumer.
//!
//! The last optimizer rule puts an exchange under every node that combines partitions. Without it,
//! these nodes would run a partition's work on another core.
//!
//! ```text
//!   SortPreservingMerge                     on the statement's core (`StatementContext`)
//!     LaneExchange                          ─── i on core i
//!       Sort
//!         Aggregate (final)
//!           Repartition
//!             LaneExchange                  ─── i on core i
//!               Aggregate (partial)
//!                 Scan
//! ```

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::analyze::AnalyzeExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, SendableRecordBatchStream};
use futures::StreamExt;

use crate::engine::operators::pass_through::{PassThrough, PassThroughExec};
use crate::engine::operators::yields::yielding;
use crate::run::producer::{Sender, Started, channel, elsewhere};
use crate::run::query::QueryRun;
use crate::run::scan::ScanExec;
use crate::run::tasks::{self, Handles};

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct LaneExchange;

impl PassThrough for LaneExchange {
    const NAME: &'static str = "LaneExchangeExec";

    fn describe(input: &Arc<dyn ExecutionPlan>) -> String {
        format!("{}: partitions={}", Self::NAME, partitions(input))
    }

    fn run(
        input: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let run = QueryRun::of(&context);
        let schema = input.schema();
        let feed = pump(input.clone(), partition, context);
        let of = run.clone();
        let make = move |handles| on_core(handles, partition, of, feed);
        Ok(elsewhere(schema, run, make))
    }
}

/// Returns a task that runs a partition of the input and sends its batches. The task ends with the
/// last batch, at an error, or when the consumer is gone.
fn pump(
    input: Arc<dyn ExecutionPlan>,
    partition: usize,
    context: Arc<TaskContext>,
) -> impl FnOnce(Sender) -> futures::future::BoxFuture<'static, ()> + Send + 'static {
    move |sender: Sender| {
        Box::pin(async move {
            let run = QueryRun::of(&context);
            let mut stream = match input.execute(partition, context) {
                Ok(stream) => stream,
                Err(error) => {
                    sender.send(Err(error)).await;
                    return;
                }
            };
            while let Some(batch) = stream.next().await {
                if !sender.send(batch).await {
                    return;
                }
                if let Some(run) = &run {
                    run.follow().await;
                }
                lanes::heavy_yield().await;
            }
        })
    }
}

/// Starts a producer on the heavy lane of the partition's core, in the group of the caller.
async fn on_core<F>(
    handles: &'static Handles,
    partition: usize,
    run: Option<Arc<QueryRun>>,
    feed: F,
) -> Result<Started>
where
    F: FnOnce(Sender) -> futures::future::BoxFuture<'static, ()> + Send + 'static,
{
    let (sender, receiver) = channel(run.as_ref());
    let core = partition % lanes::cores();
    let task = tasks::heavy_on(core, handles, lanes::current_group(), feed(sender)).await;
    Ok((receiver, task))
}

/// Optimizer rule that puts lane exchanges under nodes that combine partitions. It also reduces
/// the plan's result to one partition.
#[derive(Debug)]
pub(crate) struct PlaceOnLanes {
    /// Rows of a batch, for statements without wide values.
    pub(crate) batch_rows: usize,
}

impl PhysicalOptimizerRule for PlaceOnLanes {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let is_narrowed = config.execution.batch_size.get() < self.batch_rows;
        let plan = if partitions(&plan) > 1 { Arc::new(CoalescePartitionsExec::new(plan)) } else { plan };
        let placed = plan.transform_up(|node: Arc<dyn ExecutionPlan>| {
            if !combines_partitions(&node) {
                return Ok(Transformed::yes(yielding(node, is_narrowed)?));
            }
            let children: Vec<_> = node.children().into_iter().cloned().map(place).collect();
            let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
            Ok(Transformed::yes(node.replace_children(children, options)?))
        })?;
        Ok(placed.data)
    }

    fn name(&self) -> &'static str {
        "place_on_lanes"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn partitions(plan: &Arc<dyn ExecutionPlan>) -> usize {
    plan.output_partitioning().partition_count()
}

fn combines_partitions(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.is::<RepartitionExec>()
        || node.is::<CoalescePartitionsExec>()
        || node.is::<SortPreservingMergeExec>()
        || node.is::<AnalyzeExec>()
}

/// Puts an exchange above an input. Inputs of one partition run on the consumer's core, and a scan
/// selects its cores itself.
fn place(input: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    let stays =
        partitions(&input) == 1 || input.is::<ScanExec>() || input.is::<PassThroughExec<LaneExchange>>();
    if stays { input } else { PassThroughExec::<LaneExchange>::over(input) }
}
