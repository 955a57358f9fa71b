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

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, BinaryOperator, CastKind, CharacterLength, DataType, DuplicateTreatment,
    ExactNumberInfo, Expr, Fetch, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause,
    FunctionArguments, Interval, LimitClause, NamedWindowExpr, OrderByExpr, OrderByOptions, Query, Select,
    SetExpr, SetOperator, SetQuantifier, Statement, TableFactor, UnaryOperator, Value, ValueWithSpan,
    VisitorMut, WindowType,
};

use crate::engine::limits::planning::{self, NODES_MAX};
use crate::engine::parse::syntax::{binary, call, constant_text, is_call_of, nested, number, of_names, text};
use crate::engine::parse::window_frames;
use crate::engine::parse::{array_syntax, set_returning};
use crate::engine::types::exact::{PERCENTILE, SERIES_OF_DATES, UNCONSTRAINED, plain_interval};
use crate::failure::{Failure, state};
use crate::walk;

fn unsupported<T>(text: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::new(state::UNSUPPORTED, text))
}

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
        if is_strict && row(left).is_some() && row(right).is_some() {
            self.copied = self.copied.saturating_add(planning::written_nodes(expr));
        }
        if self.copied <= NODES_MAX {
            return Ok(());
        }
        let text = "statement too complex: its comparisons of rows contain each other too often";
        Err(Failure::new(state::COMPLEX, text))
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
        Expr::Cast { kind, expr: inner, data_type, .. } => {
            if let Some(length) = length(data_type)? {
                let whole = Expr::Cast {
                    kind: kind.clone(),
                    expr: inner.clone(),
                    data_type: DataType::Text,
                    array: false,
                    format: None,
                };
                *expr = call("left", vec![whole, number(&length.to_string())]);
            } else {
                exact_type(data_type)?;
                // Floating point covers a wider range than numeric, so parse the text and not a
                // numeric constant.
                if is_float(data_type)
                    && let Expr::Value(ValueWithSpan { value: Value::Number(digits, _), .. }) = &**inner
                {
                    **inner = text(digits.clone());
                }
            }
        }
        Expr::TypedString(typed) => exact_type(&mut typed.data_type)?,
        Expr::SimilarTo { negated, expr: left, pattern, escape_char } => {
            let escape = escape(escape_char.as_ref())?;
            if let Some(pattern) = constant_text(pattern) {
                let op = match negated {
                    true => BinaryOperator::PGRegexNotMatch,
                    false => BinaryOperator::PGRegexMatch,
                };
                *expr = nested(binary((**left).clone(), op, text(similar(pattern, escape)?)));
            } else if !matches!(&**pattern, Expr::Value(ValueWithSpan { value: Value::Null, .. })) {
                return unsupported("SIMILAR TO takes a pattern that is a constant");
            } else {
                *expr = null_truth();
            }
        }
        Expr::Like { pattern, escape_char, .. } | Expr::ILike { pattern, escape_char, .. } => {
            let escape = escape(escape_char.as_ref())?;
            match constant_text(pattern) {
                Some(written) => **pattern = text(like(written, escape)?),
                None if escape == Some('\\') => {}
                None => return unsupported("ESCAPE takes a pattern that is a constant"),
            }
            *escape_char = None;
        }
        Expr::BinaryOp { left, op, right } => match op {
            // In PostgreSQL a dot also matches the end of a line.
            BinaryOperator::PGRegexMatch
            | BinaryOperator::PGRegexIMatch
            | BinaryOperator::PGRegexNotMatch
            | BinaryOperator::PGRegexNotIMatch => {
                let lines = || text("(?s)".to_owned());
                match constant_text(right) {
                    Some(pattern) if pattern.contains('.') && !pattern.starts_with("(?") => {
                        **right = text(format!("(?s){pattern}"));
                    }
                    Some(_) => {}
                    None => {
                        **right =
                            nested(binary(lines(), BinaryOperator::StringConcat, nested((**right).clone())));
                    }
                }
            }
            BinaryOperator::AtArrow => {
                *expr = call("array_has_all", vec![(**left).clone(), (**right).clone()])
            }
            BinaryOperator::ArrowAt => {
                *expr = call("array_has_all", vec![(**right).clone(), (**left).clone()])
            }
            BinaryOperator::PGOverlap => {
                *expr = call("array_has_any", vec![(**left).clone(), (**right).clone()])
            }
            op => {
                if let (Some(left), Some(right)) = (row(left), row(right)) {
                    *expr = compared(left, op, right)?;
                }
            }
        },
        Expr::IsNull(inner) | Expr::IsNotNull(inner) if is_row_call(inner) => {
            return unsupported("IS NULL of ROW(…) is not supported: write the row in parentheses alone");
        }
        Expr::IsNull(inner) | Expr::IsNotNull(inner) if row(inner).is_some() => {
            let fields = row(inner).unwrap_or_default().to_vec();
            let is_null = matches!(expr, Expr::IsNull(_));
            let each = fields.into_iter().map(|field| match is_null {
                true => Expr::IsNull(Box::new(field)),
                false => Expr::IsNotNull(Box::new(field)),
            });
            let all = each.reduce(|all, one| binary(all, BinaryOperator::And, one));
            *expr = nested(all.unwrap_or_else(null_truth));
        }
        Expr::Extract { field, expr: inner, .. } => {
            *expr = call("extract", vec![text(field.to_string().to_lowercase()), (**inner).clone()]);
        }
        Expr::Interval(interval) => {
            if let Some(plain) = plain(interval, false) {
                *interval = plain;
            }
        }
        Expr::UnaryOp { op: UnaryOperator::Minus, expr: inner } => {
            if let Expr::Interval(interval) = &**inner
                && let Some(plain) = plain(interval, true)
            {
                *expr = Expr::Interval(plain);
            }
        }
        Expr::UnaryOp { op: UnaryOperator::PGAbs, expr: inner } => {
            *expr = call("abs", vec![(**inner).clone()]);
        }
        Expr::UnaryOp { op: UnaryOperator::PGSquareRoot, expr: inner } => {
            *expr = call("sqrt", vec![(**inner).clone()]);
        }
        Expr::UnaryOp { op: UnaryOperator::PGCubeRoot, expr: inner } => {
            *expr = call("cbrt", vec![(**inner).clone()]);
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
            if let Some(other) = function_of(function) {
                *expr = other;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Returns an interval, or its negative, in a form that DataFusion reads as PostgreSQL does.
fn plain(interval: &Interval, is_negative: bool) -> Option<Interval> {
    let written = constant_text(&interval.value).filter(|_| interval.leading_field.is_none())?;
    let plain = plain_interval(written, is_negative)?;
    Some(Interval { value: Box::new(text(plain)), ..interval.clone() })
}

fn null_truth() -> Expr {
    Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(Expr::Value(Value::Null.with_empty_span())),
        data_type: DataType::Boolean,
        array: false,
        format: None,
    }
}

/// Renames functions that DataFusion knows by another name. Returns an expression for those it has
/// as an operator.
fn function_of(function: &mut Function) -> Option<Expr> {
    for (name, other) in [("ceiling", "ceil"), ("every", "bool_and"), ("variance", "var_samp")] {
        if is_call_of(function, name) {
            function.name = of_names(&[other]);
        }
    }
    sort_distinct(function);
    if is_call_of(function, "percentile_cont") && function.over.is_none() {
        return percentile(function);
    }
    let FunctionArguments::List(list) = &function.args else { return None };
    let arguments: Option<Vec<&Expr>> = list
        .args
        .iter()
        .map(|argument| match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
            _ => None,
        })
        .collect();
    let is_null = |expr: &Expr| matches!(expr, Expr::Value(ValueWithSpan { value: Value::Null, .. }));
    match arguments?[..] {
        // DataFusion takes a null without a type for no array.
        [null, array] | [array, null] if is_call_of(function, "array_cat") && is_null(null) => {
            Some(array.clone())
        }
        [value, divisor] if is_call_of(function, "mod") => {
            let (value, divisor) = (nested(value.clone()), nested(divisor.clone()));
            Some(nested(binary(value, BinaryOperator::Modulo, divisor)))
        }
        _ => None,
    }
}

