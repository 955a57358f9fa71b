//! Drawing of figures.

use std::fmt::Write as _;

use crate::axis::{self, Axis};
use crate::label::width;
use crate::model::{Across, Band, Figure, Layout, Panel, Time, escaped, text};
use crate::numbers::number;
use crate::panel::{self, PanelPlace};

/// Most steps between two marks of the time axis.
const SECONDS_MARKS: f64 = 8.0;

/// Returns a text in lines of at most `width_max`, unless a word is wider.
fn wrapped(text: &str, size: f64, width_max: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if width(&format!("{line} {word}"), size) <= width_max => {
                *line = format!("{line} {word}")
            }
            _ => lines.push(word.to_string()),
        }
    }
    lines
}

/// Returns the figure without points outside of its phases, so that panels share their time axis.
/// Lines without a point and panels without a line are removed.
fn clipped(figure: &Figure, time: &Time) -> Figure {
    let mut figure = figure.clone();
    for panel in &mut figure.panels {
        panel.lines.iter_mut().for_each(|line| line.points.retain(|point| time.contains(point.0)));
        panel.lines.retain(|line| line.points.iter().any(|point| point.1.is_finite()));
    }
    figure.panels.retain(|panel| panel_axis(panel).is_some());
    figure
}

/// Returns the axis over the lines of a panel, or the sums of its areas, and its rules.
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

/// Returns the drawing at the origin, without `<svg>`, and its height. `None` without points.
pub fn group(figure: &Figure, layout: &Layout) -> Option<(String, f64)> {
    let time = Time::of(figure, layout)?;
    let figure = &clipped(figure, &time);
    if figure.panels.is_empty() {
        return None;
    }
    let mut out = String::new();
    let names: Vec<Vec<String>> = figure.bands.iter().map(|band| name_lines(band, &time, layout)).collect();
    let rows = rows(figure, &names, &time, layout);
    let highest = rows.iter().zip(&names).map(|(row, lines)| row + lines.len()).max().unwrap_or(0);
    let head = highest as f64 * layout.text * 1.2 + layout.text * 0.4;
    let height = |panel: &Panel| layout.panel * panel.tall + layout.gap();
    let bottom = head + figure.panels.iter().map(height).sum::<f64>();
    let drawing = Drawing { figure, time: &time, layout, head, bottom };
    bands(&mut out, &drawing, &names, &rows);
    let mut at = head;
    for panel in &figure.panels {
        let Some(axis) = panel_axis(panel) else { continue };
        let top = at + layout.gap();
        let high = layout.panel * panel.tall;
        panel::draw(&mut out, figure, panel, &PanelPlace { axis, time: &time, layout, top, high });
        at += height(panel);
    }
    across(&mut out, &drawing);
    tips(&mut out, &drawing);
    Some((out, bottom + layout.text * 3.4))
}

/// Returns a text in which a number with groups of digits is one word.
fn unbroken(text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    let is_digit = |index: Option<usize>| {
        index.and_then(|index| letters.get(index)).is_some_and(|letter| letter.is_ascii_digit())
    };
    let one = |(index, letter): (usize, &char)| match letter {
        ' ' if is_digit(index.checked_sub(1)) && is_digit(Some(index + 1)) => '\u{a0}',
        letter => *letter,
    };
    letters.iter().enumerate().map(one).collect()
}

/// Returns a phase's name in lines not much wider than the phase.
fn name_lines(band: &Band, time: &Time, layout: &Layout) -> Vec<String> {
    wrapped(&unbroken(&band.label), layout.text, time.x(band.end) - time.x(band.begin) + layout.text * 0.8)
}

