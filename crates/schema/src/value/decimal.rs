//! Decimal numbers of any size: digits and an exponent, in one form for equal numbers.
//!
//! Serialized: `i32` scale, then the unscaled integer in two's complement; the number is unscaled · 10^−scale.
//! 1.0 and 1.00 are different bytes and the same number, hence the same clustering key. So a key keeps the
//! *number*: in a key, 1.00 is read back as 1, and 1E+2 as 100 (whole numbers of up to [`PLAIN_DIGITS_MAX`]
//! digits come back without exponent). Regular columns keep the bytes they were given.

use std::cmp::Ordering;

use num_bigint::{BigInt, Sign};

use super::check::NUMBER_BYTES_MAX;
use super::key::NotAKey;
use super::order;

/// Whole numbers of up to so many digits are given back with scale 0.
const PLAIN_DIGITS_MAX: i64 = 38;

/// The most digits that a number read from text may have, its trailing zeros included: what surely fits
/// [`NUMBER_BYTES_MAX`] bytes, at 2.4 digits a byte.
pub(super) const DIGITS_MAX: usize = NUMBER_BYTES_MAX * 24 / 10;

/// ± 0.d₁d₂d₃… · 10^exponent with no zero first or last; zero has no digits and exponent 0.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Digits {
    /// Whether the number is below zero.
    pub(super) negative: bool,
    /// The power of ten.
    pub(super) exponent: i64,
    /// The digits, each `0..10`.
    pub(super) digits: Vec<u8>,
}

impl Digits {
    /// The number that serialized bytes hold; too few bytes are zero.
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

    /// The number, serialized in its one form. An exponent no `i32` scale reaches is an error.
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, NotAKey> {
        let mut digits = self.digits.clone();
        let mut scale = digits.len() as i64 - self.exponent;
        // Trailing zeros come back where the number is plain with them, or where without them the scale
        // is below the least there is.
        let plain =
            if scale < 0 && self.exponent <= PLAIN_DIGITS_MAX { scale } else { scale - i64::from(i32::MIN) };
        if plain < 0 && !digits.is_empty() {
            let zeros = usize::try_from(-plain).unwrap_or(usize::MAX);
            if zeros > DIGITS_MAX * 2 {
                return Err(NotAKey);
            }
            digits.resize(digits.len() + zeros, 0);
            scale -= plain;
        }
        let scale = i32::try_from(scale).map_err(|_| NotAKey)?;
        let sign = match (digits.is_empty(), self.negative) {
            (true, _) => Sign::NoSign,
            (false, true) => Sign::Minus,
            (false, false) => Sign::Plus,
        };
        let unscaled = BigInt::from_radix_be(sign, &digits, 10).ok_or(NotAKey)?;
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
        return order::varint(a, b);
    }
    let (a, b) = (Digits::from_bytes(a), Digits::from_bytes(b));
    let magnitude = a.exponent.cmp(&b.exponent).then_with(|| a.digits.cmp(&b.digits));
    let magnitude = if a.negative { magnitude.reverse() } else { magnitude };
    a.sign().cmp(&b.sign()).then(magnitude)
}

/// The number as Java's `BigDecimal` writes it: plain where the exponent is small, else with `E`.
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

/// The serialized decimal of `[+-]digits[.digits][e[+-]digits]`, its scale as written; `None` if it is not one
/// or is too big.
pub(super) fn parse(text: &str) -> Option<Vec<u8>> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let unsigned = digits.strip_prefix(['+', '-']).unwrap_or(&digits);
    let sound =
        !unsigned.is_empty() && unsigned.len() <= DIGITS_MAX && unsigned.bytes().all(|b| b.is_ascii_digit());
    if !sound {
        return None;
    }
    let scale = i32::try_from((fraction.len() as i64).checked_sub(exponent)?).ok()?;
    let unscaled: BigInt = digits.parse().ok()?;
    let mut bytes = scale.to_be_bytes().to_vec();
    bytes.extend_from_slice(&unscaled.to_signed_bytes_be());
    Some(bytes)
}
