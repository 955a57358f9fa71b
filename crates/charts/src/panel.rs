//! Drawing of a panel: grid, lines or areas, and texts.

use std::fmt::Write as _;

use crate::axis::{Axis, Scale, legible};
use crate::label::{Area, along, width};
use crate::model::{Figure, GAP_S, Layout, Line, Note, Panel, Time, text};

/// PanelPlace of a panel.
pub(crate) struct PanelPlace<'a> {
    pub(crate) axis: Axis,
    pub(crate) time: &'a Time,
    pub(crate) layout: &'a Layout,
    /// Upper edge of the plot.
    pub(crate) top: f64,
    /// Height of the plot.
    pub(crate) high: f64,
}

/// Points of an unbroken line.
type Polyline = Vec<(f64, f64)>;

impl PanelPlace<'_> {
    fn bottom(&self) -> f64 {
        self.top + self.high
    }

    fn plot(&self) -> Area {
        Area { left: self.layout.left(), top: self.top, right: self.layout.right(), bottom: self.bottom() }
    }

    /// Returns the height of a value. Space for notes at the upper edge stays free.
    fn y(&self, panel: &Panel, value: f64) -> f64 {
        let edge = panel.notes.iter().any(|note| note.between.is_none());
        let free = if edge { self.layout.text * 1.4 } else { 0.0 };
        self.bottom() - self.axis.part(value) * (self.high - free)
    }

    /// Returns the unbroken parts of a line.
    fn runs(&self, panel: &Panel, line: &Line) -> Vec<Polyline> {
        let mut out: Vec<Polyline> = Vec::new();
        let mut last = f64::NEG_INFINITY;
        for (at, value) in line.points.iter().filter(|point| self.axis.contains(point.1)) {
            let point = (self.time.x(*at), self.y(panel, *value));
            match out.last_mut() {
                Some(run) if at - last < GAP_S => run.push(point),
                _ => out.push(vec![point]),
            }
            last = *at;
        }
        out
    }
}

/// Returns the upper edges of stacked areas, at the times of the longest one.
pub(crate) fn sums(lines: &[Line]) -> Vec<Vec<(f64, f64)>> {
    let Some(longest) = lines.iter().max_by_key(|line| line.points.len()) else { return Vec::new() };
    let mut below = vec![0.0; longest.points.len()];
    let mut out = Vec::new();
    for line in lines {
        let value = |at: f64| {
            let same = line.points.iter().find(|point| (point.0 - at).abs() < 1e-6);
            same.map_or(0.0, |point| point.1)
        };
        let mut edge = Vec::new();
        for ((at, _), below) in longest.points.iter().zip(&mut below) {
            *below += value(*at);
            edge.push((*at, *below));
        }
        out.push(edge);
    }
    out
}

fn path(points: &[(f64, f64)]) -> String {
    let mut d = String::new();
    for (index, (x, y)) in points.iter().enumerate() {
        // Writing to a String cannot fail.
        let _ = write!(d, "{}{x:.1} {y:.1}", if index == 0 { 'M' } else { 'L' });
    }
    d
}

/// Draws the panel.
pub(crate) fn draw(out: &mut String, figure: &Figure, panel: &Panel, place: &PanelPlace) {
    let layout = place.layout;
    let width_max = layout.right() - layout.left();
    let baseline = place.top - layout.text * 0.55;
    let title = match panel.scale {
        Scale::Linear => panel.title.clone(),
        Scale::Log => format!("{} (logarithmic)", panel.title),
    };
    text(out, "title", "start", layout.left(), baseline, shortened(&title, layout.text, width_max));
    grid(out, panel, place);
    if panel.stacked {
        areas(out, panel, place);
    }
    let mut taken = notes(out, figure, panel, place);
    let runs: Vec<Vec<Polyline>> = match panel.stacked {
        true => Vec::new(),
        false => panel.lines.iter().map(|line| place.runs(panel, line)).collect(),
    };
    let points: Polyline = runs.iter().flatten().flat_map(|run| along(run)).collect();
    rules(out, panel, place, &points, &mut taken);
    lines(out, panel, place, &runs);
    moments(out, panel, place);
    // The title names a single line.
    if runs.len() > 1 {
        names(out, panel, place, &runs, &points, taken);
    }
}

