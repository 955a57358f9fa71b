//! Parser and printer of durations: `1y2mo3w4d5h6m7s8ms9us10ns`, and the three ISO 8601 forms.

use std::fmt;

use crate::ast::Duration;

const MICROSECOND_NS: i64 = 1_000;
const MILLISECOND_NS: i64 = 1_000_000;
const SECOND_NS: i64 = 1_000_000_000;
const MINUTE_NS: i64 = 60 * SECOND_NS;
const HOUR_NS: i64 = 60 * MINUTE_NS;

/// Units with their part and their length in it. `mo` and `ms` come before `m`, so that the longest
/// unit matches.
const UNITS: [(&str, DurationPart, i64); 11] = [
    ("mo", DurationPart::Months, 1),
    ("ms", DurationPart::Nanoseconds, MILLISECOND_NS),
    ("us", DurationPart::Nanoseconds, MICROSECOND_NS),
    ("µs", DurationPart::Nanoseconds, MICROSECOND_NS),
    ("ns", DurationPart::Nanoseconds, 1),
    ("y", DurationPart::Months, 12),
    ("w", DurationPart::Days, 7),
    ("d", DurationPart::Days, 1),
    ("h", DurationPart::Nanoseconds, HOUR_NS),
    ("m", DurationPart::Nanoseconds, MINUTE_NS),
    ("s", DurationPart::Nanoseconds, SECOND_NS),
];

#[derive(Clone, Copy)]
enum DurationPart {
    Months,
    Days,
    Nanoseconds,
}

impl Duration {
    /// Parses a duration in any form of CQL. Returns `None` if the text is not a duration or a part
    /// overflows.
    pub fn parse(text: &str) -> Option<Duration> {
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let duration = match unsigned.strip_prefix(['P', 'p']) {
            Some(iso) => parse_iso(iso)?,
            None => parse_units(unsigned)?,
        };
        Some(if negative { duration.negated() } else { duration })
    }

    /// Returns the duration with its sign inverted.
    pub fn negated(self) -> Duration {
        // Parsed parts are never `MIN`, so that no value is lost. Other values saturate.
        Duration {
            months: self.months.saturating_neg(),
            days: self.days.saturating_neg(),
            nanoseconds: self.nanoseconds.saturating_neg(),
        }
    }

    /// True if any part is negative.
    pub fn is_negative(self) -> bool {
        self.months < 0 || self.days < 0 || self.nanoseconds < 0
    }

    fn add(&mut self, part: DurationPart, count: i64, unit: i64) -> Option<()> {
        let amount = count.checked_mul(unit)?;
        match part {
            DurationPart::Months => self.months = self.months.checked_add(i32::try_from(amount).ok()?)?,
            DurationPart::Days => self.days = self.days.checked_add(i32::try_from(amount).ok()?)?,
            DurationPart::Nanoseconds => self.nanoseconds = self.nanoseconds.checked_add(amount)?,
        }
        Some(())
    }
}

/// Returns the length in bytes of the alternating digits and units at the start of the text.
pub(crate) fn units_length(text: &str) -> Option<usize> {
    let mut at = 0;
    loop {
        let digits = text.as_bytes()[at..].iter().take_while(|b| b.is_ascii_digit()).count();
        if digits == 0 {
            return (at > 0).then_some(at);
        }
        let (unit, ..) = unit_at(&text[at + digits..])?;
        at += digits + unit.len();
    }
}

fn unit_at(text: &str) -> Option<(&'static str, DurationPart, i64)> {
    UNITS
        .into_iter()
        .find(|(unit, ..)| text.get(..unit.len()).is_some_and(|start| start.eq_ignore_ascii_case(unit)))
}

fn parse_units(text: &str) -> Option<Duration> {
    let mut duration = Duration::default();
    let mut rest = text;
    while !rest.is_empty() {
        let (count, after) = number(rest)?;
        let (unit, part, length) = unit_at(after)?;
        duration.add(part, count, length)?;
        rest = &after[unit.len()..];
    }
    (!text.is_empty()).then_some(duration)
}

/// Parses the text after the `P`: `1Y2M3DT4H5M6S`, `4W` or `0001-02-03T04:05:06`.
fn parse_iso(text: &str) -> Option<Duration> {
    let mut duration = Duration::default();
    if text.as_bytes().get(4) == Some(&b'-') {
        return parse_iso_date(text);
    }
    let mut rest = text;
    let mut in_time = false;
    let mut parts = 0;
    while !rest.is_empty() {
        if let (Some(after), false) = (rest.strip_prefix(['T', 't']), in_time) {
            in_time = true;
            rest = after;
            continue;
        }
        let (count, after) = number(rest)?;
        let (part, length) = match (after.as_bytes().first()?.to_ascii_uppercase(), in_time) {
            (b'Y', false) => (DurationPart::Months, 12),
            (b'M', false) => (DurationPart::Months, 1),
            (b'W', false) => (DurationPart::Days, 7),
            (b'D', false) => (DurationPart::Days, 1),
            (b'H', true) => (DurationPart::Nanoseconds, HOUR_NS),
            (b'M', true) => (DurationPart::Nanoseconds, MINUTE_NS),
            (b'S', true) => (DurationPart::Nanoseconds, SECOND_NS),
            _ => return None,
        };
        duration.add(part, count, length)?;
        rest = &after[1..];
        parts += 1;
    }
    (parts > 0).then_some(duration)
}

