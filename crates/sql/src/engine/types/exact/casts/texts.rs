//! Parses texts as PostgreSQL does: skips blanks around a value, and refuses other extra
//! characters.

use std::sync::Arc;

use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Decimal128Array, Float64Array, Int64Array,
    IntervalMonthDayNanoArray, ListArray, StringArray, TimestampMicrosecondArray,
};
use datafusion::arrow::compute::{CastOptions, cast, cast_with_options};
use datafusion::arrow::datatypes::{DataType, FieldRef, IntervalUnit};
use datafusion::error::Result;

use super::numbers::{converted_float, rescaled};
use super::{invalid, points};
use crate::engine::types::exact::decimals::{DIGITS_MAX, too_long};
use crate::engine::types::exact::type_names::{is_int, is_text, refused, type_name};
use crate::failure::{refusal, state};

/// Parses texts as values of a type.
pub(super) fn parsed(column: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    let texts = cast(column, &DataType::Utf8)?;
    let texts = texts.as_string::<i32>();
    let each = || texts.iter();
    match to {
        to if is_int(to) => {
            let one = |text: &str| whole(text, to);
            let numbers: Result<Int64Array> = each().map(|text| text.map(one).transpose()).collect();
            let out = |text: &str| format!("value \"{text}\" is out of range for type {}", type_name(to));
            let numbers: ArrayRef = Arc::new(numbers?);
            let options = CastOptions { safe: true, ..CastOptions::default() };
            let narrow = cast_with_options(&numbers, to, &options)?;
            match (0..texts.len()).find(|row| narrow.is_null(*row) && !texts.is_null(*row)) {
                Some(row) => refused(state::RANGE, out(texts.value(row))),
                None => Ok(narrow),
            }
        }
        DataType::Boolean => {
            let values: Result<BooleanArray> = each().map(|text| text.map(boolean).transpose()).collect();
            Ok(Arc::new(values?))
        }
        DataType::Float64 | DataType::Float32 => {
            let one = |text: &str| float(text, to);
            let values: Result<Float64Array> = each().map(|text| text.map(one).transpose()).collect();
            converted_float(&values?, to)
        }
        DataType::Decimal128(digits, scale) => {
            let one = |text: &str| numeric(text, *digits, *scale);
            let values: Result<Decimal128Array> = each().map(|text| text.map(one).transpose()).collect();
            Ok(Arc::new(values?.with_data_type(to.clone())))
        }
        DataType::List(item) => lists(texts, item),
        DataType::Binary => {
            let values: Result<Vec<Option<Vec<u8>>>> =
                each().map(|text| text.map(bytes).transpose()).collect();
            Ok(Arc::new(values?.iter().map(|value| value.as_deref()).collect::<BinaryArray>()))
        }
        DataType::Date32 | DataType::Timestamp(..) | DataType::Time64(_) | DataType::Interval(_) => {
            times(texts, to)
        }
        to => Ok(cast_with_options(column, to, &CastOptions { safe: false, ..CastOptions::default() })?),
    }
}

fn whole(text: &str, to: &DataType) -> Result<i64> {
    let trimmed = text.trim();
    let digits = trimmed.strip_prefix(['-', '+']).unwrap_or(trimmed);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return refused(state::TEXT, invalid(&type_name(to), text));
    }
    let out =
        || refused(state::RANGE, format!("value \"{text}\" is out of range for type {}", type_name(to)));
    trimmed.parse().or_else(|_| out())
}

/// Parses words and their unique prefixes, as `parse_bool_with_len` of PostgreSQL.
fn boolean(text: &str) -> Result<bool> {
    let word = text.trim().to_lowercase();
    let begins = |whole: &str| !word.is_empty() && whole.starts_with(&word);
    if begins("true") || begins("yes") || word == "on" || word == "1" {
        Ok(true)
    } else if begins("false") || begins("no") || word == "off" || word == "of" || word == "0" {
        Ok(false)
    } else {
        refused(state::TEXT, invalid("boolean", text))
    }
}

pub(super) fn float(text: &str, to: &DataType) -> Result<f64> {
    let trimmed = text.trim();
    let unsigned = trimmed.strip_prefix(['-', '+']).unwrap_or(trimmed).to_lowercase();
    if !is_number(trimmed) && !matches!(unsigned.as_str(), "inf" | "infinity" | "nan") {
        return refused(state::TEXT, invalid(&type_name(to), text));
    }
    let value: f64 = trimmed.parse().or_else(|_| refused(state::TEXT, invalid(&type_name(to), text)))?;
    let is_underflow = value == 0.0
        && trimmed
            .split(['e', 'E'])
            .next()
            .is_some_and(|digits| digits.contains(|c: char| ('1'..='9').contains(&c)));
    if (value.is_infinite() && is_number(trimmed)) || is_underflow {
        return refused(state::RANGE, format!("\"{trimmed}\" is out of range for type {}", type_name(to)));
    }
    Ok(value)
}

