//! Predicts the size of a statement's plan from its syntax tree, in nodes. `tree` counts what is
//! written, and copies of `WITH` queries. DataFusion's conversion adds, and this file counts:
//!
//! - the columns of tables for each `*`, and at each join and subquery,
//! - a copy of a result column where GROUP BY, HAVING or ORDER BY names its alias or its number,
//! - a copy of a window's definition for each call over it,
//! - the combinations of grouping sets.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, GroupByExpr, GroupByWithModifier, NamedWindowExpr, ObjectName, OrderByExpr, OrderByKind,
    Query, Select, SelectItem, SetExpr, Statement, TableFactor, TableWithJoins, Value, ValueWithSpan, Visit,
    Visitor, WindowType,
};

use crate::catalog::Tables;
use crate::engine::limits::planning::budget::{COLUMNS_MAX, step};
use crate::engine::limits::planning::conversion_work::{self, Compared};
use crate::engine::limits::planning::size::NODE_TEXT_BYTES;
use crate::failure::{refusal, state};
use crate::walk;

/// Meaning of the names in a statement.
pub(crate) struct StatementNames<'a> {
    pub(crate) tables: &'a Tables,
    /// The keyspace of unqualified names.
    pub(crate) schema: &'a str,
    /// Returns true if the function of this name, in lower case, is an aggregate.
    pub(crate) is_aggregate: &'a dyn Fn(&str) -> bool,
}

/// Columns of a relation whose definition is not known here: of the catalog, or of a function.
const OTHER_COLUMNS: u64 = 40;

/// Does [`step`] for the plan that a statement will have. `written` are the nodes of its tree.
///
/// # Errors
/// As [`step`], 54001 for a conversion that compares too much, and 54011 for more than
/// [`COLUMNS_MAX`] columns.
pub(crate) fn step_converting(statement: &Statement, written: u64, names: &StatementNames<'_>) -> Result<()> {
    let mut queries = Queries::new(names);
    let _ = walk::walk(statement, &mut queries);
    step(written.saturating_add(queries.nodes))?;
    let widest = queries.widest;
    if widest <= COLUMNS_MAX {
        return conversion_work::check(queries.comparisons);
    }
    let text = format!("expected at most {COLUMNS_MAX} columns of a SELECT and its tables, got {widest}");
    Err(refusal(state::COLUMNS, text))
}

/// A query's number of result columns, and the nodes that the conversion adds to it.
#[derive(Clone, Copy, Default)]
struct Relation {
    columns: u64,
    nodes: u64,
}

/// Nodes of a SELECT's result columns, by alias and in their order.
#[derive(Default)]
struct Results {
    named: HashMap<String, u64>,
    listed: Vec<u64>,
}

/// Visits the outermost queries of a tree, and counts the inner ones itself.
struct Queries<'a> {
    names: &'a StatementNames<'a>,
    depth: u64,
    /// `WITH` queries of the queries being counted.
    scopes: Vec<HashMap<String, Relation>>,
    nodes: u64,
    /// Comparisons by the conversion.
    comparisons: u64,
    /// Largest number of columns of a SELECT, or of its tables.
    widest: u64,
}

impl Visitor for Queries<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        if self.depth == 0 {
            self.nodes = self.nodes.saturating_add(self.query(query).nodes);
        }
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }
}

