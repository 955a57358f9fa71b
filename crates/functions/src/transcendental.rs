//! Exponential and logarithms of decimals to any number of significant digits, in fixed point.
//!
//! `exp(x)`: x = k · ln 10 + r, so that the result is exp(r) · 10^k. r is divided by 2^s, the
//! Taylor series is summed, and the sum is squared s times.
//!
//! `ln(x)`: x = m · 10^k with m in 1..10, so that the result is ln(m) + k · ln 10. Halley's
//! iteration y += 2 (m − e^y) / (m + e^y) triples the correct digits of a floating-point estimate.
//!
//! Cassandra's precision is that of the argument: 32 to 10,000 digits. Time grows with the third
//! power of the precision, so that it is at most [`DIGITS_MAX`] digits here, and the argument is
//! rounded to twice as many.

use num_bigint::{BigInt, Sign};

use crate::decimal::{Decimal, Failure, Rounding, divide, power_of_ten};

/// Least number of significant digits of a result.
const DIGITS_MIN: i64 = 32;

/// Highest number of significant digits of a result. A logarithm with as many takes about a
/// millisecond (measured 2026-11-29), one with 2,400 digits took a quarter of a second.
const DIGITS_MAX: i64 = 256;

/// Fixed-point bits behind those of the result. They absorb the error of some thousand operations,
/// and make a wrong rounding improbable (2^-48).
const GUARD_BITS: u64 = 64;

/// Digits behind those of the result before it is rounded: fewer than the guard bits have.
const GUARD_DIGITS: i64 = 12;

/// Correct bits of a floating-point estimate.
const ESTIMATE_BITS: u64 = 40;

/// Fixed-point numbers with this many bits behind the point.
#[derive(Clone, Copy)]
struct Fixed {
    bits: u64,
}

/// Returns e^x.
///
/// # Errors
/// Fails for arguments outside of 32 bits, as in Cassandra.
pub(crate) fn exp(x: &Decimal) -> Result<Decimal, Failure> {
    if x.is_zero() {
        return Ok(Decimal::from_integer(1.into()));
    }
    let (x, precision) = bounded(x)?;
    if x.precision() - i64::from(x.scale) > 10 || i32::try_from(&x.truncated()?).is_err() {
        return Err("Overflow");
    }
    // The argument has up to 32 bits before the point, and as many more bits are lost in k · ln 10.
    let fixed = Fixed::for_digits(precision + 10);
    let x = fixed.of(&x)?;
    let ten = fixed.ln_10();
    let k = (&x / &ten) - i64::from(x.sign() == Sign::Minus);
    let value = fixed.exp(&(x - &k * ten));
    let k = i64::try_from(&k).map_err(|_| "Overflow")?;
    fixed.rounded(&value, precision, k)
}

/// Returns ln(x).
///
/// # Errors
/// Fails for numbers that are not positive, in Cassandra's words.
pub(crate) fn ln(x: &Decimal) -> Result<Decimal, Failure> {
    if x.unscaled.sign() != Sign::Plus {
        return Err("Natural log of number zero or less");
    }
    let (x, precision) = bounded(x)?;
    // Near 1, all digits of the argument cancel.
    let fixed = Fixed::for_digits(x.precision() + precision + 10);
    let (value, _) = fixed.ln(&x)?;
    fixed.rounded(&value, precision, 0)
}

/// Returns the logarithm to base 10.
///
/// # Errors
/// Fails for numbers that are not positive, in Cassandra's words.
pub(crate) fn log10(x: &Decimal) -> Result<Decimal, Failure> {
    if x.unscaled.sign() != Sign::Plus {
        return Err("Log10 of number zero or less");
    }
    let (x, precision) = bounded(x)?;
    // Near 1, all digits of the argument cancel.
    let fixed = Fixed::for_digits(x.precision() + precision + 10);
    let (value, ten) = fixed.ln(&x)?;
    // As in Cassandra: a quotient of two rounded logarithms. If it is exact, it has no more digits
    // than it needs.
    let value = fixed.rounded(&value, precision + 2, 0)?;
    let ten = fixed.rounded(&ten, precision + 2, 0)?;
    quotient(&value, &ten, precision + 2)?.at_most(precision)
}