/// Sorts the distinct values that an aggregate collects, as PostgreSQL does.
fn sort_distinct(function: &mut Function) {
    if !is_call_of(function, "array_agg") && !is_call_of(function, "string_agg") {
        return;
    }
    if let FunctionArguments::List(list) = &mut function.args
        && list.duplicate_treatment == Some(DuplicateTreatment::Distinct)
        && list.clauses.is_empty()
        && let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))) = list.args.first()
    {
        let options = OrderByOptions { asc: None, nulls_first: None };
        let order = OrderByExpr { expr: expr.clone(), options, with_fill: None };
        list.clauses = vec![FunctionArgumentClause::OrderBy(vec![order])];
    }
}

/// Returns `percentile_cont` as a function of a sorted array.
fn percentile(function: &Function) -> Option<Expr> {
    let ([order], FunctionArguments::List(list)) = (&function.within_group[..], &function.args) else {
        return None;
    };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(fraction))] = &list.args[..] else { return None };
    let number = Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(order.expr.clone()),
        data_type: DataType::DoublePrecision,
        array: false,
        format: None,
    };
    let known = Expr::IsNotNull(Box::new(nested(order.expr.clone())));
    let filter = match &function.filter {
        None => known,
        Some(filter) => binary(nested((**filter).clone()), BinaryOperator::And, known),
    };
    let Expr::Function(mut sorted) = call("array_agg", vec![number]) else { return None };
    if let FunctionArguments::List(list) = &mut sorted.args {
        list.clauses = vec![FunctionArgumentClause::OrderBy(vec![order.clone()])];
    }
    sorted.filter = Some(Box::new(filter));
    Some(call(PERCENTILE, vec![Expr::Function(sorted), fraction.clone()]))
}

