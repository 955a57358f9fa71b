//! Panels of storage: bytes written to the disk, weights of the controllers, bytes that wait, and
//! the space of table files.

use super::notes::notes;
use crate::results::{Chapter, DiskPoint, Series, SpacePoint, StoragePoint};
use charts::numbers::number;
use charts::{Line, Panel, Rule, Scale};

/// Classes of background work. The load has class 0.
pub(super) const FLUSH: usize = 1;
pub(super) const COMPACTION: usize = 2;
pub(super) const LOG: usize = 3;

/// Value of one second.
type Of = fn(&StoragePoint) -> f64;

/// Returns the panels of a chapter about storage, else none.
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
    let waiting: [(&str, usize, Of); 2] = [
        ("memtables", FLUSH, |p| p.memtable_bytes / 1e6),
        ("to be compacted", COMPACTION, |p| p.backlog_bytes / 1e6),
    ];
    let notes = notes(chapter, |window| {
        let count = chapter.storage_sum(window, |point| point.flushes).round();
        Some(vec![format!("{count:.0} flushes"), format!("{count:.0}")])
    });
    vec![
        Panel { notes, ..panel(chapter, "written to the disk, MB a second; flushes", &written) },
        panel(chapter, "weight of background work (all users have 1000)", &weights),
        panel(chapter, "bytes that wait to be written, MB", &waiting),
    ]
}

/// Returns a panel with the lines that have a value above 0.
fn panel(chapter: &Chapter, title: &str, of: &[(&str, usize, Of)]) -> Panel {
    let line = |(name, class, value): &(&str, usize, Of)| {
        let points: Vec<(f64, f64)> =
            chapter.storage.iter().map(|point| (point.at_s, value(point))).collect();
        let has_values = points.iter().any(|point| point.1 > 0.0);
        has_values.then(|| Line { name: (*name).to_string(), class: *class, thin: false, points })
    };
    let lines: Vec<Line> = of.iter().filter_map(line).collect();
    // A single line has no name beside it.
    let title = match lines.as_slice() {
        [only] => format!("{title}: {}", only.name),
        _ => title.to_string(),
    };
    Panel { tall: 0.9, ..Panel::of_lines(&title, Scale::Linear, lines, number) }
}

/// Returns the panels of the disk by level: bandwidth and queue. The level of each load has its
/// class.
pub(super) fn disk(chapter: &Chapter) -> Vec<Panel> {
    if chapter.disk.is_empty() {
        return Vec::new();
    }
    let of = |title: &str, value: &dyn Fn(&DiskPoint, &str) -> Option<f64>| {
        let line = |(class, series): (usize, &Series)| {
            let name = series.load.clone();
            let point = |point: &DiskPoint| (point.at_s, value(point, &name).unwrap_or_default());
            Line { points: chapter.disk.iter().map(point).collect(), class, thin: false, name: name.clone() }
        };
        let lines = chapter.series.iter().enumerate().map(line).collect();
        Panel { tall: 0.9, ..Panel::of_lines(title, Scale::Linear, lines, number) }
    };
    vec![
        of("disk of the server's core by level, MB a second", &|point, level| {
            point.bytes_per_s.get(level).map(|bytes| bytes / 1e6)
        }),
        of("requests in the disk's queue by level", &|point, level| point.queued.get(level).copied()),
    ]
}

/// Returns the seconds in which a memtable was flushed.
pub(super) fn flushes(chapter: &Chapter) -> Vec<f64> {
    chapter.storage.iter().filter(|point| point.flushes > 0.5).map(|point| point.at_s).collect()
}

/// Returns the panel of the space of table files over time.
pub(super) fn space(chapter: &Chapter) -> Option<Panel> {
    let table = chapter.space.first()?.bytes;
    let points = chapter.space.iter().map(|SpacePoint { at_s, bytes, .. }| (*at_s, bytes / 1e6)).collect();
    let rule = |part: f64, label: &str| Rule { value: table * part / 1e6, label: label.to_string() };
    let lines = vec![Line { name: "table files".to_string(), class: 0, thin: false, points }];
    // A chapter with loads is about the space of a table at work, else about one compaction.
    let goal = match chapter.series.is_empty() {
        true => rule(1.1, "10 % more than before"),
        false => rule(1.25, "25 % more than the data"),
    };
    Some(Panel {
        tall: 1.8,
        rules: vec![goal, rule(2.0, "twice as much")],
        ..Panel::of_lines("space of the table's files, MB", Scale::Linear, lines, number)
    })
}
