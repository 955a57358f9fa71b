//! Parts of a figure, its layout and time axis, and SVG text.

use std::fmt::Write as _;

use crate::axis::Scale;

/// Line of a panel: name, class (`s0`, `s1`, …), and points of time and value.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its name, drawn beside it.
    pub name: String,
    /// Number of its class.
    pub class: usize,
    /// True for a second line of the same load: thinner, without marks.
    pub thin: bool,
    /// Time and value of each.
    pub points: Vec<(f64, f64)>,
}

/// Value to compare with, drawn across the panel.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Place on the vertical axis.
    pub value: f64,
    /// Text on it.
    pub label: String,
}

/// Period with a name: a phase.
#[derive(Clone, Debug)]
pub struct Band {
    /// Its name, above the panels.
    pub label: String,
    /// Its start on the horizontal axis.
    pub begin: f64,
    /// Its end on the horizontal axis.
    pub end: f64,
}

/// Text in a phase: the first of `texts` that fits.
#[derive(Clone, Debug)]
pub struct Note {
    /// Index of the phase.
    pub band: usize,
    /// Values between which the text stands. `None`: at the upper edge of the panel.
    pub between: Option<(f64, f64)>,
    /// From the longest to the shortest.
    pub texts: Vec<String>,
}

/// Panel of a figure.
#[derive(Clone, Debug)]
pub struct Panel {
    /// Title of the vertical axis: quantity and unit. It stands above the panel.
    pub title: String,
    /// Scale of the vertical axis.
    pub scale: Scale,
    /// Height in units of the layout's panel height.
    pub tall: f64,
    /// True for stacked areas instead of lines.
    pub stacked: bool,
    /// Least end of the axis.
    pub top: Option<f64>,
    /// Further values that the axis includes, to be the same as a neighbour's.
    pub spans: Vec<f64>,
    /// Lines or areas, from the bottom up.
    pub lines: Vec<Line>,
    /// Values to compare with.
    pub rules: Vec<Rule>,
    /// Texts in phases.
    pub notes: Vec<Note>,
    /// Times that are ticked at the lower edge.
    pub moments: Vec<f64>,
    /// Formats a mark of the axis.
    pub mark: fn(f64) -> String,
}

impl Panel {
    /// Returns a panel of lines, one unit tall and without notes.
    pub fn of_lines(title: &str, scale: Scale, lines: Vec<Line>, mark: fn(f64) -> String) -> Panel {
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
pub enum Across {
    /// Time since the begin of the figure, seconds.
    Time,
    /// Another quantity: its title with the unit, and the labels at some of its values.
    Values {
        /// Title of the axis.
        title: &'static str,
        /// Values with their labels.
        marks: Vec<(f64, String)>,
    },
}

impl Across {
    pub(crate) fn title(&self) -> &'static str {
        match self {
            Across::Time => "time, seconds",
            Across::Values { title, .. } => title,
        }
    }
}

/// Figure.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Description for screen readers.
    pub label: String,
    /// Phases, shaded.
    pub bands: Vec<Band>,
    /// Panels, from the top down.
    pub panels: Vec<Panel>,
    /// Horizontal axis of all panels.
    pub across: Across,
    /// Texts for the pointer, each with the middle of its second.
    pub tips: Vec<(f64, String)>,
}

/// Sizes of a drawing, in its own units. The page scales it.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Width of the drawing.
    pub width: f64,
    /// Height of a panel, without its title.
    pub panel: f64,
    /// Font size.
    pub text: f64,
}

/// Layout for a page.
pub const WIDE: Layout = Layout { width: 960.0, panel: 118.0, text: 13.0 };
/// Layout for a telephone.
pub const NARROW: Layout = Layout { width: 380.0, panel: 104.0, text: 11.5 };

/// Gap between points, seconds, at which a line is broken.
pub(crate) const GAP_S: f64 = 3.0;

impl Layout {
    pub(crate) fn left(&self) -> f64 {
        self.text * 4.4
    }

    pub(crate) fn right(&self) -> f64 {
        self.width - self.text
    }

    /// Returns the height between two panels.
    pub(crate) fn gap(&self) -> f64 {
        self.text * 2.6
    }
}

/// Escapes a text for HTML and SVG.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Time axis.
pub(crate) struct Time {
    pub(crate) begin: f64,
    pub(crate) end: f64,
    left: f64,
    right: f64,
}

impl Time {
    pub(crate) fn of(figure: &Figure, layout: &Layout) -> Option<Time> {
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

    pub(crate) fn x(&self, at: f64) -> f64 {
        self.left + (at - self.begin) / (self.end - self.begin) * (self.right - self.left)
    }

    pub(crate) fn contains(&self, at: f64) -> bool {
        (self.begin..=self.end).contains(&at)
    }
}

/// Writes a text at a point. `anchor` is the end of the text that stands there.
pub(crate) fn text(out: &mut String, class: &str, anchor: &str, x: f64, y: f64, words: &str) {
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
        escaped(words)
    );
}