/// Returns the length, in characters, that a type truncates texts to. `None`: it does not.
fn length(ty: &DataType) -> Result<Option<u64>, Failure> {
    let length = match ty {
        DataType::Varchar(length) | DataType::CharacterVarying(length) | DataType::CharVarying(length) => {
            length
        }
        DataType::Char(length) | DataType::Character(length) => {
            return match length {
                Some(CharacterLength::IntegerLength { length, .. }) => Ok(Some(*length)),
                Some(CharacterLength::Max) => Ok(None),
                None => Ok(Some(1)),
            };
        }
        _ => return Ok(None),
    };
    Ok(match length {
        Some(CharacterLength::IntegerLength { length: 0, .. }) => {
            return Err(Failure::new(state::INVALID, "length for type varchar must be at least 1"));
        }
        Some(CharacterLength::IntegerLength { length, .. }) => Some(*length),
        _ => None,
    })
}

fn is_float(ty: &DataType) -> bool {
    matches!(
        ty,
        DataType::Float8
            | DataType::Double(_)
            | DataType::DoublePrecision
            | DataType::Real
            | DataType::Float4
            | DataType::Float(_)
    )
}

/// Rewrites a type to the one that DataFusion is to plan.
fn exact_type(ty: &mut DataType) -> Result<(), Failure> {
    let datafusion::arrow::datatypes::DataType::Decimal128(digits, scale) = UNCONSTRAINED else {
        return Ok(());
    };
    match ty {
        DataType::Varchar(_) | DataType::CharacterVarying(_) | DataType::CharVarying(_) => {
            *ty = DataType::Text
        }
        DataType::Numeric(info @ ExactNumberInfo::None)
        | DataType::Decimal(info @ ExactNumberInfo::None)
        | DataType::Dec(info @ ExactNumberInfo::None) => {
            *info = ExactNumberInfo::PrecisionAndScale(digits.into(), scale.into());
        }
        DataType::Numeric(ExactNumberInfo::PrecisionAndScale(digits, scale))
        | DataType::Decimal(ExactNumberInfo::PrecisionAndScale(digits, scale))
            if *digits > 38 || *scale < 0 || u64::try_from(*scale).is_ok_and(|scale| scale > *digits) =>
        {
            return unsupported(format!("numeric({digits},{scale}) is not supported: at most 38 digits"));
        }
        DataType::Timestamp(precision @ None, _) => *precision = Some(6),
        DataType::Timestamp(Some(precision), _) if *precision != 6 => {
            return unsupported(format!(
                "timestamp({precision}) is not supported: timestamps have microseconds"
            ));
        }
        DataType::Time(Some(precision), _) if *precision != 6 => {
            return unsupported(format!("time({precision}) is not supported: times have microseconds"));
        }
        DataType::Time(precision @ Some(_), _) => *precision = None,
        DataType::Array(ArrayElemTypeDef::SquareBracket(element, _)) => {
            if length(element)?.is_some() {
                return unsupported(format!("an array of {element} is not supported: use text[]"));
            }
            exact_type(element)?;
        }
        _ => {}
    }
    Ok(())
}

