//! The figures beside those published of others, and the table printed in the end. Each ratio is taken
//! within one run; one that was not measured is missing, never guessed.

use std::fmt::Write as _;

use load::Latency;
use serde::Serialize;

use super::figures::{Chapter, Outcome, Run, Window};
use super::phases::{BATCH, INTERACTIVE};
use super::shares::{CAPPED, LOADS};

/// One line of the comparison.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Row {
    /// What is compared.
    pub(super) what: String,
    /// What others have published.
    pub(super) published: &'static str,
    /// What we hold ourselves to.
    pub(super) goal: &'static str,
    /// What was measured, in words.
    pub(super) ours: String,
    /// The figure the goal speaks of.
    pub(super) value: f64,
    /// Whether the goal was met; nothing where there is none.
    pub(super) met: Option<bool>,
}

fn ratio(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) if b > 0.0 => Some(a / b),
        _ => None,
    }
}

/// CPU and operations of each load over the first load's, and the greatest distance of the CPU from the shares.
fn by_shares(chapter: &Chapter, id: &str, shares: &[f64]) -> Option<(String, f64)> {
    let window = chapter.window(id)?;
    let names = &LOADS[..shares.len()];
    let cpu: Vec<f64> =
        names.iter().map(|name| window.cpu.levels.get(*name).copied()).collect::<Option<_>>()?;
    let done: Vec<f64> = names.iter().map(|name| window.throughput(name)).collect::<Option<_>>()?;
    let over_first = |values: &[f64]| -> String {
        let all: Vec<String> =
            values.iter().skip(1).map(|value| format!("{:.2}", value / values[0].max(1e-9))).collect();
        if all.len() == 1 { all[0].clone() } else { format!("1 : {}", all.join(" : ")) }
    };
    let worst = cpu.iter().zip(shares).skip(1).map(|(used, due)| {
        let (used, due) = (used / cpu[0].max(1e-9), due / shares[0]);
        (used / due - 1.0).abs()
    });
    let worst = worst.fold(0.0, f64::max);
    Some((format!("CPU {}, operations {}", over_first(&cpu), over_first(&done)), worst))
}

