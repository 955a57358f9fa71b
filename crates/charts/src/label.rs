//! Places of names: beside the line, where a name covers as little as possible of lines and other
//! names. Widths of texts are estimates, since fonts cannot be measured here.

/// Axis-parallel box.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Area {
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) right: f64,
    pub(crate) bottom: f64,
}

impl Area {
    fn overlaps(&self, other: &Area) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }

    fn contains(&self, x: f64, y: f64) -> bool {
        (self.left..=self.right).contains(&x) && (self.top..=self.bottom).contains(&y)
    }

    fn within(&self, other: &Area) -> bool {
        self.left >= other.left
            && self.right <= other.right
            && self.top >= other.top
            && self.bottom <= other.bottom
    }
}

/// Returns an estimate of a text's width in a wide sans-serif font, in the unit of `size`.
pub(crate) fn width(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * size * 0.6
}

/// Distance between a line and its name, as a fraction of the font size.
const DISTANCE: f64 = 0.45;
/// Cost of covering a point of a line, or a name. The distance from the line's end costs at most 1.
const COST_POINT: f64 = 1.0;
const COST_NAME: f64 = 100.0;

/// Returns points along a polyline, so close that no name fits between them.
pub(crate) fn along(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut out = points.to_vec();
    for pair in points.windows(2) {
        let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
        let steps = (((x1 - x0).abs() + (y1 - y0).abs()) / 4.0).ceil().min(200.0) as usize;
        let between = |step: usize| step as f64 / steps as f64;
        out.extend((1..steps).map(|step| (x0 + (x1 - x0) * between(step), y0 + (y1 - y0) * between(step))));
    }
    out
}

/// Returns the cheapest box for a name beside `line`, inside `plot`. `points` are those of all
/// lines, and `taken` the boxes of other names.
pub(crate) fn place(
    text: &str,
    size: f64,
    line: &[(f64, f64)],
    points: &[(f64, f64)],
    taken: &[Area],
    plot: Area,
) -> Option<Area> {
    let wide = width(text, size);
    let high = size * 1.1;
    let end = line.last()?.0;
    let candidate = |(x, y): (f64, f64), above: bool| {
        let left = (x - wide / 2.0).clamp(plot.left + 2.0, (plot.right - wide - 2.0).max(plot.left + 2.0));
        let top = if above { y - high - size * DISTANCE } else { y + size * DISTANCE };
        Area { left, top, right: left + wide, bottom: top + high }
    };
    let cost = |area: &Area| {
        let covered = points.iter().filter(|point| area.contains(point.0, point.1)).count() as f64;
        let names = taken.iter().filter(|other| area.overlaps(other)).count() as f64;
        let far = (end - area.right).abs() / (plot.right - plot.left).max(1.0);
        covered * COST_POINT + names * COST_NAME + far
    };
    let candidates = line.iter().flat_map(|point| [candidate(*point, true), candidate(*point, false)]);
    candidates.filter(|area| area.within(&plot)).min_by(|a, b| cost(a).total_cmp(&cost(b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLOT: Area = Area { left: 0.0, top: 0.0, right: 400.0, bottom: 100.0 };

    #[test]
    fn names_do_not_cover_lines_or_each_other() {
        let flat = |y: f64| (0..=20).map(|n| (n as f64 * 20.0, y)).collect::<Vec<_>>();
        let a = flat(40.0);
        let b = flat(62.0);
        let points = [along(&a), along(&b)].concat();
        let first = place("one", 12.0, &a, &points, &[], PLOT).expect("free space");
        let second = place("two", 12.0, &b, &points, &[first], PLOT).expect("free space");
        assert!(!first.overlaps(&second));
        for (x, y) in points {
            assert!(!first.contains(x, y) && !second.contains(x, y), "{first:?} {second:?} {x} {y}");
        }
    }

    #[test]
    fn name_stays_inside_the_plot() {
        let line = [(0.0, 3.0), (5.0, 3.0)];
        let area = place("at the left edge", 12.0, &line, &along(&line), &[], PLOT).expect("free space");
        assert!(area.within(&PLOT) && area.top > 3.0, "{area:?}");
        assert_eq!(place("none", 12.0, &[], &[], &[], PLOT), None);
    }
}
