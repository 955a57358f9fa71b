//! The budget of planning: nodes, memory, and the end of the statement.

use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::LogicalPlan;

use crate::engine::limits::planning::size;
use crate::failure::Failure;
use crate::run::tasks;

/// Maximum size of a plan, in nodes: operators, their columns, and expressions. The guardrail
/// `sql_nodes` permits 100,000 nodes of a syntax tree by default.
pub(crate) const NODES_MAX: u64 = 250_000;
/// Maximum growth of a condition by moving it below a projection, in nodes. Beyond that it stays
/// above, where it computes each column once.
pub(super) const MOVED_NODES_MAX: u64 = 2_000;
/// Memory of a node while it is planned, bytes: about 200 (the size of `Expr` and of its text,
/// 2026-11-24) in the syntax tree, the plan as converted, as optimized, a copy during a rewrite,
/// and the physical plan.
pub(crate) const NODE_BYTES: u64 = 1_000;
/// Maximum depth of a syntax tree, in levels: the default of the guardrail `sql_depth`. Dropping a
/// plan recurses on a lane's stack of 2 MiB.
pub(crate) const DEPTH_MAX: u64 = 500;
/// Maximum number of columns of a SELECT and of its joined tables. DataFusion finds each column by
/// a search through all of them.
pub(super) const COLUMNS_MAX: u64 = 10_000;
/// Maximum number of tokens of a text (`text_bounds`).
const TOKENS_MAX: u64 = 400_000;

/// Checks that the statement of this task poll goes on, and charges the memory of planning
/// `nodes` nodes.
///
/// # Errors
/// 54001 for more than [`NODES_MAX`] nodes, 53200 if the level refuses the memory, or the
/// statement has ended.
pub(crate) fn step(nodes: u64) -> Result<()> {
    tasks::check_end()?;
    if nodes > NODES_MAX {
        return Err(too_complex(nodes));
    }
    tasks::charge(nodes.saturating_mul(NODE_BYTES)).map_err(DataFusionError::ResourcesExhausted)
}

/// Does [`step`] for a plan. Returns its nodes.
///
/// # Errors
/// As [`step`].
pub(crate) fn step_with(plan: &LogicalPlan) -> Result<u64> {
    let nodes = size::of_plan(plan, NODES_MAX)?;
    step(nodes).map(|()| nodes)
}

/// Checks that the statement goes on, and charges the memory of parsing a text of this length: a
/// token takes about 100 bytes, and the parser refuses more than 400,000.
///
/// # Errors
/// As [`step`].
pub(crate) fn step_parsing(text_bytes: usize) -> Result<()> {
    step((text_bytes as u64).min(TOKENS_MAX) * 100 / NODE_BYTES)
}

/// Returns the error of a plan of `nodes` nodes. `u64::MAX`: they are not counted.
pub(super) fn too_complex(nodes: u64) -> DataFusionError {
    let hint = "Split the statement, or compute the inner queries once, into a table.";
    let got = if nodes == u64::MAX { "many more".to_owned() } else { format!("at least {nodes}") };
    let reason = format!("expected a plan of at most {NODES_MAX} nodes, got {got}");
    Failure::too_complex(reason).with_hint(hint).into()
}
