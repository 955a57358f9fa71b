//! Page of `fairlane load sweep`: the conclusions, a table of the runs, and concurrency, response
//! and service times second by second. Runs follow each other on the time axis, with a gap between.

use std::fmt::Write as _;

use crate::Sweep;
use crate::sweep::{SweepRun, SweepSecond};

use charts::numbers::{factor, rate, round_time, time};
use charts::{Across, Band, Figure, Line, Panel, Rule, Scale, escaped};
use charts::{begin, close_table, end, figure_element, notes_element, open_table, row};

/// Time between two runs on the axis, seconds. Lines are broken at such gaps.
const BETWEEN_S: f64 = 4.0;
const DASH: &str = "–";

/// Returns the page.
pub(crate) fn page(sweep: &Sweep) -> String {
    let mut out = begin("fairlane load sweep");
    head(&mut out, sweep);
    doubts(&mut out, sweep);
    out.push_str("<h2>Second by second</h2>");
    let caption = "N: requests in flight. R: response time since a request was due. S: service time by the server's \
                   clock. Shaded: runs, each after a warm-up.";
    figure_element(&mut out, &figure(sweep), caption);
    runs(&mut out, sweep);
    end(&mut out);
    out
}

fn head(out: &mut String, sweep: &Sweep) {
    let sentences = sweep.verdict.sentences();
    let headline = sentences.first().map_or("", |(sentence, _)| sentence.as_str());
    // Writing to a String cannot fail.
    let _ = write!(out, "<h1>Open loop: {}</h1>", escaped(headline));
    out.push_str("<div class=\"wide-table\"><table class=\"compare\"><tbody>");
    for (sentence, met) in &sentences {
        let (class, mark) = match met {
            Some(true) => ("met", "✓ met"),
            Some(false) => ("missed", "✗ not met"),
            None => ("soft", DASH),
        };
        let _ = write!(out, "<tr><td>{}</td><td class=\"{class}\">{mark}</td></tr>", escaped(sentence));
    }
    out.push_str("</tbody></table></div><dl>");
    let rows = [
        ("Load", format!("{} on {}", sweep.conditions.load, sweep.conditions.hosts.join(", "))),
        ("100 %", format!("{}/s ({})", rate(sweep.peak.per_s), sweep.peak.from)),
        (
            "Client",
            format!("{} connections, {} threads", sweep.conditions.connections, sweep.conditions.threads),
        ),
        ("Bound", format!("at most {} in flight", sweep.bound)),
        (
            "Runs",
            format!(
                "{} of {}, {:.0} s each after {:.0} s of warm-up, seed {}",
                sweep.runs.len(),
                sweep.planned,
                sweep.conditions.seconds,
                sweep.conditions.warmup_s,
                sweep.conditions.seed
            ),
        ),
    ];
    for (name, value) in rows {
        let _ = write!(out, "<dt>{name}</dt><dd>{}</dd>", escaped(&value));
    }
    out.push_str("</dl>");
}

/// Writes invalid and unstable runs with their reasons, and the warnings.
fn doubts(out: &mut String, sweep: &Sweep) {
    let reasons = |run: &SweepRun| {
        let (word, reasons) = match run.is_valid() {
            false => ("invalid", &run.invalid),
            true => ("unstable", &run.unstable),
        };
        (!reasons.is_empty()).then(|| format!("{} is {word}: {}", name(run), reasons.join("; ")))
    };
    let all: Vec<String> =
        sweep.runs.iter().filter_map(reasons).chain(sweep.warnings.iter().cloned()).collect();
    notes_element(out, "Notes", &all);
}

/// Returns the name of a run, such as `100 % (2)`. The number is left out if there is no other.
fn name(run: &SweepRun) -> String {
    let part = format!("{:.0} %", run.requested.part * 100.0);
    if run.requested.part < 1.0 { part } else { format!("{part} ({})", run.requested.number) }
}

