//! From a chapter to its figure: which panels it has, and what is written into them.

use super::super::chart::{Band, Figure, Line, Note, Panel, Rule, Scale};
use super::super::compare::over_first;
use super::super::figures::{Chapter, CpuPoint, Outcome, Point, Series, Subject, Window};
use super::super::flush::WRITES;
use super::super::phases::{BATCH, INTERACTIVE};
use super::super::shares::CAPPED;
use super::super::units::{percent, rate, round_time, time};
use super::{olap, storage};

/// Parts of the server's CPU too small to be drawn.
const PART_MIN: f64 = 0.005;
/// Above this times what was asked for, a rate is cut off: the load only makes up for what it could not send.
const CATCHING_UP: f64 = 1.4;
/// Classes of what is no load.
const OTHER_LEVELS: usize = 4;
pub(super) const OTHERS: usize = 5;

/// The figure of a chapter.
pub(super) fn of(outcome: &Outcome, chapter: &Chapter) -> Figure {
    let band =
        |window: &Window| Band { label: window.label.clone(), begin: window.begin_s, end: window.end_s };
    let mut panels = match chapter.window("beside") {
        _ if outcome.subject == Subject::Olap => vec![olap::panel(chapter)],
        None if chapter.storage.is_empty() => vec![together(chapter)],
        _ => chapter.series.iter().map(|series| apart(outcome, chapter, series)).collect(),
    };
    panels.push(latency(chapter));
    panels.extend(storage::panels(chapter));
    panels.push(cpu(chapter));
    panels.extend(storage::space(chapter));
    Figure {
        label: format!("{}: throughput, latency and CPU over time", chapter.title),
        bands: chapter.windows.iter().map(band).collect(),
        panels,
        tips: tips(chapter),
    }
}

fn line(chapter: &Chapter, series: &Series, value: fn(&Point) -> f64) -> Line {
    let class = chapter.series.iter().position(|found| found.load == series.load).unwrap_or(0);
    let points = series.points.iter().map(|point| (point.at_s, value(point))).collect();
    Line { name: series.load.clone(), class, thin: false, points }
}

/// What requests of a load are.
fn requests(outcome: &Outcome, load: &str) -> &'static str {
    if load == WRITES {
        "rows"
    } else if load == INTERACTIVE || (load == BATCH && outcome.shape == "published") {
        "single-row reads"
    } else {
        "slices of 100 rows"
    }
}

/// One load alone in its panel, since a slice is no read and their rates do not compare.
fn apart(outcome: &Outcome, chapter: &Chapter, series: &Series) -> Panel {
    let load = series.load.as_str();
    let mut line = line(chapter, series, |point| point.rate_per_s);
    let in_window = |window: &Window| window.loads.iter().find(|found| found.load == load).cloned();
    let asked = chapter.windows.iter().filter_map(in_window).find_map(|found| found.asked_per_s);
    let alone = outcome.capacity.batch.as_ref().filter(|_| load == BATCH).map(|run| run.throughput_per_s);
    let rules = match (asked, alone) {
        (Some(asked), _) => vec![Rule { value: asked, label: format!("asked for: {}", rate(asked)) }],
        (_, Some(alone)) => vec![Rule { value: alone, label: format!("closed loop alone: {}", rate(alone)) }],
        _ => Vec::new(),
    };
    let mut title = format!("{load}: {} a second", requests(outcome, load));
    let steady = chapter.windows.iter().filter_map(in_window).map(|found| found.throughput_per_s);
    let cut = steady.fold(0.0, f64::max) * CATCHING_UP;
    if load == INTERACTIVE && line.points.iter().any(|point| point.1 > cut) {
        line.points.iter_mut().for_each(|point| point.1 = point.1.min(cut));
        title += " (cut off while it catches up)";
    }
    let notes = chapter.windows.iter().enumerate().filter_map(|(band, window)| {
        let found = in_window(window)?;
        let told = rate(found.throughput_per_s);
        Some(Note { band, between: None, texts: vec![format!("{told}/s"), told] })
    });
    let notes = notes.collect();
    Panel {
        title,
        scale: Scale::Linear,
        tall: 0.9,
        stacked: false,
        top: None,
        spans: Vec::new(),
        lines: vec![line],
        rules,
        notes,
        mark: kilo,
    }
}

