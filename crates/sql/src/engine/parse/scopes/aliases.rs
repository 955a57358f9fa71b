//! Names of tables that are names of columns too. In a subquery the planner of DataFusion takes the
//! qualifier of an outer table for such a column. These tables get a name with a mark.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, ObjectName, ObjectNamePart, Select, SelectItem, SelectItemQualifiedWildcardKind, Statement,
    TableFactor, Visitor, VisitorMut,
};

use crate::engine::parse::column_names::MARK;
use crate::engine::parse::syntax::{folded, last_part};
use crate::walk;

/// Renames aliases of tables that are names of columns too.
pub(super) fn rename(statement: &mut Statement) {
    let mut names = UsedNames::default();
    let _ = walk::walk(statement, &mut names);
    let mut renamed = names.aliases;
    renamed.retain(|name| names.columns.contains(name) && !names.tables.contains(name));
    if !renamed.is_empty() {
        let _ = walk::walk_mut(statement, &mut Rename(renamed));
    }
}

/// Names in use in a statement.
#[derive(Default)]
struct UsedNames {
    aliases: HashSet<String>,
    /// Tables without an alias.
    tables: HashSet<String>,
    columns: HashSet<String>,
}

impl Visitor for UsedNames {
    type Break = ();

    fn pre_visit_table_factor(&mut self, table: &TableFactor) -> ControlFlow<()> {
        match table {
            TableFactor::Table { alias: Some(alias), .. }
            | TableFactor::Derived { alias: Some(alias), .. } => {
                self.aliases.insert(folded(&alias.name));
            }
            TableFactor::Table { name, .. } => {
                self.tables.extend(last_part(name).map(folded));
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Identifier(name) => self.columns.extend([folded(name)]),
            Expr::CompoundIdentifier(names) => self.columns.extend(names.last().map(folded)),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

struct Rename(HashSet<String>);

impl Rename {
    fn ident(&self, ident: &mut Ident) {
        let name = folded(ident);
        if self.0.contains(&name) {
            *ident = Ident::with_quote('"', format!("{name}{MARK}0"));
        }
    }
}

impl VisitorMut for Rename {
    type Break = ();

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. } = table
        {
            self.ident(&mut alias.name);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        for item in &mut select.projection {
            if let SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) = item
                && let ObjectName(parts) = name
                && let [ObjectNamePart::Identifier(ident)] = &mut parts[..]
            {
                self.ident(ident);
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::CompoundIdentifier(names) = expr
            && let [table, _] = &mut names[..]
        {
            self.ident(table);
        }
        ControlFlow::Continue(())
    }
}
