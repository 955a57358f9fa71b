//! Rewrites PostgreSQL syntax that DataFusion plans with another meaning: to syntax that it plans
//! as PostgreSQL does, or else refuses it. A wrong answer is worse than an error.
//!
//! - Refused: `TABLESAMPLE`, `FOR UPDATE`, `INTERSECT ALL`, `EXCEPT ALL`, `timestamp(3)`,
//!   hexadecimal constants, `FETCH … WITH TIES`.
//! - Subscripts and comparisons of arrays are completed ([`array_syntax`]). A series in a select
//!   list gives rows ([`set_returning`]).
//! - `SIMILAR TO` becomes a regular expression, `LIKE … ESCAPE` a pattern with backslashes. Both
//!   need constant patterns.
//! - `varchar(n)` and `char(n)` truncate texts. Rows are compared field by field.
//! - `numeric` without precision gets a fixed precision, `timestamp` microseconds, `extract` a
//!   function of its own.

mod calls;
mod casts;
mod patterns;
mod rows;

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DataType, Expr, Fetch, Function, Interval, LimitClause, NamedWindowExpr, Query, Select,
    SetExpr, SetOperator, SetQuantifier, Statement, TableFactor, UnaryOperator, Value, ValueWithSpan,
    VisitorMut, WindowType,
};

use crate::engine::limits::planning::{self, NODES_MAX};
use crate::engine::parse::syntax::{call, constant_text, number, text};
use crate::engine::parse::{array_syntax, set_returning, window_frames};
use crate::engine::types::exact::{SERIES_OF_DATES, plain_interval};
use crate::failure::{Failure, state, unsupported};
use crate::walk;

/// Rewrites a statement.
///
/// # Errors
/// It contains refused syntax.
pub(crate) fn translate(statement: &mut Statement) -> Result<(), Failure> {
    let mut translate = Translate { result: Ok(()), copied: 0 };
    let _ = walk::walk_mut(statement, &mut translate);
    translate.result
}

struct Translate {
    /// The first error ends the walk.
    result: Result<(), Failure>,
    /// Nodes that were copied. Nested comparisons of rows would multiply them.
    copied: u64,
}

impl Translate {
    /// Counts the copies that comparing rows makes.
    ///
    /// # Errors
    /// 54001 beyond [`NODES_MAX`] nodes in the statement.
    fn count_copies(&mut self, expr: &Expr) -> Result<(), Failure> {
        let Expr::BinaryOp { left, op, right } = expr else { return Ok(()) };
        let is_strict = !matches!(op, BinaryOperator::Eq | BinaryOperator::NotEq);
        if is_strict && rows::row(left).is_some() && rows::row(right).is_some() {
            self.copied = self.copied.saturating_add(planning::written_nodes(expr));
        }
        if self.copied <= NODES_MAX {
            return Ok(());
        }
        Err(Failure::too_complex("its comparisons of rows contain each other too often"))
    }

    fn go_on(&mut self, result: Result<(), Failure>) -> ControlFlow<()> {
        self.result = result;
        walk::while_ok(&self.result)
    }
}

impl VisitorMut for Translate {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.go_on(set(&query.body).and_then(|()| lock(query)).and_then(|()| fetch(query)))
    }

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        let sampled = match table {
            TableFactor::Table { sample, .. } | TableFactor::Derived { sample, .. } => sample.is_some(),
            _ => false,
        };
        self.go_on(if sampled { unsupported("TABLESAMPLE is not supported") } else { Ok(()) })
    }

    /// DataFusion's table functions expect timestamps in nanoseconds, and give others for dates.
    fn post_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        let mut of_dates = false;
        if let TableFactor::Table { args: Some(_), .. } = table {
            let _ = walk::expressions_mut(table, &mut |expr| {
                if let Expr::Cast { data_type: DataType::Timestamp(precision, _), .. } = expr {
                    *precision = None;
                } else if let Expr::TypedString(typed) = expr
                    && let DataType::Timestamp(precision, _) = &mut typed.data_type
                {
                    *precision = None;
                }
                of_dates |= match expr {
                    Expr::Cast { data_type, .. } => *data_type == DataType::Date,
                    Expr::TypedString(typed) => typed.data_type == DataType::Date,
                    _ => false,
                };
                ControlFlow::Continue(())
            });
        }
        self.go_on(if of_dates { unsupported(SERIES_OF_DATES) } else { Ok(()) })
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let windows = select.named_window.iter_mut().map(|window| match &mut window.1 {
            NamedWindowExpr::WindowSpec(window) => window_frames::check(window),
            NamedWindowExpr::NamedWindow(_) => Ok(()),
        });
        let checked = windows.collect();
        self.go_on(checked)
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Function(Function { over: Some(WindowType::WindowSpec(window)), .. }) = expr
            && let Err(refused) = window_frames::check(window)
        {
            return self.go_on(Err(refused));
        }
        set_returning::as_rows(expr);
        let counted = self.count_copies(expr);
        self.go_on(counted.and_then(|()| expression(expr)))
    }
}

/// Refuses `INTERSECT ALL` and `EXCEPT ALL`: DataFusion returns a row as often as the left side
/// has it, or not at all.
fn set(body: &SetExpr) -> Result<(), Failure> {
    // Chains of unions are long and nest on the left, so only the right side recurses.
    let mut left = body;
    while let SetExpr::SetOperation { left: next, op, set_quantifier, right } = left {
        if *set_quantifier == SetQuantifier::All && matches!(op, SetOperator::Intersect | SetOperator::Except)
        {
            return unsupported(format!("{op} ALL is not supported"));
        }
        if matches!(**right, SetExpr::SetOperation { .. }) {
            set(right)?;
        }
        left = next;
    }
    Ok(())
}

