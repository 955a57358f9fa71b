//! Casts whose result in PostgreSQL differs from Arrow's:
//!
//! - Numbers are rounded: `numeric` half away from zero, floating point half to even.
//! - Texts may have blanks around a value, but nothing else.
//! - Text forms of floating point and of times are PostgreSQL's.
//! - Values out of range cause PostgreSQL's errors.

mod numbers;
mod points;
mod texts;
mod zones;

pub(crate) use points::plain_interval;

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Decimal128Array, FixedSizeListArray, LargeListArray, ListArray, StringArray,
};
use datafusion::arrow::compute::{CastOptions, cast, cast_with_options};
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Field, FieldRef};
use datafusion::error::Result;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;

use crate::engine::limits::call_names::{CallKey, call_name};
use crate::engine::types::exact::casts::numbers::rescaled;
use crate::engine::types::exact::decimals::{DIGITS_MAX, decimal_of, too_long};
use crate::engine::types::exact::type_names::{is_int, is_text, list_of, refused, type_name};
use crate::engine::types::text_form;
use crate::failure::{Failure, state};

/// Placeholder in plans for `numeric` without precision: a value keeps its scale.
pub(crate) const UNCONSTRAINED: DataType = DataType::Decimal128(DIGITS_MAX, 37);
/// Scale of a `numeric` without precision whose value is unknown at planning.
const UNKNOWN_SCALE: i8 = 18;

/// The function for a cast to a type.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Convert {
    to: FieldRef,
    signature: Signature,
    key: CallKey,
}

impl ScalarUDFImpl for Convert {
    fn name(&self) -> &'static str {
        "cast"
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        call_name(self.name(), self.key, args)
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(self.to.data_type().clone())
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> Result<FieldRef> {
        let is_nullable = arguments.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new("cast", self.to.data_type().clone(), is_nullable)))
    }

    /// Returns bounds of the result's type, which interval arithmetic of the caller expects.
    fn evaluate_bounds(&self, _inputs: &[&Interval]) -> Result<Interval> {
        Interval::make_unbounded(self.to.data_type())
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let to = self.to.data_type();
        match &call.args[0] {
            ColumnarValue::Array(array) => Ok(ColumnarValue::Array(converted(array, to)?)),
            ColumnarValue::Scalar(scalar) => {
                let array = converted(&scalar.to_array()?, to)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?))
            }
        }
    }
}

/// Returns the cast of an expression with the type `from`.
///
/// # Errors
/// PostgreSQL lacks the cast.
pub(crate) fn planned(expr: Expr, from: &DataType, to: &FieldRef) -> Result<Expr> {
    let (from, target) = (from.clone(), to.data_type().clone());
    let target = match target {
        UNCONSTRAINED => unconstrained(&expr, &from)?,
        DataType::List(item) if *item.data_type() == UNCONSTRAINED => {
            list_of(&unconstrained_items(&expr, &from)?)
        }
        other => other,
    };
    if from == target {
        return Ok(expr);
    }
    let refuses = match (&from, &target) {
        (DataType::Boolean, to) => !matches!(to, DataType::Int32 | DataType::Null) && !is_text(to),
        (from, DataType::Boolean) => !matches!(from, DataType::Int32 | DataType::Null) && !is_text(from),
        _ => false,
    };
    if refuses {
        let types = format!("cannot cast type {} to {}", type_name(&from), type_name(&target));
        return refused("42846", types);
    }
    Ok(match is_replaced(&from, &target) {
        true => convert(expr, &target),
        false => Expr::Cast(datafusion::logical_expr::Cast::new(Box::new(expr), target)),
    })
}

/// Returns the cast of an expression by the function of this file.
pub(crate) fn convert(expr: Expr, to: &DataType) -> Expr {
    let signature = Signature::any(1, Volatility::Immutable);
    let to = Arc::new(Field::new("cast", to.clone(), true));
    let key = CallKey::of(&[&expr]);
    ScalarUDF::new_from_impl(Convert { to, signature, key }).call(vec![expr])
}

