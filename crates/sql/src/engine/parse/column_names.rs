//! Names of result columns, chosen as Postgres chooses them: `count` and not `count(*)`.
//! DataFusion rejects two columns of the same name. A mark makes such names unique, and [`shown`]
//! removes it again.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    DataType, Expr, Ident, OrderByExpr, OrderByKind, Query, SelectItem, SetExpr, Statement, TrimWhereField,
    VisitorMut,
};

use crate::engine::parse::syntax::{folded, last_part};
use crate::walk;

/// Separates a column's name from a suffix that makes it unique.
pub(crate) const MARK: char = '\u{1}';

/// Returns a column's name as clients see it.
pub(crate) fn shown(name: &str) -> &str {
    name.split_once(MARK).map_or(name, |(name, _)| name)
}

/// Removes the marks and suffixes from a text that may contain column names.
pub(crate) fn unmarked(text: &str) -> Cow<'_, str> {
    if !text.contains(MARK) {
        return Cow::Borrowed(text);
    }
    let mut parts = text.split(MARK);
    let first = parts.next().unwrap_or_default().to_owned();
    Cow::Owned(parts.fold(first, |shown, part| shown + part.trim_start_matches(|c: char| c.is_ascii_digit())))
}

/// Names the columns of all queries of a statement, nested ones included.
pub(crate) fn name_columns(statement: &mut Statement) {
    let _ = walk::walk_mut(statement, &mut NameColumns { depth: 0 });
}

/// Visitor that names the columns of each query.
struct NameColumns {
    /// Number of queries around the current one.
    depth: u32,
}

impl VisitorMut for NameColumns {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        name_query(query, self.depth == 0);
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }
}

fn name_query(query: &mut Query, is_outermost: bool) {
    let orders = query.order_by.as_mut().and_then(|by| match &mut by.kind {
        OrderByKind::Expressions(orders) => Some(orders),
        OrderByKind::All(_) => None,
    });
    let ordered_by = orders.as_ref().map_or_else(HashSet::new, |orders| columns_within(orders));
    name_set(&mut query.body, is_outermost, &ordered_by);
    // `ORDER BY` of a SELECT DISTINCT may use only the selected columns. DataFusion does not
    // recognize an expression as a selected column once that has an alias, so the alias replaces
    // it.
    if let SetExpr::Select(select) = &*query.body
        && select.distinct.is_some()
        && let Some(orders) = orders
    {
        for order in orders {
            let is_it = |item: &&SelectItem| match item {
                SelectItem::ExprWithAlias { expr, .. } => *expr == order.expr,
                _ => false,
            };
            if let Some(SelectItem::ExprWithAlias { alias, .. }) = select.projection.iter().find(is_it) {
                order.expr = Expr::Identifier(alias.clone());
            }
        }
    }
}

/// Returns the columns used inside `ORDER BY` expressions. A generated alias must not capture
/// them. Bare names are left out: they may refer to the result's columns.
fn columns_within(orders: &[OrderByExpr]) -> HashSet<String> {
    let mut found = HashSet::new();
    for order in orders.iter().filter(|order| !matches!(order.expr, Expr::Identifier(_))) {
        let _ = walk::expressions(&order.expr, &mut |expr| {
            if matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_)) {
                found.insert(column_name(expr));
            }
            ControlFlow::Continue(())
        });
    }
    found
}

fn name_set(set: &mut SetExpr, is_outermost: bool, ordered_by: &HashSet<String>) {
    match set {
        SetExpr::Select(select) => name_items(&mut select.projection, is_outermost, ordered_by),
        SetExpr::SetOperation { left, right, .. } => {
            name_set(left, is_outermost, ordered_by);
            name_set(right, is_outermost, ordered_by);
        }
        _ => {}
    }
}

/// Returns the name of an item that already has one, with true for a qualified column. `None` for
/// other expressions.
fn own_name(item: &SelectItem) -> Option<(String, bool)> {
    match item {
        SelectItem::UnnamedExpr(expr @ Expr::Identifier(_)) => Some((column_name(expr), false)),
        SelectItem::UnnamedExpr(expr @ Expr::CompoundIdentifier(_)) => Some((column_name(expr), true)),
        SelectItem::ExprWithAlias { alias, .. } => Some((folded(alias), false)),
        _ => None,
    }
}

