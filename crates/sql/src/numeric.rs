//! Decimals as Postgres' `numeric`, of any precision. (What libraries offer ends at 96 bits, which a sum of products of prices exceeds.)
//!
//! In binary a numeric is four 16-bit numbers and then digits to the base of 10,000: how many of these, the power of 10,000 that the first stands
//! for, the sign, the decimals to show. Digits that are zero are left out at both ends. After: `numeric_send` of PostgreSQL.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, BinaryArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::error::ArrowError;
use pgwire::api::results::FieldFormat;

/// Decimals in a digit.
const WIDTH: usize = 4;
const NEGATIVE: i16 = 0x4000;

/// A column of decimals as it is sent: texts, or bytes for the binary format.
///
/// # Errors
/// It is a column of something else.
pub(crate) fn encoded(column: &ArrayRef, format: FieldFormat) -> Result<ArrayRef, ArrowError> {
    let texts = cast(column, &DataType::Utf8)?;
    Ok(match format {
        FieldFormat::Text => texts,
        FieldFormat::Binary => {
            let values = texts.as_string::<i32>().iter();
            Arc::new(values.map(|text| text.map(binary)).collect::<BinaryArray>())
        }
    })
}

/// A decimal written as `-12.50`.
fn binary(text: &str) -> Vec<u8> {
    let (sign, text) = text.strip_prefix('-').map_or((0, text), |rest| (NEGATIVE, rest));
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let lead = whole.len().next_multiple_of(WIDTH);
    let trail = decimals.len().next_multiple_of(WIDTH);
    let written = format!("{whole:0>lead$}{decimals:0<trail$}");
    let digits: Vec<i16> = written
        .as_bytes()
        .chunks(WIDTH)
        .map(|digit| digit.iter().fold(0, |value, decimal| value * 10 + i16::from(decimal - b'0')))
        .collect();
    let zeros = digits.iter().take_while(|&&digit| digit == 0).count();
    let end = digits.iter().rposition(|&digit| digit != 0).map_or(zeros, |last| last + 1);
    let digits = &digits[zeros..end];
    // Zero has no digits, and the power 0.
    let power = if digits.is_empty() { 0 } else { (lead / WIDTH) as i16 - zeros as i16 - 1 };
    let head = [digits.len() as i16, power, sign, decimals.len() as i16];
    head.iter().chain(digits).flat_map(|number| number.to_be_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::Decimal128Array;

    use super::*;

    #[track_caller]
    fn check(text: &str, power: i16, sign: i16, decimals: i16, digits: &[i16]) {
        let expected = [&[digits.len() as i16, power, sign, decimals], digits].concat();
        assert_eq!(
            binary(text),
            expected.iter().flat_map(|number| number.to_be_bytes()).collect::<Vec<u8>>()
        );
    }

    #[test]
    fn digits_are_groups_of_four_decimals_around_the_point() {
        check("0", 0, 0, 0, &[]);
        check("0.000000", 0, 0, 6, &[]);
        check("1", 0, 0, 0, &[1]);
        check("-1.5", 0, NEGATIVE, 1, &[1, 5000]);
        check("12345.678", 1, 0, 3, &[1, 2345, 6780]);
        check("10000", 1, 0, 0, &[1]);
        check("0.00012", -1, 0, 5, &[1, 2000]);
        check("0.00001234", -2, 0, 8, &[1234]);
        check("99999999.00", 1, 0, 2, &[9999, 9999]);
    }

    #[test]
    fn the_widest_decimals_keep_all_their_digits() {
        let widest = Decimal128Array::from(vec![Some(-(10_i128.pow(38) - 1)), None, Some(5)]);
        let column: ArrayRef = Arc::new(widest.with_precision_and_scale(38, 18).expect("it fits"));
        let texts = encoded(&column, FieldFormat::Text).expect("decimals");
        let texts: Vec<_> = texts.as_string::<i32>().iter().collect();
        let least = "-99999999999999999999.999999999999999999";
        assert_eq!(texts, [Some(least), None, Some("0.000000000000000005")]);
        let bytes = encoded(&column, FieldFormat::Binary).expect("decimals");
        assert_eq!(bytes.as_binary::<i32>().value(0), binary(least));
        assert_eq!(bytes.null_count(), 1);
        check(least, 4, NEGATIVE, 18, &[9999, 9999, 9999, 9999, 9999, 9999, 9999, 9999, 9999, 9900]);
    }
}
