//! Conditions of a query that can be pushed down to a scan: columns compared with constants. The
//! scan may skip rows that cannot match. DataFusion checks the conditions again on the returned
//! rows, so this affects only speed.

use std::ops::Bound;

use ::schema::{CqlType, TableDef};
use bytes::Bytes;
use datafusion::arrow::datatypes::DataType;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{Between, BinaryExpr, Expr, Operator};
use datafusion::scalar::ScalarValue;
use engine::scan::{Filter, arrow, columns_of};

/// Microseconds in a day.
const DAY_US: i64 = 86_400_000_000;
/// Maximum number of alternations of AND and OR in a condition. Deeper parts are ignored.
const DEPTH_MAX: u32 = 16;

/// Returns filters that all hold for every row that the condition selects. Empty if no part of the
/// condition can be pushed down.
pub(crate) fn filters(def: &TableDef, condition: &Expr) -> Vec<Filter> {
    nested(def, condition, DEPTH_MAX)
}

fn nested(def: &TableDef, condition: &Expr, depth: u32) -> Vec<Filter> {
    let Expr::BinaryExpr(BinaryExpr { op: op @ (Operator::And | Operator::Or), .. }) = condition else {
        return filter(def, condition).into_iter().collect();
    };
    if depth == 0 {
        return Vec::new();
    }
    let parts = operands(condition, *op).into_iter().map(|part| nested(def, part, depth - 1));
    if *op == Operator::And { parts.flatten().collect() } else { any_of(def, parts) }
}

/// Returns the operands of a chain of ANDs or ORs. A loop, because a chain may be a tree thousands
/// of levels deep.
fn operands(condition: &Expr, chain: Operator) -> Vec<&Expr> {
    let (mut found, mut left) = (Vec::new(), vec![condition]);
    while let Some(part) = left.pop() {
        match part {
            Expr::BinaryExpr(BinaryExpr { left: one, op, right: other }) if *op == chain => {
                left.extend([&**other, &**one]);
            }
            _ => found.push(part),
        }
    }
    found
}

fn filter(def: &TableDef, condition: &Expr) -> Option<Filter> {
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
        Expr::InList(InList { expr, list, negated: false }) => {
            let values = list.iter().map(|one| match one {
                Expr::Literal(value, _) => Some(value),
                _ => None,
            });
            one_of(def, column(expr)?, values)
        }
        _ => None,
    }
}

/// Returns the filter for a column that equals one of the `values`. `None` if no filter can
/// express it, or if one of the values is `None`, which means that it is not a constant.
pub(crate) fn one_of<'v>(
    def: &TableDef,
    name: &str,
    values: impl Iterator<Item = Option<&'v ScalarValue>>,
) -> Option<Filter> {
    let mut all: Option<Filter> = None;
    for value in values {
        // No value equals null.
        let Some(value) = Some(value?).filter(|value| !value.is_null()) else { continue };
        let one = compared(def, name, Operator::Eq, value)?;
        let ty = &columns_of(def)[one.column].ty;
        all = Some(match all {
            Some(all) => all.or(one, ty)?,
            None => one,
        });
    }
    all
}

/// Returns filters for rows that meet all filters of at least one part. For each column that every
/// part bounds, they contain the union of the bounds.
pub(crate) fn any_of(def: &TableDef, parts: impl Iterator<Item = Vec<Filter>>) -> Vec<Filter> {
    parts.reduce(|one, other| either(def, one, &other)).unwrap_or_default()
}

fn either(def: &TableDef, one: Vec<Filter>, other: &[Filter]) -> Vec<Filter> {
    let wider = |one: Filter| {
        let other = other.iter().find(|other| other.column == one.column)?.clone();
        let ty = &columns_of(def)[one.column].ty;
        one.or(other, ty)
    };
    one.into_iter().filter_map(wider).collect()
}

/// Returns the name of a column, or of a column cast to another type.
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