/// Converts an expression to a type that contains all its values.
pub(crate) fn as_type(expr: Expr, from: &DataType, to: &DataType) -> Expr {
    match (expr, from == to) {
        (expr, true) => expr,
        (expr, false) if from.is_decimal() && to.is_floating() => convert(expr, to),
        (expr, false) if is_local(from) && matches!(to, DataType::Timestamp(_, Some(_))) => convert(expr, to),
        (Expr::Literal(value, metadata), false) => match value.cast_to(to) {
            Ok(value) => Expr::Literal(value, metadata),
            Err(_) => Expr::Cast(datafusion::logical_expr::Cast::new(
                Box::new(Expr::Literal(value, metadata)),
                to.clone(),
            )),
        },
        (expr, false) => Expr::Cast(datafusion::logical_expr::Cast::new(Box::new(expr), to.clone())),
    }
}

/// True for dates, and for times without time zone.
fn is_local(ty: &DataType) -> bool {
    matches!(ty, DataType::Date32 | DataType::Timestamp(_, None))
}

/// Returns the cast of an expression. Converts constants at once, so that an invalid constant is
/// an error even if its value is never used.
///
/// # Errors
/// The constant has no value in the type.
pub(crate) fn convert_now(expr: Expr, to: &DataType) -> Result<Expr> {
    match expr {
        Expr::Literal(value, metadata) => {
            let array = converted(&value.to_array()?, to)?;
            Ok(Expr::Literal(ScalarValue::try_from_array(&array, 0)?, metadata))
        }
        expr => Ok(convert(expr, to)),
    }
}

/// True if the function of this file replaces a cast. Arrow's results of all other casts are those
/// of PostgreSQL.
fn is_replaced(from: &DataType, to: &DataType) -> bool {
    let is_float = |ty: &DataType| matches!(ty, DataType::Float32 | DataType::Float64);
    let is_decimal = |ty: &DataType| matches!(ty, DataType::Decimal128(..));
    match (from, to) {
        (DataType::Null, _) => false,
        (from, to) if is_text(from) => {
            !is_text(to) && !matches!(to, DataType::LargeBinary | DataType::BinaryView)
        }
        (from, to) if is_text(to) => !is_int(from) && !is_decimal(from),
        (from, to) if is_float(from) => is_int(to) || is_decimal(to) || *to == DataType::Float32,
        (from, to) if is_decimal(from) => is_int(to) || is_decimal(to) || is_float(to),
        (
            DataType::Timestamp(_, Some(_)),
            DataType::Timestamp(_, None) | DataType::Time64(_) | DataType::Date32,
        ) => true,
        (from, DataType::Timestamp(_, Some(_))) if is_local(from) => true,
        (from, to) if is_int(from) && is_int(to) => {
            to.primitive_width().unwrap_or(0) < from.primitive_width().unwrap_or(0)
                || from.is_unsigned_integer()
        }
        (from, to) if is_int(from) => is_decimal(to),
        (
            DataType::List(from) | DataType::LargeList(from) | DataType::FixedSizeList(from, _),
            DataType::List(to),
        ) => is_replaced(from.data_type(), to.data_type()),
        _ => false,
    }
}

/// Returns the type of a value cast to `numeric` without precision.
fn unconstrained(expr: &Expr, from: &DataType) -> Result<DataType> {
    match expr {
        Expr::Literal(value, _) if is_text(from) => match value.try_as_str().flatten() {
            Some(text) => match texts::decimal(text.trim()) {
                Some((value, scale)) => {
                    let digits = u8::try_from(value.unsigned_abs().checked_ilog10().unwrap_or(0) + 1)
                        .unwrap_or(DIGITS_MAX);
                    Ok(DataType::Decimal128(digits.max(scale.unsigned_abs()).max(1), scale))
                }
                None if texts::is_number(text.trim()) => refused(state::UNSUPPORTED, too_long()),
                None => refused(state::TEXT, invalid("numeric", text)),
            },
            None => Ok(DataType::Decimal128(DIGITS_MAX, 0)),
        },
        _ if is_int(from) || matches!(from, DataType::Decimal128(..)) => Ok(decimal_of(from)),
        _ => Ok(DataType::Decimal128(DIGITS_MAX, UNKNOWN_SCALE)),
    }
}

/// Returns the type of the elements of an array cast to `numeric[]`: all have one scale.
fn unconstrained_items(expr: &Expr, from: &DataType) -> Result<DataType> {
    let scale = match (expr, from) {
        (Expr::Literal(value, _), from) if is_text(from) => {
            let items = value.try_as_str().flatten().map(texts::list_items).transpose()?.unwrap_or_default();
            let scales = items.iter().flatten().filter_map(|item| texts::decimal(item.trim()));
            scales.map(|(_, scale)| scale).max().unwrap_or(0)
        }
        (_, DataType::List(item)) if is_int(item.data_type()) => 0,
        (_, DataType::List(item)) => match item.data_type() {
            DataType::Decimal128(_, scale) => *scale,
            _ => UNKNOWN_SCALE,
        },
        _ => UNKNOWN_SCALE,
    };
    Ok(DataType::Decimal128(DIGITS_MAX, scale))
}

