//! Subqueries as conditions and values, where DataFusion's joins answer otherwise than PostgreSQL:
//!
//! - `NOT IN`, and `IN` within an expression, know only true and false in DataFusion's joins. They
//!   become EXISTS: one for a row that is equal, one for a row that is null.
//! - A subquery that depends on the outer row and has an aggregate without GROUP BY gives a row
//!   also where the aggregate sees none. DataFusion joins it by groups, of which there is none.
//!   `EXISTS` of it is true, and `IN` is a comparison. Others are refused.
//! - DataFusion plans EXISTS and IN in conditions only. In other places they count rows.
//! - Beside one condition IS NOT DISTINCT FROM of a join DataFusion takes all for such, or none. It
//!   becomes two equations.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ExprSchema};
use datafusion::error::Result;
use datafusion::functions::core::coalesce;
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::logical_expr::expr::{Case, Exists, InSubquery};
use datafusion::logical_expr::utils::{conjunction, merge_schema, split_conjunction_owned};
use datafusion::logical_expr::{
    BinaryExpr, Distinct, Expr, ExprSchemable, Filter, LogicalPlan, LogicalPlanBuilder, Operator, Subquery,
};
use datafusion::prelude::lit;
use datafusion::scalar::ScalarValue;

use crate::engine::limits::planning::{self, NODES_MAX};
use crate::engine::types::exact::type_names::refused;
use crate::engine::types::exact::{Pass, common};
use crate::failure::{Failure, state};

/// Returns the plan with subqueries that DataFusion answers as PostgreSQL does. See the head of
/// this file.
///
/// # Errors
/// A subquery is not supported, or would be copied too often.
pub(super) fn answered(plan: LogicalPlan, pass: Pass) -> Result<LogicalPlan> {
    let mut subqueries = Subqueries { pass, copied: 0 };
    Ok(plan.transform_up_with_subqueries(|node| subqueries.node(node))?.data)
}

fn has(expr: &Expr, is: &dyn Fn(&Expr) -> bool) -> bool {
    expr.exists(|expr| Ok(is(expr))).unwrap_or(false)
}

/// Returns true if an expression has a subquery.
pub(super) fn has_subquery(expr: &Expr) -> bool {
    has(expr, &is_subquery)
}

fn is_subquery(expr: &Expr) -> bool {
    matches!(expr, Expr::InSubquery(_) | Expr::Exists(_) | Expr::ScalarSubquery(_))
}

struct Subqueries<'a> {
    pass: Pass<'a>,
    /// Nodes of copied subqueries. Nested ones multiply.
    copied: u64,
}

