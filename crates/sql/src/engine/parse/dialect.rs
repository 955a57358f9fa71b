//! Parses Postgres' SQL and rewrites it so that DataFusion can plan it. The crate
//! `datafusion-pg-catalog` has rewrite rules for statements of Postgres' clients. This file adds
//! rules that it lacks, and replaces some:
//!
//! - Operators get Postgres' precedence ([`precedence`]).
//! - Columns get Postgres' names ([`column_names`]), and names mean the columns that they mean
//!   there ([`scopes`]).
//! - `AT TIME ZONE` becomes Postgres' function `timezone`. It converts a point in time to local
//!   time, and local time to a point in time.
//! - `OPERATOR(pg_catalog.=)` becomes `=`. Types stored as text here (`uuid`, `json`, `inet`,
//!   `name`) become `TEXT`.
//! - Patterns of `to_char` are translated.
//! - `pg_stat_activity` becomes its definition ([`stat_activity`]).
//! - Expressions with another meaning in DataFusion are rewritten or refused ([`translate`]).
//!
//! The parser of that crate replaces correlated subqueries by NULL, because DataFusion cannot plan
//! those in the catalog queries of clients. Subqueries whose value matters are refused. Statements
//! that read tables are parsed without that rule.

use std::ops::ControlFlow;

use datafusion::common::ParamValues;
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, BinaryOperator, DataType, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, Statement, Value, ValueWithSpan,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion_pg_catalog::sql::PostgresCompatibilityParser;
use datafusion_pg_catalog::sql::rules::{
    CurrentUserVariableToSessionUserFunctionCall, PrependUnqualifiedPgTableName,
    ResolveUnqualifiedIdentifier, RewritePgCatalogOperator, RewriteRegCastToSubquery,
    SqlStatementRewriteRule, StripCallableQualifier, StripCollate,
};
use engine::Guardrails;

use crate::catalog::is_of_postgres;
use crate::engine::parse::syntax::{Columns, call, cast, is_call_of, last_part, with_names};
use crate::engine::parse::text_bounds::parser_work;
use crate::engine::parse::tree::{self, Size};
use crate::engine::parse::{
    catalog_subqueries, column_names, precedence, scopes, set_returning, stat_activity, to_char, translate,
};
use crate::engine::types::checked_text;
use crate::failure::{Failure, state};
use crate::walk;

/// See the head of this file.
pub(crate) struct Dialect {
    /// Parser for statements that read only Postgres' catalog.
    of_catalog: PostgresCompatibilityParser,
    /// Rewrite rules for all other statements.
    of_tables: Vec<Box<dyn SqlStatementRewriteRule>>,
}

impl Dialect {
    pub(crate) fn new() -> Dialect {
        Dialect {
            of_catalog: PostgresCompatibilityParser::new(),
            of_tables: vec![
                Box::new(ResolveUnqualifiedIdentifier),
                Box::new(PrependUnqualifiedPgTableName),
                Box::new(StripCallableQualifier),
                Box::new(CurrentUserVariableToSessionUserFunctionCall),
                Box::new(StripCollate),
                Box::new(RewritePgCatalogOperator),
                Box::new(RewriteRegCastToSubquery::new()),
            ],
        }
    }

    /// Returns the statements of a text, with PostgreSQL's precedence of operators, and without
    /// further rewriting.
    ///
    /// # Errors
    /// The text is not SQL, or too complex.
    pub(crate) fn statements(text: &str) -> Result<Vec<Statement>, Failure> {
        if let Some(excess) = parser_work(text).excess() {
            return Err(Failure::new(state::COMPLEX, excess));
        }
        let parsed = Parser::new(&PostgreSqlDialect {}).try_with_sql(text);
        let mut statements = parsed.and_then(|mut parser| parser.parse_statements()).map_err(syntax)?;
        statements.iter_mut().for_each(precedence::correct);
        Ok(statements)
    }

