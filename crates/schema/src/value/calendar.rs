//! Dates, times and timestamps as text, in the proleptic Gregorian calendar. Time zones are offsets
//! from UTC. Text without a zone is UTC. Cassandra uses the time zone of the server there, so that
//! its result depends on the server.

use std::fmt::Write;

/// Nanoseconds of a day, the exclusive upper bound of `time`.
pub(super) const DAY_NANOSECONDS: i64 = 86_400_000_000_000;
const DAY_MS: i64 = 86_400_000;
/// Value of a `date` on 1970-01-01: a `date` counts days from 2³¹ days before it.
const DATE_OF_EPOCH: i64 = 1 << 31;

/// Cursor over text.
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str) -> Cursor<'a> {
        Cursor { rest: text.as_bytes() }
    }

    pub(super) fn eat(&mut self, byte: u8) -> bool {
        let found = self.rest.first() == Some(&byte);
        if found {
            self.rest = &self.rest[1..];
        }
        found
    }

    /// Reads a number of `least..=most` digits. `most` is at most 9.
    pub(super) fn number(&mut self, least: usize, most: usize) -> Option<i64> {
        let digits = self.rest.iter().take(most).take_while(|b| b.is_ascii_digit()).count();
        if digits < least {
            return None;
        }
        let (number, rest) = self.rest.split_at(digits);
        self.rest = rest;
        Some(number.iter().fold(0, |n, b| n * 10 + i64::from(b - b'0')))
    }

    pub(super) fn is_done(&self) -> bool {
        self.rest.is_empty()
    }

    /// Reads the fraction of a second, if a point follows. Returns nanoseconds.
    fn fraction(&mut self) -> Option<i64> {
        if !self.eat(b'.') {
            return Some(0);
        }
        let before = self.rest.len();
        let number = self.number(1, 9)?;
        let digits = (before - self.rest.len()) as u32;
        Some(number * 10_i64.pow(9 - digits))
    }

    /// Reads `[+-]YYYY-MM-DD`. Returns days from 1970-01-01.
    fn date(&mut self) -> Option<i64> {
        let (year, month, day) = self.day()?;
        let days = days_of_civil(year, month, day);
        (civil_of_days(days) == (year, month, day)).then_some(days)
    }

    /// Reads `[+-]YYYY-MM-DD` as year, month and day, which is 31 at most.
    fn day(&mut self) -> Option<(i64, i64, i64)> {
        let negative = self.eat(b'-');
        if !negative {
            self.eat(b'+');
        }
        let year = self.number(4, 9)?;
        let year = if negative { -year } else { year };
        let month = self.eat(b'-').then(|| self.number(2, 2))??;
        let day = self.eat(b'-').then(|| self.number(2, 2))??;
        ((1..=12).contains(&month) && (1..=31).contains(&day)).then_some((year, month, day))
    }

    /// Reads `HH:MM[:SS[.fraction]]`. Returns nanoseconds of the day.
    fn time(&mut self, needs_seconds: bool) -> Option<i64> {
        // As in Cassandra, a `time` may have leading zeros.
        let most = if needs_seconds { 9 } else { 2 };
        let hours = self.number(1, most)?;
        let minutes = self.eat(b':').then(|| self.number(1, most))??;
        let (seconds, fraction) = match self.eat(b':') {
            true => (self.number(1, most)?, self.fraction()?),
            false if needs_seconds => return None,
            false => (0, 0),
        };
        // A timestamp may be at the end of its day.
        let is_end = !needs_seconds && hours == 24 && minutes + seconds + fraction == 0;
        let is_valid = hours < 24 && minutes < 60 && seconds < 60 || is_end;
        is_valid.then_some(((hours * 60 + minutes) * 60 + seconds) * 1_000_000_000 + fraction)
    }

    /// Reads the optional time zone at the end: `Z`, ` UTC`, ` GMT`, `±HH`, `±HHMM` or `±HH:MM`.
    /// Returns the offset in minutes, to be subtracted.
    fn zone(&mut self) -> Option<i64> {
        if self.is_done() {
            return Some(0);
        }
        let is_apart = self.rest.starts_with(b" ");
        while self.eat(b' ') {}
        if matches!(self.rest, b"Z" | b"z") || is_apart && matches!(self.rest, b"UTC" | b"GMT") {
            self.rest = &[];
            return Some(0);
        }
        let negative = self.eat(b'-');
        if !negative && !self.eat(b'+') {
            return None;
        }
        let hours = self.number(2, 2)?;
        self.eat(b':');
        let minutes = if self.is_done() { 0 } else { self.number(2, 2)? };
        let offset = hours * 60 + minutes;
        (self.is_done() && hours <= 18 && minutes < 60).then_some(if negative { -offset } else { offset })
    }
}

