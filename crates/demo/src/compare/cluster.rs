//! Comparisons of the demo of a cluster, besides those of levels: the use of the node's window
//! against shares, and what the front adds to the latency of a load that is alone.

use super::judge::{judged, ratio};
use super::levels::Effect;
use super::shares::over_first;
use crate::names::{DIRECT, INTERACTIVE, LOADS};
use crate::results::{Chapter, ComparisonRow, DemoResults, NodeUse, Window};
use charts::numbers::{rate, time};

/// Phase whose use of the window is compared, and its shares.
const PHASE: &str = "200:400:800";
const SHARES: [f64; 3] = [200.0, 400.0, 800.0];
/// Largest difference of a level's part from that of its shares, as a fraction of the whole.
const OFF_MAX: f64 = 0.05;

/// Returns the use of the node by each of the loads. `None` unless all were measured.
fn levels(chapter: &Chapter) -> Option<Vec<&NodeUse>> {
    let of = |load: &&str| {
        chapter.nodes.iter().find(|level| level.phase == PHASE && level.level.as_str() == *load)
    };
    LOADS.iter().map(of).collect()
}

/// Returns each value as a fraction of their sum.
fn parts(values: &[f64]) -> Vec<f64> {
    let sum = values.iter().sum::<f64>().max(1e-9);
    values.iter().map(|value| value / sum).collect()
}

/// Returns a row about a quantity that levels divide by their shares.
fn divided(what: &str, values: &[f64], window: &Window, detail: String) -> ComparisonRow {
    let (found, entitled) = (parts(values), parts(&SHARES));
    let off = found.iter().zip(&entitled).map(|(part, entitled)| (part - entitled).abs());
    let worst = off.fold(0.0, f64::max);
    let percents = |parts: &[f64]| {
        let texts: Vec<String> = parts.iter().map(|part| format!("{:.1}", part * 100.0)).collect();
        texts.join(" : ")
    };
    let row = ComparisonRow::new(format!("{what} by shares of {PHASE}"), worst, over_first(values))
        .detail(format!("{} % of {what}, entitled to {} %; {detail}", percents(&found), percents(&entitled)))
        .goal("±\u{a0}5\u{a0}points", Some(worst <= OFF_MAX));
    judged(row, &[window])
}

fn shares_rows(outcome: &DemoResults, rows: &mut Vec<ComparisonRow>) -> Option<()> {
    let chapter = outcome.chapter("shares")?;
    let (levels, window) = (levels(chapter)?, chapter.window(PHASE)?);
    let occupancy: Vec<f64> = levels.iter().map(|level| level.occupancy_s).collect();
    let requests: Vec<f64> = levels.iter().map(|level| level.requests as f64).collect();
    let listed = |value: fn(&NodeUse) -> String| {
        let values: Vec<String> = levels.iter().map(|level| value(level)).collect();
        values.join(", ")
    };
    let in_window = format!(
        "a request held its place for {}; at the end {} waited for one of {}",
        listed(|level| time(level.place_us())),
        listed(|level| level.queued.to_string()),
        levels[0].window
    );
    rows.push(divided("occupancy", &occupancy, window, in_window));
    let counts = listed(|level| rate(level.requests as f64));
    rows.push(divided("operations", &requests, window, format!("{counts} requests")));
    Some(())
}

/// Returns the median latency alone through the front over that without it. There is no goal: the
/// front may share its core with the senders.
fn added(outcome: &DemoResults) -> Option<ComparisonRow> {
    let alone = |id: &str| {
        let window = Effect::of(outcome.chapter(id)?)?.alone;
        Some((window, window.latency(INTERACTIVE)?))
    };
    let ((_, through), (_, direct)) = (alone("one_level")?, alone(DIRECT)?);
    let value = ratio(Some(through.p50_us), Some(direct.p50_us))?;
    let shown = |latency: &load::Latency| format!("{} (p99 {})", time(latency.p50_us), time(latency.p99_us));
    let detail = format!("{} through the front, {} without", shown(&through), shown(&direct));
    Some(ComparisonRow::times("interactive median alone, through the front", value).detail(detail))
}

pub(super) fn rows(outcome: &DemoResults, rows: &mut Vec<ComparisonRow>) {
    let _not_measured = shares_rows(outcome, rows);
    rows.extend(added(outcome));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Cpu, WindowLoad};

    fn outcome(occupancy_s: [f64; 3], requests: [u64; 3], process: f64) -> DemoResults {
        let level = |n: usize| NodeUse {
            phase: PHASE.into(),
            level: LOADS[n].into(),
            window: 16,
            queued: 100,
            requests: requests[n],
            occupancy_s: occupancy_s[n],
            ..NodeUse::default()
        };
        let cpu = Cpu { process, busy: 1.0, cores: 1, ..Cpu::default() };
        let window = Window { id: PHASE.into(), cpu, ..Window::default() };
        let nodes = (0..3).map(level).collect();
        let chapter = Chapter { id: "shares".into(), windows: vec![window], nodes, ..Chapter::default() };
        DemoResults { chapters: vec![chapter], ..DemoResults::default() }
    }

    fn check(outcome: &DemoResults, what: &str, value: f64, met: Option<bool>) {
        let mut found = Vec::new();
        rows(outcome, &mut found);
        let row = found.iter().find(|row| row.what.starts_with(what)).expect("a row");
        assert!((row.value - value).abs() < 1e-9 && row.met == met, "{row:?}");
    }

    #[test]
    fn use_of_the_window_is_judged_by_points_of_the_whole() {
        let even = outcome([1.0, 2.0, 4.0], [100, 200, 400], 1.0);
        check(&even, "occupancy", 0.0, Some(true));
        check(&even, "operations", 0.0, Some(true));
        let uneven = outcome([2.0, 2.0, 4.0], [100, 200, 500], 1.0);
        check(&uneven, "occupancy", 0.25 - 1.0 / 7.0, Some(false));
        check(&uneven, "operations", 5.0 / 8.0 - 4.0 / 7.0, Some(false));
        check(&outcome([2.0, 2.0, 4.0], [1, 2, 4], 0.5), "occupancy", 0.25 - 1.0 / 7.0, None);
    }

    #[test]
    fn level_that_was_not_measured_leaves_the_rows_out() {
        let mut outcome = outcome([1.0; 3], [1; 3], 1.0);
        outcome.chapters[0].nodes.remove(1);
        let mut found = Vec::new();
        rows(&outcome, &mut found);
        assert_eq!(found, Vec::new());
    }

    #[test]
    fn front_is_compared_with_the_node_alone() {
        let chapter = |id: &str, p50_us: f64| {
            let window = |id: &str| Window {
                id: id.into(),
                loads: vec![WindowLoad {
                    load: INTERACTIVE.into(),
                    latency: Some(load::Latency { p50_us, p99_us: 900.0, ..load::Latency::default() }),
                    ..WindowLoad::default()
                }],
                ..Window::default()
            };
            let windows = vec![window("before"), window("beside")];
            Chapter { id: id.into(), windows, ..Chapter::default() }
        };
        let chapters = vec![chapter("one_level", 300.0), chapter(DIRECT, 200.0)];
        let outcome = DemoResults { chapters, ..DemoResults::default() };
        check(&outcome, "interactive median", 1.5, None);
    }
}
