//! Ratios, medians, and verdicts.

use crate::results::{Row, Window};
use crate::trust::{OTHERS_MAX, is_late, others};
use crate::units::percent;

/// Returns `a / b`, if both were measured.
pub(super) fn ratio(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) if b > 0.0 => Some(a / b),
        _ => None,
    }
}

pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

/// Removes the verdict if other programs used the server's cores in these phases, or the sender was
/// late.
pub(super) fn judged(mut row: Row, windows: &[&Window]) -> Row {
    let used = windows.iter().map(|window| others(&window.cpu)).fold(0.0, f64::max);
    if used > OTHERS_MAX && row.met.is_some() {
        row.met = None;
        row.detail += &format!("; other programs used up to {} of the server's cores", percent(used));
    }
    let is_late = |window: &&Window| window.loads.iter().any(is_late);
    if row.met.is_some() && windows.iter().any(is_late) {
        row.met = None;
        row.detail += "; the sender itself was late";
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_an_even_number_is_between_two() {
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(Vec::new()), None);
    }
}