fn name_items(items: &mut [SelectItem], is_outermost: bool, ordered_by: &HashSet<String>) {
    let is_wildcard =
        |item: &SelectItem| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..));
    // A wildcard may give columns of the same names. Nested queries must keep their names, since
    // outer queries refer to them.
    let beside_wildcard = is_outermost && items.iter().any(is_wildcard);
    let marked = |place: usize, name: &str| Ident::with_quote('"', format!("{name}{MARK}{place}"));
    // Names so far. True if only qualified columns have the name: DataFusion distinguishes these.
    let mut used: HashMap<String, bool> = HashMap::new();
    let mut seen = HashSet::new();
    for (place, item) in items.iter_mut().enumerate() {
        let Some((name, is_qualified)) = own_name(item) else { continue };
        let is_distinct = match used.get_mut(&name) {
            None => {
                used.insert(name.clone(), is_qualified);
                true
            }
            Some(all_qualified) => {
                *all_qualified &= is_qualified;
                *all_qualified
            }
        };
        match item {
            // sqlparser's own aliases for duplicates.
            SelectItem::ExprWithAlias { alias, .. } if alias.value.starts_with("__alias_") => {
                *alias = marked(place, alias.value.trim_start_matches("__alias_"));
            }
            SelectItem::ExprWithAlias { alias, .. } if !is_distinct => *alias = marked(place, &name),
            SelectItem::UnnamedExpr(expr) => {
                let is_new = seen.insert(expr.to_string());
                if beside_wildcard || !is_distinct || !is_new {
                    *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: marked(place, &name) };
                }
            }
            _ => {}
        }
    }
    for (place, item) in items.iter_mut().enumerate() {
        if let SelectItem::UnnamedExpr(expr) = item
            && !matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_))
        {
            let name = column_name(expr);
            let is_new = used.insert(name.clone(), false).is_none();
            let alias = match beside_wildcard || !is_new || ordered_by.contains(&name) {
                true => marked(place, &name),
                false => Ident::with_quote('"', name),
            };
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
        }
    }
}

/// Returns Postgres' name for a column without an alias (`FigureColname` of its parser).
fn column_name(expr: &Expr) -> String {
    named(expr).unwrap_or_else(|| "?column?".to_owned())
}

fn named(expr: &Expr) -> Option<String> {
    let of_type = |ty: &DataType| {
        let name = ty.to_string().to_lowercase();
        let name = match name.as_str() {
            varying if varying.contains("varying") => "varchar",
            "timestamp with time zone" => "timestamptz",
            "double precision" => "float8",
            name => name.split(['(', ' ', '[']).next().unwrap_or_default().trim_matches('"'),
        };
        Some(
            match name {
                "int" | "integer" => "int4",
                "bigint" => "int8",
                "smallint" => "int2",
                "real" => "float4",
                "double" | "float" => "float8",
                "decimal" => "numeric",
                "boolean" => "bool",
                "character" | "char" => "bpchar",
                other => other,
            }
            .to_owned(),
        )
    };
    let some = |name: &str| Some(name.to_owned());
    match expr {
        Expr::Identifier(ident) => Some(folded(ident)),
        Expr::CompoundIdentifier(idents) => idents.last().map(folded),
        Expr::Function(call) => last_part(&call.name).map(folded),
        // A cast is named after its type, unless its operand has a name.
        Expr::Cast { expr, data_type, .. } => match unparenthesized(expr) {
            Expr::Cast { .. } | Expr::TypedString(_) | Expr::Case { .. } => match strong(expr) {
                true => named(expr),
                false => of_type(data_type),
            },
            _ => named(expr).or_else(|| of_type(data_type)),
        },
        Expr::TypedString(typed) => of_type(&typed.data_type),
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => named(inner),
        Expr::Case { else_result, .. } => {
            else_result.as_deref().filter(|expr| strong(expr)).and_then(named).or_else(|| some("case"))
        }
        Expr::Subquery(query) => match query.body.as_select()?.projection.first()? {
            SelectItem::UnnamedExpr(expr) => named(expr),
            SelectItem::ExprWithAlias { alias, .. } => Some(folded(alias)),
            _ => None,
        },
        Expr::Exists { .. } => some("exists"),
        Expr::Array(_) => some("array"),
        Expr::Extract { .. } => some("extract"),
        Expr::AtTimeZone { .. } => some("timezone"),
        Expr::Substring { shorthand: true, .. } => some("substr"),
        Expr::Substring { .. } => some("substring"),
        Expr::Position { .. } => some("position"),
        Expr::Trim { trim_where: Some(TrimWhereField::Leading), .. } => some("ltrim"),
        Expr::Trim { trim_where: Some(TrimWhereField::Trailing), .. } => some("rtrim"),
        Expr::Trim { .. } => some("btrim"),
        Expr::CompoundFieldAccess { root, .. } => named(root),
        Expr::Tuple(_) => some("row"),
        Expr::Overlay { .. } => some("overlay"),
        Expr::Ceil { .. } => some("ceil"),
        Expr::Floor { .. } => some("floor"),
        Expr::Interval(_) => some("interval"),
        _ => None,
    }
}

