//! Values of options: parsed with their bounds, and in the form that sets them.

use std::time::Duration;

use cql::ast::OptionValue;
use engine::Error;
use units::{parse_percent, percent_text};
use workload::QUEUE_SIZE_MAX;

/// Longest timeout, about 24 days: `i32::MAX` milliseconds.
const TIMEOUT_MS_MAX: i64 = i32::MAX as i64;

/// Parses a duration in whole milliseconds. Messages start with `what`.
pub(super) fn milliseconds(name: &str, what: &str, value: &OptionValue) -> Result<Option<Duration>, Error> {
    let wrong =
        |given: &str| Error::Invalid(format!("'{name}' takes a duration such as 50ms (given {given})"));
    let duration = match value {
        OptionValue::Null => return Ok(None),
        OptionValue::Duration(duration) => *duration,
        OptionValue::String(text) => cql::ast::Duration::parse(text).map_err(|_| wrong(text))?,
        other => return Err(wrong(&text_of(other))),
    };
    if duration.months != 0 || duration.days != 0 {
        return Err(Error::Invalid(format!("{what} cannot have days, months or years")));
    }
    if duration.nanoseconds % 1_000_000 != 0 {
        return Err(Error::Invalid(format!("{what} must be expressed in millisecond granularity")));
    }
    let ms = duration.nanoseconds / 1_000_000;
    if !(1..=TIMEOUT_MS_MAX).contains(&ms) {
        return Err(Error::Invalid(format!("{what} must be from 1ms to {TIMEOUT_MS_MAX}ms")));
    }
    Ok(Some(Duration::from_millis(ms.unsigned_abs())))
}

/// Parses a number of statements from `min` to `QUEUE_SIZE_MAX`. `others` are the other values that
/// the message names.
pub(super) fn count(name: &str, min: u32, others: &str, value: &OptionValue) -> Result<Option<u32>, Error> {
    let set = match value {
        OptionValue::Null => return Ok(None),
        OptionValue::Integer(number) => u32::try_from(*number).ok(),
        _ => None,
    };
    match set.filter(|set| (min..=QUEUE_SIZE_MAX).contains(set)) {
        Some(set) => Ok(Some(set)),
        None => {
            let given = text_of(value);
            let text =
                format!("'{name}' can only take values of {min}-{QUEUE_SIZE_MAX}{others} (given {given})");
            Err(Error::Invalid(text))
        }
    }
}

/// Parses a percentage of at least `min_ppm`. Returns ppm.
pub(super) fn percent(name: &str, min_ppm: u32, value: &OptionValue) -> Result<Option<u32>, Error> {
    match value {
        OptionValue::Null => Ok(None),
        OptionValue::String(text) if let Some(ppm) = parse_percent(text).filter(|ppm| *ppm >= min_ppm) => {
            Ok(Some(ppm))
        }
        other => {
            let min = percent_text(min_ppm);
            let given = text_of(other);
            let text = format!("'{name}' can only take values of '{min}' to '100%' (given {given})");
            Err(Error::Invalid(text))
        }
    }
}

/// Parses bytes that fit a `bigint`.
pub(super) fn parse_bytes(text: &str) -> Option<u64> {
    units::parse_bytes(text).filter(|bytes| i64::try_from(*bytes).is_ok())
}

/// Parses a boolean. Null is true.
pub(super) fn truth(name: &str, value: &OptionValue) -> Result<bool, Error> {
    match value {
        OptionValue::Null => Ok(true),
        OptionValue::Boolean(truth) => Ok(*truth),
        other => {
            Err(Error::Invalid(format!("'{name}' can only be true or false (given {})", text_of(other))))
        }
    }
}

pub(super) fn shares(name: &str, value: &OptionValue) -> Result<Option<u16>, Error> {
    match value {
        OptionValue::Null => Ok(None),
        OptionValue::Integer(shares @ 1..=1000) => Ok(u16::try_from(*shares).ok()),
        _ => Err(not_shares(name, value)),
    }
}

fn not_shares(name: &str, value: &OptionValue) -> Error {
    Error::Invalid(format!("'{name}' can only take values of 1-1000 (given {})", text_of(value)))
}

/// Converts a time to a duration of CQL.
pub(super) fn duration(time: Option<Duration>) -> OptionValue {
    time.map_or(OptionValue::Null, |time| {
        let nanoseconds = i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        OptionValue::Duration(cql::ast::Duration { months: 0, days: 0, nanoseconds })
    })
}

pub(super) fn string(text: Option<String>) -> OptionValue {
    text.map_or(OptionValue::Null, OptionValue::String)
}

pub(super) fn integer(number: Option<u32>) -> OptionValue {
    number.map_or(OptionValue::Null, |number| OptionValue::Integer(number.into()))
}

pub(super) fn text_of(value: &OptionValue) -> String {
    match value {
        OptionValue::Null => "null".to_owned(),
        OptionValue::Integer(number) => number.to_string(),
        OptionValue::Float(number) => number.to_string(),
        OptionValue::Boolean(truth) => truth.to_string(),
        OptionValue::String(text) => text.clone(),
        OptionValue::Duration(duration) => duration.to_string(),
        map @ OptionValue::Map(_) => map.to_string(),
    }
}
