//! Parses dates, points in time and intervals as PostgreSQL writes and reads them:
//! `2024-01-31 10:20[:30[.5]] [+02|Z|Europe/Berlin]`, `1 day 2 hours`, `-1.5 weeks`, `1 day 02:00`.

use chrono::{NaiveDate, NaiveDateTime, TimeDelta};
use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::datatypes::IntervalMonthDayNano;

use crate::engine::types::functions::offset_of_local;

/// Microseconds of a second, a minute, an hour and a day.
const SECOND: i64 = 1_000_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// A point in time as it is written.
pub(super) struct Written {
    pub(super) local: NaiveDateTime,
    zone: Option<Zone>,
}

enum Zone {
    /// Seconds east of Greenwich.
    Offset(i64),
    Named(Tz),
}

impl Written {
    /// Returns microseconds since 1970, for a text without a zone in the zone `session`.
    pub(super) fn instant(&self, session: &Tz) -> Option<i64> {
        let offset = match &self.zone {
            Some(Zone::Offset(seconds)) => *seconds,
            Some(Zone::Named(zone)) => offset_of_local(zone, self.local),
            None => offset_of_local(session, self.local),
        };
        self.local.and_utc().timestamp_micros().checked_sub(offset.checked_mul(SECOND)?)
    }
}

/// Parses a point in time, or a date. `None` for other texts, and for dates that do not exist.
pub(super) fn written(text: &str) -> Option<Written> {
    let end = text.find([' ', 'T', 't']).unwrap_or(text.len());
    let (day, rest) = text.split_at(end);
    let day = date(day)?;
    let rest = rest.strip_prefix(['T', 't']).unwrap_or(rest).trim_start();
    let (time, zone) = match rest.find(|c: char| !c.is_ascii_digit() && !matches!(c, ':' | '.')) {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    let micros = if time.is_empty() { 0 } else { time_of_day(time)? };
    let zone = match zone.trim() {
        "" => None,
        zone => Some(zone_of(zone)?),
    };
    let local = day.and_hms_opt(0, 0, 0)?.checked_add_signed(TimeDelta::microseconds(micros))?;
    Some(Written { local, zone })
}

fn date(text: &str) -> Option<NaiveDate> {
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let parts: Vec<&str> = text.split('-').collect();
    match parts[..] {
        [year, month, day] if [year, month, day].into_iter().all(is_digits) && year.len() > 2 => {
            NaiveDate::from_ymd_opt(year.parse().ok()?, month.parse().ok()?, day.parse().ok()?)
        }
        [whole] if is_digits(whole) && whole.len() == 8 => NaiveDate::from_ymd_opt(
            whole[..4].parse().ok()?,
            whole[4..6].parse().ok()?,
            whole[6..].parse().ok()?,
        ),
        _ => None,
    }
}

/// Returns the microseconds of `10:20`, `10:20:30` or `10:20:30.5`, up to `24:00`.
fn time_of_day(text: &str) -> Option<i64> {
    let micros = clock(text)?;
    (micros <= DAY).then_some(micros)
}

/// Returns the microseconds of hours, minutes and seconds. The hours have no bound.
fn clock(text: &str) -> Option<i64> {
    let parts: Vec<&str> = text.split(':').collect();
    let whole = |text: &str| -> Option<i64> {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if is_number { text.parse().ok() } else { None }
    };
    let (hours, minutes, seconds) = match parts[..] {
        [hours, minutes] => (whole(hours)?, whole(minutes)?, 0),
        [hours, minutes, seconds] => {
            let seconds = decimal(seconds)?;
            (whole(hours)?, whole(minutes)?, seconds.scaled(SECOND)?)
        }
        _ => return None,
    };
    if minutes > 59 || seconds > MINUTE {
        return None;
    }
    hours.checked_mul(HOUR)?.checked_add(minutes * MINUTE + seconds)
}

fn zone_of(text: &str) -> Option<Zone> {
    if ["z", "utc", "gmt", "zulu"].iter().any(|name| text.eq_ignore_ascii_case(name)) {
        return Some(Zone::Offset(0));
    }
    let (sign, digits) = match (text.strip_prefix('+'), text.strip_prefix('-')) {
        (Some(digits), _) => (1, digits),
        (_, Some(digits)) => (-1, digits),
        _ => return text.parse().ok().filter(|_| text.contains('/')).map(Zone::Named),
    };
    let parts: Vec<&str> = match digits.len() {
        4 if !digits.contains(':') => vec![&digits[..2], &digits[2..]],
        _ => digits.split(':').collect(),
    };
    if parts.len() > 3 || parts.iter().any(|part| part.is_empty() || part.len() > 2) {
        return None;
    }
    let parts: Option<Vec<i64>> = parts.iter().map(|part| part.parse().ok()).collect();
    let parts = parts?;
    let place = |place: usize| parts.get(place).copied().unwrap_or(0);
    let (hours, minutes) = (place(0), place(1));
    let seconds = place(2);
    (hours <= 15 && minutes < 60 && seconds < 60)
        .then_some(Zone::Offset(sign * (hours * 3600 + minutes * 60 + seconds)))
}

/// A decimal number without sign.
#[derive(Clone, Copy)]
struct Decimal {
    digits: i128,
    /// The power of ten to divide the digits by.
    power: i128,
}

impl Decimal {
    /// Returns the number of units, rounded half to even.
    fn scaled(self, unit: i64) -> Option<i64> {
        let product = self.digits.checked_mul(i128::from(unit))?;
        let (whole, rest) = (product.div_euclid(self.power), product.rem_euclid(self.power));
        let rounds = 2 * rest > self.power || 2 * rest == self.power && whole % 2 != 0;
        i64::try_from(whole + i128::from(rounds)).ok()
    }

    /// Returns the whole number of units, and the rest.
    fn split(self, units: i128) -> Option<(i64, Decimal)> {
        let all = self.digits.checked_mul(units)?;
        let rest = Decimal { digits: all % self.power, ..self };
        Some((i64::try_from(all / self.power).ok()?, rest))
    }
}

/// Parses a decimal number without sign.
fn decimal(text: &str) -> Option<Decimal> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = format!("{whole}{fraction}");
    let is_number =
        !digits.is_empty() && digits.len() < 30 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number {
        return None;
    }
    Some(Decimal { digits: digits.parse().ok()?, power: 10_i128.pow(u32::try_from(fraction.len()).ok()?) })
}

