//! Value axes: linear from zero, or logarithmic, with round marks. Marks are chosen so that their
//! labels differ and do not overlap, see [`legible`].

/// Scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Linear, from zero.
    Linear,
    /// Logarithmic, for latencies over several powers of ten.
    Log,
}

/// Length of a logarithmic axis, in powers of ten, above which only powers of ten are marked.
const DECADES_FINE: f64 = 1.6;

/// Axis.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
    marks: Vec<f64>,
}

/// Mark of an axis with its label.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mark {
    pub(crate) value: f64,
    pub(crate) label: String,
    /// Position along the axis, in units of the drawing.
    pub(crate) at: f64,
}

impl Axis {
    /// Returns the axis over these values, and at least up to `top`. `None` if no value can be
    /// drawn.
    pub(crate) fn of(scale: Scale, values: impl Iterator<Item = f64>, top: Option<f64>) -> Option<Axis> {
        let drawn: Vec<f64> = values.chain(top).filter(|value| drawable(scale, *value)).collect();
        let high = drawn.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let low = drawn.iter().copied().fold(f64::INFINITY, f64::min);
        if drawn.is_empty() {
            return None;
        }
        let marks = match scale {
            Scale::Linear => marks(high.max(1e-9)),
            Scale::Log => log_marks(low, high),
        };
        let (low, high) = match scale {
            Scale::Linear => (0.0, top.map_or(marks[marks.len() - 1], |top| top.max(high))),
            Scale::Log => (below(low), above(high, low)),
        };
        let marks = marks.into_iter().filter(|mark| (low..=high).contains(mark)).collect();
        Some(Axis { scale, low, high, marks })
    }

    /// Returns the values to mark, in the order of preference. A linear axis has wider steps to
    /// offer.
    pub(crate) fn candidates(&self) -> Vec<Vec<f64>> {
        let mut out = vec![self.marks.clone()];
        if self.scale == Scale::Linear {
            out.extend(steps(self.high, self.high / 3.5).skip(1));
        }
        out
    }

    /// Returns the position of a value between the ends, 0 to 1.
    pub(crate) fn part(&self, value: f64) -> f64 {
        let part = match self.scale {
            Scale::Linear => value / self.high,
            Scale::Log => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
        };
        part.clamp(0.0, 1.0)
    }

    /// Returns true if the value can be drawn on this axis.
    pub(crate) fn contains(&self, value: f64) -> bool {
        drawable(self.scale, value)
    }
}

/// Returns the marks of the first candidate whose labels differ and do not overlap. If there is
/// none, those of the last one that differ from the marks before them and do not overlap them.
/// `extent` is the length of a label along the axis, with the space around it.
pub(crate) fn legible(
    candidates: &[Vec<f64>],
    label: impl Fn(f64) -> String,
    at: impl Fn(f64) -> f64,
    extent: impl Fn(&str) -> f64,
) -> Vec<Mark> {
    let mark = |value: &f64| Mark { value: *value, label: label(*value), at: at(*value) };
    let is_free = |mark: &Mark, other: &Mark| {
        let apart = (mark.at - other.at).abs();
        mark.label != other.label && apart >= f64::midpoint(extent(&mark.label), extent(&other.label))
    };
    let mut kept: Vec<Mark> = Vec::new();
    for values in candidates {
        kept.clear();
        for mark in values.iter().map(mark) {
            if kept.iter().all(|other| is_free(&mark, other)) {
                kept.push(mark);
            }
        }
        if kept.len() == values.len() {
            break;
        }
    }
    kept
}

/// Returns the multiples of round steps up to `top`, for each step from `least` to `top`: 1, 2 or 5
/// times a power of ten.
pub(crate) fn steps(top: f64, least: f64) -> impl Iterator<Item = Vec<f64>> {
    let round = grid().filter(move |step| *step >= least * (1.0 - 1e-9) && *step <= top * (1.0 + 1e-9));
    round.map(move |step| (0..=(top / step + 1e-9) as usize).map(|n| n as f64 * step).collect())
}

fn drawable(scale: Scale, value: f64) -> bool {
    value.is_finite() && (scale == Scale::Linear || value > 0.0)
}

