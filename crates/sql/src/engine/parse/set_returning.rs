//! Functions that return rows: `generate_series` and `unnest`. In FROM their column has the name of
//! their alias, or of the function. In a select list, where DataFusion's `generate_series` is an
//! array, each element is a row.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Statement, TableAlias, TableAliasColumnDef, TableFactor, VisitorMut,
};

use crate::engine::parse::syntax::{call, is_call_of, last_part};
use crate::walk;

/// Name of the function that gives a series.
const SERIES: &str = "generate_series";

/// Names the columns of functions in FROM. A series without an alias keeps the name of DataFusion.
pub(crate) fn name_columns(statement: &mut Statement) {
    let _ = walk::walk_mut(statement, &mut NameFunctions);
}

/// Visitor that names the columns of functions.
struct NameFunctions;

impl VisitorMut for NameFunctions {
    type Break = ();

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        match table {
            TableFactor::Table { name, alias: Some(alias), args: Some(_), .. }
                if last_part(name).is_some_and(|ident| ident.value.eq_ignore_ascii_case(SERIES)) =>
            {
                name_column(alias);
            }
            TableFactor::UNNEST { alias, array_exprs, .. } if array_exprs.len() == 1 => {
                let name = Ident::new("unnest");
                let unnamed = TableAlias { explicit: true, name, columns: Vec::new(), at: None };
                name_column(alias.get_or_insert(unnamed));
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

fn name_column(alias: &mut TableAlias) {
    if alias.columns.is_empty() {
        alias.columns.push(TableAliasColumnDef { name: alias.name.clone(), data_type: None });
    }
}

/// Makes rows of a series in a select list.
pub(crate) fn as_rows(expr: &mut Expr) {
    if let Expr::Function(function) = expr
        && is_call_of(function, SERIES)
    {
        *expr = call("unnest", vec![expr.clone()]);
    }
}