impl<'a> Queries<'a> {
    fn new(names: &'a StatementNames<'a>) -> Queries<'a> {
        Queries { names, depth: 0, scopes: Vec::new(), nodes: 0, comparisons: 0, widest: 0 }
    }

    fn query(&mut self, query: &Query) -> Relation {
        self.scopes.push(HashMap::new());
        for table in query.with.iter().flat_map(|with| &with.cte_tables) {
            let counted = self.query(&table.query);
            let name = table.alias.name.value.to_lowercase();
            self.scopes.last_mut().expect("pushed above").insert(name, counted);
        }
        let keys = match query.order_by.as_ref().map(|order| &order.kind) {
            Some(OrderByKind::Expressions(keys)) => &keys[..],
            _ => &[],
        };
        let (mut counted, results) = self.body(&query.body, keys);
        for key in keys {
            counted.nodes = counted.nodes.saturating_add(copies(&key.expr, &results));
            counted.nodes = counted.nodes.saturating_add(self.inner(&key.expr));
        }
        self.compare(conversion_work::of_keys(keys, counted.columns));
        self.scopes.pop();
        counted
    }

    fn compare(&mut self, comparisons: u64) {
        self.comparisons = self.comparisons.saturating_add(comparisons);
    }

    /// Counts the body of a query with these keys of ORDER BY.
    fn body(&mut self, body: &SetExpr, keys: &[OrderByExpr]) -> (Relation, Results) {
        match body {
            SetExpr::Select(select) => self.select(select, keys),
            SetExpr::Query(query) => (self.query(query), Results::default()),
            SetExpr::Values(values) => {
                let columns = values.rows.first().map_or(0, |row| row.len() as u64);
                (Relation { columns, nodes: columns }, Results::default())
            }
            SetExpr::SetOperation { left, right, .. } => {
                let (one, other) = (self.body(left, &[]).0, self.body(right, &[]).0);
                let nodes = one.nodes.saturating_add(other.nodes).saturating_add(one.columns);
                (Relation { columns: one.columns, nodes }, Results::default())
            }
            _ => (Relation { columns: OTHER_COLUMNS, nodes: OTHER_COLUMNS }, Results::default()),
        }
    }

    fn select(&mut self, select: &Select, keys: &[OrderByExpr]) -> (Relation, Results) {
        let mut compared = Compared::new(self.names.is_aggregate);
        let mut nodes = 0_u64;
        let mut add = |more: u64| nodes = nodes.saturating_add(more);
        let mut from = 0_u64;
        for tables in &select.from {
            let counted = self.joined(tables);
            from = from.saturating_add(counted.columns);
            // Each join has the columns of all tables before it.
            add(counted.nodes.saturating_add(from));
        }
        let windows = windows(select);
        let (mut results, mut columns) = (Results::default(), 0_u64);
        for item in &select.projection {
            let (expr, alias) = match item {
                SelectItem::UnnamedExpr(expr) => (expr, None),
                SelectItem::ExprWithAlias { expr, alias } => (expr, Some(alias)),
                SelectItem::ExprWithAliases { expr, .. } => (expr, None),
                SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..) => {
                    columns = columns.saturating_add(from.max(1));
                    compared.add_columns(from);
                    continue;
                }
            };
            let size = nodes_of(expr);
            results.listed.push(size);
            columns = columns.saturating_add(1);
            if let Some(alias) = alias {
                columns = columns.saturating_add(alias.value.len() as u64 / NODE_TEXT_BYTES);
                results.named.insert(alias.value.to_lowercase(), size);
            }
            compared.add(expr, size);
            add(calls_over(expr, &windows));
            add(self.inner(expr));
        }
        self.widest = self.widest.max(columns).max(from);
        // The columns as expressions, and as a schema.
        add(columns.saturating_mul(2));
        for condition in select.having.iter().chain(&select.qualify) {
            compared.add(condition, nodes_of(condition));
            add(copies(condition, &results));
            add(self.inner(condition));
        }
        for condition in select.selection.iter().chain(&select.prewhere) {
            add(self.inner(condition));
        }
        add(grouped(&select.group_by, &results));
        keys.iter().for_each(|key| compared.add(&key.expr, nodes_of(&key.expr)));
        if let GroupByExpr::Expressions(exprs, _) = &select.group_by {
            exprs.iter().for_each(|expr| compared.add_group(expr));
        }
        self.compare(compared.comparisons(from));
        (Relation { columns, nodes }, results)
    }

    fn joined(&mut self, tables: &TableWithJoins) -> Relation {
        let mut counted = self.factor(&tables.relation);
        for join in &tables.joins {
            let other = self.factor(&join.relation);
            counted.columns = counted.columns.saturating_add(other.columns);
            counted.nodes = counted.nodes.saturating_add(other.nodes).saturating_add(counted.columns);
        }
        counted
    }

    fn factor(&mut self, factor: &TableFactor) -> Relation {
        let counted = match factor {
            TableFactor::Table { name, .. } => self.table(name),
            TableFactor::Derived { subquery, .. } => self.query(subquery),
            TableFactor::NestedJoin { table_with_joins, .. } => self.joined(table_with_joins),
            _ => Relation { columns: OTHER_COLUMNS, nodes: 0 },
        };
        // A schema under the name of the relation.
        Relation { nodes: counted.nodes.saturating_add(counted.columns), ..counted }
    }

    fn table(&self, name: &ObjectName) -> Relation {
        let parts: Vec<&str> =
            name.0.iter().filter_map(|part| part.as_ident()).map(|ident| ident.value.as_str()).collect();
        let (schema, table) = match &parts[..] {
            [table] => {
                let lower = table.to_lowercase();
                if let Some(found) = self.scopes.iter().rev().find_map(|scope| scope.get(&lower)) {
                    return *found;
                }
                (self.names.schema, *table)
            }
            [.., schema, table] => (*schema, *table),
            [] => return Relation::default(),
        };
        let found = self.names.tables.table(schema, table);
        let found = found.or_else(|| self.names.tables.table(&schema.to_lowercase(), &table.to_lowercase()));
        let columns = found.map_or(OTHER_COLUMNS, |table| table.def.columns.len() as u64);
        Relation { columns, nodes: 0 }
    }

    /// Returns the nodes of an expression's subqueries.
    fn inner(&mut self, expr: &Expr) -> u64 {
        let scopes = std::mem::take(&mut self.scopes);
        let mut inner = Queries { scopes, widest: self.widest, ..Queries::new(self.names) };
        let _ = walk::walk(expr, &mut inner);
        self.compare(inner.comparisons);
        (self.scopes, self.widest) = (inner.scopes, inner.widest);
        inner.nodes
    }
}

