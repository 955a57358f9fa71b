//! Figure of the demo of overload: goodput, response times and requests in flight over the offered
//! rate. The horizontal axis is logarithmic, since rates are ratios to capacity.

use crate::compare::{mean_of, parts};
use crate::results::{Chapter, Offered};
use charts::numbers::{rate, round_time, time};
use charts::{Across, Figure, Line, Panel, Rule, Scale};

/// Returns the name of a setting of the limiter.
fn how(is_limited: bool) -> &'static str {
    if is_limited { "on" } else { "off" }
}

/// Returns the place of a rate on the horizontal axis.
fn x(part: f64) -> f64 {
    part.log2()
}

/// Returns the figure of a chapter with these settings of the limiter.
pub(super) fn figure(chapter: &Chapter, limited: &[bool]) -> Figure {
    let parts = parts(chapter);
    let line = |name: &str, is_limited: bool, thin: bool, value: fn(&Offered) -> f64| {
        let at = |part: &f64| Some((x(*part), mean_of(chapter, *part, is_limited, value)?));
        // Off and on have the same class in all panels.
        let class = usize::from(!is_limited);
        Line { name: name.to_string(), class, thin, points: parts.iter().filter_map(at).collect() }
    };
    let lines = |value: fn(&Offered) -> f64| -> Vec<Line> {
        limited.iter().map(|is_limited| line(how(*is_limited), *is_limited, false, value)).collect()
    };
    let times = |p50: bool, value: fn(&Offered) -> f64, median: fn(&Offered) -> f64| -> Vec<Line> {
        let both = limited.iter().flat_map(|is_limited| {
            let name = how(*is_limited);
            let p99 = line(&format!("{name} p99"), *is_limited, false, value);
            let median = p50.then(|| line(&format!("{name} p50"), *is_limited, true, median));
            [Some(p99), median].into_iter().flatten()
        });
        // A logarithmic axis has no zero.
        both.map(|mut line| {
            line.points.retain(|point| point.1 > 0.0);
            line
        })
        .collect()
    };
    let capacity = mean_of(chapter, 1.0, true, |found| found.due_per_s).unwrap_or_default();
    let rule = Rule { value: capacity, label: "capacity".to_string() };
    let panel = |title: &str, scale, tall, lines, rules, mark| Panel {
        tall,
        rules,
        ..Panel::of_lines(title, scale, lines, mark)
    };
    let panels = vec![
        panel(
            "goodput: answers within the time limit, a second",
            Scale::Linear,
            1.3,
            lines(|found| found.goodput_per_s),
            if capacity > 0.0 { vec![rule] } else { Vec::new() },
            rate as fn(f64) -> String,
        ),
        panel(
            "response time of answers",
            Scale::Log,
            1.3,
            times(true, |found| found.latency.p99_us, |found| found.latency.p50_us),
            Vec::new(),
            round_time,
        ),
        panel(
            "p99 of the steady load in the other level",
            Scale::Log,
            0.9,
            times(false, |found| found.steady.p99_us, |_| 0.0),
            Vec::new(),
            round_time,
        ),
        panel(
            "requests in flight",
            Scale::Log,
            0.9,
            lines(|found| found.in_flight.max(0.1)),
            Vec::new(),
            |value| if value < 1.0 { format!("{value:.1}") } else { rate(value) },
        ),
        panel(
            "refused, or not sent after a refusal, a second",
            Scale::Linear,
            0.9,
            lines(|found| found.refused_per_s + found.turned_away_per_s),
            Vec::new(),
            rate,
        ),
    ];
    let tip = |part: &f64| {
        let mut text = format!("offered: {:.0} % of capacity", part * 100.0);
        for is_limited in limited {
            let value = |value: fn(&Offered) -> f64| mean_of(chapter, *part, *is_limited, value);
            if let (Some(goodput), Some(p99_us)) =
                (value(|found| found.goodput_per_s), value(|found| found.latency.p99_us))
            {
                text += &format!(
                    "\nlimiter {}: {}/s in time, p99 {}",
                    how(*is_limited),
                    rate(goodput),
                    time(p99_us)
                );
            }
        }
        (x(*part), text)
    };
    Figure {
        label: format!(
            "{}: goodput, response time and requests in flight over the offered rate",
            chapter.title
        ),
        bands: Vec::new(),
        panels,
        across: Across::Values {
            title: "offered rate, % of capacity (logarithmic)",
            marks: parts.iter().map(|part| (x(*part), format!("{:.0}", part * 100.0))).collect(),
        },
        tips: parts.iter().map(tip).collect(),
    }
}