/// Returns the filter for a column compared with a constant.
pub(crate) fn compared(def: &TableDef, name: &str, op: Operator, value: &ScalarValue) -> Option<Filter> {
    let (place, column) = columns_of(def).iter().enumerate().find(|(_, column)| column.name == name)?;
    let ty = &column.ty;
    let (low, high, is_exact) = match (ty.thawed(), value) {
        (CqlType::Decimal, ScalarValue::Float64(Some(value))) => {
            let (low, high) = around(*value)?;
            let is_exact = low == high;
            (low, high, is_exact)
        }
        // A date compared with a timestamp: bounded by the day of the timestamp, inclusive.
        (CqlType::Date, ScalarValue::TimestampMicrosecond(Some(value), None)) => {
            let day = ScalarValue::Date32(i32::try_from(value.div_euclid(DAY_US)).ok());
            (day.clone(), day, false)
        }
        _ => (value.clone(), value.clone(), true),
    };
    let (low, high) = (serialized(ty, &low)?, serialized(ty, &high)?);
    if op != Operator::Eq && !arrow::keeps_order(ty) {
        return None;
    }
    let (from, to) = match op {
        Operator::Eq if is_exact => return Some(Filter::equal(place, low)),
        Operator::Eq => (Bound::Included(low), Bound::Included(high)),
        Operator::Lt if is_exact => (Bound::Unbounded, Bound::Excluded(high)),
        Operator::Gt if is_exact => (Bound::Excluded(low), Bound::Unbounded),
        Operator::Lt | Operator::LtEq => (Bound::Unbounded, Bound::Included(high)),
        Operator::Gt | Operator::GtEq => (Bound::Included(low), Bound::Unbounded),
        _ => return None,
    };
    Some(Filter::between(place, from, to))
}

/// Returns decimals below and above a floating-point number. DataFusion compares decimals with a
/// number in a query (`0.05`) in floating point. The margin is one unit of the last place, plus
/// the rounding error of the number.
fn around(value: f64) -> Option<(ScalarValue, ScalarValue)> {
    let scaled = value * 10_f64.powi(arrow::SCALE_DEFAULT.into());
    let margin = 1.0 + scaled.abs() * f64::EPSILON * 4.0;
    // Up to this size the cast to `i128` does not saturate.
    if scaled.is_nan() || scaled.abs() >= 1e30 {
        return None;
    }
    let decimal =
        |number: f64| ScalarValue::Decimal128(Some(number as i128), arrow::DIGITS, arrow::SCALE_DEFAULT);
    Some((decimal((scaled - margin).floor()), decimal((scaled + margin).ceil())))
}

