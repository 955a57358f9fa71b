//! DataFusion's rules for logical plans, with bounds around each.

use std::cell::Cell;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, Operator};
use datafusion::optimizer::analyzer::Analyzer;
use datafusion::optimizer::optimizer::{ApplyOrder, Optimizer};
use datafusion::optimizer::scalar_subquery_to_join::ScalarSubqueryToJoin;
use datafusion::optimizer::{AnalyzerRule, OptimizerConfig, OptimizerRule};

use crate::engine::limits::planning::budget::{MOVED_NODES_MAX, NODES_MAX, step, step_with, too_complex};
use crate::engine::limits::planning::size::{self, Weights};
use crate::run::tasks;

/// Maximum growth of a plan by moving conditions, in nodes, for all runs of the rule.
const COPIED_NODES_MAX: u64 = NODES_MAX / 4;

thread_local! {
    /// Growth by moving conditions in the statement that this thread optimizes.
    static COPIED: Cell<u64> = const { Cell::new(0) };
}

/// Runs the optimizer for a statement.
pub(super) fn of_statement<T>(optimize: impl FnOnce() -> T) -> T {
    COPIED.set(0);
    optimize()
}

/// Returns the analyzer's rules.
pub(super) fn analyzer() -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    let bounded = |rule| Arc::new(Analyzed(rule)) as Arc<dyn AnalyzerRule + Send + Sync>;
    Analyzer::new().rules.into_iter().map(bounded).collect()
}

/// Returns the optimizer's rules, each followed by a count of the plan.
pub(super) fn optimizer() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let bounded = |rule: Arc<dyn OptimizerRule + Send + Sync>| {
        let growth = Growth::of(rule.name());
        let bounded: Arc<dyn OptimizerRule + Send + Sync> = Arc::new(Bounded { rule, growth });
        [bounded, Arc::new(CountNodes)]
    };
    let mut rules = Optimizer::new().rules;
    // Joins of correlated subqueries count the values of aggregates over no rows, which they find
    // only before aggregates are simplified away.
    if let Some(place) = rules.iter().position(|rule| rule.name() == "simplify_expressions") {
        rules.insert(place, Arc::new(ScalarSubqueryToJoin::new()));
    }
    rules.into_iter().flat_map(bounded).collect()
}

#[derive(Debug)]
struct Analyzed(Arc<dyn AnalyzerRule + Send + Sync>);

impl AnalyzerRule for Analyzed {
    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        step_with(&plan)?;
        let plan = self.0.analyze(plan, config)?;
        step_with(&plan)?;
        Ok(plan)
    }

    fn name(&self) -> &str {
        self.0.name()
    }
}

/// Growth of a plan by a rule, at one operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Growth {
    /// By no more than a factor, which [`CountNodes`] observes.
    Linear,
    /// The rule repeats operands: refused if the result would be too large.
    Simplifies,
    /// The rule moves a condition below operators. Left out if the condition would grow too much.
    MovesFilter,
    /// The rule looks at a condition as if it were below a chain of projections.
    LooksThrough,
}

impl Growth {
    fn of(rule: &str) -> Growth {
        match rule {
            "simplify_expressions" => Growth::Simplifies,
            "push_down_filter" => Growth::MovesFilter,
            "eliminate_outer_join" => Growth::LooksThrough,
            _ => Growth::Linear,
        }
    }
}

/// A rule with a check before each operator.
#[derive(Debug)]
struct Bounded {
    rule: Arc<dyn OptimizerRule + Send + Sync>,
    growth: Growth,
}

impl OptimizerRule for Bounded {
    fn name(&self) -> &str {
        self.rule.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.rule.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        tasks::check_end()?;
        let grown = match self.growth {
            Growth::Linear => 0,
            Growth::Simplifies => {
                let nodes = simplified(&plan);
                if nodes > NODES_MAX {
                    return Err(too_complex(nodes));
                }
                0
            }
            Growth::MovesFilter => {
                let Moved { grown, copied } = moved(&plan);
                let copied = COPIED.get().saturating_add(copied);
                if grown > MOVED_NODES_MAX || copied > COPIED_NODES_MAX {
                    return Ok(Transformed::no(plan));
                }
                COPIED.set(copied);
                0
            }
            Growth::LooksThrough if !is_strict(&plan) => return Ok(Transformed::no(plan)),
            Growth::LooksThrough => seen_through(&plan),
        };
        if grown > MOVED_NODES_MAX {
            return Ok(Transformed::no(plan));
        }
        self.rule.rewrite(plan, config)
    }
}