impl Subqueries<'_> {
    fn node(&mut self, node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        let mut concerned = false;
        node.apply_expressions(|expr| {
            concerned = concerned || has(expr, &is_subquery);
            Ok(TreeNodeRecursion::Continue)
        })?;
        match node {
            LogicalPlan::Filter(filter) if concerned || has(&filter.predicate, &is_null_match) => {
                let input = filter.input;
                let mut conditions = Vec::new();
                for condition in split_conjunction_owned(filter.predicate) {
                    let condition = matched(condition, input.schema())?;
                    conditions.push(self.condition(condition, input.schema())?);
                }
                let predicate = conjunction(conditions).unwrap_or_else(|| lit(true));
                Ok(Transformed::yes(LogicalPlan::Filter(Filter::try_new(predicate, input)?)))
            }
            LogicalPlan::Join(mut join)
                if join.filter.as_ref().is_some_and(|filter| has(filter, &is_null_match)) =>
            {
                let schema = merge_schema(&[join.left.as_ref(), join.right.as_ref()]);
                let conditions = join.filter.take().map(split_conjunction_owned).unwrap_or_default();
                let conditions = conditions.into_iter().map(|condition| matched(condition, &schema));
                join.filter = conjunction(conditions.collect::<Result<Vec<_>>>()?);
                Ok(Transformed::yes(LogicalPlan::Join(join)))
            }
            node if concerned => {
                let schema = merge_schema(&node.inputs());
                node.map_expressions(|expr| expr.transform_up(|expr| self.value(expr, &schema, false)))
            }
            node => Ok(Transformed::no(node)),
        }
    }

    /// Replaces a condition that removes a row unless it is true.
    fn condition(&mut self, expr: Expr, schema: &DFSchema) -> Result<Expr> {
        match expr {
            Expr::Not(inner) => match *inner {
                Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                    self.is_within(InSubquery { expr, subquery, negated: !negated }, schema)
                }
                inner => {
                    Ok(Expr::Not(Box::new(inner)).transform_up(|expr| self.value(expr, schema, true))?.data)
                }
            },
            Expr::InSubquery(within) => self.is_within(within, schema),
            expr => Ok(expr.transform_up(|expr| self.value(expr, schema, true))?.data),
        }
    }

    /// Replaces IN and NOT IN as a condition.
    fn is_within(&mut self, within: InSubquery, schema: &DFSchema) -> Result<Expr> {
        // A condition that is null removes a row as one that is false does.
        if !within.negated
            && lost(&within.subquery.subquery) == Lost::Nothing
            && !self.is_mixed(&within, schema)
        {
            return Ok(Expr::InSubquery(within));
        }
        let Parts { found, null, unknown } = match self.parts(within, schema)? {
            Replaced::As(expr) => return Ok(expr),
            Replaced::Kept(within) => return Ok(Expr::InSubquery(within)),
            Replaced::Positive(parts) => return Ok(parts.found),
            Replaced::Negative(parts) => parts,
        };
        let none = [Some(found), null, unknown].into_iter().flatten().map(|expr| Expr::Not(Box::new(expr)));
        Ok(conjunction(none).unwrap_or_else(|| lit(true)))
    }

    /// Replaces a subquery within an expression.
    fn value(&mut self, expr: Expr, schema: &DFSchema, in_filter: bool) -> Result<Transformed<Expr>> {
        let exists = |expr: Expr| {
            expr.transform_up(|expr| if in_filter { Ok(Transformed::no(expr)) } else { counted(expr) })
        };
        match expr {
            Expr::InSubquery(within) => {
                let negated = within.negated;
                let parts = match self.parts(within, schema)? {
                    Replaced::As(expr) => return Ok(Transformed::yes(expr)),
                    Replaced::Kept(within) if in_filter => {
                        return Ok(Transformed::no(Expr::InSubquery(within)));
                    }
                    Replaced::Kept(within) => self.split(within, schema, [false, false])?,
                    Replaced::Positive(parts) | Replaced::Negative(parts) => parts,
                };
                let null = || Box::new(Expr::Literal(ScalarValue::Boolean(None), None));
                let mut when_then_expr = vec![(Box::new(parts.found), Box::new(lit(true)))];
                when_then_expr.extend(parts.null.map(|when| (Box::new(when), null())));
                when_then_expr.extend(parts.unknown.map(|when| (Box::new(when), null())));
                let else_expr = Some(Box::new(lit(false)));
                let found = exists(Expr::Case(Case { expr: None, when_then_expr, else_expr }))?.data;
                Ok(Transformed::yes(if negated { Expr::Not(Box::new(found)) } else { found }))
            }
            Expr::Exists(Exists { subquery, negated }) => match lost(&subquery.subquery) {
                Lost::Nothing => exists(Expr::Exists(Exists { subquery, negated })),
                Lost::Row => Ok(Transformed::yes(lit(!negated))),
                Lost::Other => not_supported(),
            },
            Expr::ScalarSubquery(subquery) => {
                if let Lost::Other = lost(&subquery.subquery) {
                    return not_supported();
                }
                if let Lost::Row = lost(&subquery.subquery)
                    && is_constant(&subquery.subquery)
                {
                    return not_supported();
                }
                Ok(Transformed::no(Expr::ScalarSubquery(subquery)))
            }
            other => Ok(Transformed::no(other)),
        }
    }

    fn parts(&mut self, within: InSubquery, schema: &DFSchema) -> Result<Replaced> {
        let InSubquery { expr, subquery, negated } = within;
        match lost(&subquery.subquery) {
            Lost::Nothing => {}
            Lost::Row => {
                let right = Expr::ScalarSubquery(subquery);
                let op = if negated { Operator::NotEq } else { Operator::Eq };
                let binary = BinaryExpr::new(expr, op, Box::new(right));
                return Ok(Replaced::As(self.compared(binary, schema, schema)?));
            }
            Lost::Other => return not_supported(),
        }
        let column = subquery.subquery.schema().field(0);
        let may_be_null = [column.is_nullable(), expr.nullable(schema)?];
        let within = InSubquery { expr, subquery, negated };
        // DataFusion has no NOT IN with a correlation.
        let is_planned = !negated || within.subquery.outer_ref_columns.is_empty();
        if is_planned && !self.is_mixed(&within, schema) && may_be_null == [false, false] {
            return Ok(Replaced::Kept(within));
        }
        let parts = self.split(within, schema, may_be_null)?;
        Ok(if negated { Replaced::Negative(parts) } else { Replaced::Positive(parts) })
    }

    /// Returns true if DataFusion would compare the values as other types, or convert a column that
    /// also correlates the subquery, which it cannot.
    fn is_mixed(&self, within: &InSubquery, schema: &DFSchema) -> bool {
        let column = within.subquery.subquery.schema().field(0).data_type();
        match within.expr.get_type(schema) {
            Ok(ty) => {
                ty != *column && !within.subquery.outer_ref_columns.is_empty()
                    || common::compared_as(&ty, column, self.pass.zone).is_some()
            }
            Err(_) => false,
        }
    }

    /// Returns the conditions for a row of a subquery that is equal, or null, and for any row if
    /// the value itself is null.
    fn split(&mut self, within: InSubquery, schema: &DFSchema, may_be_null: [bool; 2]) -> Result<Parts> {
        let InSubquery { expr, subquery, .. } = within;
        if has(&expr, &is_subquery) {
            let text = "a subquery on the left of IN (SELECT …) is not supported: join instead";
            return refused(state::UNSUPPORTED, text);
        }
        if has_limit(&subquery.subquery) && !subquery.outer_ref_columns.is_empty() {
            return not_supported();
        }
        let inner = subquery.subquery.schema().clone();
        let column = Expr::Column(Column::from(inner.qualified_field(0)));
        let outer = as_outer((*expr).clone(), schema)?;
        let equal = BinaryExpr::new(Box::new(outer), Operator::Eq, Box::new(column.clone()));
        let equal = self.compared(equal, schema, &inner)?;
        let found = self.exists(&subquery, Some(equal))?;
        let null = match may_be_null[0] {
            true => Some(self.exists(&subquery, Some(column.is_null()))?),
            false => None,
        };
        let unknown = match may_be_null[1] {
            true => Some(expr.is_null().and(self.exists(&subquery, None)?)),
            false => None,
        };
        Ok(Parts { found, null, unknown })
    }

    /// Returns a comparison with PostgreSQL's types.
    fn compared(&self, binary: BinaryExpr, left: &DFSchema, right: &DFSchema) -> Result<Expr> {
        match (binary.left.get_type(left), binary.right.get_type(right)) {
            (Ok(left), Ok(right)) => self.pass.operator(binary, left, right),
            _ => Ok(Expr::BinaryExpr(binary)),
        }
    }

    fn exists(&mut self, subquery: &Subquery, condition: Option<Expr>) -> Result<Expr> {
        self.copied = self.copied.saturating_add(planning::plan_nodes(&subquery.subquery, NODES_MAX)?);
        if self.copied > NODES_MAX {
            return Err(Failure::too_complex("subqueries of IN contain each other too often").into());
        }
        let plan = LogicalPlanBuilder::from(subquery.subquery.as_ref().clone());
        let plan = match condition {
            Some(condition) => plan.filter(condition)?.build()?,
            None => plan.build()?,
        };
        let outer_ref_columns = plan.all_out_ref_exprs();
        let subquery =
            Subquery { subquery: Arc::new(plan), outer_ref_columns, spans: subquery.spans.clone() };
        Ok(Expr::Exists(Exists { subquery, negated: false }))
    }
}

