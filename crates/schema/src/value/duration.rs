//! Durations: months, days and nanoseconds, which have no fixed ratio. They are serialized as three
//! variable-length integers. Their text is `1y2mo3d4h5m6s7ms8us9ns`, or one of the `P…` forms of
//! ISO 8601.

use std::fmt;

use super::ValueError;
use super::vint::{push_unsigned_vint, take_unsigned_vint};

/// A duration. All three fields have the same sign or are zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Duration {
    /// Months.
    pub months: i32,
    /// Days.
    pub days: i32,
    /// Nanoseconds.
    pub nanoseconds: i64,
}

const SECOND: i64 = 1_000_000_000;

/// A unit, and one of it in months, days and nanoseconds.
struct Unit {
    /// Name in the text.
    name: &'static str,
    /// Name in messages.
    plural: &'static str,
    months: i64,
    days: i64,
    nanoseconds: i64,
}

const fn unit(name: &'static str, plural: &'static str, months: i64, days: i64, nanoseconds: i64) -> Unit {
    Unit { name, plural, months, days, nanoseconds }
}

/// Units in the order of the text.
const UNITS: [Unit; 10] = [
    unit("y", "years", 12, 0, 0),
    unit("mo", "months", 1, 0, 0),
    unit("w", "weeks", 0, 7, 0),
    unit("d", "days", 0, 1, 0),
    unit("h", "hours", 0, 0, 3600 * SECOND),
    unit("m", "minutes", 0, 0, 60 * SECOND),
    unit("s", "seconds", 0, 0, SECOND),
    unit("ms", "milliseconds", 0, 0, 1_000_000),
    unit("us", "microseconds", 0, 0, 1000),
    unit("ns", "nanoseconds", 0, 0, 1),
];
/// Indexes of [`UNITS`] in both ISO 8601 forms.
const ISO_DATE_UNITS: [usize; 3] = [0, 1, 3];
const ISO_TIME_UNITS: [usize; 3] = [4, 5, 6];
const WEEKS: usize = 2;

/// Reason why a text is no duration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DurationError {
    /// The text has none of the forms.
    Form,
    /// A unit occurs twice.
    Repeated(&'static str),
    /// The first unit stands before the second one.
    Order(&'static str, &'static str),
    /// The sum of months, days or nanoseconds is out of range.
    Range(&'static str),
}

impl DurationError {
    /// Returns Cassandra's message. `text` is the rejected text.
    pub(super) fn message(self, text: &str) -> String {
        match self {
            DurationError::Form => format!("Unable to convert '{text}' to a duration"),
            other => other.to_string(),
        }
    }
}

impl fmt::Display for DurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DurationError::Form => f.write_str("Unable to convert the text to a duration"),
            DurationError::Repeated(unit) => {
                write!(f, "Invalid duration. The {unit} are specified multiple times")
            }
            DurationError::Order(unit, after) => {
                write!(f, "Invalid duration. The {unit} should be after {after}")
            }
            // Cassandra names this limit for nanoseconds too.
            DurationError::Range(sum) => {
                write!(f, "Invalid duration. The total number of {sum} must be less or equal to {}", i32::MAX)
            }
        }
    }
}

impl std::error::Error for DurationError {}

impl Duration {
    /// Parses a serialized duration.
    pub fn from_bytes(bytes: &[u8]) -> Result<Duration, ValueError> {
        if bytes.len() < 3 {
            let expected = "Expected at least 3 bytes for a duration";
            return Err(ValueError::Length { expected, actual: bytes.len() });
        }
        let malformed = |why| ValueError::malformed("duration", why);
        let mut rest = bytes;
        let mut part = || take_vint(&mut rest).ok_or(malformed("it is cut short"));
        let months = part()?;
        let days = part()?;
        let nanoseconds = part()?;
        if !rest.is_empty() {
            return Err(malformed("there are bytes after its end"));
        }
        let text = ValueError::text;
        let small = |part: i64, what: &str| {
            let message = || format!("The duration {what} must be a 32 bits integer but was: {part}");
            i32::try_from(part).map_err(|_| text(message()))
        };
        let months = small(months, "months")?;
        let days = small(days, "days")?;
        let negative = months < 0 || days < 0 || nanoseconds < 0;
        let positive = months > 0 || days > 0 || nanoseconds > 0;
        if negative && positive {
            return Err(text(format!(
                "The duration months, days and nanoseconds must be all of the same sign ({months}, {days}, \
                 {nanoseconds})"
            )));
        }
        Ok(Duration { months, days, nanoseconds })
    }

