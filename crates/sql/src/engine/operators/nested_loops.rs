//! Joins without an equality. Without memory for one side, DataFusion's node runs the plan of that
//! side a second time and spills it. Other nodes cannot run twice (a repartition panics), and with
//! several partitions an outer, semi or anti join then returns unmatched rows more than once. So
//! the node gets a context without spilled files, and the statement is refused for want of memory.
//!
//! ```text
//!   InMemoryExec              takes the spilled files away
//!     NestedLoopJoinExec
//!       SpillingExec          gives them back to the nodes below
//! ```

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::physical_plan::{ExecutionPlan, SendableRecordBatchStream};

use crate::engine::operators::pass_through::{
    PassThrough, PassThroughExec, with_extension, with_inputs, with_runtime,
};

/// The environment of the nodes below a join, with spilled files.
struct Outer(Arc<RuntimeEnv>);

/// See the head of this file.
#[derive(Debug)]
struct InMemory;

/// See the head of this file.
#[derive(Debug)]
struct Spilling;

/// Puts nodes above and below a join without an equality that keep it in memory.
///
/// # Errors
/// Errors of DataFusion.
pub(crate) fn in_memory(join: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let inputs = join.children().into_iter().cloned().map(PassThroughExec::<Spilling>::over).collect();
    Ok(PassThroughExec::<InMemory>::over(with_inputs(join, inputs)?))
}

impl PassThrough for InMemory {
    const NAME: &'static str = "InMemoryExec";

    fn run(
        input: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let outer = context.runtime_env();
        let none = DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled);
        let runtime =
            RuntimeEnvBuilder::from_runtime_env(&outer).with_disk_manager_builder(none).build_arc()?;
        let context = with_runtime(&with_extension(&context, Arc::new(Outer(outer))), runtime);
        input.execute(partition, context)
    }
}

impl PassThrough for Spilling {
    const NAME: &'static str = "SpillingExec";

    fn run(
        input: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let outer = context.session_config().get_extension::<Outer>();
        let context = outer.map_or(context.clone(), |outer| with_runtime(&context, outer.0.clone()));
        input.execute(partition, context)
    }
}
