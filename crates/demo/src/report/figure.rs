//! Figure of a chapter: its panels, and the texts in them.

use super::notes::notes;
use super::{batching, cpu, olap, overload, storage};
use crate::compare::over_first;
use crate::names::{APPLICATION, BATCH, INTERACTIVE, USER_WRITES, USERS, WRITES};
use crate::results::{Chapter, DemoResults, Point, Series, Subject, Window};
use charts::numbers::{number, percent, rate, round_time, time};
use charts::{Across, Band, Figure, Line, Panel, Rule, Scale};

/// Largest drawn rate, over the largest rate of a phase. A load sends faster while it repays its
/// backlog.
const RATE_CUT: f64 = 1.4;

/// Returns the figure of a chapter.
pub(super) fn of(outcome: &DemoResults, chapter: &Chapter) -> Figure {
    if outcome.subject == Subject::Overload {
        return overload::figure(chapter, &[false, true]);
    }
    let band =
        |window: &Window| Band { label: window.label.clone(), begin: window.begin_s, end: window.end_s };
    let is_apart = outcome.subject == Subject::Petabyte;
    let mut panels = match chapter.window("beside") {
        _ if outcome.subject == Subject::Batching => batching::panels(chapter),
        _ if outcome.subject == Subject::Olap => vec![olap::panel(chapter)],
        None if chapter.storage.is_empty() && !is_apart => vec![together(chapter)],
        _ => chapter.series.iter().map(|series| apart(outcome, chapter, series)).collect(),
    };
    if outcome.subject != Subject::Batching {
        panels.push(latency(chapter));
    }
    panels.extend(storage::panels(chapter));
    panels.extend(storage::disk(chapter));
    panels.push(cpu::cpu(chapter));
    panels.extend(storage::space(chapter));
    Figure {
        label: format!("{}: throughput, latency and CPU over time", chapter.title),
        bands: chapter.windows.iter().map(band).collect(),
        panels,
        across: Across::Time,
        tips: tips(chapter),
    }
}

fn line(chapter: &Chapter, series: &Series, value: fn(&Point) -> f64) -> Line {
    let class = chapter.series.iter().position(|found| found.load == series.load).unwrap_or(0);
    let points = series.points.iter().map(|point| (point.at_s, value(point))).collect();
    Line { name: series.load.clone(), class, thin: false, points }
}

/// Returns the name of a load's requests.
fn requests(outcome: &DemoResults, load: &str) -> &'static str {
    if load == WRITES || load == USER_WRITES {
        "rows"
    } else if load == APPLICATION {
        "single-row reads and writes"
    } else if load == USERS || load == INTERACTIVE || (load == BATCH && outcome.shape == "published") {
        "single-row reads"
    } else {
        "slices of 100 rows"
    }
}

/// Returns the panel of one load. Rates of slices and single-row reads are not comparable.
fn apart(outcome: &DemoResults, chapter: &Chapter, series: &Series) -> Panel {
    let load = series.load.as_str();
    let mut line = line(chapter, series, |point| point.rate_per_s);
    let in_window = |window: &Window| window.loads.iter().find(|found| found.load == load).cloned();
    let requested = chapter.windows.iter().filter_map(in_window).find_map(|found| found.asked_per_s);
    let alone = outcome.capacity.batch.as_ref().filter(|_| load == BATCH).map(|run| run.throughput_per_s);
    let rules = match (requested, alone) {
        (Some(value), _) => vec![Rule { value, label: format!("requested: {}", rate(value)) }],
        (_, Some(value)) => vec![Rule { value, label: format!("closed loop alone: {}", rate(value)) }],
        _ => Vec::new(),
    };
    let mut title = format!("{load}: {} a second", requests(outcome, load));
    let steady = chapter.windows.iter().filter_map(in_window).map(|found| found.throughput_per_s);
    let cut = steady.fold(0.0, f64::max) * RATE_CUT;
    if load == INTERACTIVE && line.points.iter().any(|point| point.1 > cut) {
        line.points.iter_mut().for_each(|point| point.1 = point.1.min(cut));
        title += " (cut off while it repays its backlog)";
    }
    let notes = notes(chapter, |window| {
        let rate = rate(in_window(window)?.throughput_per_s);
        Some(vec![format!("{rate}/s"), rate])
    });
    let moments = match load {
        WRITES => storage::flushes(chapter),
        _ => Vec::new(),
    };
    if !moments.is_empty() {
        title += "; ticks: flushes";
    }
    Panel { tall: 0.9, rules, notes, moments, ..Panel::of_lines(&title, Scale::Linear, vec![line], kilo) }
}

