//! Figures as SVG text: panels one below the other that share their time axis, the phases shaded through all
//! of them and named once above. Every line and area carries its name, so no legend is needed. Colours come
//! from the page by class, so one drawing serves light and dark; lines differ in dashes and marks too, so
//! colour is never the only sign.
//!
//! ```text
//!              alone        beside it      alone again      phases
//!   title    ┌─────────────┬─┬────────────┬─┬────────────┐
//!   marks  ──┤ note        │ │ note       │ │ note       │  one panel
//!            └─────────────┴─┴────────────┴─┴────────────┘
//!            0 s          20 s           40 s                time
//! ```

mod axis;
mod label;
mod panel;

use std::fmt::Write as _;

pub(super) use axis::{Axis, Scale};
use label::width;

/// One line of a panel: its name, its class (`s0`, `s1`, …), and its points as time and value.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) class: usize,
    /// A second line of the same load: thinner, without marks.
    pub(super) thin: bool,
    pub(super) points: Vec<(f64, f64)>,
}

/// A value to compare with, drawn across the whole panel.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) value: f64,
    pub(super) label: String,
}

/// A stretch of time with a name.
#[derive(Clone, Debug)]
pub(super) struct Band {
    pub(super) label: String,
    pub(super) begin: f64,
    pub(super) end: f64,
}

/// A few words in a phase; the first of `texts` that fits is taken.
#[derive(Clone, Debug)]
pub(super) struct Note {
    /// The number of the phase.
    pub(super) band: usize,
    /// Between which values it stands; at the upper edge of the panel when there are none.
    pub(super) between: Option<(f64, f64)>,
    pub(super) texts: Vec<String>,
}

/// One panel.
#[derive(Clone, Debug)]
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) scale: Scale,
    /// Its height, over that of the layout.
    pub(super) tall: f64,
    /// Areas one upon the other instead of lines.
    pub(super) stacked: bool,
    /// What the axis reaches at least, or ends at if nothing is higher.
    pub(super) top: Option<f64>,
    /// What the axis holds as well, so that it is that of a neighbour.
    pub(super) spans: Vec<f64>,
    pub(super) lines: Vec<Line>,
    pub(super) rules: Vec<Rule>,
    pub(super) notes: Vec<Note>,
    /// How a mark of the axis is written.
    pub(super) mark: fn(f64) -> String,
}

/// A figure.
#[derive(Clone, Debug)]
pub(super) struct Figure {
    /// What it shows, for those who do not see it.
    pub(super) label: String,
    pub(super) bands: Vec<Band>,
    pub(super) panels: Vec<Panel>,
    /// What is told of each second under the pointer: its middle, and the words.
    pub(super) tips: Vec<(f64, String)>,
}

/// Sizes of a drawing, in its own units; the page scales it to its width.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) width: f64,
    /// Height of the part of a panel that is drawn upon.
    pub(super) panel: f64,
    /// Size of text.
    pub(super) text: f64,
}

/// For a page, and for a telephone.
pub(super) const WIDE: Layout = Layout { width: 960.0, panel: 118.0, text: 13.0 };
pub(super) const NARROW: Layout = Layout { width: 380.0, panel: 104.0, text: 11.5 };

/// A line is broken where nothing was heard for so long, seconds.
const GAP_S: f64 = 3.0;

impl Layout {
    fn left(&self) -> f64 {
        self.text * 4.4
    }

    fn right(&self) -> f64 {
        self.width - self.text
    }

    /// From the upper edge of one panel to that of the next, without what is drawn upon.
    fn gap(&self) -> f64 {
        self.text * 2.6
    }
}

/// Text for HTML and SVG.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A text in lines that are at most so wide, as far as its words allow.
fn wrapped(text: &str, size: f64, room: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if width(&format!("{line} {word}"), size) <= room => *line = format!("{line} {word}"),
            _ => lines.push(word.to_string()),
        }
    }
    lines
}

/// Time, from left to right.
struct Time {
    begin: f64,
    end: f64,
    left: f64,
    right: f64,
}

impl Time {
    fn of(figure: &Figure, layout: &Layout) -> Option<Time> {
        let points = figure.panels.iter().flat_map(|panel| &panel.lines).flat_map(|line| &line.points);
        let bands = figure.bands.iter().flat_map(|band| [band.begin, band.end]);
        let times: Vec<f64> = match figure.bands.is_empty() {
            true => points.map(|point| point.0).collect(),
            false => bands.collect(),
        };
        let begin = times.iter().copied().fold(f64::INFINITY, f64::min);
        let end = times.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        (begin < end).then_some(Time { begin, end, left: layout.left(), right: layout.right() })
    }

    fn x(&self, at: f64) -> f64 {
        self.left + (at - self.begin) / (self.end - self.begin) * (self.right - self.left)
    }

    fn holds(&self, at: f64) -> bool {
        (self.begin..=self.end).contains(&at)
    }
}

/// The figure without what lies outside of its phases, so that panels of the same phases share their time
/// axis; lines without a point are left out, and panels without a line.
fn clipped(figure: &Figure, time: &Time) -> Figure {
    let mut figure = figure.clone();
    for panel in &mut figure.panels {
        panel.lines.iter_mut().for_each(|line| line.points.retain(|point| time.holds(point.0)));
        panel.lines.retain(|line| line.points.iter().any(|point| point.1.is_finite()));
    }
    figure.panels.retain(|panel| panel_axis(panel).is_some());
    figure
}

