//! Replaces operators of a plan by those with PostgreSQL's types and errors.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::logical_expr::{Between, BinaryExpr, Expr, ExprSchemable, Operator};

use crate::engine::types::exact::byte_strings::is_bytes;
use crate::engine::types::exact::casts::as_type;
use crate::engine::types::exact::type_names::{is_text, no_operator};
use crate::engine::types::exact::{Pass, arithmetic, arrays, casts, common, moments};

impl Pass<'_> {
    /// Returns the operator over operands of the types `left` and `right`.
    ///
    /// # Errors
    /// PostgreSQL lacks the operator, or a constant is invalid.
    pub(super) fn operator(
        self,
        mut binary: BinaryExpr,
        mut left: DataType,
        mut right: DataType,
    ) -> Result<Expr> {
        if binary.op != Operator::StringConcat || is_bytes(&left) || is_bytes(&right) {
            // As in PostgreSQL, a constant text gets the type of the other side.
            if is_constant_text(&binary.left, &left) && takes_constant_texts(&right) {
                left = finest(&right);
                *binary.left = casts::convert_now(*binary.left, &left)?;
            } else if is_constant_text(&binary.right, &right) && takes_constant_texts(&left) {
                right = finest(&left);
                *binary.right = casts::convert_now(*binary.right, &right)?;
            }
        }
        if binary.op == Operator::StringConcat && (is_text(&left) || is_text(&right)) {
            return Ok(concatenation(binary, &left, &right));
        }
        if binary.op.supports_propagation() || binary.op == Operator::NotEq {
            return self.comparison(binary, &left, &right);
        }
        match (&left, &right) {
            (DataType::Timestamp(_, zone), DataType::Timestamp(_, other)) if binary.op == Operator::Minus => {
                let zone = zone.clone().or_else(|| other.clone()).map(|_| Arc::from(self.zone));
                let ty = DataType::Timestamp(TimeUnit::Microsecond, zone);
                let (from, to) = (as_type(*binary.left, &left, &ty), as_type(*binary.right, &right, &ty));
                Ok(moments::difference(from, to))
            }
            (left, right) => arithmetic::planned(binary, left, right),
        }
    }

    /// Returns a comparison.
    fn comparison(self, mut binary: BinaryExpr, left: &DataType, right: &DataType) -> Result<Expr> {
        if let Some((of_left, of_right)) = common::compared_as(left, right, self.zone) {
            *binary.left = as_type(*binary.left, left, &of_left);
            *binary.right = as_type(*binary.right, right, &of_right);
            return Ok(Expr::BinaryExpr(binary));
        }
        match (left, right) {
            (DataType::List(_), DataType::List(_)) => return Ok(arrays::compared(binary)),
            (
                DataType::Interval(IntervalUnit::MonthDayNano),
                DataType::Interval(IntervalUnit::MonthDayNano),
            ) => {
                *binary.left = moments::span(*binary.left);
                *binary.right = moments::span(*binary.right);
            }
            // Constant texts are left to DataFusion, which converts them to the other type.
            (text, other) if is_text(text) && is_no_text(other) && !is_constant_text(&binary.left, text) => {
                return no_operator(text, binary.op, other);
            }
            (other, text) if is_text(text) && is_no_text(other) && !is_constant_text(&binary.right, text) => {
                return no_operator(other, binary.op, text);
            }
            _ => {}
        }
        Ok(Expr::BinaryExpr(binary))
    }

    /// Replaces BETWEEN of arrays by two comparisons.
    pub(super) fn between_arrays(self, between: Between, ty: &DataType, schema: &DFSchema) -> Result<Expr> {
        let Between { expr, negated, low, high } = between;
        let side = |op: Operator, bound: Box<Expr>| {
            let of_bound = bound.get_type(schema)?;
            self.operator(BinaryExpr::new(expr.clone(), op, bound), ty.clone(), of_bound)
        };
        let both = side(Operator::GtEq, low)?.and(side(Operator::LtEq, high)?);
        Ok(if negated { Expr::Not(Box::new(both)) } else { both })
    }
}

/// Returns a concatenation of texts, to which other values are converted.
fn concatenation(mut binary: BinaryExpr, left: &DataType, right: &DataType) -> Expr {
    let is_other = |ty: &DataType| !is_text(ty) && !ty.is_nested();
    if is_other(left) {
        *binary.left = casts::convert(*binary.left, &DataType::Utf8);
    }
    if is_other(right) {
        *binary.right = casts::convert(*binary.right, &DataType::Utf8);
    }
    Expr::BinaryExpr(binary)
}

fn is_constant_text(expr: &Expr, ty: &DataType) -> bool {
    is_text(ty) && matches!(expr, Expr::Literal(..))
}

/// True for types to which a constant text on the other side is converted.
fn takes_constant_texts(ty: &DataType) -> bool {
    ty.is_numeric()
        || matches!(
            ty,
            DataType::Boolean
                | DataType::Date32
                | DataType::Binary
                | DataType::Timestamp(..)
                | DataType::List(_)
        )
}

/// Returns the type with microseconds: constants may be finer than columns.
fn finest(ty: &DataType) -> DataType {
    match ty {
        DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
        other => other.clone(),
    }
}

/// True for types that PostgreSQL never compares with texts, except constant ones.
fn is_no_text(ty: &DataType) -> bool {
    ty.is_numeric() || ty.is_temporal() || *ty == DataType::Boolean || is_bytes(ty)
}
