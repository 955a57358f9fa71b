//! Postgres' SQL as DataFusion can plan it. The crate that also makes `pg_catalog` has rules for what Postgres' clients write; here are those that
//! it has not, or has otherwise:
//!
//! - Columns are named as Postgres names them: `count`, not `count(*)`. Several of the same name are told apart by a mark that
//!   [`shown`] takes away again.
//! - `AT TIME ZONE` is Postgres' function `timezone`: a point in time becomes local time, and local time a point in time.
//! - `OPERATOR(pg_catalog.=)` is `=`, and types that are texts here (`uuid`, `json`, `inet`, `name`) are texts.
//! - Patterns of `to_char` are translated.
//!
//! That crate takes subqueries for NULL that depend on the row they stand in, since DataFusion cannot plan those that clients
//! ask of the catalog. What reads tables goes without that rule.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use datafusion::common::ParamValues;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList,
    FunctionArguments, Ident, ObjectName, OrderByExpr, OrderByKind, Query, SelectItem, SetExpr, Statement,
    Value, Visit, VisitMut, Visitor, VisitorMut, visit_expressions, visit_expressions_mut, visit_relations,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion_pg_catalog::sql::PostgresCompatibilityParser;
use datafusion_pg_catalog::sql::rules::{
    CurrentUserVariableToSessionUserFunctionCall, FixArrayLiteral, PrependUnqualifiedPgTableName,
    ResolveUnqualifiedIdentifier, RewriteArrayAnyAllOperation, RewritePgCatalogOperator,
    RewriteRegCastToSubquery, SqlStatementRewriteRule, StripCallableQualifier, StripCollate,
};

use crate::failure::{Failure, state};
use crate::to_char;

/// Stands between a column's name and what tells it from others of the same name.
const MARK: char = '\u{1}';

/// A column's name as a client is shown it.
pub(crate) fn shown(name: &str) -> &str {
    name.split_once(MARK).map_or(name, |(name, _)| name)
}

/// A text in which columns may be named, as it is shown.
pub(crate) fn unmarked(text: &str) -> Cow<'_, str> {
    if !text.contains(MARK) {
        return Cow::Borrowed(text);
    }
    let mut parts = text.split(MARK);
    let first = parts.next().unwrap_or_default().to_owned();
    Cow::Owned(parts.fold(first, |shown, part| shown + part.trim_start_matches(|c: char| c.is_ascii_digit())))
}

/// See the head of this file.
pub(crate) struct Dialect {
    of_catalog: PostgresCompatibilityParser,
    of_tables: Vec<Box<dyn SqlStatementRewriteRule>>,
}

impl Dialect {
    pub(crate) fn new() -> Dialect {
        Dialect {
            of_catalog: PostgresCompatibilityParser::new(),
            of_tables: vec![
                Box::new(ResolveUnqualifiedIdentifier),
                Box::new(RewriteArrayAnyAllOperation),
                Box::new(PrependUnqualifiedPgTableName),
                Box::new(StripCallableQualifier),
                Box::new(FixArrayLiteral),
                Box::new(CurrentUserVariableToSessionUserFunctionCall),
                Box::new(StripCollate),
                Box::new(RewritePgCatalogOperator),
                Box::new(RewriteRegCastToSubquery::new()),
            ],
        }
    }

    /// The statements of a text.
    ///
    /// # Errors
    /// It is not SQL.
    pub(crate) fn parse(&self, text: &str) -> Result<Vec<Statement>, ParserError> {
        let plain = Parser::new(&PostgreSqlDialect {}).try_with_sql(text)?.parse_statements()?;
        let of_catalog = plain.iter().any(reads_catalog_only);
        let (statements, rules) = match of_catalog {
            true => (self.of_catalog.parse(text)?, &[][..]),
            false => (plain, &self.of_tables[..]),
        };
        let rewritten = |mut statement: Statement| {
            let _ = VisitMut::visit(&mut statement, &mut Names { depth: 0 });
            statement = rules.iter().fold(statement, |statement, rule| rule.rewrite(statement));
            let wrong = visit_expressions_mut(&mut statement, |expression| match rewrite(expression) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => ControlFlow::Break(error),
            });
            match wrong {
                ControlFlow::Continue(()) => Ok(statement),
                ControlFlow::Break(error) => Err(ParserError::ParserError(error)),
            }
        };
        statements.into_iter().map(rewritten).collect()
    }
}

/// Functions that give rows, which the parser takes for tables.
const FUNCTIONS: [&str; 3] = ["generate_series", "string_to_array", "unnest"];

