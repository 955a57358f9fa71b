//! Plan nodes with one input that pass all rows on unchanged. They only decide how a partition of
//! the input is executed.

use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use datafusion::common::internal_err;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::{
    CardinalityEffect, ChildrenPropertiesMode, ReplaceChildrenOptions,
};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, SendableRecordBatchStream,
};
use datafusion::prelude::SessionConfig;

/// Execution of a partition of the input.
pub(crate) trait PassThrough: fmt::Debug + Send + Sync + 'static {
    /// Name of the node in plans.
    const NAME: &'static str;

    /// Returns the node's line in `EXPLAIN`.
    fn describe(_input: &Arc<dyn ExecutionPlan>) -> String {
        Self::NAME.to_owned()
    }

    /// Returns the rows of a partition.
    ///
    /// # Errors
    /// Errors of the input.
    fn run(
        input: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream>;
}

/// Plan node for a [`PassThrough`].
#[derive(Debug)]
pub(crate) struct PassThroughExec<P> {
    input: Arc<dyn ExecutionPlan>,
    how: PhantomData<P>,
}

impl<P: PassThrough> PassThroughExec<P> {
    pub(crate) fn over(input: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        Arc::new(PassThroughExec::<P> { input, how: PhantomData })
    }
}

/// Returns the node over other inputs with the same properties.
///
/// # Errors
/// Errors of DataFusion.
pub(crate) fn with_inputs(
    node: Arc<dyn ExecutionPlan>,
    inputs: Vec<Arc<dyn ExecutionPlan>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    node.replace_children(inputs, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep))
}

/// Returns the context with an extension, which nodes below find.
pub(crate) fn with_extension<T: Send + Sync + 'static>(
    context: &TaskContext,
    extension: Arc<T>,
) -> Arc<TaskContext> {
    let config = context.session_config().clone().with_extension(extension);
    changed(context, config, context.runtime_env())
}

/// Returns the context with another environment for nodes below.
pub(crate) fn with_runtime(context: &TaskContext, runtime: Arc<RuntimeEnv>) -> Arc<TaskContext> {
    changed(context, context.session_config().clone(), runtime)
}

/// The new context has no functions: plans contain theirs.
fn changed(context: &TaskContext, config: SessionConfig, runtime: Arc<RuntimeEnv>) -> Arc<TaskContext> {
    Arc::new(TaskContext::new(
        context.task_id(),
        context.session_id(),
        config,
        HashMap::new(),
        HashMap::new(),
        HashMap::new(),
        HashMap::new(),
        runtime,
    ))
}

impl<P: PassThrough> DisplayAs for PassThroughExec<P> {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&P::describe(&self.input))
    }
}

impl<P: PassThrough> ExecutionPlan for PassThroughExec<P> {
    fn name(&self) -> &'static str {
        P::NAME
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
            (Some(input), None) => Ok(PassThroughExec::<P>::over(input)),
            _ => internal_err!("{} has one input", P::NAME),
        }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        P::run(&self.input, partition, context)
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }
}
