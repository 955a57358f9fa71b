//! Sizes of plans and expressions in nodes, and predictions of how a rewrite multiplies them.
//! All counts saturate, and take time linear in what they count.

use std::collections::HashMap;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Case, InList};
use datafusion::logical_expr::{Between, BinaryExpr, Expr, LogicalPlan, Operator};
use datafusion::scalar::ScalarValue;

/// Bytes of a literal or of a name that weigh as much as a node.
pub(super) const NODE_TEXT_BYTES: u64 = 256;
/// Weight of a plan's operator in nodes, without its expressions and columns.
const OPERATOR_NODES: u64 = 10;
/// Number of `WHEN`s below which DataFusion turns a CASE of conditions into a chain of OR.
const WHENS_TO_CHAIN: usize = 3;

/// Returns the size of an expression, without the plans of its subqueries.
pub(crate) fn of_expr(expr: &Expr) -> u64 {
    replaced(expr, &Weights::new()).whole()
}

/// Returns the size of `expr` after its columns were replaced.
pub(super) fn replaced(expr: &Expr, weights: &Weights) -> Size {
    if let Expr::Column(column) = expr
        && let Some(size) = weights.get(&column.flat_name())
    {
        return *size;
    }
    let mut size = Size::of_leaf(of_node(expr));
    let _ = expr.apply_children(|child| {
        size.add(replaced(child, weights));
        Ok(TreeNodeRecursion::Continue)
    });
    size.with(match expr {
        Expr::Cast(_) => Field::OfCast,
        Expr::TryCast(_) | Expr::Not(_) | Expr::Negative(_) => Field::OfOperand,
        Expr::ScalarFunction(_) => Field::Kept,
        _ => Field::Computed,
    })
}

/// Nodes of an expression, and the steps of computing its type in a physical plan.
///
/// DataFusion 55.2 asks the operand of a cast twice whether it may be null: for itself, and for the
/// field of the operand. So a chain of casts of operators takes steps exponential in its length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    nodes: u64,
    /// Steps of `PhysicalExpr::nullable`.
    null_steps: u64,
    /// Steps of `PhysicalExpr::return_field`.
    field_steps: u64,
}

/// Computation of an expression's field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Field {
    /// From its type, and whether it may be null.
    Computed,
    /// From the field of its operand.
    OfOperand,
    /// As [`Field::OfOperand`], also to find out whether it may be null.
    OfCast,
    /// Once.
    Kept,
}

impl Size {
    /// Returns the size of an expression without operands.
    pub(super) fn of_leaf(nodes: u64) -> Size {
        Size { nodes, null_steps: 1, field_steps: 1 }
    }

    /// Adds an operand.
    pub(super) fn add(&mut self, operand: Size) {
        self.nodes = self.nodes.saturating_add(operand.nodes);
        self.null_steps = self.null_steps.saturating_add(operand.null_steps);
        self.field_steps = self.field_steps.saturating_add(operand.field_steps);
    }

    /// Returns the size of an expression whose operands were added.
    pub(super) fn with(mut self, field: Field) -> Size {
        match field {
            Field::Computed => self.field_steps = self.null_steps,
            Field::OfOperand => {}
            Field::OfCast => self.null_steps = self.null_steps.saturating_add(self.field_steps),
            Field::Kept => (self.null_steps, self.field_steps) = (1, 1),
        }
        self
    }

    /// Returns the nodes, or the steps if they are more.
    pub(super) fn whole(self) -> u64 {
        self.nodes.max(self.null_steps)
    }
}

/// Returns the weight of an expression without its operands.
fn of_node(expr: &Expr) -> u64 {
    1 + match expr {
        Expr::Literal(value, _) => of_literal(value),
        Expr::Column(column) => column.name.len() as u64 / NODE_TEXT_BYTES,
        Expr::Alias(alias) => alias.name.len() as u64 / NODE_TEXT_BYTES,
        _ => 0,
    }
}

/// Returns the weight of a literal beyond one node.
pub(super) fn of_literal(value: &ScalarValue) -> u64 {
    match value.try_as_str() {
        Some(text) => text.map_or(0, str::len) as u64 / NODE_TEXT_BYTES,
        None => value.size() as u64 / NODE_TEXT_BYTES,
    }
}

/// Returns the weight of an operator with its expressions and columns, without its inputs.
pub(super) fn of_operator(plan: &LogicalPlan) -> u64 {
    let fields = plan.schema().fields();
    // The others share the schema of their input.
    let has_schema = !matches!(plan, LogicalPlan::Filter(_) | LogicalPlan::Limit(_) | LogicalPlan::Sort(_));
    let mut nodes = OPERATOR_NODES;
    if has_schema {
        nodes = nodes.saturating_add(fields.len() as u64);
    }
    let _ = plan.apply_expressions(|expr| {
        nodes = nodes.saturating_add(of_expr(expr));
        Ok(TreeNodeRecursion::Continue)
    });
    nodes
}

