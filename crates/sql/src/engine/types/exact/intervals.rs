//! Compares intervals by their length, as PostgreSQL does: a month has 30 days and a day 24 hours.
//! DataFusion compares months, days and nanoseconds in this order, so that a month is longer than
//! 31 days, and 24 hours differ from a day.
//!
//! Intervals that are only compared are replaced by their length ([`moments::span`]). Operations
//! that also return the value, such as `GROUP BY` and `max`, are refused.

use datafusion::arrow::datatypes::{DataType, IntervalUnit};
use datafusion::common::{DFSchema, ExprSchema};
use datafusion::error::Result;
use datafusion::logical_expr::expr::Sort;
use datafusion::logical_expr::{Distinct, Expr, ExprSchemable, LogicalPlan};

use crate::engine::types::exact::type_names::refused;
use crate::engine::types::exact::{arrays, moments};
use crate::failure::state;

/// True if an expression is an interval.
pub(super) fn is_interval(expr: &Expr, schema: &dyn ExprSchema) -> bool {
    matches!(expr.get_type(schema), Ok(DataType::Interval(IntervalUnit::MonthDayNano)))
}

/// Refuses an operation that compares intervals and returns one of them.
///
/// # Errors
/// Always.
pub(super) fn not_supported<T>(what: &str) -> Result<T> {
    refused(state::UNSUPPORTED, format!("{what} of intervals is not supported: use extract(epoch FROM …)"))
}

/// Replaces an interval by its length. Other expressions stay.
pub(super) fn as_length(expr: Expr, schema: &dyn ExprSchema) -> Expr {
    if is_interval(&expr, schema) { moments::span(expr) } else { expr }
}

/// Replaces intervals by their lengths. Other expressions stay.
pub(super) fn as_lengths(exprs: Vec<Expr>, schema: &dyn ExprSchema) -> Vec<Expr> {
    exprs.into_iter().map(|expr| as_length(expr, schema)).collect()
}

/// Replaces intervals in sort keys by their lengths, and arrays by keys of their own.
pub(super) fn as_keys(keys: Vec<Sort>, schema: &dyn ExprSchema) -> Vec<Sort> {
    let one = |expr: Expr| match expr.get_type(schema) {
        Ok(DataType::List(_)) => arrays::key(expr),
        _ => as_length(expr, schema),
    };
    keys.into_iter().map(|key| Sort { expr: one(key.expr), ..key }).collect()
}

/// Replaces intervals by their lengths in the sort keys and join keys of a node.
///
/// # Errors
/// The node groups by an interval, or makes rows with intervals distinct.
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

/// True if a group key, or a key of a grouping set, is an interval.
fn groups_by_interval(key: &Expr, schema: &DFSchema) -> bool {
    match key {
        Expr::GroupingSet(set) => set.distinct_expr().into_iter().any(|key| is_interval(key, schema)),
        key => is_interval(key, schema),
    }
}
