//! Bounded planning. DataFusion's rewrites put expressions in place of columns and repeat operands,
//! so that a short statement can grow without bound, and no rewrite can be interrupted. Therefore:
//!
//! 1. Before the conversion of a statement to a plan, `predicted_size` predicts the nodes
//!    of the plan, and `conversion_work` the work, which is quadratic in the result columns.
//! 2. Before a rewrite that multiplies, its growth is predicted (`size`). It is left out where the
//!    plan is right without it, and refused otherwise (`rules`, `physical`).
//! 3. After each rewrite, the plan is counted. It has at most [`NODES_MAX`] nodes.
//! 4. Before each step, the memory of a plan of this size is charged to the statement's account,
//!    and the statement is checked for its end: cancel, time limit, disconnect and shutdown.
//! 5. Constants that a rewrite computes are charged when they are made (`folded_constants`).
//!
//! The bounds hold without guardrails.

mod budget;
mod conversion_work;
mod physical;
mod predicted_size;
mod rules;
mod size;

use std::sync::Arc;

use datafusion::common::ParamValues;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::{Explain, Expr, LogicalPlan};

use crate::engine::limits::folded_constants;
pub(crate) use crate::engine::limits::planning::budget::{
    DEPTH_MAX, NODES_MAX, step, step_parsing, step_with,
};
pub(crate) use crate::engine::limits::planning::predicted_size::{
    StatementNames, nodes_of as written_nodes, of_value, step_converting,
};
pub(crate) use crate::engine::limits::planning::size::{of_expr as expr_nodes, of_plan as plan_nodes};
use crate::failure::{refusal, state};

/// Maximum size of a plan for EXPLAIN VERBOSE, in nodes: it shows the plan after each of some 100
/// rules.
const VERBOSE_NODES_MAX: u64 = 2_000;

/// Does [`step`] for a plan whose parameters get values: each place of a parameter gets a copy.
///
/// # Errors
/// As [`step`].
pub(crate) fn step_binding(plan: &LogicalPlan, values: &ParamValues) -> Result<()> {
    let weight = |id: &str| {
        let name = id.get(1..)?;
        let value = match values {
            ParamValues::List(values) => values.get(name.parse::<usize>().ok()?.checked_sub(1)?)?,
            ParamValues::Map(values) => values.get(name)?,
        };
        Some(size::of_literal(&value.value))
    };
    let mut nodes = size::of_plan(plan, NODES_MAX)?;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let Expr::Placeholder(parameter) = expr {
                    nodes = nodes.saturating_add(weight(&parameter.id).unwrap_or(0));
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    step(nodes)
}

/// Optimizes a plan. DataFusion keeps the text of the plan after each rule for EXPLAIN, but shows
/// it for EXPLAIN VERBOSE only, which is refused for large plans.
///
/// # Errors
/// As [`step`], and errors of DataFusion.
pub(crate) fn optimized(state: &SessionState, plan: &LogicalPlan) -> Result<LogicalPlan> {
    folded_constants::computing(|| rules::of_statement(|| optimize(state, plan)))
}

fn optimize(state: &SessionState, plan: &LogicalPlan) -> Result<LogicalPlan> {
    let LogicalPlan::Explain(explain) = plan else { return state.optimize(plan) };
    if explain.verbose {
        let nodes = size::of_plan(plan, VERBOSE_NODES_MAX)?;
        if nodes > VERBOSE_NODES_MAX {
            let text = format!("EXPLAIN VERBOSE: expected a plan of at most {VERBOSE_NODES_MAX} nodes");
            return Err(refusal(state::COMPLEX, text));
        }
        return state.optimize(plan);
    }
    let optimized = state.optimize(&explain.plan)?;
    Ok(LogicalPlan::Explain(Explain {
        plan: Arc::new(optimized),
        logical_optimization_succeeded: true,
        ..explain.clone()
    }))
}

/// Puts bounds around all rules of a state.
pub(crate) fn bound_rules(builder: SessionStateBuilder) -> SessionStateBuilder {
    builder
        .with_analyzer_rules(rules::analyzer())
        .with_optimizer_rules(rules::optimizer())
        .with_physical_optimizer_rules(physical::rules())
}

#[cfg(test)]
mod tests;
