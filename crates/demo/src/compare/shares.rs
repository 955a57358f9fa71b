//! Comparisons of shares. Loads that always have more to do must get CPU by their shares. Throttled
//! loads are also limited by the rates that they request.

use crate::names::LOADS;
use crate::results::{Chapter, ComparisonRow, DemoResults, Window};
use charts::numbers::{percent, rate};

/// Phases, their shares, and the published ratio of operations.
const CASES: [(&str, &[f64], &str); 3] = [
    ("200:400", &[200.0, 400.0], "operations 1.42"),
    ("200:800", &[200.0, 800.0], "operations 2.71"),
    ("200:400:800", &[200.0, 400.0, 800.0], "operations 1:2.44:3.33"),
];

/// Tolerance of the ratio of throttled loads.
const THROTTLED_OFF_MAX: f64 = 0.05;

pub(super) fn rows(outcome: &DemoResults, rows: &mut Vec<ComparisonRow>) {
    for (id, shares, published) in CASES {
        let window = outcome.chapter("shares").and_then(|chapter| chapter.window(id));
        rows.extend(window.and_then(|window| backlogged(window, id, shares, published)));
    }
    for (id, shares, published) in CASES {
        let chapter = outcome.chapter("throttled");
        rows.extend(chapter.and_then(|chapter| throttled(chapter, id, shares, published)));
    }
}

/// Returns the values over the first one, such as `2.00` or `1:2.00:4.00`.
pub(crate) fn over_first(values: &[f64]) -> String {
    let of_first = |value: &f64| format!("{:.2}", value / values[0].max(1e-9));
    match values {
        [] => String::new(),
        [_, second] => of_first(second),
        [_, rest @ ..] => format!("1:{}", rest.iter().map(of_first).collect::<Vec<_>>().join(":")),
    }
}

fn measured(window: &Window, count: usize) -> Option<(Vec<f64>, Vec<f64>)> {
    let names = LOADS.iter().take(count);
    let cpu = names.clone().map(|name| window.cpu.levels.get(*name).copied()).collect::<Option<_>>()?;
    let operations = names.map(|name| window.throughput(name)).collect::<Option<_>>()?;
    Some((cpu, operations))
}

fn backlogged(window: &Window, id: &str, shares: &[f64], published: &str) -> Option<ComparisonRow> {
    let (cpu, operations) = measured(window, shares.len())?;
    let off = cpu.iter().zip(shares).map(|(used, shares_of_load)| {
        let (used, entitled) = (used / cpu[0].max(1e-9), shares_of_load / shares[0]);
        (used / entitled - 1.0).abs()
    });
    let worst = off.fold(0.0, f64::max);
    Some(
        ComparisonRow::new(
            format!("shares {id}, always more to do"),
            worst,
            format!("CPU {}", over_first(&cpu)),
        )
        .detail(format!("operations {}; CPU off by {} at most", over_first(&operations), percent(worst)))
        .published(published)
        .goal("CPU\u{a0}±\u{a0}2\u{a0}%", Some(worst <= 0.02)),
    )
}

/// Returns the ratio of two loads that request `demand` of a `total`, if the second is entitled to
/// `part` of it. No load gets more than it requests, and each gets the rest of the other one.
fn attainable(total: f64, demand: [f64; 2], part: f64) -> Option<f64> {
    let second = demand[1].min((total * part).max(total - demand[0]));
    let first = demand[0].min(total - second);
    (first > 0.0).then_some(second / first)
}

/// Returns the requests a second that an open loop wants to send in a phase: its rate, and its
/// backlog.
fn demand(chapter: &Chapter, load: &str, window: &Window) -> Option<f64> {
    let rate_per_s = chapter.runs.iter().find(|run| run.load == load)?.asked_per_s?;
    let points = &chapter.series.iter().find(|series| series.load == load)?.points;
    let before = points.iter().filter(|point| point.at_s < window.begin_s);
    let unsent = before.map(|point| (rate_per_s - point.rate_per_s) * point.seconds).sum::<f64>().max(0.0);
    Some(rate_per_s + unsent / (window.end_s - window.begin_s).max(1e-9))
}

