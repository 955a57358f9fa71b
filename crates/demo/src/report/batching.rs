//! Panels of chapters about commands in order: throughput, operations in flight, and the table of
//! their phases.

use super::notes::notes;
use crate::names::COMMANDS;
use crate::results::{Batches, Chapter, InFlight, MostUseful, Window};
use charts::numbers::{percent, rate, round_time, time};
use charts::{Line, Note, Panel, Rule, Scale};

/// Returns the panels of a chapter before that of the CPU.
pub(super) fn panels(chapter: &Chapter) -> Vec<Panel> {
    vec![throughput(chapter), latency(chapter), in_flight(chapter)]
}

fn plain(title: &str, lines: Vec<Line>, notes: Vec<Note>, mark: fn(f64) -> String) -> Panel {
    Panel { notes, ..Panel::of_lines(title, Scale::Linear, lines, mark) }
}

/// Returns a line of the commands.
fn line(chapter: &Chapter, name: &str, thin: bool, value: fn(&crate::results::Point) -> f64) -> Line {
    let points = chapter.series.iter().flat_map(|series| &series.points);
    let points = points.map(|point| (point.at_s, value(point))).collect();
    Line { name: name.to_string(), class: 0, thin, points }
}

fn throughput(chapter: &Chapter) -> Panel {
    let requested = chapter.windows.iter().find_map(|window| window.load(COMMANDS)?.asked_per_s);
    let texts = |window: &Window| {
        let done = rate(window.throughput(COMMANDS)?);
        Some(vec![format!("{done}/s"), done])
    };
    let lines = vec![line(chapter, COMMANDS, false, |point| point.rate_per_s)];
    Panel {
        tall: 1.3,
        rules: requested
            .map(|value| Rule { value, label: format!("requested: {}", rate(value)) })
            .into_iter()
            .collect(),
        ..plain("commands done a second", lines, notes(chapter, texts), rate)
    }
}

fn latency(chapter: &Chapter) -> Panel {
    let texts = |window: &Window| {
        let p99 = time(window.latency(COMMANDS)?.p99_us);
        Some(vec![format!("p99 {p99}"), p99])
    };
    let lines = vec![
        line(chapter, "p99", false, |point| point.p99_us),
        line(chapter, "median", true, |point| point.p50_us),
    ];
    let title = "time from when a command is due until it is done";
    Panel { scale: Scale::Log, tall: 1.3, ..plain(title, lines, notes(chapter, texts), round_time) }
}

fn in_flight(chapter: &Chapter) -> Panel {
    let points = |value: fn(&InFlight) -> f64| {
        chapter.in_flight.iter().map(|second| (second.at_s, value(second))).collect()
    };
    let lines = vec![
        Line { name: "mean".to_string(), class: 1, thin: false, points: points(|second| second.mean) },
        Line { name: "most".to_string(), class: 1, thin: true, points: points(|second| second.most) },
    ];
    let texts = |window: &Window| {
        let phase = of(chapter, window)?;
        let done = percent(phase.part());
        Some(vec![format!("I/O sent {done}"), done])
    };
    let rule = |found: MostUseful| Rule { value: found.n, label: found.label() };
    Panel {
        rules: chapter.most_useful.map(rule).into_iter().collect(),
        tall: 1.3,
        ..plain("N: operations in flight; part of I/O that is sent", lines, notes(chapter, texts), rate)
    }
}

/// Returns the operations of a phase.
fn of<'a>(chapter: &'a Chapter, window: &Window) -> Option<&'a Batches> {
    chapter.batches.iter().find(|batches| batches.window == window.id)
}
