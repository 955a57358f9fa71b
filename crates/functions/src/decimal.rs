//! Decimal arithmetic as Java's `BigDecimal` does it: unscaled · 10^−scale, where the scale is part
//! of the result. Sizes are bounded: an operation whose result has more than
//! [`NUMBER_BYTES_MAX`] bytes fails before it computes it, where Java needs up to 2^31 digits.

use std::cmp::Ordering;

use num_bigint::{BigInt, Sign};
use schema::value::NUMBER_BYTES_MAX;

/// Most decimal digits of an intermediate number: those of `NUMBER_BYTES_MAX` bytes, at 2.41
/// digits a byte, rounded up.
const DIGITS_MAX: i64 = NUMBER_BYTES_MAX as i64 * 242 / 100;

/// Message of an operation whose result is too large. Java's text for a scale outside of 32 bits.
const OVERFLOW: &str = "Overflow";
const UNDERFLOW: &str = "Underflow";

/// Least scale of a quotient.
const DIVISION_SCALE_MIN: i64 = 32;
/// Highest scale of a quotient.
const DIVISION_SCALE_MAX: i64 = 1000;

/// Reason of a failed operation, in Java's words.
pub(crate) type Failure = &'static str;

/// Rounding of a division.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rounding {
    /// Toward zero.
    Down,
    /// To the nearest, half away from zero.
    HalfUp,
    /// To the nearest, half to even.
    HalfEven,
}

/// The number unscaled · 10^−scale.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Decimal {
    pub(crate) unscaled: BigInt,
    pub(crate) scale: i32,
}

impl Decimal {
    pub(crate) fn new(unscaled: BigInt, scale: i64) -> Result<Decimal, Failure> {
        let failure = if scale < 0 { OVERFLOW } else { UNDERFLOW };
        Ok(Decimal { unscaled, scale: i32::try_from(scale).map_err(|_| failure)? })
    }

    pub(crate) fn from_integer(unscaled: BigInt) -> Decimal {
        Decimal { unscaled, scale: 0 }
    }