/// Result of a replacement of IN.
enum Replaced {
    As(Expr),
    Kept(InSubquery),
    Positive(Parts),
    Negative(Parts),
}

/// Conditions: a row is equal, a row is null, there is a row and the value is null.
struct Parts {
    found: Expr,
    null: Option<Expr>,
    unknown: Option<Expr>,
}

fn not_supported<T>() -> Result<T> {
    let text = "this subquery depends on the row it stands in, and its answer over no rows is not supported: join \
                with a subquery that has GROUP BY instead";
    refused(state::UNSUPPORTED, text)
}

/// Replaces EXISTS by a count of rows, which DataFusion plans everywhere.
fn counted(expr: Expr) -> Result<Transformed<Expr>> {
    let Expr::Exists(Exists { subquery, negated }) = expr else { return Ok(Transformed::no(expr)) };
    let count = count_udaf().call(vec![Expr::Literal(ScalarValue::Int64(Some(1)), None)]);
    let name = count.schema_name().to_string();
    let plan = LogicalPlanBuilder::from(Arc::unwrap_or_clone(subquery.subquery));
    let plan =
        plan.aggregate(Vec::<Expr>::new(), [count])?.project([Expr::Column(Column::from_name(name))])?;
    let subquery = Subquery { subquery: Arc::new(plan.build()?), ..subquery };
    let op = if negated { Operator::Eq } else { Operator::Gt };
    let zero = Expr::Literal(ScalarValue::Int64(Some(0)), None);
    let binary = BinaryExpr::new(Box::new(Expr::ScalarSubquery(subquery)), op, Box::new(zero));
    Ok(Transformed::new(Expr::BinaryExpr(binary), true, TreeNodeRecursion::Jump))
}

