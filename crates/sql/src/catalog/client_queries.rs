//! Statements of known clients over the catalog that DataFusion cannot plan, with statements that
//! it can. The folder `clients` has a file for each client, in this format:
//!
//! ```text
//! -- query: \d+, of the relation itself     begins an entry
//! -- note: there are no options             for the reader
//! -- selects: c.relchecks, c.relkind        these are selected, under these aliases if any
//! -- column: Column privileges              a selected column has this alias
//! -- has: tc.reloptions                     this expression occurs
//! -- not like: n.nspname                    `n.nspname NOT LIKE …` occurs
//! -- compares: n.nspname                    WHERE compares it with a constant
//! -- reads: typeinfo_tree                   a table or a WITH query of this name is read
//! -- calls: _pg_expandarray                 a function of this name is called, in any schema
//! -- condition: c.oid => t.oid              comparisons of `c.oid` in WHERE are kept, for `t.oid`
//! -- parameters: 1028                       Postgres' ids of parameter types, if required
//! SELECT … WHERE $conditions;               the replacement
//! ```
//!
//! An entry is for a statement that has all of its features. They are searched for in the parsed
//! statement, at any depth. Blanks, comments and the case of keywords do not matter, and texts
//! inside of constants are not mistaken for SQL.

use std::ops::ControlFlow;
use std::sync::LazyLock;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, ObjectName, Select, SelectItem, SetExpr, Statement, Value, Visitor,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};

use crate::walk;

/// Files of the clients. If a statement has the features of several entries, the first one counts.
const FILES: [&str; 8] = [
    include_str!("../../clients/pgjdbc.sql"),
    include_str!("../../clients/psycopg.sql"),
    include_str!("../../clients/npgsql.sql"),
    include_str!("../../clients/asyncpg.sql"),
    include_str!("../../clients/metabase.sql"),
    include_str!("../../clients/psqlodbc.sql"),
    include_str!("../../clients/sqlalchemy.sql"),
    include_str!("../../clients/psql.sql"),
];
/// Stands for the kept conditions in a replacement.
const CONDITIONS: &str = "$conditions";

static QUERIES: LazyLock<Vec<ClientQuery>> = LazyLock::new(|| {
    FILES.iter().flat_map(|file| entries(file).expect("a test parses the files of the clients")).collect()
});

/// A statement of a client. See the head of this file.
#[derive(Debug, Default)]
struct ClientQuery {
    features: Vec<Feature>,
    /// Expressions of the client's statement, each with one of the replacement.
    conditions: Vec<(Expr, Expr)>,
    parameters: Vec<u32>,
    replacement: String,
}

/// A feature by which a statement is recognized.
#[derive(Debug)]
enum Feature {
    Selects(Box<SelectItem>),
    Column(String),
    Has(Expr),
    NotLike(Expr),
    Compares(Expr),
    Reads(String),
    Calls(String),
}

/// Replacement of a client's statement.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Replacement {
    pub(crate) text: String,
    /// Number of parameters of the client's statement. The replacement may not use all.
    pub(crate) parameters: usize,
    /// Their types, if the client requires them.
    pub(crate) types: &'static [u32],
}

/// Returns the replacement of a statement, if it is one of a known client.
pub(crate) fn answer(statement: &Statement) -> Option<Replacement> {
    let comparisons = comparisons(statement);
    let query = QUERIES.iter().find(|query| query.is(statement, &comparisons))?;
    let mut conditions: Vec<String> = Vec::new();
    for (theirs, ours) in &query.conditions {
        for comparison in comparisons.iter().filter(|comparison| comparison.of == *theirs) {
            let condition = comparison.with(ours).to_string();
            if !conditions.contains(&condition) {
                conditions.push(condition);
            }
        }
    }
    if conditions.is_empty() {
        conditions.push("true".to_owned());
    }
    let text = query.replacement.replace(CONDITIONS, &conditions.join(" AND "));
    Some(Replacement { text, parameters: parameters(statement), types: &query.parameters })
}