fn unparenthesized(expr: &Expr) -> &Expr {
    match expr {
        Expr::Nested(inner) => unparenthesized(inner),
        other => other,
    }
}

/// Returns true if the operand of casts has a name that takes precedence over the names of their
/// types.
fn strong(expr: &Expr) -> bool {
    match unparenthesized(expr) {
        Expr::Cast { expr, .. } => strong(expr),
        Expr::TypedString(_) | Expr::Case { .. } => false,
        other => named(other).is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::parse::dialect::Dialect;
    use engine::Guardrails;

    fn names(text: &str) -> Vec<String> {
        let statements =
            Dialect::new().parse(text, &Guardrails::default(), &|_| None).expect(text).statements;
        let Statement::Query(query) = &statements[0] else { panic!("a query") };
        let select = query.body.as_select().expect("a SELECT");
        let name = |item: &SelectItem| match item {
            SelectItem::ExprWithAlias { alias, .. } => alias.value.clone(),
            SelectItem::UnnamedExpr(expr) => column_name(expr),
            _ => "*".to_owned(),
        };
        select.projection.iter().map(name).collect()
    }

    #[test]
    fn columns_are_named_as_postgres_names_them() {
        let text = "SELECT count(*), sum(t.price), 1, price::varchar, CAST('1' AS int), date '2026-01-01', t.a, \
                    CASE WHEN true THEN 1 END, (SELECT max(x) FROM t), Upper(a), \"Odd\", a + 1, b AS c, \
                    extract(year FROM b), b AT TIME ZONE 'UTC', EXISTS (SELECT 1 FROM t) FROM t";
        let expected = [
            "count", "sum", "?column?", "price", "int4", "date", "a", "case", "max", "upper", "Odd",
            "?column?", "c", "extract", "timezone", "exists",
        ];
        let found = names(text);
        let shown: Vec<&str> = found.iter().map(|name| shown(name)).collect();
        assert_eq!(shown, expected);
        assert_eq!(found.iter().collect::<HashSet<_>>().len(), found.len(), "no two are the same: {found:?}");
    }

    #[test]
    fn only_duplicate_names_get_marks() {
        assert_eq!(names("SELECT a.id, b.id, x AS y FROM a, b"), ["id", "id", "y"]);
        assert_eq!(names("SELECT id, b.id FROM a, b"), ["id", "id\u{1}1"]);
        assert_eq!(names("SELECT id, name AS id FROM a"), ["id", "id\u{1}1"]);
        assert_eq!(names("SELECT count(*) AS Count, count(id) FROM a"), ["Count", "count\u{1}1"]);
        assert_eq!(names("SELECT price::int FROM a ORDER BY abs(price - 2)"), ["price\u{1}0"]);
        assert_eq!(names("SELECT price::int FROM a ORDER BY price"), ["price"]);
        assert_eq!(unmarked("no field id\u{1}12 in t, x\u{1}3"), "no field id in t, x");
        assert_eq!(names("SELECT count(*), t.count FROM t"), ["count\u{1}0", "count"]);
        assert_eq!(names("SELECT id, *, id FROM t"), ["id\u{1}0", "*", "id\u{1}2"]);
        assert_eq!(names("SELECT id, id FROM t"), ["id", "id\u{1}1"]);
        assert_eq!(names("SELECT a AS x, b AS x FROM t"), ["x", "x\u{1}1"]);
    }
}
