//! Subqueries in select lists of catalog queries. A rule of `datafusion-pg-catalog` replaces those
//! that look correlated by NULL, and limits the others to their first row.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, LimitClause, Query, SelectItem, SetExpr, Statement, TableFactor, Value,
    ValueWithSpan, VisitorMut,
};

use crate::engine::parse::syntax::{is_call_of, last_part};
use crate::failure::{Failure, unsupported};
use crate::walk;

/// Prepares a catalog query for that rule. NULL is right only for relations that are empty here. A
/// subquery without a limit gets one of two rows, so that a second row is an error. Returns true if
/// the query was changed.
///
/// # Errors
/// A subquery that the rule takes for correlated reads another relation.
pub(crate) fn prepare(statement: &mut Statement) -> Result<bool, Failure> {
    let mut lost = Lost { is_changed: Ok(false) };
    let _ = walk::walk_mut(statement, &mut lost);
    lost.is_changed
}

/// Catalog relations that are empty here.
const EMPTY: [&str; 4] = ["pg_attrdef", "pg_inherits", "pg_statistic_ext", "pg_trigger"];

struct Lost {
    /// The first error ends the walk.
    is_changed: Result<bool, Failure>,
}

impl VisitorMut for Lost {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let SetExpr::Select(select) = &mut *query.body else { return ControlFlow::Continue(()) };
        for item in &mut select.projection {
            let (SelectItem::UnnamedExpr(Expr::Subquery(inner))
            | SelectItem::ExprWithAlias { expr: Expr::Subquery(inner), .. }) = item
            else {
                continue;
            };
            if looks_correlated(inner) {
                if reads_nothing(inner) {
                    continue;
                }
                self.is_changed = unsupported(
                    "a subquery that depends on the row it stands in, or names a column by a table without an \
                     alias, is not supported in a query of the catalog: join instead, or give the table an alias",
                );
                return ControlFlow::Break(());
            }
            if inner.limit_clause.is_none() && inner.fetch.is_none() {
                let limit = Some(Expr::value(Value::Number("2".to_owned(), false)));
                inner.limit_clause =
                    Some(LimitClause::LimitOffset { limit, offset: None, limit_by: Vec::new() });
                self.is_changed = Ok(true);
            }
        }
        ControlFlow::Continue(())
    }
}

/// Returns true if the library's rule takes a subquery for correlated: it has a parameter, or names
/// a column by something else than the alias of a table that it reads.
fn looks_correlated(query: &Query) -> bool {
    let SetExpr::Select(select) = &*query.body else { return false };
    let relations = select.from.iter().flat_map(|table| {
        std::iter::once(&table.relation).chain(table.joins.iter().map(|join| &join.relation))
    });
    let names: Vec<&str> = relations
        .filter_map(|relation| match relation {
            TableFactor::Table { alias: Some(alias), .. } => Some(alias.name.value.as_str()),
            _ => None,
        })
        .collect();
    let found = walk::expressions(query, &mut |expr| match expr {
        Expr::CompoundIdentifier(idents) if !idents.is_empty() => {
            let is_own = names.contains(&idents[0].value.as_str());
            if is_own { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        }
        Expr::Value(ValueWithSpan { value: Value::Placeholder(_), .. }) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}

fn reads_nothing(query: &Query) -> bool {
    let SetExpr::Select(select) = &*query.body else { return false };
    let is_empty = |table: &TableFactor| match table {
        TableFactor::Table { name, .. } => {
            last_part(name).is_some_and(|ident| EMPTY.contains(&ident.value.to_lowercase().as_str()))
        }
        _ => false,
    };
    // Over no rows all aggregates but counts are NULL.
    let counts = walk::expressions(&select.projection, &mut |expr| match expr {
        Expr::Function(function) if is_call_of(function, "count") => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    counts.is_continue()
        && (select.from.iter().any(|table| table.joins.is_empty() && is_empty(&table.relation))
            || select.selection.as_ref().is_some_and(wants_other_collation))
}

/// Returns true if a condition, or a part of a conjunction, requires a column's collation to
/// differ from its type's, as clients write. Here no column has a collation of its own.
fn wants_other_collation(condition: &Expr) -> bool {
    let is = |expr: &Expr, wanted: &str| match expr {
        Expr::CompoundIdentifier(idents) => {
            idents.last().is_some_and(|ident| ident.value.eq_ignore_ascii_case(wanted))
        }
        _ => false,
    };
    match condition {
        Expr::Nested(inner) => wants_other_collation(inner),
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            wants_other_collation(left) || wants_other_collation(right)
        }
        Expr::BinaryOp { left, op: BinaryOperator::NotEq, right } => {
            is(left, "attcollation") && is(right, "typcollation")
                || is(left, "typcollation") && is(right, "attcollation")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn correlated_subqueries_are_refused_unless_empty() {
        for (subquery, is_refused) in [
            ("SELECT adbin FROM pg_attrdef d WHERE d.adrelid = a.attrelid", false),
            ("SELECT count(*) FROM pg_attrdef d WHERE d.adrelid = a.attrelid", true),
            ("SELECT description FROM pg_description d WHERE d.objoid = a.attrelid", true),
            ("SELECT collname FROM pg_collation c WHERE c.oid = a.attcollation", true),
            (
                "SELECT c.collname FROM pg_collation c, pg_type t WHERE c.oid = a.attcollation AND t.oid = a.atttypid \
                 AND a.attcollation <> t.typcollation",
                false,
            ),
            (
                "SELECT c.collname FROM pg_collation c, pg_type t WHERE c.oid = a.attcollation OR \
                 a.attcollation <> t.typcollation",
                true,
            ),
        ] {
            let text = format!("SELECT a.attname, ({subquery}) FROM pg_attribute a");
            let dialect = datafusion::sql::sqlparser::dialect::PostgreSqlDialect {};
            let mut parsed =
                datafusion::sql::sqlparser::parser::Parser::parse_sql(&dialect, &text).expect("parses");
            assert_eq!(prepare(&mut parsed[0]).is_err(), is_refused, "{subquery}");
        }
    }
}
