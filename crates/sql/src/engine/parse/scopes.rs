//! Resolves names as PostgreSQL does, before the planner of DataFusion resolves them otherwise:
//!
//! - A column of `USING` is one for both sides: the left one, the right one in a `RIGHT JOIN`, and
//!   in a `FULL JOIN` whichever is not null. In `*` it comes first.
//! - `OVER (w …)` and `w2 AS (w …)` copy the clauses of the window `w`.
//! - Names within an expression of `ORDER BY` are those of the input. An output name only stands
//!   alone.
//! - An alias of a table is no column of the same name.
//! - Two aggregates that differ by a cast only stay two: DataFusion names both alike.
//! - `= ANY (SELECT …)` is `IN`, `<> ALL (SELECT …)` is `NOT IN`. `IN (VALUES …)` reads a table.

mod aliases;
mod order;
mod using;
mod windows;

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, ObjectName, ObjectNamePart, OrderByExpr, OrderByKind, Query, Select,
    SetExpr, Statement, Value, VisitorMut,
};

use crate::engine::parse::syntax::{Columns, call, folded, is_call_of, own_expressions, with_names};
use crate::engine::types::exact::KEPT;
use crate::failure::Failure;
use crate::walk;

/// Resolves the names of a statement. See the head of this file.
///
/// # Errors
/// A name cannot be resolved without the schema of the tables.
pub(crate) fn resolve(statement: &mut Statement, columns: Columns) -> Result<(), Failure> {
    aliases::rename(statement);
    tell_apart(statement);
    let names = with_names(statement);
    let columns = |name: &ObjectName| match &name.0[..] {
        [ObjectNamePart::Identifier(ident)] if names.contains(&folded(ident)) => None,
        _ => columns(name),
    };
    let mut resolve = Resolve { columns: &columns, result: Ok(()), copied: 0 };
    let _ = walk::walk_mut(statement, &mut resolve);
    resolve.result
}

struct Resolve<'a> {
    columns: Columns<'a>,
    /// The first error ends the walk.
    result: Result<(), Failure>,
    /// Nodes that were copied.
    copied: u64,
}

impl VisitorMut for Resolve<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let mut none = Vec::new();
        let orders = match query.order_by.as_mut().map(|by| &mut by.kind) {
            Some(OrderByKind::Expressions(orders)) => orders,
            _ => &mut none,
        };
        self.result = match &mut *query.body {
            SetExpr::Select(select) => self.select(select, orders),
            body => self.set(body),
        };
        walk::while_ok(&self.result)
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        quantified(expr);
        if let Expr::InSubquery { subquery, .. } = expr
            && let SetExpr::Values(_) = &*subquery.body
        {
            as_table(subquery);
        }
        ControlFlow::Continue(())
    }
}

impl Resolve<'_> {
    /// Resolves the branches of a set operation.
    fn set(&mut self, body: &mut SetExpr) -> Result<(), Failure> {
        // Chains of unions are long and nest on the left, so only the right side recurses.
        let mut left = body;
        loop {
            match left {
                SetExpr::SetOperation { left: next, right, .. } => {
                    self.set(right)?;
                    left = next;
                }
                SetExpr::Select(select) => return self.select(select, &mut []),
                _ => return Ok(()),
            }
        }
    }

    fn select(&mut self, select: &mut Select, orders: &mut [OrderByExpr]) -> Result<(), Failure> {
        order::by_input(select, orders)?;
        using::merge(select, orders, self.columns)?;
        windows::copy(select, &mut self.copied)
    }
}

/// Aggregates whose casts are marked.
const AGGREGATES: [&str; 5] = ["avg", "count", "max", "min", "sum"];

/// Marks the casts within aggregates, if there are several aggregates.
fn tell_apart(statement: &mut Statement) {
    let mut aggregates = 0_u32;
    let is_aggregate = |call: &Function| AGGREGATES.iter().any(|name| is_call_of(call, name));
    let _ = walk::expressions(statement, &mut |expr| {
        aggregates += u32::from(matches!(expr, Expr::Function(call) if is_aggregate(call)));
        ControlFlow::Continue(())
    });
    if aggregates < 2 {
        return;
    }
    let _ = walk::expressions_mut(statement, &mut |expr| {
        if let Expr::Function(function) = expr
            && is_aggregate(function)
        {
            own_expressions(&mut function.args, &mut |expr| {
                if let Expr::Cast { data_type, .. } = expr {
                    let ty = Value::SingleQuotedString(data_type.to_string());
                    let cast = std::mem::replace(expr, Expr::Value(Value::Null.into()));
                    *expr = call(KEPT, vec![cast, Expr::Value(ty.into())]);
                }
            });
        }
        ControlFlow::Continue(())
    });
}

/// Rewrites a comparison with a subquery to `IN` or `NOT IN`.
fn quantified(expr: &mut Expr) {
    let (left, right, negated) = match expr {
        Expr::AnyOp { left, compare_op: BinaryOperator::Eq, right, .. } => (left, right, false),
        Expr::AllOp { left, compare_op: BinaryOperator::NotEq, right } => (left, right, true),
        _ => return,
    };
    let mut within = &mut **right;
    while let Expr::Nested(inner) = within {
        within = inner;
    }
    if matches!(within, Expr::Subquery(_)) {
        let null = Expr::Value(Value::Null.into());
        let expr_of = std::mem::replace(&mut **left, null.clone());
        let Expr::Subquery(subquery) = std::mem::replace(within, null) else { return };
        *expr = Expr::InSubquery { expr: Box::new(expr_of), subquery, negated };
    }
}

/// Makes `VALUES …` the table of a SELECT: the planner of DataFusion takes no other query for `IN`.
fn as_table(query: &mut Query) {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;
    let parsed = Parser::parse_sql(&PostgreSqlDialect {}, "SELECT * FROM (VALUES (1)) AS \"values\"");
    let Ok([Statement::Query(outer)]) = parsed.as_deref() else { return };
    let mut outer = outer.clone();
    if let SetExpr::Select(select) = &mut *outer.body
        && let Some(table) = select.from.first_mut()
        && let datafusion::sql::sqlparser::ast::TableFactor::Derived { subquery, .. } = &mut table.relation
    {
        std::mem::swap(&mut **subquery, query);
        *query = *outer;
    }
}
