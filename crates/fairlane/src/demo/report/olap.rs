//! What is drawn of queries beside queries, above the latency and CPU that every chapter has.

use super::super::chart::{Line, Note, Panel, Rule, Scale};
use super::super::compare::olap::{OverAlone, over_alone, server_part, throughputs};
use super::super::figures::{Chapter, Point, Series, Window};
use super::super::olap::is_short;
use super::super::shares::CAPPED;
use super::super::units::{factor, percent};

/// Queries are few a second: a rate is drawn as the mean of the seconds within so many seconds of it.
const SMOOTH_S: f64 = 1.1;
/// Points that a value of a whole phase is drawn with, this many seconds apart: a line breaks where nothing was heard for longer.
const STEP_S: f64 = 1.0;

/// The panel of the chapter's own question.
pub(super) fn panel(chapter: &Chapter) -> Panel {
    if is_short(chapter) {
        longer(chapter)
    } else if chapter.series.iter().any(|series| series.load == CAPPED) {
        capped(chapter)
    } else {
        throughput(chapter)
    }
}

fn plain(title: &str, lines: Vec<Line>, notes: Vec<Note>, mark: fn(f64) -> String) -> Panel {
    Panel {
        title: title.to_string(),
        scale: Scale::Linear,
        tall: 1.5,
        stacked: false,
        top: None,
        spans: Vec::new(),
        lines,
        rules: Vec::new(),
        notes,
        mark,
    }
}

/// A few words in each phase that has something to say.
fn notes(chapter: &Chapter, told: impl Fn(&Window) -> Option<Vec<String>>) -> Vec<Note> {
    let note = |(band, window): (usize, &Window)| Some(Note { band, between: None, texts: told(window)? });
    chapter.windows.iter().enumerate().filter_map(note).collect()
}

/// The mean rate around each second.
fn smoothed(series: &Series) -> Vec<(f64, f64)> {
    let mean = |at: &Point| {
        let near: Vec<f64> = series
            .points
            .iter()
            .filter(|point| (point.at_s - at.at_s).abs() <= SMOOTH_S)
            .map(|point| point.rate_per_s)
            .collect();
        (at.at_s, near.iter().sum::<f64>() / near.len().max(1) as f64)
    };
    series.points.iter().map(mean).collect()
}

/// What both clients get done.
fn throughput(chapter: &Chapter) -> Panel {
    let line = |(class, series): (usize, &Series)| Line {
        name: series.load.clone(),
        class,
        thin: false,
        points: smoothed(series),
    };
    let lines = chapter.series.iter().enumerate().map(line).collect();
    let told = |window: &Window| {
        let ratio = throughputs(window)?;
        Some(vec![format!("{ratio:.2} : 1 over the phase"), format!("{ratio:.2} : 1")])
    };
    plain("queries answered a second (means of three seconds)", lines, notes(chapter, told), short_mark)
}

/// A mark of a low value, without the last digits that sums of tenths have.
fn short_mark(value: f64) -> String {
    format!("{}", (value * 100.0).round() / 100.0)
}

/// The whole server.
fn capped(chapter: &Chapter) -> Panel {
    let cores = chapter.windows.iter().map(|window| window.cpu.cores).max().unwrap_or(1).max(1) as f64;
    let points = chapter.cpu.iter().map(|point| (point.at_s, point.process / cores * 100.0)).collect();
    let line = Line { name: "server".to_string(), class: 0, thin: false, points };
    let told = |window: &Window| {
        let part = percent(server_part(window));
        Some(vec![format!("mean {part}"), part])
    };
    Panel {
        top: Some(100.0),
        rules: vec![Rule { value: 50.0, label: "cpu_limit = '50%'".to_string() }],
        ..plain("CPU of the whole server, of its cores", vec![line], notes(chapter, told), |value| {
            format!("{value:.0} %")
        })
    }
}

/// How much longer short queries take than alone, a step for each phase.
fn longer(chapter: &Chapter) -> Panel {
    let line = |name: &str, thin: bool, of: fn(&OverAlone) -> f64| {
        let steps = chapter.windows.iter().filter_map(|window| {
            let value = of(&over_alone(chapter, window)?);
            Some(step(window, value))
        });
        Line { name: name.to_string(), class: 0, thin, points: steps.flatten().collect() }
    };
    let told = |window: &Window| {
        let over = over_alone(chapter, window)?;
        let (p50, p99) = (factor(over.p50), factor(over.p99));
        Some(vec![format!("median ×{p50}, p99 ×{p99}"), format!("×{p50}, ×{p99}"), format!("×{p50}")])
    };
    let lines = vec![line("median", false, |over| over.p50), line("p99", true, |over| over.p99)];
    Panel {
        rules: vec![Rule { value: 2.0, label: "twice: half of the server".to_string() }],
        ..plain("latency of short queries over alone", lines, notes(chapter, told), |value| {
            format!("×{}", short_mark(value))
        })
    }
}

/// A value that stands for a whole phase.
fn step(window: &Window, value: f64) -> Vec<(f64, f64)> {
    let seconds = (window.end_s - window.begin_s).max(0.0);
    let count = (seconds / STEP_S).ceil().max(1.0);
    (0..=count as usize).map(|n| (window.begin_s + seconds * n as f64 / count, value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_means_of_three_seconds() {
        let point = |at_s: f64, rate_per_s: f64| Point { at_s, rate_per_s, ..Point::default() };
        let points = vec![point(0.5, 3.0), point(1.5, 0.0), point(2.5, 6.0), point(9.5, 1.0)];
        let found = smoothed(&Series { load: "a".into(), points });
        assert_eq!(found, [(0.5, 1.5), (1.5, 3.0), (2.5, 3.0), (9.5, 1.0)]);
    }

    #[test]
    fn a_step_reaches_from_end_to_end_without_a_gap() {
        let found = step(&Window { begin_s: 10.0, end_s: 12.5, ..Window::default() }, 2.0);
        assert_eq!((found.first(), found.last()), (Some(&(10.0, 2.0)), Some(&(12.5, 2.0))));
        assert!(found.windows(2).all(|pair| pair[1].0 - pair[0].0 <= STEP_S));
        assert_eq!(step(&Window::default(), 1.0).len(), 2);
    }
}
