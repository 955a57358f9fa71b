//! Reports of a run: a line during it, a table in Markdown, and a page with a chart.

use std::fmt::Write as _;
use std::path::Path;

use crate::results::{AttackResults, Load, Phases, Reads, Results, Timing};

/// Width of the first column: the longest name, characters.
const NAME_WIDTH: usize = 24;

/// Formats an entry for the terminal: one line, and one for each reason.
pub(crate) fn line(entry: &AttackResults) -> String {
    let AttackResults { name, answers, resident_mib, .. } = entry;
    let mut line =
        format!("  {name:NAME_WIDTH$} {:9} {resident_mib:>5} MiB  answers: {answers}", entry.verdict());
    for (mark, reason) in all_reasons(entry) {
        let _ = write!(line, "\n  {:NAME_WIDTH$}   {mark}{reason}", "");
    }
    line
}

/// Returns the reasons of a failure, and unclear ones with a mark.
fn all_reasons(entry: &AttackResults) -> impl Iterator<Item = (&'static str, &String)> {
    entry
        .reasons
        .iter()
        .map(|reason| ("", reason))
        .chain(entry.unclear.iter().map(|what| ("unclear: ", what)))
}

/// Formats reads as `p50 / p99 / longest`, milliseconds.
fn times(reads: &Reads) -> String {
    if reads.reads == 0 {
        return "–".to_owned();
    }
    format!("{:.2} / {:.2} / {:.1}", reads.p50_ms, reads.p99_ms, reads.max_ms)
}

/// Formats reads as `p99 / longest` without delays of the tool, milliseconds.
fn net(reads: &Reads) -> String {
    format!("{:.2} / {:.1}", reads.net_p99_ms, reads.net_max_ms)
}

const HEADS: [&str; 16] = [
    "attack",
    "client and traffic",
    "verdict",
    "other level before, ms",
    "other level beside, ms",
    "the same, net",
    "other level after, ms",
    "same level before, ms",
    "same level beside, ms",
    "the same, net",
    "administrator at most, ms",
    "tool's wake-ups late, ms",
    "CPU of server / attacker / probes / others / host, s",
    "memory, MiB",
    "answers",
    "reasons",
];

/// Returns the cells of a row, as text.
fn cells(entry: &AttackResults) -> Vec<String> {
    let timed = |pick: fn(&Timing) -> String| entry.timing.as_ref().map_or_else(|| "–".to_owned(), pick);
    let reasons: Vec<String> = all_reasons(entry).map(|(mark, reason)| format!("{mark}{reason}")).collect();
    vec![
        entry.name.clone(),
        format!("{}, {}: {}", entry.listener, entry.needs, entry.sends),
        entry.verdict().to_owned(),
        timed(|t| times(&t.other.before)),
        timed(|t| times(&t.other.beside)),
        timed(|t| net(&t.other.beside)),
        timed(|t| times(&t.other.after)),
        timed(|t| times(&t.same.before)),
        timed(|t| times(&t.same.beside)),
        timed(|t| net(&t.same.beside)),
        timed(|t| admin(&t.admin_ms)),
        timed(|t| format!("{:.2} / {:.1}", t.late_p99_ms, t.late_max_ms)),
        timed(|t| {
            let cpu = &t.cpu_beside;
            let parts = [cpu.server_s, cpu.attacker_s, cpu.tool_s, cpu.others_s, cpu.stolen_s];
            let parts = parts.map(|seconds| format!("{seconds:.1}")).join(" / ");
            format!("{parts} in {:.1}", cpu.wall_s)
        }),
        entry.resident_mib.to_string(),
        entry.answers.clone(),
        reasons.join("; "),
    ]
}

fn admin(ways: &[(String, f64)]) -> String {
    ways.iter().map(|(way, ms)| format!("{way} {ms:.0}")).collect::<Vec<_>>().join(", ")
}

const LOAD_HEADS: [&str; 11] = [
    "load",
    "seconds",
    "sent a second",
    "goodput a second",
    "of the best, %",
    "overloaded",
    "other errors",
    "lost",
    "generator's core, %",
    "administrator at most, ms",
    "reasons",
];

fn load_cells(load: &Load) -> Vec<String> {
    vec![
        load.name.clone(),
        format!("{:.0}", load.seconds),
        format!("{:.0}", load.sent_per_s),
        format!("{:.0}", load.goodput_per_s),
        format!("{:.1}", load.of_best * 100.0),
        load.overloaded.to_string(),
        load.other_errors.to_string(),
        load.lost.to_string(),
        format!("{:.0}", load.generator_cpu * 100.0),
        admin(&load.admin_ms),
        load.reasons.iter().chain(&load.unclear).cloned().collect::<Vec<_>>().join("; "),
    ]
}

