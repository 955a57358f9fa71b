//! Plot and page of `fairlane load usl`: throughput and response times over concurrency, with the
//! law, its interval and its regions. The horizontal axis is logarithmic, since each rung doubles
//! the last.

use std::fmt::Write as _;

use crate::Ladder;
use crate::usl::{Rung, Scaling};

use charts::numbers::{rate, round_time, time};
use charts::{Across, Band, Figure, Layout, Line, Panel, Rule, Scale, escaped, group};
use charts::{begin, close_table, end, figure_element, file, notes_element, open_table, row};

/// Layout of the drawing. Its font size is that of the demo's picture.
const LAYOUT: Layout = Layout { width: 960.0, panel: 150.0, text: 14.0 };
/// Space at both sides, above for the heading, and below for the footer.
const AROUND: (f64, f64, f64) = (24.0, 36.0, 28.0);
/// Points of a curve from one power of two to the next.
const FINE: usize = 8;

/// Returns the plot as an SVG file. `None`: fewer than two concurrencies have a valid measurement.
pub(crate) fn draw(ladder: &Ladder) -> Option<String> {
    let (drawing, height) = group(&figure(ladder), &LAYOUT)?;
    let (side, above, below) = AROUND;
    let drawing = format!(
        "<g transform=\"translate({side} {above})\">{drawing}</g>\
         <text class=\"heading\" x=\"{:.1}\" y=\"26\" font-size=\"18\">Throughput over requests in flight</text>",
        side + LAYOUT.text * 4.4
    );
    let footer = format!(
        "fairlane load usl: {}, {} connections, {} threads, {:.0} s a rung, seed {}",
        ladder.conditions.load,
        ladder.conditions.connections,
        ladder.conditions.threads,
        ladder.conditions.seconds,
        ladder.conditions.seed
    );
    let title = "Throughput and response times over requests in flight";
    Some(file(title, &footer, LAYOUT.width + 2.0 * side, above + height + below, &drawing))
}

/// Returns the ladder as a page: the conclusions, the plot, and every rung.
pub(crate) fn page(ladder: &Ladder) -> String {
    let mut out = begin("fairlane load usl");
    let sentences = ladder.scaling.as_ref().map(Scaling::sentences).unwrap_or_default();
    let none = "No law: fewer than four concurrencies have a valid measurement.";
    let (headline, others) =
        sentences.split_last().map_or((none, &[][..]), |(last, others)| (last.as_str(), others));
    // Writing to a String cannot fail.
    let _ = write!(out, "<h1>Requests in flight: {}</h1><ul>", escaped(headline));
    for sentence in others {
        let _ = write!(out, "<li>{}</li>", escaped(sentence.trim_start_matches("! ")));
    }
    let _ = write!(
        out,
        "</ul><dl><dt>Load</dt><dd>{} on {}</dd><dt>Client</dt><dd>{} connections, {} threads</dd><dt>Rungs</dt>\
         <dd>{:.0} s each after {:.0} s of warm-up, in shuffled order, seed {}</dd></dl>",
        escaped(&ladder.conditions.load),
        escaped(&ladder.conditions.hosts.join(", ")),
        ladder.conditions.connections,
        ladder.conditions.threads,
        ladder.conditions.seconds,
        ladder.conditions.warmup_s,
        ladder.conditions.seed
    );
    notes(&mut out, ladder);
    if ladder.concurrencies().iter().filter(|n| tip(ladder, **n).is_some()).count() > 1 {
        out.push_str("<h2>Throughput over requests in flight</h2>");
        let caption = "Points are means over the valid rounds. Thin lines: the law, and its 95 % interval. Both axes \
                       of throughput are logarithmic.";
        figure_element(&mut out, &figure(ladder), caption);
    }
    rungs(&mut out, ladder);
    end(&mut out);
    out
}

/// Writes the measurements that were not fitted with their reasons, and the warnings.
fn notes(out: &mut String, ladder: &Ladder) {
    let reason = |rung: &Rung| {
        let Rung { n, round, invalid, .. } = rung;
        (!invalid.is_empty())
            .then(|| format!("{n} in flight in round {round} is not fitted: {}", invalid.join("; ")))
    };
    let all: Vec<String> =
        ladder.rungs.iter().filter_map(reason).chain(ladder.warnings.iter().cloned()).collect();
    notes_element(out, "Notes", &all);
}

