//! Decimal numbers of any size: digits and an exponent. Equal numbers have one canonical form.
//!
//! A serialized decimal is the scale (`i32`), then the unscaled integer in two's complement. The
//! number is unscaled · 10^−scale.
//!
//! 1.0 and 1.00 differ in bytes but are the same number, and hence the same clustering key. A key
//! therefore stores the number: it returns 1.00 as 1, and 1E+2 as 100. Whole numbers of up to
//! [`PLAIN_DIGITS_MAX`] digits are returned without an exponent. Regular columns keep their bytes.

use std::cmp::Ordering;

use num_bigint::{BigInt, Sign};

use super::error::InvalidKey;
use super::varint::{self, NUMBER_BYTES_MAX};

/// Most digits of a whole number that a key returns with scale 0.
const PLAIN_DIGITS_MAX: i64 = 38;

/// Most digits of a number in text, including trailing zeros. At 2.4 digits per byte, they fit
/// [`NUMBER_BYTES_MAX`] bytes.
pub(super) const DIGITS_MAX: usize = NUMBER_BYTES_MAX * 24 / 10;

/// The number ± 0.d₁d₂d₃… · 10^exponent. The first and the last digit are not zero. Zero has no
/// digits and exponent 0.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Digits {
    /// True if the number is below zero.
    pub(super) negative: bool,
    /// Power of ten.
    pub(super) exponent: i64,
    /// Digits, each in `0..10`.
    pub(super) digits: Vec<u8>,
}

impl Digits {
    /// Parses a serialized number. Too few bytes give zero.
    pub(super) fn from_bytes(bytes: &[u8]) -> Digits {
        let (scale, unscaled) = bytes.split_first_chunk::<4>().unwrap_or((&[0; 4], &[]));
        let (sign, mut digits) = BigInt::from_signed_bytes_be(unscaled).to_radix_be(10);
        if sign == Sign::NoSign {
            return Digits { negative: false, exponent: 0, digits: Vec::new() };
        }
        let exponent = digits.len() as i64 - i64::from(i32::from_be_bytes(*scale));
        while digits.last() == Some(&0) {
            digits.pop();
        }
        Digits { negative: sign == Sign::Minus, exponent, digits }
    }

    /// Returns the canonical serialized form. Fails if the scale does not fit an `i32`.
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, InvalidKey> {
        let mut digits = self.digits.clone();
        let mut scale = digits.len() as i64 - self.exponent;
        // Restore trailing zeros if the number is plain with them, or if the scale would be below
        // the minimum of an `i32` without them.
        let plain =
            if scale < 0 && self.exponent <= PLAIN_DIGITS_MAX { scale } else { scale - i64::from(i32::MIN) };
        if plain < 0 && !digits.is_empty() {
            let zeros = usize::try_from(-plain).unwrap_or(usize::MAX);
            if zeros > DIGITS_MAX * 2 {
                return Err(InvalidKey);
            }
            digits.resize(digits.len() + zeros, 0);
            scale -= plain;
        }
        let scale = i32::try_from(scale).map_err(|_| InvalidKey)?;
        let sign = match (digits.is_empty(), self.negative) {
            (true, _) => Sign::NoSign,
            (false, true) => Sign::Minus,
            (false, false) => Sign::Plus,
        };
        let unscaled = BigInt::from_radix_be(sign, &digits, 10).ok_or(InvalidKey)?;
        let mut bytes = scale.to_be_bytes().to_vec();
        bytes.extend_from_slice(&unscaled.to_signed_bytes_be());
        Ok(bytes)
    }

    fn sign(&self) -> i8 {
        match (self.digits.is_empty(), self.negative) {
            (true, _) => 0,
            (false, true) => -1,
            (false, false) => 1,
        }
    }
}

/// Compares two decimals by number.
pub(super) fn compare(a: &[u8], b: &[u8]) -> Ordering {
    if let (Some((x, a)), Some((y, b))) = (a.split_first_chunk::<4>(), b.split_first_chunk::<4>())
        && x == y
    {
        return varint::compare(a, b);
    }
    let a = Digits::from_bytes(a);
    let b = Digits::from_bytes(b);
    let magnitude = a.exponent.cmp(&b.exponent).then_with(|| a.digits.cmp(&b.digits));
    let magnitude = if a.negative { magnitude.reverse() } else { magnitude };
    a.sign().cmp(&b.sign()).then(magnitude)
}

/// Returns the text of Java's `BigDecimal`: without exponent if it is small, else with `E`.
pub(super) fn to_text(bytes: &[u8]) -> String {
    let (scale, unscaled) = bytes.split_first_chunk::<4>().unwrap_or((&[0; 4], &[]));
    let scale = i64::from(i32::from_be_bytes(*scale));
    let number = BigInt::from_signed_bytes_be(unscaled);
    let sign = if number.sign() == Sign::Minus { "-" } else { "" };
    let digits = number.magnitude().to_string();
    let count = digits.len() as i64;
    let adjusted = count - 1 - scale;
    if scale == 0 {
        return format!("{sign}{digits}");
    }
    if scale > 0 && adjusted >= -6 {
        if scale >= count {
            let zeros = "0".repeat((scale - count) as usize);
            return format!("{sign}0.{zeros}{digits}");
        }
        let (whole, fraction) = digits.split_at((count - scale) as usize);
        return format!("{sign}{whole}.{fraction}");
    }
    let (first, others) = digits.split_at(1);
    let point = if others.is_empty() { "" } else { "." };
    format!("{sign}{first}{point}{others}E{adjusted:+}")
}

/// Parses `[+-]digits[.digits][e[+-]digits]`. Keeps the scale of the text. `None`: invalid, or too
/// large.
pub(super) fn parse(text: &str) -> Option<Vec<u8>> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let unsigned = digits.strip_prefix(['+', '-']).unwrap_or(&digits);
    let is_valid =
        !unsigned.is_empty() && unsigned.len() <= DIGITS_MAX && unsigned.bytes().all(|b| b.is_ascii_digit());
    if !is_valid {
        return None;
    }
    let scale = i32::try_from((fraction.len() as i64).checked_sub(exponent)?).ok()?;
    let unscaled: BigInt = digits.parse().ok()?;
    let mut bytes = scale.to_be_bytes().to_vec();
    bytes.extend_from_slice(&unscaled.to_signed_bytes_be());
    Some(bytes)
}
