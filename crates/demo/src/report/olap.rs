//! First panels of chapters about queries: throughput, the server's CPU, or latency over latency
//! alone.

use super::notes::notes;
use crate::compare::{OverAlone, cpu_ratio, over_alone, throughputs};
use crate::names::{CAPPED, DASHBOARD, REPORTS, SHORT};
use crate::results::{Chapter, Point, Series, Window};
use charts::numbers::{factor, number, percent};
use charts::{Line, Note, Panel, Rule, Scale};

/// Rates are means of the seconds within this distance, since only a few queries end each second.
const SMOOTH_S: f64 = 1.1;
/// Distance of the points that draw the value of a phase, seconds. A line breaks at larger gaps.
const STEP_S: f64 = 1.0;

/// Returns the first panel of a chapter.
pub(super) fn panel(chapter: &Chapter) -> Panel {
    if SHORT.contains(&chapter.id.as_str()) {
        latency_over_alone(chapter)
    } else if chapter.series.iter().any(|series| series.load == CAPPED) {
        capped(chapter)
    } else {
        throughput(chapter)
    }
}

fn plain(title: &str, lines: Vec<Line>, notes: Vec<Note>, mark: fn(f64) -> String) -> Panel {
    Panel { tall: 1.5, notes, ..Panel::of_lines(title, Scale::Linear, lines, mark) }
}

/// Returns the mean rate around each second.
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

/// Returns the panel of both clients' throughput.
fn throughput(chapter: &Chapter) -> Panel {
    let line = |(class, series): (usize, &Series)| Line {
        name: series.load.clone(),
        class,
        thin: false,
        points: smoothed(series),
    };
    let lines = chapter.series.iter().enumerate().map(line).collect();
    let texts = |window: &Window| {
        let ratio = throughputs(window)?;
        let short = vec![format!("{ratio:.2} : 1 over the phase"), format!("{ratio:.2} : 1")];
        let long = cpu_ratio(window).map(|cpu| format!("{ratio:.2} : 1 over the phase, CPU {cpu:.2} : 1"));
        Some(long.into_iter().chain(short).collect())
    };
    plain("queries answered a second (means of three seconds)", lines, notes(chapter, texts), number)
}

/// Returns the panel of the whole server's CPU.
fn capped(chapter: &Chapter) -> Panel {
    let cores = chapter.windows.iter().map(|window| window.cpu.cores).max().unwrap_or(1).max(1) as f64;
    let points = chapter.cpu.iter().map(|point| (point.at_s, point.process / cores * 100.0)).collect();
    let line = Line { name: "server".to_string(), class: 0, thin: false, points };
    let texts = |window: &Window| {
        let part = percent(window.cpu.server_part());
        Some(vec![format!("mean {part}"), part])
    };
    Panel {
        top: Some(100.0),
        rules: vec![Rule { value: 50.0, label: "cpu_limit = '50%'".to_string() }],
        ..plain("CPU of the whole server, of its cores", vec![line], notes(chapter, texts), |value| {
            format!("{value:.0} %")
        })
    }
}

/// Returns the panel of the latency of short queries over their latency alone, a step for each
/// phase.
fn latency_over_alone(chapter: &Chapter) -> Panel {
    let line = |load: &str, name: &str, of: fn(&OverAlone) -> f64| {
        let steps = chapter.windows.iter().filter_map(|window| {
            let value = of(&over_alone(chapter, window, load)?);
            Some(step(window, value))
        });
        Line {
            name: name.to_string(),
            class: usize::from(load == REPORTS),
            thin: name == "p99",
            points: steps.flatten().collect(),
        }
    };
    let texts = |window: &Window| {
        let over = over_alone(chapter, window, DASHBOARD)?;
        let (p50, p99) = (factor(over.p50), factor(over.p99));
        Some(vec![format!("median ×{p50}, p99 ×{p99}"), format!("×{p50}, ×{p99}"), format!("×{p50}")])
    };
    let lines = [
        line(DASHBOARD, "median", |over| over.p50),
        line(DASHBOARD, "p99", |over| over.p99),
        line(REPORTS, "median of the others", |over| over.p50),
    ];
    let lines = lines.into_iter().filter(|line| !line.points.is_empty()).collect();
    Panel {
        rules: vec![Rule { value: 2.0, label: "twice: half of the server".to_string() }],
        ..plain("latency of short queries over alone", lines, notes(chapter, texts), |value| {
            format!("×{}", number(value))
        })
    }
}

/// Returns points that draw one value for a whole phase.
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
    fn step_reaches_from_end_to_end_without_a_gap() {
        let found = step(&Window { begin_s: 10.0, end_s: 12.5, ..Window::default() }, 2.0);
        assert_eq!((found.first(), found.last()), (Some(&(10.0, 2.0)), Some(&(12.5, 2.0))));
        assert!(found.windows(2).all(|pair| pair[1].0 - pair[0].0 <= STEP_S));
        assert_eq!(step(&Window::default(), 1.0).len(), 2);
    }
}