    /// Returns the statements of a text and their total size. Checks the bounds on their size
    /// right after parsing, before rewriting.
    ///
    /// # Errors
    /// The text is not SQL, or too complex.
    pub(crate) fn parse(
        &self,
        text: &str,
        guardrails: &Guardrails,
        columns: Columns,
    ) -> Result<Parsed, Failure> {
        let (mut statements, mut size) = (Dialect::statements(text)?, Size::default());
        statements.iter_mut().for_each(stat_activity::define);
        let of_catalog = statements.iter().any(reads_catalog_only);
        for statement in &mut statements {
            // The catalog's parser parses the text again, so flattening would have no effect.
            if !of_catalog {
                tree::flatten(statement);
            }
            let of_statement = tree::size(statement);
            of_statement.check(guardrails)?;
            size.nodes += of_statement.nodes;
            size.depth = size.depth.max(of_statement.depth);
        }
        let mut changed = None;
        if of_catalog {
            let mut is_changed = false;
            for statement in &mut statements {
                is_changed |= catalog_subqueries::prepare(statement)?;
            }
            let texts = || statements.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            changed = is_changed.then(texts);
        }
        let (statements, rules) = match of_catalog {
            true => (self.of_catalog.parse(changed.as_deref().unwrap_or(text)).map_err(syntax)?, &[][..]),
            false => (statements, &self.of_tables[..]),
        };
        let rewritten = |mut statement: Statement| {
            if of_catalog {
                precedence::correct(&mut statement);
            }
            set_returning::name_columns(&mut statement);
            column_names::name_columns(&mut statement);
            scopes::resolve(&mut statement, columns)?;
            statement = rules.iter().fold(statement, |statement, rule| rule.rewrite(statement));
            translate::translate(&mut statement)?;
            let mut result = Ok(());
            let _ = walk::expressions_mut(&mut statement, &mut |expression| {
                result = rewrite(expression);
                walk::while_ok(&result)
            });
            result.map(|()| statement).map_err(|error| syntax(ParserError::ParserError(error)))
        };
        let statements: Result<Vec<Statement>, Failure> = statements.into_iter().map(rewritten).collect();
        Ok(Parsed { statements: statements?, size, of_catalog })
    }
}

/// Rewritten statements of a text.
pub(crate) struct Parsed {
    pub(crate) statements: Vec<Statement>,
    /// Total size.
    pub(crate) size: Size,
    /// A statement reads only Postgres' catalog.
    pub(crate) of_catalog: bool,
}

fn syntax(error: ParserError) -> Failure {
    Failure::from(DataFusionError::from(error))
}

/// True if a text has a statement that reads only Postgres' catalog. A text that is not SQL counts
/// if it names a schema of the catalog.
pub(crate) fn reads_catalog(text: &str) -> bool {
    // Other statements, which may be large, are not parsed again.
    let lower = text.to_lowercase();
    if !lower.contains("pg_") && !lower.contains("information_schema") {
        return false;
    }
    match Dialect::statements(text) {
        Ok(statements) => statements.iter().any(reads_catalog_only),
        Err(_) => ["pg_catalog.", "information_schema."].iter().any(|schema| lower.contains(schema)),
    }
}

/// Longest text that is parsed to find out if it reads only the server's own tables, bytes: it is
/// parsed on the fast lane, in about 50 µs.
const OF_SERVER_BYTES_MAX: usize = 2 << 10;

/// Longest text of a statement by which drivers read the catalog when they connect, bytes. That of
/// Npgsql, which loads all types, has 4 KB.
const OF_DRIVERS_BYTES_MAX: usize = 8 << 10;

