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

/// Curves of a chapter over the offered rates, with these settings of the limiter.
struct Curves<'c> {
    chapter: &'c Chapter,
    limited: &'c [bool],
    parts: Vec<f64>,
}

type Quantity = fn(&Offered) -> f64;

impl Curves<'_> {
    fn line(&self, name: &str, is_limited: bool, thin: bool, value: Quantity) -> Line {
        let at = |part: &f64| Some((x(*part), mean_of(self.chapter, *part, is_limited, value)?));
        // Off and on have the same class in all panels.
        let class = usize::from(!is_limited);
        Line { name: name.to_string(), class, thin, points: self.parts.iter().filter_map(at).collect() }
    }

    fn lines(&self, value: Quantity) -> Vec<Line> {
        let limited = self.limited.iter();
        limited.map(|is_limited| self.line(how(*is_limited), *is_limited, false, value)).collect()
    }

    /// Returns lines of the p99, with thin ones of the median if it is given.
    fn times(&self, p99: Quantity, median: Option<Quantity>) -> Vec<Line> {
        let both = self.limited.iter().flat_map(|is_limited| {
            let line = |quantile: &str, thin, value| {
                self.line(&format!("{} {quantile}", how(*is_limited)), *is_limited, thin, value)
            };
            [Some(line("p99", false, p99)), median.map(|median| line("p50", true, median))]
        });
        // A logarithmic axis has no zero.
        both.flatten()
            .map(|mut line| {
                line.points.retain(|point| point.1 > 0.0);
                line
            })
            .collect()
    }

    fn panels(&self) -> Vec<Panel> {
        let capacity = mean_of(self.chapter, 1.0, true, |found| found.due_per_s).unwrap_or_default();
        let rule = Rule { value: capacity, label: "capacity".to_string() };
        let goodput = self.lines(|found| found.goodput_per_s);
        let response = self.times(|found| found.latency.p99_us, Some(|found| found.latency.p50_us));
        let steady = self.times(|found| found.steady.p99_us, None);
        let in_flight = self.lines(|found| found.in_flight.max(0.1));
        let refused = self.lines(|found| found.refused_per_s + found.turned_away_per_s);
        let count: fn(f64) -> String = |value| if value < 1.0 { format!("{value:.1}") } else { rate(value) };
        let panel =
            |tall, title, scale, lines, mark| Panel { tall, ..Panel::of_lines(title, scale, lines, mark) };
        vec![
            Panel {
                rules: if capacity > 0.0 { vec![rule] } else { Vec::new() },
                ..panel(
                    1.3,
                    "goodput: answers within the time limit, a second",
                    Scale::Linear,
                    goodput,
                    rate as fn(f64) -> String,
                )
            },
            panel(1.3, "response time of answers", Scale::Log, response, round_time),
            panel(0.9, "p99 of the steady load in the other level", Scale::Log, steady, round_time),
            panel(0.9, "requests in flight", Scale::Log, in_flight, count),
            panel(0.9, "refused, or not sent after a refusal, a second", Scale::Linear, refused, rate),
        ]
    }

    fn tip(&self, part: f64) -> String {
        let mut text = format!("offered: {:.0} % of capacity", part * 100.0);
        for is_limited in self.limited {
            let value = |value: Quantity| mean_of(self.chapter, part, *is_limited, value);
            let found = value(|found| found.goodput_per_s).zip(value(|found| found.latency.p99_us));
            if let Some((goodput, p99_us)) = found {
                let goodput = rate(goodput);
                text += &format!("\nlimiter {}: {goodput}/s in time, p99 {}", how(*is_limited), time(p99_us));
            }
        }
        text
    }
}

/// Returns the figure of a chapter with these settings of the limiter.
pub(super) fn figure(chapter: &Chapter, limited: &[bool]) -> Figure {
    let curves = Curves { chapter, limited, parts: parts(chapter) };
    let marks = curves.parts.iter().map(|part| (x(*part), format!("{:.0}", part * 100.0)));
    Figure {
        label: format!(
            "{}: goodput, response time and requests in flight over the offered rate",
            chapter.title
        ),
        bands: Vec::new(),
        panels: curves.panels(),
        across: Across::Values { title: "offered rate, % of capacity (logarithmic)", marks: marks.collect() },
        tips: curves.parts.iter().map(|part| (x(*part), curves.tip(*part))).collect(),
    }
}
