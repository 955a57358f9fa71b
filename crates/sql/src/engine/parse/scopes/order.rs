//! Names in `ORDER BY`.

use std::collections::HashSet;

use datafusion::sql::sqlparser::ast::{Expr, Ident, OrderByExpr, Select, SelectItem, TableFactor};

use crate::engine::parse::syntax::{folded, last_part, own_expressions};
use crate::failure::{Failure, unsupported};

/// Qualifies names within expressions of `ORDER BY` that are output names too, so that they mean
/// columns of the input.
///
/// # Errors
/// The query reads several tables: the table of the name is not known.
pub(super) fn by_input(select: &Select, orders: &mut [OrderByExpr]) -> Result<(), Failure> {
    let outputs: HashSet<String> = select.projection.iter().filter_map(other_name).collect();
    if outputs.is_empty() {
        return Ok(());
    }
    let table = only_table(select);
    let mut unknown = None;
    for order in orders.iter_mut().filter(|order| !matches!(order.expr, Expr::Identifier(_))) {
        own_expressions(&mut order.expr, &mut |expr| {
            let Expr::Identifier(name) = expr else { return };
            if !outputs.contains(&folded(name)) {
                return;
            }
            match &table {
                Some(table) => *expr = Expr::CompoundIdentifier(vec![table.clone(), name.clone()]),
                None => unknown = Some(name.clone()),
            }
        });
    }
    match unknown {
        None => Ok(()),
        Some(name) => {
            let text = format!(
                "ORDER BY: in an expression {name} means a column of a table, not the result's column of this \
                 name: write the table's name before it, or order by the number of a column"
            );
            unsupported(text)
        }
    }
}

/// Returns the alias of an item that is not the column of the same name.
fn other_name(item: &SelectItem) -> Option<String> {
    let SelectItem::ExprWithAlias { expr, alias } = item else { return None };
    let name = folded(alias);
    let of_expr = match expr {
        Expr::Identifier(ident) => Some(folded(ident)),
        Expr::CompoundIdentifier(idents) => idents.last().map(folded),
        _ => None,
    };
    (of_expr.as_ref() != Some(&name)).then_some(name)
}

/// Returns the name of the table if the query reads no other.
fn only_table(select: &Select) -> Option<Ident> {
    let [table] = &select.from[..] else { return None };
    if !table.joins.is_empty() { None } else { name_of(&table.relation) }
}

/// Returns the name by which columns of a table are qualified.
pub(super) fn name_of(table: &TableFactor) -> Option<Ident> {
    match table {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. }
        | TableFactor::Function { alias: Some(alias), .. }
        | TableFactor::UNNEST { alias: Some(alias), .. } => Some(alias.name.clone()),
        TableFactor::Table { name, args: None, .. } => last_part(name).cloned(),
        _ => None,
    }
}