impl ClientQuery {
    /// Returns true if a statement has all features.
    fn is(&self, statement: &Statement, comparisons: &[Comparison]) -> bool {
        let mut search = Search { left: self.features.iter().collect() };
        search.left.retain(|feature| match feature {
            Feature::Compares(expr) => comparisons.iter().all(|comparison| comparison.of != *expr),
            _ => true,
        });
        let _ = walk::walk(statement, &mut search);
        search.left.is_empty()
    }

    /// Adds a line of its head.
    fn add(&mut self, key: &str, value: &str) -> Result<(), ParserError> {
        match key {
            "note" => {}
            "selects" => {
                let items = selected(value)?.into_iter().map(Box::new);
                self.features.extend(items.map(Feature::Selects));
            }
            "column" => self.features.push(Feature::Column(value.to_owned())),
            "has" => self.features.push(Feature::Has(expression(value)?)),
            "not like" => self.features.push(Feature::NotLike(expression(value)?)),
            "compares" => self.features.push(Feature::Compares(expression(value)?)),
            "reads" => self.features.push(Feature::Reads(value.to_owned())),
            "calls" => self.features.push(Feature::Calls(value.to_owned())),
            "condition" => {
                let (theirs, ours) = value.split_once(" => ").ok_or_else(|| unknown(value))?;
                self.conditions.push((expression(theirs)?, expression(ours)?));
            }
            "parameters" => {
                let ids: Result<Vec<u32>, _> = value.split(", ").map(str::parse).collect();
                self.parameters = ids.map_err(|_| unknown(value))?;
            }
            _ => return Err(unknown(key)),
        }
        Ok(())
    }
}

/// Returns the entries of a client's file.
fn entries(file: &str) -> Result<Vec<ClientQuery>, ParserError> {
    let mut entries: Vec<ClientQuery> = Vec::new();
    for line in file.lines() {
        let head = line.strip_prefix("-- ");
        if head.is_some_and(|head| head.starts_with("query: ")) {
            entries.push(ClientQuery::default());
            continue;
        }
        // The file has a head of its own, before the first entry.
        let Some(entry) = entries.last_mut() else { continue };
        match head {
            Some(head) => {
                let (key, value) = head.split_once(": ").ok_or_else(|| unknown(head))?;
                entry.add(key, value)?;
            }
            None => {
                entry.replacement.push_str(line.trim_end_matches(';'));
                entry.replacement.push(' ');
            }
        }
    }
    Ok(entries)
}

fn unknown(text: &str) -> ParserError {
    ParserError::ParserError(format!("expected a line of an entry, got `{text}`"))
}

fn expression(text: &str) -> Result<Expr, ParserError> {
    Parser::new(&PostgreSqlDialect {}).try_with_sql(text)?.parse_expr()
}

/// Parses the columns of a SELECT.
fn selected(text: &str) -> Result<Vec<SelectItem>, ParserError> {
    let query = Parser::new(&PostgreSqlDialect {}).try_with_sql(&format!("SELECT {text}"))?.parse_query()?;
    match *query.body {
        SetExpr::Select(select) => Ok(select.projection),
        _ => Err(unknown(text)),
    }
}

/// Search for the features of an entry.
struct Search<'a> {
    /// Features not found yet.
    left: Vec<&'a Feature>,
}

impl Visitor for Search<'_> {
    type Break = ();

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        self.left.retain(|feature| match feature {
            Feature::Selects(item) => !select.projection.contains(&**item),
            Feature::Column(name) => !select.projection.iter().any(|item| {
                matches!(item, SelectItem::ExprWithAlias { alias, .. } if alias.value.eq_ignore_ascii_case(name))
            }),
            _ => true,
        });
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
        self.left.retain(|feature| match feature {
            Feature::Reads(name) | Feature::Calls(name) => !ends_with(relation, name),
            _ => true,
        });
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        self.left.retain(|feature| match (feature, expr) {
            (Feature::Has(wanted), expr) => expr != wanted,
            (Feature::NotLike(wanted), Expr::Like { negated: true, expr, .. }) => **expr != *wanted,
            (Feature::Calls(name), Expr::Function(function)) => !ends_with(&function.name, name),
            _ => true,
        });
        match self.left.is_empty() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