/// Returns the row above the panels at which the name of each phase ends: the lowest one at which
/// it does not overlap the names before it.
fn rows(figure: &Figure, names: &[Vec<String>], time: &Time, layout: &Layout) -> Vec<usize> {
    // Middle, half of the width, and rows of the placed names.
    let mut placed: Vec<(f64, f64, std::ops::Range<usize>)> = Vec::new();
    for (band, lines) in figure.bands.iter().zip(names) {
        let middle = f64::midpoint(time.x(band.begin), time.x(band.end));
        let widest = lines.iter().map(|line| width(line, layout.text)).fold(0.0, f64::max);
        let half = (widest + layout.text * 0.6) / 2.0;
        let is_free = |row: usize| {
            placed.iter().all(|(other, other_half, rows)| {
                (middle - other).abs() >= half + other_half
                    || row >= rows.end
                    || row + lines.len() <= rows.start
            })
        };
        let row = (0..).find(|row| is_free(*row)).unwrap_or(0);
        placed.push((middle, half, row..row + lines.len()));
    }
    placed.into_iter().map(|(_, _, rows)| rows.start).collect()
}

/// A figure in the coordinates of its drawing.
struct Drawing<'a> {
    figure: &'a Figure,
    time: &'a Time,
    layout: &'a Layout,
    /// Upper edge of the first panel.
    head: f64,
    /// Lower edge of the last panel.
    bottom: f64,
}

/// Draws the phases, each with the lines of its name above the panels from its row on.
fn bands(out: &mut String, drawing: &Drawing<'_>, names: &[Vec<String>], rows: &[usize]) {
    let Drawing { figure, time, layout, head, bottom } = drawing;
    for (index, ((band, lines), above)) in figure.bands.iter().zip(names).zip(rows).enumerate() {
        let x = time.x(band.begin);
        let width = time.x(band.end) - x;
        // Writing to a String cannot fail.
        let _ = write!(
            out,
            "<rect class=\"band b{}\" x=\"{x:.1}\" y=\"{head:.1}\" width=\"{width:.1}\" height=\"{:.1}\"/>",
            index % 2,
            bottom - head
        );
        for (row, line) in lines.iter().rev().enumerate() {
            let y = head - layout.text * (0.45 + 1.2 * (above + row) as f64);
            text(out, "phase", "middle", x + width / 2.0, y, line);
        }
    }
}

/// Draws the marks of the horizontal axis and its title: those of the figure, or round seconds from
/// its begin.
fn across(out: &mut String, drawing: &Drawing<'_>) {
    let Drawing { figure, time, layout, bottom, .. } = drawing;
    let extent = |label: &str| width(label, layout.text) + layout.text * 0.6;
    let marks = match &figure.across {
        Across::Time => {
            let length = time.end - time.begin;
            let candidates: Vec<Vec<f64>> = axis::steps(length, length / SECONDS_MARKS).collect();
            axis::legible(&candidates, number, |second| time.x(time.begin + second), extent)
        }
        Across::Values { marks, .. } => {
            let shown: Vec<f64> = marks.iter().map(|(at, _)| *at).filter(|at| time.contains(*at)).collect();
            let label = |value: f64| {
                let same = marks.iter().find(|(at, _)| *at == value);
                same.map_or(String::new(), |(_, label)| label.clone())
            };
            axis::legible(&[shown], label, |at| time.x(at), extent)
        }
    };
    for mark in marks {
        text(out, "mark", "middle", mark.at, bottom + layout.text * 1.3, &mark.label);
    }
    let middle = f64::midpoint(layout.left(), layout.right());
    text(out, "across", "middle", middle, bottom + layout.text * 2.7, figure.across.title());
}

/// Draws an invisible column for each second, with the text for the pointer.
fn tips(out: &mut String, drawing: &Drawing<'_>) {
    let Drawing { figure, time, head, bottom, .. } = drawing;
    for (at, words) in figure.tips.iter().filter(|(at, _)| time.contains(*at)) {
        let left = time.x((at - 0.5).max(time.begin));
        let right = time.x((at + 0.5).min(time.end));
        let _ = write!(
            out,
            "<rect class=\"tip\" x=\"{left:.1}\" y=\"{head:.1}\" width=\"{:.1}\" \
             height=\"{:.1}\"><title>{}</title></rect>",
            right - left,
            bottom - head,
            escaped(words)
        );
    }
}

/// Returns the figure as an element of a page, or a sentence if there is nothing to draw.
pub fn draw(figure: &Figure, layout: &Layout) -> String {
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
