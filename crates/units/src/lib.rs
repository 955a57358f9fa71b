//! Sizes, percentages and dates as text, and the values of log fields. Settings, options of service
//! levels, messages and reports read and write them here, so that a size has the same units
//! everywhere. Standard library only.
//!
//! Times have no table here: CQL, PostgreSQL and the load generator each have units of their own.
//! The dates of CQL values are in `schema`, with years beyond four digits and a parser.

use std::fmt;
use std::time::Duration;

/// Units of bytes: binary units, then decimal units, each from the largest.
const BYTES: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("B", 1),
];

/// Parses `200MB`, `1.5 GiB` or `1000` as bytes. Units are case-insensitive, and a fraction has at
/// most 15 digits. `None`: another text, or more than `u64::MAX` bytes.
#[must_use]
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let number = text[..at].trim_end();
    let unit = &text[at..];
    let factor = match unit {
        "" => 1,
        unit => BYTES.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?.1,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || !(1..=15).contains(&fraction.len()) {
        return None;
    }
    let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let parts = u128::from(whole.parse::<u64>().ok()?) * scale + fraction.parse::<u128>().ok()?;
    u64::try_from(parts.checked_mul(u128::from(factor))? / scale).ok()
}

/// Formats bytes in the largest unit that leaves an integer.
#[must_use]
pub fn bytes_text(bytes: u64) -> String {
    let whole = |unit: &&(&str, u64)| bytes > 0 && bytes.is_multiple_of(unit.1);
    let (name, factor) = BYTES.iter().filter(whole).max_by_key(|unit| unit.1).copied().unwrap_or(("B", 1));
    format!("{}{name}", bytes / factor)
}

/// Bytes for people, with one decimal in a binary unit up to GiB.
#[derive(Clone, Copy, Debug)]
pub struct Rounded(pub u64);

impl fmt::Display for Rounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match BYTES[1..4].iter().find(|(_, factor)| self.0 >= *factor) {
            Some((name, factor)) => write!(f, "{:.1} {name}", self.0 as f64 / *factor as f64),
            None => write!(f, "{} B", self.0),
        }
    }
}

/// Parses `50%` or `12.5%` as ppm, up to 100 %, with at most four digits of scale.
#[must_use]
pub fn parse_percent(text: &str) -> Option<u32> {
    let number = text.trim().strip_suffix('%')?.trim_end();
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| (1..=4).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    let ppm = whole.parse::<u32>().ok()? * 10_000 + format!("{fraction:0<4}").parse::<u32>().ok()?;
    (ppm <= 1_000_000).then_some(ppm)
}

/// Formats ppm as a percentage.
#[must_use]
pub fn percent_text(ppm: impl Into<u64>) -> String {
    let ppm = ppm.into();
    let text = format!("{}.{:04}", ppm / 10_000, ppm % 10_000);
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Day, counted from 1970-01-01. Its text is `YYYY-MM-DD` in the Gregorian calendar.
#[derive(Clone, Copy, Debug)]
pub struct Day(pub i64);

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Years begin in March here, so that a leap day is the last day of its year. 719,468 days
        // are from 0000-03-01 to 1970-01-01. An era of 400 years has 146,097 days.
        let days = self.0 + 719_468;
        let era = days.div_euclid(146_097);
        let of_era = days.rem_euclid(146_097);
        let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        // From March on, each five months have 153 days.
        let month = (5 * of_year + 2) / 153;
        let day = of_year - (153 * month + 2) / 5 + 1;
        let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
        write!(f, "{:04}-{month:02}-{day:02}", era * 400 + year + carry)
    }
}

/// Formats seconds since 1970 as `YYYY-MM-DD HH:MM UTC`.
#[must_use]
pub fn minute_text(unix_s: u64) -> String {
    let days = unix_s / 86_400;
    let minutes = unix_s % 86_400 / 60;
    format!("{} {:02}:{:02} UTC", Day(days as i64), minutes / 60, minutes % 60)
}

/// Value of a field in a log line.
#[derive(Clone, PartialEq, Debug)]
pub enum FieldValue {
    /// A number of things, bytes or milliseconds.
    Count(u64),
    /// A number with three decimals.
    Decimal(f64),
    /// Any other value.
    Text(String),
}