/// Returns a title, without its text in parentheses if it is wider than `width_max`.
fn shortened(title: &str, size: f64, width_max: f64) -> &str {
    let short = title.split(" (").next().unwrap_or(title);
    if width(title, size) <= width_max { title } else { short }
}

fn grid(out: &mut String, panel: &Panel, place: &PanelPlace) {
    let left = place.layout.left();
    let right = place.layout.right();
    let size = place.layout.text;
    let marks = legible(&place.axis.candidates(), panel.mark, |value| place.y(panel, value), |_| size * 1.15);
    for mark in marks {
        let y = mark.at;
        let _ = write!(
            out,
            "<line class=\"grid\" x1=\"{left:.1}\" x2=\"{right:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"
        );
        text(out, "mark", "end", left - size * 0.5, y + size * 0.35, &mark.label);
    }
}

fn areas(out: &mut String, panel: &Panel, place: &PanelPlace) {
    let mut below: Option<Polyline> = None;
    for (line, edge) in panel.lines.iter().zip(sums(&panel.lines)) {
        let upper: Polyline =
            edge.iter().map(|(at, value)| (place.time.x(*at), place.y(panel, *value))).collect();
        let ground = || upper.iter().map(|(x, _)| (*x, place.bottom())).collect();
        let lower: Polyline = below.take().unwrap_or_else(ground);
        let around: Polyline = upper.iter().copied().chain(lower.into_iter().rev()).collect();
        let _ = write!(out, "<path class=\"area s{}\" d=\"{}Z\"/>", line.class, path(&around));
        let _ = write!(out, "<path class=\"edge s{}\" d=\"{}\"/>", line.class, path(&upper));
        below = Some(upper);
    }
}

/// Draws values to compare with, and adds the places of their labels to `taken`.
fn rules(out: &mut String, panel: &Panel, place: &PanelPlace, points: &[(f64, f64)], taken: &mut Vec<Area>) {
    let left = place.layout.left();
    let right = place.layout.right();
    let size = place.layout.text;
    for rule in &panel.rules {
        let y = place.y(panel, rule.value);
        let _ = write!(
            out,
            "<line class=\"rule\" x1=\"{left:.1}\" x2=\"{right:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"
        );
        let own = along(&[(left, y), (right, y)]);
        let Some(area) = crate::label::place(&rule.label, size, &own, points, taken, place.plot()) else {
            continue;
        };
        text(out, "ruled halo", "end", area.right, area.bottom - size * 0.25, &rule.label);
        taken.push(area);
    }
}

/// Draws a tick at the lower edge for each moment.
fn moments(out: &mut String, panel: &Panel, place: &PanelPlace) {
    let mut d = String::new();
    for at in panel.moments.iter().filter(|at| place.time.contains(**at)) {
        let _ = write!(d, "M{:.1} {:.1}v{:.1}", place.time.x(*at), place.bottom(), -place.layout.text * 0.6);
    }
    if !d.is_empty() {
        let _ = write!(out, "<path class=\"moment\" d=\"{d}\"/>");
    }
}