/// Counts the plan after a rule.
#[derive(Debug)]
struct CountNodes;

impl OptimizerRule for CountNodes {
    fn name(&self) -> &'static str {
        "count_nodes"
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let nodes = size::of_plan(&plan, NODES_MAX)?;
        #[cfg(test)]
        super::tests::observe(nodes);
        step(nodes)?;
        Ok(Transformed::no(plan))
    }
}

/// Returns an upper bound of an operator's expressions after simplification.
fn simplified(plan: &LogicalPlan) -> u64 {
    let mut nodes = 0_u64;
    let _ = plan.apply_expressions(|expr| {
        nodes = nodes.saturating_add(size::simplified(expr));
        Ok(TreeNodeRecursion::Continue)
    });
    nodes
}

/// Effect of moving a condition below an operator, in nodes.
#[derive(Default)]
struct Moved {
    /// Growth of the condition.
    grown: u64,
    /// Growth of the plan.
    copied: u64,
}

/// Returns the effect of moving the condition of `plan` below the next operator.
fn moved(plan: &LogicalPlan) -> Moved {
    // Adjacent filters are merged first.
    let (mut predicates, mut at) = (Vec::new(), plan);
    while let LogicalPlan::Filter(filter) = at {
        predicates.push(&filter.predicate);
        at = &filter.input;
    }
    if predicates.is_empty() {
        return Moved::default();
    }
    let before = predicates.iter().map(|predicate| size::of_expr(predicate)).fold(0, u64::saturating_add);
    let with = |weights: &Weights| {
        let after = predicates.iter().map(|predicate| size::replaced(predicate, weights).whole());
        let grown = after.fold(0, u64::saturating_add).saturating_sub(before);
        Moved { grown, copied: grown }
    };
    match at {
        LogicalPlan::Projection(_) => with(&size::of_projection(at, &Weights::new())),
        LogicalPlan::Aggregate(aggregate) => {
            let weight =
                |expr: &Expr| (expr.schema_name().to_string(), size::replaced(expr, &Weights::new()));
            with(&aggregate.group_expr.iter().map(weight).collect())
        }
        LogicalPlan::Union(union) => {
            Moved { grown: 0, copied: before.saturating_mul(union.inputs.len() as u64) }
        }
        // Each part may be repeated for the other side, over columns that are equal there.
        LogicalPlan::Join(_) => Moved { grown: 0, copied: before },
        _ => Moved::default(),
    }
}

/// Functions that are null if an argument is.
const STRICT: [&str; 7] = ["abs", "add", "cast", "divide", "modulo", "multiply", "subtract"];

/// Returns true if a condition over a chain of projections is null, or not true, without the
/// columns of the inner side of an outer join: DataFusion takes that for granted of all functions
/// and of CASE.
fn is_strict(plan: &LogicalPlan) -> bool {
    let LogicalPlan::Filter(filter) = plan else { return true };
    let is_strict = |expr: &Expr| match expr {
        Expr::Column(_)
        | Expr::Literal(..)
        | Expr::Alias(_)
        | Expr::Not(_)
        | Expr::IsNotNull(_)
        | Expr::IsNull(_)
        | Expr::Negative(_)
        | Expr::Between(_)
        | Expr::Like(_)
        | Expr::InList(_)
        | Expr::Cast(_) => true,
        Expr::BinaryExpr(binary) => {
            !matches!(binary.op, Operator::IsDistinctFrom | Operator::IsNotDistinctFrom)
        }
        Expr::ScalarFunction(call) => STRICT.contains(&call.func.name()),
        _ => false,
    };
    let all = |expr: &Expr| !expr.exists(|expr| Ok(!is_strict(expr))).unwrap_or(true);
    let (mut strict, mut at) = (all(&filter.predicate), &*filter.input);
    while strict && let LogicalPlan::Projection(projection) = at {
        strict = projection.expr.iter().all(all);
        at = &projection.input;
    }
    strict
}

/// Returns the growth of a condition over a chain of projections, if their expressions were in it.
fn seen_through(plan: &LogicalPlan) -> u64 {
    let LogicalPlan::Filter(filter) = plan else { return 0 };
    let (mut chain, mut at) = (Vec::new(), &*filter.input);
    while let LogicalPlan::Projection(projection) = at {
        chain.push(at);
        at = &projection.input;
    }
    let weights = chain.into_iter().rev().fold(Weights::new(), |below, at| size::of_projection(at, &below));
    size::replaced(&filter.predicate, &weights).whole().saturating_sub(size::of_expr(&filter.predicate))
}
