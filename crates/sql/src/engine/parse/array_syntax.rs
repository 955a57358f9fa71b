//! Syntax of arrays that DataFusion plans otherwise than PostgreSQL: comparisons with ANY of an
//! array, and slices without bounds.

use datafusion::sql::sqlparser::ast::{AccessExpr, BinaryOperator, Expr, Subscript, UnaryOperator, Value};

use crate::engine::parse::syntax::{call, constant_text, nested, number, text};
use crate::engine::types::exact::items_of;
use crate::failure::{Failure, state};

/// Returns the negative of a condition.
pub(super) fn not(expr: Expr) -> Expr {
    Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(nested(expr)) }
}

/// Returns `left op ANY (right)` over an array. Except for `=` it is the negative of the opposite
/// comparison with ALL, in which DataFusion minds nulls.
///
/// # Errors
/// A constant is no array.
pub(super) fn any_of(left: Expr, op: &BinaryOperator, right: Expr) -> Result<Expr, Failure> {
    let opposite = match op {
        BinaryOperator::Eq => {
            // A constant text has the type of the other side, as in a list of constants.
            let Some(items) = constant_text(&right) else {
                return Ok(call("array_has", vec![right, left]));
            };
            let null = || Expr::Value(Value::Null.with_empty_span());
            let list: Vec<Expr> =
                items_of(items)?.into_iter().map(|item| item.map_or_else(null, text)).collect();
            return Ok(match list.is_empty() {
                true => Expr::Value(Value::Boolean(false).with_empty_span()),
                false => nested(Expr::InList { expr: Box::new(left), list, negated: false }),
            });
        }
        BinaryOperator::NotEq => BinaryOperator::Eq,
        BinaryOperator::Lt => BinaryOperator::GtEq,
        BinaryOperator::LtEq => BinaryOperator::Gt,
        BinaryOperator::Gt => BinaryOperator::LtEq,
        BinaryOperator::GtEq => BinaryOperator::Lt,
        other => {
            let (left, right) = (Box::new(left), Box::new(right));
            return Ok(Expr::AnyOp { left, compare_op: other.clone(), right, is_some: false });
        }
    };
    Ok(not(Expr::AllOp { left: Box::new(left), compare_op: opposite, right: Box::new(right) }))
}

/// Gives a slice of an array the bounds that it leaves out.
///
/// # Errors
/// It has a step, which is no syntax of PostgreSQL.
pub(super) fn with_bounds(access: &mut AccessExpr) -> Result<(), Failure> {
    if let AccessExpr::Subscript(Subscript::Slice { lower_bound, upper_bound, stride }) = access {
        if stride.is_some() {
            return Err(Failure::new(state::SYNTAX, "expected the two bounds of a slice, got a step"));
        }
        lower_bound.get_or_insert_with(|| number("1"));
        upper_bound.get_or_insert_with(|| number("2147483647"));
    }
    Ok(())
}
