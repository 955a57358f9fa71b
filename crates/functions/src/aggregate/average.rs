//! Sums and averages that round as Cassandra's.

use num_bigint::BigInt;

use crate::decimal::{Decimal, Failure, Rounding};

/// Sum of floating-point numbers with compensation: Kahan's algorithm.
#[derive(Clone, Default, Debug)]
pub(super) struct FloatSum {
    sum: f64,
    compensation: f64,
    /// Sum without compensation, which is infinite where that of Kahan is no number.
    simple: f64,
}

impl FloatSum {
    pub(super) fn add(&mut self, number: f64) {
        self.simple += number;
        let corrected = number - self.compensation;
        let sum = self.sum + corrected;
        self.compensation = (sum - self.sum) - corrected;
        self.sum = sum;
    }

    pub(super) fn merge(&mut self, other: FloatSum) {
        let simple = self.simple + other.simple;
        self.add(other.sum);
        self.add(-other.compensation);
        self.simple = simple;
    }

    pub(super) fn result(&self) -> f64 {
        // Cassandra adds the compensation, which Kahan subtracts.
        let sum = self.sum + self.compensation;
        if sum.is_nan() && self.simple.is_infinite() { self.simple } else { sum }
    }
}

/// Factor of a sum that cannot overflow: 2^64 numbers are below the greatest one.
const SMALL: f64 = 1.0 / 18_446_744_073_709_551_616.0;

/// Average of floating-point numbers.
#[derive(Clone, Default, Debug)]
pub(super) struct FloatMean {
    sum: FloatSum,
    /// Sum of the numbers times [`SMALL`], for sums above the greatest number.
    small: FloatSum,
    count: i64,
    /// True if a number is infinite.
    has_infinite: bool,
}

impl FloatMean {
    pub(super) fn add(&mut self, number: f64) {
        self.sum.add(number);
        self.small.add(number * SMALL);
        self.count += 1;
        self.has_infinite |= number.is_infinite();
    }

    pub(super) fn merge(&mut self, other: FloatMean) {
        self.sum.merge(other.sum);
        self.small.merge(other.small);
        self.count += other.count;
        self.has_infinite |= other.has_infinite;
    }

    pub(super) fn result(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        let count = self.count as f64;
        let has_overflowed = !self.has_infinite && self.sum.simple.is_infinite();
        if has_overflowed { self.small.result() / count / SMALL } else { self.sum.result() / count }
    }
}

/// Average of decimals. As in Cassandra, each number moves the average, and each move is rounded
/// half to even at the scale of the difference.
#[derive(Clone, Debug)]
pub(super) struct DecimalMean {
    pub(super) mean: Decimal,
    count: i64,
}

impl Default for DecimalMean {
    fn default() -> DecimalMean {
        DecimalMean { mean: Decimal::from_integer(BigInt::ZERO), count: 0 }
    }
}

impl DecimalMean {
    /// Returns the average with one more number.
    pub(super) fn with(&self, number: &Decimal) -> Result<DecimalMean, Failure> {
        let count = self.count + 1;
        let mean = self.mean.add(&ratio(&number.subtract(&self.mean)?, count)?)?;
        Ok(DecimalMean { mean: mean.bounded()?, count })
    }

    /// Returns the average of both.
    pub(super) fn merged(&self, other: &DecimalMean) -> Result<DecimalMean, Failure> {
        let count = self.count + other.count;
        if other.count == 0 {
            return Ok(self.clone());
        }
        let weight = Decimal::from_integer(other.count.into());
        let difference = other.mean.subtract(&self.mean)?.multiply(&weight)?;
        let mean = self.mean.add(&ratio(&difference, count)?)?;
        Ok(DecimalMean { mean: mean.bounded()?, count })
    }
}

/// Divides at the scale of the dividend.
fn ratio(dividend: &Decimal, count: i64) -> Result<Decimal, Failure> {
    dividend.divide_at(&Decimal::from_integer(count.into()), dividend.scale.into(), Rounding::HalfEven)
}
