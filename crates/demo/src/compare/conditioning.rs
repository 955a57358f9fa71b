//! Comparison with a published pair of runs: 20,000 writes a second on one core, with uncontrolled
//! background work and with the controllers.

use super::judge::{Labels, judged, median, median_of, ratios, spread};
use crate::names::{ALONE, CONTROLLED, UNCONTROLLED, WRITES};
use crate::results::{Chapter, ComparisonRow, DemoResults, Window, WindowLoad, times};
use charts::numbers::{percent, rate, time};

/// A published result: its name, the value here, and the published values with the controllers off
/// and on, in the unit of the value.
struct Published {
    name: &'static str,
    value: fn(&WindowLoad) -> Option<f64>,
    off: f64,
    on: f64,
    shown: fn(f64) -> String,
}

const fn latency(name: &'static str, value: fn(&WindowLoad) -> Option<f64>, off: f64, on: f64) -> Published {
    Published { name, value, off, on, shown: time }
}

/// The published table: writes a second, and latencies in µs.
const PUBLISHED: [Published; 7] = [
    Published {
        name: "writes a second",
        value: |load| Some(load.throughput_per_s),
        off: 18_810.0,
        on: 20_019.0,
        shown: rate,
    },
    latency("mean", |load| load.latency.map(|latency| latency.mean_us), 600.0, 400.0),
    latency("median", |load| load.latency.map(|latency| latency.p50_us), 500.0, 400.0),
    latency("p95", |load| load.latency.map(|latency| latency.p95_us), 800.0, 600.0),
    latency("p99", |load| load.latency.map(|latency| latency.p99_us), 3_600.0, 800.0),
    latency("p99.9", |load| load.latency.map(|latency| latency.p999_us), 4_500.0, 1_900.0),
    latency("maximum", |load| load.latency.map(|latency| latency.max_us), 39_500.0, 30_400.0),
];

fn row(chapter: &Chapter, published: &Published) -> Option<ComparisonRow> {
    let Published { name, shown, .. } = published;
    let of = |window: &Window| (published.value)(window.load(WRITES)?);
    let found = ratios(chapter, Labels { base: CONTROLLED, later: UNCONTROLLED }, of);
    let value = median(found.clone())?;
    let [off, on] =
        [UNCONTROLLED, CONTROLLED].map(|label| shown(median_of(chapter, label, of).unwrap_or_default()));
    let row = ComparisonRow::times(format!("{name}, off over on, {}", chapter.title), value)
        .detail(format!(
            "{off} off, {on} on; {}; published: {} off, {} on",
            spread(found),
            shown(published.off),
            shown(published.on)
        ))
        .published(times(published.off / published.on));
    Some(judged(row, &chapter.windows.iter().collect::<Vec<_>>()))
}

fn alone_row(chapter: &Chapter) -> Option<ComparisonRow> {
    let cpu = &chapter.window(ALONE)?.cpu;
    let value = cpu.server_part();
    Some(
        ComparisonRow::percent("a compaction alone, of the core", value)
            .detail(format!(
                "by the server's process; all processes together used {}",
                percent(cpu.busy_part())
            ))
            .published("everything"),
    )
}

/// Returns the p99 of the chapter's writes with the controllers off and on, µs.
pub(crate) fn both_p99(chapter: &Chapter) -> Option<[f64; 2]> {
    let p99 = |label: &str| median_of(chapter, label, |window| Some(window.latency(WRITES)?.p99_us));
    Some([p99(UNCONTROLLED)?, p99(CONTROLLED)?])
}

pub(super) fn rows(outcome: &DemoResults, rows: &mut Vec<ComparisonRow>) {
    for id in ["published_rate", "published_part"] {
        let Some(chapter) = outcome.chapter(id) else { continue };
        rows.extend(PUBLISHED.iter().filter_map(|published| row(chapter, published)));
    }
    rows.extend(outcome.chapter("background_alone").and_then(alone_row));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Cpu;

    #[test]
    fn pairs_stand_beside_the_published_ones() {
        let window = |label: &str, p99_us: f64| {
            let latency = load::Latency { p99_us, mean_us: p99_us / 4.0, ..load::Latency::default() };
            let load = WindowLoad {
                load: WRITES.into(),
                throughput_per_s: 20_000.0,
                latency: Some(latency),
                ..WindowLoad::default()
            };
            Window { label: label.into(), loads: vec![load], ..Window::default() }
        };
        let phases =
            [(UNCONTROLLED, 3000.0), (CONTROLLED, 1000.0), (CONTROLLED, 2000.0), (UNCONTROLLED, 2000.0)];
        let windows = phases.map(|(label, p99_us)| window(label, p99_us)).to_vec();
        let chapter = Chapter { id: "published_rate".into(), windows, ..Chapter::default() };
        let alone = Cpu { process: 0.98, cores: 1, ..Cpu::default() };
        let alone = Window { id: ALONE.into(), cpu: alone, ..Window::default() };
        let alone = Chapter { id: "background_alone".into(), windows: vec![alone], ..Chapter::default() };
        let outcome = DemoResults { chapters: vec![chapter.clone(), alone], ..DemoResults::default() };
        let mut found = Vec::new();
        rows(&outcome, &mut found);
        let p99 = found.iter().find(|row| row.what.starts_with("p99,")).expect("a row");
        assert_eq!((p99.value, &*p99.published), (2.0, "×4.50"));
        let detail =
            "2.50\u{a0}ms off, 1.50\u{a0}ms on; median of 2 pairs, all from ×1.00 to ×3.00; published: 3.60";
        assert!(p99.detail.contains(detail), "{}", p99.detail);
        assert_eq!(found.last().map(|row| row.value), Some(0.98));
        assert_eq!(both_p99(&chapter), Some([2500.0, 1500.0]));
        assert_eq!(both_p99(&Chapter::default()), None);
    }
}
