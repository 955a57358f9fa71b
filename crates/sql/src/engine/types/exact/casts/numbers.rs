//! Conversions of numbers, rounded and checked as in PostgreSQL.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, StringArray};
use datafusion::arrow::compute::{CastOptions, cast, cast_with_options};
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Float64Type};
use datafusion::error::Result;

use crate::engine::types::exact::decimals::rounded_quotient;
use crate::engine::types::exact::type_names::{refused, type_name};
use crate::failure::{refusal, state};

/// Converts decimals of the scale `scale` to the nearest numbers. Small values are divided by an
/// exact power of ten, others parsed from text.
pub(super) fn floats_of_decimals(column: &ArrayRef, scale: i8, to: &DataType) -> Result<ArrayRef> {
    let power = 10_f64.powi(i32::from(scale));
    let is_exact = (0..=22).contains(&scale);
    let texts = cast(column, &DataType::Utf8)?;
    let texts = texts.as_string::<i32>();
    let decimals = column.as_primitive::<Decimal128Type>().iter().enumerate();
    let one = |row: usize, value: i128| match value.unsigned_abs() < 1 << 53 && is_exact {
        true => value as f64 / power,
        false => texts.value(row).parse().unwrap_or(f64::NAN),
    };
    let floats: Float64Array = decimals.map(|(row, value)| value.map(|value| one(row, value))).collect();
    converted_float(&floats, to)
}

/// Converts floating point of 64 bits to one of the types of floating point.
///
/// # Errors
/// As [`narrowed`].
pub(super) fn converted_float(values: &Float64Array, to: &DataType) -> Result<ArrayRef> {
    if *to == DataType::Float32 { narrowed(values) } else { Ok(Arc::new(values.clone())) }
}

/// Converts floating point of 64 bits to 32 bits.
///
/// # Errors
/// A value is too large or too small.
pub(super) fn narrowed(floats: &Float64Array) -> Result<ArrayRef> {
    let overflows = |value: f64| value.is_finite() && (value as f32).is_infinite();
    let underflows = |value: f64| value != 0.0 && (value as f32) == 0.0;
    if floats.iter().flatten().any(overflows) {
        return refused(state::RANGE, "value out of range: overflow");
    }
    if floats.iter().flatten().any(underflows) {
        return refused(state::RANGE, "value out of range: underflow");
    }
    Ok(cast(floats, &DataType::Float32)?)
}

/// Rounds floating point half to even.
pub(super) fn ints_of_floats(column: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    let floats = cast(column, &DataType::Float64)?;
    let floats = floats.as_primitive::<Float64Type>().iter();
    let one = |value: f64| {
        let value = value.round_ties_even();
        // 2^63 is out of range, and exact in floating point.
        let fits = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&value);
        if fits { Ok(value as i64) } else { refused(state::RANGE, out_of_range(to)) }
    };
    let whole: Result<Int64Array> = floats.map(|value| value.map(one).transpose()).collect();
    converted_int(&(Arc::new(whole?) as ArrayRef), to)
}

/// Rounds decimals of the scale `scale` half away from zero.
pub(super) fn ints_of_decimals(column: &ArrayRef, scale: i8, to: &DataType) -> Result<ArrayRef> {
    let divisor = 10_i128.pow(u32::try_from(scale).unwrap_or(0));
    let one = |value: i128| {
        let whole = rounded_quotient(value, divisor);
        i64::try_from(whole).or_else(|_| refused(state::RANGE, out_of_range(to)))
    };
    let decimals = column.as_primitive::<Decimal128Type>().iter();
    let whole: Result<Int64Array> = decimals.map(|value| value.map(one).transpose()).collect();
    converted_int(&(Arc::new(whole?) as ArrayRef), to)
}

/// Changes the scale of a decimal from `scale` to `wanted`, and rounds half away from zero.
///
/// # Errors
/// The result has more than `digits` digits.
pub(super) fn rescaled(value: i128, scale: i8, digits: u8, wanted: i8) -> Result<i128> {
    let power = |by: i8| 10_i128.checked_pow(u32::try_from(by).unwrap_or(0));
    let rescaled = if wanted >= scale {
        power(wanted - scale).and_then(|power| value.checked_mul(power))
    } else {
        power(scale - wanted).map(|power| rounded_quotient(value, power))
    };
    let fits = |value: &i128| value.unsigned_abs() < 10_u128.pow(digits.into());
    rescaled.filter(fits).ok_or_else(|| refusal(state::RANGE, "numeric field overflow"))
}

/// Converts whole numbers to another type of whole numbers, or to decimals.
pub(super) fn converted_int(column: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(column, to, &options).map_err(|_| match to {
        DataType::Decimal128(..) => refusal(state::RANGE, "numeric field overflow"),
        to => refusal(state::RANGE, out_of_range(to)),
    })
}

fn out_of_range(to: &DataType) -> String {
    format!("{} out of range", type_name(to))
}

/// Returns floating point as text with the significant digits that PostgreSQL's cast to `numeric`
/// keeps: 15, or 6 for `real`.
pub(super) fn float_digits(column: &ArrayRef) -> Result<ArrayRef> {
    let places = if *column.data_type() == DataType::Float32 { 5 } else { 14 };
    let floats = cast(column, &DataType::Float64)?;
    let text = |value: f64| format!("{value:.places$e}");
    let texts = floats.as_primitive::<Float64Type>().iter().map(|value| value.map(text));
    Ok(Arc::new(texts.collect::<StringArray>()))
}