/// True if a text is a decimal number, with or without an exponent.
pub(super) fn is_number(text: &str) -> bool {
    let (mantissa, exponent) = text.split_once(['e', 'E']).map_or((text, None), |(m, e)| (m, Some(e)));
    let mantissa = mantissa.strip_prefix(['-', '+']).unwrap_or(mantissa);
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let has_digits = !whole.is_empty() || !fraction.is_empty();
    let exponent = exponent.map(|exponent| exponent.strip_prefix(['-', '+']).unwrap_or(exponent));
    has_digits
        && is_digits(whole)
        && is_digits(fraction)
        && exponent.is_none_or(|e| !e.is_empty() && is_digits(e))
}

/// Returns the digits of a decimal number as an integer, and its scale. `None` if the text is no
/// number, or has more than 38 digits.
pub(super) fn decimal(text: &str) -> Option<(i128, i8)> {
    if !is_number(text) {
        return None;
    }
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let exponent: i32 = exponent.parse().ok()?;
    let (is_negative, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, mantissa.strip_prefix('+').unwrap_or(mantissa)),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let scale = i32::try_from(fraction.len()).ok()?.checked_sub(exponent)?;
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    let value: i128 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    let power = 10_i128.checked_pow(u32::try_from((-scale).max(0)).ok()?);
    let value = power.and_then(|power| value.checked_mul(power)).or((value == 0).then_some(0))?;
    let scale = i8::try_from(scale.max(0)).ok().filter(|scale| *scale <= DIGITS_MAX as i8)?;
    let fits = value.unsigned_abs() < 10_u128.pow(DIGITS_MAX.into());
    fits.then_some((if is_negative { -value } else { value }, scale))
}

/// Parses a decimal number of at most `digits` digits, and rounds it to the scale.
fn numeric(text: &str, digits: u8, scale: i8) -> Result<i128> {
    let trimmed = text.trim();
    if matches!(trimmed.to_lowercase().trim_start_matches(['-', '+']), "nan" | "inf" | "infinity") {
        return refused(
            state::UNSUPPORTED,
            format!("numeric {trimmed} is not supported: use double precision"),
        );
    }
    if !is_number(trimmed) {
        return refused(state::TEXT, invalid("numeric", text));
    }
    match decimal(trimmed) {
        Some((value, of_text)) => rescaled(value, of_text, digits, scale),
        // A number far below one may have more digits than a decimal, but rounds to 0.
        None => match trimmed.parse::<f64>() {
            Ok(value) if value.abs() < 10_f64.powi(-i32::from(scale) - 1) => Ok(0),
            _ => refused(state::RANGE, too_long()),
        },
    }
}

/// Parses bytes in hexadecimal, `\x00ff`, or with escapes, `a\\b\101`.
fn bytes(text: &str) -> Result<Vec<u8>> {
    let invalid = || refusal(state::TEXT, "invalid input syntax for type bytea");
    if let Some(digits) = text.strip_prefix("\\x") {
        let digit = |c: char| {
            let invalid = || refusal(state::INVALID, format!("invalid hexadecimal digit: \"{c}\""));
            c.to_digit(16).map(|digit| digit as u8).ok_or_else(invalid)
        };
        let digits: Result<Vec<u8>> =
            digits.chars().filter(|c| !c.is_ascii_whitespace()).map(digit).collect();
        let digits = digits?;
        let (pairs, odd) = digits.as_chunks::<2>();
        if !odd.is_empty() {
            return Err(refusal(state::INVALID, "invalid hexadecimal data: odd number of digits"));
        }
        return Ok(pairs.iter().map(|[high, low]| high << 4 | low).collect());
    }
    let (mut out, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, after @ ..] = rest {
        let byte;
        (rest, byte) = match (first, after) {
            (b'\\', [b'\\', after @ ..]) => (after, b'\\'),
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                (after, (a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'))
            }
            (b'\\', _) => return Err(invalid()),
            (byte, after) => (after, *byte),
        };
        out.push(byte);
    }
    Ok(out)
}

/// Parses arrays of one dimension: `{1,NULL,"a b"}`.
fn lists(texts: &StringArray, item: &FieldRef) -> Result<ArrayRef> {
    let mut values = Vec::new();
    let mut lengths = Vec::with_capacity(texts.len());
    let mut nulls = Vec::new();
    for text in texts {
        let items = text.map(list_items).transpose()?;
        nulls.push(items.is_some());
        let items = items.unwrap_or_default();
        lengths.push(items.len());
        values.extend(items);
    }
    let values: ArrayRef = Arc::new(values.into_iter().collect::<StringArray>());
    let values = match is_text(item.data_type()) {
        true => cast(&values, item.data_type())?,
        false => parsed(&values, item.data_type())?,
    };
    let offsets = datafusion::arrow::buffer::OffsetBuffer::from_lengths(lengths);
    Ok(Arc::new(ListArray::try_new(item.clone(), offsets, values, Some(nulls.into()))?))
}

pub(super) fn list_items(text: &str) -> Result<Vec<Option<String>>> {
    let malformed = || refusal(state::TEXT, format!("malformed array literal: \"{text}\""));
    let inner =
        text.trim().strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).ok_or_else(malformed)?;
    if inner.trim().is_empty() {
        return Ok(Vec::new());
    }
    let mut items = Vec::new();
    let mut item = String::new();
    let (mut was_quoted, mut is_quoted) = (false, false);
    let mut chars = inner.chars();
    let mut take = |item: &mut String, was_quoted: &mut bool| {
        let text = std::mem::take(item);
        let value = match *was_quoted {
            true => Some(text),
            false => Some(text.trim().to_owned()).filter(|text| !text.eq_ignore_ascii_case("null")),
        };
        let is_empty = !*was_quoted && value.as_deref() == Some("");
        *was_quoted = false;
        items.push(value);
        if is_empty { Err(malformed()) } else { Ok(()) }
    };
    while let Some(c) = chars.next() {
        match c {
            '\\' => item.push(chars.next().ok_or_else(malformed)?),
            '"' if !is_quoted && (was_quoted || !item.trim().is_empty()) => return Err(malformed()),
            '"' if !is_quoted => {
                item.clear();
                (is_quoted, was_quoted) = (true, true);
            }
            '"' => is_quoted = false,
            ',' if !is_quoted => take(&mut item, &mut was_quoted)?,
            '}' if !is_quoted => return Err(malformed()),
            '{' if !is_quoted => {
                return refused(state::UNSUPPORTED, "arrays of several dimensions are not supported");
            }
            c if was_quoted && !is_quoted => {
                // Only blanks may follow a quote.
                if !c.is_whitespace() {
                    return Err(malformed());
                }
            }
            c => item.push(c),
        }
    }
    if is_quoted {
        return Err(malformed());
    }
    take(&mut item, &mut was_quoted)?;
    Ok(items)
}