/// Returns an expression of the outer query for use in a subquery.
fn as_outer(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    let outer = expr.transform_up(|expr| match expr {
        Expr::Column(column) => {
            let field = schema.field_from_column(&column)?.clone();
            Ok(Transformed::yes(Expr::OuterReferenceColumn(field, column)))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(outer.data)
}

fn is_null_match(expr: &Expr) -> bool {
    matches!(expr, Expr::BinaryExpr(binary) if binary.op == Operator::IsNotDistinctFrom)
}

/// Replaces a condition `left IS NOT DISTINCT FROM right` by two equations: of what is null, and of
/// the values with a constant instead of null. Joins by them need no mode of their own.
fn matched(condition: Expr, schema: &DFSchema) -> Result<Expr> {
    let Expr::BinaryExpr(BinaryExpr { left, op: Operator::IsNotDistinctFrom, right }) = condition else {
        return Ok(condition);
    };
    let value = |expr: &Expr| -> Option<Expr> {
        let ty = expr.get_type(schema).ok().filter(|ty| !ty.is_nested() && !ty.is_null())?;
        let constant = Expr::Literal(ScalarValue::new_default(&ty).ok()?, None);
        Some(coalesce().call(vec![expr.clone(), constant]))
    };
    match (value(&left), value(&right)) {
        (Some(a), Some(b)) => Ok(left.is_null().eq(right.is_null()).and(a.eq(b))),
        _ => Ok(Expr::BinaryExpr(BinaryExpr { left, op: Operator::IsNotDistinctFrom, right })),
    }
}

/// Losses of DataFusion if it joins a subquery by the groups of its aggregate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lost {
    Nothing,
    /// Its only row.
    Row,
    /// Values that it makes of this row.
    Other,
}

fn lost(plan: &LogicalPlan) -> Lost {
    let mut is_lost = false;
    depends(plan, &mut is_lost);
    if !is_lost {
        return Lost::Nothing;
    }
    let mut at = plan;
    loop {
        at = match at {
            LogicalPlan::Projection(projection) => &projection.input,
            LogicalPlan::SubqueryAlias(alias) => &alias.input,
            LogicalPlan::Sort(sort) => &sort.input,
            LogicalPlan::Distinct(Distinct::All(input)) => input,
            LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty() => {
                // An aggregate of another one.
                let mut below = false;
                depends(&aggregate.input, &mut below);
                return if below { Lost::Other } else { Lost::Row };
            }
            _ => return Lost::Other,
        }
    }
}

/// Returns true if a plan has columns of the outer query. Sets `is_lost` if they are below an
/// aggregate without groups.
fn depends(plan: &LogicalPlan, is_lost: &mut bool) -> bool {
    let mut is_below = false;
    for input in plan.inputs() {
        is_below |= depends(input, is_lost);
    }
    if let LogicalPlan::Aggregate(aggregate) = plan {
        *is_lost |= is_below && aggregate.group_expr.is_empty();
    }
    is_below || plan.contains_outer_reference()
}

fn has_limit(plan: &LogicalPlan) -> bool {
    plan.exists(|node| Ok(matches!(node, LogicalPlan::Limit(_) | LogicalPlan::Distinct(Distinct::On(_)))))
        .unwrap_or(true)
}

/// Returns true if the only column of a plan depends on no column of its input.
fn is_constant(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => {
            projection.expr.iter().all(|expr| !has(expr, &|expr| matches!(expr, Expr::Column(_))))
                || is_constant(&projection.input)
        }
        LogicalPlan::SubqueryAlias(alias) => is_constant(&alias.input),
        LogicalPlan::Sort(sort) => is_constant(&sort.input),
        _ => false,
    }
}