/// Returns the nodes of a plan with its subqueries, as far as they exceed `max` by one operator.
///
/// # Errors
/// Errors of DataFusion.
pub(crate) fn of_plan(plan: &LogicalPlan, max: u64) -> Result<u64> {
    let mut nodes = 0_u64;
    plan.apply_with_subqueries(|node| {
        nodes = nodes.saturating_add(of_operator(node));
        Ok(if nodes > max { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(nodes)
}

/// Returns an upper bound of an expression's nodes after DataFusion has simplified it. These
/// rewrites repeat an operand, and nesting them multiplies:
///
/// - `x BETWEEN a AND b` becomes `x >= a AND x <= b`.
/// - `coalesce(x, y)` becomes `CASE WHEN x IS NOT NULL THEN x ELSE y END`.
/// - `CASE` of conditions becomes a chain of OR, in which each WHEN is repeated for later ones.
/// - `f(x) = 1` becomes a range of `x`, for functions such as `date_part`.
pub(super) fn simplified(expr: &Expr) -> u64 {
    let own = of_node(expr);
    match expr {
        Expr::Between(Between { expr, low, high, .. }) => {
            let bounds = simplified(low).saturating_add(simplified(high));
            simplified(expr).saturating_mul(2).saturating_add(bounds).saturating_add(own + 3)
        }
        Expr::Case(case) => of_case(case).saturating_add(own),
        Expr::InList(InList { expr, list, .. }) => {
            let tested = simplified(expr);
            let inlined = if is_call(expr) { 2 * list.len() as u64 } else { 1 };
            list.iter().map(simplified).fold(tested.saturating_mul(inlined), u64::saturating_add) + own
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let (one, other) = (simplified(left), simplified(right));
            let compares = op.supports_propagation() || *op == Operator::NotEq;
            let repeats = compares && (is_call(left) || is_call(right));
            // A literal compared with CASE moves into each of its results.
            let moved = match (&**left, &**right) {
                (Expr::Case(case), literal @ Expr::Literal(..))
                | (literal @ Expr::Literal(..), Expr::Case(case)) => {
                    of_expr(literal).saturating_add(1).saturating_mul(case.when_then_expr.len() as u64 + 1)
                }
                _ => 0,
            };
            let operands = one.saturating_add(other).saturating_mul(if repeats { 2 } else { 1 });
            operands.saturating_add(moved).saturating_add(own)
        }
        other => {
            let repeats = matches!(other, Expr::ScalarFunction(call)
                if matches!(call.func.name(), "coalesce" | "nvl" | "ifnull" | "nvl2"));
            let factor = if repeats { 2 } else { 1 };
            let mut operands = 0_u64;
            let _ = other.apply_children(|child| {
                operands = operands.saturating_add(simplified(child));
                Ok(TreeNodeRecursion::Continue)
            });
            operands.saturating_mul(factor).saturating_add(own)
        }
    }
}

fn is_call(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(_))
}

fn of_case(case: &Case) -> u64 {
    let whens = case.when_then_expr.len();
    let is_condition = |expr: &Expr| match expr {
        Expr::Literal(value, _) => matches!(value, ScalarValue::Boolean(_) | ScalarValue::Null),
        Expr::BinaryExpr(binary) => {
            binary.op.supports_propagation()
                || matches!(binary.op, Operator::And | Operator::Or | Operator::NotEq)
        }
        _ => true,
    };
    let truth = |expr: &Expr| match expr {
        Expr::Literal(ScalarValue::Boolean(value), _) => Some(*value == Some(true)),
        _ => None,
    };
    // DataFusion chains any number of WHENs if their results are constant and hardly any is true.
    let results_are_literals = || {
        let truths: Option<Vec<bool>> = case.when_then_expr.iter().map(|(_, then)| truth(then)).collect();
        truths.is_some_and(|truths| truths.iter().filter(|truth| **truth).count() < WHENS_TO_CHAIN)
    };
    let chains = case.expr.is_none()
        && case.when_then_expr.first().is_some_and(|(_, then)| is_condition(then))
        && (whens < WHENS_TO_CHAIN || results_are_literals());
    // Each WHEN stands in its own part, and in those of all later ones.
    let repeats = if chains { whens as u64 + 2 } else { 1 };
    let mut nodes = case.expr.as_deref().map_or(0, simplified);
    for (when, then) in &case.when_then_expr {
        let when = simplified(when).saturating_add(3).saturating_mul(repeats);
        nodes = nodes.saturating_add(when).saturating_add(simplified(then));
    }
    nodes.saturating_add(case.else_expr.as_deref().map_or(0, simplified))
}

/// Sizes of the columns of a plan: of what a rewrite would put in place of a column.
pub(super) type Weights = HashMap<String, Size>;

/// Returns the sizes of a projection's columns for an expression above it, which a rewrite moves
/// below it. `below` has those of its input's columns.
pub(super) fn of_projection(plan: &LogicalPlan, below: &Weights) -> Weights {
    let LogicalPlan::Projection(projection) = plan else { return Weights::new() };
    let columns = projection.schema.columns().into_iter();
    columns.zip(&projection.expr).map(|(column, expr)| (column.flat_name(), replaced(expr, below))).collect()
}
