//! Ratios, medians, and verdicts.

use crate::results::{Chapter, ComparisonRow, Window};
use crate::trust::{OTHERS_MAX, is_late, others};
use charts::numbers::{factor, percent};

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

/// Returns the median of a value over the phases with a label.
pub(super) fn median_of(
    chapter: &Chapter,
    label: &str,
    value: impl Fn(&Window) -> Option<f64>,
) -> Option<f64> {
    median(chapter.windows.iter().filter(|window| window.label == label).filter_map(value).collect())
}

/// Labels of phases that are compared: `later` with `base`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Labels {
    pub(super) base: &'static str,
    pub(super) later: &'static str,
}

/// Returns the value of phases with the label `later` over those with the label `base`, each phase
/// in one pair of neighbours.
pub(super) fn ratios(
    chapter: &Chapter,
    Labels { base, later }: Labels,
    value: impl Fn(&Window) -> Option<f64>,
) -> Vec<f64> {
    let mut ratios = Vec::new();
    let mut windows = &chapter.windows[..];
    while let [first, second, ..] = windows {
        let found = match (&*first.label, &*second.label) {
            labels if labels == (base, later) => ratio(value(second), value(first)),
            labels if labels == (later, base) => ratio(value(first), value(second)),
            _ => None,
        };
        ratios.extend(found);
        windows = &windows[if found.is_some() { 2 } else { 1 }..];
    }
    ratios
}

/// Returns the number of ratios, and the range of their middle half, or of all if they are few.
pub(super) fn spread(mut ratios: Vec<f64>) -> String {
    ratios.sort_by(f64::total_cmp);
    let (n, quarter) = (ratios.len(), ratios.len() / 4);
    match n {
        1 => "one pair".to_string(),
        _ => {
            let (least, most) = (factor(ratios[quarter]), factor(ratios[n - 1 - quarter]));
            format!(
                "median of {n} pairs, {} from ×{least} to ×{most}",
                if quarter == 0 { "all" } else { "the middle half" }
            )
        }
    }
}

/// Removes the verdict if other programs used the server's cores in these phases, or the sender was
/// late.
pub(super) fn judged(mut row: ComparisonRow, windows: &[&Window]) -> ComparisonRow {
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

    #[test]
    fn neighbours_are_compared_once() {
        let phases = [("a", 100.0), ("b", 110.0), ("b", 120.0), ("a", 100.0), ("c", 5.0), ("a", 1.0)];
        let window = |(label, end_s): (&str, f64)| Window { label: label.into(), end_s, ..Window::default() };
        let chapter = Chapter { windows: phases.map(window).to_vec(), ..Chapter::default() };
        let of = |base, later| ratios(&chapter, Labels { base, later }, |window| Some(window.end_s));
        assert_eq!(of("a", "b"), [1.1, 1.2]);
        assert_eq!((of("a", "c"), of("c", "a"), of("b", "c")), (vec![0.05], vec![20.0], Vec::new()));
    }

    #[test]
    fn ratios_are_reported_with_their_spread() {
        assert_eq!(spread(vec![2.0]), "one pair");
        assert_eq!(spread(vec![2.0, 1.1, 1.3]), "median of 3 pairs, all from ×1.10 to ×2.00");
        let of_eight = (1..=8).rev().map(f64::from).collect();
        assert_eq!(spread(of_eight), "median of 8 pairs, the middle half from ×3.00 to ×6.00");
    }
}