impl FieldValue {
    /// Formats a value as text.
    pub fn text(value: impl fmt::Display) -> FieldValue {
        FieldValue::Text(value.to_string())
    }

    /// Returns true for a number that JSON can write as a number.
    #[must_use]
    pub fn is_number(&self) -> bool {
        match self {
            FieldValue::Count(_) => true,
            FieldValue::Decimal(number) => number.is_finite(),
            FieldValue::Text(_) => false,
        }
    }
}

impl fmt::Display for FieldValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FieldValue::Count(count) => write!(f, "{count}"),
            FieldValue::Decimal(number) => write!(f, "{number:.3}"),
            FieldValue::Text(text) => f.write_str(text),
        }
    }
}

impl From<u64> for FieldValue {
    fn from(count: u64) -> FieldValue {
        FieldValue::Count(count)
    }
}

impl From<u32> for FieldValue {
    fn from(count: u32) -> FieldValue {
        FieldValue::Count(count.into())
    }
}

impl From<usize> for FieldValue {
    fn from(count: usize) -> FieldValue {
        FieldValue::Count(count as u64)
    }
}

/// Writes a duration in whole milliseconds.
impl From<Duration> for FieldValue {
    fn from(duration: Duration) -> FieldValue {
        FieldValue::Count(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    }
}

impl From<String> for FieldValue {
    fn from(text: String) -> FieldValue {
        FieldValue::Text(text)
    }
}

impl From<&str> for FieldValue {
    fn from(text: &str) -> FieldValue {
        FieldValue::Text(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_bytes(text: &str, expected: Option<u64>) {
        assert_eq!(parse_bytes(text), expected, "{text}");
    }

    #[test]
    fn sizes_have_binary_and_decimal_units() {
        for (name, factor) in BYTES {
            check_bytes(&format!("3{name}"), Some(3 * factor));
            check_bytes(&format!(" 1.5 {} ", name.to_lowercase()), Some(factor + factor / 2));
            assert_eq!(bytes_text(3 * factor), format!("3{name}"));
        }
        check_bytes("18446744073709551615", Some(u64::MAX));
        check_bytes("0.000000000000001TiB", Some(0));
        check_bytes("16777215.999999999999999TiB", Some(u64::MAX));
        for bad in
            ["", "MiB", "-1MB", "+1MB", "1.", ".5MB", "1.0000000000000000B", "1e9", "5 miles", "16777216TiB"]
        {
            check_bytes(bad, None);
        }
        assert_eq!([0, 1536 << 20, 100_000].map(bytes_text), ["0B", "1536MiB", "100KB"]);
        let rounded = [1023, 1 << 10, 1 << 20, 1 << 30, 3 << 40].map(|bytes| Rounded(bytes).to_string());
        assert_eq!(rounded, ["1023 B", "1.0 KiB", "1.0 MiB", "1.0 GiB", "3072.0 GiB"]);
    }

    #[test]
    fn percentages_come_back_as_they_were() {
        for text in ["0%", "1%", "12.5%", "99.9999%", "100%", "10%"] {
            assert_eq!(percent_text(parse_percent(text).unwrap()), text);
        }
        for bad in ["", "%", "50", "101%", "-5%", "5.%", "0.00001%"] {
            assert_eq!(parse_percent(bad), None, "{bad}");
        }
    }

    #[test]
    fn dates_follow_the_calendar() {
        let check = |days, expected| assert_eq!(Day(days).to_string(), expected);
        check(-1, "1969-12-31");
        check(8035, "1992-01-01");
        check(11_017, "2000-03-01");
        check(20_818, "2026-12-31");
        check(47_541, "2100-03-01");
        let check = |unix_s, expected| assert_eq!(minute_text(unix_s), expected);
        check(0, "1970-01-01 00:00 UTC");
        check(951_782_399, "2000-02-28 23:59 UTC");
        check(951_782_400, "2000-02-29 00:00 UTC");
        check(1_764_000_000, "2025-11-24 16:00 UTC");
        check(1_795_243_353, "2026-11-21 06:42 UTC");
    }
}