/// True if a short text is one statement that reads the server's own tables and no other ones:
/// those of Postgres' catalog, and of the server's keyspaces.
pub(crate) fn reads_server_only(text: &str) -> bool {
    let is_short = text.len() <= OF_SERVER_BYTES_MAX;
    // Most other texts are not parsed.
    let lower = if is_short { text.to_lowercase() } else { String::new() };
    if !["pg_", "information_schema", "system"].iter().any(|word| lower.contains(word)) {
        return false;
    }
    match Dialect::statements(text).as_deref() {
        Ok([statement]) => {
            reads_only(statement, |schema| is_of_postgres(schema) || engine::is_of_server(schema))
        }
        _ => false,
    }
}

/// True if a short text is one statement as drivers run when they connect: it reads Postgres'
/// catalog and no other table, or no table and calls only functions without arguments.
pub(crate) fn is_of_drivers(text: &str) -> bool {
    if text.len() > OF_DRIVERS_BYTES_MAX {
        return false;
    }
    match Dialect::statements(text).as_deref() {
        Ok([statement @ Statement::Query(_)]) => {
            let reads_none = walk::relations(statement, &mut |_| ControlFlow::Break(())).is_continue();
            let has_arguments = text.split('(').skip(1).any(|rest| !rest.trim_start().starts_with(')'));
            if reads_none { !has_arguments } else { reads_catalog_only(statement) }
        }
        _ => false,
    }
}

/// Functions that return rows, which the parser treats as tables.
const FUNCTIONS: [&str; 3] = ["generate_series", "string_to_array", "unnest"];

/// True if a statement reads Postgres' catalog and no other table.
fn reads_catalog_only(statement: &Statement) -> bool {
    reads_only(statement, is_of_postgres)
}

/// True if a statement reads tables, and all of them are in schemas for which `is_asked` is true.
/// Names that begin with `pg_` are in Postgres' catalog.
fn reads_only(statement: &Statement, is_asked: impl Fn(&str) -> bool) -> bool {
    let with_names = with_names(statement);
    let mut any = false;
    let others = walk::relations(statement, &mut |name| {
        let parts: Vec<String> = name
            .0
            .iter()
            .filter_map(|part| part.as_ident())
            .map(|ident| ident.value.to_lowercase())
            .collect();
        let (last, schema) = (parts.last().cloned().unwrap_or_default(), parts.iter().rev().nth(1));
        let is_one = match schema {
            Some(schema) => is_asked(schema),
            None => last.starts_with("pg_"),
        };
        any |= is_one;
        let is_neither =
            schema.is_none() && (with_names.contains(&last) || FUNCTIONS.contains(&last.as_str()));
        if is_one || is_neither { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    any && others.is_continue()
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
        Expr::Cast { data_type, .. } => {
            let element = without_length(data_type);
            if is_text(element) {
                let ty = std::mem::replace(element, DataType::Text).to_string();
                if let Some(check) = checked_text::checked_by(&ty) {
                    let text = std::mem::replace(expr, Expr::value(Value::Null));
                    *expr = call(check, vec![text]);
                }
            }
        }
        Expr::TypedString(typed) if is_text(&typed.data_type) => {
            *expr = cast(Expr::Value(typed.value.clone()), typed.data_type.clone());
            rewrite(expr)?;
        }
        Expr::AtTimeZone { timestamp, time_zone } => {
            *expr = call("timezone", vec![(**time_zone).clone(), (**timestamp).clone()]);
        }
        Expr::Function(function) if is_call_of(function, "to_char") => translate_pattern(function)?,
        _ => {}
    }
    Ok(())
}

fn translate_pattern(function: &mut Function) -> Result<(), String> {
    let FunctionArguments::List(list) = &mut function.args else { return Ok(()) };
    match list.args.get_mut(1) {
        None => {}
        Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(ValueWithSpan {
            value: Value::SingleQuotedString(pattern),
            ..
        })))) => *pattern = to_char::pattern(pattern)?,
        Some(_) => return Err("to_char wants a pattern that is a constant".to_owned()),
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

/// True for types whose values are stored as text here.
fn is_text(ty: &DataType) -> bool {
    match ty {
        DataType::Uuid | DataType::JSON | DataType::JSONB => true,
        DataType::Custom(name, _) => {
            let last = last_part(name).map(|ident| ident.value.to_lowercase()).unwrap_or_default();
            matches!(last.as_str(), "name" | "char" | "inet" | "cidr" | "citext" | "bpchar" | "xml")
        }
        _ => false,
    }
}

/// Removes the declared length from an array type, and returns the type of its elements. PostgreSQL
/// ignores the length, and DataFusion would allocate memory for that number of elements.
fn without_length(mut ty: &mut DataType) -> &mut DataType {
    while let DataType::Array(ArrayElemTypeDef::SquareBracket(element, length)) = ty {
        *length = None;
        ty = element;
    }
    ty
}

/// New value of a setting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum SetTo {
    Constant(String),
    /// Name of a parameter of the statement, such as `$1`.
    Parameter(String),
}

