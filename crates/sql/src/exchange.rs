//! The lane exchange: a node of a plan that changes nothing but where its input runs. Partition i of the input is run on the heavy
//! lane of core i, and its batches come over a bounded channel to whoever asked.
//!
//! A rule, the last of the optimizer's, puts one under every node that brings partitions together: there, and only there, a
//! partition's work would otherwise move to another core.
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

use datafusion::arrow::array::RecordBatch;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::analyze::AnalyzeExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, SendableRecordBatchStream};
use futures::StreamExt;
use tokio::sync::mpsc;

use crate::passage::{Passage, PassageExec};
use crate::run::Run;
use crate::scan::ScanExec;
use crate::tasks::{self, Handles};
use crate::wide;
use crate::yields::yielding;

/// Batches on their way between two lanes: one being worked on, one ready. Heavy lanes share a short lock here, never a fast one.
const BATCHES_MAX: usize = 2;

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct LaneExchange;

impl Passage for LaneExchange {
    const NAME: &'static str = "LaneExchangeExec";

    fn describe(input: &Arc<dyn ExecutionPlan>) -> String {
        format!("{}: partitions={}", Self::NAME, partitions(input))
    }

    fn run(
        input: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let (run, input, schema) = (Run::of(&context), input.clone(), input.schema());
        let make = move |handles| on_core(handles, partition, pump(input, partition, context));
        Ok(elsewhere(schema, run, make))
    }
}

/// What sends batches into a channel until there are no more, or nobody wants them.
pub(crate) type Sender = mpsc::Sender<Result<RecordBatch>>;

/// Runs a partition of the input, where it is polled.
fn pump(
    input: Arc<dyn ExecutionPlan>,
    partition: usize,
    context: Arc<TaskContext>,
) -> impl FnOnce(Sender) -> futures::future::BoxFuture<'static, ()> + Send + 'static {
    move |sender: Sender| {
        Box::pin(async move {
            let run = Run::of(&context);
            let mut stream = match input.execute(partition, context) {
                Ok(stream) => stream,
                Err(error) => return drop(sender.send(Err(error)).await),
            };
            while let Some(batch) = stream.next().await {
                let failed = batch.is_err();
                if sender.send(batch).await.is_err() || failed {
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

/// The work and the end of its channel, once it has been started.
pub(crate) type Started = (mpsc::Receiver<Result<RecordBatch>>, lanes::Task<Result<(), tasks::Panicked>>);

/// Starts what feeds a channel on the heavy lane of a core, in the group of the caller.
async fn on_core<F>(handles: &'static Handles, partition: usize, feed: F) -> Result<Started>
where
    F: FnOnce(Sender) -> futures::future::BoxFuture<'static, ()> + Send + 'static,
{
    let (sender, receiver) = mpsc::channel(BATCHES_MAX);
    let core = partition % lanes::cores();
    let task = tasks::heavy_on(core, handles, lanes::current_group(), feed(sender)).await;
    Ok((receiver, task))
}

/// A channel between the lanes, of the bound above.
pub(crate) fn channel() -> (Sender, mpsc::Receiver<Result<RecordBatch>>) {
    mpsc::channel(BATCHES_MAX)
}

/// The batches of work that is started somewhere else when they are first asked for. Dropping the stream cancels the work.
pub(crate) fn elsewhere<M, Fut>(
    schema: datafusion::arrow::datatypes::SchemaRef,
    run: Option<Arc<Run>>,
    make: M,
) -> SendableRecordBatchStream
where
    M: FnOnce(&'static Handles) -> Fut + Send + 'static,
    Fut: Future<Output = Result<Started>> + Send + 'static,
{
    enum State<M> {
        New(M),
        Running(Started),
        Ended,
    }
    let batches = futures::stream::unfold((State::New(make), run), |(state, run)| async move {
        if let Some(run) = &run {
            run.follow().await;
        }
        let (mut receiver, task) = match state {
            State::New(make) => {
                let Some(handles) = tasks::handles() else {
                    let error = DataFusionError::Internal("a plan is run outside of heavy lanes".to_owned());
                    return Some((Err(error), (State::Ended, run)));
                };
                match make(handles).await {
                    Ok(started) => started,
                    Err(error) => return Some((Err(error), (State::Ended, run))),
                }
            }
            State::Running(started) => started,
            State::Ended => return None,
        };
        match receiver.recv().await {
            Some(Ok(batch)) => Some((Ok(batch), (State::Running((receiver, task)), run))),
            Some(Err(error)) => Some((Err(error), (State::Ended, run))),
            None => match task.await {
                Ok(()) => None,
                Err(tasks::Panicked) => {
                    let error = DataFusionError::Internal("a part of the query panicked".to_owned());
                    Some((Err(error), (State::Ended, run)))
                }
            },
        }
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, batches))
}

/// Puts lane exchanges where partitions come together, and makes a plan of several partitions one.
#[derive(Debug)]
pub(crate) struct PlaceOnLanes {
    /// Rows of a batch, if a statement has no wide values.
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
            if !brings_together(&node) {
                let node = if is_narrowed { wide::split(node) } else { node };
                return Ok(Transformed::yes(yielding(node)?));
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

fn brings_together(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.is::<RepartitionExec>()
        || node.is::<CoalescePartitionsExec>()
        || node.is::<SortPreservingMergeExec>()
        || node.is::<AnalyzeExec>()
}

/// One partition runs wherever it is asked for; a scan finds its cores by itself.
fn place(input: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    let stays = partitions(&input) == 1 || input.is::<ScanExec>() || input.is::<PassageExec<LaneExchange>>();
    if stays { input } else { PassageExec::<LaneExchange>::over(input) }
}