/// Returns the panel of loads with equal requests.
fn together(chapter: &Chapter) -> Panel {
    let lines: Vec<Line> =
        chapter.series.iter().map(|series| line(chapter, series, |point| point.rate_per_s)).collect();
    let requested = chapter.runs.iter().find_map(|run| run.asked_per_s);
    let rule = |value: f64| Rule { value, label: format!("each requests {}", rate(value)) };
    let notes = notes(chapter, |window| {
        let rates: Vec<f64> = window.loads.iter().map(|load| load.throughput_per_s).collect();
        Some(match rates.as_slice() {
            [only] => vec![format!("{}/s", rate(*only)), rate(*only)],
            [_, _] => {
                vec![format!("operations 1:{}", over_first(&rates)), format!("1:{}", over_first(&rates))]
            }
            _ => vec![format!("operations {}", over_first(&rates)), over_first(&rates)],
        })
    });
    Panel {
        tall: 0.9,
        notes,
        rules: requested.map(rule).into_iter().collect(),
        ..Panel::of_lines("slices of 100 rows answered a second", Scale::Linear, lines, kilo)
    }
}

/// Returns the panel of the p99 of all loads. The main load also gets its median, and the p99 of
/// each phase.
fn latency(chapter: &Chapter) -> Panel {
    let mut lines = Vec::new();
    for series in &chapter.series {
        let mut p99 = line(chapter, series, |point| point.p99_us);
        p99.name = format!("{} p99", series.load);
        if series.load == INTERACTIVE || series.load == WRITES {
            let name = format!("{} median", series.load);
            let median = line(chapter, series, |point| point.p50_us);
            lines.push(Line { name, thin: true, ..median });
        }
        lines.push(p99);
    }
    let notes = notes(chapter, |window| {
        let load = [INTERACTIVE, WRITES].into_iter().find(|load| window.latency(load).is_some())?;
        let p99 = time(window.latency(load)?.p99_us);
        Some(vec![format!("{load} p99 {p99}"), format!("p99 {p99}"), p99])
    });
    Panel {
        tall: 1.5,
        notes,
        ..Panel::of_lines("latency, 99th percentile of each second", Scale::Log, lines, round_time)
    }
}

/// Returns a text for each second: rates and latencies of the loads, and CPU of the levels.
fn tips(chapter: &Chapter) -> Vec<(f64, String)> {
    let begin = chapter.windows.first().map_or(0.0, |window| window.begin_s);
    let Some(longest) = chapter.series.iter().max_by_key(|series| series.points.len()) else {
        return Vec::new();
    };
    let tip = |at: f64| {
        let mut text = format!("{:.0} s", at - begin);
        for series in &chapter.series {
            let same = series.points.iter().find(|point| (point.at_s - at).abs() <= point.seconds / 2.0);
            if let Some(point) = same {
                text += &format!(
                    "\n{}: {}/s, p50 {}, p99 {}",
                    series.load,
                    rate(point.rate_per_s),
                    time(point.p50_us),
                    time(point.p99_us)
                );
            }
        }
        if let Some(point) = chapter.storage.iter().find(|point| (point.at_s - at).abs() <= 0.5) {
            text += &format!(
                "\nflush {:.1} MB/s, compaction {:.1} MB/s, {:.0} files",
                point.flush_bytes_per_s / 1e6,
                point.compaction_bytes_per_s / 1e6,
                point.files
            );
        }
        if let Some(point) = chapter.cpu.iter().find(|point| (point.at_s - at).abs() <= 0.5) {
            let levels: Vec<String> =
                point.levels.iter().map(|(name, used)| format!("{name} {}", percent(*used))).collect();
            text += &format!("\nCPU, of one core: {}", levels.join(", "));
        }
        (at, text)
    };
    longest.points.iter().map(|point| tip(point.at_s)).collect()
}

/// Formats a mark of a rate, such as `20 k`.
fn kilo(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{} M", number(value / 1e6)),
        value if value >= 1e3 => format!("{} k", number(value / 1e3)),
        value => number(value),
    }
}