/// The axis of a panel: its lines or the sums of its areas, and its rules.
fn panel_axis(panel: &Panel) -> Option<Axis> {
    if panel.lines.is_empty() {
        return None;
    }
    let rules = panel.rules.iter().map(|rule| rule.value);
    let sums = panel::sums(&panel.lines);
    let highest = sums.last().map(|top| top.iter().map(|point| point.1).collect()).unwrap_or_default();
    let values: Vec<f64> = match panel.stacked {
        true => highest,
        false => panel.lines.iter().flat_map(|line| line.points.iter().map(|point| point.1)).collect(),
    };
    Axis::of(panel.scale, values.into_iter().chain(rules).chain(panel.spans.iter().copied()), panel.top)
}

/// The drawing at the origin, without `<svg>` around it, and its height; nothing where nothing was measured.
pub(super) fn group(figure: &Figure, layout: &Layout) -> Option<(String, f64)> {
    let time = Time::of(figure, layout)?;
    let figure = &clipped(figure, &time);
    if figure.panels.is_empty() {
        return None;
    }
    let mut out = String::new();
    let names: Vec<Vec<String>> = figure.bands.iter().map(|band| name_lines(band, &time, layout)).collect();
    let head = names.iter().map(Vec::len).max().unwrap_or(0) as f64 * layout.text * 1.2 + layout.text * 0.4;
    let height = |panel: &Panel| layout.panel * panel.tall + layout.gap();
    let bottom = head + figure.panels.iter().map(height).sum::<f64>();
    bands(&mut out, figure, &names, &time, layout, (head, bottom));
    let mut at = head;
    for panel in &figure.panels {
        let Some(axis) = panel_axis(panel) else { continue };
        let (top, high) = (at + layout.gap(), layout.panel * panel.tall);
        panel::draw(&mut out, figure, panel, &panel::Place { axis, time: &time, layout, top, high });
        at += height(panel);
    }
    seconds(&mut out, &time, layout, bottom);
    tips(&mut out, figure, &time, (head, bottom));
    Some((out, bottom + layout.text * 1.9))
}

/// A phase's name in lines no wider than the phase, and half of what lies to its neighbours.
fn name_lines(band: &Band, time: &Time, layout: &Layout) -> Vec<String> {
    wrapped(&band.label, layout.text, time.x(band.end) - time.x(band.begin) + layout.text * 0.8)
}

fn bands(
    out: &mut String,
    figure: &Figure,
    names: &[Vec<String>],
    time: &Time,
    layout: &Layout,
    (head, bottom): (f64, f64),
) {
    for (index, (band, lines)) in figure.bands.iter().zip(names).enumerate() {
        let (x, width) = (time.x(band.begin), time.x(band.end) - time.x(band.begin));
        // Writing to a String cannot fail.
        let _ = write!(
            out,
            "<rect class=\"band b{}\" x=\"{x:.1}\" y=\"{head:.1}\" width=\"{width:.1}\" height=\"{:.1}\"/>",
            index % 2,
            bottom - head
        );
        for (row, line) in lines.iter().rev().enumerate() {
            let y = head - layout.text * (0.45 + 1.2 * row as f64);
            text(out, "phase", "middle", (x + width / 2.0, y), line);
        }
    }
}

/// Text at a point; `anchor` is the end of it that stands there.
fn text(out: &mut String, class: &str, anchor: &str, (x, y): (f64, f64), words: &str) {
    let _ = write!(
        out,
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
        escaped(words)
    );
}

fn seconds(out: &mut String, time: &Time, layout: &Layout, bottom: f64) {
    let length = time.end - time.begin;
    for mark in axis::marks(length).into_iter().filter(|mark| *mark <= length) {
        let at = (time.x(time.begin + mark), bottom + layout.text * 1.3);
        text(out, "mark", "middle", at, &format!("{mark:.0} s"));
    }
}

/// What is told under the pointer: an invisible column for each second.
fn tips(out: &mut String, figure: &Figure, time: &Time, (head, bottom): (f64, f64)) {
    for (at, words) in figure.tips.iter().filter(|(at, _)| time.holds(*at)) {
        let (left, right) = (time.x((at - 0.5).max(time.begin)), time.x((at + 0.5).min(time.end)));
        let _ = write!(
            out,
            "<rect class=\"tip\" x=\"{left:.1}\" y=\"{head:.1}\" width=\"{:.1}\" height=\"{:.1}\"><title>{}</title></rect>",
            right - left,
            bottom - head,
            escaped(words)
        );
    }
}

/// The figure as an element of a page; a sentence instead where there is nothing to draw.
pub(super) fn draw(figure: &Figure, layout: &Layout) -> String {
    let label = escaped(&figure.label);
    match group(figure, layout) {
        None => format!("<p class=\"none\">{label}: nothing was measured.</p>"),
        Some((drawing, height)) => format!(
            "<svg viewBox=\"0 0 {} {height:.0}\" font-size=\"{}\" role=\"img\" aria-label=\"{label}\">{drawing}</svg>",
            layout.width, layout.text
        ),
    }
}

#[cfg(test)]
mod tests;