fn rungs(out: &mut String, ladder: &Ladder) {
    out.push_str("<h2>Every concurrency</h2>");
    let columns = [
        "In flight",
        "valid rounds",
        "a connection",
        "answers a second",
        "by the law",
        "R mean",
        "R p50",
        "R p99",
        "S mean",
        "server CPU",
        "load CPU",
    ];
    open_table(out, &columns);
    for n in ladder.concurrencies() {
        let of_n = || ladder.rungs.iter().filter(|rung| rung.n == n);
        let mean = |quantity: fn(&Rung) -> Option<f64>, shown: fn(f64) -> String| {
            ladder.mean(n, quantity).map_or("–".to_string(), shown)
        };
        let cores = |cores: f64| format!("{cores:.2}");
        let law = ladder.scaling.as_ref().map(|scaling| rate(scaling.fitted.law.throughput(n as f64)));
        let cells = [
            format!("{} of {}", of_n().filter(|rung| rung.is_valid()).count(), of_n().count()),
            format!("{:.2}", n as f64 / ladder.conditions.connections.max(1) as f64),
            mean(|rung| Some(rung.throughput_per_s), rate),
            law.unwrap_or_else(|| "–".to_string()),
            mean(|rung| Some(rung.response.mean_us), time),
            mean(|rung| Some(rung.response.p50_us), time),
            mean(|rung| Some(rung.response.p99_us), time),
            mean(|rung| rung.server.service_us, time),
            mean(|rung| rung.server.cores, cores),
            mean(|rung| Some(rung.generator_cpu), cores),
        ];
        row(out, &n.to_string(), &cells);
    }
    close_table(out);
    out.push_str(
        "<p class=\"soft\">R: response time by the client's clock, from when a request was due. S: service time by \
         the server's clock. CPU in cores.</p>",
    );
}

/// Returns the position of a concurrency.
fn x(n: f64) -> f64 {
    n.max(1.0).log2()
}

fn figure(ladder: &Ladder) -> Figure {
    let scaling = ladder.scaling.as_ref();
    let band =
        |(name, begin, end): (&str, f64, f64)| Band { label: name.into(), begin: x(begin), end: x(end) };
    let concurrencies = ladder.concurrencies();
    let mut panels = vec![throughput(ladder, scaling)];
    panels.extend(scaling.map(|scaling| efficiency(ladder, scaling)));
    panels.push(times(ladder));
    Figure {
        label: "throughput and response times over requests in flight".to_string(),
        bands: scaling.map(|scaling| scaling.regions().into_iter().map(band).collect()).unwrap_or_default(),
        panels,
        across: Across::Values {
            title: "N: requests in flight (logarithmic)",
            marks: concurrencies.iter().map(|n| (x(*n as f64), n.to_string())).collect(),
        },
        tips: concurrencies.iter().filter_map(|n| Some((x(*n as f64), tip(ladder, *n)?))).collect(),
    }
}

/// Returns the line of a measured quantity: the mean over the valid rounds of each concurrency.
fn measured(ladder: &Ladder, name: &str, class: usize, quantity: fn(&Rung) -> Option<f64>) -> Line {
    let point = |n: usize| Some((x(n as f64), ladder.mean(n, quantity)?));
    let points = ladder.concurrencies().into_iter().filter_map(point).collect();
    Line { name: name.to_string(), class, thin: false, points }
}

/// Returns the line of a function over the fitted concurrencies.
fn curve(scaling: &Scaling, name: &str, class: usize, value: impl Fn(f64) -> f64) -> Line {
    let from = x(scaling.from_n as f64);
    let to = x(scaling.up_to_n as f64);
    let steps = ((to - from) * FINE as f64).ceil().max(1.0);
    let at = |step: usize| from + (to - from) * step as f64 / steps;
    let points = (0..=steps as usize).map(|step| (at(step), value(at(step).exp2()))).collect();
    Line { name: name.to_string(), class, thin: true, points }
}

fn throughput(ladder: &Ladder, scaling: Option<&Scaling>) -> Panel {
    let mut lines = vec![measured(ladder, "measured", 0, |rung| Some(rung.throughput_per_s))];
    if let Some(scaling) = scaling {
        lines.push(curve(scaling, "law", 1, |n| scaling.fitted.law.throughput(n)));
        let ends = scaling.curve.iter().map(|(n, estimate)| (x(*n as f64), estimate.low, estimate.high));
        let (low, high) = ends.map(|(at, low, high)| ((at, low), (at, high))).unzip();
        for (name, points) in [("95 % low", low), ("95 % high", high)] {
            lines.push(Line { name: name.to_string(), class: 3, thin: true, points });
        }
    }
    Panel::of_lines("X: answers a second", Scale::Log, lines, rate)
}

fn efficiency(ladder: &Ladder, scaling: &Scaling) -> Panel {
    let lambda = scaling.fitted.law.lambda;
    let mut line = measured(ladder, "measured", 0, |rung| Some(rung.throughput_per_s / rung.n as f64));
    line.points.iter_mut().for_each(|point| point.1 /= lambda);
    let law = curve(scaling, "law", 1, |n| scaling.fitted.law.throughput(n) / (lambda * n));
    let mut panel =
        Panel::of_lines("X ÷ λN: part of linear throughput", Scale::Linear, vec![line, law], |value| {
            format!("{value:.1}")
        });
    // After a superlinear start the region has another bound.
    if scaling.superlinear.is_empty() {
        panel.rules = vec![Rule { value: 0.8, label: "linear above 0.8".to_string() }];
    }
    panel
}