/// A table: heads, and rows, each with its CSS class.
struct ReportTable(Vec<&'static str>, Vec<(&'static str, Vec<String>)>);

/// Returns the tables that have results.
fn tables(results: &Results) -> Vec<ReportTable> {
    let class = |verdict: &str| match verdict {
        "withstood" => "good",
        "unclear" => "unclear",
        _ => "bad",
    };
    let attacks = results.entries.iter().map(|entry| (class(entry.verdict()), cells(entry))).collect();
    let judged = |load: &Load| match (load.reasons.is_empty(), load.unclear.is_empty()) {
        (false, _) => "bad",
        (true, false) => "unclear",
        (true, true) => "good",
    };
    let loads = results.loads.iter().map(|load| (judged(load), load_cells(load))).collect();
    let all = [ReportTable(HEADS.to_vec(), attacks), ReportTable(LOAD_HEADS.to_vec(), loads)];
    all.into_iter().filter(|table| !table.1.is_empty()).collect()
}

/// Returns date, commit and command.
fn origin(results: &Results) -> String {
    let Results { date, commit, command, cores, .. } = results;
    format!("{date}, commit {commit}, {cores} cores: `{command}`")
}

/// Formats the tables as Markdown. Times are p50 / p99 / longest, net times p99 / longest.
pub(crate) fn markdown(results: &Results) -> String {
    let line = |cells: &[String]| {
        let safe: Vec<String> =
            cells.iter().map(|cell| cell.replace('|', "\\|").replace('\n', " ")).collect();
        format!("| {} |\n", safe.join(" | "))
    };
    let mut text = format!("{}\n", origin(results));
    for ReportTable(heads, rows) in tables(results) {
        text += "\n";
        text += &line(&heads.iter().map(|head| (*head).to_owned()).collect::<Vec<_>>());
        text += &format!("|{}\n", "---|".repeat(heads.len()));
        rows.iter().for_each(|(_, cells)| text += &line(cells));
    }
    text
}

/// Writes the page, and the table as Markdown beside it.
pub(crate) fn write(results: &Results, page: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{} cannot be written: {error}", page.display());
    std::fs::write(page, self::page(results)).map_err(failed)?;
    std::fs::write(page.with_extension("md"), markdown(results)).map_err(failed)
}

/// Escapes text for HTML and SVG.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Returns the page with chart and tables, readable in light and dark.
pub(crate) fn page(results: &Results) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Attacks</title>\n\
         <style>{STYLE}</style></head><body>\n<h1>Attacks on a server with two cores</h1>\n<p>{}</p>\n",
        escaped(&origin(results))
    );
    page.push_str(NOTE);
    page.push_str(&chart(&results.entries));
    for ReportTable(heads, rows) in tables(results) {
        page.push_str("<div class=\"scroll\"><table><tr>");
        heads.iter().for_each(|head| page.push_str(&format!("<th>{head}</th>")));
        page.push_str("</tr>\n");
        for (class, cells) in rows {
            let _ = write!(page, "<tr class=\"{class}\">");
            cells.iter().for_each(|cell| page.push_str(&format!("<td>{}</td>", escaped(cell))));
            page.push_str("</tr>\n");
        }
        page.push_str("</table></div>\n");
    }
    page.push_str("</body></html>\n");
    page
}