fn parse_iso_date(text: &str) -> Option<Duration> {
    const SHAPE: &[u8] = b"dddd-dd-ddTdd:dd:dd";
    let fits = text.len() == SHAPE.len()
        && text.bytes().zip(SHAPE).all(|(byte, &shape)| match shape {
            b'd' => byte.is_ascii_digit(),
            other => byte.eq_ignore_ascii_case(&other),
        });
    if !fits {
        return None;
    }
    let mut duration = Duration::default();
    let parts = [
        (0..4, DurationPart::Months, 12),
        (5..7, DurationPart::Months, 1),
        (8..10, DurationPart::Days, 1),
        (11..13, DurationPart::Nanoseconds, HOUR_NS),
        (14..16, DurationPart::Nanoseconds, MINUTE_NS),
        (17..19, DurationPart::Nanoseconds, SECOND_NS),
    ];
    for (digits, part, length) in parts {
        duration.add(part, text[digits].parse().ok()?, length)?;
    }
    Some(duration)
}

fn number(text: &str) -> Option<(i64, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    Some((text[..digits].parse().ok()?, &text[digits..]))
}

impl fmt::Display for Duration {
    /// Writes the canonical text: non-zero units from the largest to the smallest, or `0s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Duration::default() {
            return f.write_str("0s");
        }
        if self.is_negative() {
            f.write_str("-")?;
        }
        let months = u64::from(self.months.unsigned_abs());
        let mut rest_ns = self.nanoseconds.unsigned_abs();
        write_unit(f, months / 12, "y")?;
        write_unit(f, months % 12, "mo")?;
        write_unit(f, u64::from(self.days.unsigned_abs()), "d")?;
        for (length, unit) in [
            (HOUR_NS, "h"),
            (MINUTE_NS, "m"),
            (SECOND_NS, "s"),
            (MILLISECOND_NS, "ms"),
            (MICROSECOND_NS, "us"),
            (1, "ns"),
        ] {
            let length = length.unsigned_abs();
            write_unit(f, rest_ns / length, unit)?;
            rest_ns %= length;
        }
        Ok(())
    }
}

fn write_unit(f: &mut fmt::Formatter<'_>, count: u64, unit: &str) -> fmt::Result {
    if count == 0 { Ok(()) } else { write!(f, "{count}{unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<(i32, i32, i64)>) {
        let parsed = Duration::parse(text);
        let expected = expected.map(|(months, days, nanoseconds)| Duration { months, days, nanoseconds });
        assert_eq!(parsed, expected, "{text}");
        if let Some(duration) = parsed {
            assert_eq!(
                Duration::parse(&duration.to_string()),
                Some(duration),
                "{text} printed as {duration}"
            );
        }
    }

    #[test]
    fn durations_of_every_form_parse_and_print() {
        check("1h30m", Some((0, 0, HOUR_NS + 30 * MINUTE_NS)));
        check("1Y2MO3W4D", Some((14, 25, 0)));
        check("5ms6us7µs8ns", Some((0, 0, 5 * MILLISECOND_NS + 13 * MICROSECOND_NS + 8)));
        check("-2d", Some((0, -2, 0)));
        check("P1Y2M3DT4H5M6S", Some((14, 3, 4 * HOUR_NS + 5 * MINUTE_NS + 6 * SECOND_NS)));
        check("P2W", Some((0, 14, 0)));
        check("PT5M", Some((0, 0, 5 * MINUTE_NS)));
        check("P0001-02-03T04:05:06", Some((14, 3, 4 * HOUR_NS + 5 * MINUTE_NS + 6 * SECOND_NS)));
        check("0s", Some((0, 0, 0)));
        for bad in
            ["", "-", "5", "h", "5x", "P", "PT", "P5", "P1H", "1h5", "P0001-02-03", "P0001-02-03T0a:00:00"]
        {
            check(bad, None);
        }
        check("9223372036854775807ns", Some((0, 0, i64::MAX)));
        check("9223372036854775808ns", None);
        check("2147483647d1d", None);
        check("178956971y", None);
    }
}
