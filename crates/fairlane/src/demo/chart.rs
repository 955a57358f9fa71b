//! Charts as SVG text: lines over time, phases shaded and named above, each line named at its end in its own
//! colour, so that no legend is needed. Colours come from the page by class, so one drawing serves light and
//! dark; lines differ in dashes too, so colour is never the only sign.

use std::fmt::Write as _;

/// One line of a chart: its name, its class (`s0`, `s1`, …), and its points as time and value.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) class: usize,
    pub(super) points: Vec<(f64, f64)>,
}

/// A stretch of time with a name.
#[derive(Clone, Debug)]
pub(super) struct Band {
    pub(super) label: String,
    pub(super) begin: f64,
    pub(super) end: f64,
}

/// How values map to heights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    /// From zero up.
    Linear,
    /// By powers of ten, for latencies, which span four of them.
    Log,
}

/// A chart.
#[derive(Clone, Debug)]
pub(super) struct Chart {
    pub(super) title: String,
    pub(super) scale: Scale,
    pub(super) lines: Vec<Line>,
    pub(super) bands: Vec<Band>,
    /// How a value is written beside the axis.
    pub(super) value: fn(f64) -> String,
}

/// Size of the drawing and of its margins, in its own units; the page scales it to its width.
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 250.0;
const LEFT: f64 = 74.0;
const RIGHT: f64 = 110.0;
const TOP: f64 = 46.0;
const BOTTOM: f64 = 28.0;
/// A line is broken where nothing was heard for so long, seconds.
const GAP: f64 = 3.0;
/// Names at the ends of lines keep this distance.
const NAME_HEIGHT: f64 = 15.0;

/// Text for HTML and SVG.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Where the marks of an axis from zero go: 1, 2 or 5 times a power of ten apart, some five of them.
fn marks(top: f64) -> Vec<f64> {
    let raw = (top / 4.0).max(1e-9);
    let power = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|step| *step >= raw);
    let step = step.unwrap_or(raw);
    (0..=(top / step).ceil() as usize).map(|n| n as f64 * step).collect()
}

/// Powers of ten around all values.
fn decades(low: f64, high: f64) -> Vec<f64> {
    let (from, to) = (low.max(1e-9).log10().floor() as i32, high.max(1e-9).log10().ceil() as i32);
    (from..=to.max(from + 1)).map(|power| 10f64.powi(power)).collect()
}

/// Moves names apart that would overlap; takes and returns heights in the same order.
fn apart(wanted: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| wanted[*a].total_cmp(&wanted[*b]));
    let mut out = wanted.to_vec();
    for pair in order.windows(2) {
        out[pair[1]] = out[pair[1]].max(out[pair[0]] + NAME_HEIGHT);
    }
    out
}

struct Axes {
    begin: f64,
    end: f64,
    scale: Scale,
    marks: Vec<f64>,
}

impl Axes {
    fn of(chart: &Chart) -> Option<Axes> {
        let times = chart.bands.iter().flat_map(|band| [band.begin, band.end]);
        let times: Vec<f64> =
            times.chain(chart.lines.iter().flat_map(|l| l.points.iter().map(|p| p.0))).collect();
        let begin = times.iter().copied().fold(f64::INFINITY, f64::min);
        let end = times.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let drawn = |value: &f64| value.is_finite() && (chart.scale == Scale::Linear || *value > 0.0);
        let values: Vec<f64> =
            chart.lines.iter().flat_map(|l| l.points.iter().map(|p| p.1)).filter(drawn).collect();
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        if values.is_empty() || begin >= end {
            return None;
        }
        let marks = if chart.scale == Scale::Log { decades(low, high) } else { marks(high.max(1e-9)) };
        Some(Axes { begin, end, scale: chart.scale, marks })
    }

    fn x(&self, time: f64) -> f64 {
        LEFT + (time - self.begin) / (self.end - self.begin) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        let (low, high) = (self.marks[0], self.marks[self.marks.len() - 1]);
        let part = match self.scale {
            Scale::Linear => value / high,
            Scale::Log => (value.max(low) / low).log10() / (high / low).log10(),
        };
        HEIGHT - BOTTOM - part.clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM)
    }
}

/// The chart without what lies outside of its phases, so that charts of the same phases share their time axis.
fn clipped(chart: &Chart) -> Chart {
    let mut chart = chart.clone();
    if let (Some(first), Some(last)) = (chart.bands.first(), chart.bands.last()) {
        let inside = |(time, _): &(f64, f64)| *time >= first.begin && *time <= last.end;
        chart.lines.iter_mut().for_each(|line| line.points.retain(inside));
        chart.lines.retain(|line| !line.points.is_empty());
    }
    chart
}

/// Draws a chart; a sentence instead where there is nothing to draw.
pub(super) fn draw(chart: &Chart) -> String {
    let chart = &clipped(chart);
    let Some(axes) = Axes::of(chart) else {
        return format!("<p class=\"none\">{}: nothing was measured.</p>", escaped(&chart.title));
    };
    let mut out = String::new();
    let title = escaped(&chart.title);
    // Writing to a String cannot fail.
    let _ = write!(out, "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\">");
    let _ = write!(out, "<text class=\"title\" x=\"{LEFT}\" y=\"14\">{title}</text>");
    bands(&mut out, chart, &axes);
    grid(&mut out, chart, &axes);
    for line in &chart.lines {
        path(&mut out, line, &axes);
    }
    names(&mut out, chart, &axes);
    out.push_str("</svg>");
    out
}

