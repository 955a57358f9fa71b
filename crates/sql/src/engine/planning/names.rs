//! Plans whose projections have two columns of the same name. DataFusion moves filters that are
//! known at run time only through projections by the names of columns, and would take one for the
//! other.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizerContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;

/// A rule that is left out for such plans. They are right without it.
#[derive(Debug)]
pub(super) struct WithoutTwins(pub(super) Arc<dyn PhysicalOptimizerRule + Send + Sync>);

impl PhysicalOptimizerRule for WithoutTwins {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if has_twins(&plan) { Ok(plan) } else { self.0.optimize(plan, config) }
    }

    fn optimize_with_context(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        context: &dyn PhysicalOptimizerContext,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if has_twins(&plan) { Ok(plan) } else { self.0.optimize_with_context(plan, context) }
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}

fn has_twins(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let mut names = HashSet::new();
    let is_twin = plan.downcast_ref::<ProjectionExec>().is_some()
        && plan.schema().fields().iter().any(|field| !names.insert(field.name().clone()));
    is_twin || plan.children().into_iter().any(has_twins)
}