/// Loads of equal requests in one panel.
fn together(chapter: &Chapter) -> Panel {
    let lines: Vec<Line> =
        chapter.series.iter().map(|series| line(chapter, series, |point| point.rate_per_s)).collect();
    let asked = chapter.runs.iter().find_map(|run| run.asked_per_s);
    let rule = |asked: f64| Rule { value: asked, label: format!("each asks for {}", rate(asked)) };
    let notes = chapter.windows.iter().enumerate().map(|(band, window)| {
        let done: Vec<f64> = window.loads.iter().map(|load| load.throughput_per_s).collect();
        let texts = match done.as_slice() {
            [only] => vec![format!("{}/s", rate(*only)), rate(*only)],
            [_, _] => vec![format!("operations 1:{}", over_first(&done)), format!("1:{}", over_first(&done))],
            _ => vec![format!("operations {}", over_first(&done)), over_first(&done)],
        };
        Note { band, between: None, texts }
    });
    Panel {
        title: "slices of 100 rows answered a second".to_string(),
        scale: Scale::Linear,
        tall: 0.9,
        stacked: false,
        top: None,
        spans: Vec::new(),
        notes: notes.collect(),
        lines,
        rules: asked.map(rule).into_iter().collect(),
        mark: kilo,
    }
}

/// 99th percentile of every load; of the interactive one the median as well, and the figures of each phase.
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
    let note = |(band, window): (usize, &Window)| {
        let load = [INTERACTIVE, WRITES].into_iter().find(|load| window.latency(load).is_some())?;
        let p99 = time(window.latency(load)?.p99_us);
        let texts = vec![format!("{load} p99 {p99}"), format!("p99 {p99}"), p99];
        Some(Note { band, between: None, texts })
    };
    Panel {
        title: "latency, 99th percentile of each second (logarithmic)".to_string(),
        scale: Scale::Log,
        tall: 1.5,
        stacked: false,
        top: None,
        spans: Vec::new(),
        notes: chapter.windows.iter().enumerate().filter_map(note).collect(),
        lines,
        rules: Vec::new(),
        mark: round_time,
    }
}

/// Who has the server's cores: one kind of part of it.
pub(super) struct Part {
    pub(super) name: String,
    pub(super) class: usize,
    pub(super) of: Box<dyn Fn(&CpuPoint) -> f64>,
}

fn parts(chapter: &Chapter) -> Vec<Part> {
    let mut names: Vec<String> = chapter.series.iter().map(|series| series.load.clone()).collect();
    let levels = chapter.cpu.iter().flat_map(|point| point.levels.keys());
    for level in levels {
        if !names.contains(level) {
            names.push(level.clone());
        }
    }
    let loads = chapter.series.len();
    let level = |(index, name): (usize, String)| {
        let shown = if name == "default" { "both loads".to_string() } else { name.clone() };
        Part {
            name: shown,
            class: if index < loads { index } else { OTHER_LEVELS },
            of: Box::new(move |point: &CpuPoint| point.levels.get(&name).copied().unwrap_or(0.0)),
        }
    };
    let mut parts: Vec<Part> = names.into_iter().enumerate().map(level).collect();
    let counted = |point: &CpuPoint| point.levels.values().sum::<f64>();
    parts.push(Part {
        name: "server, in no level".to_string(),
        class: OTHERS,
        of: Box::new(move |point| (point.process - counted(point)).max(0.0)),
    });
    parts.push(Part {
        name: "others, beside the server".to_string(),
        class: OTHERS,
        of: Box::new(|point| (point.busy - point.process.max(point.levels.values().sum())).max(0.0)),
    });
    parts
}

