//! Gives DataFusion's plans the types and errors of PostgreSQL. In DataFusion a constant `1` is a
//! `bigint`, arithmetic wraps around, and casts truncate decimals. Before DataFusion coerces types,
//! one pass over the plan:
//!
//! 1. Gives constants PostgreSQL's types: `int4` if it fits, `numeric` beyond `int8`.
//! 2. Replaces arithmetic by functions that check for overflow ([`arithmetic`]), and casts by
//!    functions that round, or refuse invalid values ([`casts`]).
//! 3. Gives branches of `CASE`, arguments, rows and unions a common type. Constant texts are
//!    converted to it ([`common`]).
//! 4. Converts points in time to the session's time zone, which decides on their fields and dates.
//! 5. Compares intervals by their lengths ([`intervals`]).
//! 6. Replaces subqueries that DataFusion answers otherwise ([`subqueries`]), in a pass of its own.
//! 7. Numbers the rows of subqueries with an offset ([`offsets`]).
//! 8. Computes the schemas of the nodes again, bottom up. Names stay. Types of outer columns in
//!    subqueries are updated.
//!
//! Functions of this crate replace `sum` and `avg` ([`totals`]) under the same names.

mod aggregates;
mod arithmetic;
mod arrays;
mod byte_strings;
mod calls;
mod casts;
mod common;
mod decimals;
mod expressions;
mod extremes;
mod intervals;
mod lists;
mod moments;
mod numbers;
mod offsets;
mod operators;
mod percentile;
mod regexps;
mod subqueries;
mod totals;
mod type_names;

use std::sync::Arc;

use datafusion::arrow::datatypes::Schema;
use datafusion::catalog::cte_worktable::CteWorkTable;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, ExprSchema};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::error::Result;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::logical_plan::TableScanBuilder;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, LogicalPlan, RecursiveQuery, Subquery, TableScan, TableSource};
use datafusion::prelude::SessionContext;

pub(crate) use crate::engine::types::exact::calls::{DOT_MATCHES_LINE_FEED, SERIES_OF_DATES};
pub(crate) use crate::engine::types::exact::casts::{UNCONSTRAINED, items_of, plain_interval};
pub(crate) use crate::engine::types::exact::lists::KEPT;
pub(crate) use crate::engine::types::exact::percentile::PERCENTILE;
use crate::engine::types::exact::type_names::refused;
pub(crate) use crate::engine::types::exact::type_names::type_name;
use crate::failure::state;
use crate::run::table::CqlTable;

/// Registers the functions with PostgreSQL's types and errors.
pub(crate) fn register(context: &SessionContext) {
    totals::functions().into_iter().for_each(|function| context.register_udaf(function));
    numbers::functions().into_iter().for_each(|function| context.register_udf(function));
    moments::functions().into_iter().for_each(|function| context.register_udf(function));
    arrays::functions().into_iter().for_each(|function| context.register_udf(function));
    regexps::functions().into_iter().for_each(|function| context.register_udf(function));
    context.register_udf(lists::kept());
    context.register_udf(percentile::function());
}

/// Returns the plan with PostgreSQL's types and errors, for a session in the time zone `zone`. See
/// the head of this file.
///
/// # Errors
/// The plan has an operator, function or cast that PostgreSQL lacks.
pub(crate) fn exact(plan: LogicalPlan, zone: &str) -> Result<LogicalPlan> {
    let pass = Pass { zone };
    subqueries::answered(offsets::numbered(pass.plan(plan)?)?, pass)
}

/// The pass over a plan.
#[derive(Clone, Copy)]
struct Pass<'a> {
    zone: &'a str,
}

