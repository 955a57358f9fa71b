//! Panel of the server's CPU, by service level or by kind of background work.

use super::storage::{COMPACTION, FLUSH, LOG};
use crate::names::{CAPPED, COMMANDS};
use crate::results::{Chapter, CpuPoint};
use charts::numbers::percent;
use charts::{Line, Note, Panel, Rule, Scale};

/// Least mean of a part that is drawn, as a fraction of the server's cores.
const PART_MIN: f64 = 0.005;
/// Classes of parts that are no load.
const OTHER_LEVELS: usize = 4;
const OTHERS: usize = 5;

/// Part of the use of the server's cores.
struct CpuPart {
    name: String,
    class: usize,
    of: Box<dyn Fn(&CpuPoint) -> f64>,
}

/// Returns the parts of a chapter about levels: loads, other levels, and the rest.
fn parts(chapter: &Chapter) -> Vec<CpuPart> {
    // The only load of the demo of batches runs in the default level.
    let is_alone = !chapter.batches.is_empty();
    let mut names: Vec<String> = match is_alone {
        true => vec!["default".to_string()],
        false => chapter.series.iter().map(|series| series.load.clone()).collect(),
    };
    let levels = chapter.cpu.iter().flat_map(|point| point.levels.keys());
    for level in levels {
        if !names.contains(level) {
            names.push(level.clone());
        }
    }
    let loads = chapter.series.len();
    let level = |(index, name): (usize, String)| {
        let shown = match name.as_str() {
            "default" if is_alone => COMMANDS.to_string(),
            // A node behind a front has all loads in one level.
            "default" if !chapter.nodes.is_empty() => "all loads".to_string(),
            "default" => "both loads".to_string(),
            _ => name.clone(),
        };
        CpuPart {
            name: shown,
            class: if index < loads { index } else { OTHER_LEVELS },
            of: Box::new(move |point: &CpuPoint| point.levels.get(&name).copied().unwrap_or(0.0)),
        }
    };
    let mut parts: Vec<CpuPart> = names.into_iter().enumerate().map(level).collect();
    let counted = |point: &CpuPoint| point.levels.values().sum::<f64>();
    parts.push(CpuPart {
        name: "server, in no level".to_string(),
        class: OTHERS,
        of: Box::new(move |point| (point.process - counted(point)).max(0.0)),
    });
    parts.push(CpuPart {
        name: "others, beside the server".to_string(),
        class: OTHERS,
        of: Box::new(|point| (point.busy - point.process.max(point.levels.values().sum())).max(0.0)),
    });
    parts
}

/// Returns the parts of a chapter about storage: the load, and background work.
fn storage_parts() -> Vec<CpuPart> {
    let group = |name: &'static str, class: usize| CpuPart {
        name: name.to_string(),
        class,
        of: Box::new(move |point: &CpuPoint| point.groups.get(name).copied().unwrap_or(0.0)),
    };
    let all = |point: &CpuPoint| {
        let groups =
            ["log", "flush", "compaction"].map(|name| point.groups.get(name).copied().unwrap_or(0.0));
        point.levels.values().sum::<f64>() + groups.iter().sum::<f64>()
    };
    vec![
        CpuPart { name: "writes".to_string(), class: 0, of: Box::new(|point| point.levels.values().sum()) },
        group("log", LOG),
        group("flush", FLUSH),
        group("compaction", COMPACTION),
        CpuPart {
            name: "server, in no group".to_string(),
            class: OTHERS,
            of: Box::new(move |point| (point.process - all(point)).max(0.0)),
        },
        CpuPart {
            name: "others, beside the server".to_string(),
            class: OTHERS,
            of: Box::new(move |point| (point.busy - point.process.max(all(point))).max(0.0)),
        },
    ]
}

/// Returns the panel: stacked areas up to all of the server's cores.
pub(super) fn cpu(chapter: &Chapter) -> Panel {
    let cores = chapter.windows.iter().map(|window| window.cpu.cores).max().unwrap_or(1).max(1) as f64;
    let mut lines = Vec::new();
    let mut kept = Vec::new();
    let parts = if chapter.storage.is_empty() { parts(chapter) } else { storage_parts() };
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
        false => "CPU by kind of work, of the server's core (both lanes)",
    };
    let capped = chapter.series.iter().any(|series| series.load == CAPPED);
    let rule = capped.then(|| Rule { value: 50.0, label: "cpu_limit = '50%'".to_string() });
    Panel {
        stacked: true,
        top: Some(100.0),
        rules: rule.into_iter().collect(),
        notes,
        ..Panel::of_lines(title, Scale::Linear, lines, |value| format!("{value:.0} %"))
    }
}