/// Divides to this number of significant digits. Trailing zeros of an exact quotient are removed.
fn quotient(dividend: &Decimal, divisor: &Decimal, precision: i64) -> Result<Decimal, Failure> {
    let scales = i64::from(dividend.scale) - i64::from(divisor.scale);
    if dividend.is_zero() {
        return Decimal::new(BigInt::ZERO, scales);
    }
    let digits = dividend.precision() - divisor.precision();
    // The quotient has at least the digits of this difference, and at most one more.
    let quotient = dividend.divide_at(divisor, scales - digits + precision, Rounding::HalfEven)?;
    let is_exact = quotient.multiply(divisor)?.subtract(dividend)?.is_zero();
    let quotient = quotient.at_most(precision)?;
    Ok(if is_exact { quotient.stripped_to(scales) } else { quotient })
}

/// Returns the argument with a bounded number of digits, and the number of those of the result.
fn bounded(x: &Decimal) -> Result<(Decimal, i64), Failure> {
    Ok((x.clone().at_most(2 * DIGITS_MAX)?, x.precision().clamp(DIGITS_MIN, DIGITS_MAX)))
}

impl Fixed {
    /// Returns the format for results of `digits` digits. 107/32 is above the bits of a digit.
    fn for_digits(digits: i64) -> Fixed {
        Fixed { bits: digits as u64 * 107 / 32 + GUARD_BITS }
    }

    /// Converts a number of less than 11 digits before the point.
    fn of(self, x: &Decimal) -> Result<BigInt, Failure> {
        let scaled = &x.unscaled << self.bits;
        let scale = i64::from(x.scale);
        if scale <= 0 {
            return Ok(scaled * power_of_ten(-scale)?);
        }
        // A digit has more than three bits: x is zero behind all bits of the format.
        if scale - x.precision() > self.bits as i64 / 3 {
            return Ok(BigInt::ZERO);
        }
        Ok(scaled / BigInt::from(10).pow(scale as u32))
    }

    /// Returns atanh(1/n).
    fn atanh_inverse(self, n: u32) -> BigInt {
        let mut power = (BigInt::from(1) << self.bits) / n;
        let mut sum = power.clone();
        for k in (3_u32..).step_by(2) {
            power /= n * n;
            if power.sign() == Sign::NoSign {
                break;
            }
            sum += &power / k;
        }
        sum
    }

    /// Returns ln(10) = 46 atanh(1/31) + 34 atanh(1/49) + 20 atanh(1/161).
    fn ln_10(self) -> BigInt {
        self.atanh_inverse(31) * 46 + self.atanh_inverse(49) * 34 + self.atanh_inverse(161) * 20
    }

    /// Returns e^r for 0 ≤ r < 4.
    fn exp(self, r: &BigInt) -> BigInt {
        // Squarings cost about as much as terms, of which there are bits / halvings.
        let halvings = self.bits.isqrt();
        let one = BigInt::from(1) << (self.bits + halvings);
        // With as many more bits, because each squaring doubles the error.
        let bits = self.bits + halvings;
        // r · 2^halvings is the same number in the finer format. Its quotient by 2^halvings is r.
        let r = r.clone();
        let mut term = one.clone();
        let mut sum = one;
        for n in 1_u32.. {
            term = ((term * &r) >> bits) / n;
            if term.sign() == Sign::NoSign {
                break;
            }
            sum += &term;
        }
        for _ in 0..halvings {
            sum = (&sum * &sum) >> bits;
        }
        sum >> halvings
    }

    /// Returns ln(x) and ln(10).
    fn ln(self, x: &Decimal) -> Result<(BigInt, BigInt), Failure> {
        let ten = self.ln_10();
        // x = m · 10^k with 1 ≤ m < 10.
        let k = x.precision() - 1 - i64::from(x.scale);
        let m = Decimal::new(x.unscaled.clone(), x.precision() - 1)?;
        let mut y = BigInt::from((f64_of(&m).ln() * 2_f64.powi(52)) as i64) << (self.bits - 52);
        let m = self.of(&m)?;
        let mut correct = ESTIMATE_BITS;
        while correct < self.bits {
            let power = self.exp(&y);
            let step: BigInt = ((&m - &power) << (self.bits + 1)) / (&m + &power);
            y += step;
            if y.sign() == Sign::Minus {
                y = BigInt::ZERO;
            }
            correct *= 3;
        }
        Ok((y + &ten * k, ten))
    }

