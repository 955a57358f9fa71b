//! Cost of flushes and compactions to writes, and the space of a major compaction. Phases of two
//! servers alternate. Each is compared with its neighbour, and the median of these pairs counts:
//! the p99 of single phases varies more by pauses of the machine than by background work.

use super::judge::{Labels, judged, median, ratio, ratios, spread};
use crate::names::{FLUSHING, IN_MEMORY, WRITES};
use crate::results::{Chapter, ComparisonRow, DemoResults, Point, StoragePoint, Window};
use charts::numbers::{factor, percent, rate, time};

/// Goals: the p99 beside flushes over the p99 in memory, and the deviation of throughput from the
/// rate.
const P99_MAX: f64 = 1.1;
const DEVIATION_MAX: f64 = 0.01;
/// Goal: temporary space of a major compaction, as a fraction of the table.
const TEMPORARY_MAX: f64 = 0.1;

/// Returns the p99 of each phase with this label, µs.
fn p99s(chapter: &Chapter, label: &str) -> Vec<f64> {
    let phases = chapter.windows.iter().filter(|window| window.label == label);
    phases.filter_map(|window| window.latency(WRITES)).map(|latency| latency.p99_us).collect()
}

/// Returns the p99 of writes on the flushing server over that in memory, for each pair of phases.
fn pairs(chapter: &Chapter) -> Vec<f64> {
    ratios(chapter, Labels { base: IN_MEMORY, later: FLUSHING }, |window| {
        window.latency(WRITES).map(|latency| latency.p99_us)
    })
}

/// Returns the median over the pairs.
pub(crate) fn cost(chapter: &Chapter) -> Option<f64> {
    median(pairs(chapter))
}

/// Returns least and largest value in parentheses, or nothing for one value.
fn range(mut values: Vec<f64>) -> String {
    values.sort_by(f64::total_cmp);
    match (values.first(), values.last()) {
        (Some(least), Some(most)) if values.len() > 1 => format!(" ({} to {})", time(*least), time(*most)),
        _ => String::new(),
    }
}

fn how(controllers: bool) -> &'static str {
    if controllers { "controllers on" } else { "controllers off" }
}

fn latency_row(chapter: &Chapter, controllers: bool) -> Option<ComparisonRow> {
    let value = cost(chapter)?;
    let [flushing, in_memory] = [FLUSHING, IN_MEMORY].map(|kind| p99s(chapter, kind));
    let shown = |values: &Vec<f64>| time(median(values.clone()).unwrap_or_default());
    let how = how(controllers);
    let row = ComparisonRow::times(format!("write p99, flushing/in memory, {how}"), value)
        .detail(format!(
            "{}; {} flushing{}, {} in memory{}, medians",
            spread(pairs(chapter)),
            shown(&flushing),
            range(flushing.clone()),
            shown(&in_memory),
            range(in_memory.clone())
        ))
        .goal(
            if controllers { format!("≤\u{a0}×{P99_MAX}") } else { String::new() },
            controllers.then_some(value <= P99_MAX),
        );
    Some(judged(row, &chapter.windows.iter().collect::<Vec<&Window>>()))
}

/// Returns the p99 of each second within phases with this label, µs, sorted.
fn seconds(chapter: &Chapter, label: &str) -> Vec<f64> {
    let within = |point: &&Point| {
        let (begin_s, end_s) = (point.at_s - point.seconds / 2.0, point.at_s + point.seconds / 2.0);
        let contains = |window: &Window| window.begin_s <= begin_s && end_s <= window.end_s;
        chapter.windows.iter().any(|window| window.label == label && contains(window))
    };
    let points =
        chapter.series.iter().filter(|series| series.load == WRITES).flat_map(|series| &series.points);
    let mut found: Vec<f64> = points.filter(within).map(|point| point.p99_us).collect();
    found.sort_by(f64::total_cmp);
    found
}

