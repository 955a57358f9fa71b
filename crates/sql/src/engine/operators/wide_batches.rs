//! Plan nodes for batches with wide values (`batch_width`): they measure the inputs of joins and
//! of UNNEST, and split batches of any number of rows.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, SplitMetrics};
use datafusion::physical_plan::stream::{BatchSplitStream, RecordBatchStreamAdapter};
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{ExecutionPlan, SendableRecordBatchStream};
use futures::StreamExt;

use crate::engine::limits::batch_width::{TooWide, joined, unnested};
use crate::engine::operators::pass_through::{PassThrough, PassThroughExec};
use crate::run::query::QueryRun;
use crate::run::scan::ScanExec;
use crate::run::sizes::batch_bytes;

/// Copies of the value of a subquery: the batch, and the value.
const VALUE_COPIES: u64 = 2;

/// Returns the inputs of a join or an UNNEST, each under a node that measures it.
pub(crate) fn measured(node: &Arc<dyn ExecutionPlan>) -> Vec<Arc<dyn ExecutionPlan>> {
    let is_unnest = node.is::<UnnestExec>();
    let over = |input: Arc<dyn ExecutionPlan>| match is_unnest {
        true => PassThroughExec::<Measured<Unnest>>::over(input),
        false => PassThroughExec::<Measured<Join>>::over(input),
    };
    node.children().into_iter().cloned().map(over).collect()
}

/// Returns true for nodes that make batches of any number of rows: sources other than scans, and
/// windows.
pub(crate) fn makes_any_size(node: &Arc<dyn ExecutionPlan>) -> bool {
    let is_leaf = node.children().is_empty() && !node.is::<ScanExec>();
    is_leaf || node.is::<WindowAggExec>() || node.is::<BoundedWindowAggExec>()
}

/// Puts a node that splits batches above one that makes them of any number of rows.
pub(crate) fn split(node: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    PassThroughExec::<Split>::over(node)
}

/// Measures the inputs of a kind of node.
#[derive(Debug)]
struct Measured<C>(PhantomData<C>);

/// Check of a batch before a node copies its rows.
trait Check: fmt::Debug + Send + Sync + 'static {
    const CHECK: fn(&RecordBatch, usize) -> Result<(), TooWide>;
}

/// A join.
#[derive(Debug)]
struct Join;

/// An UNNEST.
#[derive(Debug)]
struct Unnest;

impl Check for Join {
    const CHECK: fn(&RecordBatch, usize) -> Result<(), TooWide> = joined;
}

impl Check for Unnest {
    const CHECK: fn(&RecordBatch, usize) -> Result<(), TooWide> = unnested;
}

/// Splits batches that have too many rows.
#[derive(Debug)]
struct Split;

/// Measures the value of a subquery.
#[derive(Debug)]
struct Value;

/// Puts a node above a subquery with one value that charges it, and a batch that has the value in
/// each row, until the run ends.
pub(crate) fn value(subquery: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    PassThroughExec::<Value>::over(subquery)
}

impl PassThrough for Value {
    const NAME: &'static str = "ValueExec";

    fn run(
        input: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let rows = context.session_config().batch_size();
        let run = QueryRun::of(&context);
        let input = input.execute(partition, context)?;
        let schema = input.schema();
        let batches = input.map(move |batch| {
            let batch = batch?;
            let Some(run) = &run else { return Ok(batch) };
            run.keep(batch_bytes(&batch).saturating_mul(VALUE_COPIES))?;
            let Err(wide) = joined(&batch, rows) else { return Ok(batch) };
            if wide.exceeds_offsets() {
                return Err(DataFusionError::External(Box::new(wide)));
            }
            match run.keep(wide.batch_bytes) {
                Ok(()) => Ok(batch),
                Err(error) if run.has_given() => Err(error),
                Err(_) => Err(DataFusionError::External(Box::new(wide))),
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }
}

impl<C: Check> PassThrough for Measured<C> {
    const NAME: &'static str = "MeasureExec";

    fn run(
        input: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        checked(input, partition, context, C::CHECK)
    }
}

impl PassThrough for Split {
    const NAME: &'static str = "SplitExec";

    fn run(
        input: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let rows = context.session_config().batch_size();
        let metrics = SplitMetrics::new(&ExecutionPlanMetricsSet::new(), partition);
        Ok(Box::pin(BatchSplitStream::new(input.execute(partition, context)?, rows, metrics)))
    }
}

/// Runs a partition of the input and checks each batch. Charges the full batch that a wide one may
/// grow to, until the next one comes. If there is no memory for it, or Arrow cannot build it, the
/// run ends.
fn checked(
    input: &Arc<dyn ExecutionPlan>,
    partition: usize,
    context: Arc<TaskContext>,
    check: fn(&RecordBatch, usize) -> Result<(), TooWide>,
) -> Result<SendableRecordBatchStream> {
    let rows = context.session_config().batch_size();
    let (run, memory) =
        (QueryRun::of(&context), MemoryConsumer::new("wide rows").register(context.memory_pool()));
    let input = input.execute(partition, context)?;
    let schema = input.schema();
    let batches = input.map(move |batch| {
        let batch = batch?;
        let Err(wide) = check(&batch, rows) else {
            memory.free();
            return Ok(batch);
        };
        if wide.exceeds_offsets() {
            return Err(DataFusionError::External(Box::new(wide)));
        }
        match memory.try_resize(usize::try_from(wide.batch_bytes).unwrap_or(usize::MAX)) {
            Ok(()) => Ok(batch),
            Err(error) if run.as_ref().is_some_and(|run| run.has_given()) => Err(error),
            Err(_) => Err(DataFusionError::External(Box::new(wide))),
        }
    });
    Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
}