/// Returns true for a call of `ROW(…)`.
fn is_row_call(expr: &Expr) -> bool {
    matches!(expr, Expr::Function(function) if is_call_of(function, "row"))
}

/// Returns the fields of a row constructor.
fn row(expr: &Expr) -> Option<&[Expr]> {
    match expr {
        Expr::Tuple(fields) => Some(fields),
        Expr::Nested(inner) => row(inner),
        _ => None,
    }
}

/// Compares rows from left to right.
fn compared(left: &[Expr], op: &BinaryOperator, right: &[Expr]) -> Result<Expr, Failure> {
    if left.len() != right.len() {
        return Err(Failure::new(state::SYNTAX, "unequal number of entries in row expressions"));
    }
    let strict = match op {
        BinaryOperator::Eq | BinaryOperator::NotEq => None,
        BinaryOperator::Lt | BinaryOperator::LtEq => Some(BinaryOperator::Lt),
        BinaryOperator::Gt | BinaryOperator::GtEq => Some(BinaryOperator::Gt),
        _ => return unsupported(format!("rows have no operator {op}")),
    };
    let mut pairs = left.iter().cloned().zip(right.iter().cloned()).rev();
    let Some(strict) = strict else {
        let joined = if *op == BinaryOperator::Eq { BinaryOperator::And } else { BinaryOperator::Or };
        let each = left.iter().cloned().zip(right.iter().cloned());
        let each = each.map(|(left, right)| binary(left, op.clone(), right));
        return Ok(nested(
            each.reduce(|all, one| binary(all, joined.clone(), one)).unwrap_or_else(null_truth),
        ));
    };
    let Some((last, other)) = pairs.next() else { return Ok(null_truth()) };
    let last = binary(last, op.clone(), other);
    let whole = pairs.fold(last, |rest, (left, right)| {
        let equal = binary(left.clone(), BinaryOperator::Eq, right.clone());
        let later = nested(binary(equal, BinaryOperator::And, rest));
        nested(binary(binary(left, strict.clone(), right), BinaryOperator::Or, later))
    });
    Ok(nested(whole))
}

/// Returns the escape character of a pattern. `None` for an empty text, a backslash by default.
fn escape(written: Option<&ValueWithSpan>) -> Result<Option<char>, Failure> {
    let Some(written) = written else { return Ok(Some('\\')) };
    let (Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text)) = &written.value else {
        return unsupported("ESCAPE takes a constant");
    };
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (first, None) => Ok(first),
        _ => Err(Failure::new("22025", "invalid escape string: it must be empty or one character")),
    }
}

/// Rewrites a LIKE pattern to one with a backslash as escape character.
fn like(pattern: &str, escape: Option<char>) -> Result<String, Failure> {
    let (mut out, mut chars) = (String::new(), pattern.chars());
    while let Some(c) = chars.next() {
        if Some(c) == escape {
            let Some(next) = chars.next() else {
                return Err(Failure::new("22025", "LIKE pattern must not end with escape character"));
            };
            if matches!(next, '%' | '_' | '\\') {
                out.push('\\');
            }
            out.push(next);
        } else {
            if c == '\\' {
                out.push('\\');
            }
            out.push(c);
        }
    }
    Ok(out)
}