/// Returns the elements of an array's text.
///
/// # Errors
/// The text is no array of one dimension.
pub(crate) fn items_of(text: &str) -> Result<Vec<Option<String>>, Failure> {
    Ok(texts::list_items(text)?)
}

fn invalid(ty: &str, text: &str) -> String {
    format!("invalid input syntax for type {ty}: \"{text}\"")
}

/// Converts a column.
///
/// # Errors
/// A value cannot be represented in the type.
pub(crate) fn converted(column: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    match (column.data_type(), to) {
        (from, to) if is_text(from) => texts::parsed(column, to),
        (DataType::Boolean, to) if is_text(to) => {
            let words = |value| if value { "true" } else { "false" };
            let texts = column.as_boolean().iter().map(|value| value.map(words));
            Ok(cast(&(Arc::new(texts.collect::<StringArray>()) as ArrayRef), to)?)
        }
        (_, to) if is_text(to) => Ok(cast(&(Arc::new(text_form::texts(column)?) as ArrayRef), to)?),
        (DataType::Decimal128(_, scale), DataType::Float32 | DataType::Float64) => {
            numbers::floats_of_decimals(column, *scale, to)
        }
        (
            DataType::Timestamp(_, Some(zone)),
            DataType::Timestamp(_, None) | DataType::Time64(_) | DataType::Date32,
        ) => zones::local_times(column, zone, to),
        (from, DataType::Timestamp(_, Some(zone))) if is_local(from) => zones::points(column, zone, to),
        (DataType::Float32 | DataType::Float64, DataType::Decimal128(..)) => {
            texts::parsed(&numbers::float_digits(column)?, to)
        }
        (DataType::Float32 | DataType::Float64, to) if is_int(to) => numbers::ints_of_floats(column, to),
        (DataType::Float64, DataType::Float32) => numbers::narrowed(column.as_primitive()),
        (DataType::Decimal128(_, scale), to) if is_int(to) => numbers::ints_of_decimals(column, *scale, to),
        (DataType::Decimal128(_, scale), DataType::Decimal128(digits, wanted)) => {
            let decimals = column.as_primitive::<Decimal128Type>().iter();
            let one = |value: i128| rescaled(value, *scale, *digits, *wanted);
            let decimals: Result<Decimal128Array> =
                decimals.map(|value| value.map(one).transpose()).collect();
            Ok(Arc::new(decimals?.with_data_type(to.clone())))
        }
        (DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..), DataType::List(item)) => {
            elements(column, item)
        }
        (from, to) if is_int(from) => numbers::converted_int(column, to),
        _ => Ok(cast_with_options(column, to, &CastOptions { safe: false, ..CastOptions::default() })?),
    }
}

