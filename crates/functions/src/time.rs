//! Functions of times: the present, conversions, sums with durations, and `floor`.
//!
//! Times are milliseconds since 1970, as in Cassandra. Months are those of the proleptic Gregorian
//! calendar. Java uses the Julian calendar before 1582, so that its months differ there.

use schema::CqlType;
use schema::value::{Duration, civil_of_days, days_of_civil, timeuuid, unix_ms_of_timeuuid};

use crate::arithmetic;
use crate::operator::Operator;
use crate::{Context, Function, FunctionError};

const DAY_MS: i64 = 86_400_000;
const DAY_NANOSECONDS: i64 = 86_400_000_000_000;
const MS_NANOSECONDS: i64 = 1_000_000;
/// Value of a `date` on 1970-01-01.
const DATE_OF_EPOCH: i64 = 1 << 31;

/// Returns the present as a `timeuuid`, `timestamp`, `date` or `time`.
pub(crate) fn now(ty: &CqlType, context: &dyn Context) -> Vec<u8> {
    let micros = context.now_micros();
    match ty {
        CqlType::TimeUuid => random_timeuuid(context),
        CqlType::Time => (micros.rem_euclid(DAY_NANOSECONDS / 1000) * 1000).to_be_bytes().to_vec(),
        other => from_milliseconds(other, micros.div_euclid(1000)),
    }
}

/// Returns a time UUID of the present that no other call returns: clock sequence and node are
/// random.
fn random_timeuuid(context: &dyn Context) -> Vec<u8> {
    timeuuid(context.now_micros().saturating_mul(10), context.random()).to_vec()
}

/// Returns the milliseconds since 1970 of a `timeuuid`, `timestamp` or `date`. `None`: the bytes
/// are no value of the type.
pub(crate) fn milliseconds(ty: &CqlType, value: &[u8]) -> Option<i64> {
    match ty {
        CqlType::TimeUuid => unix_ms_of_timeuuid(value),
        CqlType::Timestamp => Some(i64::from_be_bytes(value.try_into().ok()?)),
        CqlType::Date => {
            let days = u32::from_be_bytes(value.try_into().ok()?);
            Some((i64::from(days) - DATE_OF_EPOCH) * DAY_MS)
        }
        _ => None,
    }
}

/// Returns the `date`, or the `timestamp` or `bigint` of milliseconds since 1970. Days are rounded
/// toward 1970, as in Cassandra. Their low 32 bits are taken.
pub(crate) fn from_milliseconds(ty: &CqlType, milliseconds: i64) -> Vec<u8> {
    match ty {
        CqlType::Date => ((milliseconds / DAY_MS + DATE_OF_EPOCH) as u32).to_be_bytes().to_vec(),
        _ => milliseconds.to_be_bytes().to_vec(),
    }
}

/// Adds a duration to a `timestamp` or `date`, or subtracts it.
pub(crate) fn shift(
    function: &Function,
    op: Operator,
    temporal: &[u8],
    duration: &[u8],
) -> Result<Option<Vec<u8>>, FunctionError> {
    let ty = &function.result;
    let (Some(time), Ok(duration)) = (milliseconds(ty, temporal), Duration::from_bytes(duration)) else {
        return Ok(None);
    };
    let (is_precise, precision) = match ty {
        CqlType::Date => (duration.nanoseconds == 0, "day"),
        _ => (duration.nanoseconds % MS_NANOSECONDS == 0, "millisecond"),
    };
    if !is_precise {
        let reason = format!("The duration must have a {precision} precision. Was: {duration}");
        return Err(arithmetic::failed(function, op, &reason));
    }
    let sign = if op == Operator::Add { 1 } else { -1 };
    let shifted = add(time, sign * i64::from(duration.months), sign * precise_ms(&duration));
    Ok(Some(from_milliseconds(ty, shifted as i64)))
}

/// Returns days and nanoseconds of a duration in milliseconds. At most 2^31 days and 2^63 ns fit.
fn precise_ms(duration: &Duration) -> i64 {
    i64::from(duration.days) * DAY_MS + duration.nanoseconds / MS_NANOSECONDS
}

/// Adds months, then milliseconds. A day behind the end of the month becomes its last day. The
/// result may have more than 64 bits, of which Java keeps the low ones.
fn add(time: i64, months: i64, milliseconds: i64) -> i128 {
    let shifted = if months == 0 { i128::from(time) } else { add_months(time, months) };
    shifted + i128::from(milliseconds)
}