fn bands(out: &mut String, chart: &Chart, axes: &Axes) {
    for (index, band) in chart.bands.iter().enumerate() {
        let (x, width) = (axes.x(band.begin), axes.x(band.end) - axes.x(band.begin));
        let (height, middle) = (HEIGHT - TOP - BOTTOM, x + width / 2.0);
        let _ = write!(
            out,
            "<rect class=\"band b{}\" x=\"{x:.1}\" y=\"{TOP}\" width=\"{width:.1}\" height=\"{height}\"/>\
             <text class=\"phase\" x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            index % 2,
            TOP - 8.0,
            escaped(&band.label)
        );
    }
}

fn grid(out: &mut String, chart: &Chart, axes: &Axes) {
    for mark in &axes.marks {
        let y = axes.y(*mark);
        let _ = write!(
            out,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text class=\"mark\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 8.0,
            y + 4.0,
            escaped(&(chart.value)(*mark))
        );
    }
    let seconds = axes.end - axes.begin;
    for mark in marks(seconds).into_iter().filter(|mark| *mark <= seconds) {
        let (x, y) = (axes.x(axes.begin + mark), HEIGHT - BOTTOM + 16.0);
        let _ = write!(
            out,
            "<text class=\"mark\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{mark:.0} s</text>"
        );
    }
}

fn path(out: &mut String, line: &Line, axes: &Axes) {
    let mut d = String::new();
    let mut last: Option<f64> = None;
    for (time, value) in &line.points {
        let drawn = value.is_finite() && (axes.scale == Scale::Linear || *value > 0.0);
        if !drawn {
            last = None;
            continue;
        }
        let word = if last.is_some_and(|last| time - last < GAP) { 'L' } else { 'M' };
        let _ = write!(d, "{word}{:.1} {:.1}", axes.x(*time), axes.y(*value));
        last = Some(*time);
    }
    let _ = write!(out, "<path class=\"line s{}\" d=\"{d}\"/>", line.class);
}

/// Names at the right edge, at the height of each line's last value; where a line ended earlier, a name there
/// would be lost among other lines.
fn names(out: &mut String, chart: &Chart, axes: &Axes) {
    let drawn = |value: &f64| value.is_finite() && (axes.scale == Scale::Linear || *value > 0.0);
    let end = |line: &&Line| line.points.iter().rev().map(|point| point.1).find(drawn);
    let named: Vec<(&Line, f64)> =
        chart.lines.iter().filter_map(|line| end(&line).map(|value| (line, axes.y(value)))).collect();
    let heights = apart(&named.iter().map(|(_, y)| *y).collect::<Vec<_>>());
    for ((line, y), placed) in named.iter().zip(heights) {
        let last =
            line.points.iter().rev().find(|point| drawn(&point.1)).map_or(0.0, |point| axes.x(point.0));
        let edge = WIDTH - RIGHT;
        let _ = write!(
            out,
            "<line class=\"lead s{0}\" x1=\"{last:.1}\" y1=\"{y:.1}\" x2=\"{1:.1}\" y2=\"{placed:.1}\"/>\
             <text class=\"name s{0}\" x=\"{2:.1}\" y=\"{3:.1}\">{4}</text>",
            line.class,
            edge + 4.0,
            edge + 7.0,
            placed + 4.0,
            escaped(&line.name)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(scale: Scale, points: Vec<(f64, f64)>) -> Chart {
        Chart {
            title: "a < b".to_string(),
            scale,
            lines: vec![Line { name: "one & only".to_string(), class: 0, points }],
            bands: vec![Band { label: "alone".to_string(), begin: 0.0, end: 10.0 }],
            value: |value| format!("{value}"),
        }
    }

    #[test]
    fn marks_are_round_and_reach_the_top() {
        assert_eq!(marks(9.0), [0.0, 5.0, 10.0]);
        assert_eq!(marks(40_000.0), [0.0, 10_000.0, 20_000.0, 30_000.0, 40_000.0]);
        assert_eq!(decades(120.0, 90_000.0), [100.0, 1000.0, 10_000.0, 100_000.0]);
        assert_eq!(decades(100.0, 100.0).len(), 2);
    }

    #[test]
    fn names_do_not_overlap() {
        assert_eq!(apart(&[50.0, 48.0, 100.0]), [63.0, 48.0, 100.0]);
    }

    #[test]
    fn a_line_breaks_where_nothing_was_heard() {
        let drawing = draw(&chart(Scale::Linear, vec![(0.0, 1.0), (1.0, 2.0), (9.0, 1.0), (10.0, 2.0)]));
        let d = drawing.split(" d=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or_default();
        assert_eq!((d.matches('M').count(), d.matches('L').count()), (2, 2), "{d}");
        assert!(
            drawing.contains("one &amp; only") && drawing.contains("a &lt; b") && drawing.contains(">alone<")
        );
    }

    #[test]
    fn what_lies_outside_of_the_phases_is_not_drawn() {
        let kept = clipped(&chart(Scale::Linear, vec![(-1.0, 9.0), (0.0, 1.0), (10.0, 2.0), (11.0, 9.0)]));
        assert_eq!(kept.lines[0].points, [(0.0, 1.0), (10.0, 2.0)]);
        assert!(clipped(&chart(Scale::Linear, vec![(-1.0, 9.0)])).lines.is_empty());
    }

    #[test]
    fn values_stay_inside_and_nothing_is_not_a_number() {
        for scale in [Scale::Linear, Scale::Log] {
            let drawing = draw(&chart(scale, vec![(0.0, 0.0), (1.0, f64::NAN), (2.0, 5.0), (2.5, 7000.0)]));
            assert!(!drawing.contains("NaN") && !drawing.contains("inf"), "{drawing}");
        }
        assert!(draw(&chart(Scale::Log, vec![(0.0, 0.0)])).contains("nothing was measured"));
    }
}