/// Parses a `timestamp`: `YYYY-MM-DD` with an optional time and zone, or a number of milliseconds.
/// Returns milliseconds from 1970.
///
/// As in Cassandra, the last days of a month of 31 days are the last day of a shorter one.
pub(super) fn parse_timestamp(text: &str) -> Option<i64> {
    if is_number(text) {
        return text.parse().ok();
    }
    // Cassandra takes years of four digits here, and months and days of two. Others are
    // written with a sign.
    let is_short = matches!(text.as_bytes(), [b'0'..=b'9', _, _, _, b'-', _, _, b'-', ..]);
    if !is_short && text.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    let mut cursor = Cursor::new(text);
    let (year, month, day) = cursor.day()?;
    let last = days_of_civil(year, month + 1, 1) - 1;
    let days = days_of_civil(year, month, day).min(last);
    let has_time = matches!(cursor.rest, [b'T' | b' ', b'0'..=b'9', ..]);
    let nanoseconds = if has_time {
        cursor.rest = &cursor.rest[1..];
        cursor.time(false)?
    } else {
        0
    };
    let offset = cursor.zone()?;
    cursor.is_done().then_some(())?;
    days.checked_mul(DAY_MS)?.checked_add(nanoseconds / 1_000_000 - offset * 60_000)
}

/// Returns the text of a `timestamp`, such as `2011-02-03 04:05:00.000Z`.
pub(super) fn timestamp_text(milliseconds: i64) -> String {
    let mut text = day_text(milliseconds.div_euclid(DAY_MS));
    let of_day = milliseconds.rem_euclid(DAY_MS);
    let seconds = of_day / 1000;
    let fraction = of_day % 1000;
    let hours = seconds / 3600;
    let minutes = seconds / 60 % 60;
    let seconds = seconds % 60;
    write!(text, " {hours:02}:{minutes:02}:{seconds:02}.{fraction:03}Z").expect("a string takes all");
    text
}

/// Parses a `date`: `YYYY-MM-DD`, or its unsigned number. A year of more than four digits has a
/// sign, and one of four digits no `+`.
pub(super) fn parse_date(text: &str) -> Option<u32> {
    if is_number(text) {
        return text.parse().ok();
    }
    let is_short = matches!(text.as_bytes(), [b'0'..=b'9', _, _, _, b'-', ..]);
    let is_long = matches!(text.as_bytes(), [b'+', _, _, _, _, b'0'..=b'9', ..] | [b'-', ..]);
    if !is_short && !is_long {
        return None;
    }
    let mut cursor = Cursor::new(text);
    let days = cursor.date()?;
    cursor.is_done().then(|| u32::try_from(days + DATE_OF_EPOCH).ok())?
}

/// Returns true for digits behind an optional minus.
fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the text of a `date`, such as `2011-02-03`.
pub(super) fn date_text(date: u32) -> String {
    day_text(i64::from(date) - DATE_OF_EPOCH)
}

/// Parses a `time`: `HH:MM:SS[.fraction]`, or a number of nanoseconds. Returns nanoseconds of the
/// day.
pub(super) fn parse_time(text: &str) -> Option<i64> {
    if is_number(text) {
        return text.parse().ok().filter(|nanoseconds| (0..DAY_NANOSECONDS).contains(nanoseconds));
    }
    let mut cursor = Cursor::new(text.trim());
    let nanoseconds = cursor.time(true)?;
    cursor.is_done().then_some(nanoseconds)
}

/// Returns the text of a `time`, such as `04:05:06.000000000`.
pub(super) fn time_text(nanoseconds: i64) -> String {
    let seconds = nanoseconds.div_euclid(1_000_000_000);
    let fraction = nanoseconds.rem_euclid(1_000_000_000);
    format!("{:02}:{:02}:{:02}.{fraction:09}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

fn day_text(days: i64) -> String {
    let (year, month, day) = civil_of_days(days);
    match year {
        0..=9999 => format!("{year:04}-{month:02}-{day:02}"),
        _ => format!("{year:+05}-{month:02}-{day:02}"),
    }
}

/// Days of an era of 400 years, after which the calendar repeats.
const ERA_DAYS: i64 = 146_097;
/// Days from 0000-03-01 to 1970-01-01. Eras begin in March, so that a leap day is the last of its
/// year.
const ERA_TO_EPOCH_DAYS: i64 = 719_468;

/// Returns the days from 1970-01-01 to a date: year, month from 1 on, day from 1 on. Years are
/// within 2^50 of 0.
pub fn days_of_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    // From March on, each five months have 153 days.
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * ERA_DAYS + of_era * 365 + of_era / 4 - of_era / 100 + of_year - ERA_TO_EPOCH_DAYS
}

/// Returns year, month and day of a number of days from 1970-01-01, within 2^60 days.
pub fn civil_of_days(days: i64) -> (i64, i64, i64) {
    let days = days + ERA_TO_EPOCH_DAYS;
    let era = days.div_euclid(ERA_DAYS);
    let day = days.rem_euclid(ERA_DAYS);
    let of_era = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * of_era + of_era / 4 - of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = era * 400 + of_era + i64::from(month <= 2);
    (year, month, of_year - (153 * march_month + 2) / 5 + 1)
}
