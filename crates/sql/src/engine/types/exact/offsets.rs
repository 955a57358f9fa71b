//! `ORDER BY … OFFSET n` without LIMIT in a subquery. DataFusion drops the order there, so that
//! other rows are left out. The rows are numbered instead.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::functions_window::row_number::row_number_udwf;
use datafusion::logical_expr::{
    Cast, Expr, ExprFunctionExt, Limit, LogicalPlan, LogicalPlanBuilder, Projection, Sort,
};

/// Column with the number of a row.
const NUMBER: &str = "row number";

/// Replaces offsets in the subqueries of a plan.
///
/// # Errors
/// Errors of DataFusion.
pub(super) fn numbered(plan: LogicalPlan) -> Result<LogicalPlan> {
    // The order of the result is kept.
    let mut is_result = true;
    let plan = plan.transform_down_with_subqueries(|node| {
        let was_result = is_result;
        is_result = was_result && matches!(node, LogicalPlan::Explain(_) | LogicalPlan::Analyze(_));
        match node {
            LogicalPlan::Limit(Limit { skip: Some(skip), fetch: None, input }) if !was_result => {
                let input = Arc::unwrap_or_clone(input);
                match after(*skip.clone(), input)? {
                    Ok(plan) => Ok(Transformed::new(plan, true, TreeNodeRecursion::Continue)),
                    Err(input) => {
                        let limit = Limit { skip: Some(skip), fetch: None, input: Arc::new(input) };
                        Ok(Transformed::no(LogicalPlan::Limit(limit)))
                    }
                }
            }
            other => Ok(Transformed::no(other)),
        }
    })?;
    Ok(plan.data)
}

/// Returns the rows of a sorted plan after the first `skip`. Returns a plan that is not sorted
/// unchanged, as `Err`.
fn after(skip: Expr, plan: LogicalPlan) -> Result<Result<LogicalPlan, LogicalPlan>> {
    match plan {
        LogicalPlan::Projection(projection) => {
            let (schema, exprs) = (projection.schema.clone(), projection.expr);
            let input = after(skip, Arc::unwrap_or_clone(projection.input))?;
            let project = |input: LogicalPlan| -> Result<LogicalPlan> {
                Ok(LogicalPlan::Projection(Projection::try_new_with_schema(exprs, Arc::new(input), schema)?))
            };
            Ok(match input {
                Ok(input) => Ok(project(input)?),
                Err(input) => Err(project(input)?),
            })
        }
        LogicalPlan::Sort(Sort { expr: keys, input, fetch: None }) => {
            let columns: Vec<Expr> = input.schema().iter().map(Expr::from).collect();
            let number = row_number_udwf().call(Vec::new()).order_by(keys.clone()).build()?.alias(NUMBER);
            let number_is =
                Expr::Cast(Cast::new(Box::new(datafusion::prelude::ident(NUMBER)), DataType::Int64));
            let skip = Expr::Cast(Cast::new(Box::new(skip), DataType::Int64));
            let plan = LogicalPlanBuilder::from(Arc::unwrap_or_clone(input))
                .window([number])?
                .filter(number_is.gt(skip))?
                .project(columns)?
                .sort(keys)?
                .build()?;
            Ok(Ok(plan))
        }
        other => Ok(Err(other)),
    }
}