/// Returns each run that has seconds with the time on the axis at which it begins.
fn placed(sweep: &Sweep) -> Vec<(&SweepRun, f64)> {
    let mut at = 0.0;
    let mut out = Vec::new();
    for run in &sweep.runs {
        if let Some(last) = run.seconds.last() {
            out.push((run, at));
            at += last.at_s + last.seconds + BETWEEN_S;
        }
    }
    out
}

/// Returns a time of a second that has answers.
fn answered(second: &SweepSecond, us: f64) -> Option<f64> {
    (second.answered > 0).then_some(us)
}

fn figure(sweep: &Sweep) -> Figure {
    let placed = placed(sweep);
    let band = |(run, begin): &(&SweepRun, f64)| {
        let length = run.seconds.last().map_or(0.0, |last| last.at_s + last.seconds);
        Band { label: name(run), begin: *begin, end: begin + length }
    };
    let line = |name: &str, class: usize, thin: bool, value: fn(&SweepSecond) -> Option<f64>| {
        let points = |(run, begin): &(&SweepRun, f64)| {
            let begin = *begin;
            let point = move |second: &SweepSecond| {
                Some((begin + second.at_s + second.seconds / 2.0, value(second)?))
            };
            run.seconds.iter().filter_map(point).collect::<Vec<_>>()
        };
        Line { name: name.to_string(), class, thin, points: placed.iter().flat_map(points).collect() }
    };
    let mut in_flight = panel(
        "N: requests in flight, mean and maximum of each second",
        vec![
            line("max", 3, true, |second| Some(second.n_max as f64)),
            line("N", 0, false, |second| Some(second.n)),
        ],
        rate,
    );
    let full = sweep.runs.iter().any(|run| run.in_flight.n_max >= sweep.bound);
    in_flight.rules = full
        .then(|| Rule { value: sweep.bound as f64, label: format!("bound {}", sweep.bound) })
        .into_iter()
        .collect();
    let response = vec![
        line("R p99", 1, true, |second| answered(second, second.response_p99_us)),
        line("R mean", 0, false, |second| answered(second, second.response_us)),
    ];
    let service = vec![line("S mean", 2, false, |second| second.service_us)];
    Figure {
        label: "requests in flight, response and service times over time".to_string(),
        bands: placed.iter().map(band).collect(),
        panels: vec![
            in_flight,
            panel("R: response time", response, round_time),
            panel("S: service time", service, round_time),
        ],
        across: Across::Time,
        tips: placed
            .iter()
            .flat_map(|(run, begin)| run.seconds.iter().map(|s| tip(run, *begin, s)))
            .collect(),
    }
}

fn panel(title: &str, lines: Vec<Line>, mark: fn(f64) -> String) -> Panel {
    Panel::of_lines(title, Scale::Log, lines, mark)
}

fn tip(run: &SweepRun, begin: f64, second: &SweepSecond) -> (f64, String) {
    let service = second.service_us.map_or(String::new(), |us| format!(", S {}", time(us)));
    let text = format!(
        "{}, second {:.0}: N {:.1}, R {}, p99 {}{service}",
        name(run),
        second.at_s,
        second.n,
        time(second.response_us),
        time(second.response_p99_us)
    );
    (begin + second.at_s + second.seconds / 2.0, text)
}

