//! Intervals by their length, as PostgreSQL compares them: a month has 30 days and a day 24 hours. DataFusion compares the parts
//! one after the other, so that a month comes after 31 days, and 24 hours differ from a day.
//!
//! An interval that is only compared is replaced by its length ([`moments::span`]). One whose value is shown as well, as in
//! `GROUP BY` and `max`, is refused.

use datafusion::arrow::datatypes::{DataType, IntervalUnit};
use datafusion::common::{DFSchema, ExprSchema};
use datafusion::error::Result;
use datafusion::logical_expr::expr::Sort;
use datafusion::logical_expr::{Distinct, Expr, ExprSchemable, LogicalPlan};

use crate::exact::{moments, refused};
use crate::failure::state;

/// True if an expression is an interval.
pub(super) fn is_interval(expr: &Expr, schema: &dyn ExprSchema) -> bool {
    matches!(expr.get_type(schema), Ok(DataType::Interval(IntervalUnit::MonthDayNano)))
}

/// The refusal of what would compare intervals and show them.
///
/// # Errors
/// Always.
pub(super) fn not_supported<T>(what: &str) -> Result<T> {
    refused(state::UNSUPPORTED, format!("{what} of intervals is not supported: use extract(epoch FROM …)"))
}

/// The length of an interval; another expression as it is.
pub(super) fn as_length(expr: Expr, schema: &dyn ExprSchema) -> Expr {
    if is_interval(&expr, schema) { moments::span(expr) } else { expr }
}

/// Expressions of which one is an interval by their lengths, others as they are.
pub(super) fn as_lengths(exprs: Vec<Expr>, schema: &dyn ExprSchema) -> Vec<Expr> {
    exprs.into_iter().map(|expr| as_length(expr, schema)).collect()
}

/// Keys of an order.
pub(super) fn as_keys(keys: Vec<Sort>, schema: &dyn ExprSchema) -> Vec<Sort> {
    keys.into_iter().map(|key| Sort { expr: as_length(key.expr, schema), ..key }).collect()
}

/// A node whose orders and joins compare intervals by their lengths.
///
/// # Errors
/// It groups by an interval, or makes rows with intervals distinct.
pub(super) fn by_length(node: LogicalPlan) -> Result<LogicalPlan> {
    Ok(match node {
        LogicalPlan::Sort(mut sort) => {
            sort.expr = as_keys(sort.expr, sort.input.schema().as_ref());
            LogicalPlan::Sort(sort)
        }
        LogicalPlan::Join(mut join) => {
            let (left, right) = (join.left.schema().clone(), join.right.schema().clone());
            let both = |(a, b): (Expr, Expr)| match (
                is_interval(&a, left.as_ref()),
                is_interval(&b, right.as_ref()),
            ) {
                (true, true) => (moments::span(a), moments::span(b)),
                _ => (a, b),
            };
            join.on = join.on.into_iter().map(both).collect();
            LogicalPlan::Join(join)
        }
        LogicalPlan::Aggregate(aggregate) => {
            let schema = aggregate.input.schema().as_ref();
            if aggregate.group_expr.iter().any(|key| groups_by_interval(key, schema)) {
                return not_supported("GROUP BY");
            }
            LogicalPlan::Aggregate(aggregate)
        }
        LogicalPlan::Distinct(Distinct::All(input)) => {
            let has = |ty: &DataType| matches!(ty, DataType::Interval(_));
            if input.schema().fields().iter().any(|field| has(field.data_type())) {
                return not_supported("DISTINCT");
            }
            LogicalPlan::Distinct(Distinct::All(input))
        }
        LogicalPlan::Distinct(Distinct::On(on)) => {
            let schema = on.input.schema().as_ref();
            if on.on_expr.iter().any(|key| is_interval(key, schema)) {
                return not_supported("DISTINCT ON");
            }
            LogicalPlan::Distinct(Distinct::On(on))
        }
        other => other,
    })
}

/// True of a key of a group, and of sets of keys with one.
fn groups_by_interval(key: &Expr, schema: &DFSchema) -> bool {
    match key {
        Expr::GroupingSet(set) => set.distinct_expr().into_iter().any(|key| is_interval(key, schema)),
        key => is_interval(key, schema),
    }
}