impl Pass<'_> {
    fn plan(self, plan: LogicalPlan) -> Result<LogicalPlan> {
        Ok(plan.transform_down_up(|node| self.before(node), |node| self.after(node))?.data)
    }

    /// Handles nodes whose children depend on each other, together with the plan below them.
    fn before(self, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        let done = |plan| Ok(Transformed::new(plan, true, TreeNodeRecursion::Jump));
        match plan {
            LogicalPlan::RecursiveQuery(query) => {
                let RecursiveQuery { name, static_term, recursive_term, is_distinct, .. } = query;
                let static_term = self.plan(Arc::unwrap_or_clone(static_term))?;
                let recursive = with_work_table(Arc::unwrap_or_clone(recursive_term), &name, &static_term)?;
                let recursive = common::as_columns(self.plan(recursive)?, static_term.schema())?;
                let query =
                    RecursiveQuery::try_new(name, Arc::new(static_term), Arc::new(recursive), is_distinct)?;
                done(LogicalPlan::RecursiveQuery(query))
            }
            LogicalPlan::Join(mut join) if is_lateral(&join.right)? => {
                let left = self.plan(Arc::unwrap_or_clone(join.left))?;
                let right = retyped(Arc::unwrap_or_clone(join.right), left.schema())?;
                join.right = Arc::new(self.plan(right)?);
                join.left = Arc::new(left);
                done(LogicalPlan::Join(join))
            }
            other => Ok(Transformed::no(other)),
        }
    }

    fn after(self, node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        let node = match node {
            LogicalPlan::TableScan(scan) => {
                return Ok(Transformed::yes(LogicalPlan::TableScan(self.in_zone(scan)?)));
            }
            // Numbers of rows keep DataFusion's type.
            node @ (LogicalPlan::Limit(_) | LogicalPlan::RecursiveQuery(_)) => node,
            node => {
                let node = common::without_casts(node);
                let schema = match &node {
                    LogicalPlan::Join(join) => {
                        let mut both = join.left.schema().as_ref().clone();
                        both.merge(join.right.schema());
                        both
                    }
                    node => merge_schema(&node.inputs()),
                };
                let preserver = NamePreserver::new(&node);
                let has_names = !matches!(node, LogicalPlan::Values(_));
                let replaced = node.map_expressions(|expr| {
                    let name = preserver.save(&expr);
                    let expr = expr.transform_up(|expr| self.expression(expr, &schema))?;
                    let expr = expr.transform_data(|expr| lists::apart(expr, &schema))?;
                    Ok(if has_names { expr.update_data(|expr| name.restore(expr)) } else { expr })
                })?;
                replaced.data
            }
        };
        let node = intervals::by_length(node)?;
        Ok(Transformed::yes(match node {
            LogicalPlan::Values(values) => common::values(values.values)?,
            LogicalPlan::Union(union) => common::union(union.inputs)?,
            LogicalPlan::Subquery(subquery) => LogicalPlan::Subquery(subquery),
            other => other.recompute_schema()?,
        }))
    }

    /// Returns a scan whose points in time are in the session's time zone.
    fn in_zone(self, scan: TableScan) -> Result<TableScan> {
        let provider = source_as_provider(&scan.source).ok();
        let table = provider.as_deref().map(|provider| provider as &dyn std::any::Any);
        let table = table.and_then(|table| table.downcast_ref::<CqlTable>());
        match table.and_then(|table| table.in_zone(self.zone)) {
            Some(table) => {
                let source = provider_as_source(Arc::new(table));
                with_source(scan, source)
            }
            None => Ok(scan),
        }
    }

    fn subquery(self, subquery: Subquery, outer: &DFSchema) -> Result<Subquery> {
        let plan = LogicalPlan::Subquery(subquery);
        match self.plan(retyped(plan, outer)?)? {
            LogicalPlan::Subquery(subquery) => Ok(subquery),
            _ => refused(state::INTERNAL, "a subquery stays one"),
        }
    }
}

/// Returns the same scan of another source.
fn with_source(scan: TableScan, source: Arc<dyn TableSource>) -> Result<TableScan> {
    TableScanBuilder::new(scan.table_name, source)
        .with_projection(scan.projection)
        .with_filters(scan.filters)
        .with_fetch(scan.fetch)
        .build()
}

fn is_lateral(plan: &LogicalPlan) -> Result<bool> {
    plan.exists(|node| Ok(matches!(node, LogicalPlan::Subquery(_))))
}

/// Returns the plan of a query's recursive term, in which the work table `name` has the types of
/// the static term `of`.
fn with_work_table(plan: LogicalPlan, name: &str, of: &LogicalPlan) -> Result<LogicalPlan> {
    let fields = of.schema().fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let replaced = plan.transform_up_with_subqueries(|node| {
        let LogicalPlan::TableScan(scan) = node else { return Ok(Transformed::no(node)) };
        let provider = source_as_provider(&scan.source).ok();
        let provider = provider.as_deref().map(|provider| provider as &dyn std::any::Any);
        match provider.and_then(|provider| provider.downcast_ref::<CteWorkTable>()) {
            Some(table) if table.name() == name => {
                let source = provider_as_source(Arc::new(CteWorkTable::new(name, schema.clone())));
                Ok(Transformed::yes(LogicalPlan::TableScan(with_source(scan, source)?)))
            }
            _ => Ok(Transformed::no(LogicalPlan::TableScan(scan))),
        }
    })?;
    // Schemas above the work table are computed when the pass visits the term.
    Ok(replaced.data)
}

/// Returns the plan of a subquery in which outer columns have their types in the outer query.
fn retyped(plan: LogicalPlan, outer: &DFSchema) -> Result<LogicalPlan> {
    let column = |expr: Expr| match expr {
        Expr::OuterReferenceColumn(field, column) => Ok(match outer.field_from_column(&column) {
            Ok(found) => Transformed::yes(Expr::OuterReferenceColumn(found.clone(), column)),
            Err(_) => Transformed::no(Expr::OuterReferenceColumn(field, column)),
        }),
        other => Ok(Transformed::no(other)),
    };
    let retyped = plan.transform_up(|node| {
        let mut node = node.map_expressions(|expr| expr.transform_up(column))?;
        if let LogicalPlan::Subquery(subquery) = &mut node.data {
            let columns = std::mem::take(&mut subquery.outer_ref_columns);
            let columns: Result<Vec<Expr>> =
                columns.into_iter().map(|expr| Ok(expr.transform_up(column)?.data)).collect();
            subquery.outer_ref_columns = columns?;
            node.transformed = true;
        }
        Ok(node)
    })?;
    Ok(retyped.data)
}