/// Returns about four marks of a linear axis, at multiples of 1, 2 or 5 times a power of ten. The
/// last one is at least `top`.
fn marks(top: f64) -> Vec<f64> {
    let raw = (top / 3.5).max(1e-9);
    let power = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|step| *step >= raw);
    let step = step.unwrap_or(raw);
    (0..=(top / step - 1e-9).ceil() as usize).map(|n| n as f64 * step).collect()
}

/// Returns 1, 2 and 5 times each power of ten.
fn grid() -> impl DoubleEndedIterator<Item = f64> {
    (-12..=18).flat_map(|power| [1.0, 2.0, 5.0].map(|m| m * 10f64.powi(power)))
}

fn below(low: f64) -> f64 {
    grid().rev().find(|mark| *mark <= low * (1.0 + 1e-9)).unwrap_or(low)
}

fn above(high: f64, low: f64) -> f64 {
    let wanted = high.max(below(low) * 5.0);
    grid().find(|mark| *mark >= wanted * (1.0 - 1e-9)).unwrap_or(wanted)
}

/// Returns the powers of ten between the ends, with 2 and 5 times them if those are few.
fn log_marks(low: f64, high: f64) -> Vec<f64> {
    let high = above(high, low);
    let low = below(low);
    let inside = |mark: &f64| *mark >= low * (1.0 - 1e-9) && *mark <= high * (1.0 + 1e-9);
    if (high / low).log10() <= DECADES_FINE {
        return grid().filter(inside).collect();
    }
    (-9..=15).map(|power| 10f64.powi(power)).filter(inside).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_and_reach_the_top() {
        assert_eq!(marks(9.0), [0.0, 5.0, 10.0]);
        assert_eq!(marks(40_000.0), [0.0, 20_000.0, 40_000.0]);
        assert_eq!(marks(65_000.0), [0.0, 20_000.0, 40_000.0, 60_000.0, 80_000.0]);
    }

    #[test]
    fn labels_that_round_to_the_same_text_take_wider_steps() {
        let labels = |top: f64, size: f64| {
            let axis = Axis::of(Scale::Linear, [top].into_iter(), None).expect("a value");
            let found = legible(
                &axis.candidates(),
                |value| format!("{value:.0}"),
                |value| axis.part(value) * 100.0,
                |_| size,
            );
            found.into_iter().map(|mark| mark.label).collect::<Vec<_>>()
        };
        assert_eq!(labels(1.2, 10.0), ["0", "1"]);
        assert_eq!(labels(2.5, 10.0), ["0", "1", "2", "3"]);
        assert_eq!(labels(1.8, 10.0), ["0", "1", "2"]);
        assert_eq!(labels(8.0, 10.0), ["0", "5", "10"]);
        assert_eq!(labels(8.0, 60.0), ["0", "10"]);
    }

    #[test]
    fn latencies_are_marked_by_powers_of_ten_or_finer_where_few() {
        let close = |found: Vec<f64>, expected: &[f64]| {
            assert_eq!(found.len(), expected.len(), "{found:?}");
            found.iter().zip(expected).for_each(|(a, b)| assert!((a / b - 1.0).abs() < 1e-9, "{found:?}"));
        };
        close(log_marks(120.0, 90_000.0), &[100.0, 1000.0, 10_000.0, 100_000.0]);
        close(log_marks(300.0, 4000.0), &[200.0, 500.0, 1000.0, 2000.0, 5000.0]);
        close(log_marks(100.0, 100.0), &[100.0, 200.0, 500.0]);
    }

    #[test]
    fn every_value_is_between_the_ends() {
        for (scale, values) in [(Scale::Linear, [0.0, 7.0, 7000.0]), (Scale::Log, [3.0, 20.0, 7e6])] {
            let axis = Axis::of(scale, values.into_iter(), None).expect("values");
            let parts: Vec<f64> = values.iter().map(|value| axis.part(*value)).collect();
            assert!(parts.is_sorted() && parts[0] < 0.3 && parts[2] > 0.5, "{parts:?}");
        }
        assert_eq!(Axis::of(Scale::Log, [0.0, f64::NAN].into_iter(), None), None);
        let fixed = Axis::of(Scale::Linear, [40.0].into_iter(), Some(100.0)).expect("a value");
        assert_eq!(fixed.part(50.0), 0.5);
    }
}