/// Returns the constant in CQL's serialized form, if it has the column's type.
fn serialized(ty: &::schema::CqlType, value: &ScalarValue) -> Option<Bytes> {
    let wanted = arrow::arrow_type(ty, arrow::SCALE_DEFAULT);
    let is_text = |ty: &DataType| matches!(ty, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    // The time zone affects only the text form of a point in time.
    let is_point = |ty: &DataType| matches!(ty, DataType::Timestamp(_, Some(_)));
    let given = value.data_type();
    let is_alike = (is_text(&wanted) && is_text(&given)) || (is_point(&wanted) && is_point(&given));
    let array = if wanted != given && is_alike {
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
    fn float_bounds_of_decimals_have_a_margin() {
        let def = engine::VirtualTable::new("k", "t", 1, 0, &[("price", CqlType::Decimal)], Vec::new).def;
        let cast = datafusion::prelude::cast(col("price"), DataType::Float64);
        let found = filter(&def, &cast.clone().between(lit(0.05), lit(0.07))).expect("of use");
        let decimal = |millionths| {
            let value = ScalarValue::Decimal128(Some(millionths), arrow::DIGITS, arrow::SCALE_DEFAULT);
            Bound::Included(serialized(&CqlType::Decimal, &value).expect("a decimal"))
        };
        // One unit below 0.05, or two: in floating point, 0.05 times a million may not be an
        // integer.
        assert!([49_998, 49_999].map(decimal).contains(&found.from), "{found:?}");
        assert!([70_001, 70_002].map(decimal).contains(&found.to), "{found:?}");
        assert_eq!(filter(&def, &cast.clone().lt(lit(f64::NAN))), None);
        assert_eq!(filter(&def, &cast.lt(lit(1e300))), None);
    }

    #[test]
    fn timestamp_bounds_a_date_by_its_day() {
        let def = engine::VirtualTable::new("k", "t", 1, 0, &[("day", CqlType::Date)], Vec::new).def;
        let noon = ScalarValue::TimestampMicrosecond(Some(DAY_US * 3 / 2), None);
        let day = serialized(&CqlType::Date, &ScalarValue::Date32(Some(1))).expect("a day");
        let cast = datafusion::prelude::cast(col("day"), noon.data_type());
        let found = |condition: &Expr| filter(&def, condition).expect("of use");
        let noon = || Expr::Literal(noon.clone(), None);
        assert_eq!(found(&cast.clone().lt(noon())).to, Bound::Included(day.clone()));
        assert_eq!(found(&cast.gt(noon())).from, Bound::Included(day));
    }

    fn def() -> std::sync::Arc<TableDef> {
        let columns = [("id", CqlType::Int), ("price", CqlType::Int), ("name", CqlType::Text)];
        engine::VirtualTable::new("k", "t", 1, 0, &columns, Vec::new).def
    }

    fn bytes(value: i32) -> Bytes {
        Bytes::copy_from_slice(&value.to_be_bytes())
    }

    fn check(condition: Expr, expected: &[Filter]) {
        assert_eq!(filters(&def(), &condition), expected, "{condition}");
    }

    fn between(column: usize, from: Bound<i32>, to: Bound<i32>) -> Filter {
        Filter::between(column, from.map(bytes), to.map(bytes))
    }

    fn listed(column: usize, from: i32, to: i32, values: &[i32]) -> Filter {
        let values = Some(values.iter().copied().map(bytes).collect());
        Filter { values, ..between(column, Bound::Included(from), Bound::Included(to)) }
    }

    #[test]
    fn comparisons_with_constants_become_filters() {
        use Bound::{Excluded, Included, Unbounded};
        check(col("id").eq(lit(7)), &[Filter::equal(0, bytes(7))]);
        check(lit(7).eq(col("id")), &[Filter::equal(0, bytes(7))]);
        check(col("price").lt(lit(7)), &[between(1, Unbounded, Excluded(7))]);
        check(lit(7).lt(col("price")), &[between(1, Excluded(7), Unbounded)]);
        check(col("price").between(lit(1), lit(2)), &[between(1, Included(1), Included(2))]);
        check(col("price").not_between(lit(1), lit(2)), &[]);
        check(col("price").not_eq(lit(7)), &[]);
        check(col("price").eq(lit(7_i64)), &[]);
        check(col("price").eq(lit(ScalarValue::Int32(None))), &[]);
        check(col("price").eq(col("id")), &[]);
    }

    #[test]
    fn lists_and_alternatives_become_filters() {
        use Bound::{Included, Unbounded};
        let (id, price) = (|value| col("id").eq(lit(value)), |value| col("price").eq(lit(value)));
        check(col("id").in_list(vec![lit(9), lit(3), lit(7)], false), &[listed(0, 3, 9, &[9, 3, 7])]);
        let null = lit(ScalarValue::Int32(None));
        check(col("id").in_list(vec![null.clone(), lit(3)], false), &[Filter::equal(0, bytes(3))]);
        check(col("id").in_list(vec![null], false), &[]);
        check(col("id").in_list(vec![lit(3), lit(4)], true), &[]);
        check(col("id").in_list(vec![lit(3), col("price")], false), &[]);
        check(price(2).or(price(1)), &[listed(1, 1, 2, &[2, 1])]);
        check(id(2).or(price(1)), &[]);
        check(price(5).or(col("price").gt(lit(7))), &[between(1, Included(5), Unbounded)]);
        check(col("price").lt(lit(5)).or(col("price").gt(lit(7))), &[]);
        // Both filters hold for every selected row.
        let both = (id(1).and(price(5))).or(price(6).and(id(2)).and(col("price").lt(lit(9))));
        check(both, &[listed(0, 1, 2, &[1, 2]), listed(1, 5, 6, &[5, 6])]);
        check(id(1).and(price(5).or(price(6))), &[Filter::equal(0, bytes(1)), listed(1, 5, 6, &[5, 6])]);
        // A long chain counts as one level.
        let many: Vec<i32> = (0..10_000).collect();
        let chain = many.iter().map(|value| id(*value)).reduce(Expr::or).expect("some");
        assert_eq!(filters(&def(), &chain), [listed(0, 0, 9_999, &many)]);
        // Dropping so deep a tree would overflow the stack.
        std::mem::forget(chain);
    }
}