/// True if the last part of a name is `last`.
fn ends_with(name: &ObjectName, last: &str) -> bool {
    let ident = name.0.last().and_then(|part| part.as_ident());
    ident.is_some_and(|ident| ident.value.eq_ignore_ascii_case(last))
}

/// A comparison of an expression with a constant, which all rows of a SELECT meet.
struct Comparison {
    of: Expr,
    condition: Expr,
}

impl Comparison {
    /// Returns the comparison of a condition. `None` if it is another one.
    fn of(condition: &Expr) -> Option<Comparison> {
        let (of, is_constant) = match condition {
            Expr::BinaryOp { left, op, right } if comparison_operator(op).is_some() => {
                (left, is_constant(right))
            }
            Expr::InList { expr, list, negated: false } => (expr, list.iter().all(is_constant)),
            Expr::Like { negated: false, any: false, expr, pattern, .. } => (expr, is_constant(pattern)),
            _ => return None,
        };
        is_constant.then(|| Comparison { of: (**of).clone(), condition: condition.clone() })
    }

    /// Returns the comparison of another expression.
    fn with(&self, ours: &Expr) -> Expr {
        let mut condition = self.condition.clone();
        match &mut condition {
            Expr::BinaryOp { left, op, right } => {
                **left = ours.clone();
                *op = comparison_operator(op).unwrap_or_else(|| op.clone());
                if let Expr::Collate { expr, .. } = &**right {
                    *right = expr.clone();
                }
            }
            Expr::InList { expr, .. } | Expr::Like { expr, .. } => **expr = ours.clone(),
            _ => {}
        }
        condition
    }
}

/// Returns the plain operator of a comparison that is kept. `None` for other operators.
fn comparison_operator(op: &BinaryOperator) -> Option<BinaryOperator> {
    match op {
        BinaryOperator::Eq | BinaryOperator::PGRegexMatch => Some(op.clone()),
        BinaryOperator::PGCustomBinaryOperator(name) => match name.last()?.as_str() {
            "=" => Some(BinaryOperator::Eq),
            "~" => Some(BinaryOperator::PGRegexMatch),
            _ => None,
        },
        _ => None,
    }
}

/// True for literals, parameters, and casts of them.
fn is_constant(mut expr: &Expr) -> bool {
    loop {
        expr = match expr {
            Expr::Cast { expr, .. }
            | Expr::Nested(expr)
            | Expr::UnaryOp { expr, .. }
            | Expr::Collate { expr, .. } => expr,
            Expr::Value(_) | Expr::TypedString(_) => return true,
            _ => return false,
        };
    }
}

/// Returns the comparisons that the WHERE clauses of a statement connect by AND.
fn comparisons(statement: &Statement) -> Vec<Comparison> {
    struct Comparisons(Vec<Comparison>);
    impl Visitor for Comparisons {
        type Break = ();

        fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
            // A stack instead of recursion: a chain of AND may be long.
            let mut left: Vec<&Expr> = select.selection.iter().collect();
            while let Some(expr) = left.pop() {
                match expr {
                    Expr::Nested(expr) | Expr::Collate { expr, .. } => left.push(expr),
                    Expr::BinaryOp { left: one, op: BinaryOperator::And, right: other } => {
                        left.extend([&**other, &**one]);
                    }
                    expr => self.0.extend(Comparison::of(expr)),
                }
            }
            ControlFlow::Continue(())
        }
    }
    let mut found = Comparisons(Vec::new());
    let _ = walk::walk(statement, &mut found);
    found.0
}