fn times(ladder: &Ladder) -> Panel {
    let lines = vec![
        measured(ladder, "R p99", 1, |rung| Some(rung.response.p99_us)),
        measured(ladder, "R mean", 0, |rung| Some(rung.response.mean_us)),
        measured(ladder, "S mean", 2, |rung| rung.server.service_us),
    ];
    Panel::of_lines("R: response time, S: service time", Scale::Log, lines, round_time)
}

/// Returns the text for the pointer at one concurrency. `None`: no valid measurement.
fn tip(ladder: &Ladder, n: usize) -> Option<String> {
    let throughput = ladder.mean(n, |rung| Some(rung.throughput_per_s))?;
    let p99 = ladder.mean(n, |rung| Some(rung.response.p99_us))?;
    Some(format!("{n} in flight: {}/s, R p99 {}", rate(throughput), time(p99)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a ladder of a law, as the JSON of `fairlane load usl`.
    fn ladder(last: u32) -> Ladder {
        let throughput = |n: f64| 3000.0 * n / (1.0 + 0.02 * (n - 1.0) + 1e-4 * n * (n - 1.0));
        let latency = |us: f64| {
            serde_json::json!({"mean_us": us, "p50_us": us, "p95_us": us, "p99_us": us * 2.0, "p999_us": us,
                "p9999_us": us, "max_us": us})
        };
        let rung = |n: f64| {
            serde_json::json!({"round": 1, "n": n as u64, "n_reached": n, "throughput_per_s": throughput(n),
                "response": latency(n / throughput(n) * 1e6), "service_us": 20.0, "server_cores": 1.0,
                "generator_cpu": 0.5, "sent": 1000, "failed": 0, "little": 1.0, "invalid": []})
        };
        let rungs: Vec<_> = (0..=last).map(|exponent| rung(f64::from(1 << exponent))).collect();
        let estimate =
            |value: f64| serde_json::json!({"value": value, "low": value * 0.9, "high": value * 1.1});
        let curve: Vec<_> = (0..=last)
            .map(|exponent| (1 << exponent, estimate(throughput(f64::from(1 << exponent)))))
            .collect();
        let scaling = serde_json::json!({
            "law": {"lambda": 3000.0, "sigma": 0.02, "kappa": 1e-4}, "lambda": estimate(3000.0),
            "sigma": estimate(0.02), "kappa": estimate(1e-4), "from_n": 1, "up_to_n": 1 << last, "superlinear": [],
            "misfits": [], "linear_end": estimate(12.8), "curve": curve,
            "peak": {"n": estimate(99.0), "throughput_per_s": estimate(75_600.0),
                "saturated_from": estimate(62.5), "retrograde_from": estimate(156.5)}
        });
        let ladder = serde_json::json!({"load": "read", "hosts": ["x:1"], "connections": 16, "threads": 1,
            "seconds": 8.0, "warmup_s": 2.0, "seed": 1, "rungs": rungs, "warnings": [],
            "scaling": if last >= 3 { scaling } else { serde_json::Value::Null }});
        serde_json::from_value(ladder).expect("the JSON of a ladder")
    }

    #[test]
    fn plot_shows_law_and_regions() {
        let drawing = draw(&ladder(12)).expect("thirteen rungs");
        let expected = ["linear", "saturated", "retrograde", "R p99", "S mean", ">4096<", ">law<", "75"];
        for words in expected {
            assert!(drawing.contains(words), "{words}: {drawing}");
        }
        assert!(drawing.starts_with("<svg xmlns") && !drawing.contains("NaN") && !drawing.contains("inf"));
    }

    #[test]
    fn page_has_conclusions_plot_and_rungs() {
        let shown = page(&ladder(12));
        for words in
            ["<h1>Requests in flight: Stay at 12 in flight", "linear up to N", "<svg", ">4096<", "1 of 1"]
        {
            assert!(shown.contains(words), "{words}: {shown}");
        }
        assert!(!shown.contains("NaN") && !shown.contains("inf<") && shown.ends_with("</html>\n"));
        let mut few = ladder(2);
        few.rungs[0].invalid = vec!["it was <stopped>".into()];
        let shown = page(&few);
        assert!(shown.contains("No law") && shown.contains("not fitted: it was &lt;stopped&gt;"), "{shown}");
    }

    #[test]
    fn plot_without_a_law_shows_the_measurements() {
        let drawing = draw(&ladder(2)).expect("three rungs");
        assert!(drawing.contains("R p99") && !drawing.contains("saturated") && !drawing.contains(">law<"));
        let mut invalid = ladder(2);
        invalid.rungs.iter_mut().for_each(|rung| rung.invalid = vec!["it was stopped".into()]);
        assert_eq!(draw(&invalid), None);
    }
}
