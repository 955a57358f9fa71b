//! What is drawn of storage below a load: what is written to the disk, what the controllers set, what waits, and the
//! space of table files.

use super::super::chart::{Line, Panel, Rule, Scale};
use super::super::figures::{Chapter, CpuPoint, SpacePoint, StoragePoint};
use super::figure::{OTHERS, Part};

/// Classes of what storage does, beside the load's own, which is 0.
const FLUSH: usize = 1;
const COMPACTION: usize = 2;
const LOG: usize = 3;

/// What is read of one second.
type Of = fn(&StoragePoint) -> f64;

/// The panels below latency, of a chapter that has any.
pub(super) fn panels(chapter: &Chapter) -> Vec<Panel> {
    if chapter.storage.is_empty() {
        return Vec::new();
    }
    let written: [(&str, usize, Of); 3] = [
        ("log", LOG, |p| p.log_bytes_per_s / 1e6),
        ("flush", FLUSH, |p| p.flush_bytes_per_s / 1e6),
        ("compaction", COMPACTION, |p| p.compaction_bytes_per_s / 1e6),
    ];
    let weights: [(&str, usize, Of); 2] =
        [("flush", FLUSH, |p| p.flush_weight), ("compaction", COMPACTION, |p| p.compaction_weight)];
    let waits: [(&str, usize, Of); 2] = [
        ("memtables", FLUSH, |p| p.memtable_bytes / 1e6),
        ("to be compacted", COMPACTION, |p| p.backlog_bytes / 1e6),
    ];
    vec![
        panel(chapter, "written to the disk, MB a second", &written),
        panel(chapter, "weight beside all users, who weigh 1000 (set by the controllers)", &weights),
        panel(chapter, "what waits to be written, MB", &waits),
    ]
}

/// Lines of what was there at all.
fn panel(chapter: &Chapter, title: &str, of: &[(&str, usize, Of)]) -> Panel {
    let line = |(name, class, value): &(&str, usize, Of)| {
        let points: Vec<(f64, f64)> =
            chapter.storage.iter().map(|point| (point.at_s, value(point))).collect();
        let there = points.iter().any(|point| point.1 > 0.0);
        there.then(|| Line { name: (*name).to_string(), class: *class, thin: false, points })
    };
    let lines: Vec<Line> = of.iter().filter_map(line).collect();
    // A line alone is not named beside it.
    let title = match lines.as_slice() {
        [only] => format!("{title}: {}", only.name),
        _ => title.to_string(),
    };
    Panel {
        title,
        scale: Scale::Linear,
        tall: 0.9,
        stacked: false,
        top: None,
        spans: Vec::new(),
        lines,
        rules: Vec::new(),
        notes: Vec::new(),
        mark: |value| format!("{value}"),
    }
}

/// The space of table files over time, beside that of the table alone.
pub(super) fn space(chapter: &Chapter) -> Option<Panel> {
    let table = chapter.space.first()?.bytes;
    let points = chapter.space.iter().map(|SpacePoint { at_s, bytes, .. }| (*at_s, bytes / 1e6)).collect();
    let rule = |part: f64, label: &str| Rule { value: table * part / 1e6, label: label.to_string() };
    Some(Panel {
        title: "space of the table's files, MB".to_string(),
        scale: Scale::Linear,
        tall: 1.8,
        stacked: false,
        top: None,
        spans: Vec::new(),
        lines: vec![Line { name: "table files".to_string(), class: 0, thin: false, points }],
        rules: vec![rule(1.1, "10 % more than before"), rule(2.0, "twice of it")],
        notes: Vec::new(),
        mark: |value| format!("{value:.0}"),
    })
}

/// Who has the server's core: the load, and storage's own work.
pub(super) fn parts() -> Vec<Part> {
    let group = |name: &'static str, class: usize| Part {
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
        Part { name: "writes".to_string(), class: 0, of: Box::new(|point| point.levels.values().sum()) },
        group("log", LOG),
        group("flush", FLUSH),
        group("compaction", COMPACTION),
        Part {
            name: "server, in no group".to_string(),
            class: OTHERS,
            of: Box::new(move |point| (point.process - all(point)).max(0.0)),
        },
        Part {
            name: "others, beside the server".to_string(),
            class: OTHERS,
            of: Box::new(move |point| (point.busy - point.process.max(all(point))).max(0.0)),
        },
    ]
}