/// CPU by level, stacked up to all of the server's cores.
fn cpu(chapter: &Chapter) -> Panel {
    let cores = chapter.windows.iter().map(|window| window.cpu.cores).max().unwrap_or(1).max(1) as f64;
    let mut lines = Vec::new();
    let mut kept = Vec::new();
    let parts = if chapter.storage.is_empty() { parts(chapter) } else { storage::parts() };
    for part in parts {
        let points: Vec<(f64, f64)> =
            chapter.cpu.iter().map(|point| (point.at_s, (part.of)(point) / cores * 100.0)).collect();
        let mean = points.iter().map(|point| point.1).sum::<f64>() / points.len().max(1) as f64;
        if mean >= PART_MIN * 100.0 {
            lines.push(Line { name: part.name.clone(), class: part.class, thin: false, points });
            kept.push(part);
        }
    }
    let mut notes = Vec::new();
    for (band, window) in chapter.windows.iter().enumerate() {
        let whole = CpuPoint {
            levels: window.cpu.levels.clone(),
            groups: window.cpu.groups.clone(),
            process: window.cpu.process,
            busy: window.cpu.busy,
            ..CpuPoint::default()
        };
        let mut low = 0.0;
        for part in &kept {
            let value = (part.of)(&whole) / cores;
            let whole = format!("{:.0}\u{a0}%", value * 100.0);
            let short = part.name.split([' ', ',']).next().unwrap_or_default();
            let texts = vec![
                format!("{} {}", part.name, percent(value)),
                format!("{} {whole}", part.name),
                format!("{short} {whole}"),
                whole,
            ];
            notes.push(Note { band, between: Some((low, low + value * 100.0)), texts });
            low += value * 100.0;
        }
    }
    let title = match chapter.storage.is_empty() {
        true => "CPU by service level, of the server's cores (both lanes)",
        false => "CPU by whose work it is, of the server's core (both lanes)",
    };
    let capped = chapter.series.iter().any(|series| series.load == CAPPED);
    let rule = capped.then(|| Rule { value: 50.0, label: "cpu_limit = '50%'".to_string() });
    Panel {
        title: title.to_string(),
        scale: Scale::Linear,
        tall: 1.0,
        stacked: true,
        top: Some(100.0),
        spans: Vec::new(),
        lines,
        rules: rule.into_iter().collect(),
        notes,
        mark: |value| format!("{value:.0} %"),
    }
}

/// What is told of each second: every load's rate and latency, and the levels' CPU.
fn tips(chapter: &Chapter) -> Vec<(f64, String)> {
    let begin = chapter.windows.first().map_or(0.0, |window| window.begin_s);
    let Some(longest) = chapter.series.iter().max_by_key(|series| series.points.len()) else {
        return Vec::new();
    };
    let tip = |at: f64| {
        let mut words = format!("{:.0} s", at - begin);
        for series in &chapter.series {
            let same = series.points.iter().find(|point| (point.at_s - at).abs() <= point.seconds / 2.0);
            if let Some(point) = same {
                words += &format!(
                    "\n{}: {}/s, p50 {}, p99 {}",
                    series.load,
                    rate(point.rate_per_s),
                    time(point.p50_us),
                    time(point.p99_us)
                );
            }
        }
        if let Some(point) = chapter.storage.iter().find(|point| (point.at_s - at).abs() <= 0.5) {
            words += &format!(
                "\nflush {:.1} MB/s, compaction {:.1} MB/s, {:.0} files",
                point.flush_bytes_per_s / 1e6,
                point.compaction_bytes_per_s / 1e6,
                point.files
            );
        }
        if let Some(point) = chapter.cpu.iter().find(|point| (point.at_s - at).abs() <= 0.5) {
            let levels: Vec<String> =
                point.levels.iter().map(|(name, used)| format!("{name} {}", percent(*used))).collect();
            words += &format!("\nCPU, of one core: {}", levels.join(", "));
        }
        (at, words)
    };
    longest.points.iter().map(|point| tip(point.at_s)).collect()
}

/// A mark of a rate: `20 k`.
fn kilo(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{} M", value / 1e6),
        value if value >= 1e3 => format!("{} k", value / 1e3),
        value => format!("{value:.0}"),
    }
}
