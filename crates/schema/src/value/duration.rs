//! Durations: months, days and nanoseconds, which have no fixed ratio. They are serialized as three
//! variable-length integers. Their text is `1y2mo3d4h5m6s7ms8us9ns`, or one of the `P…` forms of
//! ISO 8601.

use std::fmt;

use super::ValueError;
use super::calendar::Cursor;

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

/// Units in the order of the text: name, months, days, nanoseconds.
const UNITS: [(&str, i64, i64, i64); 10] = [
    ("y", 12, 0, 0),
    ("mo", 1, 0, 0),
    ("w", 0, 7, 0),
    ("d", 0, 1, 0),
    ("h", 0, 0, 3600 * SECOND),
    ("m", 0, 0, 60 * SECOND),
    ("s", 0, 0, SECOND),
    ("ms", 0, 0, 1_000_000),
    ("us", 0, 0, 1000),
    ("ns", 0, 0, 1),
];

impl Duration {
    /// Parses a serialized duration.
    pub fn from_bytes(bytes: &[u8]) -> Result<Duration, ValueError> {
        let malformed = |why| ValueError::malformed("duration", why);
        let mut rest = bytes;
        let mut part = || take_vint(&mut rest).ok_or(malformed("it is cut short"));
        let months = part()?;
        let days = part()?;
        let nanoseconds = part()?;
        if !rest.is_empty() {
            return Err(malformed("there are bytes after its end"));
        }
        let small = |part| i32::try_from(part).map_err(|_| malformed("months and days must fit 32 bits"));
        let months = small(months)?;
        let days = small(days)?;
        let negative = months < 0 || days < 0 || nanoseconds < 0;
        let positive = months > 0 || days > 0 || nanoseconds > 0;
        if negative && positive {
            return Err(malformed("its parts must have the same sign"));
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

    /// Parses `[-]1h30m`, `P1Y2M3DT4H5M6S`, `P3W` or `P0001-02-03T04:05:06`. Each unit may occur
    /// once, in descending order. `None`: invalid text, or a value out of range.
    pub fn parse(text: &str) -> Option<Duration> {
        let (negative, text) = match text.strip_prefix('-') {
            Some(text) => (true, text),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let text = text.to_lowercase().replace('µ', "u");
        let mut sum = Sum { negative, months: 0, days: 0, nanoseconds: 0 };
        match text.strip_prefix('p') {
            Some(iso) if iso.contains('-') => sum.add_iso_date(iso)?,
            Some(iso) => sum.add_iso(iso)?,
            None => sum.add_units(&text, &UNITS)?,
        }
        Some(Duration { months: sum.months, days: sum.days, nanoseconds: sum.nanoseconds })
    }
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
    fn add(&mut self, count: i64, months: i64, days: i64, nanoseconds: i64) -> Option<()> {
        let count = if self.negative { count.checked_neg()? } else { count };
        let small = |part: i64| i32::try_from(count.checked_mul(part)?).ok();
        self.months = self.months.checked_add(small(months)?)?;
        self.days = self.days.checked_add(small(days)?)?;
        self.nanoseconds = self.nanoseconds.checked_add(count.checked_mul(nanoseconds)?)?;
        Some(())
    }

    /// Adds pairs of count and unit in the order of `units`. There must be at least one.
    fn add_units(&mut self, text: &str, mut units: &[(&str, i64, i64, i64)]) -> Option<()> {
        let mut rest = text;
        while !rest.is_empty() || units.len() == UNITS.len() {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).filter(|&end| end > 0)?;
            let (count, after) = rest.split_at(digits);
            let end = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
            let (name, after) = after.split_at(end);
            let position = units.iter().position(|unit| unit.0 == name)?;
            let (_, months, days, nanoseconds) = units[position];
            self.add(count.parse().ok()?, months, days, nanoseconds)?;
            units = &units[position + 1..];
            rest = after;
        }
        Some(())
    }

    /// Adds the ISO 8601 form with designators, in lower case and without `p`. Before `t`, `m` is
    /// months. After it, `m` is minutes.
    fn add_iso(&mut self, iso: &str) -> Option<()> {
        let (date, time) = match iso.split_once('t') {
            Some((_, "")) => return None,
            Some((date, time)) => (date, time),
            None => (iso, ""),
        };
        if date.is_empty() && time.is_empty() {
            return None;
        }
        let date = date.replace('m', "mo");
        if !date.is_empty() {
            self.add_units(&date, &UNITS[..4])?;
        }
        if !time.is_empty() {
            self.add_units(time, &UNITS[4..7])?;
        }
        Some(())
    }

    /// Adds the alternative form of ISO 8601, in lower case and without `p`.
    fn add_iso_date(&mut self, iso: &str) -> Option<()> {
        let mut cursor = Cursor::new(iso);
        let mut field = |digits, end: u8| {
            let field = cursor.number(digits, digits)?;
            (end == 0 || cursor.eat(end)).then_some(field)
        };
        let fields = [
            field(4, b'-')?,
            field(2, b'-')?,
            field(2, b't')?,
            field(2, b':')?,
            field(2, b':')?,
            field(2, 0)?,
        ];
        for (count, unit) in fields.into_iter().zip([0, 1, 3, 4, 5, 6]) {
            let (_, months, days, nanoseconds) = UNITS[unit];
            self.add(count, months, days, nanoseconds)?;
        }
        cursor.is_done().then_some(())
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Duration::default() {
            return f.write_str("0s");
        }
        if self.months < 0 || self.days < 0 || self.nanoseconds < 0 {
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
        for (unit, _, _, size) in &UNITS[4..] {
            let count = nanoseconds / size.unsigned_abs();
            nanoseconds %= size.unsigned_abs();
            if count > 0 {
                write!(f, "{count}{unit}")?;
            }
        }
        Ok(())
    }
}

/// Appends a signed integer in zigzag form, in 1 to 9 bytes. The leading ones of the first byte are
/// the number of further bytes.
fn push_vint(value: i64, out: &mut Vec<u8>) {
    let zigzag = ((value << 1) ^ (value >> 63)) as u64;
    let bits = 64 - (zigzag | 1).leading_zeros();
    // Each byte has 7 bits for the value, because one is used for the length. Nine bytes hold all
    // 64.
    let others = if bits > 56 { 8 } else { (bits - 1) / 7 };
    let bytes = u128::from(zigzag).to_be_bytes();
    let start = out.len();
    out.extend_from_slice(&bytes[15 - others as usize..]);
    out[start] |= !(0xff_u32 >> others) as u8;
}

fn take_vint(input: &mut &[u8]) -> Option<i64> {
    let (&first, rest) = input.split_first()?;
    let others = first.leading_ones() as usize;
    let (bytes, rest) = rest.split_at_checked(others)?;
    let top = u64::from(first) & (0xff_u64 >> others);
    let zigzag = bytes.iter().fold(top, |value, &byte| (value << 8) | u64::from(byte));
    *input = rest;
    Some((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64))
}
