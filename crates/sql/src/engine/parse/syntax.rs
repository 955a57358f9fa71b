//! Parts of sqlparser's syntax trees: names, calls, and the expressions of one query.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList,
    FunctionArguments, Ident, ObjectName, Query, Statement, Value, ValueWithSpan, VisitMut, Visitor,
    VisitorMut,
};

use crate::walk;

/// Returns the columns of a table. `None`: there is no such table.
pub(crate) type Columns<'a> = &'a dyn Fn(&ObjectName) -> Option<Vec<String>>;

/// Returns the names of all `WITH` queries in a statement, in lower case.
pub(crate) fn with_names(statement: &Statement) -> HashSet<String> {
    let mut names = WithNames::default();
    let _ = walk::walk(statement, &mut names);
    names.0
}

/// Names of all `WITH` queries in a statement.
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

/// Returns the last part of a qualified name.
pub(crate) fn last_part(name: &ObjectName) -> Option<&Ident> {
    name.0.last().and_then(|part| part.as_ident())
}

/// Returns true for a call of the function `name`.
pub(crate) fn is_call_of(function: &Function, name: &str) -> bool {
    last_part(&function.name).is_some_and(|ident| ident.value.eq_ignore_ascii_case(name))
}

/// Returns a qualified name.
pub(crate) fn of_names(names: &[&str]) -> ObjectName {
    ObjectName::from(names.iter().map(|name| Ident::new(*name)).collect::<Vec<_>>())
}

/// Returns a call.
pub(crate) fn call(name: &str, arguments: Vec<Expr>) -> Expr {
    let argument = |expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(expr));
    Expr::Function(Function {
        name: of_names(&[name]),
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

/// Returns a number.
pub(crate) fn number(digits: &str) -> Expr {
    Expr::Value(Value::Number(digits.to_owned(), false).with_empty_span())
}

/// Returns a text.
pub(crate) fn text(text: String) -> Expr {
    Expr::Value(Value::SingleQuotedString(text).with_empty_span())
}

/// Returns the text of a constant.
pub(crate) fn constant_text(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(ValueWithSpan { value, .. }) => match value {
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => Some(text),
            Value::DollarQuotedString(text) => Some(&text.value),
            _ => None,
        },
        _ => None,
    }
}

/// Returns a cast.
pub(crate) fn cast(expr: Expr, data_type: DataType) -> Expr {
    Expr::Cast { kind: CastKind::Cast, expr: Box::new(expr), data_type, array: false, format: None }
}

/// Returns a truth value that is null.
pub(crate) fn null_truth() -> Expr {
    cast(Expr::Value(Value::Null.with_empty_span()), DataType::Boolean)
}

/// Returns an operator with both its sides.
pub(crate) fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }
}

/// Returns an expression in parentheses.
pub(crate) fn nested(expr: Expr) -> Expr {
    Expr::Nested(Box::new(expr))
}

/// Returns an identifier's name: in lower case unless it is quoted.
pub(crate) fn folded(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_lowercase(),
    }
}

/// Visits the expressions of one query, those of its subqueries left out.
pub(crate) fn own_expressions(tree: &mut impl VisitMut, visit: &mut dyn FnMut(&mut Expr)) {
    struct Own<'a> {
        depth: u32,
        visit: &'a mut dyn FnMut(&mut Expr),
    }
    impl VisitorMut for Own<'_> {
        type Break = ();

        fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
            self.depth += 1;
            ControlFlow::Continue(())
        }

        fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
            self.depth -= 1;
            ControlFlow::Continue(())
        }

        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            if self.depth == 0 {
                (self.visit)(expr);
            }
            ControlFlow::Continue(())
        }
    }
    let _ = walk::walk_mut(tree, &mut Own { depth: 0, visit });
}