/// Whether a statement reads Postgres' own catalog, and nothing else.
fn reads_catalog_only(statement: &Statement) -> bool {
    let mut own = WithNames::default();
    let _ = statement.visit(&mut own);
    let mut any = false;
    let others = visit_relations(statement, |name| {
        let parts: Vec<String> = name
            .0
            .iter()
            .filter_map(|part| part.as_ident())
            .map(|ident| ident.value.to_lowercase())
            .collect();
        let (last, schema) = (parts.last().cloned().unwrap_or_default(), parts.iter().rev().nth(1));
        let of_catalog = match schema {
            Some(schema) => matches!(schema.as_str(), "pg_catalog" | "information_schema"),
            None => last.starts_with("pg_"),
        };
        any |= of_catalog;
        let is_neither = schema.is_none() && (own.0.contains(&last) || FUNCTIONS.contains(&last.as_str()));
        if of_catalog || is_neither { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    any && others.is_continue()
}

/// The names that `WITH` gives, anywhere in a statement.
#[derive(Default)]
struct WithNames(HashSet<String>);

impl Visitor for WithNames {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let tables = query.with.iter().flat_map(|with| &with.cte_tables);
        self.0.extend(tables.map(|table| table.alias.name.value.to_lowercase()));
        ControlFlow::Continue(())
    }
}

/// Names the columns of queries, also of those within others.
struct Names {
    /// How many queries it is in.
    depth: u32,
}

impl VisitorMut for Names {
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
    // What is distinct is ordered by its columns, and DataFusion does not see that an expression is one of them that has got a name.
    if let SetExpr::Select(select) = &*query.body
        && select.distinct.is_some()
        && let Some(orders) = orders
    {
        for order in orders {
            let is_it = |item: &&SelectItem| matches!(item, SelectItem::ExprWithAlias { expr, .. } if *expr == order.expr);
            if let Some(SelectItem::ExprWithAlias { alias, .. }) = select.projection.iter().find(is_it) {
                order.expr = Expr::Identifier(alias.clone());
            }
        }
    }
}

/// Columns that are ordered by, but for those whose bare names may be those of the result: a name given here must not be taken for them.
fn columns_within(orders: &[OrderByExpr]) -> HashSet<String> {
    let mut found = HashSet::new();
    for order in orders.iter().filter(|order| !matches!(order.expr, Expr::Identifier(_))) {
        let _ = visit_expressions(&order.expr, |expr| {
            if matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_)) {
                found.insert(column_name(expr));
            }
            ControlFlow::<()>::Continue(())
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

/// What an item is called, if it has a name by itself: whether it is a column of a table that is named too.
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
    // What a wildcard gives may have the same names. Within other queries names must stay what they are.
    let beside_wildcard = is_outermost && items.iter().any(is_wildcard);
    let marked = |place: usize, name: &str| Ident::with_quote('"', format!("{name}{MARK}{place}"));
    // Names so far, and whether only columns of named tables have them: these DataFusion tells apart by itself.
    let mut used: HashMap<String, bool> = HashMap::new();
    let mut seen = HashSet::new();
    for (place, item) in items.iter_mut().enumerate() {
        let Some((name, is_qualified)) = own_name(item) else { continue };
        let is_told_apart = match used.get_mut(&name) {
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
            // That crate's own way of telling columns apart.
            SelectItem::ExprWithAlias { alias, .. } if alias.value.starts_with("__alias_") => {
                *alias = marked(place, alias.value.trim_start_matches("__alias_"));
            }
            SelectItem::ExprWithAlias { alias, .. } if !is_told_apart => *alias = marked(place, &name),
            SelectItem::UnnamedExpr(expr) => {
                let is_new = seen.insert(expr.to_string());
                if beside_wildcard || !is_told_apart || !is_new {
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

/// A name as it is found: in small letters unless it is quoted.
fn folded(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_lowercase(),
    }
}

/// What Postgres calls a column that nobody named (`FigureColname` of its parser).
fn column_name(expr: &Expr) -> String {
    named(expr).unwrap_or_else(|| "?column?".to_owned())
}

fn named(expr: &Expr) -> Option<String> {
    let of_type = |ty: &DataType| {
        let name = ty.to_string().to_lowercase();
        let name = name.split(['(', ' ']).next().unwrap_or_default();
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
        Expr::Function(call) => call.name.0.last().and_then(|part| part.as_ident()).map(folded),
        Expr::Cast { expr, data_type, .. } => named(expr).or_else(|| of_type(data_type)),
        Expr::TypedString(typed) => of_type(&typed.data_type),
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => named(inner),
        Expr::Case { else_result, .. } => else_result.as_deref().and_then(named).or_else(|| some("case")),
        Expr::Subquery(query) => match query.body.as_select()?.projection.first()? {
            SelectItem::UnnamedExpr(expr) => named(expr),
            SelectItem::ExprWithAlias { alias, .. } => Some(folded(alias)),
            _ => None,
        },
        Expr::Exists { .. } => some("exists"),
        Expr::Array(_) => some("array"),
        Expr::Extract { .. } => some("extract"),
        Expr::AtTimeZone { .. } => some("timezone"),
        Expr::Substring { .. } => some("substring"),
        Expr::Position { .. } => some("position"),
        Expr::Trim { .. } => some("btrim"),
        Expr::Overlay { .. } => some("overlay"),
        Expr::Ceil { .. } => some("ceil"),
        Expr::Floor { .. } => some("floor"),
        Expr::Interval(_) => some("interval"),
        _ => None,
    }
}

fn rewrite(expr: &mut Expr) -> Result<(), String> {
    match expr {
        Expr::BinaryOp { op, .. } => {
            if let BinaryOperator::PGCustomBinaryOperator(name) = op
                && let [.., name] = &name[..]
                && let Some(plain) = plain_operator(name)
            {
                *op = plain;
            }
        }
        Expr::Cast { data_type, .. } if is_text(data_type) => *data_type = DataType::Text,
        Expr::AtTimeZone { timestamp, time_zone } => {
            *expr = call("timezone", vec![(**time_zone).clone(), (**timestamp).clone()]);
        }
        Expr::Function(function) if is_call_of(function, "to_char") => {
            let FunctionArguments::List(list) = &mut function.args else { return Ok(()) };
            match list.args.get_mut(1) {
                Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(value)))) => {
                    match &mut value.value {
                        Value::SingleQuotedString(pattern) => *pattern = to_char::pattern(pattern)?,
                        _ => return Err("to_char wants a pattern that is a constant".to_owned()),
                    }
                }
                Some(_) => return Err("to_char wants a pattern that is a constant".to_owned()),
                None => {}
            }
        }
        _ => {}
    }
    Ok(())
}

fn plain_operator(name: &str) -> Option<BinaryOperator> {
    Some(match name {
        "=" => BinaryOperator::Eq,
        "<>" | "!=" => BinaryOperator::NotEq,
        "<" => BinaryOperator::Lt,
        "<=" => BinaryOperator::LtEq,
        ">" => BinaryOperator::Gt,
        ">=" => BinaryOperator::GtEq,
        "+" => BinaryOperator::Plus,
        "-" => BinaryOperator::Minus,
        "*" => BinaryOperator::Multiply,
        "/" => BinaryOperator::Divide,
        "||" => BinaryOperator::StringConcat,
        _ => return None,
    })
}

/// Types whose values are texts here.
fn is_text(ty: &DataType) -> bool {
    match ty {
        DataType::Uuid | DataType::JSON | DataType::JSONB => true,
        DataType::Custom(name, _) => {
            let last = name.0.last().and_then(|part| part.as_ident());
            let last = last.map(|ident| ident.value.to_lowercase()).unwrap_or_default();
            matches!(last.as_str(), "name" | "char" | "inet" | "cidr" | "citext" | "bpchar" | "xml")
        }
        _ => false,
    }
}

fn is_call_of(function: &Function, name: &str) -> bool {
    let last = function.name.0.last().and_then(|part| part.as_ident());
    last.is_some_and(|ident| ident.value.eq_ignore_ascii_case(name))
}

fn call(name: &str, arguments: Vec<Expr>) -> Expr {
    let argument = |expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(expr));
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: arguments.into_iter().map(argument).collect(),
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// What a setting is set to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum SetTo {
    Constant(String),
    /// What the statement's parameter of that name, `$1` say, is.
    Parameter(String),
}

impl SetTo {
    /// The value.
    ///
    /// # Errors
    /// The parameter has none.
    pub(crate) fn value(&self, values: Option<&ParamValues>) -> Result<String, Failure> {
        let parameter = match self {
            SetTo::Constant(value) => return Ok(value.clone()),
            SetTo::Parameter(parameter) => parameter,
        };
        let value = values.and_then(|values| values.get_placeholders_with_values(parameter).ok());
        match value.map(|value| value.value).filter(|value| !value.is_null()) {
            Some(value) => Ok(value.to_string()),
            None => Err(Failure::new(state::INVALID, format!("set_config: {parameter} is null"))),
        }
    }
}

/// The settings that calls of `set_config` in a statement set: names and values. One for the transaction alone sets nothing, as a
/// transaction here has no settings of its own.
///
/// # Errors
/// They are not constants: which call.
pub(crate) fn set_configs(statement: &Statement) -> Result<Vec<(String, SetTo)>, String> {
    let mut sets = Vec::new();
    if matches!(statement, Statement::Explain { .. }) {
        return Ok(sets);
    }
    let wrong = visit_expressions(statement, |expr| {
        let Expr::Function(function) = expr else { return ControlFlow::Continue(()) };
        if !is_call_of(function, "set_config") {
            return ControlFlow::Continue(());
        }
        let FunctionArguments::List(list) = &function.args else {
            return ControlFlow::Break(expr.to_string());
        };
        let constant = |place: usize| match list.args.get(place) {
            Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(value)))) => match &value.value {
                Value::SingleQuotedString(text) => Some(SetTo::Constant(text.clone())),
                Value::Boolean(value) => Some(SetTo::Constant(value.to_string())),
                Value::Placeholder(parameter) => Some(SetTo::Parameter(parameter.clone())),
                _ => None,
            },
            _ => None,
        };
        let (Some(SetTo::Constant(name)), Some(value), Some(SetTo::Constant(local))) =
            (constant(0), constant(1), constant(2))
        else {
            return ControlFlow::Break(expr.to_string());
        };
        if local == "false" {
            sets.push((name, value));
        }
        ControlFlow::Continue(())
    });
    match wrong {
        ControlFlow::Break(call) => Err(call),
        ControlFlow::Continue(()) => Ok(sets),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        let statements = Dialect::new().parse(text).expect(text);
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
    fn names_that_are_there_are_left_alone() {
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

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let statements = Dialect::new().parse(text).expect(text);
        assert_eq!(statements[0].to_string(), expected);
    }

    #[test]
    fn what_postgres_writes_otherwise_is_rewritten() {
        check(
            "SELECT a AT TIME ZONE 'Asia/Tokyo' AS t FROM k.t WHERE b OPERATOR(pg_catalog.=) '1'::uuid",
            "SELECT timezone('Asia/Tokyo', a) AS t FROM k.t WHERE b = '1'::TEXT",
        );
        check(
            "SELECT s.name FROM (SELECT p.name, o.* FROM p, o) AS s WHERE EXISTS (SELECT count(*) FROM o)",
            "SELECT s.name FROM (SELECT p.name, o.* FROM p, o) AS s WHERE EXISTS (SELECT count(*) AS \"count\" FROM o)",
        );
        check(
            "WITH w AS (SELECT 1 AS n) SELECT (SELECT max(w.n) FROM w) AS m",
            "WITH w AS (SELECT 1 AS n) SELECT (SELECT max(w.n) AS \"max\" FROM w) AS m",
        );
        assert!(Dialect::new().parse("SELECT to_char(a, 'Q') FROM t").is_err());
        assert!(Dialect::new().parse("SELECT to_char(a, b) FROM t").is_err());
        check("SELECT to_char(a, 'YYYY-MM') AS m FROM t", "SELECT to_char(a, '%Y-%m') AS m FROM t");
        check(
            "SELECT (SELECT max(b.x) FROM b WHERE b.y = a.y) AS m FROM a",
            "SELECT (SELECT max(b.x) AS \"max\" FROM b WHERE b.y = a.y) AS m FROM a",
        );
        check(
            "WITH w AS (SELECT count(*) FROM t) SELECT s.sum FROM (SELECT sum(count) FROM w) AS s",
            "WITH w AS (SELECT count(*) AS \"count\" FROM t) SELECT s.sum FROM (SELECT sum(count) AS \"sum\" FROM w) AS s",
        );
    }

    #[test]
    fn what_is_set_by_a_call_is_told() {
        let of = |text: &str| set_configs(&Dialect::new().parse(text).expect(text)[0]);
        let expected = vec![("jit".to_owned(), SetTo::Constant("off".to_owned()))];
        assert_eq!(
            of("SELECT current_setting('jit') AS cur, pg_catalog.set_config('jit', 'off', false) AS new"),
            Ok(expected)
        );
        assert_eq!(of("SELECT set_config('jit', 'off', true)"), Ok(Vec::new()));
        let expected = vec![("jit".to_owned(), SetTo::Parameter("$1".to_owned()))];
        assert_eq!(of("SELECT set_config('jit', $1, false)"), Ok(expected));
        assert!(of("SELECT set_config('jit', name, false)").is_err());
        assert_eq!(of("SELECT 1"), Ok(Vec::new()));
        assert_eq!(of("EXPLAIN SELECT set_config('jit', 'off', false)"), Ok(Vec::new()));
    }
}