/// Explanation of the results.
const NOTE: &str = "<p>Times of reads: p50 / p99 / longest, from the time each was due. Net: p99 / longest \
without the times in which a thread of the tool waited for a core, which it shares with the server. The server's part \
is between the two. An attack is unclear if only delays of the tool explain a missed bound, or if other programs and \
the host took more than 5 % of the machine.</p>\n";

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1b1b1b;--ground:#fff;--bad:#b3261e;--good:#1b6e3c;--rule:#bbb}\
@media(prefers-color-scheme:dark){:root{--ink:#eee;--ground:#141414;--bad:#ff8a80;--good:#7bd99b;--rule:#555}}\
body{font:14px/1.4 system-ui,sans-serif;color:var(--ink);background:var(--ground);margin:1.5em}\
.scroll{overflow-x:auto}table{border-collapse:collapse}td,th{border:1px solid var(--rule);padding:.2em .5em;\
text-align:left;vertical-align:top}.bad td:nth-child(3){color:var(--bad)}.good td:nth-child(3){color:var(--good)}\
.net{fill:var(--ink)}\
svg{max-width:100%;height:auto}svg text{fill:var(--ink);font-size:12px}line{stroke:var(--rule)}\
.other{stroke:var(--good);stroke-width:3}.same{stroke:var(--bad);stroke-width:3}\
.alone{fill:none;stroke:var(--ink)}.limit{stroke-dasharray:4 3}";

/// Layout of the chart: begin and end of its bars, height of one attack, space above.
const LEFT: f64 = 190.0;
const RIGHT: f64 = 920.0;
const STEP: f64 = 22.0;
const TOP: f64 = 40.0;
/// Ends of the logarithmic axis, milliseconds.
const FROM_MS: f64 = 0.01;
const TO_MS: f64 = 100_000.0;

fn x(ms: f64) -> f64 {
    let part = (ms.clamp(FROM_MS, TO_MS) / FROM_MS).log10() / (TO_MS / FROM_MS).log10();
    LEFT + part * (RIGHT - LEFT)
}

/// Draws bars from the median to the longest read beside each attack. The circle is the p99 before,
/// the dot the longest read without delays of the tool.
fn chart(entries: &[AttackResults]) -> String {
    let timed: Vec<(&AttackResults, &Timing)> =
        entries.iter().filter_map(|entry| Some((entry, entry.timing.as_ref()?))).collect();
    if timed.is_empty() {
        return String::new();
    }
    let height = TOP + STEP * timed.len() as f64 + 10.0;
    let mut svg = format!(
        "<svg viewBox=\"0 0 940 {height:.0}\" role=\"img\" aria-label=\"Times of reads beside each attack\">\n\
         <text x=\"0\" y=\"14\">Reads beside each attack, from the median to the longest: upper bar, other level; \
         lower bar, same level; circle, p99 before; dot, longest net</text>\n"
    );
    for (ms, name) in
        [(0.1, "0.1"), (1.0, "1"), (20.0, "20 ms"), (50.0, "50"), (1_000.0, "1 s"), (10_000.0, "10 s")]
    {
        let class = if ms == 20.0 || ms == 50.0 { " class=\"limit\"" } else { "" };
        let at = x(ms);
        let _ = writeln!(
            svg,
            "<line{class} x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{height:.0}\"/>\
             <text x=\"{at:.1}\" y=\"34\" text-anchor=\"middle\">{name}</text>"
        );
    }
    for (index, (entry, timing)) in timed.iter().enumerate() {
        let y = TOP + STEP * index as f64 + STEP / 2.0;
        let _ = writeln!(svg, "<text x=\"0\" y=\"{:.1}\">{}</text>", y + 4.0, escaped(&entry.name));
        let levels: [(&str, &Phases, f64); 2] = [("other", &timing.other, -3.0), ("same", &timing.same, 3.0)];
        for (class, phases, shift) in levels {
            let (from, to) = (x(phases.beside.p50_ms), x(phases.beside.max_ms));
            let (y, to) = (y + shift, to.max(from + 1.0));
            let _ = writeln!(
                svg,
                "<line class=\"{class}\" x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <circle class=\"alone\" cx=\"{:.1}\" cy=\"{y:.1}\" r=\"2.5\"/>\
                 <circle class=\"net\" cx=\"{:.1}\" cy=\"{y:.1}\" r=\"2\"/>",
                x(phases.before.p99_ms),
                x(phases.beside.net_max_ms)
            );
        }
    }
    svg.push_str("</svg>\n");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results() -> Results {
        let reads = Reads { reads: 2, p50_ms: 2.0, max_ms: 30.0, ..Reads::default() };
        let phases = Phases { before: reads.clone(), beside: reads, after: Reads::default() };
        let timing = Timing { other: phases.clone(), same: phases, ..Timing::default() };
        let entry = AttackResults {
            name: "cql-x".to_owned(),
            reasons: vec!["a | b <c>".to_owned()],
            timing: Some(timing),
            ..AttackResults::default()
        };
        Results { entries: vec![entry.clone(), entry], loads: vec![Load::default()], ..Results::default() }
    }

    #[test]
    fn table_and_page_contain_every_attack_and_reason() {
        let table = markdown(&results());
        assert_eq!(table.matches("| cql-x |").count(), 2);
        assert!(table.contains("a \\| b <c>"), "{table}");
        let heads_and_cells = table.lines().map(|line| line.replace("\\|", "").matches('|').count());
        let widths: Vec<usize> = heads_and_cells.filter(|width| *width > 0).collect();
        assert_eq!(widths, [17, 17, 17, 17, 12, 12, 12]);
        let page = page(&results());
        assert!(page.contains("a | b &lt;c&gt;"));
        assert_eq!(page.matches("class=\"other\"").count(), 2);
        assert!(!page.contains("NaN"));
    }

    #[test]
    fn axis_keeps_the_order_of_times() {
        assert!(x(0.0) == LEFT && x(1.0) < x(20.0) && x(1e9) == RIGHT);
    }
}
