//! Texts of floating-point numbers as Java writes them: the shortest digits that parse to the same
//! number, without exponent from 10^−3 to below 10^7. Java before version 19 writes a digit too
//! many for some numbers.

/// Returns the text of Java's `Double.toString`.
pub(crate) fn double(number: f64) -> String {
    java(number.is_nan(), number.is_infinite(), number < 0.0, &format!("{number:e}"))
}

/// Returns the text of Java's `Float.toString`.
pub(crate) fn float(number: f32) -> String {
    java(number.is_nan(), number.is_infinite(), number < 0.0, &format!("{number:e}"))
}

/// Rewrites Rust's shortest scientific text, such as `-1.25e-3`.
fn java(is_nan: bool, is_infinite: bool, is_negative: bool, scientific: &str) -> String {
    if is_nan {
        return "NaN".to_owned();
    }
    if is_infinite {
        return if is_negative { "-Infinity" } else { "Infinity" }.to_owned();
    }
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let digits = mantissa.replace('.', "");
    if !(-3..7).contains(&exponent) {
        let fraction = if digits.len() > 1 { &digits[1..] } else { "0" };
        return format!("{sign}{}.{fraction}E{exponent}", &digits[..1]);
    }
    if exponent < 0 {
        return format!("{sign}0.{}{digits}", "0".repeat((-exponent - 1) as usize));
    }
    // Digits before the point.
    let whole = exponent as usize + 1;
    let digits = format!("{digits:0<width$}", width = whole + 1);
    format!("{sign}{}.{}", &digits[..whole], &digits[whole..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_those_of_java() {
        for (number, expected) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (-6.3, "-6.3"),
            (100.0, "100.0"),
            (1234567.0, "1234567.0"),
            (9999999.5, "9999999.5"),
            (1e7, "1.0E7"),
            (1.25e10, "1.25E10"),
            (0.001, "0.001"),
            (0.0125, "0.0125"),
            (0.00012, "1.2E-4"),
            (f64::MAX, "1.7976931348623157E308"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(double(number), expected);
        }
        assert_eq!(float(5.2), "5.2");
        assert_eq!(float(3.4028235e38), "3.4028235E38");
    }
}