fn elements(column: &ArrayRef, item: &FieldRef) -> Result<ArrayRef> {
    let to = item.data_type();
    Ok(match column.data_type() {
        DataType::List(_) => {
            let (_, offsets, values, nulls) = column.as_list::<i32>().clone().into_parts();
            Arc::new(ListArray::try_new(item.clone(), offsets, converted(&values, to)?, nulls)?)
        }
        DataType::LargeList(_) => {
            let (_, offsets, values, nulls) = column.as_list::<i64>().clone().into_parts();
            let lists: ArrayRef =
                Arc::new(LargeListArray::try_new(item.clone(), offsets, converted(&values, to)?, nulls)?);
            cast(&lists, &DataType::List(item.clone()))?
        }
        _ => {
            let (_, size, values, nulls) = column.as_fixed_size_list().clone().into_parts();
            let lists: ArrayRef =
                Arc::new(FixedSizeListArray::try_new(item.clone(), size, converted(&values, to)?, nulls)?);
            cast(&lists, &DataType::List(item.clone()))?
        }
    })
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::Float64Array;
    use datafusion::arrow::datatypes::TimeUnit;

    use super::*;

    #[track_caller]
    fn check(from: ArrayRef, to: DataType, expected: Result<&str, &str>) {
        let found =
            converted(&from, &to).and_then(|column| Ok(text_form::texts(&column)?.value(0).to_owned()));
        match (found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected),
            (Err(found), Err(code)) => assert_eq!(crate::failure::Failure::from(found).code, code),
            (found, _) => panic!("{found:?}"),
        }
    }

    fn text(text: &str) -> ArrayRef {
        Arc::new(StringArray::from(vec![text]))
    }

    fn float(value: f64) -> ArrayRef {
        Arc::new(Float64Array::from(vec![value]))
    }

    #[test]
    fn texts_are_converted_to_integers_or_refused() {
        check(text(" 12 "), DataType::Int32, Ok("12"));
        check(text("+12"), DataType::Int32, Ok("12"));
        check(text("1.5"), DataType::Int32, Err(state::TEXT));
        check(text(""), DataType::Int64, Err(state::TEXT));
        check(text("99999999999"), DataType::Int32, Err(state::RANGE));
        check(text("9223372036854775808"), DataType::Int64, Err(state::RANGE));
    }

    #[test]
    fn rounding_matches_postgres() {
        check(float(2.5), DataType::Int32, Ok("2"));
        check(float(3.5), DataType::Int32, Ok("4"));
        check(float(1e10), DataType::Int32, Err(state::RANGE));
        check(float(9.3e18), DataType::Int64, Err(state::RANGE));
        check(float(f64::NAN), DataType::Int64, Err(state::RANGE));
        check(float(1.005), DataType::Decimal128(10, 2), Ok("1.01"));
        check(float(1e40), DataType::Float32, Err(state::RANGE));
        let decimal = |value, scale| -> ArrayRef {
            Arc::new(
                Decimal128Array::from(vec![value]).with_precision_and_scale(38, scale).expect("a decimal"),
            )
        };
        check(decimal(25, 1), DataType::Int32, Ok("3"));
        check(decimal(-25, 1), DataType::Int32, Ok("-3"));
        check(decimal(1239, 3), DataType::Decimal128(5, 2), Ok("1.24"));
        check(decimal(12345, 1), DataType::Decimal128(5, 2), Err(state::RANGE));
    }

    #[test]
    fn texts_are_converted_to_decimals_or_refused() {
        check(text(" -1.505e1 "), DataType::Decimal128(10, 2), Ok("-15.05"));
        check(text("1e-3"), DataType::Decimal128(10, 3), Ok("0.001"));
        check(text("1.5x"), DataType::Decimal128(10, 2), Err(state::TEXT));
        check(text("NaN"), DataType::Decimal128(10, 2), Err(state::UNSUPPORTED));
        assert_eq!(texts::decimal("1.50"), Some((150, 2)));
        assert_eq!(texts::decimal("1e3"), Some((1000, 0)));
        assert_eq!(texts::decimal("1e39"), None);
    }

    #[test]
    fn texts_are_converted_to_other_types_or_refused() {
        check(text(" Tr "), DataType::Boolean, Ok("t"));
        check(text("o"), DataType::Boolean, Err(state::TEXT));
        check(text("1e400"), DataType::Float64, Err(state::RANGE));
        check(text("infinity"), DataType::Float64, Ok("Infinity"));
        check(text("abc"), DataType::Float64, Err(state::TEXT));
        let list = |ty| DataType::List(Arc::new(Field::new_list_field(ty, true)));
        check(text("{1, NULL,3}"), list(DataType::Int32), Ok("{1,NULL,3}"));
        check(text("{\"a,b\",c\\\"}"), list(DataType::Utf8), Ok("{\"a,b\",\"c\\\"\"}"));
        check(text("{1,}"), list(DataType::Int32), Err(state::TEXT));
        check(text("1"), list(DataType::Int32), Err(state::TEXT));
    }

    #[test]
    fn texts_are_converted_to_times_or_refused() {
        check(text("2024-1-5"), DataType::Date32, Ok("2024-01-05"));
        check(text("2024-02-30"), DataType::Date32, Err(state::TIME_RANGE));
        check(text("abc"), DataType::Date32, Err(state::TIME));
        let timestamp = DataType::Timestamp(TimeUnit::Microsecond, None);
        check(text("2024-01-31 10:20:30+02"), timestamp.clone(), Ok("2024-01-31 10:20:30"));
        check(text("nonsense"), timestamp, Err(state::TIME));
    }
}