/// Returns the nodes of a tree, with the weight of its texts.
pub(crate) fn nodes_of(tree: &impl Visit) -> u64 {
    struct Nodes(u64);
    impl Visitor for Nodes {
        type Break = ();

        fn pre_visit_expr(&mut self, _expr: &Expr) -> ControlFlow<()> {
            self.0 = self.0.saturating_add(1);
            ControlFlow::Continue(())
        }

        fn pre_visit_value(&mut self, value: &ValueWithSpan) -> ControlFlow<()> {
            self.0 = self.0.saturating_add(of_value(&value.value));
            ControlFlow::Continue(())
        }
    }
    let mut nodes = Nodes(0);
    let _ = walk::walk(tree, &mut nodes);
    nodes.0
}

/// Returns the weight of a literal's text, beyond one node.
pub(crate) fn of_value(value: &Value) -> u64 {
    let bytes = match value {
        Value::Number(text, _)
        | Value::SingleQuotedString(text)
        | Value::EscapedStringLiteral(text)
        | Value::UnicodeStringLiteral(text)
        | Value::HexStringLiteral(text)
        | Value::NationalStringLiteral(text)
        | Value::DoubleQuotedString(text) => text.len(),
        Value::DollarQuotedString(text) => text.value.len(),
        _ => 0,
    };
    bytes as u64 / NODE_TEXT_BYTES
}

/// Returns the nodes of result columns that an expression names, by alias anywhere, or alone by
/// number.
fn copies(expr: &Expr, results: &Results) -> u64 {
    if let Expr::Value(ValueWithSpan { value: Value::Number(digits, _), .. }) = expr {
        let place = digits.parse::<usize>().ok().and_then(|place| place.checked_sub(1));
        return place.and_then(|place| results.listed.get(place)).copied().unwrap_or(0);
    }
    let mut nodes = 0_u64;
    let _ = walk::expressions(expr, &mut |expr| {
        if let Expr::Identifier(name) = expr
            && !results.named.is_empty()
        {
            let named = results.named.get(&name.value.to_lowercase()).copied();
            nodes = nodes.saturating_add(named.unwrap_or(0));
        }
        ControlFlow::Continue(())
    });
    nodes
}

/// Returns the nodes of the definitions in WINDOW, by name.
fn windows(select: &Select) -> HashMap<String, u64> {
    let of = |window: &NamedWindowExpr| match window {
        NamedWindowExpr::WindowSpec(spec) => nodes_of(spec),
        NamedWindowExpr::NamedWindow(_) => 0,
    };
    select.named_window.iter().map(|window| (window.0.value.to_lowercase(), of(&window.1))).collect()
}

/// Returns the nodes of the definitions of the windows that calls in `expr` name.
fn calls_over(expr: &Expr, windows: &HashMap<String, u64>) -> u64 {
    let mut nodes = 0_u64;
    if !windows.is_empty() {
        let _ = walk::expressions(expr, &mut |expr| {
            if let Expr::Function(Function { over: Some(WindowType::NamedWindow(name)), .. }) = expr {
                let named = windows.get(&name.value.to_lowercase()).copied();
                nodes = nodes.saturating_add(named.unwrap_or(0));
            }
            ControlFlow::Continue(())
        });
    }
    nodes
}

/// Returns the nodes that GROUP BY adds: copies of result columns, and of its expressions for each
/// grouping set.
fn grouped(group_by: &GroupByExpr, results: &Results) -> u64 {
    let GroupByExpr::Expressions(exprs, modifiers) = group_by else { return 0 };
    let (mut nodes, mut sets) = (0_u64, 1_u64);
    for expr in exprs {
        let copied = copies(expr, results);
        nodes = nodes.saturating_add(nodes_of(expr)).saturating_add(copied);
        let factor = match expr {
            Expr::Cube(of) => subsets(of.len()),
            Expr::Rollup(of) => of.len() as u64 + 1,
            Expr::GroupingSets(of) => {
                // A set may itself be a list of sets.
                of.iter().flatten().fold(of.len() as u64, |sum, inner| sum.saturating_add(sets_of(inner)))
            }
            _ => 1,
        };
        sets = sets.saturating_mul(factor.max(1));
    }
    for modifier in modifiers {
        let factor = match modifier {
            GroupByWithModifier::Cube => subsets(exprs.len()),
            GroupByWithModifier::Rollup => exprs.len() as u64 + 1,
            _ => 1,
        };
        sets = sets.saturating_mul(factor);
    }
    if sets == 1 && modifiers.is_empty() { nodes } else { nodes.saturating_mul(sets) }
}

fn sets_of(expr: &Expr) -> u64 {
    match expr {
        Expr::Cube(of) => subsets(of.len()),
        Expr::Rollup(of) => of.len() as u64 + 1,
        _ => 0,
    }
}

fn subsets(length: usize) -> u64 {
    u32::try_from(length).ok().and_then(|length| 1_u64.checked_shl(length)).unwrap_or(u64::MAX)
}