/// Converts a SIMILAR TO pattern to a regular expression (`similar_escape_internal`).
fn similar(pattern: &str, escape: Option<char>) -> Result<String, Failure> {
    let (mut out, mut chars, mut is_within) = ("(?s)^(?:".to_owned(), pattern.chars(), false);
    let literal = |c: char, out: &mut String| {
        if !c.is_alphanumeric() && !c.is_whitespace() && c.is_ascii() {
            out.push('\\');
        }
        out.push(c);
    };
    while let Some(c) = chars.next() {
        if Some(c) == escape {
            match chars.next() {
                Some('"') => return unsupported("SIMILAR TO with parts of a pattern is not supported"),
                Some(next) => literal(next, &mut out),
                None => return Err(Failure::new("22025", "invalid escape sequence")),
            }
            continue;
        }
        match c {
            ']' if is_within => {
                out.push(']');
                is_within = false;
            }
            '[' if !is_within => {
                out.push('[');
                is_within = true;
            }
            '\\' | '[' => literal(c, &mut out),
            c if is_within => out.push(c),
            '%' => out.push_str(".*"),
            '_' => out.push('.'),
            '(' => out.push_str("(?:"),
            '.' | '^' | '$' => literal(c, &mut out),
            c => out.push(c),
        }
    }
    out.push_str(")$");
    Ok(out)
}

/// Prepares a catalog query for the library's rule on subqueries of a select list, which replaces
/// those that look correlated by NULL, and limits the others to their first row. The first is right
/// only for relations that are empty here. Against the second, a subquery without a limit gets one
/// of two rows, so that a second row is an error. Returns true if the query was changed.
///
/// # Errors
/// A subquery that the rule takes for correlated reads another relation.
pub(crate) fn prepare_catalog(statement: &mut Statement) -> Result<bool, Failure> {
    let mut lost = Lost { is_changed: Ok(false) };
    let _ = walk::walk_mut(statement, &mut lost);
    lost.is_changed
}

/// Catalog relations that are empty here.
const EMPTY: [&str; 4] = ["pg_attrdef", "pg_inherits", "pg_statistic_ext", "pg_trigger"];

struct Lost {
    /// The first error ends the walk.
    is_changed: Result<bool, Failure>,
}

impl VisitorMut for Lost {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        use datafusion::sql::sqlparser::ast::SelectItem;
        let SetExpr::Select(select) = &mut *query.body else { return ControlFlow::Continue(()) };
        for item in &mut select.projection {
            let (SelectItem::UnnamedExpr(Expr::Subquery(inner))
            | SelectItem::ExprWithAlias { expr: Expr::Subquery(inner), .. }) = item
            else {
                continue;
            };
            if looks_correlated(inner) {
                if reads_nothing(inner) {
                    continue;
                }
                self.is_changed = unsupported(
                    "a subquery that depends on the row it stands in, or names a column by a table without an \
                     alias, is not supported in a query of the catalog: join instead, or give the table an alias",
                );
                return ControlFlow::Break(());
            }
            if inner.limit_clause.is_none() && inner.fetch.is_none() {
                let limit = Some(Expr::value(Value::Number("2".to_owned(), false)));
                inner.limit_clause =
                    Some(LimitClause::LimitOffset { limit, offset: None, limit_by: Vec::new() });
                self.is_changed = Ok(true);
            }
        }
        ControlFlow::Continue(())
    }
}