impl SetTo {
    /// Returns the value.
    ///
    /// # Errors
    /// The parameter has no value, or is null.
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

/// Returns names and values of the settings that calls of `set_config` in a statement set. Calls
/// with `is_local` are ignored, because transactions have no settings here.
///
/// # Errors
/// The call whose arguments are not constants.
pub(crate) fn set_configs(statement: &Statement) -> Result<Vec<(String, SetTo)>, String> {
    let mut sets = Vec::new();
    if matches!(statement, Statement::Explain { .. }) {
        return Ok(sets);
    }
    let mut invalid = None;
    let _ = walk::expressions(statement, &mut |expr| {
        let Expr::Function(function) = expr else { return ControlFlow::Continue(()) };
        if !is_call_of(function, "set_config") {
            return ControlFlow::Continue(());
        }
        let FunctionArguments::List(list) = &function.args else {
            invalid = Some(expr.to_string());
            return ControlFlow::Break(());
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
            invalid = Some(expr.to_string());
            return ControlFlow::Break(());
        };
        if local == "false" {
            sets.push((name, value));
        }
        ControlFlow::Continue(())
    });
    invalid.map_or(Ok(sets), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<Statement>, Failure> {
        Ok(Dialect::new().parse(text, &Guardrails::default(), &|_| None)?.statements)
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let statements = parsed(text).expect(text);
        assert_eq!(statements[0].to_string(), expected);
    }

    #[test]
    fn reads_of_the_servers_own_tables_are_known_by_their_text() {
        for text in [
            "SELECT * FROM system.level_usage",
            "SELECT u.shed FROM System.level_usage u JOIN system_views.clients USING (a)",
            "WITH c AS (SELECT oid FROM pg_class) SELECT * FROM c, system.connections",
            "SELECT * FROM information_schema.tables",
        ] {
            assert!(reads_server_only(text), "{text}");
        }
        for text in [
            "SELECT 1",
            "SELECT 'system.local'",
            "SELECT * FROM k.t",
            "SELECT * FROM k.system",
            "SELECT * FROM system.local, k.t",
            "SELECT * FROM system.local WHERE key IN (SELECT k FROM k.t)",
            "SELECT * FROM system.local; SELECT * FROM system.local",
            "no SQL of system",
            &format!("SELECT {} FROM system.local", "1, ".repeat(1000) + "1"),
        ] {
            assert!(!reads_server_only(text), "{text}");
        }
    }

    #[test]
    fn statements_of_drivers_are_known_by_their_text() {
        for text in [
            "SELECT 1",
            "select pg_catalog.version()",
            "SELECT current_schema(), current_user",
            "SELECT t.oid FROM pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace",
        ] {
            assert!(is_of_drivers(text), "{text}");
        }
        for text in [
            "SELECT repeat('x', 1000000000)",
            "SELECT generate_series(1, 1000000000)",
            "SELECT * FROM generate_series(1, 1000000000)",
            "SELECT * FROM k.t",
            "SELECT * FROM system.level_usage",
            "SELECT oid FROM pg_type, k.t",
            "SELECT 1; SELECT 2",
            "INSERT INTO k.t VALUES (1)",
        ] {
            assert!(!is_of_drivers(text), "{text}");
        }
    }

    #[test]
    fn syntax_of_postgres_is_rewritten() {
        check(
            "SELECT a AT TIME ZONE 'Asia/Tokyo' AS t FROM k.t WHERE b OPERATOR(pg_catalog.=) '1'::uuid",
            "SELECT timezone('Asia/Tokyo', a) AS t FROM k.t WHERE b = uuid('1'::TEXT)",
        );
        check(
            "SELECT s.name FROM (SELECT p.name, o.* FROM p, o) AS s WHERE EXISTS (SELECT count(*) FROM o)",
            "SELECT s.name FROM (SELECT p.name, o.* FROM p, o) AS s WHERE EXISTS (SELECT count(*) AS \"count\" FROM o)",
        );
        check(
            "WITH w AS (SELECT 1 AS n) SELECT (SELECT max(w.n) FROM w) AS m",
            "WITH w AS (SELECT 1 AS n) SELECT (SELECT max(w.n) AS \"max\" FROM w) AS m",
        );
        check("SELECT a::int[2000000000][3] AS b FROM t", "SELECT a::INT[][] AS b FROM t");
        assert!(parsed("SELECT to_char(a, 'Q') FROM t").is_err());
        assert!(parsed("SELECT to_char(a, b) FROM t").is_err());
        check("SELECT to_char(a, 'YYYY-MM') AS m FROM t", "SELECT to_char(a, '%Y-%m') AS m FROM t");
        check(
            "SELECT (SELECT max(b.x) FROM b WHERE b.y = a.y) AS m FROM a",
            "SELECT (SELECT max(b.x) AS \"max\" FROM b WHERE b.y = a.y) AS m FROM a",
        );
        check(
            "WITH w AS (SELECT count(*) FROM t) SELECT s.sum FROM (SELECT sum(count) FROM w) AS s",
            "WITH w AS (SELECT count(*) AS \"count\" FROM t) \
             SELECT s.sum FROM (SELECT sum(count) AS \"sum\" FROM w) AS s",
        );
    }

    #[test]
    fn deep_and_large_statements_are_too_complex() {
        let check = |what: &str, text: &str| {
            let failure = parsed(text).expect_err(what);
            assert_eq!(failure.code, state::COMPLEX, "{what}: {failure}");
        };
        check("sums", &format!("SELECT {}", vec!["a"; 2_000].join(" + ")));
        check("conditions", &format!("SELECT 1 WHERE {}", vec!["a > b"; 2_000].join(" OR ")));
        check("casts", &format!("SELECT 1{}", "::int".repeat(2_000)));
        check(
            "a chain without end, with an error behind it",
            &format!("SELECT {} )", vec!["1"; 50_000].join("+")),
        );
        check("set operations", &vec!["SELECT 1"; 2_000].join(" EXCEPT "));
        check("unions", &vec!["SELECT 1"; 7_000].join(" UNION ALL "));
        check("nested calls", &format!("SELECT {}1{}", "f(".repeat(40), ")".repeat(40)));
        let names = vec!["relname = 'a'"; 2_000].join(" OR ");
        check("of the catalog", &format!("SELECT 1 FROM pg_catalog.pg_class WHERE {names}"));
        for text in [
            format!("SELECT 1 WHERE {}", vec!["1 = 2"; 2_000].join(" OR ")),
            vec!["SELECT 1"; 1_000].join(" UNION ALL "),
            format!("SELECT {}", vec!["a"; 300].join(" || ")),
        ] {
            assert!(parsed(&text).is_ok(), "{}", &text[..40]);
        }
    }

    #[test]
    fn settings_of_set_config_calls_are_returned() {
        let of = |text: &str| set_configs(&parsed(text).expect(text)[0]);
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
