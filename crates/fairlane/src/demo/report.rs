//! The report as one page of HTML: no script, no font, no image from anywhere; light or dark as the reader's
//! system is. Colours are those of Okabe and Ito, told apart by the colour-blind, and every line carries its
//! name.

use std::fmt::Write as _;

use super::chart::{Band, Chart, Line, Scale, draw, escaped};
use super::figures::{Chapter, Outcome, Point};
use super::table::{fullness, loads, percentiles, rate, time};

const STYLE: &str = "
:root { --ground: #ffffff; --ink: #1b1b1b; --soft: #5a5a5a; --rule: #d9d9d9; --band0: #f1f3f5; --band1: #e3e9ee;
  --c0: #0072b2; --c1: #d55e00; --c2: #007a5a; --c3: #a0457d; --good: #007a5a; --bad: #b34700; color-scheme: light dark; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #14171a; --ink: #ececec; --soft: #a5abb0; --rule: #363c41; --band0: #1c2126; --band1: #252c33;
    --c0: #56b4e9; --c1: #e69f00; --c2: #2fc79a; --c3: #e39ac4; --good: #2fc79a; --bad: #e69f00; } }
* { box-sizing: border-box }
body { margin: 0 auto; padding: 2.5rem 1.25rem 4rem; max-width: 1060px; background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .4rem } h2 { font-size: 1.3rem; margin: 2.8rem 0 .3rem }
p { max-width: 46rem } .soft, .none { color: var(--soft) }
svg { display: block; width: 100%; height: auto; margin: .9rem 0; font: 12px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif }
svg text { fill: var(--soft); font-variant-numeric: tabular-nums } svg .title { fill: var(--ink); font-size: 13px; font-weight: 600 }
svg .phase { fill: var(--ink) } .band { stroke: none } .b0 { fill: var(--band0) } .b1 { fill: var(--band1) }
.grid { stroke: var(--rule); stroke-width: 1 } .line { fill: none; stroke-width: 2.2; stroke-linejoin: round; stroke-linecap: round }
.lead { stroke-width: 1; opacity: .45 } svg .name { font-weight: 600; font-size: 13px }
.line.s0, .lead.s0 { stroke: var(--c0) } .line.s1, .lead.s1 { stroke: var(--c1); stroke-dasharray: 7 4 }
.line.s2, .lead.s2 { stroke: var(--c2); stroke-dasharray: 2 4 } .line.s3, .lead.s3 { stroke: var(--c3); stroke-dasharray: 10 3 2 3 }
svg .name.s0 { fill: var(--c0) } svg .name.s1 { fill: var(--c1) } svg .name.s2 { fill: var(--c2) } svg .name.s3 { fill: var(--c3) }
.wide { overflow-x: auto } table { border-collapse: collapse; width: 100%; margin: .8rem 0; font-size: .88rem; font-variant-numeric: tabular-nums }
th, td { text-align: left; padding: .35rem .7rem .35rem 0; border-bottom: 1px solid var(--rule); vertical-align: top }
th { color: var(--soft); font-weight: 600 } .n { text-align: right; white-space: nowrap }
.met { color: var(--good); font-weight: 600; white-space: nowrap } .missed { color: var(--bad); font-weight: 600; white-space: nowrap }
@media print { body { max-width: none } h2 { break-after: avoid } svg, tr { break-inside: avoid } }
";

/// The page.
pub(super) fn page(outcome: &Outcome) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>fairlane demo</title><style>{STYLE}</style></head><body>"
    );
    head(&mut out, outcome);
    for chapter in &outcome.chapters {
        section(&mut out, chapter);
    }
    all_loads(&mut out, outcome);
    full(&mut out, outcome);
    out.push_str("</body></html>\n");
    out
}

fn cores(cores: &[usize]) -> String {
    let list: Vec<String> = cores.iter().map(usize::to_string).collect();
    format!("{} {}", if list.len() == 1 { "core" } else { "cores" }, list.join(", "))
}

fn head(out: &mut String, outcome: &Outcome) {
    let machine = &outcome.machine;
    let _ = write!(
        out,
        "<h1>Two loads, one server</h1><p>What an interactive load feels when an unlimited batch load joins it on the same server, \
         without and with service levels; and how exactly CPU follows shares.</p>\
         <p class=\"soft\">fairlane {}, {}{}. {}, Linux {}. Server on {}, loads on {}.</p>",
        outcome.version,
        if outcome.quick {
            "quick form: phases of a few seconds, so figures are coarse"
        } else {
            "full form"
        },
        if outcome.shape == "published" { ", published shape" } else { "" },
        escaped(&machine.model),
        escaped(&machine.kernel),
        cores(&machine.server_cores),
        cores(&machine.load_cores)
    );
    if !outcome.notes.is_empty() {
        out.push_str("<h2>Before believing it</h2><ul>");
        for note in &outcome.notes {
            let _ = write!(out, "<li>{}</li>", escaped(note));
        }
        out.push_str("</ul>");
    }
    out.push_str(
        "<h2>Beside what others have published</h2><div class=\"wide\"><table><tr><th>What</th><th>Published</th>\
         <th>Goal</th><th>Here</th><th></th></tr>",
    );
    for row in &outcome.comparison {
        let met = match row.met {
            Some(true) => "<td class=\"met\">✓ met</td>",
            Some(false) => "<td class=\"missed\">✗ not met</td>",
            None => "<td></td>",
        };
        let _ = write!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td>{met}</tr>",
            escaped(&row.what),
            row.published,
            row.goal,
            escaped(&row.ours)
        );
    }
    out.push_str(
        "</table></div><p class=\"soft\">Published figures come from other systems on other machines; only ratios are comparable. \
         Each ratio here is taken within one run.</p>",
    );
}

