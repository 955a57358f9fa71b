//! DataFusion's rules for physical plans, with bounds around each. Physical expressions are shared,
//! so that a rule may put one in place of many columns in no memory. The next rule that rewrites
//! the result visits, and copies, each place of it. A rule that merges projections repeats nothing,
//! but the merged expression may take exponential steps to compute its type ([`Size`]).
//!
//! DataFusion moves filters through projections by the names of columns, and both sides of an outer
//! join may have a name. So the rule that moves conditions is left out: they have moved to their
//! places in the logical plan. The one that moves filters known at run time is left out of plans
//! whose projections have two columns of a name.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::physical_expr::expressions::{CastExpr, Column, NegativeExpr, NotExpr, TryCastExpr};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::{PhysicalOptimizer, PhysicalOptimizerContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;

use crate::engine::limits::planning::budget::{MOVED_NODES_MAX, NODES_MAX, step};
use crate::engine::limits::planning::size::{Field, Size};

/// Rule that moves conditions, which is left out.
const CONDITIONS: &str = "FilterPushdown";
/// Rule that moves filters that are known at run time only.
const RUN_TIME_FILTERS: &str = "FilterPushdown(Post)";
/// Weight of an operator in nodes.
const OPERATOR_NODES: u64 = 10;
/// Rules that put the expressions of projections in place of columns, with the largest size of such
/// an expression. A plan is right without them.
const REPLACE_COLUMNS: [(&str, u64); 3] = [
    (RUN_TIME_FILTERS, MOVED_NODES_MAX),
    ("PushdownSort", MOVED_NODES_MAX),
    ("ProjectionPushdown", MERGED_NODES_MAX),
];
/// Maximum size of an expression that is made by merging projections, in nodes.
const MERGED_NODES_MAX: u64 = NODES_MAX / 10;

/// Returns the rules.
pub(super) fn rules() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let bounded = |rule: Arc<dyn PhysicalOptimizerRule + Send + Sync>| {
        let found = REPLACE_COLUMNS.iter().find(|(name, _)| *name == rule.name());
        Arc::new(Bounded { rule, heaviest_max: found.map(|(_, max)| *max) })
            as Arc<dyn PhysicalOptimizerRule + Send + Sync>
    };
    let rules = PhysicalOptimizer::new().rules.into_iter();
    rules.filter(|rule| rule.name() != CONDITIONS).map(bounded).collect()
}

#[derive(Debug)]
struct Bounded {
    rule: Arc<dyn PhysicalOptimizerRule + Send + Sync>,
    /// Maximum size of an expression after its columns were replaced. `None`: the rule replaces
    /// none.
    heaviest_max: Option<u64>,
}

impl Bounded {
    /// Checks a plan before the rule. Returns false if the rule is to be left out.
    fn permits(&self, plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
        step(nodes_of(plan))?;
        if self.rule.name() == RUN_TIME_FILTERS && has_twins(plan) {
            return Ok(false);
        }
        Ok(self.heaviest_max.is_none_or(|max| Expanded::default().of_plan(plan).heaviest <= max))
    }
}

impl PhysicalOptimizerRule for Bounded {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if self.permits(&plan)? { self.rule.optimize(plan, config) } else { Ok(plan) }
    }

    fn optimize_with_context(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        context: &dyn PhysicalOptimizerContext,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if self.permits(&plan)? { self.rule.optimize_with_context(plan, context) } else { Ok(plan) }
    }

    fn name(&self) -> &str {
        self.rule.name()
    }

    fn schema_check(&self) -> bool {
        self.rule.schema_check()
    }
}

/// Returns true if a projection of the plan has two columns of a name.
fn has_twins(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let mut names = HashSet::new();
    let is_twin = plan.downcast_ref::<ProjectionExec>().is_some()
        && plan.schema().fields().iter().any(|field| !names.insert(field.name().clone()));
    is_twin || plan.children().into_iter().any(has_twins)
}

/// Returns the operators of a plan and their columns, in nodes.
fn nodes_of(plan: &Arc<dyn ExecutionPlan>) -> u64 {
    let own = OPERATOR_NODES.saturating_add(plan.schema().fields().len() as u64);
    plan.children().into_iter().map(nodes_of).fold(own, u64::saturating_add)
}

/// Sizes of expressions after the columns in them were replaced, down to the leaves of the plan.
#[derive(Default)]
struct Expanded {
    /// Sizes of expressions of one projection, by address: they may share parts.
    known: HashMap<*const (), Size>,
}

/// Sizes of the columns of a plan.
struct Columns {
    sizes: Vec<Size>,
    /// The largest size within the plan.
    heaviest: u64,
}

impl Expanded {
    fn of_plan(&mut self, plan: &Arc<dyn ExecutionPlan>) -> Columns {
        let inputs: Vec<Columns> = plan.children().into_iter().map(|child| self.of_plan(child)).collect();
        let width = plan.schema().fields().len();
        let mut heaviest = inputs.iter().map(|input| input.heaviest).max().unwrap_or(1);
        let mut sizes = match (&inputs[..], plan.downcast_ref::<ProjectionExec>()) {
            ([input], Some(projection)) => {
                self.known.clear();
                projection.expr().iter().map(|of| self.of_expr(&of.expr, &input.sizes)).collect()
            }
            ([input], None) => input.sizes.clone(),
            _ => Vec::new(),
        };
        // The order of columns is known for operators of one input that keep all columns.
        if sizes.len() != width {
            let largest = inputs.iter().flat_map(|input| &input.sizes).chain(&sizes);
            let largest = largest.max_by_key(|size| size.whole()).copied();
            sizes = vec![largest.unwrap_or(Size::of_leaf(1)); width];
        }
        if let (Some(filter), [input]) = (plan.downcast_ref::<FilterExec>(), &inputs[..]) {
            self.known.clear();
            let (predicate, before) = (filter.predicate(), heaviest);
            let expanded = self.of_expr(predicate, &input.sizes).whole();
            self.known.clear();
            heaviest = before.max(expanded.saturating_sub(self.of_expr(predicate, &[]).whole()));
        }
        let heaviest = sizes.iter().map(|size| size.whole()).max().unwrap_or(1).max(heaviest);
        Columns { sizes, heaviest }
    }

    fn of_expr(&mut self, expr: &Arc<dyn PhysicalExpr>, sizes: &[Size]) -> Size {
        if let Some(column) = expr.downcast_ref::<Column>() {
            return sizes.get(column.index()).copied().unwrap_or(Size::of_leaf(1));
        }
        let place = Arc::as_ptr(expr).cast::<()>();
        if let Some(size) = self.known.get(&place) {
            return *size;
        }
        let mut size = Size::of_leaf(1);
        expr.children().into_iter().for_each(|child| size.add(self.of_expr(child, sizes)));
        let size = size.with(field_of(expr));
        self.known.insert(place, size);
        size
    }
}

fn field_of(expr: &Arc<dyn PhysicalExpr>) -> Field {
    let forwards = expr.is::<TryCastExpr>() || expr.is::<NotExpr>() || expr.is::<NegativeExpr>();
    match () {
        () if expr.is::<CastExpr>() => Field::OfCast,
        () if forwards => Field::OfOperand,
        () if expr.is::<ScalarFunctionExpr>() => Field::Kept,
        () => Field::Computed,
    }
}