/// Sum of the parts of an interval.
#[derive(Default)]
struct Sum {
    months: i64,
    days: i64,
    micros: i64,
}

impl Sum {
    /// Adds a number of units. Fractions of years are months, of other units days and time.
    fn add(&mut self, sign: i64, number: Decimal, unit: &str) -> Option<()> {
        let months = |months: i64| number.scaled(months);
        let mut days = |days: i128| {
            let (whole, rest) = number.split(days)?;
            self.days = self.days.checked_add(sign * whole)?;
            self.micros(sign, rest.scaled(DAY)?)
        };
        let time = |unit: i64| number.scaled(unit);
        match unit {
            "year" | "years" | "y" | "yr" | "yrs" => self.months += sign * months(12)?,
            "decade" | "decades" | "dec" | "decs" => self.months += sign * months(120)?,
            "century" | "centuries" | "c" | "cent" => self.months += sign * months(1200)?,
            "millennium" | "millennia" | "mil" | "mils" => self.months += sign * months(12_000)?,
            "month" | "months" | "mon" | "mons" => {
                let (whole, rest) = number.split(1)?;
                self.months = self.months.checked_add(sign * whole)?;
                let (whole, rest) = rest.split(30)?;
                self.days += sign * whole;
                self.micros += sign * rest.scaled(DAY)?;
            }
            "week" | "weeks" | "w" => days(7)?,
            "day" | "days" | "d" => days(1)?,
            "hour" | "hours" | "h" | "hr" | "hrs" => self.micros(sign, time(HOUR)?)?,
            "minute" | "minutes" | "m" | "min" | "mins" => self.micros(sign, time(MINUTE)?)?,
            "second" | "seconds" | "s" | "sec" | "secs" => self.micros(sign, time(SECOND)?)?,
            "millisecond" | "milliseconds" | "ms" | "msec" | "msecs" => self.micros(sign, time(1000)?)?,
            "microsecond" | "microseconds" | "us" | "usec" | "usecs" => self.micros(sign, time(1)?)?,
            _ => return None,
        }
        Some(())
    }

    fn micros(&mut self, sign: i64, micros: i64) -> Option<()> {
        self.micros = self.micros.checked_add(sign * micros)?;
        Some(())
    }
}