fn throttled(chapter: &Chapter, id: &str, shares: &[f64], published: &str) -> Option<ComparisonRow> {
    let [first, second] = shares else { return None };
    let window = chapter.window(id)?;
    let (cpu, operations) = measured(window, 2)?;
    let demands = [demand(chapter, LOADS[0], window)?, demand(chapter, LOADS[1], window)?];
    // Shares divide CPU. So convert requests at the CPU that one of each load took in this phase.
    let cost = [0, 1].map(|load: usize| cpu[load] / operations[load].max(1e-9));
    let demand_cpu = [demands[0] * cost[0], demands[1] * cost[1]];
    let value = cpu[1] / cpu[0].max(1e-9);
    let goal = attainable(cpu[0] + cpu[1], demand_cpu, second / (first + second))?;
    let detail = format!(
        "operations {}; with their backlogs they requested {} and {} a second and got {} together, so CPU \
             {goal:.2} was possible",
        over_first(&operations),
        rate(demands[0]),
        rate(demands[1]),
        rate(operations.iter().sum())
    );
    let is_met = (value / goal - 1.0).abs() <= THROTTLED_OFF_MAX;
    let seen = format!("CPU {value:.2}");
    Some(
        ComparisonRow::new(format!("shares {id}, throttled at 74 % each"), value, seen)
            .detail(detail)
            .published(published)
            .goal(format!("CPU\u{a0}{goal:.2}\u{a0}±\u{a0}5\u{a0}%"), Some(is_met)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Cpu, LoadRun, Point, Series, WindowLoad};

    fn check(total: f64, demand: f64, part: f64, expected: f64) {
        let found = attainable(total, [demand, demand], part).expect("a ratio");
        assert!((found - expected).abs() < 0.005, "{found}, not {expected}");
    }

    #[test]
    fn throttled_loads_get_their_demand_or_their_shares() {
        check(100.0, 74.0, 2.0 / 3.0, 2.0); // its shares: 66.7 of the requested 74
        check(100.0, 74.0, 0.8, 74.0 / 26.0); // entitled to 80, requested 74: 2.85, with constant capacity
        check(96.0, 74.0, 0.8, 74.0 / 22.0); // with less capacity the ratio grows
        check(90.0, 74.0, 0.8, 4.0); // until shares limit it
        check(148.0, 74.0, 0.8, 1.0); // enough for both
        assert_eq!(attainable(0.0, [74.0, 74.0], 0.8), None);
    }

    #[test]
    fn backlog_counts_as_demand() {
        let points = vec![
            Point { at_s: 5.0, seconds: 10.0, rate_per_s: 70.0, ..Point::default() },
            Point { at_s: 15.0, seconds: 10.0, rate_per_s: 74.0, ..Point::default() },
        ];
        let chapter = Chapter {
            series: vec![Series { load: "load2".into(), points }],
            runs: vec![LoadRun { load: "load2".into(), asked_per_s: Some(74.0), ..LoadRun::default() }],
            ..Chapter::default()
        };
        let window = Window { begin_s: 12.0, end_s: 22.0, ..Window::default() };
        assert_eq!(demand(&chapter, "load2", &window), Some(78.0));
        assert_eq!(demand(&chapter, "load1", &window), None);
        let found = attainable(100.0, [74.0, 78.0], 0.8);
        assert!(found.is_some_and(|ratio| (ratio - 78.0 / 22.0).abs() < 1e-9), "{found:?}");
    }

    /// Regression: equal CPU counted as not met, since a request costs more CPU in the load with
    /// the shorter queue.
    #[test]
    fn throttled_loads_are_judged_by_cpu() {
        let load = |name: &str, throughput_per_s: f64| WindowLoad {
            load: name.into(),
            throughput_per_s,
            ..WindowLoad::default()
        };
        let levels = [("load1".to_string(), 0.2), ("load2".to_string(), 0.8)].into();
        let window = Window {
            id: "200:800".into(),
            begin_s: 0.0,
            end_s: 10.0,
            loads: vec![load("load1", 10.0), load("load2", 44.0)],
            cpu: Cpu { levels, process: 1.0, busy: 1.0, cores: 1, ..Cpu::default() },
            ..Window::default()
        };
        let series = |name: &str| Series { load: name.into(), points: Vec::new() };
        let run = |name: &str| LoadRun { load: name.into(), asked_per_s: Some(74.0), ..LoadRun::default() };
        let chapter = Chapter {
            windows: vec![window],
            series: vec![series("load1"), series("load2")],
            runs: vec![run("load1"), run("load2")],
            ..Chapter::default()
        };
        let row = throttled(&chapter, "200:800", &[200.0, 800.0], "").expect("a row");
        assert!((row.value - 4.0).abs() < 1e-9 && row.met == Some(true), "{row:?}");
        assert!(row.detail.starts_with("operations 4.40"), "{row:?}");
    }

    #[test]
    fn ratios_are_printed_over_the_first() {
        assert_eq!([over_first(&[2.0, 5.0]), over_first(&[1.0, 2.0, 4.0])], ["2.50", "1:2.00:4.00"]);
    }
}
