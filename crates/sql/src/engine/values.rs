//! VALUES with subqueries. DataFusion evaluates the expressions of VALUES while it plans, when no
//! subquery has a value yet. Such a VALUES becomes a projection, in which subqueries run as they do
//! elsewhere:
//!
//! ```text
//!   Projection   CASE column1 WHEN 0 THEN (SELECT 1) ELSE 2 END AS a, column2 AS b
//!     Values     column1: the number of the row, column2: the first column without subqueries
//! ```

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::DFSchema;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::expr::Case;
use datafusion::logical_expr::{Expr, LogicalPlan, Projection, Values};
use datafusion::prelude::{ident, lit};

/// Column with the number of the row. DataFusion gives columns of VALUES such names whenever it
/// makes the node again.
const ROW: &str = "column1";

/// Replaces each VALUES with subqueries of a plan.
///
/// # Errors
/// Errors of DataFusion.
pub(crate) fn projected(plan: LogicalPlan) -> Result<LogicalPlan> {
    let plan = plan.transform_down_with_subqueries(|node| match node {
        LogicalPlan::Values(values) if values.values.iter().flatten().any(has_subquery) => {
            Ok(Transformed::yes(projection(values)?))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(plan.data)
}

fn has_subquery(expr: &Expr) -> bool {
    let is_subquery = |expr: &Expr| {
        Ok(matches!(
            expr,
            Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_) | Expr::SetComparison(_)
        ))
    };
    expr.exists(is_subquery).unwrap_or(true)
}

fn projection(values: Values) -> Result<LogicalPlan> {
    let Values { schema, values } = values;
    let rows = values.len();
    let mut columns: Vec<Vec<Expr>> = schema.fields().iter().map(|_| Vec::with_capacity(rows)).collect();
    for row in values {
        columns.iter_mut().zip(row).for_each(|(column, value)| column.push(value));
    }
    let mut fields = vec![Arc::new(Field::new(ROW, DataType::Int64, false))];
    let mut plain: Vec<Vec<Expr>> = (0_i64..).take(rows).map(|row| vec![lit(row)]).collect();
    let mut shown = Vec::with_capacity(columns.len());
    for (field, column) in schema.fields().iter().zip(columns) {
        if column.iter().any(has_subquery) {
            shown.push(chosen(column).alias(field.name()));
        } else {
            let name = format!("column{}", fields.len() + 1);
            shown.push(ident(&name).alias(field.name()));
            fields.push(Arc::new(field.as_ref().clone().with_name(name)));
            plain.iter_mut().zip(column).for_each(|(row, value)| row.push(value));
        }
    }
    let inner = DFSchema::from_unqualified_fields(fields.into(), schema.metadata().clone())?;
    let input = LogicalPlan::Values(Values { schema: Arc::new(inner), values: plain });
    Ok(LogicalPlan::Projection(Projection::try_new(shown, Arc::new(input))?))
}

/// Returns the value of the current row.
fn chosen(mut column: Vec<Expr>) -> Expr {
    // Without ELSE the column could be null, which its schema may exclude.
    let last = column.pop().expect("VALUES has a row");
    if column.is_empty() {
        return last;
    }
    let branch = |(row, value): (i64, Expr)| (Box::new(lit(row)), Box::new(value));
    Expr::Case(Case {
        expr: Some(Box::new(ident(ROW))),
        when_then_expr: (0_i64..).zip(column).map(branch).collect(),
        else_expr: Some(Box::new(last)),
    })
}