/// Parses an interval. `None` for other texts, and those out of range.
pub(super) fn interval(text: &str) -> Option<IntervalMonthDayNano> {
    let mut sum = Sum::default();
    let text = text.trim().trim_start_matches('@').to_lowercase();
    let mut words = text.split_ascii_whitespace().peekable();
    let mut any = false;
    let mut is_ago = false;
    while let Some(word) = words.next() {
        if is_ago {
            return None;
        }
        if word == "ago" && any {
            is_ago = true;
            continue;
        }
        any = true;
        let (sign, word) = match (word.strip_prefix('-'), word.strip_prefix('+')) {
            (Some(word), _) => (-1, word),
            (_, Some(word)) => (1, word),
            _ => (1, word),
        };
        if word.contains(':') {
            sum.micros(sign, clock(word)?)?;
            continue;
        }
        let end = word.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(word.len());
        let (number, unit) = word.split_at(end);
        let number = decimal(number)?;
        if !unit.is_empty() {
            sum.add(sign, number, unit)?;
            continue;
        }
        match words.peek() {
            None => sum.add(sign, number, "second")?,
            // A number before a time is one of days.
            Some(next) if next.contains(':') => sum.add(sign, number, "day")?,
            Some(_) => sum.add(sign, number, words.next()?)?,
        }
    }
    let sign = if is_ago { -1 } else { 1 };
    let whole = |value: i64| i32::try_from(value.checked_mul(sign)?).ok();
    let nanoseconds = sum.micros.checked_mul(sign * 1000)?;
    any.then_some(())?;
    Some(IntervalMonthDayNano { months: whole(sum.months)?, days: whole(sum.days)?, nanoseconds })
}

/// Returns an interval, or its negative, in a form that DataFusion reads alike. `None` for other
/// texts, and those out of range.
pub(crate) fn plain_interval(text: &str, is_negative: bool) -> Option<String> {
    let IntervalMonthDayNano { months, days, nanoseconds } = interval(text)?;
    let sign = if is_negative { -1 } else { 1 };
    let (months, days) = (months.checked_mul(sign)?, days.checked_mul(sign)?);
    Some(format!("{months} months {days} days {} microseconds", nanoseconds / 1000 * i64::from(sign)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_read_as_postgres_reads_them() {
        let of = |months, days, micros: i64| Some((months, days, micros * 1000));
        for (text, expected) in [
            ("1 hour 30 minutes", of(0, 0, 90 * MINUTE)),
            ("-1 hour 30 minutes", of(0, 0, -30 * MINUTE)),
            ("5", of(0, 0, 5 * SECOND)),
            ("1.5 weeks", of(0, 10, 12 * HOUR)),
            ("1.5 months", of(1, 15, 0)),
            ("1.25 years", of(15, 0, 0)),
            ("1 day 02:00", of(0, 1, 2 * HOUR)),
            ("1 02:03:04.5", of(0, 1, 2 * HOUR + 3 * MINUTE + 4 * SECOND + SECOND / 2)),
            ("2 days ago", of(0, -2, 0)),
            ("3h", of(0, 0, 3 * HOUR)),
            ("-0.5 day", of(0, 0, -12 * HOUR)),
            ("", None),
            ("day", None),
            ("1 foo", None),
            ("1 day ago foo", None),
            ("99999999999 days", None),
        ] {
            let found = interval(text).map(|found| (found.months, found.days, found.nanoseconds));
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn points_in_time_are_read_as_postgres_reads_them() {
        let berlin: Tz = "Europe/Berlin".parse().expect("a zone");
        for (text, expected) in [
            ("2024-01-01 10:00", Some("2024-01-01T09:00:00")),
            ("2024-1-1T10:00:00.5Z", Some("2024-01-01T10:00:00.500")),
            ("2024-01-01 10:00:00+02:30", Some("2024-01-01T07:30:00")),
            ("2024-01-01 10:00 America/New_York", Some("2024-01-01T15:00:00")),
            ("2024-03-31 02:30:00", Some("2024-03-31T01:30:00")),
            ("2024-10-27 02:30:00", Some("2024-10-27T01:30:00")),
            ("20240131", Some("2024-01-30T23:00:00")),
            ("2024-01-01 24:00", Some("2024-01-01T23:00:00")),
            ("2024-01-01 24:01", None),
            ("2024-01-01 foo", None),
            ("2024-01-01 BC", None),
            ("2024-02-30", None),
            ("2024-01-01 10", None),
            ("", None),
        ] {
            let found = written(text).and_then(|written| written.instant(&berlin));
            let expected = expected
                .map(|text| text.parse::<NaiveDateTime>().expect("a time").and_utc().timestamp_micros());
            assert_eq!(found, expected, "{text}");
        }
    }
}