/// Returns true if the library's rule takes a subquery for correlated: it has a parameter, or names
/// a column by something else than the alias of a table that it reads.
fn looks_correlated(query: &Query) -> bool {
    let SetExpr::Select(select) = &*query.body else { return false };
    let relations = select.from.iter().flat_map(|table| {
        std::iter::once(&table.relation).chain(table.joins.iter().map(|join| &join.relation))
    });
    let names: Vec<&str> = relations
        .filter_map(|relation| match relation {
            TableFactor::Table { alias: Some(alias), .. } => Some(alias.name.value.as_str()),
            _ => None,
        })
        .collect();
    let found = walk::expressions(query, &mut |expr| match expr {
        Expr::CompoundIdentifier(idents) if !idents.is_empty() => {
            let is_own = names.contains(&idents[0].value.as_str());
            if is_own { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        }
        Expr::Value(ValueWithSpan { value: Value::Placeholder(_), .. }) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}

fn reads_nothing(query: &Query) -> bool {
    let SetExpr::Select(select) = &*query.body else { return false };
    let is_empty = |table: &TableFactor| match table {
        TableFactor::Table { name, .. } => name
            .0
            .last()
            .and_then(|part| part.as_ident())
            .is_some_and(|ident| EMPTY.contains(&ident.value.to_lowercase().as_str())),
        _ => false,
    };
    // Over no rows all aggregates but counts are NULL.
    let counts = walk::expressions(&select.projection, &mut |expr| match expr {
        Expr::Function(function) if is_call_of(function, "count") => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    counts.is_continue()
        && (select.from.iter().any(|table| table.joins.is_empty() && is_empty(&table.relation))
            || select.selection.as_ref().is_some_and(wants_other_collation))
}

/// Returns true if a condition, or a part of a conjunction, requires a column's collation to
/// differ from its type's, as clients write. Here no column has a collation of its own.
fn wants_other_collation(condition: &Expr) -> bool {
    let is = |expr: &Expr, wanted: &str| match expr {
        Expr::CompoundIdentifier(idents) => {
            idents.last().is_some_and(|ident| ident.value.eq_ignore_ascii_case(wanted))
        }
        _ => false,
    };
    match condition {
        Expr::Nested(inner) => wants_other_collation(inner),
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            wants_other_collation(left) || wants_other_collation(right)
        }
        Expr::BinaryOp { left, op: BinaryOperator::NotEq, right } => {
            is(left, "attcollation") && is(right, "typcollation")
                || is(left, "typcollation") && is(right, "attcollation")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_become_regular_expressions() {
        for (pattern, escape, expected) in [
            ("a%", Some('\\'), "(?s)^(?:a.*)$"),
            ("a.c", Some('\\'), "(?s)^(?:a\\.c)$"),
            ("%(b|d)%", Some('\\'), "(?s)^(?:.*(?:b|d).*)$"),
            ("[a_%.]+", Some('\\'), "(?s)^(?:[a_%.]+)$"),
            ("a\\%", Some('\\'), "(?s)^(?:a\\%)$"),
            ("a#%\\", Some('#'), "(?s)^(?:a\\%\\\\)$"),
        ] {
            assert_eq!(similar(pattern, escape).expect(pattern), expected);
        }
        assert!(similar("a\\", Some('\\')).is_err());
        assert!(similar("a\\\"b\\\"c", Some('\\')).is_err());
    }

    #[test]
    fn correlated_subqueries_are_refused_unless_empty() {
        for (subquery, is_refused) in [
            ("SELECT adbin FROM pg_attrdef d WHERE d.adrelid = a.attrelid", false),
            ("SELECT count(*) FROM pg_attrdef d WHERE d.adrelid = a.attrelid", true),
            ("SELECT description FROM pg_description d WHERE d.objoid = a.attrelid", true),
            ("SELECT collname FROM pg_collation c WHERE c.oid = a.attcollation", true),
            (
                "SELECT c.collname FROM pg_collation c, pg_type t WHERE c.oid = a.attcollation AND t.oid = a.atttypid \
                 AND a.attcollation <> t.typcollation",
                false,
            ),
            (
                "SELECT c.collname FROM pg_collation c, pg_type t WHERE c.oid = a.attcollation OR \
                 a.attcollation <> t.typcollation",
                true,
            ),
        ] {
            let text = format!("SELECT a.attname, ({subquery}) FROM pg_attribute a");
            let dialect = datafusion::sql::sqlparser::dialect::PostgreSqlDialect {};
            let mut parsed =
                datafusion::sql::sqlparser::parser::Parser::parse_sql(&dialect, &text).expect("parses");
            assert_eq!(prepare_catalog(&mut parsed[0]).is_err(), is_refused, "{subquery}");
        }
    }

    #[test]
    fn other_escapes_become_backslashes() {
        for (pattern, escape, expected) in [
            ("a#%_c", Some('#'), "a\\%_c"),
            ("a\\b", Some('#'), "a\\\\b"),
            ("a\\b", None, "a\\\\b"),
            ("a##", Some('#'), "a#"),
            ("a\\%", Some('\\'), "a\\%"),
            ("a\\b", Some('\\'), "ab"),
        ] {
            assert_eq!(like(pattern, escape).expect(pattern), expected, "{pattern}");
        }
        assert!(like("a#", Some('#')).is_err());
    }
}