fn runs(out: &mut String, sweep: &Sweep) {
    out.push_str("<h2>Every run</h2>");
    let columns = [
        "Rate",
        "due a second",
        "answered a second",
        "N mean",
        "N 5th to 95th",
        "N max",
        "R mean",
        "R p99",
        "growth of R",
        "S mean",
        "lag p99",
        "result",
    ];
    open_table(out, &columns);
    for run in &sweep.runs {
        let cells = [
            rate(run.requested.rate_per_s),
            rate(run.throughput_per_s),
            format!("{:.1}", run.in_flight.n),
            format!("{:.1} to {:.1}", run.in_flight.n_low, run.in_flight.n_high),
            run.in_flight.n_max.to_string(),
            time(run.response.mean_us),
            time(run.response.p99_us),
            run.growth.map_or(DASH.to_string(), |growth| format!("×{}", factor(growth))),
            run.server.service_us.map_or(DASH.to_string(), time),
            time(run.generator.lag_p99_us),
            run.result().to_string(),
        ];
        row(out, &name(run), &cells);
    }
    close_table(out);
    out.push_str(
        "<p class=\"soft\">Growth: R of the last quarter over that of the first. Lag: the generator's own delay, a \
         part of R.</p>",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a sweep as the JSON of `fairlane load sweep`, with runs of these mean N.
    fn sweep(runs: &[(f64, f64, &[&str])]) -> Sweep {
        let latency = serde_json::json!({"mean_us": 500.0, "p50_us": 400.0, "p95_us": 900.0, "p99_us": 1200.0,
            "p999_us": 2000.0, "p9999_us": 2000.0, "max_us": 2000.0});
        let second = |index: usize, n: f64| {
            serde_json::json!({"at_s": index, "seconds": 1.0, "answered": 1000, "errors": 0, "n": n, "n_max": 4096,
                "response_us": 500.0 + n, "response_p99_us": 1200.0, "service_us": 20.0})
        };
        let run = |(part, n, unstable): &(f64, f64, &[&str])| {
            let seconds: Vec<_> = (0..6).map(|index| second(index, *n)).collect();
            serde_json::json!({"part": part, "number": 1, "rate_per_s": part * 1e5, "throughput_per_s": part * 1e5,
                "n": n, "n_low": n, "n_high": n, "n_max": 4096, "response": latency, "growth": 1.2,
                "service_us": 20.0, "server_cores": 1.0, "generator_lag_p99_us": 60.0, "generator_cpu": 0.5,
                "sent": 1000, "failed": 0, "held_back": 0, "invalid": [], "unstable": unstable, "seconds": seconds})
        };
        let runs: Vec<_> = runs.iter().map(run).collect();
        let verdict = serde_json::json!({"stable": 0, "valid": 1, "service": {"ratio": 1.05, "met": true},
            "response": {"ratio": 2.0, "met": false}});
        let sweep = serde_json::json!({"load": "read over <1000> keys", "hosts": ["x:1"], "connections": 16,
            "threads": 1, "peak_per_s": 1e5, "peak_from": "usl.json", "planned": 7, "seconds": 6.0, "warmup_s": 2.0,
            "bound": 4096, "seed": 1, "runs": runs, "verdict": verdict, "warnings": ["a <note>"]});
        serde_json::from_value(sweep).expect("the JSON of a sweep")
    }

    #[test]
    fn page_has_charts_table_and_conclusions() {
        let page =
            page(&sweep(&[(0.04, 2.0, &[]), (0.4, 20.0, &[]), (1.0, 3000.0, &["N reached the bound"])]));
        let expected = [
            "Open loop: stable in 0 of 1 runs at 100 %",
            "✓ met",
            "✗ not met",
            ">4 %<",
            ">100 % (1)<",
            "100 % (1) is unstable: N reached the bound",
            "bound 4096",
            "R p99",
            "S mean",
            "a &lt;note&gt;",
            "&lt;1000&gt; keys",
        ];
        for words in expected {
            assert!(page.contains(words), "{words}: {page}");
        }
        for refused in ["http:", "https:", "<script", "url(", "src=", "NaN", "inf\"", "<1000>"] {
            assert!(!page.contains(refused), "{refused}: {page}");
        }
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    }

    #[test]
    fn page_of_a_sweep_without_a_run_states_that() {
        let page = page(&sweep(&[]));
        assert!(page.contains("nothing was measured") && page.contains("0 of 7"), "{page}");
    }
}
