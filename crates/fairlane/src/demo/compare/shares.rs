//! Shares: what backlogged loads got of the CPU, which must be their shares; and what throttled loads got,
//! which is bounded by what they ask for as well.

use super::super::figures::{Chapter, Outcome, Window};
use super::super::shares::LOADS;
use super::super::units::{percent, rate};
use super::Row;

/// Phases, their shares, and the ratio of operations published.
const CASES: [(&str, &[f64], &str); 3] = [
    ("200:400", &[200.0, 400.0], "operations 1.42"),
    ("200:800", &[200.0, 800.0], "operations 2.71"),
    ("200:400:800", &[200.0, 400.0, 800.0], "operations 1:2.44:3.33"),
];

/// How far a ratio of throttled loads may be from what could be had.
const THROTTLED_OFF_MAX: f64 = 0.05;

pub(super) fn rows(outcome: &Outcome, rows: &mut Vec<Row>) {
    for (id, shares, published) in CASES {
        let window = outcome.chapter("shares").and_then(|chapter| chapter.window(id));
        rows.extend(window.and_then(|window| backlogged(window, id, shares, published)));
    }
    for (id, shares, published) in CASES {
        let chapter = outcome.chapter("throttled");
        rows.extend(chapter.and_then(|chapter| throttled(chapter, id, shares, published)));
    }
}

/// `2.00` or `1:2.00:4.00`: each over the first.
pub(in crate::demo) fn over_first(values: &[f64]) -> String {
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

fn backlogged(window: &Window, id: &str, shares: &[f64], published: &str) -> Option<Row> {
    let (cpu, operations) = measured(window, shares.len())?;
    let off = cpu.iter().zip(shares).map(|(used, due)| {
        let (used, due) = (used / cpu[0].max(1e-9), due / shares[0]);
        (used / due - 1.0).abs()
    });
    let worst = off.fold(0.0, f64::max);
    Some(Row {
        what: format!("shares {id}, always more to do"),
        seen: format!("CPU {}", over_first(&cpu)),
        detail: format!("operations {}; CPU off by {} at most", over_first(&operations), percent(worst)),
        published: published.into(),
        goal: "CPU\u{a0}±\u{a0}2\u{a0}%".into(),
        value: worst,
        met: Some(worst <= 0.02),
    })
}

/// What two loads can be given when they ask for `asked` and together have `total`, the second being
/// due `part` of it: nobody gets more than was asked for, and what one leaves is the other's.
fn attainable(total: f64, asked: [f64; 2], part: f64) -> Option<f64> {
    let second = asked[1].min((total * part).max(total - asked[0]));
    let first = asked[0].min(total - second);
    (first > 0.0).then_some(second / first)
}

/// Requests a second that an open loop asks for in a phase: its rate, and what it could not send before, which
/// it sends as soon as it can.
fn demand(chapter: &Chapter, load: &str, window: &Window) -> Option<f64> {
    let rate_per_s = chapter.runs.iter().find(|run| run.load == load)?.asked_per_s?;
    let points = &chapter.series.iter().find(|series| series.load == load)?.points;
    let before = points.iter().filter(|point| point.at_s < window.begin_s);
    let unsent = before.map(|point| (rate_per_s - point.rate_per_s) * point.seconds).sum::<f64>().max(0.0);
    Some(rate_per_s + unsent / (window.end_s - window.begin_s).max(1e-9))
}

fn throttled(chapter: &Chapter, id: &str, shares: &[f64], published: &str) -> Option<Row> {
    let [first, second] = shares else { return None };
    let window = chapter.window(id)?;
    let (cpu, operations) = measured(window, 2)?;
    let asked = [demand(chapter, LOADS[0], window)?, demand(chapter, LOADS[1], window)?];
    // In CPU, which is what shares divide: what they asked for at what a request of each cost in this phase.
    let cost = [0, 1].map(|load: usize| cpu[load] / operations[load].max(1e-9));
    let wanted = [asked[0] * cost[0], asked[1] * cost[1]];
    let value = cpu[1] / cpu[0].max(1e-9);
    let goal = attainable(cpu[0] + cpu[1], wanted, second / (first + second))?;
    Some(Row {
        what: format!("shares {id}, throttled at 74 % each"),
        seen: format!("CPU {value:.2}"),
        detail: format!(
            "operations {}; with their backlogs they asked for {} and {} a second and got {} together, so CPU {goal:.2} could be had",
            over_first(&operations),
            rate(asked[0]),
            rate(asked[1]),
            rate(operations.iter().sum())
        ),
        published: published.into(),
        goal: format!("CPU\u{a0}{goal:.2}\u{a0}±\u{a0}5\u{a0}%"),
        value,
        met: Some((value / goal - 1.0).abs() <= THROTTLED_OFF_MAX),
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::figures::{Cpu, Point, Run, Series, WindowLoad};
    use super::*;

    fn check(total: f64, asked: f64, part: f64, expected: f64) {
        let found = attainable(total, [asked, asked], part).expect("something was answered");
        assert!((found - expected).abs() < 0.005, "{found}, not {expected}");
    }

    #[test]
    fn what_throttled_loads_can_get() {
        check(100.0, 74.0, 2.0 / 3.0, 2.0); // its shares: 66.7 of the 74 it asks for
        check(100.0, 74.0, 0.8, 74.0 / 26.0); // 80 are due, 74 asked for: the 2.85 of a constant capacity
        check(96.0, 74.0, 0.8, 74.0 / 22.0); // less capacity than thought, and the ratio goes further
        check(90.0, 74.0, 0.8, 4.0); // until shares bound it again
        check(148.0, 74.0, 0.8, 1.0); // room for both
        assert_eq!(attainable(0.0, [74.0, 74.0], 0.8), None);
    }

    #[test]
    fn what_was_not_sent_before_is_asked_for_as_well() {
        let points = vec![
            Point { at_s: 5.0, seconds: 10.0, rate_per_s: 70.0, ..Point::default() },
            Point { at_s: 15.0, seconds: 10.0, rate_per_s: 74.0, ..Point::default() },
        ];
        let chapter = Chapter {
            series: vec![Series { load: "load2".into(), points }],
            runs: vec![Run { load: "load2".into(), asked_per_s: Some(74.0), ..Run::default() }],
            ..Chapter::default()
        };
        let window = Window { begin_s: 12.0, end_s: 22.0, ..Window::default() };
        assert_eq!(demand(&chapter, "load2", &window), Some(78.0));
        assert_eq!(demand(&chapter, "load1", &window), None);
        let found = attainable(100.0, [74.0, 78.0], 0.8);
        assert!(found.is_some_and(|ratio| (ratio - 78.0 / 22.0).abs() < 1e-9), "{found:?}");
    }

    /// Once equal CPU counted as not met, because a request costs the load with the shorter queue more.
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
        let run = |name: &str| Run { load: name.into(), asked_per_s: Some(74.0), ..Run::default() };
        let chapter = Chapter {
            windows: vec![window],
            series: vec![series("load1"), series("load2")],
            runs: vec![run("load1"), run("load2")],
            ..Chapter::default()
        };
        let row = throttled(&chapter, "200:800", &[200.0, 800.0], "").expect("everything was measured");
        assert!((row.value - 4.0).abs() < 1e-9 && row.met == Some(true), "{row:?}");
        assert!(row.detail.starts_with("operations 4.40"), "{row:?}");
    }

    #[test]
    fn ratios_as_text() {
        assert_eq!([over_first(&[2.0, 5.0]), over_first(&[1.0, 2.0, 4.0])], ["2.50", "1:2.00:4.00"]);
    }
}
