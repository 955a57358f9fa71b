//! Encodes intervals as Postgres does: months, days and microseconds separately. The protocol's
//! library cannot encode null in a column of intervals.

use std::fmt::Write;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BinaryArray, StringArray};
use datafusion::arrow::datatypes::{IntervalMonthDayNano, IntervalMonthDayNanoType};
use pgwire::api::results::FieldFormat;

/// Encodes a column of intervals: as text, or as bytes for the binary format. Truncates to whole
/// microseconds.
///
/// # Panics
/// Panics if the column has another type.
pub(crate) fn encoded(column: &dyn Array, format: FieldFormat) -> ArrayRef {
    let intervals = column.as_primitive::<IntervalMonthDayNanoType>().iter();
    let parts = intervals.map(|interval| interval.map(Parts::of));
    match format {
        FieldFormat::Text => Arc::new(parts.map(|parts| parts.map(Parts::text)).collect::<StringArray>()),
        FieldFormat::Binary => Arc::new(parts.map(|parts| parts.map(Parts::bytes)).collect::<BinaryArray>()),
    }
}

/// Appends the text of a value that is not null.
///
/// # Panics
/// Panics if the column has another type.
pub(crate) fn write(column: &dyn Array, row: usize, out: &mut String) {
    let interval = column.as_primitive::<IntervalMonthDayNanoType>().value(row);
    out.push_str(&Parts::of(interval).text());
}

/// An interval as Postgres stores it.
struct Parts {
    months: i32,
    days: i32,
    microseconds: i64,
}

impl Parts {
    fn of(interval: IntervalMonthDayNano) -> Parts {
        let IntervalMonthDayNano { months, days, nanoseconds } = interval;
        Parts { months, days, microseconds: nanoseconds / 1000 }
    }

    fn bytes(self) -> Vec<u8> {
        [&self.microseconds.to_be_bytes()[..], &self.days.to_be_bytes(), &self.months.to_be_bytes()].concat()
    }

    /// Returns the text form of `IntervalStyle = postgres`: `1 year 2 mons -3 days +04:05:06.7`.
    /// Follows `EncodeInterval` of PostgreSQL.
    fn text(self) -> String {
        let Parts { months, days, microseconds } = self;
        let (mut out, mut was_negative) = (String::new(), false);
        for (value, unit) in [(months / 12, "year"), (months % 12, "mon"), (days, "day")] {
            if value != 0 {
                let space = if out.is_empty() { "" } else { " " };
                let sign = if was_negative && value > 0 { "+" } else { "" };
                let plural = if value == 1 { "" } else { "s" };
                let _ = write!(out, "{space}{sign}{value} {unit}{plural}");
                was_negative = value < 0;
            }
        }
        if microseconds != 0 || out.is_empty() {
            let space = if out.is_empty() { "" } else { " " };
            let sign = match microseconds {
                ..0 => "-",
                _ if was_negative => "+",
                _ => "",
            };
            let all = microseconds.unsigned_abs();
            let (seconds, fraction) = (all / 1_000_000, all % 1_000_000);
            let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
            let _ = write!(out, "{space}{sign}{hours:02}:{minutes:02}:{:02}", seconds % 60);
            if fraction != 0 {
                let _ = write!(out, ".{}", format!("{fraction:06}").trim_end_matches('0'));
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::Parts;

    #[test]
    fn interval_text_matches_postgres() {
        let second = 1_000_000;
        for (months, days, microseconds, expected) in [
            (0, 0, 0, "00:00:00"),
            (14, 3, 14_706 * second + 700_000, "1 year 2 mons 3 days 04:05:06.7"),
            (-14, 3, -second, "-1 years -2 mons +3 days -00:00:01"),
            (0, -1, second / 2, "-1 days +00:00:00.5"),
            (12, 1, 0, "1 year 1 day"),
            (0, 0, i64::MIN, "-2562047788:00:54.775808"),
            (-1, 0, 360_000 * second, "-1 mons +100:00:00"),
        ] {
            assert_eq!(Parts { months, days, microseconds }.text(), expected);
        }
    }
}
