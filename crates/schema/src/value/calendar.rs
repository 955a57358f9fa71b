//! Days, times and instants as text. The calendar is the proleptic Gregorian one, zones are offsets from UTC,
//! and text without a zone is UTC (Cassandra takes the server's own zone there, so that it depends on the server).

use std::fmt::Write;

const DAY_MS: i64 = 86_400_000;
/// A `date` counts days from 2³¹ days before 1970-01-01.
const DATE_OF_EPOCH: i64 = 1 << 31;

/// Reads text from its front, a byte or a number at a time.
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

    /// A number of `least..=most` (at most 9) digits.
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

    /// The fraction of a second in nanoseconds, if a point follows.
    fn fraction(&mut self) -> Option<i64> {
        if !self.eat(b'.') {
            return Some(0);
        }
        let before = self.rest.len();
        let number = self.number(1, 9)?;
        let digits = (before - self.rest.len()) as u32;
        Some(number * 10_i64.pow(9 - digits))
    }

    /// `[+-]YYYY-MM-DD`, as days from 1970-01-01.
    fn date(&mut self) -> Option<i64> {
        let negative = self.eat(b'-');
        if !negative {
            self.eat(b'+');
        }
        let year = self.number(4, 9)?;
        let year = if negative { -year } else { year };
        let month = self.eat(b'-').then(|| self.number(1, 2))??;
        let day = self.eat(b'-').then(|| self.number(1, 2))??;
        let days = (1..=12).contains(&month).then(|| days_of(year, month, day))?;
        (day >= 1 && date_of(days) == (year, month, day)).then_some(days)
    }

    /// `HH:MM[:SS[.fraction]]`, as nanoseconds of the day.
    fn time(&mut self, seconds_needed: bool) -> Option<i64> {
        let hours = self.number(1, 2)?;
        let minutes = self.eat(b':').then(|| self.number(1, 2))??;
        let (seconds, fraction) = match self.eat(b':') {
            true => (self.number(1, 2)?, self.fraction()?),
            false if seconds_needed => return None,
            false => (0, 0),
        };
        let sound = hours < 24 && minutes < 60 && seconds < 60;
        sound.then_some(((hours * 60 + minutes) * 60 + seconds) * 1_000_000_000 + fraction)
    }

    /// A zone, if there is one: `Z`, `UTC`, `GMT`, `±HH`, `±HHMM` or `±HH:MM`, as minutes to take away.
    fn zone(&mut self) -> Option<i64> {
        while self.eat(b' ') {}
        if self.is_done() {
            return Some(0);
        }
        if let b"Z" | b"z" | b"UTC" | b"GMT" = self.rest {
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

/// Milliseconds from 1970 of a `timestamp`'s text: `YYYY-MM-DD`, then perhaps a time and a zone; or the
/// milliseconds themselves.
pub(super) fn parse_timestamp(text: &str) -> Option<i64> {
    let text = text.trim();
    if let Ok(milliseconds) = text.parse() {
        return Some(milliseconds);
    }
    let mut cursor = Cursor::new(text);
    let days = cursor.date()?;
    let has_time = matches!(cursor.rest, [b'T' | b't' | b' ', b'0'..=b'9', ..]);
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

/// The `timestamp`'s text: `2011-02-03 04:05:00.000Z`.
pub(super) fn timestamp_text(milliseconds: i64) -> String {
    let mut text = day_text(milliseconds.div_euclid(DAY_MS));
    let of_day = milliseconds.rem_euclid(DAY_MS);
    let (seconds, fraction) = (of_day / 1000, of_day % 1000);
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    write!(text, " {hours:02}:{minutes:02}:{seconds:02}.{fraction:03}Z").expect("a string takes all");
    text
}

/// A `date` from its text: `YYYY-MM-DD`, or the raw unsigned number.
pub(super) fn parse_date(text: &str) -> Option<u32> {
    let text = text.trim();
    if let Ok(raw) = text.parse() {
        return Some(raw);
    }
    let mut cursor = Cursor::new(text);
    let days = cursor.date()?;
    cursor.is_done().then(|| u32::try_from(days + DATE_OF_EPOCH).ok())?
}

/// The `date`'s text: `2011-02-03`.
pub(super) fn date_text(date: u32) -> String {
    day_text(i64::from(date) - DATE_OF_EPOCH)
}

/// Nanoseconds of the day from a `time`'s text: `HH:MM:SS[.fraction]`, or the nanoseconds themselves.
pub(super) fn parse_time(text: &str) -> Option<i64> {
    let text = text.trim();
    if let Ok(nanoseconds) = text.parse() {
        return (0..super::check::DAY_NANOSECONDS).contains(&nanoseconds).then_some(nanoseconds);
    }
    let mut cursor = Cursor::new(text);
    let nanoseconds = cursor.time(true)?;
    cursor.is_done().then_some(nanoseconds)
}

/// The `time`'s text: `04:05:06.000000000`.
pub(super) fn time_text(nanoseconds: i64) -> String {
    let (seconds, fraction) = (nanoseconds.div_euclid(1_000_000_000), nanoseconds.rem_euclid(1_000_000_000));
    format!("{:02}:{:02}:{:02}.{fraction:09}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

fn day_text(days: i64) -> String {
    let (year, month, day) = date_of(days);
    match year {
        0..=9999 => format!("{year:04}-{month:02}-{day:02}"),
        _ => format!("{year:+05}-{month:02}-{day:02}"),
    }
}

/// Days of 400 years, after which the calendar repeats.
const ERA_DAYS: i64 = 146_097;
/// From 0000-03-01, where our eras begin (so that a leap day ends its year), to 1970-01-01.
const ERA_TO_EPOCH_DAYS: i64 = 719_468;

/// Days from 1970-01-01 to a day.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    // Months from March have 153 days every five.
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * ERA_DAYS + of_era * 365 + of_era / 4 - of_era / 100 + of_year - ERA_TO_EPOCH_DAYS
}

/// Year, month and day of a day counted from 1970-01-01.
fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + ERA_TO_EPOCH_DAYS;
    let (era, day) = (days.div_euclid(ERA_DAYS), days.rem_euclid(ERA_DAYS));
    let of_era = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * of_era + of_era / 4 - of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = era * 400 + of_era + i64::from(month <= 2);
    (year, month, of_year - (153 * march_month + 2) / 5 + 1)
}
