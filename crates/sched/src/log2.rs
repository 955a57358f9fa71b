//! Binary logarithms in fixed point. A mean of logarithms is the logarithm of a geometric mean.

/// Logarithm of 2.
pub(crate) const ONE: u64 = 1 << BITS;
const BITS: u32 = 16;
/// Coefficient of `x (1 − x)` in `log2(1 + x) ≈ x + c x (1 − x)`, times [`ONE`]. Fitted: the error
/// is below 0.009, that is 0.6 % of the number.
const CURVE_OF_LOG: u64 = 22_485;
/// Coefficient of `x (1 − x)` in `2^x ≈ 1 + x − c x (1 − x)`, times [`ONE`]. Fitted: the error is
/// below 0.003.
const CURVE_OF_EXP: u64 = 22_090;
/// Highest power of 2 that [`exp2`] returns.
const EXPONENT_MAX: u32 = 62;

/// Returns the binary logarithm of a number, in units of [`ONE`]. 0 counts as 1.
pub(crate) fn log2(number: u64) -> u64 {
    let number = number.max(1);
    let zeros = number.leading_zeros();
    let fraction = ((number << zeros) << 1) >> (u64::BITS - BITS);
    (u64::from(63 - zeros) << BITS) + fraction + curve(fraction, CURVE_OF_LOG)
}

/// Returns 2 to the power of `exponent`, which is in units of [`ONE`]; at most 2^62.
pub(crate) fn exp2(exponent: u64) -> u64 {
    let most = u64::from(EXPONENT_MAX) << BITS;
    divide_by_exp2(1 << EXPONENT_MAX, most - exponent.min(most))
}

/// Returns `number` divided by 2 to the power of `exponent`, which is in units of [`ONE`].
pub(crate) fn divide_by_exp2(number: u64, exponent: u64) -> u64 {
    // 2^−(w + f) = 2^(1 − f) ÷ 2^(w + 1), so that the power of the fraction is at least 1.
    let rest = ONE - (exponent & (ONE - 1));
    let factor = ONE + rest - curve(rest, CURVE_OF_EXP);
    let product = (u128::from(number) * u128::from(factor)) >> BITS;
    let shift = u32::try_from((exponent >> BITS) + 1).unwrap_or(u32::MAX);
    u64::try_from(product.checked_shr(shift).unwrap_or(0)).unwrap_or(u64::MAX)
}

/// Returns `coefficient x (1 − x)`, all in units of [`ONE`].
fn curve(x: u64, coefficient: u64) -> u64 {
    (((x * (ONE - x)) >> BITS) * coefficient) >> BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithm_and_power_are_exact_to_one_percent() {
        let numbers =
            (0..60).flat_map(|bits| (0..100).map(move |part| (1 << bits) + ((1 << bits) / 100) * part));
        for number in numbers.filter(|number| *number >= 1000) {
            let exact = (number as f64).log2();
            let log = log2(number);
            assert!((log as f64 / ONE as f64 - exact).abs() < 0.009, "{number}");
            let error = exp2(log) as f64 / number as f64 - 1.0;
            assert!(error.abs() < 0.01, "{number}: {error}");
        }
    }

    #[test]
    fn extremes_saturate() {
        assert_eq!(log2(0), 0);
        assert_eq!(log2(u64::MAX) >> BITS, 63);
        assert_eq!(exp2(u64::MAX), 1 << EXPONENT_MAX);
        assert_eq!(divide_by_exp2(u64::MAX, 0), u64::MAX);
        assert_eq!(divide_by_exp2(u64::MAX, u64::MAX), 0);
    }
}
