//! Rows: comparisons field by field, and tests for null.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr};

use crate::engine::parse::syntax::{binary, is_call_of, nested, null_truth};
use crate::failure::{Failure, state, unsupported};

/// Returns the fields of a row constructor.
pub(super) fn row(expr: &Expr) -> Option<&[Expr]> {
    match expr {
        Expr::Tuple(fields) => Some(fields),
        Expr::Nested(inner) => row(inner),
        _ => None,
    }
}

/// Compares rows from left to right.
pub(super) fn compared(left: &[Expr], op: &BinaryOperator, right: &[Expr]) -> Result<Expr, Failure> {
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

/// Returns the test of all fields of a row, if `inner` is one, for `IS NULL` or `IS NOT NULL`.
///
/// # Errors
/// `inner` is a call of `ROW(…)`.
pub(super) fn null_test(inner: &Expr, is_null: bool) -> Result<Option<Expr>, Failure> {
    if matches!(inner, Expr::Function(function) if is_call_of(function, "row")) {
        return unsupported("IS NULL of ROW(…) is not supported: write the row in parentheses alone");
    }
    let Some(fields) = row(inner) else { return Ok(None) };
    let each = fields.iter().cloned().map(Box::new).map(|field| match is_null {
        true => Expr::IsNull(field),
        false => Expr::IsNotNull(field),
    });
    let all = each.reduce(|all, one| binary(all, BinaryOperator::And, one));
    Ok(Some(nested(all.unwrap_or_else(null_truth))))
}
