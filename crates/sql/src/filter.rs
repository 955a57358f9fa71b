//! What of a query's conditions a scan can use: a column compared with a constant. Rows that cannot match may be left out by
//! the scan; DataFusion asks the condition again of those that come, so nothing hangs on this but speed.

use std::ops::Bound;

use ::schema::{CqlType, TableDef};
use bytes::Bytes;
use datafusion::arrow::datatypes::DataType;
use datafusion::logical_expr::{Between, BinaryExpr, Expr, Operator};
use datafusion::scalar::ScalarValue;
use engine::scan::{Filter, arrow, columns_of};

/// The filter that a condition comes to; none if a scan has no use for it.
pub(crate) fn filter(def: &TableDef, condition: &Expr) -> Option<Filter> {
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match (&**left, &**right) {
            (side, Expr::Literal(value, _)) => compared(def, column(side)?, *op, value),
            (Expr::Literal(value, _), side) => compared(def, column(side)?, op.swap()?, value),
            _ => None,
        },
        Expr::Between(Between { expr, negated: false, low, high }) => match (&**low, &**high) {
            (Expr::Literal(low, _), Expr::Literal(high, _)) => {
                let from = compared(def, column(expr)?, Operator::GtEq, low)?;
                let to = compared(def, column(expr)?, Operator::LtEq, high)?;
                Some(Filter { to: to.to, ..from })
            }
            _ => None,
        },
        _ => None,
    }
}

/// A column, or one that is compared as another type.
fn column(side: &Expr) -> Option<&str> {
    match side {
        Expr::Column(column) => Some(&column.name),
        Expr::Cast(cast) => match &*cast.expr {
            Expr::Column(column) => Some(&column.name),
            _ => None,
        },
        _ => None,
    }
}

/// What a column, by its name, compared with a constant comes to.
pub(crate) fn compared(def: &TableDef, name: &str, op: Operator, value: &ScalarValue) -> Option<Filter> {
    let (place, column) = columns_of(def).iter().enumerate().find(|(_, column)| column.name == name)?;
    let ty = &column.ty;
    let (low, high) = match (ty.thawed(), value) {
        (CqlType::Decimal, ScalarValue::Float64(Some(value))) => around(*value)?,
        _ => (value.clone(), value.clone()),
    };
    let is_exact = low == high;
    let (low, high) = (serialized(ty, &low)?, serialized(ty, &high)?);
    if op != Operator::Eq && !arrow::keeps_order(ty) {
        return None;
    }
    let (from, to) = match op {
        Operator::Eq => (Bound::Included(low), Bound::Included(high)),
        Operator::Lt if is_exact => (Bound::Unbounded, Bound::Excluded(high)),
        Operator::Gt if is_exact => (Bound::Excluded(low), Bound::Unbounded),
        Operator::Lt | Operator::LtEq => (Bound::Unbounded, Bound::Included(high)),
        Operator::Gt | Operator::GtEq => (Bound::Included(low), Bound::Unbounded),
        _ => return None,
    };
    Some(Filter { column: place, from, to })
}

/// The decimals beside a floating-point number, with which SQL compares a decimal written out in a query (`0.05`): a unit further than they
/// need be, and further still for numbers of more digits than floating point has.
fn around(value: f64) -> Option<(ScalarValue, ScalarValue)> {
    let (digits, decimals) = arrow::DECIMAL;
    let scaled = value * 10_f64.powi(decimals.into());
    let margin = 1.0 + scaled.abs() * f64::EPSILON * 4.0;
    // So far `as` gives the whole number itself.
    if scaled.is_nan() || scaled.abs() >= 1e30 {
        return None;
    }
    let decimal = |number: f64| ScalarValue::Decimal128(Some(number as i128), digits, decimals);
    Some((decimal((scaled - margin).floor()), decimal((scaled + margin).ceil())))
}

/// The constant as CQL writes it, if it is of the column's own type.
fn serialized(ty: &::schema::CqlType, value: &ScalarValue) -> Option<Bytes> {
    let wanted = arrow::arrow_type(ty);
    let is_text = |ty: &DataType| matches!(ty, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    let array = if wanted != value.data_type() && is_text(&wanted) && is_text(&value.data_type()) {
        value.cast_to(&wanted).ok()?.to_array().ok()?
    } else {
        value.to_array().ok()?
    };
    arrow::serialized(ty, &array, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::prelude::{col, lit};

    #[test]
    fn a_decimal_compared_as_floating_point_is_bounded_beside_it() {
        let def = engine::VirtualTable::new("k", "t", 1, 0, &[("price", CqlType::Decimal)], Vec::new).def;
        let cast = datafusion::prelude::cast(col("price"), DataType::Float64);
        let found = filter(&def, &cast.clone().between(lit(0.05), lit(0.07))).expect("of use");
        let decimal = |millionths| {
            let value = ScalarValue::Decimal128(Some(millionths), arrow::DECIMAL.0, arrow::DECIMAL.1);
            Bound::Included(serialized(&CqlType::Decimal, &value).expect("a decimal"))
        };
        // A unit below 0.05, or two: 0.05 times a million need not be whole in floating point.
        assert!([49_998, 49_999].map(decimal).contains(&found.from), "{found:?}");
        assert!([70_001, 70_002].map(decimal).contains(&found.to), "{found:?}");
        assert_eq!(filter(&def, &cast.clone().lt(lit(f64::NAN))), None);
        assert_eq!(filter(&def, &cast.lt(lit(1e300))), None);
    }

    fn check(condition: Expr, expected: Option<(usize, Bound<i32>, Bound<i32>)>) {
        let columns = [("id", CqlType::Int), ("price", CqlType::Int), ("name", CqlType::Text)];
        let def = engine::VirtualTable::new("k", "t", 1, 0, &columns, Vec::new).def;
        let bytes = |bound: Bound<i32>| bound.map(|value| Bytes::copy_from_slice(&value.to_be_bytes()));
        let expected = expected.map(|(column, from, to)| Filter { column, from: bytes(from), to: bytes(to) });
        assert_eq!(filter(&def, &condition), expected, "{condition}");
    }

    #[test]
    fn comparisons_with_constants_are_used() {
        use Bound::{Excluded, Included, Unbounded};
        check(col("id").eq(lit(7)), Some((0, Included(7), Included(7))));
        check(lit(7).eq(col("id")), Some((0, Included(7), Included(7))));
        check(col("price").lt(lit(7)), Some((1, Unbounded, Excluded(7))));
        check(lit(7).lt(col("price")), Some((1, Excluded(7), Unbounded)));
        check(col("price").between(lit(1), lit(2)), Some((1, Included(1), Included(2))));
        check(col("price").not_between(lit(1), lit(2)), None);
        check(col("price").not_eq(lit(7)), None);
        check(col("price").eq(lit(7_i64)), None);
        check(col("price").eq(lit(ScalarValue::Int32(None))), None);
        check(col("price").eq(col("id")), None);
        check(col("price").eq(lit(1)).or(col("price").eq(lit(2))), None);
    }
}
