//! Encodes and parses decimals as Postgres' `numeric`, and lists of them as arrays, of any
//! precision. The libraries support 96 bits, which a sum of products of prices exceeds.
//!
//! A binary numeric is four 16-bit numbers followed by digits to the base of 10,000. The four are
//! the count of digits, the power of 10,000 of the first digit, the sign, and the scale to show.
//! Zero digits at both ends are omitted. An array is five 32-bit numbers followed by its elements,
//! each after its length. The five are the dimensions, a flag for nulls, the element type, the
//! count of elements, and the first index. Source: `numeric_send` and `array_send` of PostgreSQL.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, BinaryArray, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::arrow::error::ArrowError;
use pgwire::api::Type;
use pgwire::api::results::FieldFormat;

/// Decimal places in a digit of base 10,000.
const WIDTH: usize = 4;
const NEGATIVE: i16 = 0x4000;

/// Encodes a column of decimals or of lists of them: as texts, or as bytes for the binary format.
///
/// # Errors
/// The column has another type.
pub(crate) fn encoded(column: &ArrayRef, format: FieldFormat) -> Result<ArrayRef, ArrowError> {
    if !column.data_type().is_decimal() {
        return encoded_lists(column, format);
    }
    let texts = cast(column, &DataType::Utf8)?;
    Ok(match format {
        FieldFormat::Text => texts,
        FieldFormat::Binary => {
            let values = texts.as_string::<i32>().iter();
            Arc::new(values.map(|text| text.map(binary)).collect::<BinaryArray>())
        }
    })
}

fn encoded_lists(column: &ArrayRef, format: FieldFormat) -> Result<ArrayRef, ArrowError> {
    let lists = cast(column, &DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true))))?;
    let lists = lists.as_list::<i32>().iter();
    Ok(match format {
        FieldFormat::Text => {
            Arc::new(lists.map(|list| Some(array_text(list?.as_string()))).collect::<StringArray>())
        }
        FieldFormat::Binary => {
            Arc::new(lists.map(|list| Some(array_binary(list?.as_string()))).collect::<BinaryArray>())
        }
    })
}

/// Formats an array as `{-12.50,NULL}`.
fn array_text(texts: &StringArray) -> String {
    let elements: Vec<&str> = texts.iter().map(|text| text.unwrap_or("NULL")).collect();
    format!("{{{}}}", elements.join(","))
}

fn array_binary(texts: &StringArray) -> Vec<u8> {
    let nulls = i32::from(texts.iter().any(|text| text.is_none()));
    let ty = Type::NUMERIC.oid() as i32;
    let head = match texts.iter().len() as i32 {
        0 => vec![0, nulls, ty],
        count => vec![1, nulls, ty, count, 1],
    };
    let mut out: Vec<u8> = head.iter().flat_map(|number| number.to_be_bytes()).collect();
    for text in texts {
        let bytes = text.map(binary);
        out.extend(bytes.as_ref().map_or(-1, |bytes| bytes.len() as i32).to_be_bytes());
        out.extend(bytes.into_iter().flatten());
    }
    out
}

/// Parses a numeric sent by a client. Returns its digits as one number, and its scale. `None` for
/// more than 38 digits, NaN, infinities, and input that is no numeric.
pub(crate) fn parsed(bytes: &[u8], format: FieldFormat) -> Option<(i128, i8)> {
    match format {
        FieldFormat::Text => parsed_text(std::str::from_utf8(bytes).ok()?.trim()),
        FieldFormat::Binary => parsed_text(&text(bytes)?),
    }
}

/// Parses `-12.50` or `1.25e3`.
fn parsed_text(text: &str) -> Option<(i128, i8)> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (negative, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, mantissa.strip_prefix('+').unwrap_or(mantissa)),
    };
    let (whole, decimals) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mut digits = format!("{whole}{decimals}");
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let mut scale = i32::try_from(decimals.len()).ok()?.checked_sub(exponent)?;
    while scale > 0 && digits.len() > 1 && digits.ends_with('0') {
        digits.pop();
        scale -= 1;
    }
    if digits.trim_start_matches('0').is_empty() {
        return Some((0, 0));
    }
    if !(-38..=38).contains(&scale) {
        return None;
    }
    let zeros = usize::try_from(-scale).unwrap_or(0);
    let digits = format!("{digits}{:0<zeros$}", "");
    let number: i128 = digits.trim_start_matches('0').parse().ok()?;
    let number = Some(number).filter(|number| *number < 10_i128.pow(38))?;
    Some((if negative { -number } else { number }, i8::try_from(scale.max(0)).ok()?))
}