/// Refuses `FOR UPDATE` and its like: a reader that relies on the lock would not have it.
fn lock(query: &Query) -> Result<(), Failure> {
    match query.locks.first() {
        Some(lock) => Err(Failure::read_only(&format!("SELECT FOR {}", lock.lock_type))),
        None => Ok(()),
    }
}

/// Rewrites `FETCH FIRST n ROWS ONLY` to `LIMIT n`.
fn fetch(query: &mut Query) -> Result<(), Failure> {
    let Some(Fetch { with_ties, percent, quantity }) = query.fetch.take() else { return Ok(()) };
    if with_ties || percent {
        return unsupported("FETCH takes a number of rows here, without ties");
    }
    let number = quantity.unwrap_or_else(|| number("1"));
    match &mut query.limit_clause {
        Some(LimitClause::LimitOffset { limit: limit @ None, .. }) => *limit = Some(number),
        clause @ None => {
            *clause =
                Some(LimitClause::LimitOffset { limit: Some(number), offset: None, limit_by: Vec::new() });
        }
        Some(_) => return Err(Failure::new(state::SYNTAX, "multiple LIMIT clauses not allowed")),
    }
    Ok(())
}

fn expression(expr: &mut Expr) -> Result<(), Failure> {
    match expr {
        Expr::Cast { .. } => casts::cast(expr)?,
        Expr::TypedString(typed) => casts::exact_type(&mut typed.data_type)?,
        Expr::SimilarTo { negated, expr: value, pattern, escape_char } => {
            *expr = patterns::similar_to(value, *negated, pattern, escape_char.as_ref())?;
        }
        Expr::Like { pattern, escape_char, .. } | Expr::ILike { pattern, escape_char, .. } => {
            patterns::like_escape(pattern, escape_char)?;
        }
        Expr::BinaryOp { left, op, right } => {
            if let Some(other) = binary_operator(left, op, right)? {
                *expr = other;
            }
        }
        Expr::IsNull(inner) => {
            if let Some(other) = rows::null_test(inner, true)? {
                *expr = other;
            }
        }
        Expr::IsNotNull(inner) => {
            if let Some(other) = rows::null_test(inner, false)? {
                *expr = other;
            }
        }
        Expr::Extract { field, expr: inner, .. } => {
            *expr = call("extract", vec![text(field.to_string().to_lowercase()), (**inner).clone()]);
        }
        Expr::Interval(interval) => {
            if let Some(plain) = plain(interval, false) {
                *interval = plain;
            }
        }
        Expr::UnaryOp { op, expr: operand } => {
            if let Some(other) = unary_operator(*op, operand) {
                *expr = other;
            }
        }
        Expr::Value(ValueWithSpan { value: Value::HexStringLiteral(digits), .. }) => {
            return unsupported(format!(
                "the constant x'{digits}' is not supported: write bytes as '\\x{digits}'::bytea"
            ));
        }
        Expr::AnyOp { left, compare_op, right, .. } if !matches!(**right, Expr::Subquery(_)) => {
            *expr = array_syntax::any_of((**left).clone(), compare_op, (**right).clone())?;
        }
        Expr::AllOp { left, compare_op: BinaryOperator::NotEq, right }
            if !matches!(**right, Expr::Subquery(_)) =>
        {
            let any = array_syntax::any_of((**left).clone(), &BinaryOperator::Eq, (**right).clone())?;
            *expr = array_syntax::not(any);
        }
        Expr::CompoundFieldAccess { access_chain, .. } => {
            access_chain.iter_mut().try_for_each(array_syntax::with_bounds)?;
        }
        Expr::Function(function) => {
            if let Some(other) = calls::function_of(function) {
                *expr = other;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Rewrites the pattern of a regular expression. Returns an expression for operators of arrays and
/// rows.
fn binary_operator(left: &Expr, op: &BinaryOperator, right: &mut Expr) -> Result<Option<Expr>, Failure> {
    Ok(match op {
        BinaryOperator::PGRegexMatch
        | BinaryOperator::PGRegexIMatch
        | BinaryOperator::PGRegexNotMatch
        | BinaryOperator::PGRegexNotIMatch => {
            patterns::match_line_feeds(right);
            None
        }
        BinaryOperator::AtArrow => Some(call("array_has_all", vec![left.clone(), right.clone()])),
        BinaryOperator::ArrowAt => Some(call("array_has_all", vec![right.clone(), left.clone()])),
        BinaryOperator::PGOverlap => Some(call("array_has_any", vec![left.clone(), right.clone()])),
        op => match (rows::row(left), rows::row(right)) {
            (Some(left), Some(right)) => Some(rows::compared(left, op, right)?),
            _ => None,
        },
    })
}

/// Returns a negative interval, or a call for operators that DataFusion lacks.
fn unary_operator(op: UnaryOperator, operand: &Expr) -> Option<Expr> {
    let name = match op {
        UnaryOperator::Minus => {
            let Expr::Interval(interval) = operand else { return None };
            return plain(interval, true).map(Expr::Interval);
        }
        UnaryOperator::PGAbs => "abs",
        UnaryOperator::PGSquareRoot => "sqrt",
        UnaryOperator::PGCubeRoot => "cbrt",
        _ => return None,
    };
    Some(call(name, vec![operand.clone()]))
}

/// Returns an interval, or its negative, in a form that DataFusion reads as PostgreSQL does.
fn plain(interval: &Interval, is_negative: bool) -> Option<Interval> {
    let written = constant_text(&interval.value).filter(|_| interval.leading_field.is_none())?;
    let plain = plain_interval(written, is_negative)?;
    Some(Interval { value: Box::new(text(plain)), ..interval.clone() })
}