    /// Parses a serialized decimal. `None`: fewer than 5 bytes, or more than the bound.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Decimal> {
        let (scale, unscaled) = bytes.split_first_chunk::<4>()?;
        let is_valid = (1..=NUMBER_BYTES_MAX).contains(&unscaled.len());
        is_valid.then(|| Decimal {
            unscaled: BigInt::from_signed_bytes_be(unscaled),
            scale: i32::from_be_bytes(*scale),
        })
    }

    /// Returns the serialized number.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>, Failure> {
        let unscaled = self.unscaled.to_signed_bytes_be();
        if unscaled.len() > NUMBER_BYTES_MAX {
            return Err(OVERFLOW);
        }
        let mut bytes = self.scale.to_be_bytes().to_vec();
        bytes.extend_from_slice(&unscaled);
        Ok(bytes)
    }

    /// Returns the number if its type can have it.
    pub(crate) fn bounded(self) -> Result<Decimal, Failure> {
        if self.unscaled.bits() < 8 * NUMBER_BYTES_MAX as u64 { Ok(self) } else { Err(OVERFLOW) }
    }

    /// Parses `[-]digits[.digits][E[-]digits]`, the text of Java's floating-point numbers.
    pub(crate) fn parse(text: &str) -> Option<Decimal> {
        let (mantissa, exponent) = text.split_once('E').unwrap_or((text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let unscaled = format!("{whole}{fraction}").parse().ok()?;
        Decimal::new(unscaled, fraction.len() as i64 - exponent.parse::<i64>().ok()?).ok()
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.unscaled.sign() == Sign::NoSign
    }

    /// Returns the number of digits: 1 for zero.
    pub(crate) fn precision(&self) -> i64 {
        digits(&self.unscaled)
    }

    fn scale(&self) -> i64 {
        self.scale.into()
    }

    pub(crate) fn negated(&self) -> Decimal {
        Decimal { unscaled: -&self.unscaled, scale: self.scale }
    }

    pub(crate) fn absolute(&self) -> Decimal {
        Decimal { unscaled: self.unscaled.magnitude().clone().into(), scale: self.scale }
    }

    pub(crate) fn add(&self, other: &Decimal) -> Result<Decimal, Failure> {
        let scale = self.scale().max(other.scale());
        let sum = self.aligned(scale)? + other.aligned(scale)?;
        Decimal::new(sum, scale)
    }

    pub(crate) fn subtract(&self, other: &Decimal) -> Result<Decimal, Failure> {
        self.add(&other.negated())
    }

    pub(crate) fn multiply(&self, other: &Decimal) -> Result<Decimal, Failure> {
        Decimal::new(&self.unscaled * &other.unscaled, self.scale() + other.scale())
    }

    /// Divides as Cassandra does: at least 32 significant digits and 32 digits behind the point, at
    /// most 1000 of the latter, without trailing zeros.
    pub(crate) fn divide(&self, divisor: &Decimal) -> Result<Decimal, Failure> {
        if divisor.is_zero() {
            return Err("BigInteger divide by zero");
        }
        let first_digit = (self.precision() - self.scale()) - (divisor.precision() - divisor.scale());
        let scale = (DIVISION_SCALE_MIN - first_digit)
            .max(self.scale())
            .max(divisor.scale())
            .clamp(DIVISION_SCALE_MIN, DIVISION_SCALE_MAX);
        Ok(self.divide_at(divisor, scale, Rounding::HalfUp)?.stripped())
    }

    /// Divides to a result of this scale.
    pub(crate) fn divide_at(
        &self,
        divisor: &Decimal,
        scale: i64,
        rounding: Rounding,
    ) -> Result<Decimal, Failure> {
        if divisor.is_zero() {
            return Err(if self.is_zero() { "Division undefined" } else { "Division by zero" });
        }
        if self.is_zero() {
            return Decimal::new(BigInt::ZERO, scale);
        }
        let exponent = scale - self.scale() + divisor.scale();
        // The quotient has at most one digit more than this difference.
        let quotient_digits = self.precision() - divisor.precision() + exponent;
        if quotient_digits > DIGITS_MAX {
            return Err(OVERFLOW);
        }
        if quotient_digits < -1 {
            return Decimal::new(BigInt::ZERO, scale);
        }
        let quotient = if exponent >= 0 {
            divide(&(&self.unscaled * power_of_ten(exponent)?), &divisor.unscaled, rounding)
        } else {
            divide(&self.unscaled, &(&divisor.unscaled * power_of_ten(-exponent)?), rounding)
        };
        Decimal::new(quotient, scale)
    }

    /// Returns the remainder of a division rounded toward zero.
    pub(crate) fn remainder(&self, divisor: &Decimal) -> Result<Decimal, Failure> {
        if divisor.is_zero() {
            return Err(if self.is_zero() { "Division undefined" } else { "Division by zero" });
        }
        if self.magnitude_is_below(divisor) {
            return Ok(self.clone());
        }
        // Java's quotient has this scale if its trailing zeros permit it.
        let preferred = self.scale() - divisor.scale();
        let quotient = self.divide_at(divisor, 0, Rounding::Down)?;
        let quotient = if preferred >= 0 {
            Decimal::new(quotient.aligned(preferred)?, preferred)?
        } else {
            quotient.stripped_to(preferred)
        };
        self.subtract(&quotient.multiply(divisor)?)
    }

    /// Returns true if the magnitude is certainly below that of `other`. Compares exponents, so
    /// that numbers of very different sizes need no alignment.
    fn magnitude_is_below(&self, other: &Decimal) -> bool {
        if self.is_zero() {
            return true;
        }
        let exponent = |number: &Decimal| number.precision() - number.scale();
        match exponent(self).cmp(&exponent(other)) {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal => {
                let scale = self.scale().max(other.scale());
                match (self.aligned(scale), other.aligned(scale)) {
                    (Ok(a), Ok(b)) => a.magnitude() < b.magnitude(),
                    _ => false,
                }
            }
        }
    }

    /// Returns the whole number nearest to this one, with scale 0. Half is rounded away from zero.
    pub(crate) fn rounded(&self) -> Result<Decimal, Failure> {
        self.divide_at(&Decimal::from_integer(BigInt::from(1)), 0, Rounding::HalfUp)
    }

    /// Returns the number without its fraction.
    pub(crate) fn truncated(&self) -> Result<BigInt, Failure> {
        Ok(self.divide_at(&Decimal::from_integer(BigInt::from(1)), 0, Rounding::Down)?.unscaled)
    }

    /// Returns the 64 low bits of the number without its fraction, as Java's `longValue`.
    pub(crate) fn low_bits(&self) -> i64 {
        match self.scale() {
            0 => low_bits(&self.unscaled),
            1.. => self.truncated().map(|whole| low_bits(&whole)).unwrap_or(0),
            // 10^64 is a multiple of 2^64.
            scale => {
                let power = if scale <= -64 { 0 } else { 10_i64.wrapping_pow(-scale as u32) };
                low_bits(&self.unscaled).wrapping_mul(power)
            }
        }
    }

    /// Returns a text that floating-point parsers read.
    pub(crate) fn exponent_text(&self) -> String {
        format!("{}e{}", self.unscaled, -self.scale())
    }

    /// Returns the number without trailing zeros behind its last other digit. Zero gets scale 0.
    fn stripped(self) -> Decimal {
        if self.is_zero() { Decimal::from_integer(BigInt::ZERO) } else { self.stripped_to(i32::MIN.into()) }
    }

    /// Removes trailing zeros down to a scale.
    pub(crate) fn stripped_to(self, scale: i64) -> Decimal {
        if self.is_zero() {
            return Decimal { unscaled: self.unscaled, scale: i32::try_from(scale).unwrap_or(0) };
        }
        let digits = self.unscaled.magnitude().to_string();
        let zeros = digits.len() - digits.trim_end_matches('0').len();
        let zeros = (zeros as i64).min(self.scale() - scale).max(0);
        match power_of_ten(zeros) {
            Ok(power) => Decimal { unscaled: self.unscaled / power, scale: self.scale - zeros as i32 },
            Err(_) => self,
        }
    }

    /// Returns the unscaled number of this value at a scale that is not below its own.
    fn aligned(&self, scale: i64) -> Result<BigInt, Failure> {
        let exponent = scale - self.scale();
        if self.is_zero() || exponent == 0 {
            return Ok(self.unscaled.clone());
        }
        if self.precision() + exponent > DIGITS_MAX {
            return Err(OVERFLOW);
        }
        Ok(&self.unscaled * power_of_ten(exponent)?)
    }
}

/// Divides integers. The divisor is not zero.
pub(crate) fn divide(dividend: &BigInt, divisor: &BigInt, rounding: Rounding) -> BigInt {
    let quotient = dividend / divisor;
    let rest = dividend - &quotient * divisor;
    let doubled: BigInt = rest * 2;
    let up = match (rounding, doubled.magnitude().cmp(divisor.magnitude())) {
        (Rounding::Down, _) | (_, Ordering::Less) => false,
        (_, Ordering::Greater) | (Rounding::HalfUp, Ordering::Equal) => true,
        (Rounding::HalfEven, Ordering::Equal) => quotient.bit(0),
    };
    match (up, (dividend.sign() == Sign::Minus) != (divisor.sign() == Sign::Minus)) {
        (false, _) => quotient,
        (true, true) => quotient - 1,
        (true, false) => quotient + 1,
    }
}

/// Returns 10^exponent. An exponent above the bound fails.
pub(crate) fn power_of_ten(exponent: i64) -> Result<BigInt, Failure> {
    // A dividend has the digits of a divisor, of a quotient, and one more.
    let is_valid = (0..=2 * DIGITS_MAX + 2).contains(&exponent);
    if is_valid { Ok(BigInt::from(10).pow(exponent as u32)) } else { Err(OVERFLOW) }
}

/// Returns the number of decimal digits: 1 for zero.
pub(crate) fn digits(number: &BigInt) -> i64 {
    number.magnitude().to_string().len() as i64
}

/// Returns the 64 low bits, as Java's `longValue`.
pub(crate) fn low_bits(number: &BigInt) -> i64 {
    let low = number.iter_u64_digits().next().unwrap_or(0) as i64;
    if number.sign() == Sign::Minus { low.wrapping_neg() } else { low }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Decimal {
        Decimal::parse(text).unwrap()
    }

    /// Returns unscaled number and scale.
    fn parts(number: Result<Decimal, Failure>) -> String {
        number.map_or_else(str::to_owned, |n| format!("{}/{}", n.unscaled, n.scale))
    }

    #[test]
    fn operations_keep_the_scale_of_java() {
        let check = |left: &str, op: char, right: &str, expected: &str| {
            let (left, right) = (number(left), number(right));
            let actual = match op {
                '+' => left.add(&right),
                '-' => left.subtract(&right),
                '*' => left.multiply(&right),
                '/' => left.divide(&right),
                _ => left.remainder(&right),
            };
            assert_eq!(parts(actual), expected, "{left:?} {op} {right:?}");
        };
        check("8.5", '+', "1.0", "95/1");
        check("8.5", '-', "8.5", "0/1");
        check("8.5", '*', "1.0", "850/2");
        check("8.5", '/', "3.0", "283333333333333333333333333333333/32");
        check("1.0", '/', "8.5", "11764705882352941176470588235294/32");
        check("1E-10", '/', "3.0", "33333333333333333333333333333333/42");
        check("1E+10", '/', "3.0", "333333333333333333333333333333333333333333/32");
        check("8.5", '/', "8.5", "1/0");
        check("100", '/', "1", "1/-2");
        check("8.5", '%', "2.0", "5/1");
        check("1", '%', "8.5", "1/0");
        check("7", '%', "8.5", "7/0");
        check("5", '%', "0.3", "2/1");
        check("-7.5", '%', "2", "-15/1");
        check("1", '/', "0", "BigInteger divide by zero");
        check("0", '/', "0", "BigInteger divide by zero");
        check("0", '%', "0", "Division undefined");
        check("1", '%', "0", "Division by zero");
    }

    #[test]
    fn hostile_scales_fail_instead_of_growing() {
        let huge = Decimal::new(BigInt::from(1), i32::MIN.into()).unwrap();
        let tiny = Decimal::new(BigInt::from(1), i32::MAX.into()).unwrap();
        assert_eq!(huge.add(&tiny), Err(OVERFLOW));
        assert_eq!(huge.multiply(&huge), Err(OVERFLOW));
        assert_eq!(tiny.multiply(&tiny), Err(UNDERFLOW));
        assert_eq!(huge.divide(&tiny), Err(OVERFLOW));
        let long = Decimal::from_integer(BigInt::from(10).pow(2460));
        assert_eq!(long.divide(&number("3")), Err(OVERFLOW));
        assert_eq!(parts(tiny.divide(&huge)), "0/0");
        assert_eq!(huge.remainder(&tiny), Err(OVERFLOW));
        assert_eq!(tiny.remainder(&huge), Ok(tiny.clone()));
        assert_eq!(huge.rounded(), Err(OVERFLOW));
        assert_eq!(parts(tiny.rounded()), "0/0");
        assert_eq!((huge.low_bits(), tiny.low_bits()), (0, 0));
        let large = Decimal::from_integer(BigInt::from(10).pow(2000));
        assert_eq!(large.multiply(&large).unwrap().to_bytes(), Err(OVERFLOW));
    }

    #[test]
    fn low_bits_wrap_as_in_java() {
        assert_eq!(number("18446744073709551617").low_bits(), 1);
        assert_eq!(number("-18446744073709551617.9").low_bits(), -1);
        assert_eq!(number("1E2").low_bits(), 100);
        assert_eq!(number("1E63").low_bits(), i64::MIN);
    }

    #[test]
    fn half_is_rounded_as_the_mode_demands() {
        let check = |n: i64, d: i64, rounding, expected: i64| {
            assert_eq!(divide(&n.into(), &d.into(), rounding), expected.into(), "{n} / {d} {rounding:?}");
        };
        check(5, 2, Rounding::HalfEven, 2);
        check(7, 2, Rounding::HalfEven, 4);
        check(5, 2, Rounding::HalfUp, 3);
        check(-5, 2, Rounding::HalfUp, -3);
        check(5, -3, Rounding::HalfUp, -2);
        check(-5, 3, Rounding::Down, -1);
    }
}