/// Converts the binary form to a text. `None` if it is malformed, NaN or infinite.
fn text(bytes: &[u8]) -> Option<String> {
    let mut numbers = bytes.chunks_exact(2).map(|two| i16::from_be_bytes([two[0], two[1]]));
    let [count, power, sign, _shown] = std::array::from_fn(|_| numbers.next());
    let (count, power) = (usize::try_from(count?).ok()?, i32::from(power?));
    let sign = match sign? {
        0 => "",
        NEGATIVE => "-",
        _ => return None,
    };
    let digits: Vec<i16> = numbers.collect();
    if digits.len() != count
        || !bytes.len().is_multiple_of(2)
        || digits.iter().any(|digit| !(0..10_000).contains(digit))
    {
        return None;
    }
    let written: String = digits.iter().map(|digit| format!("{digit:04}")).collect();
    let exponent = (power + 1 - i32::try_from(count).ok()?) * WIDTH as i32;
    Some(if written.is_empty() { "0".to_owned() } else { format!("{sign}{written}e{exponent}") })
}

/// Encodes a decimal such as `-12.50` in binary.
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
    // Zero has no digits and the power 0.
    let power = if digits.is_empty() { 0 } else { (lead / WIDTH) as i16 - zeros as i16 - 1 };
    let head = [digits.len() as i16, power, sign, decimals.len() as i16];
    head.iter().chain(digits).flat_map(|number| number.to_be_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Array, Decimal128Array, Decimal128Builder, ListBuilder};

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
    fn sent_numerics_parse_exactly() {
        let widest = "99999999999999999999999999999999999999";
        for (sent, expected) in [
            ("2.5", Some((25, 1))),
            ("-0.000001", Some((-1, 6))),
            ("100", Some((100, 0))),
            ("1.25e3", Some((1250, 0))),
            ("12e-3", Some((12, 3))),
            ("80000000000.000000000000000001", Some((80_000_000_000_000_000_000_000_000_001, 18))),
            ("0.00", Some((0, 0))),
            (widest, Some((10_i128.pow(38) - 1, 0))),
            ("999999999999999999999999999999999999999", None),
            ("1e39", None),
            ("NaN", None),
            ("", None),
            ("1.2.3", None),
        ] {
            assert_eq!(parsed(sent.as_bytes(), FieldFormat::Text), expected, "{sent}");
            if expected.is_some() && !sent.contains('e') {
                assert_eq!(parsed(&binary(sent), FieldFormat::Binary), expected, "{sent}");
            }
        }
        // NaN, and a count that exceeds the digits.
        assert_eq!(parsed(&[0, 0, 0, 0, 0xc0, 0, 0, 0], FieldFormat::Binary), None);
        assert_eq!(parsed(&[0, 2, 0, 0, 0, 0, 0, 0, 0, 1], FieldFormat::Binary), None);
        assert_eq!(parsed(&[0], FieldFormat::Binary), None);
    }

    #[test]
    fn widest_decimals_keep_all_digits() {
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

    #[test]
    fn lists_are_arrays_of_one_dimension() {
        let mut lists =
            ListBuilder::new(Decimal128Builder::new().with_data_type(DataType::Decimal128(38, 2)));
        lists.append_value([Some(150), None, Some(-(10_i128.pow(38) - 1))]);
        lists.append_null();
        lists.append_value([]);
        let column: ArrayRef = Arc::new(lists.finish());
        assert_eq!(crate::catalog::types::numeric_type(column.data_type()), Some(Type::NUMERIC_ARRAY));
        let texts = encoded(&column, FieldFormat::Text).expect("lists of decimals");
        let least = "-999999999999999999999999999999999999.99";
        let expected = [Some(format!("{{1.50,NULL,{least}}}")), None, Some("{}".to_owned())];
        assert_eq!(
            texts.as_string::<i32>().iter().collect::<Vec<_>>(),
            expected.each_ref().map(Option::as_deref)
        );
        let bytes = encoded(&column, FieldFormat::Binary).expect("lists of decimals");
        let (first, least) = (binary("1.50"), binary(least));
        let lengths = [first.len() as i32, -1, least.len() as i32].map(i32::to_be_bytes);
        let head = [1, 1, 1700, 3, 1].map(i32::to_be_bytes);
        let whole = [head.as_flattened(), &lengths[0], &first, &lengths[1], &lengths[2], &least].concat();
        let bytes = bytes.as_binary::<i32>();
        assert_eq!(bytes.value(0), whole);
        assert!(bytes.is_null(1));
        assert_eq!(bytes.value(2), [0, 0, 1700].map(i32::to_be_bytes).as_flattened());
    }
}