    /// Returns the decimal with this precision of a fixed-point number times 10^exponent.
    fn rounded(self, value: &BigInt, precision: i64, exponent: i64) -> Result<Decimal, Failure> {
        if value.sign() == Sign::NoSign {
            return Ok(Decimal::from_integer(BigInt::ZERO));
        }
        // Digits before the point, approximately: from the bits.
        let whole = ((value.bits() as i64 - self.bits as i64) as f64 * std::f64::consts::LOG10_2) as i64;
        // More digits than needed, so that the second rounding meets no false tie.
        let scale = precision - whole + GUARD_DIGITS;
        let one = BigInt::from(1) << self.bits;
        let scaled = value * power_of_ten(scale.max(0))?;
        let unscaled = divide(&scaled, &(one * power_of_ten((-scale).max(0))?), Rounding::Down);
        Decimal::new(unscaled, scale - exponent)?.at_most(precision)
    }
}

impl Decimal {
    /// Returns the number rounded to at most this number of digits.
    fn at_most(self, precision: i64) -> Result<Decimal, Failure> {
        let surplus = self.precision() - precision;
        if surplus <= 0 {
            return Ok(self);
        }
        let unscaled = divide(&self.unscaled, &power_of_ten(surplus)?, Rounding::HalfEven);
        // 9.99…9 may have been rounded up to 10.
        Decimal::new(unscaled, i64::from(self.scale) - surplus)?.at_most(precision)
    }
}

/// Returns the number as a double.
fn f64_of(x: &Decimal) -> f64 {
    x.exponent_text().parse().unwrap_or(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Decimal {
        Decimal::parse(text).unwrap()
    }

    #[test]
    fn results_have_the_digits_of_cassandra() {
        let check = |result: Result<Decimal, Failure>, expected: &str| {
            let bytes = result.unwrap().to_bytes().unwrap();
            assert_eq!(schema::value::to_text(&schema::CqlType::Decimal, &bytes), expected);
        };
        check(exp(&number("5")), "148.41315910257660342111558004055");
        check(exp(&number("1")), "2.7182818284590452353602874713527");
        check(exp(&number("0")), "1");
        check(exp(&number("-1")), "0.36787944117144232159552377016146");
        check(exp(&number("1E-40")), "1.0000000000000000000000000000000");
        check(ln(&number("5")), "1.6094379124341003746007593332262");
        check(ln(&number("1")), "0");
        check(ln(&number("0.5")), "-0.69314718055994530941723212145818");
        check(log10(&number("5")), "0.69897000433601880478626110527551");
        check(log10(&number("1")), "0E+33");
        check(log10(&number("100")), "2");
        check(log10(&number("1000.00")), "3.0000000000000000000000000000000");
        check(log10(&number("0.000123")), "-3.9100948885606020681955602467767");
        check(exp(&number("-20")), "2.0611536224385578279659403801558E-9");
        check(exp(&number("100.25")), "3.4516107331259239871361985995266E+43");
        check(ln(&number("1.0000000001")), "9.9999999995000000000333333333308E-11");
        let near = number("1.0000000000000000000000000000001");
        check(ln(&near), "9.9999999999999999999999999999995E-32");
        check(ln(&number("123456.789")), "11.723646487185880981139958983910");
        let long = number("1.12345678901234567890123456789012345678901234567890");
        check(exp(&long), "3.07546709031488470896944216141611590688261790034201");
        check(ln(&long), "0.116410350855400285978897758805869290367400915882304");
    }

    #[test]
    fn long_arguments_give_at_most_256_digits() {
        let long = number(&format!("1.{}", "123456789".repeat(250)));
        for function in [exp, ln, log10] {
            assert_eq!(function(&long).unwrap().precision(), DIGITS_MAX);
        }
        let near = number(&format!("1.{}1", "0".repeat(400)));
        assert!(
            schema::value::to_text(&schema::CqlType::Decimal, &ln(&near).unwrap().to_bytes().unwrap())
                .starts_with("1.000000000")
        );
    }

    #[test]
    fn hostile_arguments_fail() {
        assert_eq!(exp(&number("1E2147483647")), Err("Overflow"));
        assert_eq!(exp(&number("2147483648")), Err("Overflow"));
        assert!(exp(&number("-2147483648")).is_ok());
        assert!(exp(&number("1E-2147483647")).is_ok());
        assert!(ln(&number("1E2147483647")).is_ok());
        assert!(ln(&number("0")).is_err());
        assert!(log10(&number("-1")).is_err());
    }
}
