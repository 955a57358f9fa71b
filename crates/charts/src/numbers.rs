//! Numbers as text: times, rates, factors and percentages, with units and about three digits.

/// Returns a factor with about three digits.
pub fn factor(value: f64) -> String {
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
pub fn time(us: f64) -> String {
    match us / 1000.0 {
        ms if ms <= 0.0 => "–".to_string(),
        ms if ms < 1.0 => format!("{ms:.3}\u{a0}ms"),
        ms if ms < 100.0 => format!("{ms:.2}\u{a0}ms"),
        ms if ms < 1000.0 => format!("{ms:.0}\u{a0}ms"),
        ms => format!("{:.2}\u{a0}s", ms / 1000.0),
    }
}

/// Returns a round time of `us` microseconds, for the mark of an axis.
pub fn round_time(us: f64) -> String {
    if us < 0.999 {
        format!("{:.0} ns", us * 1e3)
    } else if us < 999.0 {
        format!("{us:.0} µs")
    } else if us < 999_000.0 {
        format!("{:.0} ms", us / 1e3)
    } else {
        format!("{:.0} s", us / 1e6)
    }
}

/// Returns a rate in groups of three digits.
pub fn rate(per_s: f64) -> String {
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

/// Returns a number with at most six decimals, for the mark of an axis.
pub fn number(value: f64) -> String {
    format!("{}", (value * 1e6).round() / 1e6)
}

/// Returns a fraction as a percentage with one decimal.
pub fn percent(part: f64) -> String {
    format!("{:.1}\u{a0}%", part * 100.0)
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
        assert_eq!([number(0.1 + 0.2), number(2.0)], ["0.3", "2"]);
        assert_eq!(percent(0.4999), "50.0\u{a0}%");
    }
}