/// Parses dates, times and intervals.
fn times(texts: &StringArray, to: &DataType) -> Result<ArrayRef> {
    let parse = |texts: &StringArray| -> Result<Option<ArrayRef>> {
        match to {
            DataType::Time64(_) => {
                let trimmed: ArrayRef =
                    Arc::new(texts.iter().map(|text| text.map(str::trim)).collect::<StringArray>());
                let options = CastOptions { safe: false, ..CastOptions::default() };
                Ok(cast_with_options(&trimmed, to, &options).ok())
            }
            to => pointed(texts, to),
        }
    };
    if let Some(values) = parse(texts)? {
        return Ok(values);
    }
    let is_invalid = |row: &usize| !matches!(parse(&texts.slice(*row, 1)), Ok(Some(_)));
    let text = (0..texts.len()).find(is_invalid).map_or("", |row| texts.value(row));
    let is_well_formed = text.contains(|c: char| c.is_ascii_digit())
        && !matches!(to, DataType::Interval(_))
        && text.chars().all(|c| c.is_ascii_digit() || matches!(c, '-' | ':' | '.' | ' ' | '+' | 'T' | 'Z'));
    match is_well_formed {
        true => refused(state::TIME_RANGE, format!("date/time field value out of range: \"{text}\"")),
        false => refused(state::TIME, invalid(&type_name(to), text)),
    }
}

/// Parses dates, points in time and intervals in the usual forms. `None` if a text has another
/// form, or for another type.
fn pointed(texts: &StringArray, to: &DataType) -> Result<Option<ArrayRef>> {
    let each = || texts.iter().map(|text| text.map(str::trim));
    Ok(match to {
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let one = |text: Option<&str>| text.map_or(Some(None), |text| points::interval(text).map(Some));
            let values: Option<IntervalMonthDayNanoArray> = each().map(one).collect();
            values.map(|values| Arc::new(values) as ArrayRef)
        }
        DataType::Date32 | DataType::Timestamp(_, None) => {
            let of = |text: &str| Some(points::written(text)?.local.and_utc().timestamp_micros());
            let one = |text: Option<&str>| text.map_or(Some(None), |text| of(text).map(Some));
            let values: Option<TimestampMicrosecondArray> = each().map(one).collect();
            as_points(values, to)?
        }
        DataType::Timestamp(_, Some(zone)) => {
            let session: Tz = zone.parse()?;
            let of = |text: &str| points::written(text)?.instant(&session);
            let one = |text: Option<&str>| text.map_or(Some(None), |text| of(text).map(Some));
            let values: Option<TimestampMicrosecondArray> = each().map(one).collect();
            as_points(values.map(|values| values.with_timezone(zone.clone())), to)?
        }
        _ => None,
    })
}

fn as_points(values: Option<TimestampMicrosecondArray>, to: &DataType) -> Result<Option<ArrayRef>> {
    let Some(values) = values else { return Ok(None) };
    let options = CastOptions { safe: false, ..CastOptions::default() };
    Ok(Some(cast_with_options(&values, to, &options)?))
}