/// Compares single seconds. A pause of the machine affects one second, but also the p99 of a whole
/// phase.
fn seconds_row(chapter: &Chapter, controllers: bool) -> Option<ComparisonRow> {
    let both = [FLUSHING, IN_MEMORY].map(|kind| seconds(chapter, kind));
    let [flushing, in_memory] = both.each_ref().map(|of| of.get(of.len() / 4).copied());
    let (quiet, quiet_in_memory) = (flushing?, in_memory?);
    let [flushing, in_memory] = both.map(median);
    let (flushing, in_memory) = (flushing?, in_memory?);
    let value = ratio(Some(flushing), Some(in_memory))?;
    let how = how(controllers);
    let detail = format!(
        "{} flushing, {} in memory, medians; ×{} in the quieter quarter, without pauses of the machine: {} and {}",
        time(flushing),
        time(in_memory),
        factor(ratio(Some(quiet), Some(quiet_in_memory))?),
        time(quiet),
        time(quiet_in_memory)
    );
    Some(ComparisonRow::times(format!("the same of single seconds, {how}"), value).detail(detail))
}

fn throughput_row(chapter: &Chapter, controllers: bool) -> Option<ComparisonRow> {
    let requested = chapter.windows.iter().find_map(|window| window.load(WRITES)?.asked_per_s)?;
    let done: Vec<f64> = chapter.windows.iter().filter_map(|window| window.throughput(WRITES)).collect();
    let deviation = |done: &f64| (done / requested - 1.0).abs();
    let value = done.iter().map(deviation).fold(0.0, f64::max);
    let how = how(controllers);
    let (least, most) =
        (done.iter().copied().fold(f64::INFINITY, f64::min), done.iter().copied().fold(0.0, f64::max));
    let row = ComparisonRow::percent(format!("largest deviation from the requested rate, {how}"), value)
        .detail(format!(
            "{} to {} a second in single phases, {} requested",
            rate(least),
            rate(most),
            rate(requested)
        ))
        .goal(
            if controllers { format!("≤\u{a0}{}", percent(DEVIATION_MAX)) } else { String::new() },
            controllers.then_some(value <= DEVIATION_MAX),
        );
    Some(judged(row, &chapter.windows.iter().collect::<Vec<&Window>>()))
}

/// Reports the amount of background work.
fn work_row(chapter: &Chapter, controllers: bool) -> Option<ComparisonRow> {
    let sum = |of: fn(&StoragePoint) -> f64| chapter.storage.iter().map(of).sum::<f64>();
    let (flushed, compacted) = (sum(|p| p.flush_bytes_per_s), sum(|p| p.compaction_bytes_per_s));
    let value = ratio(Some(flushed + compacted), Some(flushed))?;
    let how = how(controllers);
    let detail = format!(
        "{:.0} flushes wrote {:.0} MB, {:.0} compactions {:.0} MB: {:.0} MB a second while flushing; the log \
             is not counted",
        sum(|p| p.flushes),
        flushed / 1e6,
        sum(|p| p.compactions),
        compacted / 1e6,
        chapter.storage_mean(FLUSHING, StoragePoint::background_bytes_per_s) / 1e6
    );
    Some(
        ComparisonRow::times(format!("written by flush and compaction, over flush, {how}"), value)
            .detail(detail),
    )
}

/// Compares the temporary space of a compaction with a goal.
fn space_row(chapter: &Chapter, goal: Option<f64>) -> Option<ComparisonRow> {
    let value = chapter.temporary_space()?;
    let (first, last) = (chapter.space.first()?, chapter.space.last()?);
    let megabytes = |bytes: f64| format!("{:.0} MB", bytes / 1e6);
    let highest = chapter.space.iter().map(|point| point.bytes).fold(0.0, f64::max);
    Some(
        ComparisonRow::percent(format!("temporary space, {}", chapter.id.replace('_', "-")), value)
            .detail(format!(
                "{} in {:.0} files before, {} at most, {} in {:.0} files after",
                megabytes(first.bytes),
                first.files,
                megabytes(highest),
                megabytes(last.bytes),
                last.files
            ))
            .goal(
                goal.map_or(String::new(), |most| format!("≤\u{a0}{}", percent(most))),
                goal.map(|most| value <= most),
            ),
    )
}