/// Returns the number of the last parameter, or 0 if there is none.
fn parameters(statement: &Statement) -> usize {
    let mut last = 0;
    let _ = walk::expressions(statement, &mut |expr| {
        if let Expr::Value(value) = expr
            && let Value::Placeholder(name) = &value.value
            && let Some(Ok(number)) = name.strip_prefix('$').map(str::parse::<u16>)
        {
            last = last.max(usize::from(number));
        }
        ControlFlow::Continue(())
    });
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Statement {
        let parser = Parser::new(&PostgreSqlDialect {}).try_with_sql(text);
        parser.and_then(|mut parser| parser.parse_statement()).expect(text)
    }

    #[test]
    fn files_of_clients_are_entries_with_one_statement_each() {
        for file in FILES {
            let entries = entries(file).expect("entries");
            assert!(!entries.is_empty(), "{file}");
            for entry in entries {
                assert!(!entry.features.is_empty(), "{entry:?}");
                parsed(&entry.replacement);
                let has_place = entry.replacement.contains(CONDITIONS);
                assert_eq!(has_place, !entry.conditions.is_empty(), "{entry:?}");
            }
        }
    }

    #[test]
    fn replacement_keeps_conditions_of_the_statement() {
        let asked = "SELECT 1 as KEY_SEQ, /* key */ ci.relname\n AS PK_NAME FROM pg_catalog.pg_class ct WHERE true  \
                     AND n.nspname = 'it''s' AND (ct.relname LIKE 'o%') AND ct.relname = ci.relname AND i.indisprimary";
        let answer = answer(&parsed(asked)).map(|answer| answer.text).unwrap_or_default();
        assert!(answer.contains("WHERE schema = 'it''s' AND relation LIKE 'o%' ORDER BY"), "{answer}");
    }

    #[test]
    fn parameters_stay_and_are_counted() {
        let asked = "SELECT attr.x AS indnullsnotdistinct FROM (SELECT con.conrelid AS conrelid, \
                     unnest(pg_catalog.pg_index.indkey) AS attnum, generate_subscripts(x, $1::INTEGER) FROM con \
                     WHERE pg_catalog.pg_constraint.contype = $3::VARCHAR AND con.conrelid IN ($4, $12)) AS attr";
        let Some(Replacement { text, parameters, .. }) = answer(&parsed(asked)) else {
            panic!("it is known")
        };
        assert!(text.contains("WHERE c.oid IN ($4, $12) AND k.contype = $3::VARCHAR GROUP BY"), "{text}");
        assert_eq!(parameters, 12);
    }

    #[test]
    fn operators_of_psql_become_plain() {
        let asked = "SELECT n.nspacl, pg_catalog.obj_description(n.oid, 'pg_namespace') FROM pg_catalog.pg_namespace n \
                     WHERE n.nspname !~ '^pg_' AND n.nspname OPERATOR(pg_catalog.~) '^(shop)$' \
                     COLLATE pg_catalog.default";
        let answer = answer(&parsed(asked)).map(|answer| answer.text).unwrap_or_default();
        assert!(answer.contains("AND n.nspname ~ '^(shop)$' ORDER BY"), "{answer}");
    }

    #[test]
    fn statement_without_conditions_keeps_all_rows() {
        let types = "SELECT typinput='pg_catalog.array_in'::regproc as is_array, typtype, typname, pg_type.oid \
                     FROM pg_catalog.pg_type";
        for (filter, expected) in [("", "true"), (" WHERE pg_type.oid = $1", "oid = $1")] {
            let answer = answer(&parsed(&format!("{types}{filter}"))).map(|answer| answer.text);
            let answer = answer.unwrap_or_default();
            assert!(answer.contains(&format!("WHERE {expected} ORDER BY")), "{answer}");
        }
    }

    #[test]
    fn other_statements_are_not_replaced() {
        for text in [
            "SELECT 1",
            "SELECT * FROM pg_catalog.pg_class",
            // Texts of a client inside of constants and comments.
            "SELECT 'AS KEY_SEQ, ci.relname AS PK_NAME', 'AND i.indisprimary' FROM pg_class",
            "SELECT 1 /* n.nspacl, pg_catalog.obj_description(n.oid, 'pg_namespace') */ FROM pg_class",
            // A lookup of one schema, not the list of schemas.
            "SELECT pg_catalog.pg_namespace.nspname FROM pg_catalog.pg_namespace \
             WHERE pg_catalog.pg_namespace.nspname = 'shop'",
        ] {
            assert_eq!(answer(&parsed(text)), None, "{text}");
        }
    }
}
