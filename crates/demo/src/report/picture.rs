//! Main figure: two chapters side by side, on the same axes: without and with levels, without and
//! with batches, or one chapter without and with a limit. As a file it contains its styles and
//! background, so that it can be shown anywhere.

use std::fmt::Write as _;

use super::{figure, overload};
use crate::listing::machine_line;
use crate::names::{BATCHED, PER_PARTITION};
use crate::results::{DemoResults, Subject};
use charts::{Figure, HALF, Panel, SPACE, escaped, file, group};

/// Gives panels with the same index the same axis.
fn same_axes(figures: &mut [Figure]) {
    let panels = figures.iter().map(|figure| figure.panels.len()).min().unwrap_or(0);
    for index in 0..panels {
        let values = |panel: &Panel| -> Vec<f64> {
            let points = panel.lines.iter().flat_map(|line| line.points.iter().map(|point| point.1));
            points.chain(panel.rules.iter().map(|rule| rule.value)).collect()
        };
        let stacked = figures.iter().any(|figure| figure.panels[index].stacked);
        if stacked {
            continue;
        }
        let all: Vec<f64> = figures.iter().flat_map(|figure| values(&figure.panels[index])).collect();
        figures.iter_mut().for_each(|figure| figure.panels[index].spans.clone_from(&all));
    }
}

/// Returns the figures of both chapters with their headings. `None` unless both were measured.
pub(super) fn pair(outcome: &DemoResults) -> Option<[(String, Figure); 2]> {
    if outcome.subject == Subject::Overload {
        let chapter = outcome.chapters.first()?;
        let mut figures = [false, true].map(|is_limited| overload::figure(chapter, &[is_limited]));
        same_axes(&mut figures);
        let [off, on] = figures;
        let title = |how: &str| format!("{}, {how}", chapter.title);
        return Some([(title("limiter off"), off), (title("limiter on"), on)]);
    }
    let found = |id: &str| Some((outcome.chapter(id)?, figure::of(outcome, outcome.chapter(id)?)));
    let [one, two] = match outcome.subject {
        Subject::Batching => [PER_PARTITION, BATCHED],
        _ => ["one_level", "two_levels"],
    };
    let ((one, first), (two, second)) = (found(one)?, found(two)?);
    let mut figures = vec![first, second];
    same_axes(&mut figures);
    let second = figures.pop()?;
    Some([(one.title.clone(), figures.pop()?), (two.title.clone(), second)])
}

/// Returns the picture as an SVG file. `None` unless both chapters were measured.
pub(crate) fn picture(outcome: &DemoResults) -> Option<String> {
    let pair = pair(outcome)?;
    let head = HALF.text * 2.6;
    let mut drawings = String::new();
    let mut height = 0.0f64;
    for (index, (title, figure)) in pair.iter().enumerate() {
        let (drawing, high) = group(figure, &HALF)?;
        let x = SPACE + index as f64 * (HALF.width + SPACE);
        // Writing to a String cannot fail.
        let _ = write!(
            drawings,
            "<g transform=\"translate({x} {head})\">{drawing}</g><text class=\"heading\" x=\"{:.1}\" y=\"{:.1}\" \
             font-size=\"18\">{}</text>",
            x + HALF.text * 4.4,
            HALF.text * 1.8,
            escaped(title)
        );
        height = height.max(high);
    }
    let (width, whole) = (2.0 * HALF.width + 3.0 * SPACE, head + height + HALF.text * 2.0);
    let footer = format!(
        "fairlane {}, {}. {}",
        outcome.version,
        units::minute_text(outcome.started_unix_ms / 1000),
        machine_line(&outcome.machine)
    );
    Some(file(&crate::headline::sentence(outcome), &footer, width, whole, &drawings))
}
