//! Numbers as text: times, rates, factors and percentages, with units and about three digits.

/// Returns a factor with about three digits.
pub(crate) fn factor(value: f64) -> String {
    if value >= 1000.0 {
        rate(value)
    } else if value >= 100.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

/// Returns a time of `us` microseconds in milliseconds or seconds, with about three digits.
pub(crate) fn time(us: f64) -> String {
    match us / 1000.0 {
        ms if ms <= 0.0 => "–".to_string(),
        ms if ms < 1.0 => format!("{ms:.3}\u{a0}ms"),
        ms if ms < 100.0 => format!("{ms:.2}\u{a0}ms"),
        ms if ms < 1000.0 => format!("{ms:.0}\u{a0}ms"),
        ms => format!("{:.2}\u{a0}s", ms / 1000.0),
    }
}

/// Returns a round time of `us` microseconds, for the mark of an axis.
pub(crate) fn round_time(us: f64) -> String {
    if us < 999.0 {
        format!("{us:.0} µs")
    } else if us < 999_000.0 {
        format!("{:.0} ms", us / 1e3)
    } else {
        format!("{:.0} s", us / 1e6)
    }
}

/// Returns a rate in groups of three digits.
pub(crate) fn rate(per_s: f64) -> String {
    let digits = format!("{per_s:.0}");
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            out.push('\u{a0}');
        }
        out.push(digit);
    }
    out
}

/// Returns a fraction as a percentage with one decimal.
pub(crate) fn percent(part: f64) -> String {
    format!("{:.1}\u{a0}%", part * 100.0)
}

/// Returns a time in milliseconds since 1970 as `2026-11-21 07:15 UTC`.
pub(crate) fn date(unix_ms: u64) -> String {
    let minutes = unix_ms / 60_000;
    let (year, month, day) = civil((minutes / 1440) as i64);
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", minutes / 60 % 24, minutes % 60)
}

/// Returns year, month and day of a number of days since 1970-01-01. Years start in March here, so
/// that a leap day is the last day of its year. 400 years have 146,097 days.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468; // since 0000-03-01
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153; // from March; five months have 153 days
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year_of_era + later, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units_and_three_digits() {
        assert_eq!([rate(0.4), rate(999.0), rate(1_234_567.0)], ["0", "999", "1\u{a0}234\u{a0}567"]);
        let times = [time(0.0), time(123.4), time(45_678.0), time(2e7)];
        assert_eq!(times, ["–", "0.123\u{a0}ms", "45.68\u{a0}ms", "20.00\u{a0}s"]);
        let marks = [round_time(500.0), round_time(1000.0), round_time(2e4), round_time(1e7)];
        assert_eq!(marks, ["500 µs", "1 ms", "20 ms", "10 s"]);
        let factors = [factor(1.234), factor(12.34), factor(123.4), factor(2613.0)];
        assert_eq!(factors, ["1.23", "12.3", "123", "2\u{a0}613"]);
        assert_eq!(percent(0.4999), "50.0\u{a0}%");
    }

    #[test]
    fn dates_are_in_utc() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_399_000), "2000-02-28 23:59 UTC");
        assert_eq!(date(951_782_400_000), "2000-02-29 00:00 UTC");
        assert_eq!(date(1_795_243_353_380), "2026-11-21 06:42 UTC");
    }
}
