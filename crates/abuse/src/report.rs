//! The results of a run: a line while it goes, a table in Markdown, and a page with a chart.

use std::fmt::Write as _;

use crate::attack::Attack;
use crate::verdict::{Outcome, Times};

/// The results of one attack.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) attack: &'static Attack,
    pub(crate) outcome: Outcome,
    /// Nothing in the short form.
    pub(crate) times: Option<Times>,
    /// Why the server failed; none when it withstood the attack.
    pub(crate) reasons: Vec<String>,
}

/// The first column is as wide as the longest name, characters.
const NAME_WIDTH: usize = 24;

impl Row {
    fn verdict(&self) -> &'static str {
        if self.reasons.is_empty() { "withstood" } else { "FAILED" }
    }
}

/// One line for the terminal.
pub(crate) fn line(row: &Row) -> String {
    let name = row.attack.name;
    let mib = row.outcome.resident >> 20;
    let answers = row.outcome.answers.summary();
    let mut line = format!("  {name:NAME_WIDTH$} {:9} {mib:>5} MiB  answers: {answers}", row.verdict());
    for reason in &row.reasons {
        let _ = write!(line, "\n  {:NAME_WIDTH$}   {reason}", "");
    }
    line
}

/// `p50 / p99 / max` in milliseconds.
fn times(readings: &crate::probe::Readings) -> String {
    if readings.reads() == 0 {
        return "–".to_owned();
    }
    let (p50, p99) = (readings.quantile_ms(0.5), readings.quantile_ms(0.99));
    format!("{p50:.2} / {p99:.2} / {:.1}", readings.max_ms())
}

/// The cells of a row, as text.
fn cells(row: &Row) -> [String; 11] {
    let times_of = |pick: fn(&Times) -> String| row.times.as_ref().map_or_else(|| "–".to_owned(), pick);
    [
        row.attack.name.to_owned(),
        format!("{}, {}: {}", row.attack.listener.name(), row.attack.needs.needs(), row.attack.sends),
        row.verdict().to_owned(),
        times_of(|t| times(&t.other.alone)),
        times_of(|t| times(&t.other.beside)),
        times_of(|t| times(&t.same.alone)),
        times_of(|t| times(&t.same.beside)),
        times_of(|t| {
            let visit = |(way, visits): &(&str, crate::admin::Visits)| format!("{way} {:.0}", visits.max_ms);
            t.visits.iter().map(visit).collect::<Vec<_>>().join(", ")
        }),
        (row.outcome.resident >> 20).to_string(),
        row.outcome.answers.summary(),
        row.reasons.join("; "),
    ]
}

const HEADS: [&str; 11] = [
    "attack",
    "client and traffic",
    "verdict",
    "other level alone, ms",
    "other level beside, ms",
    "same level alone, ms",
    "same level beside, ms",
    "administrator at most, ms",
    "memory, MiB",
    "answers",
    "reasons",
];

/// The table. Times are p50 / p99 / longest.
pub(crate) fn markdown(rows: &[Row]) -> String {
    let line = |cells: &[String]| {
        let safe: Vec<String> =
            cells.iter().map(|cell| cell.replace('|', "\\|").replace('\n', " ")).collect();
        format!("| {} |\n", safe.join(" | "))
    };
    let mut text = line(&HEADS.map(str::to_owned));
    text.push_str(&format!("|{}\n", "---|".repeat(HEADS.len())));
    rows.iter().for_each(|row| text.push_str(&line(&cells(row))));
    text
}

/// Text for HTML and SVG.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The page: chart and table, readable in light and dark.
pub(crate) fn page(rows: &[Row]) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Attacks</title>\n<style>{STYLE}</style></head><body>\n<h1>Attacks on a server with two cores</h1>\n"
    );
    let failed = rows.iter().filter(|row| !row.reasons.is_empty()).count();
    let _ = writeln!(
        page,
        "<p>{} attacks, {failed} of them succeeded. Times of reads: p50 / p99 / longest.</p>",
        rows.len()
    );
    page.push_str(&chart(rows));
    page.push_str("<div class=\"scroll\"><table><tr>");
    HEADS.iter().for_each(|head| page.push_str(&format!("<th>{head}</th>")));
    page.push_str("</tr>\n");
    for row in rows {
        let class = if row.reasons.is_empty() { "good" } else { "bad" };
        let _ = write!(page, "<tr class=\"{class}\">");
        cells(row).iter().for_each(|cell| page.push_str(&format!("<td>{}</td>", escaped(cell))));
        page.push_str("</tr>\n");
    }
    page.push_str("</table></div></body></html>\n");
    page
}