    /// Returns the serialized duration.
    pub fn to_bytes(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(8);
        push_vint(self.months.into(), &mut out);
        push_vint(self.days.into(), &mut out);
        push_vint(self.nanoseconds, &mut out);
        out
    }

    /// Returns the duration with its sign inverted.
    #[must_use]
    pub fn negated(self) -> Duration {
        // Only values from clients have parts that are `MIN`. They saturate.
        Duration {
            months: self.months.saturating_neg(),
            days: self.days.saturating_neg(),
            nanoseconds: self.nanoseconds.saturating_neg(),
        }
    }

    /// Returns true if any part is negative.
    #[must_use]
    pub fn is_negative(self) -> bool {
        self.months < 0 || self.days < 0 || self.nanoseconds < 0
    }

    /// Parses `[-]1h30m`, `P1Y2M3DT4H5M6S`, `P3W` or `P0001-02-03T04:05:06`. Each unit may occur
    /// once, in descending order. ISO 8601 has weeks alone only.
    ///
    /// # Errors
    /// Returns the reason why the text is no duration, or a value out of range.
    pub fn parse(text: &str) -> Result<Duration, DurationError> {
        let (negative, text) = match text.strip_prefix('-') {
            Some(text) => (true, text),
            None => (false, text),
        };
        let mut sum = Sum { negative, months: 0, days: 0, nanoseconds: 0 };
        match text.strip_prefix('P') {
            Some(iso) if iso.contains('-') => sum.add_iso_date(iso)?,
            Some(iso) => sum.add_iso(iso)?,
            None => sum.add_units(text)?,
        }
        Ok(Duration { months: sum.months, days: sum.days, nanoseconds: sum.nanoseconds })
    }
}

/// Returns the length in bytes of the alternating digits and units at the start of the text, in any
/// order. `None` if there are none.
pub fn units_length(text: &str) -> Option<usize> {
    let mut at = 0;
    while let Some((_, _, rest)) = count_and_unit(&text[at..]) {
        at = text.len() - rest.len();
    }
    (at > 0).then_some(at)
}

/// Splits the text after its first number and unit: digits, index in [`UNITS`] and the rest.
fn count_and_unit(text: &str) -> Option<(&str, usize, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, rest) = text.split_at_checked(digits).filter(|(digits, _)| !digits.is_empty())?;
    let starts = |name: &str| rest.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
    // The longest name wins: `mo` and `ms` over `m`.
    let longest =
        (0..UNITS.len()).filter(|at| starts(UNITS[*at].name)).max_by_key(|at| UNITS[*at].name.len());
    if let Some(at) = longest {
        return Some((digits, at, &rest[UNITS[at].name.len()..]));
    }
    let rest = rest.strip_prefix('µ')?.strip_prefix(['s', 'S'])?;
    Some((digits, UNITS.iter().position(|unit| unit.name == "us")?, rest))
}

/// Sum of the units of a duration. For a negative one, units are subtracted, so that the minimum of
/// each integer type can be written.
struct Sum {
    negative: bool,
    months: i32,
    days: i32,
    nanoseconds: i64,
}

impl Sum {
    /// Adds `digits` times the unit at this index of [`UNITS`].
    fn add(&mut self, digits: &str, at: usize) -> Result<(), DurationError> {
        let unit = &UNITS[at];
        let sum = match unit {
            Unit { months: 1.., .. } => "months",
            Unit { days: 1.., .. } => "days",
            _ => "nanoseconds",
        };
        self.checked_add(digits, unit).ok_or(DurationError::Range(sum))
    }

    fn checked_add(&mut self, digits: &str, unit: &Unit) -> Option<()> {
        // The minimum has no positive counterpart: parse with the sign.
        let count = digits.parse::<u64>().ok()?;
        let count =
            if self.negative { 0_i64.checked_sub_unsigned(count)? } else { i64::try_from(count).ok()? };
        let small = |part: i64| i32::try_from(count.checked_mul(part)?).ok();
        self.months = self.months.checked_add(small(unit.months)?)?;
        self.days = self.days.checked_add(small(unit.days)?)?;
        self.nanoseconds = self.nanoseconds.checked_add(count.checked_mul(unit.nanoseconds)?)?;
        Some(())
    }

