//! Formats values as PostgreSQL does in text: in results, in casts to text, and in concatenations.
//! Arrow's text differs for floating point (`2.0` for `2`), for times, and for arrays and rows.

use std::fmt::Write;

use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime, NaiveTime, Offset, TimeZone, Timelike};
use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float32Type, Float64Type, Int64Type, IntervalUnit, TimeUnit};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};

use crate::engine::types::interval;

/// Nanoseconds in a second.
const SECOND: i64 = 1_000_000_000;
/// Day number of 1970-01-01, where 0001-01-01 is 1.
const EPOCH_FROM_CE: i64 = 719_163;

/// Returns a column as texts, with its nulls.
///
/// # Errors
/// The type has no text form.
pub(crate) fn texts(column: &ArrayRef) -> Result<StringArray, ArrowError> {
    let writer = Writer::new(column)?;
    let mut text = String::new();
    let one = |row| {
        if is_null(column, row) {
            return Ok(None);
        }
        text.clear();
        writer.write(row, &mut text)?;
        Ok(Some(text.clone()))
    };
    (0..column.len()).map(one).collect()
}

/// Formats the values of one array.
pub(crate) struct Writer<'a>(ValueForm<'a>);

enum ValueForm<'a> {
    Boolean(&'a ArrayRef),
    Float32(&'a ArrayRef),
    Float64(&'a ArrayRef),
    /// Timestamps, and their zone.
    Timestamp(ArrayRef, Option<Tz>),
    /// Nanoseconds since midnight.
    Time(ArrayRef),
    Date(ArrayRef),
    Interval(&'a ArrayRef),
    /// Arrays. A writer is created for the elements of each.
    List(ArrayRef),
    Row(Vec<(Writer<'a>, ArrayRef)>),
    /// Arrow's text equals PostgreSQL's.
    Other(ArrayFormatter<'a>),
    Binary(ArrayRef),
    Null,
}

impl<'a> Writer<'a> {
    /// Creates a writer for a column.
    ///
    /// # Errors
    /// The type has no text form.
    pub(crate) fn new(column: &'a ArrayRef) -> Result<Writer<'a>, ArrowError> {
        let nanoseconds = |ty: &DataType| cast(&cast(column, ty)?, &DataType::Int64);
        Ok(Writer(match column.data_type() {
            DataType::Null => ValueForm::Null,
            DataType::Boolean => ValueForm::Boolean(column),
            DataType::Float32 => ValueForm::Float32(column),
            DataType::Float64 => ValueForm::Float64(column),
            DataType::Timestamp(_, zone) => {
                let zone = zone.as_ref().map(|zone| zone.parse()).transpose()?;
                ValueForm::Timestamp(column.clone(), zone)
            }
            DataType::Time32(_) | DataType::Time64(_) => {
                ValueForm::Time(nanoseconds(&DataType::Time64(TimeUnit::Nanosecond))?)
            }
            DataType::Date32 | DataType::Date64 => ValueForm::Date(
                cast(&cast(column, &DataType::Date32)?, &DataType::Int32)
                    .and_then(|days| cast(&days, &DataType::Int64))?,
            ),
            DataType::Interval(IntervalUnit::MonthDayNano) => ValueForm::Interval(column),
            DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_) => ValueForm::Binary(cast(column, &DataType::Binary)?),
            DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) => {
                ValueForm::List(column.clone())
            }
            DataType::Struct(_) => {
                let fields = column.as_struct().columns();
                let writers: Result<Vec<_>, ArrowError> =
                    fields.iter().map(|field| Ok((Writer::new(field)?, field.clone()))).collect();
                ValueForm::Row(writers?)
            }
            _ => ValueForm::Other(ArrayFormatter::try_new(column.as_ref(), &FormatOptions::new())?),
        }))
    }

    /// Appends the value of a row that is not null.
    ///
    /// # Errors
    /// The value has no text form.
    pub(crate) fn write(&self, row: usize, out: &mut String) -> Result<(), ArrowError> {
        match &self.0 {
            ValueForm::Null => {}
            ValueForm::Boolean(column) => out.push(if column.as_boolean().value(row) { 't' } else { 'f' }),
            ValueForm::Float32(column) => float32(column.as_primitive::<Float32Type>().value(row), out),
            ValueForm::Float64(column) => float64(column.as_primitive::<Float64Type>().value(row), out),
            ValueForm::Timestamp(column, zone) => timestamp(column, row, zone.as_ref(), out)?,
            ValueForm::Time(column) => time(column.as_primitive::<Int64Type>().value(row), out),
            ValueForm::Date(column) => {
                let days = column.as_primitive::<Int64Type>().value(row);
                let day =
                    i32::try_from(days + EPOCH_FROM_CE).ok().and_then(NaiveDate::from_num_days_from_ce_opt);
                date(day.ok_or_else(out_of_range)?, out);
            }
            ValueForm::Interval(column) => interval::write(column, row, out),
            ValueForm::Binary(column) => {
                out.push_str("\\x");
                for byte in column.as_binary::<i32>().value(row) {
                    let _ = write!(out, "{byte:02x}");
                }
            }
            ValueForm::List(lists) => {
                let items = match lists.data_type() {
                    DataType::List(_) => lists.as_list::<i32>().value(row),
                    DataType::LargeList(_) => lists.as_list::<i64>().value(row),
                    _ => lists.as_fixed_size_list().value(row),
                };
                array(&items, out)?;
            }
            ValueForm::Row(fields) => {
                out.push('(');
                let mut field = String::new();
                for (place, (writer, column)) in fields.iter().enumerate() {
                    if place > 0 {
                        out.push(',');
                    }
                    if !is_null(column, row) {
                        field.clear();
                        writer.write(row, &mut field)?;
                        quote_field(&field, out);
                    }
                }
                out.push(')');
            }
            ValueForm::Other(formatter) => {
                let _ = write!(out, "{}", formatter.value(row).try_to_string()?);
            }
        }
        Ok(())
    }
}

/// Returns true if a value is null. A column of type null has no validity bits.
fn is_null(column: &ArrayRef, row: usize) -> bool {
    *column.data_type() == DataType::Null || column.is_null(row)
}

fn out_of_range() -> ArrowError {
    ArrowError::ComputeError("timestamp out of range".to_owned())
}

/// Writes an array as `{1,NULL,"a b"}` (`array_out`).
fn array(items: &ArrayRef, out: &mut String) -> Result<(), ArrowError> {
    let writer = Writer::new(items)?;
    let is_nested = items.data_type().is_nested() && !matches!(items.data_type(), DataType::Struct(_));
    let mut text = String::new();
    out.push('{');
    for row in 0..items.len() {
        if row > 0 {
            out.push(',');
        }
        if is_null(items, row) {
            out.push_str("NULL");
            continue;
        }
        text.clear();
        writer.write(row, &mut text)?;
        if is_nested { out.push_str(&text) } else { quote_element(&text, out) }
    }
    out.push('}');
    Ok(())
}

fn quote_element(text: &str, out: &mut String) {
    let is_special = |c: char| matches!(c, '{' | '}' | ',' | '"' | '\\') || is_blank(c);
    if !text.is_empty() && !text.eq_ignore_ascii_case("null") && !text.contains(is_special) {
        return out.push_str(text);
    }
    out.push('"');
    for c in text.chars() {
        if matches!(c, '"' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
}

/// Writes a field of a row (`record_out`), where quotes and backslashes are doubled.
fn quote_field(text: &str, out: &mut String) {
    let is_special = |c: char| matches!(c, '(' | ')' | ',' | '"' | '\\') || is_blank(c);
    if !text.is_empty() && !text.contains(is_special) {
        return out.push_str(text);
    }
    out.push('"');
    for c in text.chars() {
        if matches!(c, '"' | '\\') {
            out.push(c);
        }
        out.push(c);
    }
    out.push('"');
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\u{b}' | '\u{c}')
}

fn date(day: NaiveDate, out: &mut String) {
    let (is_ad, year) = day.year_ce();
    let _ = write!(out, "{year:04}-{:02}-{:02}{}", day.month(), day.day(), if is_ad { "" } else { " BC" });
}

/// Writes nanoseconds since midnight, truncated to microseconds.
fn time(nanoseconds: i64, out: &mut String) {
    let seconds = nanoseconds / SECOND;
    let _ = write!(out, "{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    fraction(nanoseconds % SECOND, out);
}

fn fraction(nanoseconds: i64, out: &mut String) {
    let microseconds = nanoseconds / 1000;
    if microseconds != 0 {
        let _ = write!(out, ".{}", format!("{microseconds:06}").trim_end_matches('0'));
    }
}

fn timestamp(column: &ArrayRef, row: usize, zone: Option<&Tz>, out: &mut String) -> Result<(), ArrowError> {
    let DataType::Timestamp(unit, _) = column.data_type() else { return Err(out_of_range()) };
    let parts = match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => SECOND,
    };
    let value = cast(&column.slice(row, 1), &DataType::Int64)?.as_primitive::<Int64Type>().value(0);
    let nanoseconds = value.rem_euclid(parts) * (SECOND / parts);
    let point = u32::try_from(nanoseconds)
        .ok()
        .and_then(|nanoseconds| DateTime::from_timestamp(value.div_euclid(parts), nanoseconds));
    let utc: NaiveDateTime = point.ok_or_else(out_of_range)?.naive_utc();
    let offset = zone.map(|zone| zone.offset_from_utc_datetime(&utc).fix());
    let local = offset.map_or(utc, |offset| utc + offset);
    let (is_ad, year) = local.year_ce();
    let _ = write!(out, "{year:04}-{:02}-{:02} ", local.month(), local.day());
    time(of_day(local.time()), out);
    if let Some(offset) = offset {
        let seconds = offset.local_minus_utc();
        let all = seconds.unsigned_abs();
        let _ = write!(out, "{}{:02}", if seconds < 0 { '-' } else { '+' }, all / 3600);
        if all % 3600 != 0 {
            let _ = write!(out, ":{:02}", all / 60 % 60);
        }
        if all % 60 != 0 {
            let _ = write!(out, ":{:02}", all % 60);
        }
    }
    if !is_ad {
        out.push_str(" BC");
    }
    Ok(())
}

fn of_day(time: NaiveTime) -> i64 {
    i64::from(time.num_seconds_from_midnight()) * SECOND + i64::from(time.nanosecond())
}

/// Writes the shortest text that reads as the same number (`extra_float_digits` of 1).
pub(crate) fn float64(value: f64, out: &mut String) {
    if !special(value, out) {
        shortest(&format!("{value:e}"), 15, out);
    }
}

/// See [`float64`].
pub(crate) fn float32(value: f32, out: &mut String) {
    if !special(f64::from(value), out) {
        shortest(&format!("{value:e}"), 6, out);
    }
}

fn special(value: f64, out: &mut String) -> bool {
    if value.is_finite() {
        return false;
    }
    out.push_str(match value {
        value if value.is_nan() => "NaN",
        value if value < 0.0 => "-Infinity",
        _ => "Infinity",
    });
    true
}

/// Writes `-1.25e-7` in PostgreSQL's form: with an exponent below -4 and from `exponent_min` on.
fn shortest(text: &str, exponent_min: i32, out: &mut String) {
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    out.push_str(sign);
    if exponent < -4 || exponent >= exponent_min {
        let sign = if exponent < 0 { '-' } else { '+' };
        let _ = write!(out, "{mantissa}e{sign}{:02}", exponent.unsigned_abs());
        return;
    }
    let digits: String = mantissa.chars().filter(|c| *c != '.').collect();
    let zeros = |count: i32| "0".repeat(usize::try_from(count).unwrap_or(0));
    let whole = exponent + 1;
    if whole <= 0 {
        let _ = write!(out, "0.{}{digits}", zeros(-whole));
    } else if let Some((before, after)) =
        usize::try_from(whole).ok().and_then(|at| digits.split_at_checked(at))
    {
        out.push_str(before);
        if !after.is_empty() {
            let _ = write!(out, ".{after}");
        }
    } else {
        let missing = whole - i32::try_from(digits.len()).unwrap_or(0);
        let _ = write!(out, "{digits}{}", zeros(missing));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{Float64Array, ListArray, StringArray};

    use super::*;

    #[test]
    fn floats_take_their_shortest_form() {
        for (value, expected) in [
            (2.0, "2"),
            (1e20, "1e+20"),
            (1e15, "1e+15"),
            (123_456_789_012_345.0, "123456789012345"),
            (100.0, "100"),
            (0.1, "0.1"),
            (0.0001, "0.0001"),
            (0.000_01, "1e-05"),
            (-1.5, "-1.5"),
            (-0.0, "-0"),
            (1.5e300, "1.5e+300"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            let mut text = String::new();
            float64(value, &mut text);
            assert_eq!(text, expected);
        }
        for (value, expected) in
            [(1e6, "1e+06"), (1e5, "100000"), (0.1, "0.1"), (16_777_216.0, "1.6777216e+07")]
        {
            let mut text = String::new();
            float32(value, &mut text);
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn special_elements_are_quoted() {
        let items: ArrayRef = Arc::new(StringArray::from(vec![
            Some("a"),
            Some("b c"),
            Some("d\"e\\"),
            None,
            Some(""),
            Some("Null"),
            Some("{x}"),
        ]));
        let mut text = String::new();
        array(&items, &mut text).expect("texts");
        assert_eq!(text, r#"{a,"b c","d\"e\\",NULL,"","Null","{x}"}"#);
        let mut text = String::new();
        quote_field("c\"d\\", &mut text);
        assert_eq!(text, r#""c""d\\""#);
        let lists = ListArray::from_iter_primitive::<Float64Type, _, _>([Some([Some(1.0), None]), None]);
        let lists: ArrayRef = Arc::new(lists);
        let found = texts(&lists).expect("lists");
        assert_eq!(found.iter().collect::<Vec<_>>(), [Some("{1,NULL}"), None]);
        let floats: ArrayRef = Arc::new(Float64Array::from(vec![Some(1e20), None]));
        assert_eq!(texts(&floats).expect("floats").iter().collect::<Vec<_>>(), [Some("1e+20"), None]);
    }
}
