//! Parts of a figure, its layout and time axis, and SVG text.

use std::fmt::Write as _;

use super::axis::Scale;

/// Line of a panel: name, class (`s0`, `s1`, …), and points of time and value.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) class: usize,
    /// True for a second line of the same load: thinner, without marks.
    pub(crate) thin: bool,
    pub(crate) points: Vec<(f64, f64)>,
}

/// Value to compare with, drawn across the panel.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) value: f64,
    pub(crate) label: String,
}

/// Period with a name: a phase.
#[derive(Clone, Debug)]
pub(crate) struct Band {
    pub(crate) label: String,
    pub(crate) begin: f64,
    pub(crate) end: f64,
}

/// Text in a phase: the first of `texts` that fits.
#[derive(Clone, Debug)]
pub(crate) struct Note {
    /// Index of the phase.
    pub(crate) band: usize,
    /// Values between which the text stands. `None`: at the upper edge of the panel.
    pub(crate) between: Option<(f64, f64)>,
    pub(crate) texts: Vec<String>,
}

/// Panel of a figure.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    /// Title of the vertical axis: quantity and unit. It stands above the panel.
    pub(crate) title: String,
    pub(crate) scale: Scale,
    /// Height in units of the layout's panel height.
    pub(crate) tall: f64,
    /// True for stacked areas instead of lines.
    pub(crate) stacked: bool,
    /// Least end of the axis.
    pub(crate) top: Option<f64>,
    /// Further values that the axis includes, to be the same as a neighbour's.
    pub(crate) spans: Vec<f64>,
    pub(crate) lines: Vec<Line>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) notes: Vec<Note>,
    /// Times that are ticked at the lower edge.
    pub(crate) moments: Vec<f64>,
    /// Formats a mark of the axis.
    pub(crate) mark: fn(f64) -> String,
}

impl Panel {
    /// Returns a panel of lines, one unit tall and without notes.
    pub(crate) fn of_lines(title: &str, scale: Scale, lines: Vec<Line>, mark: fn(f64) -> String) -> Panel {
        Panel {
            title: title.to_string(),
            scale,
            tall: 1.0,
            stacked: false,
            top: None,
            spans: Vec::new(),
            lines,
            rules: Vec::new(),
            notes: Vec::new(),
            moments: Vec::new(),
            mark,
        }
    }
}

/// Horizontal axis of a figure.
#[derive(Clone, Debug)]
pub(crate) enum Across {
    /// Time since the begin of the figure, seconds.
    Time,
    /// Another quantity: its title with the unit, and the labels at some of its values.
    Values { title: &'static str, marks: Vec<(f64, String)> },
}

impl Across {
    pub(super) fn title(&self) -> &'static str {
        match self {
            Across::Time => "time, seconds",
            Across::Values { title, .. } => title,
        }
    }
}

/// Figure.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    /// Description for screen readers.
    pub(crate) label: String,
    pub(crate) bands: Vec<Band>,
    pub(crate) panels: Vec<Panel>,
    pub(crate) across: Across,
    /// Texts for the pointer, each with the middle of its second.
    pub(crate) tips: Vec<(f64, String)>,
}

/// Sizes of a drawing, in its own units. The page scales it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) width: f64,
    /// Height of a panel, without its title.
    pub(crate) panel: f64,
    /// Font size.
    pub(crate) text: f64,
}

/// Layouts for a page, and for a telephone.
pub(crate) const WIDE: Layout = Layout { width: 960.0, panel: 118.0, text: 13.0 };
pub(crate) const NARROW: Layout = Layout { width: 380.0, panel: 104.0, text: 11.5 };

/// Gap between points, seconds, at which a line is broken.
pub(super) const GAP_S: f64 = 3.0;

impl Layout {
    pub(super) fn left(&self) -> f64 {
        self.text * 4.4
    }

    pub(super) fn right(&self) -> f64 {
        self.width - self.text
    }

    /// Returns the height between two panels.
    pub(super) fn gap(&self) -> f64 {
        self.text * 2.6
    }
}

/// Escapes a text for HTML and SVG.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Time axis.
pub(super) struct Time {
    pub(super) begin: f64,
    pub(super) end: f64,
    left: f64,
    right: f64,
}

impl Time {
    pub(super) fn of(figure: &Figure, layout: &Layout) -> Option<Time> {
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

    pub(super) fn x(&self, at: f64) -> f64 {
        self.left + (at - self.begin) / (self.end - self.begin) * (self.right - self.left)
    }

    pub(super) fn contains(&self, at: f64) -> bool {
        (self.begin..=self.end).contains(&at)
    }
}

/// Writes a text at a point. `anchor` is the end of the text that stands there.
pub(super) fn text(out: &mut String, class: &str, anchor: &str, (x, y): (f64, f64), words: &str) {
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
        escaped(words)
    );
}