fn add_months(time: i64, months: i64) -> i128 {
    let (year, month, day) = civil_of_days(time.div_euclid(DAY_MS));
    let of_day = time.rem_euclid(DAY_MS);
    let first = year * 12 + (month - 1) + months;
    let (year, month) = (first.div_euclid(12), first.rem_euclid(12) + 1);
    let (next_year, next_month) = ((first + 1).div_euclid(12), (first + 1).rem_euclid(12) + 1);
    let days = days_of_civil(year, month, 1);
    let length = days_of_civil(next_year, next_month, 1) - days;
    i128::from(days + day.min(length) - 1) * i128::from(DAY_MS) + i128::from(of_day)
}

/// Rounds a time down to a multiple of a duration from a start on, by default 1970 or midnight.
pub(crate) fn floor(
    function: &Function,
    value: &[u8],
    duration: &[u8],
    start: Option<&[u8]>,
) -> Result<Option<Vec<u8>>, FunctionError> {
    let ty = &function.arguments[0];
    let Ok(duration) = Duration::from_bytes(duration) else { return Ok(None) };
    if *ty == CqlType::Time {
        return floor_time(value, &duration);
    }
    let start_type = function.arguments.get(2).unwrap_or(ty);
    let start = start.map_or(Some(0), |start| milliseconds(start_type, start));
    let (Some(time), Some(start)) = (milliseconds(ty, value), start) else { return Ok(None) };
    let refused = match ty {
        CqlType::Date if duration.nanoseconds != 0 => Some(format!(
            "The floor on date values cannot be computed for the {duration} duration as precision is below 1 day"
        )),
        CqlType::Timestamp | CqlType::TimeUuid if duration.nanoseconds % MS_NANOSECONDS != 0 => {
            Some(format!(
                "The floor cannot be computed for the {duration} duration as precision is below 1 millisecond"
            ))
        }
        _ if start > time => {
            Some("The floor function starting time is greater than the provided time".to_owned())
        }
        _ => negative(&duration),
    };
    if let Some(message) = refused {
        return Err(FunctionError::Invalid(message));
    }
    Ok(Some(from_milliseconds(&function.result, floor_milliseconds(time, &duration, start))))
}

fn negative(duration: &Duration) -> Option<String> {
    let is_negative = duration.months < 0 || duration.days < 0 || duration.nanoseconds < 0;
    is_negative.then(|| "Negative durations are not supported by the floor function".to_owned())
}

fn floor_time(value: &[u8], duration: &Duration) -> Result<Option<Vec<u8>>, FunctionError> {
    let Ok(time) = <[u8; 8]>::try_from(value).map(i64::from_be_bytes) else { return Ok(None) };
    if let Some(message) = negative(duration) {
        return Err(FunctionError::Invalid(message));
    }
    if duration.months != 0 || duration.days != 0 || duration.nanoseconds > DAY_NANOSECONDS {
        return Err(FunctionError::invalid(
            "For time values, the floor can only be computed for durations smaller that a day",
        ));
    }
    // A multiple of zero is the time itself.
    let rest = time.checked_rem(duration.nanoseconds).unwrap_or(0);
    Ok(Some((time - rest).to_be_bytes().to_vec()))
}

/// Returns the greatest start + n · duration that is not above the time. Neither is negative.
fn floor_milliseconds(time: i64, duration: &Duration, start: i64) -> i64 {
    let step = precise_ms(duration);
    let distance = i128::from(time) - i128::from(start);
    if duration.months == 0 {
        // A multiple of zero is the time itself.
        let rest = distance.checked_rem(step.into()).unwrap_or(0);
        return (i128::from(time) - rest) as i64;
    }
    let months = i64::from(duration.months);
    let at = |count: i64| {
        let shifted = if count == 0 { i128::from(start) } else { add_months(start, count * months) };
        shifted + i128::from(step) * i128::from(count)
    };
    // The months from start to time, of at most 31 days, bound the count. Each has 28 days at
    // least.
    let mut low = 0;
    let mut high = (distance / i128::from(28 * DAY_MS)) as i64 / months + 1;
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        if at(middle) <= i128::from(time) { low = middle } else { high = middle }
    }
    at(low) as i64
}