const STYLE: &str = ":root{color-scheme:light dark;--ink:#1b1b1b;--ground:#fff;--bad:#b3261e;--good:#1b6e3c;--rule:#bbb}\
@media(prefers-color-scheme:dark){:root{--ink:#eee;--ground:#141414;--bad:#ff8a80;--good:#7bd99b;--rule:#555}}\
body{font:14px/1.4 system-ui,sans-serif;color:var(--ink);background:var(--ground);margin:1.5em}\
.scroll{overflow-x:auto}table{border-collapse:collapse}td,th{border:1px solid var(--rule);padding:.2em .5em;\
text-align:left;vertical-align:top}.bad td:nth-child(3){color:var(--bad)}.good td:nth-child(3){color:var(--good)}\
svg{max-width:100%;height:auto}svg text{fill:var(--ink);font-size:12px}line{stroke:var(--rule)}\
.other{stroke:var(--good);stroke-width:3}.same{stroke:var(--bad);stroke-width:3}\
.alone{fill:none;stroke:var(--ink)}.limit{stroke-dasharray:4 3}";

/// Units of the chart: where its bars begin and end, the height of one attack, the space above.
const LEFT: f64 = 190.0;
const RIGHT: f64 = 920.0;
const STEP: f64 = 22.0;
const TOP: f64 = 40.0;
/// The axis in milliseconds, logarithmic.
const FROM_MS: f64 = 0.01;
const TO_MS: f64 = 100_000.0;

fn x(ms: f64) -> f64 {
    let part = (ms.clamp(FROM_MS, TO_MS) / FROM_MS).log10() / (TO_MS / FROM_MS).log10();
    LEFT + part * (RIGHT - LEFT)
}

/// Bars from the median to the longest read beside each attack; the circle is the p99 alone.
fn chart(rows: &[Row]) -> String {
    let timed: Vec<(&Row, &Times)> = rows.iter().filter_map(|row| Some((row, row.times.as_ref()?))).collect();
    if timed.is_empty() {
        return String::new();
    }
    let height = TOP + STEP * timed.len() as f64 + 10.0;
    let mut svg = format!(
        "<svg viewBox=\"0 0 940 {height:.0}\" role=\"img\" aria-label=\"Times of reads beside each attack\">\n\
         <text x=\"0\" y=\"14\">Reads beside each attack, from the median to the longest: upper bar, other level; lower bar, same level; circle, p99 alone</text>\n"
    );
    for (ms, name) in
        [(0.1, "0.1"), (1.0, "1"), (20.0, "20 ms"), (50.0, "50"), (1_000.0, "1 s"), (10_000.0, "10 s")]
    {
        let class = if ms == 20.0 || ms == 50.0 { " class=\"limit\"" } else { "" };
        let at = x(ms);
        let _ = writeln!(
            svg,
            "<line{class} x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{height:.0}\"/><text x=\"{at:.1}\" y=\"34\" text-anchor=\"middle\">{name}</text>"
        );
    }
    for (index, (row, times)) in timed.iter().enumerate() {
        let y = TOP + STEP * index as f64 + STEP / 2.0;
        let _ = writeln!(svg, "<text x=\"0\" y=\"{:.1}\">{}</text>", y + 4.0, escaped(row.attack.name));
        for (class, pair, shift) in [("other", &times.other, -3.0), ("same", &times.same, 3.0)] {
            let (from, to) = (x(pair.beside.quantile_ms(0.5)), x(pair.beside.max_ms()));
            let (y, to) = (y + shift, to.max(from + 1.0));
            let _ = writeln!(
                svg,
                "<line class=\"{class}\" x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <circle class=\"alone\" cx=\"{:.1}\" cy=\"{y:.1}\" r=\"2.5\"/>",
                x(pair.alone.quantile_ms(0.99))
            );
        }
    }
    svg.push_str("</svg>\n");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::Readings;
    use crate::table::ATTACKS;
    use crate::verdict::Pair;

    fn row() -> Row {
        let pair = Pair { alone: Readings::of_ms(&[1]), beside: Readings::of_ms(&[2, 30]) };
        let times = Times { other: pair.clone(), same: pair, visits: Vec::new() };
        let reasons = vec!["a | b <c>".to_owned()];
        Row { attack: &ATTACKS[0], outcome: Outcome::default(), times: Some(times), reasons }
    }

    #[test]
    fn table_and_page_hold_every_attack_and_reason() {
        let rows = [row(), row()];
        let table = markdown(&rows);
        assert_eq!(table.lines().count(), 4);
        assert!(table.contains("a \\| b <c>"), "{table}");
        let page = page(&rows);
        assert!(page.contains("a | b &lt;c&gt;"));
        assert_eq!(page.matches("class=\"other\"").count(), 2);
        assert!(!page.contains("NaN"));
    }

    #[test]
    fn axis_keeps_the_order_of_times() {
        assert!(x(0.0) == LEFT && x(1.0) < x(20.0) && x(1e9) == RIGHT);
    }
}