/// Draws texts in phases. Returns their places.
fn notes(out: &mut String, figure: &Figure, panel: &Panel, place: &PanelPlace) -> Vec<Area> {
    let size = place.layout.text;
    let mut taken = Vec::new();
    for note in &panel.notes {
        let Some(band) = figure.bands.get(note.band) else { continue };
        let left = place.time.x(band.begin);
        let right = place.time.x(band.end);
        let baseline = match note.between {
            None => place.top + size * 1.05,
            Some((low, high)) => {
                let low = place.y(panel, low);
                let high = place.y(panel, high);
                if low - high < size * 1.15 {
                    continue;
                }
                f64::midpoint(low, high) + size * 0.35
            }
        };
        // Neighbouring phases have notes at the same height.
        let Some(words) = fitting(note, size, right - left - size * 0.6) else { continue };
        let middle = f64::midpoint(left, right);
        let class = if note.between.is_some() { "inside" } else { "note halo" };
        text(out, class, "middle", middle, baseline, words);
        let half = width(words, size) / 2.0;
        taken.push(Area {
            left: middle - half,
            top: baseline - size,
            right: middle + half,
            bottom: baseline + size * 0.3,
        });
    }
    taken
}

fn fitting(note: &Note, size: f64, width_max: f64) -> Option<&String> {
    note.texts.iter().find(|words| width(words, size) <= width_max)
}

fn lines(out: &mut String, panel: &Panel, place: &PanelPlace, runs: &[Vec<Polyline>]) {
    for (line, runs) in panel.lines.iter().zip(runs) {
        let d: String = runs.iter().map(|run| path(run)).collect();
        let thin = if line.thin { " thin" } else { "" };
        let _ = write!(out, "<path class=\"line s{}{thin}\" d=\"{d}\"/>", line.class);
        if !line.thin {
            marks(out, line.class, runs, place.layout);
        }
    }
}

fn names(
    out: &mut String,
    panel: &Panel,
    place: &PanelPlace,
    runs: &[Vec<Polyline>],
    points: &[(f64, f64)],
    mut taken: Vec<Area>,
) {
    let size = place.layout.text;
    for (line, runs) in panel.lines.iter().zip(runs) {
        let own: Polyline = runs.iter().flatten().copied().collect();
        let area = crate::label::place(&line.name, size, &own, points, &taken, place.plot());
        let Some(area) = area else { continue };
        let middle = f64::midpoint(area.left, area.right);
        let baseline = area.bottom - size * 0.25;
        text(out, &format!("name halo s{}", line.class), "middle", middle, baseline, &line.name);
        taken.push(area);
    }
}

/// Draws small signs of the class on the points of a line, unless they would touch.
fn marks(out: &mut String, class: usize, runs: &[Polyline], layout: &Layout) {
    let mut d = String::new();
    let mut last = f64::NEG_INFINITY;
    for (x, y) in runs.iter().flatten() {
        if x - last < layout.text {
            continue;
        }
        last = *x;
        let _ = match class % 4 {
            0 => write!(d, "M{:.1} {y:.1}a2.6 2.6 0 1 0 5.2 0a2.6 2.6 0 1 0 -5.2 0", x - 2.6),
            1 => write!(d, "M{:.1} {:.1}h5v5h-5z", x - 2.5, y - 2.5),
            2 => write!(d, "M{x:.1} {:.1}l3.3 5.6h-6.6z", y - 3.4),
            _ => write!(d, "M{x:.1} {:.1}l3.4 3.4l-3.4 3.4l-3.4 -3.4z", y - 3.4),
        };
    }
    let _ = write!(out, "<path class=\"dot s{class}\" d=\"{d}\"/>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_title_loses_its_parentheses() {
        assert_eq!(shortened("one (and more)", 10.0, 1000.0), "one (and more)");
        assert_eq!(shortened("one (and more)", 10.0, 50.0), "one");
    }

    #[test]
    fn areas_are_stacked() {
        let line = |points: &[(f64, f64)]| Line {
            name: String::new(),
            class: 0,
            thin: false,
            points: points.to_vec(),
        };
        let found = sums(&[line(&[(0.0, 1.0), (1.0, 2.0)]), line(&[(1.0, 3.0)])]);
        assert_eq!(found, [vec![(0.0, 1.0), (1.0, 2.0)], vec![(0.0, 1.0), (1.0, 5.0)]]);
        assert!(sums(&[]).is_empty());
    }
}
