//! Bounds and rounding of decimals, which arithmetic, casts, functions and totals share.

use datafusion::arrow::datatypes::DataType;

/// Minimum scale of a quotient of decimals. PostgreSQL returns at least 16 significant digits.
pub(crate) const QUOTIENT_SCALE: i8 = 16;
/// Maximum precision of a decimal.
pub(crate) const DIGITS_MAX: u8 = 38;

/// Returns the decimal type that contains all values of an integer type. Other types stay.
pub(crate) fn decimal_of(ty: &DataType) -> DataType {
    let digits = match ty {
        DataType::Int8 | DataType::UInt8 | DataType::Int16 => 5,
        DataType::Int32 | DataType::UInt16 => 10,
        DataType::Int64 | DataType::UInt32 => 19,
        DataType::UInt64 => 20,
        other => return other.clone(),
    };
    DataType::Decimal128(digits, 0)
}

/// Divides and rounds half away from zero.
pub(crate) fn rounded_quotient(value: i128, divisor: i128) -> i128 {
    let (whole, rest) = (value / divisor, value % divisor);
    if rest.unsigned_abs() >= divisor.unsigned_abs() - rest.unsigned_abs() {
        whole + if (value < 0) == (divisor < 0) { 1 } else { -1 }
    } else {
        whole
    }
}

/// Returns the message for a decimal with more than [`DIGITS_MAX`] digits.
pub(crate) fn too_long() -> String {
    format!("numeric out of range: expected at most {DIGITS_MAX} digits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_round_half_away_from_zero() {
        for (value, divisor, expected) in
            [(5, 2, 3), (-5, 2, -3), (5, -2, -3), (-5, -2, 3), (4, 3, 1), (-4, 3, -1), (6, 3, 2), (0, 7, 0)]
        {
            assert_eq!(rounded_quotient(value, divisor), expected, "{value} / {divisor}");
        }
    }
}