fn lines(chapter: &Chapter, value: fn(&Point) -> f64) -> Vec<Line> {
    let line = |(class, series): (usize, &super::figures::Series)| Line {
        name: series.load.clone(),
        class,
        points: series.points.iter().map(|point| (point.at_s, value(point))).collect(),
    };
    chapter.series.iter().enumerate().map(line).collect()
}

/// CPU of the levels the chapter's loads are in, as percentages of one core.
fn cpu_lines(chapter: &Chapter) -> Vec<Line> {
    let line = |(class, series): (usize, &super::figures::Series)| {
        let used = |point: &super::figures::CpuPoint| {
            point.levels.get(&series.load).map(|used| (point.at_s, used * 100.0))
        };
        Line { name: series.load.clone(), class, points: chapter.cpu.iter().filter_map(used).collect() }
    };
    let drawn = chapter.series.iter().enumerate().map(line);
    drawn.filter(|line| !line.points.is_empty()).collect()
}

fn section(out: &mut String, chapter: &Chapter) {
    let _ = write!(
        out,
        "<h2 id=\"{}\">{}</h2><p>{}</p>",
        chapter.id,
        escaped(&chapter.title),
        escaped(&chapter.what)
    );
    let band = |window: &super::figures::Window| Band {
        label: window.label.clone(),
        begin: window.begin_s,
        end: window.end_s,
    };
    let bands: Vec<Band> = chapter.windows.iter().map(band).collect();
    let mut chart = |title: &str, scale: Scale, lines: Vec<Line>, value: fn(f64) -> String| {
        let chart = Chart { title: title.to_string(), scale, lines, bands: bands.clone(), value };
        out.push_str(&draw(&chart));
    };
    chart("Throughput, requests a second", Scale::Linear, lines(chapter, |point| point.rate_per_s), rate);
    let latency = "Latency, 99th percentile of each second (logarithmic)";
    chart(latency, Scale::Log, lines(chapter, |point| point.p99_us), time);
    let cpu = cpu_lines(chapter);
    if !cpu.is_empty() {
        let title = "CPU by service level, both lanes, % of one core";
        chart(title, Scale::Linear, cpu, |value| format!("{value:.0} %"));
    }
}

fn all_loads(out: &mut String, outcome: &Outcome) {
    out.push_str("<h2>Every load</h2><div class=\"wide\"><table><tr><th>Phase</th><th>Load</th><th class=\"n\">per second</th>");
    for (name, _) in percentiles(&load::Latency::default()) {
        let _ = write!(out, "<th class=\"n\">{name}</th>");
    }
    out.push_str("</tr>");
    for (part, name, per_s, latency) in loads(outcome) {
        let _ = write!(
            out,
            "<tr><td>{}</td><td>{}</td><td class=\"n\">{}</td>",
            escaped(&part),
            escaped(&name),
            rate(per_s)
        );
        for (_, us) in percentiles(&latency) {
            let _ = write!(out, "<td class=\"n\">{}</td>", time(us));
        }
        out.push_str("</tr>");
    }
    out.push_str(
        "</table></div><p class=\"soft\">Open loops (interactive, throttled) count latency from the moment a request was due, so a \
         server that stalls is charged for everything that should have been sent meanwhile. In closed loops latency is requests in \
         flight over throughput. Where phases follow one another within one run of a load, its latency is given for all of them.</p>",
    );
}

fn full(out: &mut String, outcome: &Outcome) {
    out.push_str(
        "<h2>Was the server full?</h2><p>Its process as the system counts, and its cores by whomever they were used. When the cores are \
         much fuller than the process, other programs took part of them.</p><div class=\"wide\"><table><tr><th>Phase</th>\
         <th class=\"n\">server process</th><th class=\"n\">its cores</th></tr>",
    );
    for (part, process, busy) in fullness(outcome) {
        let _ = write!(
            out,
            "<tr><td>{}</td><td class=\"n\">{:.1} %</td><td class=\"n\">{:.1} %</td></tr>",
            escaped(&part),
            process * 100.0,
            busy * 100.0
        );
    }
    out.push_str("</table></div>");
}

#[cfg(test)]
mod tests {
    use super::super::figures::{Series, Window};
    use super::super::table::Row;
    use super::*;

    #[test]
    fn a_page_holds_everything_and_fetches_nothing() {
        let point =
            |at_s: f64| Point { at_s, seconds: 1.0, rate_per_s: 100.0 * at_s, p50_us: 90.0, p99_us: 400.0 };
        let series =
            Series { load: "inter<active".into(), points: (1..6).map(|n| point(n as f64)).collect() };
        let window =
            Window { id: "before", label: "alone".into(), begin_s: 0.0, end_s: 6.0, ..Window::default() };
        let chapter = Chapter {
            id: "one_level",
            title: "T & T".into(),
            windows: vec![window],
            series: vec![series],
            ..Chapter::default()
        };
        let row = Row { what: "what".into(), ours: "×1 < ×2".into(), met: Some(true), ..Row::default() };
        let outcome = Outcome {
            chapters: vec![chapter],
            comparison: vec![row],
            notes: vec!["a <note>".into()],
            ..Outcome::default()
        };
        let page = page(&outcome);
        for expected in ["T &amp; T", "inter&lt;active", "×1 &lt; ×2", "a &lt;note&gt;", "✓ met", ">alone<"]
        {
            assert!(page.contains(expected), "{expected}");
        }
        assert_eq!(page.matches("<svg").count(), 2, "no CPU was measured, so it is not drawn");
        for refused in ["http:", "https:", "<script", "url(", "@import", "NaN", "src="] {
            assert!(!page.contains(refused), "{refused}");
        }
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    }
}