    /// Adds pairs of count and unit in descending order. There must be at least one.
    fn add_units(&mut self, text: &str) -> Result<(), DurationError> {
        if units_length(text) != Some(text.len()) {
            return Err(DurationError::Form);
        }
        let mut rest = text;
        let mut last: Option<usize> = None;
        while let Some((digits, at, after)) = count_and_unit(rest) {
            match last {
                Some(last) if last == at => return Err(DurationError::Repeated(UNITS[at].plural)),
                Some(last) if last > at => {
                    return Err(DurationError::Order(UNITS[last].plural, UNITS[at].plural));
                }
                _ => last = Some(at),
            }
            self.add(digits, at)?;
            rest = after;
        }
        Ok(())
    }

    /// Adds the ISO 8601 form with designators, without `P`. Before `T`, `M` is months. After it,
    /// `M` is minutes.
    fn add_iso(&mut self, iso: &str) -> Result<(), DurationError> {
        if let Some(digits) = iso.strip_suffix('W') {
            let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
            return if is_number { self.add(digits, WEEKS) } else { Err(DurationError::Form) };
        }
        let (date, time) = iso.split_once('T').unwrap_or((iso, ""));
        if date.is_empty() && time.is_empty() {
            return Err(DurationError::Form);
        }
        self.add_iso_units(date, &ISO_DATE_UNITS, "YMD")?;
        self.add_iso_units(time, &ISO_TIME_UNITS, "HMS")
    }

    /// Adds pairs of count and one of three designators, each at most once and in their order.
    fn add_iso_units(
        &mut self,
        text: &str,
        units: &[usize; 3],
        designators: &str,
    ) -> Result<(), DurationError> {
        let mut rest = text;
        let mut from = 0;
        while !rest.is_empty() {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let designator = rest[digits..].chars().next().filter(|_| digits > 0);
            let found = designator.and_then(|of| designators.chars().position(|known| known == of));
            let at = found.filter(|at| *at >= from).ok_or(DurationError::Form)?;
            self.add(&rest[..digits], units[at])?;
            from = at + 1;
            // Designators are ASCII.
            rest = &rest[digits + 1..];
        }
        Ok(())
    }

    /// Adds the alternative form of ISO 8601, without `P`.
    fn add_iso_date(&mut self, iso: &str) -> Result<(), DurationError> {
        const SHAPE: &[u8] = b"dddd-dd-ddTdd:dd:dd";
        let is_like =
            |(byte, shape): (u8, &u8)| if *shape == b'd' { byte.is_ascii_digit() } else { byte == *shape };
        if iso.len() != SHAPE.len() || !iso.bytes().zip(SHAPE).all(is_like) {
            return Err(DurationError::Form);
        }
        let fields = [0..4, 5..7, 8..10, 11..13, 14..16, 17..19];
        for (field, at) in fields.into_iter().zip(ISO_DATE_UNITS.into_iter().chain(ISO_TIME_UNITS)) {
            self.add(&iso[field], at)?;
        }
        Ok(())
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Duration::default() {
            return f.write_str("0s");
        }
        if self.is_negative() {
            f.write_str("-")?;
        }
        let months = u64::from(self.months.unsigned_abs());
        let mut nanoseconds = self.nanoseconds.unsigned_abs();
        for (count, unit) in [(months / 12, "y"), (months % 12, "mo"), (self.days.unsigned_abs().into(), "d")]
        {
            if count > 0 {
                write!(f, "{count}{unit}")?;
            }
        }
        for unit in &UNITS[4..] {
            let length = unit.nanoseconds.unsigned_abs();
            let count = nanoseconds / length;
            nanoseconds %= length;
            if count > 0 {
                write!(f, "{count}{}", unit.name)?;
            }
        }
        Ok(())
    }
}

/// Appends a signed integer in zigzag form.
fn push_vint(value: i64, out: &mut Vec<u8>) {
    push_unsigned_vint(((value << 1) ^ (value >> 63)) as u64, out);
}

fn take_vint(input: &mut &[u8]) -> Option<i64> {
    let zigzag = take_unsigned_vint(input)?;
    Some((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64))
}