fn share_rows(outcome: &Outcome, rows: &mut Vec<Row>) {
    let cases: [(&str, &[f64], &'static str); 3] = [
        ("200:400", &[200.0, 400.0], "operations 1.42"),
        ("200:800", &[200.0, 800.0], "operations 2.71"),
        ("200:400:800", &[200.0, 400.0, 800.0], "operations 1 : 2.44 : 3.33"),
    ];
    for (chapter, exact) in [("shares", true), ("throttled", false)] {
        let Some(chapter) = outcome.chapters.iter().find(|found| found.id == chapter) else { continue };
        for (id, shares, published) in cases {
            let Some((ours, worst)) = by_shares(chapter, id, shares) else { continue };
            let how = if exact { "always more to do" } else { "throttled at 74 % each" };
            rows.push(Row {
                what: format!("shares {id}, {how}"),
                published,
                goal: if exact { "CPU within 2 % of shares" } else { "2; 2.85 at most for 200:800" },
                ours: if exact { format!("{ours}; CPU off by {:.1} %", worst * 100.0) } else { ours },
                value: worst,
                met: exact.then_some(worst <= 0.02),
            });
        }
    }
}

/// The part of the server's cores that other programs had, at worst, in these phases.
fn others(windows: &[&Window]) -> f64 {
    let taken = |window: &&Window| (window.cpu.busy - window.cpu.process) / window.cpu.cores.max(1) as f64;
    windows.iter().map(taken).fold(0.0, f64::max)
}

/// Above this part of the cores in others' hands, times are theirs as much as the server's, and no goal
/// counts as met or missed by them.
const OTHERS_MAX: f64 = 0.1;

/// Marks a row as disturbed where it was.
fn judged(mut row: Row, windows: &[&Window]) -> Row {
    let taken = others(windows);
    if taken > OTHERS_MAX && row.met.is_some() {
        row.met = None;
        let _ =
            write!(row.ours, "; not judged: other programs had up to {:.0} % of these cores", taken * 100.0);
    }
    row
}

/// What the interactive load suffered beside the batch load.
fn harm_rows(chapter: &Chapter, rows: &mut Vec<Row>) {
    let (Some(before), Some(beside)) = (chapter.window("before"), chapter.window("beside")) else { return };
    let levels = chapter.id == "two_levels";
    let how = if levels { "a level each" } else { "both in one level" };
    let p99 = |window: &Window| window.latency(INTERACTIVE).map(|latency| latency.p99_us);
    // The quieter of the two phases alone: a disturbed one would flatter the ratio.
    let before = match chapter.window("after") {
        Some(after) if p99(after) < p99(before) && p99(after).is_some() => after,
        _ => before,
    };
    let phases = [before, beside];
    if let Some(value) = ratio(p99(beside), p99(before)) {
        let row = Row {
            what: format!("interactive p99 beside the batch load, over alone; {how}"),
            published: if levels { "×2 to ×3.5" } else { "×6" },
            goal: if levels { "≤ ×1.2" } else { "–" },
            ours: format!(
                "×{} ({} over {})",
                short(value),
                time(p99(beside).unwrap_or_default()),
                time(p99(before).unwrap_or_default())
            ),
            value,
            met: levels.then_some(value <= 1.2),
        };
        rows.push(judged(row, &phases));
    }
    if let Some(value) = ratio(beside.throughput(INTERACTIVE), before.throughput(INTERACTIVE)) {
        let row = Row {
            what: format!("interactive throughput beside it, over alone; {how}"),
            published: if levels { "90 to 97 %" } else { "–" },
            goal: if levels { "≥ 99.5 %" } else { "–" },
            ours: format!("{:.1} %", value * 100.0),
            value,
            met: levels.then_some(value >= 0.995),
        };
        rows.push(judged(row, &phases));
    }
}

/// What the batch load gave up, beside what the interactive load used.
fn given_up(outcome: &Outcome, rows: &mut Vec<Row>) {
    let alone = outcome.capacity.batch.as_ref().map(|run| run.throughput_per_s);
    let Some(chapter) = outcome.chapters.iter().find(|chapter| chapter.id == "two_levels") else { return };
    let Some(beside) = chapter.window("beside") else { return };
    let used = beside.cpu.levels.get(INTERACTIVE).copied().unwrap_or(0.0) / beside.cpu.cores.max(1) as f64;
    if let Some(kept) = ratio(beside.throughput(BATCH), alone) {
        let lost = 1.0 - kept;
        let row = Row {
            what: "batch throughput given up, of what it gets alone; a level each".to_string(),
            published: "4 to 18 %",
            goal: "no more than the interactive load uses",
            ours: format!(
                "{:.1} %; the interactive load used {:.1} % of the CPU",
                lost * 100.0,
                used * 100.0
            ),
            value: lost,
            met: Some(lost <= used + 0.01),
        };
        rows.push(judged(row, &[beside]));
    }
}

fn cap_row(outcome: &Outcome, rows: &mut Vec<Row>) {
    let chapter = outcome.chapters.iter().find(|chapter| chapter.id == "cap");
    let Some(window) = chapter.and_then(|chapter| chapter.window("capped")) else { return };
    let Some(used) = window.cpu.levels.get(CAPPED) else { return };
    let value = used / window.cpu.cores.max(1) as f64;
    rows.push(Row {
        what: "a cap of 50 %, on an idle machine".to_string(),
        published: "50 ± 2 %",
        goal: "50 ± 1 %",
        ours: format!("{:.1} % of the server's CPU", value * 100.0),
        value,
        met: Some((value - 0.5).abs() <= 0.01),
    });
}

/// Every comparison that could be measured.
pub(super) fn compare(outcome: &Outcome) -> Vec<Row> {
    let mut rows = Vec::new();
    for chapter in &outcome.chapters {
        harm_rows(chapter, &mut rows);
    }
    given_up(outcome, &mut rows);
    share_rows(outcome, &mut rows);
    cap_row(outcome, &mut rows);
    rows
}

/// A factor with as many digits as it is worth.
fn short(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

/// A time in microseconds, in milliseconds with three digits or so.
pub(super) fn time(us: f64) -> String {
    match us / 1000.0 {
        ms if ms <= 0.0 => "–".to_string(),
        ms if ms < 1.0 => format!("{ms:.3} ms"),
        ms if ms < 100.0 => format!("{ms:.2} ms"),
        ms if ms < 10_000.0 => format!("{ms:.0} ms"),
        ms => format!("{:.1} s", ms / 1000.0),
    }
}

/// A rate, in groups of three digits.
pub(super) fn rate(per_s: f64) -> String {
    let digits = format!("{per_s:.0}");
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

/// Every load with its latencies: chapter, load and phase, rate, latency.
pub(super) fn loads(outcome: &Outcome) -> Vec<(String, String, f64, Latency)> {
    let mut out = Vec::new();
    let mut run = |part: &str, run: &Run| {
        out.push((part.to_string(), run.load.clone(), run.throughput_per_s, run.latency));
    };
    for capacity in [&outcome.capacity.reads, &outcome.capacity.batch].into_iter().flatten() {
        run("closed loop, alone", capacity);
    }
    for chapter in &outcome.chapters {
        for window in &chapter.windows {
            for load in &window.loads {
                let latency = load.latency.unwrap_or_default();
                out.push((
                    format!("{}: {}", chapter.id, window.label),
                    load.load.clone(),
                    load.throughput_per_s,
                    latency,
                ));
            }
        }
        let told = |load: &str| chapter.windows.iter().any(|window| window.latency(load).is_some());
        for run in chapter.runs.iter().filter(|run| !told(&run.load)) {
            out.push((
                format!("{}: all phases", chapter.id),
                run.load.clone(),
                run.throughput_per_s,
                run.latency,
            ));
        }
    }
    out
}

/// The percentiles shown, with their names.
pub(super) fn percentiles(latency: &Latency) -> [(&'static str, f64); 6] {
    [
        ("mean", latency.mean_us),
        ("p50", latency.p50_us),
        ("p95", latency.p95_us),
        ("p99", latency.p99_us),
        ("p99.9", latency.p999_us),
        ("max", latency.max_us),
    ]
}

/// How full the server was, by chapter and phase: process and cores, as shares of the server's cores.
pub(super) fn fullness(outcome: &Outcome) -> Vec<(String, f64, f64)> {
    let line = |chapter: &Chapter, window: &Window| {
        let cores = window.cpu.cores.max(1) as f64;
        (format!("{}: {}", chapter.id, window.label), window.cpu.process / cores, window.cpu.busy / cores)
    };
    outcome
        .chapters
        .iter()
        .flat_map(|chapter| chapter.windows.iter().map(move |w| line(chapter, w)))
        .collect()
}

/// A sentence when other programs took much of the server's cores in some phase.
pub(super) fn disturbed(outcome: &Outcome) -> Option<String> {
    let others = |(_, process, busy): &(String, f64, f64)| busy - process;
    let worst = fullness(outcome).into_iter().max_by(|a, b| others(a).total_cmp(&others(b)))?;
    let taken = others(&worst);
    (taken > 0.05).then(|| {
        format!(
            "Other programs (or the system itself) took up to {:.0} % of the server's cores (in `{}`). The figures are those of a busy machine; \
             run the demo on a quiet one.",
            taken * 100.0,
            worst.0
        )
    })
}

/// The table for a terminal.
pub(super) fn text(outcome: &Outcome) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(out, "\nEvery load (latency of open loops from the intended send time)\n");
    let _ = write!(out, "{:<42} {:<22} {:>10}", "phase", "load", "per second");
    for (name, _) in percentiles(&Latency::default()) {
        let _ = write!(out, " {name:>10}");
    }
    out.push('\n');
    for (part, load, per_s, latency) in loads(outcome) {
        let _ = write!(out, "{part:<42} {load:<22} {:>10}", rate(per_s));
        for (_, us) in percentiles(&latency) {
            let _ = write!(out, " {:>10}", time(us));
        }
        out.push('\n');
    }
    let _ =
        writeln!(out, "\nHow full the server was: its process, and its cores by whomever they were used\n");
    for (part, process, busy) in fullness(outcome) {
        let _ =
            writeln!(out, "{part:<42} process {:>5.1} %   cores {:>5.1} %", process * 100.0, busy * 100.0);
    }
    let _ = writeln!(out, "\nBeside what others have published\n");
    for row in &outcome.comparison {
        let met = match row.met {
            Some(true) => "  (met)",
            Some(false) => "  (not met)",
            None => "",
        };
        let _ = writeln!(out, "{}", row.what);
        let _ =
            writeln!(out, "    here {}    published {}    goal {}{met}", row.ours, row.published, row.goal);
    }
    if !outcome.notes.is_empty() {
        let _ = writeln!(out, "\nBefore believing it\n");
        for note in &outcome.notes {
            let _ = writeln!(out, "- {note}");
        }
    }
    out
}

#[cfg(test)]
mod tests;