pub(super) fn rows(outcome: &DemoResults, rows: &mut Vec<ComparisonRow>) {
    for (id, goal) in [("incremental", Some(TEMPORARY_MAX)), ("size_tiered", None)] {
        rows.extend(outcome.chapter(id).and_then(|chapter| space_row(chapter, goal)));
    }
    for (id, controllers) in [("controlled", true), ("uncontrolled", false)] {
        let Some(chapter) = outcome.chapter(id) else { continue };
        rows.extend(latency_row(chapter, controllers));
        rows.extend(seconds_row(chapter, controllers));
        rows.extend(throughput_row(chapter, controllers));
        rows.extend(work_row(chapter, controllers));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Series, WindowLoad};

    fn window(label: &str, p99_us: f64, throughput_per_s: f64) -> Window {
        let load = WindowLoad {
            load: WRITES.into(),
            throughput_per_s,
            asked_per_s: Some(1000.0),
            latency: Some(load::Latency { p99_us, ..load::Latency::default() }),
            ..WindowLoad::default()
        };
        Window { label: label.into(), loads: vec![load], ..Window::default() }
    }

    fn check(id: &str, windows: &[(&str, f64, f64)], expected: [(f64, Option<bool>); 2]) {
        let windows = windows.iter().map(|(id, p99, done)| window(id, *p99, *done)).collect();
        let point =
            StoragePoint { flush_bytes_per_s: 10.0, compaction_bytes_per_s: 20.0, ..StoragePoint::default() };
        let chapter = Chapter { id: id.into(), windows, storage: vec![point], ..Chapter::default() };
        let outcome = DemoResults { chapters: vec![chapter], ..DemoResults::default() };
        let mut found = Vec::new();
        rows(&outcome, &mut found);
        assert_eq!(found.len(), 3, "{found:?}");
        for (row, (value, met)) in found.iter().zip(expected) {
            assert!((row.value - value).abs() < 1e-9 && row.met == met, "{row:?}, not {value}");
        }
        assert_eq!(found[2].value, 3.0);
    }

    #[test]
    fn phases_are_compared_in_pairs() {
        let phases = [
            ("flushing", 110.0, 1000.0),
            ("in memory", 100.0, 1000.0),
            ("in memory", 8000.0, 995.0),
            ("flushing", 9000.0, 1000.0),
            ("flushing", 90.0, 1000.0),
            ("in memory", 120.0, 1000.0),
            ("in memory", 500.0, 1000.0),
        ];
        check("controlled", &phases, [(1.1, Some(true)), (0.005, Some(true))]);
        let phases = [("flushing", 300.0, 900.0), ("in memory", 100.0, 1000.0)];
        check("controlled", &phases, [(3.0, Some(false)), (0.1, Some(false))]);
        check("uncontrolled", &phases, [(3.0, None), (0.1, None)]);
    }

    #[test]
    fn only_whole_seconds_of_a_phase_are_compared() {
        let phase =
            |label: &str, begin_s: f64| Window { begin_s, end_s: begin_s + 4.0, ..window(label, 1.0, 1.0) };
        let point = |at_s: f64, p99_us: f64| Point { at_s, seconds: 1.0, p99_us, ..Point::default() };
        let flushing = [(0.2, 9e6), (0.5, 2e3), (1.5, 9e5), (2.5, 3e3), (3.5, 1e3), (3.7, 9e6)];
        let in_memory = [(4.5, 1e3), (5.5, 1e3), (6.5, 1e3), (7.5, 5e3)];
        let points =
            flushing.into_iter().chain(in_memory).map(|(at_s, p99_us)| point(at_s, p99_us)).collect();
        let chapter = Chapter {
            windows: vec![phase(FLUSHING, 0.0), phase(IN_MEMORY, 4.0)],
            series: vec![Series { load: WRITES.into(), points }],
            ..Chapter::default()
        };
        let row = seconds_row(&chapter, true).expect("both kinds");
        assert_eq!((row.value, row.met), (2.5, None));
        assert!(row.detail.contains("×2.00 in the quieter quarter"), "{}", row.detail);
        let only_one = Chapter { windows: vec![phase(IN_MEMORY, 4.0)], ..chapter };
        assert!(seconds_row(&only_one, true).is_none());
    }

    #[test]
    fn several_values_are_reported_with_their_range() {
        let both = format!(" ({} to {})", time(2e3), time(3e3));
        assert_eq!([range(vec![2e3]), range(vec![3e3, 2e3])], [String::new(), both]);
    }
}
