//! Tables for a terminal of 100 columns, printed at the end.

use std::fmt::Write as _;

use crate::compare::published_by;
use crate::listing::{ListedLoad, loads, percentiles, usage};
use crate::results::{ComparisonRow, DemoResults, Subject};
use charts::numbers::{percent, rate, time};

/// Widths of the columns of the comparison. With spaces and the verdict they take 100 columns.
const WHAT: usize = 43;
const SEEN: usize = 16;
const GOAL: usize = 13;
const PUBLISHED: usize = 14;

/// Returns a text in lines of at most `columns` characters, broken between words.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_string()),
        }
    }
    lines
}

fn row(out: &mut String, row: &ComparisonRow) {
    let or_dash = |text: &str| if text.is_empty() { "–".to_string() } else { text.to_string() };
    let columns = [
        wrapped(&row.what, WHAT),
        wrapped(&row.seen, SEEN),
        wrapped(&or_dash(&row.goal), GOAL),
        wrapped(&or_dash(&row.published), PUBLISHED),
        vec![or_dash(row.verdict())],
    ];
    let lines = columns.iter().map(Vec::len).max().unwrap_or(0);
    for line in 0..lines {
        let cell = |column: usize| columns[column].get(line).map_or("", String::as_str);
        line_of(out, [cell(0), cell(1), cell(2), cell(3), cell(4)]);
    }
    for line in wrapped(&row.detail, 92).iter().filter(|line| !line.is_empty()) {
        let _ = writeln!(out, "    {line}");
    }
}

/// Writing to a String cannot fail.
fn line_of(out: &mut String, [what, seen, goal, published, verdict]: [&str; 5]) {
    let line = format!("{what:<WHAT$} {seen:<SEEN$} {goal:<GOAL$} {published:<PUBLISHED$} {verdict}");
    let _ = writeln!(out, "{}", line.trim_end());
}

fn comparison(out: &mut String, outcome: &DemoResults) {
    let published = outcome.comparison.iter().any(|row| !row.published.is_empty());
    if published {
        out.push_str("\nCompared with published results (only ratios are comparable)\n");
        for line in wrapped(published_by(outcome.subject), 96) {
            let _ = writeln!(out, "  {line}");
        }
    } else {
        out.push_str("\nCompared with the goals\n");
    }
    out.push('\n');
    line_of(out, ["", "here", "goal", "published", ""]);
    let _ = writeln!(out, "{}", "─".repeat(100));
    for found in &outcome.comparison {
        row(out, found);
    }
}

fn every_load(out: &mut String, outcome: &DemoResults) {
    out.push_str("\nEvery load: latency in milliseconds; in open loops it starts when a request is due\n\n");
    let _ = write!(out, "{:<34} {:>9}", "", "a second");
    for (name, _) in percentiles(&load::Latency::default()) {
        let _ = write!(out, " {name:>8}");
    }
    out.push('\n');
    let mut last = String::new();
    for ListedLoad { part, load, per_s, latency } in loads(outcome) {
        if last != part {
            let _ = writeln!(out, "{part}");
            last = part;
        }
        let _ = write!(out, "  {load:<32} {:>9}", rate(per_s));
        for (_, us) in percentiles(&latency) {
            let _ = write!(out, " {:>8}", milliseconds(us));
        }
        out.push('\n');
    }
}

/// Returns a time in milliseconds without the unit.
fn milliseconds(us: f64) -> String {
    if us >= 1e6 { format!("{:.0}", us / 1e3) } else { time(us).trim_end_matches("\u{a0}ms").to_string() }
}

/// Returns all tables.
pub(crate) fn text(outcome: &DemoResults) -> String {
    let mut out = String::new();
    if outcome.subject != Subject::Compaction {
        every_load(&mut out, outcome);
        cores(&mut out, outcome);
    }
    comparison(&mut out, outcome);
    if !outcome.notes.is_empty() {
        out.push_str("\nNotes\n\n");
        for note in &outcome.notes {
            for (index, line) in wrapped(note, 97).iter().enumerate() {
                let _ = writeln!(out, "{} {line}", if index == 0 { "-" } else { " " });
            }
        }
    }
    let _ = writeln!(out, "\n{}", crate::headline::sentence(outcome));
    out
}

fn cores(out: &mut String, outcome: &DemoResults) {
    out.push_str("\nUse of the cores by all processes; CPU and delay of the senders\n\n");
    let _ = writeln!(
        out,
        "{:<40} {:>9} {:>9} {:>9} {:>11} {:>15}",
        "", "server", "process", "loads", "sender", "sender lag p99"
    );
    for usage in usage(outcome) {
        let or_dash = |value: Option<String>| value.unwrap_or_else(|| "–".to_string());
        let _ = writeln!(
            out,
            "{:<40} {:>9} {:>9} {:>9} {:>11} {:>15}",
            usage.part,
            percent(usage.busy),
            percent(usage.process),
            or_dash(usage.loads.map(percent)),
            or_dash(usage.sender.map(percent)),
            or_dash(usage.lag_us.map(time))
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_fit_100_columns() {
        let found = ComparisonRow {
            what: "interactive throughput beside it, of alone: a level each".into(),
            seen: "CPU 1:2.00:4.00".into(),
            detail: "word ".repeat(60),
            published: "operations 1:2.44:3.33".into(),
            goal: "CPU within 2 %".into(),
            value: 1.0,
            met: Some(false),
        };
        let outcome = DemoResults {
            comparison: vec![found],
            notes: vec!["a long note of many words ".repeat(20)],
            ..DemoResults::default()
        };
        let text = text(&outcome);
        assert!(text.contains("not met") && text.contains("1:2.44:3.33"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }

    #[test]
    fn empty_outcome_is_printed() {
        assert!(text(&DemoResults::default()).contains("Every load"));
    }
}
